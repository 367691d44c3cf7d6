/* SPDX-License-Identifier: MIT
 *
 * slots.c: see slots.h.
 */
#include "llm/cache/slots.h"

#include <stdlib.h>

typedef struct snapshot {
    int32_t seq, n_tok, slot; /* slot -1 = unused */
    bool is_draft;
    uint64_t used; /* llm_slots.clock at the last use */
} snapshot;

struct llm_slots {
    int32_t n_slot, n_seq;
    int32_t *n_hold;     /* [n_slot] holders; 0 = free */
    int32_t *current;    /* [n_seq] the slot of the sequence's state; -1 = zeros */
    snapshot *snapshots; /* [n_slot] */
    uint64_t clock;      /* counts the uses of snapshots */
};

tdm_status llm_slots_create(int32_t n_slot, int32_t n_seq, llm_slots **slots_out, tdm_error *err) {
    llm_slots *s = calloc(1, sizeof *s);
    if (s != NULL) {
        s->n_hold = calloc((size_t)n_slot + 1, sizeof *s->n_hold);
        s->current = malloc(((size_t)n_seq + 1) * sizeof *s->current);
        s->snapshots = calloc((size_t)n_slot + 1, sizeof *s->snapshots);
    }
    if (s == NULL || s->n_hold == NULL || s->current == NULL || s->snapshots == NULL) {
        llm_slots_destroy(s);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory for the slots of %d sequences",
                        n_seq);
    }
    s->n_slot = n_slot;
    s->n_seq = n_seq;
    for (int32_t i = 0; i < n_seq; i++) s->current[i] = -1;
    for (int32_t i = 0; i < n_slot; i++) s->snapshots[i].slot = -1;
    *slots_out = s;
    return TDM_OK;
}

void llm_slots_destroy(llm_slots *s) {
    if (s == NULL) return;
    free(s->n_hold);
    free(s->current);
    free(s->snapshots);
    free(s);
}

int32_t llm_slots_current(const llm_slots *s, int32_t seq) {
    return s->current[seq];
}

void llm_slots_hold(llm_slots *s, int32_t slot) {
    if (slot >= 0) s->n_hold[slot]++;
}

void llm_slots_release(llm_slots *s, int32_t slot) {
    if (slot >= 0) s->n_hold[slot]--;
}

static void give_up(llm_slots *s, snapshot *one) {
    llm_slots_release(s, one->slot);
    one->slot = -1;
}

/* The snapshot of this kind that was used the longest time ago; NULL = there is none. */
static snapshot *oldest(llm_slots *s, bool is_draft) {
    snapshot *found = NULL;
    for (int32_t i = 0; i < s->n_slot; i++) {
        snapshot *one = &s->snapshots[i];
        if (one->slot >= 0 && one->is_draft == is_draft &&
            (found == NULL || one->used < found->used))
            found = one;
    }
    return found;
}

static int32_t kept_count(const llm_slots *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_slot; i++)
        n += s->snapshots[i].slot >= 0 && !s->snapshots[i].is_draft;
    return n;
}

int32_t llm_slots_take(llm_slots *s, bool is_draft) {
    for (;;) {
        for (int32_t i = 0; i < s->n_slot; i++) {
            if (s->n_hold[i] > 0) continue;
            s->n_hold[i] = 1;
            return i;
        }
        snapshot *one = oldest(s, true);
        if (one == NULL && is_draft && kept_count(s) <= s->n_slot / 3) return -1;
        if (one == NULL) one = oldest(s, false);
        if (one == NULL) return -1;
        give_up(s, one);
    }
}

void llm_slots_set(llm_slots *s, int32_t seq, int32_t slot) {
    llm_slots_release(s, s->current[seq]);
    s->current[seq] = slot;
}

void llm_slots_snapshot(llm_slots *s, int32_t seq, int32_t n_tok, int32_t slot, bool is_draft) {
    snapshot *place = NULL;
    if (slot < 0) return;
    for (int32_t i = 0; i < s->n_slot; i++) {
        snapshot *one = &s->snapshots[i];
        if (one->slot >= 0 && one->seq == seq && one->n_tok == n_tok) give_up(s, one);
        if (one->slot < 0 && place == NULL) place = one;
    }
    if (place == NULL) {
        place = oldest(s, true);
        if (place == NULL) place = oldest(s, false);
        give_up(s, place);
    }
    *place = (snapshot){seq, n_tok, slot, is_draft, ++s->clock};
    llm_slots_hold(s, slot);
}

int32_t llm_slots_find(llm_slots *s, int32_t seq, int32_t n_tok, int32_t *slot_out) {
    snapshot *best = NULL;
    for (int32_t i = 0; i < s->n_slot; i++) {
        snapshot *one = &s->snapshots[i];
        if (one->slot >= 0 && one->seq == seq && one->n_tok <= n_tok &&
            (best == NULL || one->n_tok > best->n_tok))
            best = one;
    }
    *slot_out = best != NULL ? best->slot : -1;
    if (best == NULL) return 0;
    best->used = ++s->clock;
    return best->n_tok;
}

void llm_slots_drop(llm_slots *s, int32_t seq, int32_t n_tok) {
    for (int32_t i = 0; i < s->n_slot; i++) {
        snapshot *one = &s->snapshots[i];
        if (one->slot >= 0 && one->seq == seq && one->n_tok > n_tok) give_up(s, one);
    }
}
