/* SPDX-License-Identifier: MIT
 *
 * context_lora.c: the scales of adapters (adapter.h) for the sequences of a context, and for the
 * tokens of a step.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "llm/context_internal.h"

tdm_status llm_lora_create(llm_context *ctx, tdm_error *err) {
    const llm_model *m = ctx->model;
    const size_t n = (size_t)m->n_adapter;
    if (n == 0) return TDM_OK;
    ctx->scales = malloc((size_t)ctx->n_seq * n * sizeof *ctx->scales);
    ctx->lora_io = malloc((size_t)ctx->n_ubatch * n * sizeof *ctx->lora_io);
    if (ctx->scales == NULL || ctx->lora_io == NULL) return llm_context_no_memory(err);
    for (size_t i = 0; i < (size_t)ctx->n_seq * n; i++) ctx->scales[i] = m->adapters[i % n].scale;
    return TDM_OK;
}

const float *llm_context_scales(const llm_context *ctx, int32_t seq) {
    return ctx->scales != NULL ? ctx->scales + (size_t)seq * (size_t)ctx->model->n_adapter : NULL;
}

tdm_status llm_context_set_scales(llm_context *ctx, int32_t seq, const float *scales,
                                  tdm_error *err) {
    const size_t n = (size_t)ctx->model->n_adapter;
    const tdm_status status = llm_seq_check(ctx, seq, err);
    if (status != TDM_OK || n == 0) return status;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(scales[i]))
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "the scale of adapter %zu is not a finite number", i);
    float *own = ctx->scales + (size_t)seq * n;
    if (memcmp(own, scales, n * sizeof *own) == 0) return TDM_OK;
    if (llm_kv_length(ctx->kv, seq) > 0)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "sequence %d has %d tokens of other scales of adapters; truncate it to 0 "
                        "before setting them",
                        seq, llm_kv_length(ctx->kv, seq));
    memcpy(own, scales, n * sizeof *own);
    return TDM_OK;
}

uint64_t llm_context_scales_hash(const llm_context *ctx, int32_t seq) {
    const float *scales = llm_context_scales(ctx, seq);
    uint64_t hash = 0;
    for (int32_t a = 0; a < ctx->model->n_adapter; a++) {
        if (scales[a] == 0) continue;
        if (hash == 0) hash = TDM_HASH_BEGIN;
        hash = tdm_hash_add(hash, &ctx->model->adapters[a].fingerprint, sizeof(uint64_t));
        hash = tdm_hash_add(hash, &scales[a], sizeof scales[a]);
    }
    return hash;
}

uint32_t llm_lora_choose(const llm_context *ctx, const bool *is_used) {
    const int32_t n = ctx->model->n_adapter;
    uint32_t bits = 0;
    for (int32_t s = 0; s < ctx->n_seq && n > 0; s++)
        for (int32_t a = 0; a < n && is_used[s]; a++)
            if (llm_context_scales(ctx, s)[a] != 0) bits |= 1u << a;
    return (bits & (bits - 1)) == 0 ? bits : llm_adapters_all(ctx->model);
}

int32_t llm_lora_fill(llm_context *ctx, const llm_plan *plan, int32_t n, tdm_io *io) {
    const int32_t *seq = ctx->step + plan->header.seq_off, n_tok = plan->shape.n_tok;
    int32_t n_io = 0;
    for (int32_t a = 0; a < ctx->model->n_adapter; a++) {
        float *to = ctx->lora_io + (size_t)n_io * (size_t)ctx->n_ubatch;
        if (plan->lora[a] < 0) continue;
        const float factor = llm_adapter_factor(&ctx->model->adapters[a]);
        for (int32_t i = 0; i < n; i++) to[i] = factor * llm_context_scales(ctx, seq[i])[a];
        for (int32_t i = n; i < n_tok; i++) to[i] = 0;
        io[n_io++] = (tdm_io){plan->lora[a], to, (uint64_t)n_tok * sizeof *to};
    }
    return n_io;
}
