/* SPDX-License-Identifier: MIT
 *
 * dense.c: see dense.h.
 */
#include "llm/dense.h"

#include <stdlib.h>

#include "llm/arch/key_reader.h"
#include "quant/convert.h"

tdm_status llm_dense_read(const llm_model *m, const llm_gguf_tensor *t, llm_dense *out,
                          tdm_error *err) {
    const tdm_row_codec codec = tdm_row_codec_get(t->type);
    tdm_status status = llm_gguf_tensor_check_type(m->gguf, t, err);
    *out = (llm_dense){0};
    if (status != TDM_OK) return status;
    if (codec.dequantize == NULL || t->ne[0] > LLM_MAX_WIDTH || t->ne[1] > LLM_MAX_WIDTH ||
        t->ne[2] != 1 || t->ne[3] != 1)
        return tdm_fail(err, TDM_DATA_LOSS, "%s: tensor '%s' is no matrix of numbers",
                        llm_gguf_name(m->gguf), t->name);
    const size_t row_size = tdm_type_row_size(t->type, t->ne[0]);
    uint8_t *bytes = malloc(t->size);
    out->n_in = (int32_t)t->ne[0];
    out->n_out = (int32_t)t->ne[1];
    out->rows = malloc((size_t)t->ne[0] * (size_t)t->ne[1] * sizeof *out->rows);
    if (bytes == NULL || out->rows == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for tensor '%s'",
                          llm_gguf_name(m->gguf), t->name);
    if (status == TDM_OK) status = llm_gguf_read(m->gguf, t, 0, t->size, bytes, err);
    for (int64_t row = 0; status == TDM_OK && row < t->ne[1]; row++)
        codec.dequantize(bytes + (size_t)row * row_size, out->rows + row * t->ne[0], out->n_in);
    free(bytes);
    if (status != TDM_OK) llm_dense_free(out);
    return status;
}

void llm_dense_free(llm_dense *d) {
    free(d->rows);
    *d = (llm_dense){0};
}

void llm_dense_apply(const llm_dense *d, const float *x, const float *bias, float *y) {
    for (int32_t row = 0; row < d->n_out; row++) {
        const float *weights = d->rows + (size_t)row * (size_t)d->n_in;
        double sum = bias != NULL ? (double)bias[row] : 0;
        for (int32_t k = 0; k < d->n_in; k++) sum += (double)weights[k] * (double)x[k];
        y[row] = (float)sum;
    }
}
