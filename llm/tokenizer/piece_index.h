/* SPDX-License-Identifier: MIT
 *
 * piece_index.h: finds the pieces with which a text begins, byte by byte, for encoders that match
 * whole pieces: WordPiece, Unigram, RWKV, PLaMo-2. Merging encoders use the table of strings
 * (vocab_table.h).
 *
 * The pieces are sorted. A walk reads a text byte by byte; it is the range of the pieces that begin
 * with the bytes read so far.
 */
#ifndef LLM_PIECE_INDEX_H
#define LLM_PIECE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct llm_piece_entry {
    const char *text; /* not owned */
    uint32_t size;    /* bytes, at least 1 */
    int32_t id;
} llm_piece_entry;

/* Zeroed = empty. Read by any number of threads. */
typedef struct llm_piece_index {
    llm_piece_entry *entries; /* [n], sorted by bytes, no two equal */
    size_t n;
    size_t first[257]; /* entries[first[b] .. first[b + 1]) begin with byte b */
} llm_piece_index;

/* Zeroed = at the beginning of a text. */
typedef struct llm_piece_walk {
    size_t begin, end; /* entries that begin with the bytes read */
    uint32_t depth;    /* bytes read */
} llm_piece_walk;

/* Sorts `entries` (allocated with malloc; the index owns them from now on), keeps the lowest id of
 * equal pieces, and fills the index. */
void llm_piece_index_make(llm_piece_index *index, llm_piece_entry *entries, size_t n);

/* Frees the memory and leaves an empty index. */
void llm_piece_index_free(llm_piece_index *index);

/* Reads the next byte of the text; false if no piece continues with it. Takes O(log n). */
bool llm_piece_walk_step(const llm_piece_index *index, llm_piece_walk *walk, unsigned char byte);

/* The lowest id of a piece that consists of the bytes read, or -1. The last step returned true. */
static inline int32_t llm_piece_walk_id(const llm_piece_index *index, const llm_piece_walk *walk) {
    const llm_piece_entry *entry = &index->entries[walk->begin];
    return entry->size == walk->depth ? entry->id : -1;
}

/* The longest piece with which text[0..len) begins: its id, and its bytes in *size; -1 if there is
 * none. */
int32_t llm_piece_longest(const llm_piece_index *index, const char *text, size_t len, size_t *size);

#endif
