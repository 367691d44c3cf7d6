/* SPDX-License-Identifier: MIT
 *
 * context_internal.h: what the context_*.c files share. Not for others.
 */
#ifndef LLM_CONTEXT_INTERNAL_H
#define LLM_CONTEXT_INTERNAL_H

#include "llm/arch/arch.h"
#include "llm/context.h"

#define LLM_MAX_PLANS 64

/* Distance of the layers' caches in a buffer, bytes: a page of most hosts. */
#define LLM_STATE_ALIGN ((uint64_t)4096)

/* What a plan does. */
typedef enum llm_plan_kind {
    LLM_PLAN_FORWARD,
    LLM_PLAN_SHIFT,
    LLM_PLAN_COPY,
    LLM_PLAN_EXPORT,
    LLM_PLAN_IMPORT
} llm_plan_kind;

typedef struct llm_plan {
    llm_plan_kind kind;
    llm_step_shape shape; /* of FORWARD */
    tdm_schedule *schedule;
    tdm_step_header header; /* offsets into its step block */
    int32_t step;           /* value indices in the schedule's graph */
    int32_t logits;         /* -1 where there are none */
    int32_t *rows;          /* [2 * n_layer] of EXPORT and IMPORT: K and V of each layer */
    uint64_t last_used;
} llm_plan;

struct llm_context {
    llm_model *model;
    tdm_scratch *scratch;
    llm_kv *kv;
    llm_cache_shape cache;
    uint64_t *page_size; /* [n_layer] */
    int32_t *state_dev;  /* [n_layer] index into the model's devices */
    uint64_t *state_off; /* [n_layer] in that device's cache buffer */
    tdm_mem cache_mem[TDM_MAX_SCHEDULE_DEVICES];
    uint64_t cache_size;
    int32_t n_ctx, n_ubatch, n_seq;
    int32_t n_entry; /* page-table entries that plans are made for; grows by doubling */
    llm_plan plans[LLM_MAX_PLANS];
    int32_t n_plan;
    uint64_t clock;      /* counts plan uses, for eviction */
    int32_t *step;       /* the step block under construction */
    size_t step_size;    /* bytes allocated */
    int32_t *cells;      /* [n_ubatch] */
    float *logits;       /* [n_logit_rows][n_vocab] */
    int64_t logits_rows; /* allocated */
    int32_t n_logits;    /* rows of the last batch */
    tdm_page_job *jobs;  /* [2 * max_job] */
    int32_t max_job;
    tdm_io *row_io; /* [2 * n_layer + 1] for export and import */
    int32_t epoch;
    llm_progress_fn progress;
    void *progress_context;
};

/* Checks what a context is asked for and fills in its sizes and the shape of its cache, but for the
 * size of pages; nothing is allocated. params NULL: the defaults. */
tdm_status llm_context_measure(llm_context *ctx, const llm_model *model,
                               const llm_context_params *params, tdm_error *err);
/* Shapes are planned in buckets, so that prompts of every length need few plans. */
int32_t llm_plan_bucket(int32_t n, int32_t max);
/* The plan for a kind and shape, made on first use. */
tdm_status llm_plan_get(llm_context *ctx, llm_plan_kind kind, const llm_step_shape *shape,
                        llm_plan **plan_out, tdm_error *err);
/* Decides where each layer's cache lives; fills page_size and state_dev. */
tdm_status llm_plan_place_cache(llm_context *ctx, tdm_error *err);
/* Drops every plan (their shape has become useless). */
void llm_plan_clear(llm_context *ctx);
/* Readies ctx->step for a plan: header in place, every index -1. */
tdm_status llm_step_begin(llm_context *ctx, const llm_plan *plan, tdm_error *err);

#endif
