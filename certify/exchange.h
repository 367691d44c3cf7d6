/* SPDX-License-Identifier: MIT
 *
 * exchange.h: one EXCHANGE on the device under test, the other members played by the suite:
 * the arena, what the others send, and what must come out. The checks are in exchange.c.
 */
#ifndef TANDEM_RUNNER_CERTIFY_EXCHANGE_H
#define TANDEM_RUNNER_CERTIFY_EXCHANGE_H

#include "certify/rig.h"

enum { CERTIFY_MAX_MEMBER = 3 };

/* What is exchanged. */
typedef struct certify_exchange_case {
    int32_t kind; /* tdm_exchange_kind */
    int32_t n_member;
    int32_t member; /* the device under test */
    uint64_t senders;
    tdm_type type;            /* of sums: on the wire; of a GATHER: of the values */
    int64_t ne[TDM_MAX_DIMS]; /* of the addends; of a GATHER's result */
    int32_t axis;
    int32_t cut[CERTIFY_MAX_MEMBER + 1]; /* member m has cut[m] .. cut[m + 1] of the axis */
    bool has_residual;
    bool is_sliced;    /* x and residual are views of something wider */
    bool has_extremes; /* NaN, infinities and denormals among the numbers; of type f32 */
    uint32_t epoch;
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

/* Has the device flag and slots that exchanges need? A skip where it does not claim them, a failure
 * where it does and they are not there. Opens the device. */
certify_verdict certify_exchange_open(certify *c);

/* Room for one exchange of a case. */
certify_verdict certify_arena_create(certify *c, const certify_exchange_case *how,
                                     certify_arena *out);
void certify_arena_destroy(certify_arena *arena);
void certify_arena_abort(const certify_arena *arena, uint64_t value);

/* Graph, memory and random data of one member, all of it uploaded; the flags are as a run of the
 * epoch before left them, and full of chunks. */
certify_verdict certify_exchange_create(certify *c, const certify_exchange_case *how,
                                        const certify_arena *arena, certify_exchange *out);
void certify_exchange_destroy(certify_exchange *e);
/* The same plan's next run: new numbers. */
certify_verdict certify_exchange_next(certify_exchange *e);

/* Plays member m: puts what it sends into the arena and raises its flag. */
certify_verdict certify_exchange_play(certify_exchange *e, int32_t m);
/* All members but the device under test; then it is remembered how the arena looks. */
certify_verdict certify_exchange_play_all(certify_exchange *e);

/* Fetches the result and compares it with what lies in the arena, bit for bit, and what this member
 * sent with its x. With `is_alone` nothing else of the arena may have changed since
 * certify_exchange_play_all. */
certify_verdict certify_exchange_judge(certify_exchange *e, const char *what, bool is_alone);

#endif
