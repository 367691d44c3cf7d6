/* SPDX-License-Identifier: MIT
 *
 * exchange.h: one EXCHANGE on the device under test. The suite takes the place of the other
 * members: it makes the arena, sends their data and computes the expected result. The checks are in
 * exchange.c.
 */
#ifndef TANDEM_CERTIFY_EXCHANGE_H
#define TANDEM_CERTIFY_EXCHANGE_H

#include "certify/rig.h"

enum { CERTIFY_MAX_MEMBER = 3 };

/* What is exchanged. */
typedef struct certify_exchange_case {
    int32_t kind; /* tdm_exchange_kind */
    int32_t n_member;
    int32_t member; /* the device under test */
    uint64_t senders;         /* bit m: member m sends */
    tdm_type type;            /* of sums: on the wire; of a GATHER: of the values */
    int64_t ne[TDM_MAX_DIMS]; /* of the addends; of a GATHER's result */
    int32_t axis;
    int32_t cut[CERTIFY_MAX_MEMBER + 1]; /* member m has cut[m] .. cut[m + 1] of the axis */
    bool has_residual;
    bool is_sliced;    /* x and residual are views of something wider */
    bool is_crowded;   /* addends begin at multiples of 4 bytes; otherwise of 64 */
    bool has_extremes; /* NaN, infinities and denormals among the numbers; of type f32 */
    uint32_t epoch;
    tdm_buffer *peer; /* of the device: flags and data lie there; NULL = in the arena. The suite
                         then replaces no member */
} certify_exchange_case;

/* Memory that members share; its first bytes are the abort word. */
typedef struct certify_arena {
    uint8_t *data;
    uint64_t size;
} certify_arena;

typedef struct certify_exchange {
    certify *c; /* whose device is under test */
    certify_exchange_case how;
    tdm_exchange_params params;
    certify_rig rig;
    certify_arena arena;
    tdm_buffer *buffer;           /* the arena, imported */
    int32_t x, step, residual, y; /* values; -1 = absent */
    int64_t count;                /* elements of an addend */
    float *x_numbers;             /* of sums: what this member sends, before it is converted */
    uint8_t *x_bytes;             /* of a GATHER */
    float *residual_numbers;      /* of the result */
    uint8_t *before;              /* the arena when the run began */
} certify_exchange;

/* Opens the device and checks that it has what exchanges need. A skip where it lacks the flag, a
 * failure where it has the flag but not the slots. */
certify_verdict certify_exchange_open(certify *c);

/* Room for one exchange of a case. */
certify_verdict certify_arena_create(certify *c, const certify_exchange_case *how,
                                     certify_arena *out);
void certify_arena_destroy(certify_arena *arena);
void certify_arena_abort(const certify_arena *arena, uint64_t value);

/* Makes graph, memory and random data of one member and uploads them. The flags have the values
 * that a run of the epoch before would have left. */
certify_verdict certify_exchange_create(certify *c, const certify_exchange_case *how,
                                        const certify_arena *arena, certify_exchange *out);
void certify_exchange_destroy(certify_exchange *e);
/* Prepares the next run of the same plan, with new numbers. */
certify_verdict certify_exchange_next(certify_exchange *e);

/* Acts as member m: writes its data to the arena and raises its flag. */
certify_verdict certify_exchange_play(certify_exchange *e, int32_t m);
/* Acts as all members except the device under test, then saves the content of the arena. */
certify_verdict certify_exchange_play_all(certify_exchange *e);

/* Downloads the result and compares it bit for bit with the sum of the data in the arena, and the
 * data that this member sent with its x. With `is_alone` the rest of the arena must be unchanged
 * since certify_exchange_play_all. */
certify_verdict certify_exchange_judge(certify_exchange *e, const char *what, bool is_alone);

#endif
