/* SPDX-License-Identifier: MIT
 *
 * lora.c: adapters as llama-server has them: /lora-adapters, and the field `lora` of requests.
 */
#include <float.h>
#include <string.h>

#include "server/api/state.h"

tdm_status api_scales_read(const server_model *model, const json_t *list, float *scales_out,
                           tdm_error *err) {
    const int32_t n = model->model->n_adapter;
    size_t i;
    const json_t *entry;
    for (int32_t a = 0; a < LLM_MAX_ADAPTERS; a++) scales_out[a] = 0;
    if (!json_is_array(list))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "'lora' must be an array of {\"id\": number, \"scale\": number}");
    json_array_foreach(list, i, entry) {
        int64_t id = -1;
        double scale = 0;
        if (!json_is_object(entry) || !json_is_integer(api_get(entry, "id")))
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "'lora': entry %zu is no object with a whole number 'id'", i);
        tdm_status status = api_get_int(entry, "id", INT64_MIN, INT64_MAX, &id, err);
        if (status == TDM_OK)
            status = api_get_number(entry, "scale", -(double)FLT_MAX, FLT_MAX, &scale, err);
        if (status != TDM_OK) return status;
        if (id < 0 || id >= n)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "'lora': there is no adapter %lld; the server has %d (--lora)",
                            (long long)id, (int)n);
        scales_out[id] = (float)scale;
    }
    return TDM_OK;
}

tdm_status api_lora_get(api_context *c, tdm_error *err) {
    const llm_model *m = c->model->model;
    float scales[LLM_MAX_ADAPTERS];
    json_t *list = json_array();
    (void)err;
    server_engine_get_scales(c->model->engine, scales);
    for (int32_t a = 0; a < m->n_adapter; a++) {
        /* The name of the file only: clients do not get the server's folders. */
        const char *path = llm_gguf_name(m->adapters[a].gguf), *slash = strrchr(path, '/');
        json_array_append_new(list, json_pack("{s:i, s:o, s:f}", "id", (int)a, "path",
                                              api_message_json(slash != NULL ? slash + 1 : path),
                                              "scale", (double)scales[a]));
    }
    api_json_reply(c->x, 200, list);
    return TDM_OK;
}

tdm_status api_lora_set(api_context *c, tdm_error *err) {
    float scales[LLM_MAX_ADAPTERS];
    tdm_status status = api_scales_read(c->model, c->body, scales, err);
    if (status == TDM_OK) status = server_engine_set_scales(c->model->engine, scales, err);
    if (status == TDM_OK) api_json_reply(c->x, 200, json_pack("{s:b}", "success", 1));
    return status;
}
