/* SPDX-License-Identifier: MIT
 *
 * context.h: a context: the cache, plans and sequences with which a model computes.
 *
 * A context has n_seq sequences of tokens, empty at first. Decoding appends tokens to sequences and
 * gives logits of the wanted ones. The position of a token is the length of its sequence before it.
 * Each shape of step (tokens, outputs) is planned once; data that changes between steps is in the
 * step block (tandem/step.h). A call that fails leaves the sequences unchanged, except where its
 * comment says otherwise.
 *
 * In a model with an encoder (T5) a sequence consists of a text that the encoder reads, one token
 * that begins the decoder's text (llm_hparams.decoder_start), and the decoder's text. The first
 * batch of a sequence has the encoder's whole text and that token. The encoder's tokens have no
 * logits.
 *
 * Tokens that an operation must compute again (llm_context_truncate, _fork, _shift) are computed
 * inside the call, without logits.
 *
 * One thread at a time for a context. Contexts of one model share its devices and are otherwise
 * independent.
 */
#ifndef LLM_CONTEXT_H
#define LLM_CONTEXT_H

#include "llm/cache/kv_cache.h"
#include "llm/cache/layer_types.h"
#include "llm/model.h"
#include "llm/sampler.h"

typedef struct llm_context llm_context;

#define LLM_N_CTX_DEFAULT    4096
#define LLM_N_UBATCH_DEFAULT 512
#define LLM_MAX_SEQ          256
#define LLM_MAX_UBATCH       (1 << 16)
#define LLM_MAX_CANDIDATES   256

/* The inputs with which a matrix of a layer is multiplied in one step. Valid during the call that
 * gives them. */
typedef struct llm_product {
    const char *name; /* of the tensor in the file */
    int32_t n;        /* elements of an input */
    int32_t n_matrix; /* matrices in the tensor: experts or heads; 1 = a plain matrix */
    /* Inputs of a token. Plain matrix: 1. Heads: n_matrix, one for each. Experts: 1 input for all
     * experts of the token, or n_used, one for each. */
    int32_t n_each;
    int32_t n_used;     /* experts of a token; 0 = no experts */
    int32_t n_tok;      /* tokens that have inputs */
    const float *rows;  /* [n_tok][n_each][n] */
    const int32_t *ids; /* [n_tok][n_used] the experts of each token; NULL = no experts */
} llm_product;

typedef void (*llm_product_fn)(void *user, const llm_product *product);

typedef struct llm_context_params {
    size_t struct_size;
    int32_t n_ctx;          /* most tokens of a sequence, and of all together; at most LLM_MAX_CTX;
                               0 = llm_context_n_ctx_default */
    int32_t n_ubatch;       /* tokens computed in one step, at most LLM_MAX_UBATCH;
                               0 = LLM_N_UBATCH_DEFAULT */
    int32_t n_seq;          /* 1 .. LLM_MAX_SEQ; 0 = 1 */
    int32_t page_len;       /* tokens in a page, a power of two; 0 = TDM_KV_PAGE_LEN_DEFAULT */
    const tdm_type *type_k; /* of the cache; NULL = f16; read during the call */
    const tdm_type *type_v;
    /* [n_layer] types and rotation of each layer, instead of type_k, type_v and is_unrotated; NULL
     * = all layers have those. Entries of layers without a cache are not read. Read during the
     * call. */
    const llm_layer_types *layer_types;
    bool is_unrotated;     /* true: quantised caches are stored without rotation */
    bool gives_hidden;     /* true: llm_context_hidden gives the hidden states of every batch, for a
                              layer that drafts; always so in a context of such a layer */
    bool begins_decoder;   /* true: the caller gives sequences of a model with an encoder the token
                              that begins the decoder's text (prompt.h). Such a model needs it; not
                              read for others */
    bool gives_embeddings; /* true: llm_context_hidden gives the states after the last norm, which
                              the output head would read, and there are no logits. Encoders need
                              it */
    bool has_all_logits;   /* true: memory for logits of all tokens of a step is taken when the
                              context is created; false: it grows with the first batch that wants
                              them */
    bool is_cache_in_host; /* true: the cache is in the host's memory, whichever device the model
                              is on (TDM_KV_IN_HOST) */
    /* Called after each step for every matrix of a layer with which inputs are multiplied; NULL =
     * no calls. Steps copy these inputs to the host, and experts are computed with single
     * products. */
    llm_product_fn product;
    void *product_user;
    bool is_window_whole; /* true: layers with a window keep all tokens; false: they keep only the
                             tokens that they may see again, if that takes less memory */
} llm_context_params;

/* Bytes allocated for a context, without the model's weights. */
typedef struct llm_context_memory {
    uint64_t cache;   /* all pages */
    uint64_t window;  /* of these, the pages of layers that keep the tokens of their window only */
    uint64_t compute; /* temporaries of the largest shape, and memory of plans */
    uint64_t output;  /* logits, candidates and hidden states on the host */
} llm_context_memory;

/* What n_ctx = 0 means for a model: llm_hparams_n_ctx, at most LLM_N_CTX_DEFAULT. [any-thread] */
int32_t llm_context_n_ctx_default(const llm_model *model);

/* Allocates the cache, and compute memory for the largest step. The model is loaded and outlives
 * the context. If memory does not suffice, the message has the sizes and the key to change.
 * TDM_UNSUPPORTED for an encoder without gives_embeddings, and for a model with an encoder and a
 * decoder without begins_decoder, or with gives_embeddings, gives_hidden or `product`. [setup] */
tdm_status llm_context_create(llm_model *model, const llm_context_params *params,
                              llm_context **context_out, tdm_error *err);
/* NULL is a no-op. [setup] */
void llm_context_destroy(llm_context *ctx);

int32_t llm_context_n_ctx(const llm_context *ctx);
int32_t llm_context_n_seq(const llm_context *ctx);
const llm_model *llm_context_model(const llm_context *ctx);
/* The description that the caches of all layers share. Types and rotation of one layer:
 * llm_context_layer_types. */
const tdm_kv_desc *llm_context_kv_desc(const llm_context *ctx);
/* Types and rotation of the cache of layer 0 .. n_layer-1. Meaningless for a layer without a
 * cache. */
llm_layer_types llm_context_layer_types(const llm_context *ctx, int32_t layer);
/* Whether types or rotation differ between layers; if not, all are those of llm_context_kv_desc. */
bool llm_context_has_layer_types(const llm_context *ctx);
llm_context_memory llm_context_get_memory(const llm_context *ctx);

/* Tokens to append, in order; those of one sequence keep their order. */
typedef struct llm_batch {
    const int32_t *tokens; /* [n_tok] ids below n_vocab */
    const int32_t *seqs;   /* [n_tok] 0 .. n_seq-1; NULL = all of sequence 0 */
    const bool *wanted;    /* [n_tok] whose logits to keep; NULL = the last one's. Not read by a
                              context that gives embeddings */
    int32_t n_tok;         /* any number; computed n_ubatch at a time */
    tdm_role role;         /* of all tokens, where roles is NULL; determines with what precision a
                              device may compute them (tandem/step.h) */
    const uint8_t *roles;  /* [n_tok] tdm_role of each token; NULL = all have `role` */
    /* [n_tok][llm_model_hidden_len] of a model of llm_model_open_draft: for each token the hidden
     * state of the token before it, zeros for the first of a sequence. NULL for other models. */
    const float *hidden;
    int32_t n_room; /* a step uses a plan for at least so many tokens, so that batches of up to
                       n_room tokens share a plan; 0 = n_tok */
} llm_batch;

/* Appends the batch and computes the wanted logits, which stay valid until the next call. A batch
 * that does not fit the context is TDM_OUT_OF_RANGE, with the sizes. Where tokens see later ones
 * (encoders), the whole batch must fit one ubatch: else TDM_UNSUPPORTED. */
tdm_status llm_context_decode(llm_context *ctx, const llm_batch *batch, tdm_error *err);
/* Logits [n_vocab] of the i-th wanted token of the last batch; NULL past the end, and where
 * candidates are computed instead. */
const float *llm_context_logits(const llm_context *ctx, int32_t i);
/* The row of logits of the i-th wanted token of the last batch: of the whole vocabulary or of
 * candidates. Its n is 0 past the end. */
llm_row llm_context_row(const llm_context *ctx, int32_t i);
/* The hidden state of token i of the last batch; in a context of a layer that drafts, of the i-th
 * wanted token. llm_model_hidden_len floats; n_embd in a context that gives embeddings. Valid until
 * the next call. NULL past the end, and if the context gives no hidden states. */
const float *llm_context_hidden(const llm_context *ctx, int32_t i);
/* Makes later batches give the best n tokens of each row instead of all logits: a device then sends
 * n numbers to the host in place of n_vocab. 0 = all logits. At most LLM_MAX_CANDIDATES and the
 * vocabulary. The rows of the last batch are no longer valid. */
tdm_status llm_context_set_candidates(llm_context *ctx, int32_t n, tdm_error *err);
/* Sets a function that is called between the ubatches of a long batch, with tokens done and in
 * total; returning false cancels the call with TDM_CANCELLED. NULL removes it. */
void llm_context_set_progress(llm_context *ctx, llm_progress_fn progress, void *progress_context);

/* Sets the scales of the model's adapters (adapter.h) for an empty sequence: scales[n_adapter], all
 * finite; 0 = without the adapter. They hold until they are set again. At first a sequence has the
 * scales with which the adapters were added; llm_context_fork gives dst those of src. All tokens of
 * a sequence must have the same scales, since cached rows depend on them: TDM_FAILED_PRECONDITION
 * if the sequence has tokens and `scales` differs from its scales. */
tdm_status llm_context_set_scales(llm_context *ctx, int32_t seq, const float *scales,
                                  tdm_error *err);
/* The scales of a sequence, [n_adapter]; NULL where the model has no adapters. Valid until they are
 * set. */
const float *llm_context_scales(const llm_context *ctx, int32_t seq);
/* A hash of the adapters whose scale is not 0 in a sequence, and of these scales; 0 = all scales
 * are 0, or the model has no adapters. */
uint64_t llm_context_scales_hash(const llm_context *ctx, int32_t seq);

/* Tokens in a sequence. */
int32_t llm_context_length(const llm_context *ctx, int32_t seq);
/* Pages of the page tables that hold all tokens; *n_free_out: those that no sequence uses. Layers
 * with a window may have pages of their own, which always suffice for n_seq sequences and are not
 * counted. */
int32_t llm_context_pages(const llm_context *ctx, int32_t *n_free_out);
/* How many free pages (llm_context_pages) an append of n_tok tokens to a sequence takes. */
int32_t llm_context_pages_needed(const llm_context *ctx, int32_t seq, int32_t n_tok);
/* The largest length, at most n_tok and at most that of the sequence, to which llm_context_truncate
 * and llm_context_fork bring a sequence without computing tokens again. 0 if there is no such
 * sequence. */
int32_t llm_context_reach(llm_context *ctx, int32_t seq, int32_t n_tok);
/* Keeps the first n_tok tokens of a sequence. n_tok = 0 cannot fail. Two kinds of models may have
 * to go back to a shorter length and compute the tokens from there to n_tok again: those with
 * recurrent states, which go back to a snapshot, and those with windows, if more than 64 tokens are
 * removed and the windows have freed tokens that are needed now. If this computation fails, the
 * sequence keeps the shorter length. The text that an encoder has read cannot be kept without the
 * token that begins the decoder, nor can a part of it: TDM_UNSUPPORTED. */
tdm_status llm_context_truncate(llm_context *ctx, int32_t seq, int32_t n_tok, tdm_error *err);
/* Makes the empty sequence dst hold the first n_tok tokens of src, by sharing pages. A page that
 * they fill only in part is copied. So dst computes, to the bit, what a sequence computes that
 * shares nothing, and src is not affected. Models with recurrent states or windows may compute some
 * tokens again, as for llm_context_truncate, and an encoder's text is shared under the same
 * condition. On failure dst stays empty. */
tdm_status llm_context_fork(llm_context *ctx, int32_t dst, int32_t src, int32_t n_tok,
                            tdm_error *err);
/* Context shift: removes tokens n_keep .. n_keep+n_discard-1 from a sequence and rotates the cached
 * keys of the tokens after them to their new positions. TDM_UNSUPPORTED for a model with recurrent
 * states, since no token can be removed from a state, and for a model with an encoder. If layers
 * with a window would see kept tokens that they have freed, all remaining tokens are computed
 * again. A refused call changes nothing; after a failure of a device the sequence is empty. */
tdm_status llm_context_shift(llm_context *ctx, int32_t seq, int32_t n_keep, int32_t n_discard,
                             tdm_error *err);
/* Whether the model's cache allows a context shift. */
bool llm_context_can_shift(const llm_context *ctx);

/* ---- Cache rows, for state files (state.h) ----
 *
 * Exporting a sequence: llm_context_export_rows for one chunk of tokens after the other, then
 * llm_context_export_slot. Importing into an empty sequence: llm_context_import_begin,
 * llm_context_import_rows for one chunk after the other, llm_context_import_tokens,
 * llm_context_import_slot.
 *
 * Layers with a window may lack the rows of a sequence's first tokens. `window_first` is the first
 * token from which on they have all rows; 0 = all layers have all rows.
 *
 * Not for models with an encoder: TDM_UNSUPPORTED. */

#define LLM_STATE_CHUNK     64          /* tokens exported or imported at once */
#define LLM_MAX_STATE_CHUNK LLM_MAX_RUN /* likewise, where rows stand for longer runs of tokens */

/* Tokens of a chunk: the most that are exported or imported at once. LLM_STATE_CHUNK, or, if
 * longer, the longest run of tokens that a row of the cache stands for. If there are such rows,
 * every chunk must begin at a multiple of this number, so that none of them lies in two chunks. At
 * most LLM_MAX_STATE_CHUNK. */
int32_t llm_context_chunk(const llm_context *ctx);

/* Bytes of the canonical rows of n_row tokens in all layers. */
size_t llm_context_rows_size(const llm_context *ctx, int32_t n_row);
/* The same for tokens first .. first+n_row-1 of a sequence with this window_first. If all these
 * tokens are before window_first, layers with a window have no rows of them; else they have n_row
 * rows like the other layers. */
size_t llm_context_rows_size_at(const llm_context *ctx, int32_t first, int32_t n_row,
                                int32_t window_first);
/* Removes from the rows of tokens first .. first+n_row-1, in place, all but those of the first
 * n_keep tokens. */
void llm_context_rows_shorten(const llm_context *ctx, void *rows, int32_t first, int32_t n_row,
                              int32_t n_keep, int32_t window_first);
/* The window_first of a sequence of this context. */
int32_t llm_context_window_first(const llm_context *ctx, int32_t seq);
/* Whether rows with this window_first are all that a sequence of n_tok tokens needs to go on. */
bool llm_context_window_suffices(const llm_context *ctx, int32_t n_tok, int32_t window_first);
/* Whether the context can import rows whose window_first is not 0. */
bool llm_context_has_window(const llm_context *ctx);
/* Writes the canonical rows of tokens first .. first+n_row-1 (n_row <= llm_context_chunk) of a
 * sequence: for each layer its K rows, its V rows, then the keys of an index and the rows of runs,
 * where the layer has them. llm_context_rows_size_at bytes, for the sequence's window_first. In
 * layers with a window, rows before window_first are zeros. */
tdm_status llm_context_export_rows(llm_context *ctx, int32_t seq, int32_t first, int32_t n_row,
                                   void *rows_out, tdm_error *err);
/* Pages that no sequence uses: of all classes of caches together. */
int32_t llm_context_free_pages(const llm_context *ctx);
/* Bytes of the recurrent states of a sequence; 0 = the model has none. */
size_t llm_context_slot_size(const llm_context *ctx);
/* Writes the recurrent states of a sequence: llm_context_slot_size bytes, f32, in the order of the
 * layers. */
tdm_status llm_context_export_slot(llm_context *ctx, int32_t seq, void *data_out, tdm_error *err);
/* Sets the recurrent states of a sequence whose rows have been imported. tokens[length]: its
 * tokens. A no-op for a model without recurrent states. */
tdm_status llm_context_import_slot(llm_context *ctx, int32_t seq, const int32_t *tokens,
                                   const void *data, tdm_error *err);
/* Sets the window_first of an empty sequence, before its rows are imported. Not needed for 0. */
void llm_context_import_begin(llm_context *ctx, int32_t seq, int32_t window_first);
/* After the last rows: tells the context the sequence's tokens[length], which it needs where it
 * computes tokens again. */
void llm_context_import_tokens(llm_context *ctx, int32_t seq, const int32_t *tokens);
/* Appends n_row tokens (at most llm_context_chunk) to a sequence, with rows as of
 * llm_context_export_rows instead of computed ones. */
tdm_status llm_context_import_rows(llm_context *ctx, int32_t seq, int32_t n_row, const void *rows,
                                   tdm_error *err);

#endif
