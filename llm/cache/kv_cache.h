/* SPDX-License-Identifier: MIT
 *
 * kv_cache.h: the page tables of one cache class: which page holds which token of which sequence.
 * It moves no bytes and uses no device. Bytes that must move are returned as page jobs, which the
 * context (context.h) runs through its graphs.
 *
 * The cache is a pool of pages of page_len slots, one for each token; a cell is a slot of the pool,
 * page * page_len + slot. A sequence is a list of entries {page, first, count, base_pos}: slots
 * first .. first+count-1 of the page hold the tokens at positions base_pos .. base_pos+count-1. The
 * positions follow one another from 0 without a gap, except for the tokens that llm_kv_forget and
 * llm_kv_skip leave out. Entries of several sequences may name the same page; the cache counts how
 * many sequences do. A page is written only while that count is one, and only in slots behind all
 * that is stored in it; else a sequence would overwrite the tokens of another. Three rules follow:
 *  - A prefix is shared by naming the same pages.
 *  - An append behind a shared page opens a new page.
 *  - A shift, which changes keys in place, copies shared pages first.
 *
 * Not thread-safe; belongs to one context.
 */
#ifndef LLM_KV_CACHE_H
#define LLM_KV_CACHE_H

#include <stdbool.h>

#include "tandem/step.h"

typedef struct llm_kv llm_kv;

/* A pool of n_page pages of page_len slots (a power of two) for sequences 0 .. n_seq-1, all empty.
 * All memory is allocated here; no later call allocates. TDM_RESOURCE_EXHAUSTED. [setup] */
tdm_status llm_kv_create(int32_t n_page, int32_t page_len, int32_t n_seq, llm_kv **kv_out,
                         tdm_error *err);
/* NULL is a no-op. [setup] */
void llm_kv_destroy(llm_kv *kv);

/* Tokens in a sequence, which is the position of its next token. 0 if there is no such sequence. */
int32_t llm_kv_length(const llm_kv *kv, int32_t seq);
/* Slots that an append to `seq` could fill now: those of pages that no sequence uses, and those
 * left in its last page. 0 if there is no such sequence. */
int64_t llm_kv_room(const llm_kv *kv, int32_t seq);

/* Pages that no sequence uses. */
int32_t llm_kv_free_count(const llm_kv *kv);
/* Pages that this sequence uses and no other. */
int32_t llm_kv_own_count(const llm_kv *kv, int32_t seq);

/* Appends n_tok tokens to a sequence and gives their cells: cells_out[n_tok] = page * page_len +
 * slot. TDM_RESOURCE_EXHAUSTED says how many pages are missing and what to do (a larger ctx-size,
 * or fewer sequences); nothing has changed then. */
tdm_status llm_kv_append(llm_kv *kv, int32_t seq, int32_t n_tok, int32_t *cells_out,
                         tdm_error *err);

/* Keeps the first n_tok tokens of a sequence and frees the pages that only the others used. No-op
 * if the sequence is not longer. */
tdm_status llm_kv_truncate(llm_kv *kv, int32_t seq, int32_t n_tok, tdm_error *err);

/* Frees the pages of a sequence that hold only tokens at positions from .. to-1. Its length stays,
 * and its table lacks these tokens from then on. */
void llm_kv_forget(llm_kv *kv, int32_t seq, int32_t from, int32_t to);
/* Lengthens a sequence to n_tok tokens without pages: its table lacks the new ones. No-op if it is
 * not shorter. */
void llm_kv_skip(llm_kv *kv, int32_t seq, int32_t n_tok);
/* Whether the table of a sequence has all tokens at positions from .. to-1. */
bool llm_kv_holds(const llm_kv *kv, int32_t seq, int32_t from, int32_t to);
/* The position from which on the table has all tokens of a sequence; its length if it lacks the
 * last. */
int32_t llm_kv_first(const llm_kv *kv, int32_t seq);

/* Makes the empty sequence dst hold the first n_tok tokens of src by sharing their pages. An append
 * to either then opens a new page, unless llm_kv_own_tail follows. */
tdm_status llm_kv_fork(llm_kv *kv, int32_t dst, int32_t src, int32_t n_tok, tdm_error *err);

/* Gives a sequence a copy of its last page, if other sequences use that page, too, and it has free
 * slots. The next tokens of the sequence then go into the copy instead of a new page. So its tokens
 * lie in the same slots as those of a sequence that shares nothing, and attention adds them up in
 * the same order. copies_out[llm_kv_max_jobs] are the jobs (page <- arg), which the caller runs
 * before anything else uses the sequence; returns their number. 0 if there is no such page, or no
 * free page for the copy: nothing has changed then. */
int32_t llm_kv_own_tail(llm_kv *kv, int32_t seq, tdm_page_job *copies_out);

/* The jobs of a shift. The caller gives the arrays; the call fills them. */
typedef struct llm_kv_shift_jobs {
    tdm_page_job *copies, *shifts; /* [max_job] each */
    int32_t max_job;               /* llm_kv_max_jobs is always enough */
    int32_t n_copy, n_shift;       /* filled; 0 on failure */
} llm_kv_shift_jobs;

/* Context shift: tokens n_keep .. n_keep+n_discard-1 leave a sequence; the tokens behind them move
 * down by n_discard positions. The caller runs the jobs before anything else uses the sequence:
 * first the copies (page <- arg, for pages that other sequences use too), then the shifts
 * (arg = -n_discard; each slot at most once).
 *
 * TDM_RESOURCE_EXHAUSTED if there are too few free pages for the copies, or if cuts inside pages
 * would leave the sequence in more pieces than llm_kv_max_jobs (the context's own shifts never do).
 * Nothing has changed then.
 *
 * All moved pieces of a page stay in one page, and kept pieces of a shared page move with them.
 * Slots of discarded tokens are reusable once their whole page is free. Repeated shifts with the
 * same n_keep lose two pages at most; shifts with another n_keep each time may fill the cache
 * before its tokens do. */
tdm_status llm_kv_shift(llm_kv *kv, int32_t seq, int32_t n_keep, int32_t n_discard,
                        llm_kv_shift_jobs *jobs, tdm_error *err);
/* Whether llm_kv_shift with these numbers succeeds; else its failure. Changes nothing. */
tdm_status llm_kv_shift_check(llm_kv *kv, int32_t seq, int32_t n_keep, int32_t n_discard,
                              tdm_error *err);
/* Jobs of each kind that a shift has at most. */
int32_t llm_kv_max_jobs(const llm_kv *kv);

/* The page table of a sequence, in order of position. */
int32_t llm_kv_entry_count(const llm_kv *kv, int32_t seq);
const tdm_page_entry *llm_kv_entries(const llm_kv *kv, int32_t seq);

#endif
