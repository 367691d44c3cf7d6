/* SPDX-License-Identifier: MIT
 *
 * card_rig.c: see card_rig.h.
 */
#include "tests/model/card_rig.h"

#include <dlfcn.h>

#include "core/runtime.h"
#include "tests/model/preset.h"

const char *card_model;
void (*card_set)(const char *member, const char *key, int64_t n);
int64_t (*card_get)(const char *member, const char *key);
int64_t (*card_live)(void);

int card_begin(void **state) {
    tdm_error err = {0};
    if (rig_begin(state) != 0) return -1;
    random_model_spec spec = preset_find("tiny-mixtral");
    spec.type = TDM_TYPE_Q8_0;
    card_model = rig_file("discrete.gguf");
    RIG_OK(random_model_write(&spec, card_model, NULL, NULL, NULL, &err));
    return 0;
}

static void log_ignore(void *context, int32_t level, const char *line) {
    (void)context;
    (void)level;
    (void)line;
}

/* ---- Devices ---- */

/* Word i of a list, the last one where it has fewer: "a,b" gives a, b, b. */
static const char *word_of(const char *list, int i, char word[32]) {
    const char *comma;
    while (i-- > 0 && (comma = strchr(list, ',')) != NULL) list = comma + 1;
    snprintf(word, 32, "%.*s", (int)strcspn(list, ","), list);
    return word;
}

tdm_runtime *card_runtime(const tdm_option *more) {
    tdm_error err = {0};
    tdm_runtime *rt = NULL;
    const tdm_runtime_params params = {
        .struct_size = sizeof params, .log = log_ignore, .log_level = TDM_LOG_WARN};
    RIG_OK(tdm_runtime_create(&params, &rt, &err));
    for (int i = 0; i < 3; i++) {
        char cpu[8], card[8], words[8][32];
        snprintf(cpu, sizeof cpu, "c%d", i);
        snprintf(card, sizeof card, "d%d", i);
        const tdm_option behind[] = {{"path", "fast"}, {"activation-bits", "15"}, {"threads", "1"}};
        const tdm_device_spec spec = {cpu, "cpu", 0, behind, 3};
        tdm_option options[8] = {{"member", cpu}};
        tdm_device_spec front = {card, "discrete", 0, options, 1};
        for (int k = 0; more != NULL && more[k].key != NULL; k++)
            options[front.n_option++] =
                (tdm_option){more[k].key, word_of(more[k].value, i, words[k])};
        RIG_OK(tdm_runtime_declare(rt, &spec, &err));
        RIG_OK(tdm_runtime_declare(rt, &front, &err));
    }
    static bool is_kept;
    RIG_OK(tdm_runtime_load(rt, "discrete", &err));
    for (int i = 0; i < tdm_runtime_plugin_count(rt); i++) {
        void *object = dlopen(tdm_runtime_plugin_file(rt, i), RTLD_NOW | RTLD_NOLOAD);
        assert_non_null(object);
        if (dlsym(object, "discrete_set") != NULL) {
            *(void **)&card_set = dlsym(object, "discrete_set");
            *(void **)&card_get = dlsym(object, "discrete_get");
            *(void **)&card_live = dlsym(object, "discrete_live");
            if (!is_kept) {
                is_kept = true; /* loaded for good: card_live is called without devices */
                continue;
            }
        }
        dlclose(object);
    }
    assert_non_null(card_set);
    return rt;
}

tdm_status card_group(tdm_runtime *rt, const char *members, const char *share,
                      const tdm_option *extra, tdm_open_device **out, tdm_error *err) {
    const tdm_option options[] = {{"members", members},
                                  {"share", share},
                                  extra != NULL ? *extra : (tdm_option){"check", "off"}};
    char name[64];
    const tdm_device_spec spec = {name, "meta", 0, options, 3};
    snprintf(name, sizeof name, "group %s", members);
    tdm_status status = tdm_runtime_declare(rt, &spec, err);
    return status == TDM_OK ? tdm_runtime_open(rt, name, out, err) : status;
}

/* ---- Decoding ---- */

tdm_status card_decode(llm_context *ctx, float *out, tdm_error *err) {
    int32_t tokens[CARD_PROMPT + CARD_STEP];
    for (int i = 0; i < CARD_PROMPT + CARD_STEP; i++) tokens[i] = (i * 71 + 5) % CARD_VOCAB;
    for (int i = 0; i < CARD_ROW; i++) {
        const llm_batch batch = {.tokens = i == 0 ? tokens : tokens + CARD_PROMPT + i - 1,
                                 .n_tok = i == 0 ? CARD_PROMPT : 1};
        tdm_status status = llm_context_decode(ctx, &batch, err);
        if (status != TDM_OK) return status;
        memcpy(out + i * CARD_VOCAB, llm_context_logits(ctx, 0), CARD_VOCAB * sizeof *out);
    }
    return TDM_OK;
}

tdm_status card_run(tdm_runtime *rt, tdm_open_device *dev, const tdm_type *cache, float *out,
                    tdm_error *err) {
    llm_model *model = NULL;
    llm_context *ctx = NULL;
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 64,
                                       .page_len = 16,
                                       .type_k = cache,
                                       .type_v = cache};
    tdm_status status = llm_model_open(card_model, &model, err);
    if (status == TDM_OK) status = llm_model_load(model, rt, &dev, 1, NULL, NULL, err);
    if (status == TDM_OK) status = llm_context_create(model, &params, &ctx, err);
    if (status == TDM_OK) status = card_decode(ctx, out, err);
    llm_context_destroy(ctx);
    llm_model_close(model);
    return status;
}

tdm_open_device *card_device(tdm_runtime *rt, const char *name) {
    tdm_error err = {0};
    tdm_open_device *dev = NULL;
    RIG_OK(tdm_runtime_open(rt, name, &dev, &err));
    return dev;
}
