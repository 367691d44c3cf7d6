/* SPDX-License-Identifier: MIT
 *
 * random_graph.h: random graphs of the ops of the fake devices (tests/plugins/fakes). Their
 * numbers are exact on every device.
 */
#ifndef TANDEM_TEST_RANDOM_GRAPH_H
#define TANDEM_TEST_RANDOM_GRAPH_H

#include "tests/unit/schedule_fixture.h"
#include "tests/support/random.h"

static uint64_t random_state;

static inline int32_t draw(int32_t n) {
    return (int32_t)random_u32_below(&random_state, (uint32_t)n);
}

/* The same graph from the same seed: values of 4 or 8 columns and 6 rows, ops of all fake devices,
 * views between, some temporaries read from outside. */
static inline tdm_graph *random_graph(uint64_t seed, int32_t *n_output) {
    enum { POOL = 40, ROWS = 6 };
    const uint64_t kept = random_state;
    tdm_builder *b = begin();
    int32_t pool[POOL], width[POOL], n = 0;
    char name[32];
    random_state = seed;
    pool[n] = input(b, "x", 8, ROWS);
    width[n++] = 8;
    pool[n] = input(b, "z", 4, ROWS);
    width[n++] = 4;
    *n_output = 0;
    const int32_t n_op = 3 + draw(POOL - 6);
    for (int32_t i = 0; i < n_op; i++) {
        int32_t a = draw(n), w = width[a], x = pool[a];
        if (draw(4) == 0) { /* through views, the last of which is not contiguous */
            x = tdm_build_reshape(b, x, w / 2, 2, ROWS, 1);
            x = tdm_build_permute(b, x, 1, 0, 2, 3);
            x = tdm_build_slice(b, x, (const int64_t[4]){0, draw(w / 4 + 1), 0, 0},
                                (const int64_t[4]){2, w / 4, ROWS, 1});
            x = tdm_build_scale(b, x, 0.5f, 0.25f);
            x = tdm_build_reshape(b, x, w / 2, ROWS, 1, 1);
            x = tdm_build_concat(b, x, x, 0);
        }
        snprintf(name, sizeof name, "w%d", i);
        int32_t y = -1, other = draw(n);
        while (width[other] != w) other = draw(n);
        switch (draw(5)) {
        case 0: y = tdm_build_add(b, x, pool[other]); break;
        case 1: y = tdm_build_mul(b, x, weight(b, name, w, 1, 0)); break;
        case 2: y = tdm_build_scale(b, x, -0.5f, 0.125f); break;
        case 3: y = tdm_build_add(b, pool[other], x); break;
        default:
            width[n] = draw(2) ? 4 : 8;
            y = tdm_build_matmul(b, weight(b, name, w, width[n], TDM_USAGE_MATMUL), x);
            w = width[n];
            y = tdm_build_scale(b, y, 0.125f, 0); /* keeps numbers small and sums exact enough */
        }
        width[n] = w;
        pool[n++] = y;
        if (i == n_op - 1 || draw(6) == 0) {
            snprintf(name, sizeof name, "out%d", (*n_output)++);
            tdm_build_output(b, y, name);
        }
    }
    random_state = kept;
    return end(b);
}

#endif
