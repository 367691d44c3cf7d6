/* SPDX-License-Identifier: MIT
 *
 * kv_cache.c: pages, who uses them, and the page tables of the sequences. Moves no bytes.
 *
 * What always holds between calls, and what the code below leans on:
 *  - the entries of a sequence run on from position 0 without a gap, none is empty;
 *  - the entries of a sequence that name the same page stand next to each other and name rising
 *    slots with at least one unused slot between them (only a shift cuts, and it leaves a hole);
 *  - n_user[page] is the number of sequences, not of entries, that name the page.
 * So the last entry of a sequence ends behind all else that the sequence has in that page.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "llm/cache/kv_cache.h"

typedef struct kv_seq {
    int32_t n_entry;
    int32_t n_tok;
} kv_seq;

struct llm_kv {
    int32_t n_page, page_len, n_seq;
    int32_t max_entry; /* room for entries in each sequence */
    int32_t max_extra; /* how many more entries than pages a shift may leave in a sequence, so
                          that an append always finds room for an entry of each page */
    int32_t n_free;
    int32_t *free_pages;     /* [n_page] a stack: the page freed last is taken first */
    int32_t *n_user;         /* [n_page] sequences that name the page; 0 = free */
    kv_seq *seqs;            /* [n_seq] */
    tdm_page_entry *entries; /* [n_seq, max_entry] */
    tdm_page_entry *scratch; /* [max_entry] the table that a shift builds */
};

/* NULL also where the size does not fit. */
static void *array_allocate(int64_t n, int64_t n_outer, size_t size) {
    size_t total;
    if (__builtin_mul_overflow((size_t)n, (size_t)n_outer, &total) ||
        __builtin_mul_overflow(total, size, &total))
        return NULL;
    return calloc(total, 1);
}

tdm_status llm_kv_create(int32_t n_page, int32_t page_len, int32_t n_seq, llm_kv **kv_out,
                         tdm_error *err) {
    *kv_out = NULL;
    if (n_page < 1 || n_seq < 1)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "cache of %d pages for %d sequences: both must be at least 1", n_page,
                        n_seq);
    if (page_len < 1 || (page_len & (page_len - 1)) != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "cache with pages of %d tokens: must be a power of two", page_len);
    if ((int64_t)n_page * page_len > INT32_MAX)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "cache of %d pages of %d tokens: at most 2^31-1 tokens are possible; "
                        "reduce ctx-size",
                        n_page, page_len);
    /* With a hole between any two, a page holds page_len / 2 pieces (rounded up). So many in all
     * pages would be a waste of memory for what nobody does; one cut for each page, and as many
     * as one page takes for tiny caches, is more than a context shift ever makes. */
    const int64_t all = (int64_t)n_page * ((page_len + 1) / 2);
    const int64_t usual = 2 * (int64_t)n_page + page_len;
    const int64_t max_entry = all < usual ? all : usual;

    llm_kv *kv = calloc(1, sizeof *kv);
    if (kv != NULL) {
        kv->free_pages = array_allocate(n_page, 1, sizeof *kv->free_pages);
        kv->n_user = array_allocate(n_page, 1, sizeof *kv->n_user);
        kv->seqs = array_allocate(n_seq, 1, sizeof *kv->seqs);
        kv->entries = array_allocate(max_entry, n_seq, sizeof *kv->entries);
        kv->scratch = array_allocate(max_entry, 1, sizeof *kv->scratch);
    }
    if (kv == NULL || max_entry > INT32_MAX || kv->free_pages == NULL || kv->n_user == NULL ||
        kv->seqs == NULL || kv->entries == NULL || kv->scratch == NULL) {
        llm_kv_destroy(kv);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "no memory for the page tables of %d sequences over %d pages; reduce "
                        "ctx-size or the number of sequences",
                        n_seq, n_page);
    }
    kv->n_page = n_page;
    kv->page_len = page_len;
    kv->n_seq = n_seq;
    kv->max_entry = (int32_t)max_entry;
    kv->max_extra = (int32_t)max_entry - n_page;
    kv->n_free = n_page;
    for (int32_t i = 0; i < n_page; i++) kv->free_pages[i] = n_page - 1 - i;
    *kv_out = kv;
    return TDM_OK;
}

void llm_kv_destroy(llm_kv *kv) {
    if (kv == NULL) return;
    free(kv->free_pages);
    free(kv->n_user);
    free(kv->seqs);
    free(kv->entries);
    free(kv->scratch);
    free(kv);
}

static bool has_seq(const llm_kv *kv, int32_t seq) {
    return seq >= 0 && seq < kv->n_seq;
}

static tdm_page_entry *table(const llm_kv *kv, int32_t seq) {
    return kv->entries + (size_t)seq * (size_t)kv->max_entry;
}

static tdm_status seq_check(const llm_kv *kv, int32_t seq, tdm_error *err) {
    if (has_seq(kv, seq)) return TDM_OK;
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "no sequence %d in a cache of %d", seq, kv->n_seq);
}

static int32_t page_take(llm_kv *kv) {
    const int32_t page = kv->free_pages[--kv->n_free];
    kv->n_user[page] = 1;
    return page;
}

/* One sequence no longer names the page. */
static void page_leave(llm_kv *kv, int32_t page) {
    if (--kv->n_user[page] == 0) kv->free_pages[kv->n_free++] = page;
}

int32_t llm_kv_length(const llm_kv *kv, int32_t seq) {
    return has_seq(kv, seq) ? kv->seqs[seq].n_tok : 0;
}

int32_t llm_kv_free_pages(const llm_kv *kv) {
    return kv->n_free;
}

int32_t llm_kv_page_count(const llm_kv *kv) {
    return kv->n_page;
}

int32_t llm_kv_entry_count(const llm_kv *kv, int32_t seq) {
    return has_seq(kv, seq) ? kv->seqs[seq].n_entry : 0;
}

const tdm_page_entry *llm_kv_entries(const llm_kv *kv, int32_t seq) {
    return has_seq(kv, seq) ? table(kv, seq) : NULL;
}

int32_t llm_kv_max_jobs(const llm_kv *kv) {
    return kv->max_entry;
}

/* Slots behind the last token that the sequence may write without opening a page. */
static int32_t tail_room(const llm_kv *kv, int32_t seq) {
    if (kv->seqs[seq].n_entry == 0) return 0;
    const tdm_page_entry *last = table(kv, seq) + kv->seqs[seq].n_entry - 1;
    return kv->n_user[last->page] == 1 ? kv->page_len - last->first - last->count : 0;
}

int64_t llm_kv_room(const llm_kv *kv, int32_t seq) {
    if (!has_seq(kv, seq)) return 0;
    return tail_room(kv, seq) + (int64_t)kv->n_free * kv->page_len;
}

tdm_status llm_kv_append(llm_kv *kv, int32_t seq, int32_t n_tok, int32_t *cells_out,
                         tdm_error *err) {
    const tdm_status status = seq_check(kv, seq, err);
    if (status != TDM_OK) return status;
    if (n_tok < 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "sequence %d: append of %d tokens", seq, n_tok);
    const int64_t room = llm_kv_room(kv, seq);
    if (n_tok > room)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "the cache is full: %d more tokens for sequence %d need %d pages more "
                        "than the %d free of %d; use a larger ctx-size or fewer sequences",
                        n_tok, seq, (int32_t)((n_tok - room - 1) / kv->page_len + 1), kv->n_free,
                        kv->n_page);
    kv_seq *s = &kv->seqs[seq];
    tdm_page_entry *entries = table(kv, seq);
    int32_t tail = tail_room(kv, seq);
    for (int32_t done = 0; done < n_tok;) {
        if (tail == 0) {
            entries[s->n_entry++] = (tdm_page_entry){.page = page_take(kv), .base_pos = s->n_tok};
            tail = kv->page_len;
        }
        tdm_page_entry *last = &entries[s->n_entry - 1];
        const int32_t n = tail < n_tok - done ? tail : n_tok - done;
        const int32_t cell = last->page * kv->page_len + last->first + last->count;
        for (int32_t i = 0; i < n; i++) cells_out[done + i] = cell + i;
        last->count += n;
        s->n_tok += n;
        done += n;
        tail -= n;
    }
    return TDM_OK;
}

tdm_status llm_kv_truncate(llm_kv *kv, int32_t seq, int32_t n_tok, tdm_error *err) {
    const tdm_status status = seq_check(kv, seq, err);
    if (status != TDM_OK) return status;
    if (n_tok < 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "sequence %d: truncated to %d tokens", seq,
                        n_tok);
    kv_seq *s = &kv->seqs[seq];
    if (n_tok >= s->n_tok) return TDM_OK;
    const tdm_page_entry *entries = table(kv, seq);
    for (; s->n_entry > 0 && entries[s->n_entry - 1].base_pos >= n_tok; s->n_entry--) {
        const int32_t page = entries[s->n_entry - 1].page;
        if (s->n_entry == 1 || entries[s->n_entry - 2].page != page) page_leave(kv, page);
    }
    if (s->n_entry > 0) {
        tdm_page_entry *last = table(kv, seq) + s->n_entry - 1;
        last->count = n_tok - last->base_pos;
    }
    s->n_tok = n_tok;
    return TDM_OK;
}

tdm_status llm_kv_fork(llm_kv *kv, int32_t dst, int32_t src, int32_t n_tok, tdm_error *err) {
    tdm_status status = seq_check(kv, dst, err);
    if (status == TDM_OK) status = seq_check(kv, src, err);
    if (status != TDM_OK) return status;
    if (kv->seqs[dst].n_tok > 0)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "sequence %d holds %d tokens: truncate it to 0 before it shares another's",
                        dst, kv->seqs[dst].n_tok);
    if (n_tok < 0 || n_tok > kv->seqs[src].n_tok)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "sequence %d: %d tokens to share, it holds %d", src,
                        n_tok, kv->seqs[src].n_tok);
    const tdm_page_entry *from = table(kv, src);
    tdm_page_entry *to = table(kv, dst);
    int32_t n = 0;
    for (; n < kv->seqs[src].n_entry && from[n].base_pos < n_tok; n++) {
        to[n] = from[n];
        if (n == 0 || from[n].page != from[n - 1].page) kv->n_user[from[n].page]++;
    }
    if (n > 0 && n_tok - to[n - 1].base_pos < to[n - 1].count)
        to[n - 1].count = n_tok - to[n - 1].base_pos;
    kv->seqs[dst] = (kv_seq){.n_entry = n, .n_tok = n_tok};
    return TDM_OK;
}

/* ---- shift ----------------------------------------------------------------------------------- */

/* The part of an entry that holds positions from .. to-1; count 0 where there is none. */
static tdm_page_entry entry_part(const tdm_page_entry *entry, int32_t from, int32_t to) {
    const int32_t end = entry->base_pos + entry->count;
    const int32_t lo = from > entry->base_pos ? from : entry->base_pos;
    const int32_t hi = to < end ? to : end;
    if (lo >= hi) return (tdm_page_entry){.page = entry->page};
    return (tdm_page_entry){.page = entry->page,
                            .first = entry->first + (lo - entry->base_pos),
                            .count = hi - lo,
                            .base_pos = lo};
}

/* What a shift does to the entries i .. end-1, which are those of one page. */
typedef struct page_fate {
    int32_t end;
    int32_t n_kept;  /* pieces that stay at their positions */
    int32_t n_moved; /* pieces that get other positions */
    bool is_copied;  /* others use the page, so the pieces go to a page of their own */
} page_fate;

static page_fate fate(const llm_kv *kv, int32_t seq, int32_t i, int32_t keep_end,
                      int32_t move_begin) {
    const tdm_page_entry *entries = table(kv, seq);
    const int32_t page = entries[i].page;
    page_fate f = {.end = i};
    for (; f.end < kv->seqs[seq].n_entry && entries[f.end].page == page; f.end++) {
        f.n_kept += entry_part(&entries[f.end], 0, keep_end).count > 0;
        f.n_moved += entry_part(&entries[f.end], move_begin, INT32_MAX).count > 0;
    }
    f.is_copied = f.n_moved > 0 && kv->n_user[page] > 1;
    return f;
}

/* What a shift takes in all; counted before anything changes. */
typedef struct shift_cost {
    int32_t n_entry, n_page; /* of the sequence afterwards */
    int32_t n_copied_page, n_freed_page;
    int32_t n_copy, n_shift; /* jobs */
} shift_cost;

static shift_cost cost_count(const llm_kv *kv, int32_t seq, int32_t keep_end, int32_t move_begin) {
    shift_cost cost = {0};
    for (int32_t i = 0; i < kv->seqs[seq].n_entry;) {
        const page_fate f = fate(kv, seq, i, keep_end, move_begin);
        const int32_t n_piece = f.n_kept + f.n_moved;
        cost.n_entry += n_piece;
        cost.n_page += n_piece > 0;
        cost.n_freed_page += n_piece == 0 && kv->n_user[table(kv, seq)[i].page] == 1;
        cost.n_copied_page += f.is_copied;
        cost.n_copy += f.is_copied ? n_piece : 0;
        cost.n_shift += f.n_moved;
        i = f.end;
    }
    return cost;
}

static tdm_page_job job_of(const tdm_page_entry *piece, int32_t arg) {
    return (tdm_page_job){
        .page = piece->page, .first = piece->first, .count = piece->count, .arg = arg};
}

tdm_status llm_kv_shift(llm_kv *kv, int32_t seq, int32_t n_keep, int32_t n_discard,
                        tdm_page_job *copies_out, int32_t *n_copy_out, tdm_page_job *shifts_out,
                        int32_t *n_shift_out, int32_t max_job, tdm_error *err) {
    *n_copy_out = *n_shift_out = 0;
    const tdm_status status = seq_check(kv, seq, err);
    if (status != TDM_OK) return status;
    kv_seq *s = &kv->seqs[seq];
    if (n_keep < 0 || n_discard < 0 || (int64_t)n_keep + n_discard > s->n_tok)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "sequence %d: shift that keeps %d tokens and discards %d of %d", seq,
                        n_keep, n_discard, s->n_tok);
    if (n_discard == 0) return TDM_OK;

    const int32_t move_begin = n_keep + n_discard;
    const shift_cost cost = cost_count(kv, seq, n_keep, move_begin);
    const int32_t n_page_left = kv->n_free + cost.n_freed_page;
    if (cost.n_copied_page > n_page_left)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "the cache is full: a shift of sequence %d copies %d shared pages, %d of "
                        "%d are free; use a larger ctx-size or fewer sequences",
                        seq, cost.n_copied_page, n_page_left, kv->n_page);
    if (cost.n_entry - cost.n_page > kv->max_extra)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "sequence %d is cut into %d pieces, at most %d are possible; discard whole "
                        "pages of %d tokens",
                        seq, cost.n_entry, cost.n_page + kv->max_extra, kv->page_len);
    if (cost.n_copy > max_job || cost.n_shift > max_job)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "sequence %d: a shift of %d copies and %d moves, room for %d jobs", seq,
                        cost.n_copy, cost.n_shift, max_job);

    /* Pages that the sequence leaves altogether come first: they may serve as targets of copies,
     * as nothing reads what they hold. */
    const tdm_page_entry *entries = table(kv, seq);
    for (int32_t i = 0; i < s->n_entry;) {
        const page_fate f = fate(kv, seq, i, n_keep, move_begin);
        if (f.n_kept + f.n_moved == 0) page_leave(kv, entries[i].page);
        i = f.end;
    }
    int32_t n_entry = 0;
    for (int32_t i = 0; i < s->n_entry;) {
        const page_fate f = fate(kv, seq, i, n_keep, move_begin);
        const int32_t old_page = entries[i].page;
        int32_t page = old_page;
        if (f.is_copied) {
            page = page_take(kv);
            page_leave(kv, old_page);
        }
        for (; i < f.end; i++) {
            tdm_page_entry pieces[2] = {entry_part(&entries[i], 0, n_keep),
                                        entry_part(&entries[i], move_begin, INT32_MAX)};
            for (int32_t p = 0; p < 2; p++) {
                if (pieces[p].count == 0) continue;
                pieces[p].page = page;
                if (f.is_copied) copies_out[(*n_copy_out)++] = job_of(&pieces[p], old_page);
                if (p == 1) {
                    pieces[p].base_pos -= n_discard;
                    shifts_out[(*n_shift_out)++] = job_of(&pieces[p], -n_discard);
                }
                kv->scratch[n_entry++] = pieces[p];
            }
        }
    }
    memcpy(table(kv, seq), kv->scratch, (size_t)n_entry * sizeof *kv->scratch);
    s->n_entry = n_entry;
    s->n_tok -= n_discard;
    return TDM_OK;
}
