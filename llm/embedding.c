/* SPDX-License-Identifier: MIT
 *
 * embedding.c: see embedding.h.
 */
#include "llm/embedding.h"

#include <math.h>
#include <string.h>

/* llama-embedding scales the largest value to this one, so that vectors fit 16 bits. */
#define LARGEST_16_BIT 32760.0

/* Whether vectors of single tokens are compared (late interaction, ColBERT): these have a width of
 * their own. */
static bool gives_token_vectors(const llm_model *m) {
    char name[96];
    snprintf(name, sizeof name, "%s.embedding_length_out", m->hparams.arch);
    return llm_gguf_key_find(m->gguf, name) != NULL &&
           llm_gguf_tensor_find(m->gguf, "dense_2.weight") != NULL;
}

tdm_status llm_pooling_read(const llm_model *m, llm_pooling *pooling_out, bool *is_given_out,
                            tdm_error *err) {
    const uint32_t unspecified = UINT32_MAX;
    char name[64];
    uint32_t number = unspecified;
    snprintf(name, sizeof name, "%s.pooling_type", m->hparams.arch);
    tdm_status status = llm_gguf_get_u32(m->gguf, name, LLM_GGUF_OPTIONAL, &number, err);
    if (status != TDM_OK) return status;
    *is_given_out = number != unspecified;
    *pooling_out = m->hparams.is_bidirectional ? LLM_POOLING_MEAN : LLM_POOLING_LAST;
    if (gives_token_vectors(m)) *pooling_out = LLM_POOLING_NONE;
    if (number == unspecified) return TDM_OK;
    if (number > LLM_POOLING_RANK)
        return tdm_fail(err, TDM_DATA_LOSS, "%s: key '%s' is %u; expected 0 to 4",
                        llm_gguf_name(m->gguf), name, number);
    *pooling_out = (llm_pooling)number;
    return TDM_OK;
}

void llm_pool(llm_pooling pooling, const float *rows, int32_t n_tok, int32_t n_embd,
              float *vector_out) {
    const size_t row = pooling == LLM_POOLING_LAST ? (size_t)n_tok - 1 : 0;
    if (pooling != LLM_POOLING_MEAN) {
        memcpy(vector_out, rows + row * (size_t)n_embd, (size_t)n_embd * sizeof *vector_out);
        return;
    }
    for (int32_t i = 0; i < n_embd; i++) {
        double sum = 0;
        for (int32_t t = 0; t < n_tok; t++)
            sum += (double)rows[(size_t)t * (size_t)n_embd + (size_t)i];
        vector_out[i] = (float)(sum / n_tok);
    }
}

void llm_embedding_normalize(float *vector, int32_t n, int32_t p) {
    double length = 0, most = 0;
    if (p < 0) return;
    /* No fmax: gcc 12 for AArch64 ends with an internal error at a loop of it in double. */
    for (int32_t i = 0; i < n; i++) {
        const double size = fabs((double)vector[i]);
        if (size > most) most = size; /* false for NaN */
    }
    if (!(most > 0)) return;
    /* The length of the vector divided by its largest value: its powers do not overflow. */
    for (int32_t i = 0; i < n && p > 0; i++) length += pow(fabs((double)vector[i]) / most, p);
    const double factor = p == 0 ? LARGEST_16_BIT / most : 1 / (pow(length, 1.0 / p) * most);
    for (int32_t i = 0; i < n; i++) vector[i] = (float)((double)vector[i] * factor);
}
