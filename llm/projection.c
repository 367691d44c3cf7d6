/* SPDX-License-Identifier: MIT
 *
 * projection.c: see projection.h.
 */
#include "llm/projection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm/arch/arch.h"
#include "llm/arch/key_reader.h"
#include "llm/dense.h"

enum { MAX_DENSE = 2 };

struct llm_projection {
    llm_dense dense[MAX_DENSE]; /* in their order */
    int32_t n_dense;
    llm_dense bias;  /* of the first matrix, one row; all 0 = none */
    float *rooms[2]; /* scratch, as long as the widest vector: input and output of a matrix */
};

/* The width that the file gives its vectors. */
static tdm_status width_read(const llm_model *m, int32_t *width_out, tdm_error *err) {
    char name[96];
    uint32_t width = (uint32_t)m->hparams.n_embd;
    snprintf(name, sizeof name, "%s.embedding_length_out", m->hparams.arch);
    tdm_status status = llm_gguf_get_u32(m->gguf, name, LLM_GGUF_OPTIONAL, &width, err);
    *width_out = width <= LLM_MAX_WIDTH ? (int32_t)width : -1;
    return status;
}

static tdm_status chain_check(const llm_model *m, const llm_projection *p, tdm_error *err) {
    int32_t width = m->hparams.n_embd, wanted = 0;
    tdm_status status = width_read(m, &wanted, err);
    if (status != TDM_OK) return status;
    for (int32_t i = 0; i < p->n_dense; i++)
        width = p->dense[i].n_in == width ? p->dense[i].n_out : -1;
    const bool has_bias = p->bias.rows != NULL;
    if (has_bias && (p->bias.n_in != p->dense[0].n_out || p->bias.n_out != 1)) width = -1;
    if (width == wanted) return TDM_OK;
    return tdm_fail(err, TDM_DATA_LOSS,
                    "%s: tensors 'dense_2.weight' and 'dense_3.weight' do not lead from %d numbers "
                    "to %d; the file is damaged",
                    llm_gguf_name(m->gguf), m->hparams.n_embd, wanted);
}

/* The tensor, where the architecture has one of this name; NULL if the file has none. */
static const llm_gguf_tensor *tensor_of(const llm_model *m, const char *name) {
    return llm_arch_is_harmless(m->arch, name) ? llm_gguf_tensor_find(m->gguf, name) : NULL;
}

static void contents_free(llm_projection *p) {
    for (int32_t i = 0; i < p->n_dense; i++) llm_dense_free(&p->dense[i]);
    llm_dense_free(&p->bias);
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
        const llm_gguf_tensor *t = tensor_of(m, names[i]);
        if (t == NULL) continue;
        status = llm_dense_read(m, t, &p.dense[p.n_dense++], err);
        const llm_dense *last = &p.dense[p.n_dense - 1];
        if (last->n_in > widest) widest = last->n_in;
        if (last->n_out > widest) widest = last->n_out;
    }
    if (status == TDM_OK && p.n_dense == 0) return TDM_OK;
    const llm_gguf_tensor *bias = tensor_of(m, "dense_2.bias");
    if (status == TDM_OK && bias != NULL) status = llm_dense_read(m, bias, &p.bias, err);
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

int32_t llm_projection_width(const llm_projection *p, int32_t n_embd) {
    return p != NULL ? p->dense[p->n_dense - 1].n_out : n_embd;
}

void llm_project(llm_projection *p, float *vector) {
    if (p == NULL) return;
    float *from = p->rooms[0], *to = p->rooms[1];
    memcpy(from, vector, (size_t)p->dense[0].n_in * sizeof *from);
    for (int32_t i = 0; i < p->n_dense; i++) {
        llm_dense_apply(&p->dense[i], from, i == 0 ? p->bias.rows : NULL, to);
        float *other = from;
        from = to;
        to = other;
    }
    memcpy(vector, from, (size_t)p->dense[p->n_dense - 1].n_out * sizeof *from);
}
