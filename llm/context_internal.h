/* SPDX-License-Identifier: MIT
 *
 * context_internal.h: the struct of a context and its plans, and the functions that the files of a
 * context share: context.c (creation), context_decode.c (batches), context_plan.c (plans),
 * context_cache.c (cached tokens), context_window.c (windows), context_encode.c (encoders), and the
 * inputs of a step in context_rows.c, context_experts.c, context_lora.c and context_products.c.
 * report.c and work.c read it, too; no other file but tests does.
 */
#ifndef LLM_CONTEXT_INTERNAL_H
#define LLM_CONTEXT_INTERNAL_H

#include "llm/arch/forward_graph.h"
#include "llm/cache/slots.h"
#include "llm/context.h"

#define LLM_MAX_PLANS 64

/* Alignment of the layers' caches in a buffer, bytes: a page of most hosts. */
#define LLM_STATE_ALIGN ((uint64_t)4096)

/* Slots for snapshots of recurrent states, besides the slots that sequences need. */
#define LLM_N_SNAPSHOT 6

/* If a step has at most so many generated tokens of a sequence, a snapshot is kept after each (some
 * may be rejected drafts). If it has more, only the last state is kept, and going back means to
 * compute tokens again. */
#define LLM_MAX_DRAFT_SNAPSHOTS 16

/* Tokens that a sequence keeps before its window. So up to this many of its last tokens can be
 * removed without computing tokens again, as is needed when drafts are rejected. */
#define LLM_WINDOW_SLACK 64

/* The smallest capacity of page tables. */
#define LLM_MIN_ENTRIES 16

/* The operation of a plan. */
typedef enum llm_plan_kind {
    LLM_PLAN_FORWARD, /* a step of tokens */
    LLM_PLAN_SHIFT,   /* rotates cached keys to other positions */
    LLM_PLAN_COPY,    /* copies pages */
    LLM_PLAN_EXPORT,  /* rows of pages to the host; from here on plans have `rows` */
    LLM_PLAN_IMPORT,
    LLM_PLAN_SLOT_EXPORT, /* one slot of each recurrent state */
    LLM_PLAN_SLOT_IMPORT
} llm_plan_kind;

/* A product whose inputs a plan gives (llm_product). */
typedef struct llm_plan_product {
    const char *name;
    int32_t x, id; /* values of the outputs; id -1 = no experts */
    int32_t n, n_matrix, n_each, n_used, n_tok; /* n_tok: of the plan, the most of a step */
} llm_plan_product;

typedef struct llm_plan {
    llm_plan_kind kind;
    llm_step_shape shape; /* of FORWARD; of other kinds only cls is used */
    tdm_schedule *schedule;
    tdm_step_header header; /* offsets in its step block */
    /* Indices of values in the schedule's graph; -1 = the plan has no such value. */
    int32_t step;                   /* the step block */
    int32_t logits;                 /* whole rows, or those of candidates */
    int32_t candidates;             /* tokens of the logits */
    int32_t hidden;                 /* hidden states that the step gives */
    int32_t hidden_in;              /* hidden states that a layer that drafts reads */
    int32_t file_rows;              /* rows of a table of the file */
    int32_t file_row_ids;           /* 0, 1, ..: their numbers */
    int32_t expert_ids;             /* experts that are given by token ids */
    int32_t next_row, has_next;     /* the next token of each token's sequence */
    int32_t lora[LLM_MAX_ADAPTERS]; /* scales of adapters */
    /* [LLM_IO_KINDS * n_layer] values that go to the host or come from it. EXPORT and IMPORT:
     * LLM_ROW_KINDS for each layer; SLOT_EXPORT and SLOT_IMPORT: LLM_SLOT_KINDS for each layer. */
    int32_t *rows;
    llm_plan_product *products; /* [n_product] of FORWARD, if the context gives products */
    int32_t n_product;
    float *product_rows;  /* memory for the inputs of a step, and for product_ids behind them */
    int32_t *product_ids; /* the experts of a step */
    uint64_t last_used;   /* llm_context.clock at the last use */
} llm_plan;

struct llm_context {
    llm_model *model;
    tdm_scratch *scratch;
    llm_kv *kv;       /* page tables of LLM_CLASS_ALL: they have all tokens of all sequences */
    llm_kv *window;   /* page tables of LLM_CLASS_WINDOW; NULL = there is no such class */
    int32_t n_window; /* the most tokens that a layer of that class sees; 0 = no such class */
    llm_cache_shape cache;
    llm_layer_types *layer_types; /* [n_layer] owned copy of cache.layers; NULL if that is NULL */
    int32_t n_state;              /* LLM_STATE_KINDS * n_layer; layers lack some of them */
    uint64_t *page_size;          /* [n_state] bytes of a page or slot; 0 = no such state */
    int32_t *state_dev;           /* [n_state] index into the model's devices */
    int32_t *state_mem;           /* [n_state] index into the buffers of the store */
    uint64_t *state_off;          /* [n_state] in that buffer */
    llm_slots *slots;             /* of recurrent states; NULL = no layer has any */
    /* [n_seq][n_ctx] the sequences' tokens and their tdm_role, to compute them again; NULL if there
     * are neither slots nor a window. */
    int32_t *tokens;
    uint8_t *roles;
    int32_t *marks;   /* [n_seq] a length that the sequence can go back to (context_window.c);
                            -1 = none; NULL without window */
    int32_t *encoded; /* [n_seq] how many of the sequence's first tokens the encoder reads; NULL =
                            the model has no encoder */
    int32_t *last_added; /* [n_seq] tokens that the last batch appended to the sequence, or 2 after
                            it went back or was copied; NULL without slots */
    llm_store store;     /* cache buffers */
    uint64_t cache_size; /* bytes of all of them */
    int32_t n_ctx, n_ubatch, n_seq;
    int32_t longest_run; /* most tokens that a row of the cache stands for; 0 = one in all layers */
    int32_t n_entry; /* largest capacity of page tables in plans; grows by doubling */
    llm_plan plans[LLM_MAX_PLANS];
    int32_t n_plan;
    uint64_t clock;   /* counts plan uses; the plan that was unused longest is replaced */
    int32_t *step;    /* the step block under construction */
    size_t step_size; /* bytes allocated */
    int32_t *cells;   /* [n_ubatch, at least llm_context_chunk] cells of the step's tokens in kv */
    int32_t *window_cells; /* [n_ubatch, at least LLM_STATE_CHUNK] likewise in `window` */
    int32_t *order;        /* [n_ubatch] for each token of the step its index in the batch */
    int32_t *row_of;       /* [n_ubatch] row of logits of each token of the ubatch */
    int32_t n_candidate;   /* of later batches; 0 = whole rows of logits */
    float *logits;         /* [n_row][row_len] */
    int32_t *candidates;   /* [n_row][row_len] tokens of the logits; unused if rows are whole */
    int64_t *logits_at;    /* [n_logits] row of each wanted token of the last batch */
    /* Elements allocated of logits, candidates and logits_at. */
    int64_t logits_room;
    int64_t candidate_room;
    int64_t row_room;
    bool gives_hidden;     /* batches give hidden states */
    bool has_all_logits;   /* as in llm_context_params */
    bool gives_embeddings; /* likewise */
    bool keeps_hidden;     /* true in a caller's batch with gives_hidden; false while tokens are
                              computed again */
    float *hidden;         /* of the last batch: a row for each token; for a layer that drafts: for
                              each row of logits */
    int64_t hidden_room;   /* floats allocated */
    int32_t n_hidden;      /* tokens of the last batch that have one; 0 for a layer that drafts */
    float *hidden_io;      /* hidden states of a step: before hidden_scatter, or inputs */
    int64_t hidden_io_room; /* floats allocated */
    uint8_t *file_rows;     /* [file_row_room] rows of a table of the file, of a step */
    int32_t *file_row_ids;  /* [file_row_room] 0, 1, .. */
    int64_t file_row_room;
    int32_t *expert_ids; /* [expert_room] experts that are given by token ids, of a step */
    int64_t expert_room;
    int32_t *next_row; /* [next_room] of a step: llm_graph_builder.next_row */
    float *has_next;   /* [next_room] */
    int32_t next_room;
    float *scales;      /* [n_seq][n_adapter] of the model's adapters; NULL = it has none */
    float *lora_io;     /* [n_adapter][n_ubatch] scales of the tokens of a step, times the adapter's
                           factor; NULL = the model has no adapters */
    int64_t n_row;      /* rows computed for the last batch */
    int32_t row_len;    /* of the last batch: n_candidate or n_vocab */
    int32_t n_logits;   /* wanted tokens of the last batch */
    tdm_page_job *jobs; /* [2 * max_job] copies, then shifts */
    int32_t max_job;
    tdm_page_job *window_jobs; /* [2 * max_window_job] likewise, of LLM_CLASS_WINDOW */
    int32_t max_window_job;
    tdm_io *row_io; /* [LLM_IO_KINDS * n_layer + 1] for export and import */
    int32_t epoch;  /* of the last step block (tandem/step.h) */
    llm_progress_fn progress;
    void *progress_context;
    llm_product_fn product; /* NULL = products are not given */
    void *product_user;
};

/* Sets the error to TDM_RESOURCE_EXHAUSTED with a general message, and returns it. */
tdm_status llm_context_no_memory(tdm_error *err);
/* TDM_INVALID_ARGUMENT if the context has no such sequence. */
tdm_status llm_seq_check(const llm_context *ctx, int32_t seq, tdm_error *err);
/* Checks the parameters (NULL = the defaults) and fills in the sizes and the shape of the cache of
 * a cleared context, except the size of pages. Allocates nothing: cache.layers points to the table
 * of the parameters, which the caller copies if the context outlives them. */
tdm_status llm_context_measure(llm_context *ctx, const llm_model *model,
                               const llm_context_params *params, tdm_error *err);
/* Which hidden states the context's steps give: LLM_HIDDEN_*. */
int32_t llm_context_hidden_kind(const llm_context *ctx);

/* ---- Token i of a batch ---- */

static inline int32_t llm_batch_seq(const llm_batch *batch, int32_t i) {
    return batch->seqs != NULL ? batch->seqs[i] : 0;
}
static inline tdm_role llm_batch_role(const llm_batch *batch, int32_t i) {
    return batch->roles != NULL ? (tdm_role)batch->roles[i] : batch->role;
}
/* Whether the context gives its logits. */
static inline bool llm_batch_wants(const llm_context *ctx, const llm_batch *batch, int32_t i) {
    if (ctx->gives_embeddings) return false;
    return batch->wanted != NULL ? batch->wanted[i] : i == batch->n_tok - 1;
}

/* ---- Windows: context_window.c ---- */

/* Decides whether layers with a window are a class of their own (LLM_CLASS_WINDOW), and how many
 * pages it has; allocates nothing. The other sizes are set. */
void llm_window_measure(llm_context *ctx, const llm_model *model, const llm_context_params *params);
/* Creates the page tables of the class, if there is one. llm_window_destroy frees them, after a
 * failure, too. */
tdm_status llm_window_create(llm_context *ctx, tdm_error *err);
void llm_window_destroy(llm_context *ctx);
/* Whether the sequence, shortened to its first n_tok tokens, can go on: the class still has the
 * rows of all tokens that the next one sees. True without the class. */
bool llm_window_reaches(const llm_context *ctx, int32_t seq, int32_t n_tok);
/* The length, at most n_tok, to which the sequence can be shortened so that computing its tokens
 * from there to n_tok again gives a sequence of n_tok tokens: n_tok itself, the mark, or 0. */
int32_t llm_window_return(const llm_context *ctx, int32_t seq, int32_t n_tok);
/* Called before a batch appends n_added tokens to a sequence, the first of which has `role`. Makes
 * the sequence's length its mark, if the sequence may have to go back to it (context_window.c). */
void llm_window_mark(llm_context *ctx, int32_t seq, int32_t n_added, tdm_role role);
/* Frees the pages of tokens that the sequence does not need any more. */
void llm_window_trim(llm_context *ctx, int32_t seq);

/* ---- Encoders: context_encode.c ---- */

/* The two parts of a batch: the model computes the encoder's tokens first. */
typedef struct llm_encode_parts {
    llm_batch encoder; /* ordered by sequence; n_tok 0 = the batch has no such tokens */
    llm_batch decoder;
    void *memory; /* of the arrays of both; NULL = they are those of the batch */
} llm_encode_parts;

/* Sets ctx->encoded of the sequences that the batch begins. */
void llm_encode_begin(llm_context *ctx, const llm_batch *batch);
/* Checks what only models with an encoder require of a batch; TDM_OK for other models. The caller
 * has made all other checks. */
tdm_status llm_encode_check(const llm_context *ctx, const llm_batch *batch, tdm_error *err);
/* After llm_encode_begin: divides the batch into its parts. llm_encode_free frees them, after a
 * failure, too. */
tdm_status llm_encode_split(const llm_context *ctx, const llm_batch *batch,
                            llm_encode_parts *parts_out, tdm_error *err);
void llm_encode_free(llm_encode_parts *parts);
/* The end of the encoder's step that begins with token `first` of its part: as many whole sequences
 * as fit an ubatch. */
int32_t llm_encode_end(const llm_context *ctx, const llm_batch *encoder, int32_t first);
/* Whether the token at position `pos` of a sequence is the encoder's. */
static inline bool llm_is_encoded(const llm_context *ctx, int32_t seq, int32_t pos) {
    return ctx->encoded != NULL && pos < ctx->encoded[seq];
}
/* Writes the page tables of the encoder's tokens and of the decoder's into the step block; returns
 * the index behind the last entry. */
size_t llm_encode_tables_fill(llm_context *ctx, const llm_plan *plan, const bool *is_used);
/* If the model has an encoder: TDM_UNSUPPORTED, with the message that `what` is not supported and,
 * in `way`, what to do instead. Else TDM_OK. */
tdm_status llm_encode_refuse(const llm_context *ctx, const char *what, const char *way,
                             tdm_error *err);

/* ---- Inputs of a step that is filled (its tokens are in the step block) ---- */

/* Reads the rows that the step's n tokens have in a table of the file (llm_hparams_file_table):
 * io[0] = the rows, io[1] = their numbers. If rows depend on earlier tokens, it writes the step's
 * tokens into ctx->tokens. TDM_DATA_LOSS if the file has become shorter. */
tdm_status llm_file_rows_fill(llm_context *ctx, const llm_plan *plan, int32_t n, tdm_io *io,
                              tdm_error *err);
/* Looks up the experts of the step's n tokens in layers where the token's id alone determines
 * them. */
tdm_status llm_expert_ids_fill(llm_context *ctx, const llm_plan *plan, int32_t n, tdm_io *io,
                               tdm_error *err);
/* Finds the next token of each of the step's n tokens, whose sequences are one behind the other:
 * io[0] = its row, io[1] = 1 if there is one, else 0. */
tdm_status llm_next_rows_fill(llm_context *ctx, const llm_plan *plan, int32_t n, tdm_io *io,
                              tdm_error *err);
/* Allocates the scales of sequences, with those of the adapters as initial values; a no-op if the
 * model has no adapters. */
tdm_status llm_lora_create(llm_context *ctx, tdm_error *err);
/* The adapters with which a step for the sequences in is_used is planned: none, the only one that
 * has a scale other than 0, or all. So there are few plans. */
uint32_t llm_lora_choose(const llm_context *ctx, const bool *is_used);
/* Sets io[] to the scales of the step's n tokens, for each adapter that the plan has; returns how
 * many. */
int32_t llm_lora_fill(llm_context *ctx, const llm_plan *plan, int32_t n, tdm_io *io);

/* ---- Cached tokens ---- */

/* Whether a shift is possible in the page table of the window class, and leaves all rows that its
 * layers need. True without the class. */
bool llm_window_survives(const llm_context *ctx, int32_t seq, int32_t n_keep, int32_t n_discard);
/* After a shift: moves the mark with its tokens. */
void llm_window_move_mark(llm_context *ctx, int32_t seq, int32_t n_keep, int32_t n_discard);
/* Bytes of cached rows that a step of n_tok tokens behind n_past others reads. */
double llm_context_read_size(const llm_context *ctx, int32_t n_past, int32_t n_tok);
/* Shortens a sequence to n_tok tokens in the page tables of all classes; moves no states. */
void llm_tables_truncate(llm_context *ctx, int32_t seq, int32_t n_tok);
/* Appends a batch like llm_context_decode, but without checking it. If no token is wanted, the rows
 * of the last batch stay valid. After a failure the sequences are as before. */
tdm_status llm_batch_append(llm_context *ctx, const llm_batch *batch, tdm_error *err);

/* ---- Plans: context_plan.c, and products: context_products.c ---- */

/* Rounds n up to one of a few numbers, at most max, so that batches of all sizes need few plans. */
int32_t llm_plan_bucket(int32_t n, int32_t max);
/* The plan of this kind and shape, created on first use. It is valid until the next call: a plan
 * that is created may replace another. */
tdm_status llm_plan_get(llm_context *ctx, llm_plan_kind kind, const llm_step_shape *shape,
                        llm_plan **plan_out, tdm_error *err);
/* Chooses the device of each layer's cache; fills in page_size and state_dev. */
tdm_status llm_plan_place_cache(llm_context *ctx, tdm_error *err);
/* If the context gives products: adds an output to the forward graph for the inputs of each, and
 * fills in the plan's products. llm_products_free frees these, after a failure, too. */
tdm_status llm_products_build(const llm_context *ctx, llm_graph_builder *g, llm_plan *plan,
                              tdm_error *err);
void llm_products_free(llm_plan *plan);
/* Fills in where a step of n tokens, n_wanted of them with logits, writes these outputs: at most
 * 2 * n_product; returns how many. */
int32_t llm_products_outputs(const llm_plan *plan, int32_t n, int32_t n_wanted, tdm_io *outputs);
/* After such a step: calls ctx->product for each product. */
void llm_products_give(const llm_context *ctx, const llm_plan *plan, int32_t n, int32_t n_wanted);
/* Destroys all plans. */
void llm_plan_clear(llm_context *ctx);
/* Begins ctx->step as the step block of a plan: writes the header with a new epoch, and -1 into all
 * fields before the page entries. */
tdm_status llm_step_begin(llm_context *ctx, const llm_plan *plan, tdm_error *err);

#endif
