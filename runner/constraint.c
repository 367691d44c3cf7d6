/* SPDX-License-Identifier: MIT
 *
 * constraint.c: see constraint.h.
 */
#include "runner/constraint.h"

#include <stdlib.h>
#include <string.h>

#include "runner/prompt.h"

static const struct {
    const char *key;
    bool is_file, is_schema;
} sources[] = {
    {"grammar", false, false},
    {"grammar-file", true, false},
    {"json-schema", false, true},
    {"json-schema-file", true, true},
};

enum { SOURCE_COUNT = sizeof sources / sizeof *sources };

/* The text of a source, which the caller frees. */
static tdm_status text_read(runner_app *app, int source, char **text, size_t *len, tdm_error *err) {
    const char *value = runner_config_get_string(app->config, sources[source].key);
    if (sources[source].is_file) return runner_file_read(value, text, len, err);
    *text = strdup(value);
    *len = strlen(value);
    return *text != NULL ? TDM_OK : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "grammar: no memory");
}

tdm_status runner_constraint_open(runner_app *app, const llm_vocab *vocab, int32_t n_token,
                                  runner_constraint *c, tdm_error *err) {
    int given = -1;
    for (int i = 0; i < SOURCE_COUNT; i++) {
        if (runner_config_get_string(app->config, sources[i].key)[0] == '\0') continue;
        if (given >= 0)
            return runner_usage(app, err, "%s and %s exclude each other: give one of them",
                                sources[given].key, sources[i].key);
        given = i;
    }
    tdm_status status = runner_config_check(app->config, err);
    if (status != TDM_OK || given < 0) return status;
    if (runner_config_get_bool(app->config, "ignore-eos"))
        return runner_usage(app, err, "%s says where the text ends: leave out ignore-eos",
                            sources[given].key);
    char *text = NULL;
    size_t len = 0;
    tdm_error inner = {0};
    status = text_read(app, given, &text, &len, err);
    if (status == TDM_OK) status = grammar_vocab_create(vocab, n_token, &c->vocab, err);
    if (status == TDM_OK) {
        status = (sources[given].is_schema ? grammar_compile_schema : grammar_compile)(
            c->vocab, text, len, &c->grammar, &inner);
        if (status != TDM_OK)
            status = runner_config_fail(app->config, sources[given].key, status, err, "%s",
                                        inner.message);
    }
    free(text);
    return status;
}

void runner_constraint_close(runner_constraint *c) {
    grammar_release(c->grammar);
    grammar_vocab_destroy(c->vocab);
    *c = (runner_constraint){0};
}
