/* SPDX-License-Identifier: MIT
 *
 * lora.c: see lora.h.
 */
#include "runner/lora.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "llm/adapter.h"

/* Adds FILE:X: the scale X stands behind the last ':', so that FILE may have ':' in it. */
static tdm_status scaled_add(runner_app *app, llm_model *model, const char *text, tdm_error *err) {
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    const double scale = colon != NULL ? strtod(colon + 1, &end) : 0;
    if (colon == NULL || colon == text || colon[1] == '\0' || *end != '\0' ||
        !isfinite((float)scale))
        return runner_config_fail(app->config, "lora-scaled", TDM_INVALID_ARGUMENT, err,
                                  "'%.200s': expected FILE:X with a number X, as in "
                                  "adapter.gguf:0.5",
                                  text);
    char *path = strndup(text, (size_t)(colon - text));
    if (path == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "lora-scaled: no memory");
    tdm_status status = llm_model_add_adapter(model, path, (float)scale, err);
    free(path);
    return status;
}

tdm_status runner_lora_add(runner_app *app, llm_model *model, tdm_error *err) {
    const runner_key_list *keys = runner_config_keys(app->config);
    tdm_status status = TDM_OK;
    if (!runner_command_takes(app->command, runner_key_find(keys, "lora", app->command)))
        return TDM_OK;
    for (size_t i = 0; i < runner_config_get_count(app->config, "lora") && status == TDM_OK; i++)
        status = llm_model_add_adapter(model, runner_config_get_string_at(app->config, "lora", i),
                                       1, err);
    const size_t n = runner_config_get_count(app->config, "lora-scaled");
    for (size_t i = 0; i < n && status == TDM_OK; i++)
        status =
            scaled_add(app, model, runner_config_get_string_at(app->config, "lora-scaled", i), err);
    return status;
}
