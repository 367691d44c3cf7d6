/* SPDX-License-Identifier: MIT
 *
 * piece_index.c: see piece_index.h.
 */
#include "llm/tokenizer/piece_index.h"

#include <stdlib.h>
#include <string.h>

static int entry_compare(const void *a, const void *b) {
    const llm_piece_entry *x = a, *y = b;
    const int order = memcmp(x->text, y->text, x->size < y->size ? x->size : y->size);
    if (order != 0) return order;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

void llm_piece_index_make(llm_piece_index *index, llm_piece_entry *entries, size_t n) {
    if (n > 1) qsort(entries, n, sizeof *entries, entry_compare);
    /* Of equal pieces only the one with the lowest id is kept: a walk finds no other. */
    size_t n_kept = 0;
    for (size_t i = 0; i < n; ++i) {
        const llm_piece_entry *last = n_kept > 0 ? &entries[n_kept - 1] : NULL;
        if (last != NULL && last->size == entries[i].size &&
            memcmp(last->text, entries[i].text, last->size) == 0)
            continue;
        entries[n_kept++] = entries[i];
    }
    n = n_kept;
    index->entries = entries;
    index->n = n;
    size_t at = 0;
    for (unsigned b = 0; b < 256; ++b) {
        index->first[b] = at;
        while (at < n && (unsigned char)entries[at].text[0] == b) ++at;
    }
    index->first[256] = at;
}

void llm_piece_index_free(llm_piece_index *index) {
    free(index->entries);
    *index = (llm_piece_index){0};
}

/* The first entry of [begin, end) whose byte at `depth` is at least `byte`. All entries are longer
 * than `depth`. */
static size_t lower_bound(const llm_piece_index *index, size_t begin, size_t end, uint32_t depth,
                          unsigned byte) {
    while (begin < end) {
        const size_t middle = begin + (end - begin) / 2;
        if ((unsigned char)index->entries[middle].text[depth] < byte)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

bool llm_piece_walk_step(const llm_piece_index *index, llm_piece_walk *walk, unsigned char byte) {
    if (walk->depth == 0) {
        walk->begin = index->first[byte];
        walk->end = index->first[byte + 1];
    } else {
        /* The piece that consists of the bytes read so far comes first; the next byte excludes
         * it. */
        if (walk->begin < walk->end && index->entries[walk->begin].size == walk->depth)
            ++walk->begin;
        walk->begin = lower_bound(index, walk->begin, walk->end, walk->depth, byte);
        walk->end = lower_bound(index, walk->begin, walk->end, walk->depth, byte + 1u);
    }
    ++walk->depth;
    return walk->begin < walk->end;
}

int32_t llm_piece_longest(const llm_piece_index *index, const char *text, size_t len,
                          size_t *size) {
    int32_t best = -1;
    llm_piece_walk walk = {0};
    *size = 0;
    for (size_t i = 0; i < len && llm_piece_walk_step(index, &walk, (unsigned char)text[i]); ++i) {
        const int32_t id = llm_piece_walk_id(index, &walk);
        if (id < 0) continue;
        best = id;
        *size = i + 1;
    }
    return best;
}
