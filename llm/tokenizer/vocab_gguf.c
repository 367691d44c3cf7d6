/* SPDX-License-Identifier: MIT
 *
 * vocab_gguf.c: reads a vocabulary's parameters from the `tokenizer.ggml.*` keys of a file. Their
 * meaning: vocab.c.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "llm/tokenizer/vocab.h"

#define KEY "tokenizer.ggml."

typedef struct vocab_arrays {
    llm_vocab_str *tokens;
    float *scores;
    int32_t *types;
    int32_t *suppressed;
    llm_vocab_str *merges;
    char *model;
    char *pre;
    char *charsmap;
} vocab_arrays;

static void vocab_arrays_free(vocab_arrays *arrays) {
    free(arrays->tokens);
    free(arrays->scores);
    free(arrays->types);
    free(arrays->suppressed);
    free(arrays->merges);
    free(arrays->model);
    free(arrays->pre);
    free(arrays->charsmap);
}

static tdm_status no_memory(const llm_gguf *gguf, const char *key, tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory to read key %s",
                    llm_gguf_name(gguf), key);
}

/* A string as a NUL-terminated copy; *out stays NULL if an optional key is missing. */
static tdm_status name_read(const llm_gguf *gguf, const char *key, llm_gguf_need need, char **out,
                            tdm_error *err) {
    llm_gguf_str str = {NULL, 0};
    const tdm_status status = llm_gguf_get_str(gguf, key, need, &str, err);
    if (status != TDM_OK || str.ptr == NULL) return status;
    *out = strndup(str.ptr, str.len);
    return *out != NULL ? TDM_OK : no_memory(gguf, key, err);
}

static tdm_status strings_read(const llm_gguf *gguf, const char *key, llm_gguf_need need,
                               llm_vocab_str **out, size_t *n, tdm_error *err) {
    llm_gguf_array array = {0};
    const tdm_status status = llm_gguf_get_array(gguf, key, LLM_GGUF_STRING, need, &array, err);
    if (status != TDM_OK || array.n == 0) return status;
    if (array.n > SIZE_MAX / sizeof **out) return no_memory(gguf, key, err);
    *out = malloc((size_t)array.n * sizeof **out);
    if (*out == NULL) return no_memory(gguf, key, err);
    *n = (size_t)array.n;
    for (size_t i = 0; i < *n; ++i) {
        const llm_gguf_str str = llm_gguf_array_str(&array, i);
        (*out)[i] = (llm_vocab_str){str.ptr, str.len};
    }
    return TDM_OK;
}

/* Finds an array with an element for each token; fails if it is shorter than the list of tokens. A
 * missing one leaves array->data NULL. */
static tdm_status numbers_find(const llm_gguf *gguf, const char *key, llm_gguf_type type,
                               size_t n_token, llm_gguf_array *array, tdm_error *err) {
    const tdm_status status = llm_gguf_get_array(gguf, key, type, LLM_GGUF_OPTIONAL, array, err);
    if (status != TDM_OK || array->data == NULL || array->n >= n_token) return status;
    return tdm_fail(err, TDM_DATA_LOSS, "%s: key %s has %llu elements for %zu tokens",
                    llm_gguf_name(gguf), key, (unsigned long long)array->n, n_token);
}

static tdm_status scores_read(const llm_gguf *gguf, size_t n, float **out, tdm_error *err) {
    llm_gguf_array array = {0};
    const tdm_status status = numbers_find(gguf, KEY "scores", LLM_GGUF_F32, n, &array, err);
    if (status != TDM_OK || array.data == NULL) return status;
    *out = malloc(n * sizeof **out);
    if (*out == NULL) return no_memory(gguf, KEY "scores", err);
    for (size_t i = 0; i < n; ++i) (*out)[i] = llm_gguf_array_f32(&array, i);
    return TDM_OK;
}

static tdm_status types_read(const llm_gguf *gguf, size_t n, int32_t **out, tdm_error *err) {
    llm_gguf_array array = {0};
    const tdm_status status = numbers_find(gguf, KEY "token_type", LLM_GGUF_I32, n, &array, err);
    if (status != TDM_OK || array.data == NULL) return status;
    *out = malloc(n * sizeof **out);
    if (*out == NULL) return no_memory(gguf, KEY "token_type", err);
    for (size_t i = 0; i < n; ++i) {
        const int64_t type = llm_gguf_array_i64(&array, i);
        (*out)[i] = type >= 0 && type <= LLM_TOKEN_BYTE ? (int32_t)type : LLM_TOKEN_UNDEFINED;
    }
    return TDM_OK;
}

static tdm_status suppressed_read(const llm_gguf *gguf, int32_t **out, size_t *n_out,
                                  tdm_error *err) {
    static const char key[] = KEY "suppress_tokens";
    llm_gguf_array array = {0};
    const tdm_status status =
        llm_gguf_get_array(gguf, key, LLM_GGUF_I32, LLM_GGUF_OPTIONAL, &array, err);
    if (status != TDM_OK || array.n == 0) return status;
    *out = malloc((size_t)array.n * sizeof **out);
    if (*out == NULL) return no_memory(gguf, key, err);
    *n_out = (size_t)array.n;
    for (size_t i = 0; i < *n_out; ++i) {
        const int64_t id = llm_gguf_array_i64(&array, i);
        (*out)[i] = id >= 0 && id <= INT32_MAX ? (int32_t)id : LLM_TOKEN_NONE;
    }
    return TDM_OK;
}

/* Some writers use -1 for "none", as a signed or unsigned 32-bit number. */
static tdm_status id_read(const llm_gguf *gguf, const char *key, int32_t *out, tdm_error *err) {
    int64_t id = LLM_TOKEN_DEFAULT;
    const tdm_status status = llm_gguf_get_i64(gguf, key, LLM_GGUF_OPTIONAL, &id, err);
    if (status != TDM_OK || id == LLM_TOKEN_DEFAULT) return status;
    if (id == UINT32_MAX) id = LLM_TOKEN_NONE;
    if (id < LLM_TOKEN_NONE || id > INT32_MAX)
        return tdm_fail(err, TDM_DATA_LOSS, "%s: key %s is %lld, which is not a token id",
                        llm_gguf_name(gguf), key, (long long)id);
    *out = (int32_t)id;
    return TDM_OK;
}

static tdm_status flag_read(const llm_gguf *gguf, const char *key, int32_t *out, tdm_error *err) {
    bool flag = false;
    if (llm_gguf_key_find(gguf, key) == NULL) return TDM_OK;
    const tdm_status status = llm_gguf_get_bool(gguf, key, LLM_GGUF_REQUIRED, &flag, err);
    if (status == TDM_OK) *out = flag ? 1 : 0;
    return status;
}

/* Phi-3 drops white space after special tokens, but its files have no key for it. As llama.cpp
 * does, decide by the model's name. */
static tdm_status special_drops_space_read(const llm_gguf *gguf, bool *out, tdm_error *err) {
    llm_gguf_str name = {NULL, 0};
    const tdm_status status = llm_gguf_get_str(gguf, "general.name", LLM_GGUF_OPTIONAL, &name, err);
    for (size_t i = 0; i + 4 <= name.len && !*out; ++i) {
        const size_t dash = name.ptr[i + 3] == '-' ? 1 : 0;
        *out = strncasecmp(name.ptr + i, "phi", 3) == 0 && i + 3 + dash < name.len &&
               name.ptr[i + 3 + dash] == '3';
    }
    return status;
}

/* The bytes of the rules, which files hold as signed or unsigned numbers. */
static tdm_status charsmap_read(const llm_gguf *gguf, char **bytes, llm_vocab_params *params,
                                tdm_error *err) {
    static const char key[] = KEY "precompiled_charsmap";
    llm_gguf_array array = {0};
    tdm_status status = llm_gguf_get_array(gguf, key, LLM_GGUF_U8, LLM_GGUF_OPTIONAL, &array, err);
    if (status != TDM_OK || array.n == 0) return status;
    *bytes = malloc(array.n);
    if (*bytes == NULL) return no_memory(gguf, key, err);
    for (uint64_t i = 0; i < array.n; ++i) (*bytes)[i] = (char)llm_gguf_array_i64(&array, i);
    params->charsmap = (llm_vocab_str){*bytes, array.n};
    return TDM_OK;
}

static tdm_status params_read(const llm_gguf *gguf, llm_vocab_params *params, vocab_arrays *arrays,
                              tdm_error *err) {
    int32_t merges_spaces = 0;
    const struct {
        const char *key;
        int32_t *id;
    } ids[] = {
        {KEY "bos_token_id", &params->bos_id},       {KEY "eos_token_id", &params->eos_id},
        {KEY "unknown_token_id", &params->unk_id},   {KEY "eot_token_id", &params->eot_id},
        {KEY "eom_token_id", &params->eom_id},       {KEY "padding_token_id", &params->pad_id},
        {KEY "seperator_token_id", &params->sep_id}, /* the key is spelled so */
    };
    const struct {
        const char *key;
        int32_t *flag;
    } flags[] = {
        {KEY "add_bos_token", &params->add_bos},
        {KEY "add_eos_token", &params->add_eos},
        {KEY "add_sep_token", &params->add_sep},
        {KEY "add_space_prefix", &params->add_space_prefix},
        {KEY "remove_extra_whitespaces", &merges_spaces},
        {KEY "normalizer.lowercase", &params->lowers_case},
        {KEY "normalizer.strip_accents", &params->strips_accents},
    };
    tdm_status status = name_read(gguf, KEY "model", LLM_GGUF_REQUIRED, &arrays->model, err);
    if (status == TDM_OK) status = name_read(gguf, KEY "pre", LLM_GGUF_OPTIONAL, &arrays->pre, err);
    if (status == TDM_OK)
        status = strings_read(gguf, KEY "tokens", LLM_GGUF_REQUIRED, &arrays->tokens,
                              &params->n_token, err);
    if (status == TDM_OK)
        status = strings_read(gguf, KEY "merges", LLM_GGUF_OPTIONAL, &arrays->merges,
                              &params->n_merge, err);
    if (status == TDM_OK) status = scores_read(gguf, params->n_token, &arrays->scores, err);
    if (status == TDM_OK) status = types_read(gguf, params->n_token, &arrays->types, err);
    if (status == TDM_OK)
        status = suppressed_read(gguf, &arrays->suppressed, &params->n_suppressed, err);
    for (size_t i = 0; status == TDM_OK && i < sizeof ids / sizeof *ids; ++i)
        status = id_read(gguf, ids[i].key, ids[i].id, err);
    for (size_t i = 0; status == TDM_OK && i < sizeof flags / sizeof *flags; ++i)
        status = flag_read(gguf, flags[i].key, flags[i].flag, err);
    if (status == TDM_OK)
        status = special_drops_space_read(gguf, &params->special_drops_space, err);
    if (status == TDM_OK) status = charsmap_read(gguf, &arrays->charsmap, params, err);
    params->merges_spaces = merges_spaces != 0;
    params->model = arrays->model;
    params->pre = arrays->pre;
    params->tokens = arrays->tokens;
    params->scores = arrays->scores;
    params->types = arrays->types;
    params->suppressed = arrays->suppressed;
    params->merges = arrays->merges;
    return status;
}

tdm_status llm_vocab_from_gguf(const llm_gguf *gguf, llm_vocab **out, tdm_error *err) {
    *out = NULL;
    llm_vocab_params params = llm_vocab_params_default();
    vocab_arrays arrays = {0};
    tdm_status status = params_read(gguf, &params, &arrays, err);
    if (status == TDM_OK) {
        tdm_error inner = {0};
        status = llm_vocab_create(&params, out, &inner);
        if (status != TDM_OK) tdm_fail(err, status, "%s: %s", llm_gguf_name(gguf), inner.message);
    }
    vocab_arrays_free(&arrays);
    return status;
}
