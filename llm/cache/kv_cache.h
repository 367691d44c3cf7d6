/* SPDX-License-Identifier: MIT
 *
 * kv_cache.h: which page of the cache holds which token of which sequence: the bookkeeping of one
 * cache class. It moves no bytes and knows no device: what has to move is handed out as page jobs,
 * which the context (context.h) runs through its graphs.
 *
 * Mental model. The cache is a pool of pages of page_len slots. A sequence is a list of entries
 * {page, first, count, base_pos} whose positions run on from 0 without a gap. A page may be in
 * entries of several sequences; it has a count of how many, and is written only while that count
 * is one and the slots lie behind everything stored in it. So a prefix is shared by naming the
 * same pages, an append after a shared page opens a page of its own, and what must change in place
 * (a shift) is copied first.
 *
 * Not thread-safe; belongs to one context.
 */
#ifndef LLM_KV_CACHE_H
#define LLM_KV_CACHE_H

#include "tandem/step.h"

typedef struct llm_kv llm_kv;

/* A pool of n_page pages of page_len slots (a power of two) for sequences 0 .. n_seq-1, all empty.
 * Everything is allocated here: no later call allocates. TDM_RESOURCE_EXHAUSTED. [setup] */
tdm_status llm_kv_create(int32_t n_page, int32_t page_len, int32_t n_seq, llm_kv **kv_out,
                         tdm_error *err);
/* NULL is a no-op. [setup] */
void llm_kv_destroy(llm_kv *kv);

/* Tokens in a sequence, which is the position of its next one. 0 outside 0 .. n_seq-1. */
int32_t llm_kv_length(const llm_kv *kv, int32_t seq);
/* Pages that no sequence uses; pages in all; slots that an append to `seq` could fill now. */
int32_t llm_kv_free_pages(const llm_kv *kv);
int32_t llm_kv_page_count(const llm_kv *kv);
int64_t llm_kv_room(const llm_kv *kv, int32_t seq);

/* Finds cells for the next n_tok tokens of a sequence: cells_out[n_tok] = page * page_len + slot.
 * All or nothing: TDM_RESOURCE_EXHAUSTED says how many pages are missing and what to do (a larger
 * ctx-size, or fewer sequences), and nothing has changed. */
tdm_status llm_kv_append(llm_kv *kv, int32_t seq, int32_t n_tok, int32_t *cells_out,
                         tdm_error *err);

/* Keeps the first n_tok tokens of a sequence and frees what only the rest used; longer than the
 * sequence is a no-op. */
tdm_status llm_kv_truncate(llm_kv *kv, int32_t seq, int32_t n_tok, tdm_error *err);

/* Makes the empty sequence dst hold the first n_tok tokens of src by sharing their pages. */
tdm_status llm_kv_fork(llm_kv *kv, int32_t dst, int32_t src, int32_t n_tok, tdm_error *err);

/* Context shift: tokens n_keep .. n_keep+n_discard-1 of a sequence leave it and those behind move
 * down by n_discard positions. First the copies (page <- arg, for pages that others share), then
 * the shifts (arg = -n_discard; no slot twice) must be run, before anything else touches the
 * sequence. Both arrays hold `max_job` jobs; llm_kv_max_jobs says how many are enough.
 * TDM_RESOURCE_EXHAUSTED where no pages are free for the copies, or where cuts inside pages would
 * leave a sequence in more pieces than llm_kv_max_jobs (context shifts never do): nothing has
 * changed. All moved pieces of a page stay together in one page; a kept piece of a shared page
 * moves along with them. Slots of discarded tokens come back when their whole page is free: a
 * caller that shifts again and again with the same n_keep loses two pages at most, one that changes
 * n_keep each time may fill the cache before its tokens do. */
tdm_status llm_kv_shift(llm_kv *kv, int32_t seq, int32_t n_keep, int32_t n_discard,
                        tdm_page_job *copies_out, int32_t *n_copy_out, tdm_page_job *shifts_out,
                        int32_t *n_shift_out, int32_t max_job, tdm_error *err);
int32_t llm_kv_max_jobs(const llm_kv *kv);

/* The page table of a sequence, in order of position. */
int32_t llm_kv_entry_count(const llm_kv *kv, int32_t seq);
const tdm_page_entry *llm_kv_entries(const llm_kv *kv, int32_t seq);

#endif
