/* SPDX-License-Identifier: MIT
 *
 * context_internal.h: shared by the context_*.c files and report.c only.
 */
#ifndef LLM_CONTEXT_INTERNAL_H
#define LLM_CONTEXT_INTERNAL_H

#include "llm/arch/forward_graph.h"
#include "llm/cache/slots.h"
#include "llm/context.h"

#define LLM_MAX_PLANS 64

/* Alignment of the layers' caches in a buffer, bytes: a page of most hosts. */
#define LLM_STATE_ALIGN ((uint64_t)4096)

/* Slots of recurrent states besides those that sequences need: snapshots. */
#define LLM_N_SNAPSHOT 6

/* Drafted tokens of a sequence in a step that get a snapshot each. With more, states are computed
 * again. */
#define LLM_MAX_DRAFT_SNAPSHOTS 16

/* Tokens that a sequence keeps before its window: it can lose so many of its last ones without
 * computing others again, as drafts need. */
#define LLM_WINDOW_SLACK 64

/* The smallest capacity of page tables. */
#define LLM_MIN_ENTRIES 16

/* The operation of a plan. */
typedef enum llm_plan_kind {
    LLM_PLAN_FORWARD,
    LLM_PLAN_SHIFT,
    LLM_PLAN_COPY,
    LLM_PLAN_EXPORT,
    LLM_PLAN_IMPORT,
    LLM_PLAN_SLOT_EXPORT, /* one slot of each recurrent state */
    LLM_PLAN_SLOT_IMPORT
} llm_plan_kind;

/* A product whose inputs a plan gives. */
typedef struct llm_plan_product {
    const char *name;
    int32_t x, id; /* values of the outputs; id -1 = no experts */
    int32_t n, n_matrix, n_each, n_used, n_tok;
} llm_plan_product;

typedef struct llm_plan {
    llm_plan_kind kind;
    llm_step_shape shape; /* of FORWARD */
    tdm_schedule *schedule;
    tdm_step_header header;         /* offsets in its step block */
    int32_t step;                   /* value indices in the schedule's graph */
    int32_t logits;                 /* -1 = none */
    int32_t candidates;             /* tokens of the logits; -1 = none */
    int32_t hidden;                 /* hidden states; -1 = none */
    int32_t hidden_in;              /* those that a layer reads that drafts; -1 = none */
    int32_t file_rows;              /* rows of a table of the file; -1 = none */
    int32_t file_row_ids;           /* their numbers */
    int32_t expert_ids;             /* experts by token ids; -1 = none */
    int32_t lora[LLM_MAX_ADAPTERS]; /* scales of adapters; -1 = none */
    int32_t *rows; /* [LLM_IO_KINDS * n_layer] of EXPORT and IMPORT: K, V and keys of an index
                               of each layer; of the slots: those of each layer */
    llm_plan_product *products; /* [n_product] of FORWARD, where the context gives them */
    int32_t n_product;
    float *product_rows; /* the inputs of a step, and the experts behind them */
    int32_t *product_ids;
    uint64_t last_used;
} llm_plan;

struct llm_context {
    llm_model *model;
    tdm_scratch *scratch;
    llm_kv *kv;
    llm_kv *window;   /* page tables of LLM_CLASS_WINDOW; NULL = there is one class */
    int32_t n_window; /* tokens that its layers see; 0 without */
    llm_cache_shape cache;
    llm_layer_types *layer_types; /* [n_layer] cache.layers; NULL without */
    int32_t n_state;              /* LLM_STATE_KINDS * n_layer; layers lack some of them */
    uint64_t *page_size;          /* [n_state] 0 = the layer has no such state */
    int32_t *state_dev;           /* [n_state] index into the model's devices */
    int32_t *state_mem;           /* [n_state] index into the buffers of the store */
    uint64_t *state_off;          /* [n_state] in that buffer */
    llm_slots *slots;             /* of recurrent states; NULL = no layer has any */
    int32_t *tokens;  /* [n_seq][n_ctx] of the sequences, to compute them again; NULL without
                            slots and window */
    uint8_t *roles;   /* [n_seq][n_ctx] likewise: tdm_role */
    int32_t *marks;   /* [n_seq] a length that the sequence can go back to; -1 = none; NULL
                            without window */
    int32_t *encoded; /* [n_seq] first tokens of the sequence, which the encoder reads; NULL = the
                            model has none */
    int32_t *last_added; /* [n_seq] tokens that the last batch appended; NULL without slots */
    llm_store store;     /* cache buffers */
    uint64_t cache_size;
    int32_t n_ctx, n_ubatch, n_seq;
    int32_t longest_run; /* most tokens that a row of the cache stands for; 0 = one in all layers */
    int32_t n_entry; /* largest capacity of page tables in plans; grows by doubling */
    llm_plan plans[LLM_MAX_PLANS];
    int32_t n_plan;
    uint64_t clock;        /* counts plan uses, for eviction */
    int32_t *step;         /* the step block under construction */
    size_t step_size;      /* bytes allocated */
    int32_t *cells;        /* [n_ubatch] of the step's tokens */
    int32_t *window_cells; /* likewise, of LLM_CLASS_WINDOW */
    int32_t *order;        /* [n_ubatch] token of the batch that each token of the step is */
    int32_t *row_of;       /* [n_ubatch] row of logits of each token of the ubatch */
    int32_t n_candidate;   /* of later batches; 0 = whole rows of logits */
    float *logits;         /* [n_row][row_len] */
    int32_t *candidates;   /* [n_row][row_len] tokens of the logits; unused where rows are whole */
    int64_t *logits_at;    /* [row_room] row of each wanted token of the last batch */
    int64_t logits_room;   /* elements allocated */
    int64_t candidate_room;
    int64_t row_room;
    bool gives_hidden;     /* batches give hidden states */
    bool has_all_logits;   /* the largest step gives those of all tokens */
    bool gives_embeddings; /* those behind the norm before the output head, and no logits */
    bool keeps_hidden;     /* this batch does */
    float *hidden;         /* [hidden_room] of the last batch: a row for each token, or (a layer
                           that drafts) for each row of logits */
    int64_t hidden_room;
    int32_t n_hidden; /* tokens of the last batch that have one; 0 for a layer that drafts */
    float *hidden_io; /* [hidden_io_room] rows of a step, out of a plan or into it */
    int64_t hidden_io_room;
    uint8_t *file_rows;    /* [file_row_room] rows of a table of the file, of a step */
    int32_t *file_row_ids; /* [file_row_room] 0, 1, .. */
    int64_t file_row_room;
    int32_t *expert_ids; /* [expert_room] experts by token ids, of a step */
    int64_t expert_room;
    float *scales;      /* [n_seq][n_adapter] of the model's adapters; NULL = it has none */
    float *lora_io;     /* [n_adapter][n_ubatch] those of the tokens of a step, times the adapter's
                       factor; NULL likewise */
    int64_t n_row;      /* rows computed for the last batch */
    int32_t row_len;    /* of the last batch: n_candidate or n_vocab */
    int32_t n_logits;   /* its wanted tokens */
    tdm_page_job *jobs; /* [2 * max_job] */
    int32_t max_job;
    tdm_page_job *window_jobs; /* [2 * max_window_job] of LLM_CLASS_WINDOW */
    int32_t max_window_job;
    tdm_io *row_io; /* [2 * n_layer + 1] for export and import */
    int32_t epoch;
    llm_progress_fn progress;
    void *progress_context;
    llm_product_fn product; /* NULL = products are not given */
    void *product_user;
};

/* TDM_RESOURCE_EXHAUSTED, with the message for missing memory. */
tdm_status llm_context_no_memory(tdm_error *err);
/* Checks the parameters (NULL = the defaults) and fills in the sizes and the shape of the cache,
 * except the size of pages. Allocates nothing: cache.layers is the table of the parameters. */
tdm_status llm_context_measure(llm_context *ctx, const llm_model *model,
                               const llm_context_params *params, tdm_error *err);
/* LLM_HIDDEN_* of the context's steps. */
int32_t llm_context_hidden_kind(const llm_context *ctx);
/* Decides whether the model's windows have a class, and its pages; allocates nothing. */
void llm_window_measure(llm_context *ctx, const llm_model *model, const llm_context_params *params);
/* The page tables of the class, where there is one. llm_window_destroy frees them, after a failure
 * too. */
tdm_status llm_window_create(llm_context *ctx, tdm_error *err);
void llm_window_destroy(llm_context *ctx);
/* Whether the layers with a window have all that a sequence of n_tok of its tokens needs. */
bool llm_window_reaches(const llm_context *ctx, int32_t seq, int32_t n_tok);
/* The largest known length, at most n_tok, that a sequence can go back to. */
int32_t llm_window_return(const llm_context *ctx, int32_t seq, int32_t n_tok);
/* Before a batch appends n_added tokens to a sequence, of which the first has `role`: makes its
 * length the mark, where it may be needed again. */
void llm_window_mark(llm_context *ctx, int32_t seq, int32_t n_added, tdm_role role);
/* Gives back the pages of tokens that are not kept. */
void llm_window_trim(llm_context *ctx, int32_t seq);

/* A batch in the order in which a model with an encoder computes it. */
typedef struct llm_encode_parts {
    llm_batch encoder; /* by sequence; n_tok 0 = none */
    llm_batch decoder;
    void *memory; /* of both, where the encoder has tokens */
} llm_encode_parts;

/* Notes how many tokens of the batch's new sequences the encoder reads. */
void llm_encode_begin(llm_context *ctx, const llm_batch *batch);
/* Whether the model can compute the batch, which has been checked otherwise. */
tdm_status llm_encode_check(const llm_context *ctx, const llm_batch *batch, tdm_error *err);
/* Behind llm_encode_begin: takes the batch apart. llm_encode_free frees the parts. */
tdm_status llm_encode_split(const llm_context *ctx, const llm_batch *batch,
                            llm_encode_parts *parts_out, tdm_error *err);
void llm_encode_free(llm_encode_parts *parts);
/* Where the step of the encoder ends that begins with token `first`: with a whole sequence. */
int32_t llm_encode_end(const llm_context *ctx, const llm_batch *encoder, int32_t first);
/* Whether `pos` of a sequence is a token of the encoder. */
static inline bool llm_is_encoded(const llm_context *ctx, int32_t seq, int32_t pos) {
    return ctx->encoded != NULL && pos < ctx->encoded[seq];
}
/* Writes the page tables of the encoder's tokens and of the decoder's; returns the index in the block
 * behind the last entry. */
size_t llm_encode_tables_fill(llm_context *ctx, const llm_plan *plan, const bool *is_used);
/* TDM_UNSUPPORTED where the model has an encoder: `what` is not possible then, `way` says what to do. */
tdm_status llm_encode_refuse(const llm_context *ctx, const char *what, const char *way,
                             tdm_error *err);

/* The rows that the n tokens of a filled step have in a table of the file (llm_hparams_file_table). Of
 * rows for runs of tokens it notes the tokens. io[2]: the rows, and their numbers. */
tdm_status llm_file_rows_fill(llm_context *ctx, const llm_plan *plan, int32_t n, tdm_io *io,
                              tdm_error *err);
/* The experts that the model gives the tokens of a filled step by their ids. */
tdm_status llm_expert_ids_fill(llm_context *ctx, const llm_plan *plan, int32_t n, tdm_io *io,
                               tdm_error *err);
/* Makes the scales of a context whose model has adapters: those that the adapters have. */
tdm_status llm_lora_create(llm_context *ctx, tdm_error *err);
/* The adapters that a step has whose tokens are of the sequences in is_used: none, one, or all, so
 * that there are few plans. */
uint32_t llm_lora_choose(const llm_context *ctx, const bool *is_used);
/* The scales of the n tokens of a filled step, as inputs of its plan; returns their number. */
int32_t llm_lora_fill(llm_context *ctx, const llm_plan *plan, int32_t n, tdm_io *io);
/* Whether a shift is possible in the page table of the class, and leaves all that its layers
 * need. */
bool llm_window_survives(const llm_context *ctx, int32_t seq, int32_t n_keep, int32_t n_discard);
/* After a shift: the mark moves with its tokens. */
void llm_window_move_mark(llm_context *ctx, int32_t seq, int32_t n_keep, int32_t n_discard);
/* Bytes of cached rows that a step of n_tok tokens behind n_past others reads. */
double llm_context_read_size(const llm_context *ctx, int32_t n_past, int32_t n_tok);
/* Shortens both page tables of a sequence. */
void llm_tables_truncate(llm_context *ctx, int32_t seq, int32_t n_tok);
/* Appends tokens like llm_context_decode, without a check and without effect on earlier logits
 * where none are wanted. After a failure the sequences are as before. */
tdm_status llm_batch_append(llm_context *ctx, const llm_batch *batch, tdm_error *err);
/* Rounds n up to a bucket, so that prompts of all lengths need few plans. */
int32_t llm_plan_bucket(int32_t n, int32_t max);
/* The plan for a kind and shape, created on first use. */
tdm_status llm_plan_get(llm_context *ctx, llm_plan_kind kind, const llm_step_shape *shape,
                        llm_plan **plan_out, tdm_error *err);
/* Chooses the device of each layer's cache; fills page_size and state_dev. */
tdm_status llm_plan_place_cache(llm_context *ctx, tdm_error *err);
/* Adds outputs for the inputs of products to a forward graph, where the context gives them.
 * llm_products_free releases what the plan then has. */
tdm_status llm_products_build(const llm_context *ctx, llm_graph_builder *g, llm_plan *plan,
                              tdm_error *err);
void llm_products_free(llm_plan *plan);
/* Where they go in a step of n tokens, n_wanted with logits: at most 2 * n_product outputs; returns
 * their number. */
int32_t llm_products_outputs(const llm_plan *plan, int32_t n, int32_t n_wanted, tdm_io *outputs);
/* Calls the context's function for each, behind such a step. */
void llm_products_give(const llm_context *ctx, const llm_plan *plan, int32_t n, int32_t n_wanted);
/* Destroys all plans, when their shapes are no longer valid. */
void llm_plan_clear(llm_context *ctx);
/* Initialises ctx->step for a plan: the header, and every index -1. */
tdm_status llm_step_begin(llm_context *ctx, const llm_plan *plan, tdm_error *err);

#endif
