/* SPDX-License-Identifier: MIT
 *
 * key_reader.c: see key_reader.h.
 */
#include "llm/arch/key_reader.h"

#include <stdbool.h>

#include "llm/arch/hparams.h"

void llm_key_name(const llm_key_reader *r, const char *suffix, char name[96]) {
    snprintf(name, 96, "%s.%s", r->arch, suffix);
}

void llm_key_int(llm_key_reader *r, const char *suffix, llm_gguf_need need, int32_t min,
                 int32_t max, int32_t *value) {
    char name[96];
    int64_t wide = *value;
    if (r->status != TDM_OK) return;
    llm_key_name(r, suffix, name);
    r->status = llm_gguf_get_i64(r->gguf, name, need, &wide, r->err);
    if (r->status == TDM_OK && (wide < min || wide > max))
        r->status = tdm_fail(r->err, TDM_DATA_LOSS, "%s: key '%s' is %lld, expected %d to %d",
                             llm_gguf_name(r->gguf), name, (long long)wide, min, max);
    if (r->status == TDM_OK) *value = (int32_t)wide;
}

/* Reads a key that is one number or a number per layer. initial > 0: what each layer has where the
 * file does not give the key; 0 = the key is required. */
static void each_read(llm_key_reader *r, const char *suffix, int32_t n_layer, int32_t initial,
                      char name[96], uint32_t *each) {
    llm_key_name(r, suffix, name);
    for (int32_t i = 0; i < n_layer; i++) each[i] = (uint32_t)initial;
    r->status =
        llm_gguf_get_u32_each(r->gguf, name, initial > 0 ? LLM_GGUF_OPTIONAL : LLM_GGUF_REQUIRED,
                              (uint32_t)n_layer, each, r->err);
}

static void key_each(llm_key_reader *r, const char *suffix, int32_t n_layer, int32_t max,
                     bool takes_zero, int32_t *value) {
    char name[96];
    uint32_t count = 0;
    uint32_t each[LLM_MAX_LAYERS];
    if (r->status != TDM_OK) return;
    each_read(r, suffix, n_layer, *value, name, each);
    for (int32_t i = 0; i < n_layer && r->status == TDM_OK; i++) {
        if (takes_zero && each[i] == 0) continue;
        if (count == 0) count = each[i];
        if (each[i] != count)
            r->status =
                tdm_fail(r->err, TDM_UNSUPPORTED,
                         "%s: key '%s' differs between layers; such models are not supported",
                         llm_gguf_name(r->gguf), name);
        else if (each[i] < 1 || each[i] > (uint32_t)max)
            r->status = tdm_fail(r->err, TDM_DATA_LOSS, "%s: key '%s' is %u, expected 1 to %d",
                                 llm_gguf_name(r->gguf), name, each[i], max);
    }
    if (r->status == TDM_OK && count > 0) *value = (int32_t)count;
}

void llm_key_each(llm_key_reader *r, const char *suffix, int32_t n_layer, int32_t max,
                  int32_t *value) {
    key_each(r, suffix, n_layer, max, false, value);
}

void llm_key_each_or_none(llm_key_reader *r, const char *suffix, int32_t n_layer, int32_t max,
                          int32_t *value) {
    key_each(r, suffix, n_layer, max, true, value);
}

void llm_key_each_most(llm_key_reader *r, const char *suffix, int32_t n_layer, int32_t max,
                       int32_t *value) {
    char name[96];
    uint32_t each[LLM_MAX_LAYERS], most = 0;
    if (r->status != TDM_OK) return;
    each_read(r, suffix, n_layer, *value, name, each);
    for (int32_t i = 0; i < n_layer && r->status == TDM_OK; i++)
        if (each[i] > most) most = each[i];
    if (r->status == TDM_OK && (most < 1 || most > (uint32_t)max))
        r->status = tdm_fail(r->err, TDM_DATA_LOSS,
                             "%s: key '%s' has %u as the most of a layer, expected 1 to %d",
                             llm_gguf_name(r->gguf), name, most, max);
    if (r->status == TDM_OK) *value = (int32_t)most;
}

void llm_key_float(llm_key_reader *r, const char *suffix, llm_gguf_need need, float min, float max,
                   float *value) {
    char name[96];
    float found = *value;
    if (r->status != TDM_OK) return;
    llm_key_name(r, suffix, name);
    r->status = llm_gguf_get_f32(r->gguf, name, need, &found, r->err);
    if (r->status == TDM_OK && !(found >= min && found <= max))
        r->status = tdm_fail(r->err, TDM_DATA_LOSS, "%s: key '%s' is %g, expected %g to %g",
                             llm_gguf_name(r->gguf), name, (double)found, (double)min, (double)max);
    if (r->status == TDM_OK) *value = found;
}

void llm_key_bool(llm_key_reader *r, const char *suffix, llm_gguf_need need, bool *value) {
    char name[96];
    if (r->status != TDM_OK) return;
    llm_key_name(r, suffix, name);
    r->status = llm_gguf_get_bool(r->gguf, name, need, value, r->err);
}

bool llm_key_is_each(const llm_key_reader *r, const char *suffix) {
    char name[96];
    llm_key_name(r, suffix, name);
    const llm_gguf_key *key = llm_gguf_key_find(r->gguf, name);
    return key != NULL && key->type == LLM_GGUF_ARRAY;
}

bool llm_key_layer_float(const llm_key_reader *r, const char *suffix, int32_t layer, float *value) {
    char name[96];
    llm_gguf_array each;
    tdm_error unused;
    llm_key_name(r, suffix, name);
    const llm_gguf_key *key = llm_gguf_key_find(r->gguf, name);
    if (key == NULL) return true;
    if (key->type != LLM_GGUF_ARRAY)
        return llm_gguf_get_f32(r->gguf, name, LLM_GGUF_REQUIRED, value, &unused) == TDM_OK;
    if (llm_gguf_get_array(r->gguf, name, LLM_GGUF_F32, LLM_GGUF_REQUIRED, &each, &unused) !=
        TDM_OK)
        return false;
    if ((uint64_t)layer < each.n) *value = llm_gguf_array_f32(&each, (uint64_t)layer);
    return true;
}
