/* SPDX-License-Identifier: MIT
 *
 * code_points.c: see code_points.h. Well-formed UTF-8 is table 3-7 of The Unicode Standard.
 */
#include "server/grammar/code_points.h"

#include <stdlib.h>
#include <string.h>

#include "server/grammar/array.h"
#include "server/grammar/token_trie.h"

#define LAST_CODE 0x10FFFFu
/* Most sets of a grammar, and most states. They are few, since a new one is compared with all. */
#define CLASS_MAX (1 << 14)
#define STATE_MAX (1 << 14)

int32_t grammar_code_point_write(uint32_t code, char out[4]) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

void grammar_classes_free(grammar_classes *set) {
    free(set->classes);
    free(set->states);
    free(set->ranges);
    *set = (grammar_classes){0};
}

/* ---- Ranges ---- */

static int range_order(const void *a, const void *b) {
    const grammar_range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Appends lo .. hi without the surrogates, which UTF-8 does not have. */
static bool range_append(grammar_classes *set, uint32_t lo, uint32_t hi) {
    if (hi > LAST_CODE) hi = LAST_CODE;
    if (lo > hi) return true;
    if (lo <= 0xDFFF && hi >= 0xD800)
        return (lo >= 0xD800 || range_append(set, lo, 0xD7FF)) &&
               (hi <= 0xDFFF || range_append(set, 0xE000, hi));
    if (!grammar_reserve((void **)&set->ranges, &set->range_capacity, (int64_t)set->n_range + 1,
                         sizeof *set->ranges))
        return false;
    set->ranges[set->n_range++] = (grammar_range){lo, hi};
    return true;
}

/* Appends the set to the ranges, sorted and with gaps between its ranges. Sorts `ranges`. */
static bool ranges_append(grammar_classes *set, grammar_range *ranges, int32_t n, bool is_negated) {
    if (n > 0) qsort(ranges, (size_t)n, sizeof *ranges, range_order);
    uint32_t begin = 0; /* of the gap before the next range */
    for (int32_t i = 0; i < n;) {
        const uint32_t lo = ranges[i].lo;
        uint32_t hi = ranges[i].hi;
        for (i++; i < n && ranges[i].lo <= hi + 1; i++)
            if (ranges[i].hi > hi) hi = ranges[i].hi;
        if (!is_negated && !range_append(set, lo, hi)) return false;
        if (is_negated && lo > begin && !range_append(set, begin, lo - 1)) return false;
        begin = hi + 1;
    }
    return !is_negated || range_append(set, begin, LAST_CODE);
}

/* How much of lo .. hi a set has: nothing, a part, or all. */
typedef enum part { PART_NONE, PART_SOME, PART_ALL } part;

static part set_part(const grammar_range *ranges, int32_t n, uint32_t lo, uint32_t hi) {
    uint64_t inside = 0;
    int32_t first = 0; /* the first range that does not end before lo */
    for (int32_t end = n; first < end;) {
        const int32_t middle = first + (end - first) / 2;
        if (ranges[middle].hi < lo)
            first = middle + 1;
        else
            end = middle;
    }
    for (int32_t i = first; i < n && ranges[i].lo <= hi; i++) {
        const uint32_t from = ranges[i].lo > lo ? ranges[i].lo : lo;
        const uint32_t to = ranges[i].hi < hi ? ranges[i].hi : hi;
        if (from <= to) inside += to - from + 1;
    }
    return inside == 0 ? PART_NONE : inside == (uint64_t)hi - lo + 1 ? PART_ALL : PART_SOME;
}

/* ---- States ---- */

/* The number of a state, which is added where there is no equal one; GRAMMAR_BYTE_BAD where no byte
 * may follow; -2 without memory. */
static int32_t state_intern(grammar_classes *set, const grammar_follow *state) {
    bool is_bad = true;
    for (int i = 0; i < 64 && is_bad; i++) is_bad = state->next[i] == GRAMMAR_BYTE_BAD;
    if (is_bad) return GRAMMAR_BYTE_BAD;
    for (int32_t i = 1; i < set->n_state; i++)
        if (memcmp(&set->states[i], state, sizeof *state) == 0) return i;
    const int32_t first = set->n_state == 0;
    if (set->n_state >= STATE_MAX ||
        !grammar_reserve((void **)&set->states, &set->state_capacity,
                         (int64_t)set->n_state + 1 + first, sizeof *set->states))
        return -2;
    if (first != 0) set->states[set->n_state++] = (grammar_follow){{0}};
    set->states[set->n_state] = *state;
    return set->n_state++;
}

/* The state in which n_left more bytes (1 to 3) choose among the 64^n_left code points from `base`
 * on. Those below `least` are left out: UTF-8 has a shorter form for them. full[n_left - 1] is the
 * state for a block of which the set has all code points; 0 = not made yet. Returns as state_intern
 * does. */
static int32_t block_state(grammar_classes *set, const grammar_range *ranges, int32_t n,
                           uint32_t base, int n_left, uint32_t least, int32_t full[3]) {
    const uint32_t size = 1u << (6 * (n_left - 1)); /* code points for each value of the next
                                                       byte */
    grammar_follow state;
    const part whole = set_part(ranges, n, base, base + 64 * size - 1);
    if (whole == PART_NONE) return GRAMMAR_BYTE_BAD;
    const bool is_full = whole == PART_ALL && base >= least;
    if (is_full && full[n_left - 1] != 0) return full[n_left - 1];
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t lo = base + i * size;
        state.next[i] = GRAMMAR_BYTE_BAD;
        if (lo + size - 1 < least) continue;
        if (n_left == 1) {
            if (set_part(ranges, n, lo, lo) == PART_ALL) state.next[i] = GRAMMAR_BYTE_LAST;
        } else {
            state.next[i] = block_state(set, ranges, n, lo, n_left - 1, least, full);
            if (state.next[i] < -1) return -2;
        }
    }
    const int32_t number = state_intern(set, &state);
    if (is_full) full[n_left - 1] = number;
    return number;
}

/* Sets has_plain and no_plain. */
static void plain_compare(grammar_class *c, const grammar_range *ranges, int32_t n) {
    c->has_plain = c->no_plain = true;
    for (int32_t i = 0; i < GRAMMAR_PLAIN_RANGES; i++) {
        const grammar_range *plain = &grammar_plain[i];
        const part has = set_part(ranges, n, plain->lo, plain->hi);
        if (has != PART_ALL) c->has_plain = false;
        if (has != PART_NONE) c->no_plain = false;
    }
}

int32_t grammar_classes_add(grammar_classes *set, grammar_range *ranges, int32_t n,
                            bool is_negated) {
    const int32_t first = set->n_range;
    if (!ranges_append(set, ranges, n, is_negated)) return -1;
    const int32_t count = set->n_range - first;
    const grammar_range *own = set->ranges + first;
    for (int32_t i = 0; i < set->n; i++) {
        const grammar_class *c = &set->classes[i];
        if (c->n_range == count && (count == 0 || memcmp(set->ranges + c->first_range, own,
                                                         (size_t)count * sizeof *own) == 0)) {
            set->n_range = first;
            return i;
        }
    }
    if (set->n >= CLASS_MAX || !grammar_reserve((void **)&set->classes, &set->capacity,
                                                (int64_t)set->n + 1, sizeof *set->classes))
        return -1;
    grammar_class *c = &set->classes[set->n];
    c->first_range = first;
    c->n_range = count;
    plain_compare(c, own, count);
    int32_t full[3] = {0};
    for (uint32_t byte = 0; byte < 256; byte++) {
        int32_t *lead = &c->lead[byte];
        if (byte < 0x80)
            *lead =
                set_part(own, count, byte, byte) == PART_ALL ? GRAMMAR_BYTE_LAST : GRAMMAR_BYTE_BAD;
        else if (byte < 0xC2 || byte > 0xF4)
            *lead = GRAMMAR_BYTE_BAD;
        else if (byte < 0xE0)
            *lead = block_state(set, own, count, (byte & 0x1F) << 6, 1, 0x80, full);
        else if (byte < 0xF0)
            *lead = block_state(set, own, count, (byte & 0x0F) << 12, 2, 0x800, full);
        else
            *lead = block_state(set, own, count, (byte & 0x07) << 18, 3, 0x10000, full);
        if (*lead < -1) return -1;
    }
    return set->n++;
}
