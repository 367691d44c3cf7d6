/* SPDX-License-Identifier: MIT
 *
 * fault_scene.h: the network of fault_rig.h loaded on a group with faults and on one device, and
 * what the one device gives. For test_faults.c and test_threads.c.
 */
#ifndef TANDEM_TESTS_FAULT_SCENE_H
#define TANDEM_TESTS_FAULT_SCENE_H

#include <time.h>

#include "tests/split/fault_rig.h"

enum { SCENE_MAX_TOK = 4 };

typedef struct scene {
    fault_rig *rig;
    net group, single;
    tdm_schedule *run, *truth;
    int n_tok;
    float expected[N_EMBD * SCENE_MAX_TOK]; /* N_EMBD * n_tok of them */
} scene;

static inline double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Members with the options of faults[n_member] (NULL: a CPU device as it is), a network of
 * n_layer. */
static inline void scene_make(scene *s, const char *const *faults, int n_member, int n_layer,
                              int n_tok, const char *options) {
    memset(s, 0, sizeof *s);
    s->n_tok = n_tok;
    s->rig = rig_open(n_member, faults, options);
    OK(net_load(&s->group, s->rig->group, s->rig->group_scratch, n_layer, err));
    OK(net_load(&s->single, s->rig->single, s->rig->single_scratch, n_layer, err));
    OK(net_schedule(&s->group, n_tok, &s->run, err));
    OK(net_schedule(&s->single, n_tok, &s->truth, err));
    OK(net_run(s->truth, n_tok, 3, s->expected, err));
}

static inline void scene_close(scene *s) {
    tdm_schedule_destroy(s->run);
    tdm_schedule_destroy(s->truth);
    tdm_mem_free(&s->group.weights);
    tdm_mem_free(&s->single.weights);
    rig_close(s->rig);
}

/* The group gives what the one device gives. */
static inline void works(const scene *s) {
    float y[N_EMBD * SCENE_MAX_TOK];
    OK(net_run(s->run, s->n_tok, 3, y, err));
    double error = nmse(y, s->expected, (size_t)(N_EMBD * s->n_tok));
    if (!(error < 1e-10)) fail_msg("nmse %g", error);
}

#endif
