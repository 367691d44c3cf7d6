/* SPDX-License-Identifier: MIT
 *
 * projection.c: see projection.h.
 */
#include "llm/projection.h"

#include <stdlib.h>
#include <string.h>

#include "quant/convert.h"
#include "llm/arch/arch.h"
#include "llm/arch/key_reader.h"

enum { MAX_DENSE = 2 };

typedef struct dense {
    int32_t n_in, n_out;
    float *rows; /* [n_out][n_in] */
} dense;

struct llm_projection {
    dense dense[MAX_DENSE]; /* in their order */
    int32_t n_dense;
    float *rooms[2]; /* [the widest] in and out of a matrix */
};

static tdm_status dense_read(const llm_model *m, const llm_gguf_tensor *t, dense *out,
                             tdm_error *err) {
    const tdm_row_codec codec = tdm_row_codec_get(t->type);
    tdm_status status = llm_gguf_tensor_check_type(m->gguf, t, err);
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
    return status;
}

static tdm_status chain_check(const llm_model *m, const llm_projection *p, tdm_error *err) {
    int32_t width = m->hparams.n_embd;
    for (int32_t i = 0; i < p->n_dense; i++)
        width = p->dense[i].n_in == width ? p->dense[i].n_out : -1;
    if (width == m->hparams.n_embd) return TDM_OK;
    return tdm_fail(err, TDM_DATA_LOSS,
                    "%s: tensors 'dense_2.weight' and 'dense_3.weight' do not lead from %d numbers "
                    "to %d; the file is damaged",
                    llm_gguf_name(m->gguf), m->hparams.n_embd, m->hparams.n_embd);
}

static void contents_free(llm_projection *p) {
    for (int32_t i = 0; i < p->n_dense; i++) free(p->dense[i].rows);
    free(p->rooms[0]);
    free(p->rooms[1]);
}

tdm_status llm_projection_read(const llm_model *m, llm_projection **projection_out,
                               tdm_error *err) {
    static const char *const names[MAX_DENSE] = {"dense_2.weight", "dense_3.weight"};
    llm_projection p = {.n_dense = 0};
    tdm_status status = TDM_OK;
    int32_t widest = 0;
    *projection_out = NULL;
    for (int32_t i = 0; i < MAX_DENSE && status == TDM_OK; i++) {
        const llm_gguf_tensor *t = llm_gguf_tensor_find(m->gguf, names[i]);
        if (t == NULL || !llm_arch_is_harmless(m->arch, names[i])) continue;
        status = dense_read(m, t, &p.dense[p.n_dense++], err);
        const dense *last = &p.dense[p.n_dense - 1];
        if (last->n_in > widest) widest = last->n_in;
        if (last->n_out > widest) widest = last->n_out;
    }
    if (status == TDM_OK && p.n_dense == 0) return TDM_OK;
    if (status == TDM_OK) status = chain_check(m, &p, err);
    llm_projection *made = status == TDM_OK ? malloc(sizeof *made) : NULL;
    for (int i = 0; i < 2 && made != NULL; i++)
        p.rooms[i] = malloc((size_t)widest * sizeof *p.rooms[i]);
    if (status == TDM_OK && (made == NULL || p.rooms[0] == NULL || p.rooms[1] == NULL))
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", m->path);
    if (status != TDM_OK) {
        contents_free(&p);
        free(made);
        return status;
    }
    *made = p;
    *projection_out = made;
    return TDM_OK;
}

void llm_projection_free(llm_projection *p) {
    if (p == NULL) return;
    contents_free(p);
    free(p);
}

void llm_project(llm_projection *p, float *vector) {
    if (p == NULL) return;
    float *from = p->rooms[0], *to = p->rooms[1];
    memcpy(from, vector, (size_t)p->dense[0].n_in * sizeof *from);
    for (int32_t i = 0; i < p->n_dense; i++) {
        const dense *d = &p->dense[i];
        for (int32_t row = 0; row < d->n_out; row++) {
            const float *weights = d->rows + (size_t)row * (size_t)d->n_in;
            double sum = 0;
            for (int32_t k = 0; k < d->n_in; k++) sum += (double)weights[k] * (double)from[k];
            to[row] = (float)sum;
        }
        float *other = from;
        from = to;
        to = other;
    }
    memcpy(vector, from, (size_t)p->dense[p->n_dense - 1].n_out * sizeof *from);
}
