/* SPDX-License-Identifier: MIT
 *
 * vocab_table.c: lookups for the encoders: pieces by their text, merges by their halves, and the
 * byte alphabet of a byte-level BPE.
 */
#include "llm/tokenizer/vocab_table.h"

#include <string.h>

/* FNV-1a, with a final mix because the tables use the low bits. */
uint32_t llm_vocab_hash(const char *text, size_t size) {
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < size; ++i) hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
    return (uint32_t)(hash ^ hash >> 32);
}

/* The constants of splitmix64 (Vigna); they spread neighbouring ids. */
uint32_t llm_vocab_pair_hash(uint64_t pair) {
    pair = (pair ^ pair >> 30) * 0xBF58476D1CE4E5B9u;
    pair = (pair ^ pair >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)(pair >> 32);
}

uint32_t llm_vocab_piece_find(const llm_vocab *vocab, const char *text, size_t size) {
    if (size > vocab->max_piece_size) return LLM_PIECE_NONE;
    const uint32_t hash = llm_vocab_hash(text, size);
    for (uint32_t i = hash & vocab->string_mask;; i = (i + 1) & vocab->string_mask) {
        const llm_string_slot *slot = &vocab->strings[i];
        if (slot->piece == LLM_PIECE_NONE) return LLM_PIECE_NONE;
        if (slot->hash != hash) continue;
        const llm_byte_range *piece = &vocab->pieces[slot->piece];
        if (piece->size == size && memcmp(vocab->text + piece->off, text, size) == 0)
            return slot->piece;
    }
}

const llm_merge_slot *llm_vocab_merge_find(const llm_vocab *vocab, uint32_t left, uint32_t right) {
    if (left == LLM_PIECE_NONE || right == LLM_PIECE_NONE) return NULL;
    const uint64_t pair = (uint64_t)left << 32 | right;
    for (uint32_t i = llm_vocab_pair_hash(pair) & vocab->merge_mask;;
         i = (i + 1) & vocab->merge_mask) {
        const llm_merge_slot *slot = &vocab->merges[i];
        if (slot->pair == pair) return slot;
        if (slot->pair == UINT64_MAX) return NULL;
    }
}

static bool byte_is_printable(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/* Bytes that are not printable, in order: 0-32, 127-160, 173. */
uint32_t llm_byte_letter(unsigned char byte) {
    if (byte_is_printable(byte)) return byte;
    if (byte <= 0x20) return 0x100u + byte;
    if (byte <= 0xA0) return 0x100u + 33 + (byte - 0x7Fu);
    return 0x100u + 67;
}

int llm_byte_of_letter(uint32_t letter) {
    if (letter < 0x100) return byte_is_printable(letter) ? (int)letter : -1;
    if (letter <= 0x120) return (int)(letter - 0x100);
    if (letter < 0x100 + 67) return (int)(letter - 0x121 + 0x7F);
    return letter == 0x100 + 67 ? 0xAD : -1;
}

size_t llm_byte_letter_write(unsigned char byte, char out[2]) {
    const uint32_t letter = llm_byte_letter(byte);
    if (letter < 0x80) {
        out[0] = (char)letter;
        return 1;
    }
    out[0] = (char)(0xC0 | letter >> 6);
    out[1] = (char)(0x80 | (letter & 0x3F));
    return 2;
}
