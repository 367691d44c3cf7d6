/* SPDX-License-Identifier: MIT
 *
 * kv_cache.c: pages, their users, and the page tables of the sequences. Moves no bytes.
 *
 * Between calls, this holds:
 *  - The positions of a sequence's entries rise, and every entry has tokens. There are gaps only
 *    where tokens were forgotten or skipped.
 *  - Entries of a sequence that name the same page are neighbours. Their slots rise, with at least
 *    one unused slot between two entries (only a shift cuts an entry, and it removes tokens there).
 *  - n_user[page] is the number of sequences, not of entries, that name the page.
 * It follows that the last entry of a sequence ends behind all other slots that the sequence uses
 * in that page.
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
    int32_t max_extra; /* a shift may leave this many more entries than pages in a sequence; then
                          an append always has room for an entry of each page */
    int32_t n_free;
    int32_t *free_pages;     /* [n_page] a stack: the page freed last is used first */
    int32_t *n_user;         /* [n_page] sequences that name the page; 0 = free */
    kv_seq *seqs;            /* [n_seq] */
    tdm_page_entry *entries; /* [n_seq, max_entry] */
    tdm_page_entry *scratch; /* [max_entry] the new table during a shift */
};

/* NULL also if the size overflows. */
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
    /* With a gap between any two, a page holds page_len / 2 pieces (rounded up). Room for that many
     * in every page is not needed: context shifts make at most one cut per page. page_len more
     * entries cover tiny caches. */
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

/* Removes one user; without users the page is free. */
static void page_leave(llm_kv *kv, int32_t page) {
    if (--kv->n_user[page] == 0) kv->free_pages[kv->n_free++] = page;
}

int32_t llm_kv_length(const llm_kv *kv, int32_t seq) {
    return has_seq(kv, seq) ? kv->seqs[seq].n_tok : 0;
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
    if (last->base_pos + last->count < kv->seqs[seq].n_tok) return 0; /* the last are forgotten */
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
        if (last->count > n_tok - last->base_pos) last->count = n_tok - last->base_pos;
    }
    s->n_tok = n_tok;
    return TDM_OK;
}

/* ---- Tables with gaps ---- */

int32_t llm_kv_free_count(const llm_kv *kv) {
    return kv->n_free;
}

int32_t llm_kv_own_count(const llm_kv *kv, int32_t seq) {
    const tdm_page_entry *entries = llm_kv_entries(kv, seq);
    int32_t n = 0;
    for (int32_t i = 0; i < llm_kv_entry_count(kv, seq); i++)
        if (i == 0 || entries[i].page != entries[i - 1].page) n += kv->n_user[entries[i].page] == 1;
    return n;
}

void llm_kv_forget(llm_kv *kv, int32_t seq, int32_t from, int32_t to) {
    if (!has_seq(kv, seq) || from >= to) return;
    kv_seq *s = &kv->seqs[seq];
    tdm_page_entry *entries = table(kv, seq);
    int32_t n = 0;
    for (int32_t i = 0, end; i < s->n_entry; i = end) {
        for (end = i + 1; end < s->n_entry && entries[end].page == entries[i].page;) end++;
        const tdm_page_entry *last = &entries[end - 1];
        if (entries[i].base_pos >= from && last->base_pos + last->count <= to) {
            page_leave(kv, entries[i].page);
            continue;
        }
        for (int32_t e = i; e < end; e++) entries[n++] = entries[e];
    }
    s->n_entry = n;
}

void llm_kv_skip(llm_kv *kv, int32_t seq, int32_t n_tok) {
    if (has_seq(kv, seq) && n_tok > kv->seqs[seq].n_tok) kv->seqs[seq].n_tok = n_tok;
}

bool llm_kv_holds(const llm_kv *kv, int32_t seq, int32_t from, int32_t to) {
    if (!has_seq(kv, seq)) return false;
    const tdm_page_entry *entries = table(kv, seq);
    for (int32_t i = 0; i < kv->seqs[seq].n_entry && from < to && entries[i].base_pos <= from; i++)
        if (entries[i].base_pos + entries[i].count > from)
            from = entries[i].base_pos + entries[i].count;
    return from >= to;
}

int32_t llm_kv_first(const llm_kv *kv, int32_t seq) {
    if (!has_seq(kv, seq)) return 0;
    const tdm_page_entry *entries = table(kv, seq);
    int32_t first = kv->seqs[seq].n_tok;
    for (int32_t i = kv->seqs[seq].n_entry - 1; i >= 0; i--) {
        if (entries[i].base_pos + entries[i].count != first) break;
        first = entries[i].base_pos;
    }
    return first;
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

int32_t llm_kv_own_tail(llm_kv *kv, int32_t seq, tdm_page_job *copies_out) {
    if (!has_seq(kv, seq) || kv->seqs[seq].n_entry == 0 || kv->n_free == 0) return 0;
    tdm_page_entry *entries = table(kv, seq);
    const tdm_page_entry last = entries[kv->seqs[seq].n_entry - 1];
    if (last.base_pos + last.count < kv->seqs[seq].n_tok || kv->n_user[last.page] == 1 ||
        last.first + last.count == kv->page_len)
        return 0;
    const int32_t page = page_take(kv);
    int32_t n = 0;
    for (int32_t e = kv->seqs[seq].n_entry - 1; e >= 0 && entries[e].page == last.page; e--) {
        copies_out[n++] = (tdm_page_job){
            .page = page, .first = entries[e].first, .count = entries[e].count, .arg = last.page};
        entries[e].page = page;
    }
    page_leave(kv, last.page);
    return n;
}

/* ---- Shift ---- */

/* The part of an entry at positions from .. to-1; count 0 if there is none. */
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

/* A shift of one sequence: positions below keep_end stay, those from move_begin on move down by
 * n_discard, those between go. */
typedef struct kv_shift {
    llm_kv *kv;
    int32_t seq;
    int32_t keep_end, move_begin, n_discard;
} kv_shift;

/* What a shift does with the entries i .. end-1 of one page. */
typedef struct page_change {
    int32_t end;
    int32_t n_kept;  /* pieces that stay at their positions */
    int32_t n_moved; /* pieces that get other positions */
    bool is_copied;  /* other sequences use the page: the pieces go to a new page */
} page_change;

static page_change page_change_find(const kv_shift *shift, int32_t i) {
    const llm_kv *kv = shift->kv;
    const tdm_page_entry *entries = table(kv, shift->seq);
    const int32_t page = entries[i].page;
    page_change c = {.end = i};
    for (; c.end < kv->seqs[shift->seq].n_entry && entries[c.end].page == page; c.end++) {
        c.n_kept += entry_part(&entries[c.end], 0, shift->keep_end).count > 0;
        c.n_moved += entry_part(&entries[c.end], shift->move_begin, INT32_MAX).count > 0;
    }
    c.is_copied = c.n_moved > 0 && kv->n_user[page] > 1;
    return c;
}

/* The sums over all pages, counted before anything changes. */
typedef struct shift_cost {
    int32_t n_entry, n_page; /* of the sequence afterwards */
    int32_t n_copied_page, n_freed_page;
    int32_t n_copy, n_shift; /* jobs */
} shift_cost;

static shift_cost shift_cost_count(const kv_shift *shift) {
    const llm_kv *kv = shift->kv;
    shift_cost cost = {0};
    for (int32_t i = 0; i < kv->seqs[shift->seq].n_entry;) {
        const page_change c = page_change_find(shift, i);
        const int32_t n_piece = c.n_kept + c.n_moved;
        cost.n_entry += n_piece;
        cost.n_page += n_piece > 0;
        cost.n_freed_page += n_piece == 0 && kv->n_user[table(kv, shift->seq)[i].page] == 1;
        cost.n_copied_page += c.is_copied;
        cost.n_copy += c.is_copied ? n_piece : 0;
        cost.n_shift += c.n_moved;
        i = c.end;
    }
    return cost;
}

static tdm_page_job job_of(const tdm_page_entry *piece, int32_t arg) {
    return (tdm_page_job){
        .page = piece->page, .first = piece->first, .count = piece->count, .arg = arg};
}

static tdm_status shift_check(const kv_shift *shift, int32_t max_job, tdm_error *err) {
    const llm_kv *kv = shift->kv;
    const shift_cost cost = shift_cost_count(shift);
    const int32_t n_page_left = kv->n_free + cost.n_freed_page;
    if (cost.n_copied_page > n_page_left)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "the cache is full: a shift of sequence %d copies %d shared pages, %d of "
                        "%d are free; use a larger ctx-size or fewer sequences",
                        shift->seq, cost.n_copied_page, n_page_left, kv->n_page);
    if (cost.n_entry - cost.n_page > kv->max_extra)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "sequence %d is cut into %d pieces, at most %d are possible; discard whole "
                        "pages of %d tokens",
                        shift->seq, cost.n_entry, cost.n_page + kv->max_extra, kv->page_len);
    if (cost.n_copy > max_job || cost.n_shift > max_job)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "sequence %d: a shift of %d copies and %d moves, room for %d jobs",
                        shift->seq, cost.n_copy, cost.n_shift, max_job);
    return TDM_OK;
}

/* Releases the pages that keep no token of the sequence. This comes before the copies, which may
 * use them as targets: no job reads what they hold. */
static void shift_release_pages(const kv_shift *shift) {
    const tdm_page_entry *entries = table(shift->kv, shift->seq);
    for (int32_t i = 0; i < shift->kv->seqs[shift->seq].n_entry;) {
        const page_change c = page_change_find(shift, i);
        if (c.n_kept + c.n_moved == 0) page_leave(shift->kv, entries[i].page);
        i = c.end;
    }
}

/* Appends the remaining pieces of an entry, now in `page`, to the new table, and their jobs.
 * Returns the length of the table. */
static int32_t shift_entry(const kv_shift *shift, const tdm_page_entry *entry, int32_t page,
                           int32_t n_entry, llm_kv_shift_jobs *jobs) {
    tdm_page_entry pieces[2] = {entry_part(entry, 0, shift->keep_end),
                                entry_part(entry, shift->move_begin, INT32_MAX)};
    for (int32_t p = 0; p < 2; p++) {
        if (pieces[p].count == 0) continue;
        pieces[p].page = page;
        if (page != entry->page) jobs->copies[jobs->n_copy++] = job_of(&pieces[p], entry->page);
        if (p == 1) {
            pieces[p].base_pos -= shift->n_discard;
            jobs->shifts[jobs->n_shift++] = job_of(&pieces[p], -shift->n_discard);
        }
        shift->kv->scratch[n_entry++] = pieces[p];
    }
    return n_entry;
}

/* Builds the new table in kv->scratch, and the jobs; returns the length of the table. */
static int32_t shift_table(const kv_shift *shift, llm_kv_shift_jobs *jobs) {
    llm_kv *kv = shift->kv;
    const tdm_page_entry *entries = table(kv, shift->seq);
    int32_t n_entry = 0;
    for (int32_t i = 0; i < kv->seqs[shift->seq].n_entry;) {
        const page_change c = page_change_find(shift, i);
        int32_t page = entries[i].page;
        if (c.is_copied) {
            page_leave(kv, page); /* other sequences keep it */
            page = page_take(kv);
        }
        for (; i < c.end; i++) n_entry = shift_entry(shift, &entries[i], page, n_entry, jobs);
    }
    return n_entry;
}

/* Fills in and checks a shift. */
static tdm_status shift_begin(llm_kv *kv, int32_t seq, int32_t n_keep, int32_t n_discard,
                              int32_t max_job, kv_shift *shift_out, tdm_error *err) {
    const tdm_status status = seq_check(kv, seq, err);
    if (status != TDM_OK) return status;
    if (n_keep < 0 || n_discard < 0 || (int64_t)n_keep + n_discard > kv->seqs[seq].n_tok)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "sequence %d: shift that keeps %d tokens and discards %d of %d", seq,
                        n_keep, n_discard, kv->seqs[seq].n_tok);
    *shift_out = (kv_shift){kv, seq, n_keep, n_keep + n_discard, n_discard};
    return n_discard == 0 ? TDM_OK : shift_check(shift_out, max_job, err);
}

tdm_status llm_kv_shift_check(llm_kv *kv, int32_t seq, int32_t n_keep, int32_t n_discard,
                              tdm_error *err) {
    kv_shift shift;
    return shift_begin(kv, seq, n_keep, n_discard, kv->max_entry, &shift, err);
}

tdm_status llm_kv_shift(llm_kv *kv, int32_t seq, int32_t n_keep, int32_t n_discard,
                        llm_kv_shift_jobs *jobs, tdm_error *err) {
    kv_shift shift;
    jobs->n_copy = jobs->n_shift = 0;
    const tdm_status status = shift_begin(kv, seq, n_keep, n_discard, jobs->max_job, &shift, err);
    if (status != TDM_OK || n_discard == 0) return status;
    kv_seq *s = &kv->seqs[seq];
    shift_release_pages(&shift);
    s->n_entry = shift_table(&shift, jobs);
    s->n_tok -= n_discard;
    memcpy(table(kv, seq), kv->scratch, (size_t)s->n_entry * sizeof *kv->scratch);
    return TDM_OK;
}
