/* SPDX-License-Identifier: MIT
 *
 * context.h: a model at work: its cache, its plans, and the sequences that are being continued.
 *
 * The model in the head: a context holds n_seq sequences of tokens, empty at first. Decoding
 * appends tokens to them and gives logits for those that were asked for; positions follow from a
 * sequence's length. Each shape of step (tokens, outputs) is planned once and kept; what changes
 * from step to step travels in the step block (tandem/step.h). When a call fails, the sequences
 * are as they were before it.
 *
 * One thread at a time for a context; contexts of one model are independent of one another but
 * share its devices.
 */
#ifndef LLM_CONTEXT_H
#define LLM_CONTEXT_H

#include "llm/cache/kv_cache.h"
#include "llm/model.h"

typedef struct llm_context llm_context;

#define LLM_N_CTX_DEFAULT    4096
#define LLM_N_UBATCH_DEFAULT 512
#define LLM_MAX_SEQ          256
#define LLM_MAX_UBATCH       (1 << 16)

typedef struct llm_context_params {
    size_t struct_size;
    int32_t n_ctx;          /* tokens that a sequence, and all of them together, may hold, at most
                               LLM_MAX_CTX; 0 = what the model was trained with, at most LLM_N_CTX_DEFAULT */
    int32_t n_ubatch;       /* tokens computed at once, at most LLM_MAX_UBATCH;
                               0 = LLM_N_UBATCH_DEFAULT */
    int32_t n_seq;          /* 1 .. LLM_MAX_SEQ; 0 = 1 */
    int32_t page_len;       /* tokens in a page, a power of two; 0 = TDM_KV_PAGE_LEN_DEFAULT */
    const tdm_type *type_k; /* of the cache; NULL = f16; read during the call */
    const tdm_type *type_v;
    bool is_unrotated;     /* true: quantised caches are stored without rotation */
    bool is_cache_in_host; /* true: the cache lies in the host's memory, whatever device the model
                              is on (TDM_KV_IN_HOST) */
} llm_context_params;

/* Bytes that a context holds, apart from the model's weights. */
typedef struct llm_context_memory {
    uint64_t cache;   /* all pages */
    uint64_t compute; /* temporaries of the largest shape, and what plans hold */
    uint64_t output;  /* logits on the host */
} llm_context_memory;

/* Allocates cache and compute memory for the largest step. The model is loaded and outlives the
 * context. What does not fit is refused with the sizes and the key to change. [setup] */
tdm_status llm_context_create(llm_model *model, const llm_context_params *params,
                              llm_context **context_out, tdm_error *err);
/* NULL is a no-op. [setup] */
void llm_context_destroy(llm_context *ctx);

int32_t llm_context_n_ctx(const llm_context *ctx);
const llm_model *llm_context_model(const llm_context *ctx);
const tdm_kv_desc *llm_context_kv_desc(const llm_context *ctx);
llm_context_memory llm_context_get_memory(const llm_context *ctx);

/* Tokens to append, in order; those of one sequence keep their order. */
typedef struct llm_batch {
    const int32_t *tokens; /* [n_tok] ids below n_vocab */
    const int32_t *seqs;   /* [n_tok] 0 .. n_seq-1; NULL = all of sequence 0 */
    const bool *wanted;    /* [n_tok] whose logits to keep; NULL = the last one's */
    int32_t n_tok;         /* any number; computed n_ubatch at a time */
} llm_batch;

/* Appends the batch and computes the logits asked for, which stay valid until the next call.
 * A batch that does not fit the context is TDM_OUT_OF_RANGE and names the sizes. */
tdm_status llm_context_decode(llm_context *ctx, const llm_batch *batch, tdm_error *err);
/* Logits [n_vocab] of the i-th wanted token of the last batch; NULL past the end. */
const float *llm_context_logits(const llm_context *ctx, int32_t i);
/* Called between the ubatches of a long batch, with tokens done and in all; returning false
 * cancels the call with TDM_CANCELLED. NULL removes it. */
void llm_context_set_progress(llm_context *ctx, llm_progress_fn progress, void *progress_context);

/* Tokens in a sequence. */
int32_t llm_context_length(const llm_context *ctx, int32_t seq);
/* Keeps the first n_tok tokens of a sequence. */
tdm_status llm_context_truncate(llm_context *ctx, int32_t seq, int32_t n_tok, tdm_error *err);
/* Gives the empty sequence dst the first n_tok tokens of src; their pages are shared. */
tdm_status llm_context_fork(llm_context *ctx, int32_t dst, int32_t src, int32_t n_tok,
                            tdm_error *err);
/* Context shift: takes tokens n_keep .. n_keep+n_discard-1 out of a sequence; the cached keys of
 * those behind are turned to their new positions. */
tdm_status llm_context_shift(llm_context *ctx, int32_t seq, int32_t n_keep, int32_t n_discard,
                             tdm_error *err);

/* ---- Cache rows, for state files (state.h) ---- */

#define LLM_STATE_CHUNK 64 /* tokens moved at once */

/* Bytes of the canonical K and V rows of n_row tokens in all layers. */
size_t llm_context_rows_size(const llm_context *ctx, int32_t n_row);
/* Canonical rows of tokens first .. first+n_row-1 (n_row <= LLM_STATE_CHUNK) of a sequence: for
 * each layer its K rows, then its V rows. */
tdm_status llm_context_export_rows(llm_context *ctx, int32_t seq, int32_t first, int32_t n_row,
                                   void *rows_out, tdm_error *err);
/* Appends n_row tokens to a sequence whose rows are given, instead of computing them. */
tdm_status llm_context_import_rows(llm_context *ctx, int32_t seq, int32_t n_row, const void *rows,
                                   tdm_error *err);

#endif
