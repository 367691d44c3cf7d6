/* SPDX-License-Identifier: MIT
 *
 * step.h: the step block, where everything lives that varies from one step to the next.
 *
 * A graph never changes between steps of one shape; token ids, positions, cache cells, page tables
 * and jobs do. They are packed into one int32 array, the step block, which is uploaded once per
 * step and device. The graph holds it as an INPUT value of type I32 and shape [size]; simple ops
 * read a part of it through SLICE (tokens, positions, output rows), the cache ops take the whole.
 *
 * The block opens with tdm_step_header. Offsets count int32s from the start of the block and
 * depend only on the capacities (tdm_step_caps), so they are constants of a plan; only contents
 * vary. Rows past n_tok are padding and hold -1: a lookup of id -1 gives zeros, a write to cell -1
 * is skipped, attention for a token whose position is -1 gives o = 0, m = -inf, l = 0.
 *
 * A cache class is a set of layers that share page ids (full attention, sliding window, latent).
 */
#ifndef TANDEM_STEP_H
#define TANDEM_STEP_H

#include <string.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TDM_STEP_MAX_CLASS 4
#define TDM_STEP_VERSION   4

/* Capacities that a block is laid out for; part of the plan's shape. All >= 0. The struct lies
 * inside tdm_graph, so its size is frozen: what it may still need goes into `reserved`. */
typedef struct tdm_step_caps {
    int32_t n_tok;       /* tokens, padding included */
    int32_t n_seq;       /* sequences named by `seq` */
    int32_t n_out;       /* requested rows of logits */
    int32_t n_entry;     /* page-table entries, of each class */
    int32_t n_job;       /* page jobs (shift, copy, export, import) */
    int32_t n_class;     /* cache classes, 0 .. TDM_STEP_MAX_CLASS */
    int32_t has_rs;      /* 1 = recurrent states: the block has rs_read and rs_write; 0 = none */
    int32_t reserved[5]; /* 0 */
} tdm_step_caps;

/* Why a token is computed. A device may multiply the activations of a prompt's tokens with less
 * precision than those of generated ones, and does so by role alone. What a token computes never
 * depends on what else is in its step, or on where a prompt was cut into chunks. A device may also
 * ignore roles and compute every token as a generated one. */
typedef enum tdm_role {
    TDM_ROLE_GENERATED = 0, /* a generated token, or a drafted one that is being verified */
    TDM_ROLE_PROMPT = 1     /* a token of a prompt */
} tdm_role;

/* Of a page table: slots first .. first+count-1 of `page` hold positions base_pos .. +count-1 of
 * the sequence. base_pos rises from entry to entry; positions between may be missing (a gap). */
typedef struct tdm_page_entry {
    int32_t page;
    int32_t first;
    int32_t count;
    int32_t base_pos;
} tdm_page_entry;

/* One job of a KV_SHIFT, KV_COPY, KV_EXPORT or KV_IMPORT node over slots first .. first+count-1
 * of `page`. A page of -1 is padding and skipped. */
typedef struct tdm_page_job {
    int32_t page;
    int32_t first;
    int32_t count;
    /* shift: positions to add; copy: the page copied from; export, import: first row */
    int32_t arg;
} tdm_page_job;

typedef struct tdm_step_class {
    int32_t write_off;       /* [n_tok] cell (page * page_len + slot) each token is written to */
    int32_t first_entry_off; /* [n_seq + 1] sequence s owns entries first[s] .. first[s+1]-1 */
    int32_t entry_off;       /* [n_entry] tdm_page_entry; ATTENTION skips gaps between them */
    int32_t reserved;        /* 0 */
} tdm_step_class;

typedef struct tdm_step_header {
    int32_t version;      /* TDM_STEP_VERSION */
    int32_t size;         /* of the whole block, in int32s */
    int32_t epoch;        /* counts steps, wraps; a reader finds a stale block by it */
    int32_t n_tok;        /* in use, <= caps.n_tok */
    int32_t n_seq;        /* in use, <= caps.n_seq */
    int32_t n_out;        /* in use, <= caps.n_out */
    int32_t n_job;        /* in use, <= caps.n_job */
    int32_t n_class;      /* = caps.n_class */
    int32_t token_off;    /* [n_tok] token ids */
    int32_t pos_off;      /* [n_tok] positions */
    int32_t seq_off;      /* [n_tok] index of the token's sequence in the page tables */
    int32_t out_row_off;  /* [n_out] which token rows give logits */
    int32_t job_off;      /* [n_job] tdm_page_job */
    int32_t role_off;     /* [n_tok] tdm_role of each token */
    int32_t out_role_off; /* [n_out] tdm_role of the token that each row of logits is of */
    /* Of a run of a group: how many exchanges all runs before it had, modulo 2^31, so that the
     * areas of the arena alternate from run to run too. 0 outside a group */
    int32_t exchange_base;
    tdm_step_class cls[TDM_STEP_MAX_CLASS];
    /* [n_seq + 1] sequence s has tokens first[s] .. first[s + 1] - 1, which are neighbours in
     * the order of their positions. first[0] is -1 where the host did not sort the tokens by
     * sequence; ops on recurrent states require sorted tokens, other ops may use them */
    int32_t first_tok_off;
    int32_t rs_read_off; /* [n_seq] slot of the recurrent states that the sequence starts from; -1 =
                              from zeros. Empty without caps.has_rs, as rs_write */
    int32_t rs_write_off; /* [n_tok] slot for the states as they are after the token; -1 = not kept.
                              No slot is both read and written in a step */
    int32_t longest;      /* no sequence of the step has more tokens in the cache than this, those
                              of the step included; 0 = not known */
} tdm_step_header;

/* Fills the offsets and the size of *header for `caps` and zeroes the counts. Sizes that do not
 * fit an int32 give TDM_OUT_OF_RANGE. The page entries come last, so that a caller may upload
 * only the prefix in use. [any-thread] */
static inline tdm_status tdm_step_layout(const tdm_step_caps *caps, tdm_step_header *header,
                                         tdm_error *err) {
    int64_t at = (int64_t)(sizeof(tdm_step_header) / sizeof(int32_t));
    int32_t c;
    if (caps->n_tok < 0 || caps->n_seq < 0 || caps->n_out < 0 || caps->n_entry < 0 ||
        caps->n_job < 0 || caps->n_class < 0 || caps->n_class > TDM_STEP_MAX_CLASS ||
        caps->has_rs < 0 || caps->has_rs > 1)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "step block: a capacity is out of range");
    memset(header, 0, sizeof *header);
    header->version = TDM_STEP_VERSION;
    header->n_class = caps->n_class;
    if (at + (int64_t)caps->n_tok * (4 + caps->n_class + caps->has_rs) + (int64_t)caps->n_out * 2 +
            (int64_t)caps->n_job * 4 + ((int64_t)caps->n_seq + 1) * (1 + caps->n_class) +
            (int64_t)caps->n_seq * caps->has_rs + (int64_t)caps->n_entry * 4 * caps->n_class >
        INT32_MAX)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "step block: larger than 2^31 words");
#define TDM_STEP_TAKE_(field, words) (field = (int32_t)at, at += (words))
    TDM_STEP_TAKE_(header->token_off, caps->n_tok);
    TDM_STEP_TAKE_(header->pos_off, caps->n_tok);
    TDM_STEP_TAKE_(header->seq_off, caps->n_tok);
    TDM_STEP_TAKE_(header->out_row_off, caps->n_out);
    TDM_STEP_TAKE_(header->role_off, caps->n_tok);
    TDM_STEP_TAKE_(header->out_role_off, caps->n_out);
    TDM_STEP_TAKE_(header->first_tok_off, (int64_t)caps->n_seq + 1);
    TDM_STEP_TAKE_(header->rs_read_off, (int64_t)caps->n_seq * caps->has_rs);
    TDM_STEP_TAKE_(header->rs_write_off, (int64_t)caps->n_tok * caps->has_rs);
    TDM_STEP_TAKE_(header->job_off, (int64_t)caps->n_job * 4);
    for (c = 0; c < caps->n_class; c++) {
        TDM_STEP_TAKE_(header->cls[c].write_off, caps->n_tok);
        TDM_STEP_TAKE_(header->cls[c].first_entry_off, (int64_t)caps->n_seq + 1);
    }
    for (c = 0; c < caps->n_class; c++)
        TDM_STEP_TAKE_(header->cls[c].entry_off, (int64_t)caps->n_entry * 4);
#undef TDM_STEP_TAKE_
    header->size = (int32_t)at;
    return TDM_OK;
}

#ifdef __cplusplus
}
#endif

#endif
