/* SPDX-License-Identifier: MIT
 *
 * attention_dot.h: products of queries with rows of K, for the kernels whose workgroup computes for
 * one token. A workgroup is TEAMS teams of CHUNK threads. A thread of a team has one slot of the
 * chunk, and the team has every TEAMS-th of the ROWS queries (spec 4): row i belongs to team i %
 * TEAMS. Spec 0 is the tdm_type of K, spec 2 the elements of a query.
 */
#ifndef TANDEM_GPU_ATTENTION_DOT_H
#define TANDEM_GPU_ATTENTION_DOT_H

#include "attention_fold.h"

struct AttentionDot : AttentionFold {
    inline explicit AttentionDot(const Args &args_)
        : AttentionFold(args_, args_.spec[4] > 0 ? args_.spec[4] : 1, int(group_size())) {}

    const int TYPE_K = SPEC0;
    const int STORED_K = SPEC2 > 0 ? SPEC2 : 32;

    vec4 *query = shared_take<vec4>(ROWS * STORED_K / 4); // [ROWS][STORED_K]

    const int TEAMS = int(group_size()) / CHUNK;
    inline int lane() { return thread() % CHUNK; }
    // The j-th row of this thread's team.
    inline int own_row(int j) { return thread() / CHUNK + j * TEAMS; }

    // s[j] += the product of own row j and a slot's row of K. Units are decoded in their order.
    // N_AHEAD of them are loaded before the first is used: a workgroup has few threads, which would
    // otherwise wait for every single load.
    template <int KIND, int N_AHEAD, int MAX_ROWS>
    inline void score_add(u64 region, int slot, float (&s)[MAX_ROWS]) {
        const int len = unit_len(TYPE_K), n_unit = STORED_K / len, n_block = STORED_K / 32;
        DONT_UNROLL for (int first = 0; first < n_unit; first += N_AHEAD) {
            Unit units[N_AHEAD];
            UNROLL for (int k = 0; k < N_AHEAD; k++) units[k] =
                unit_fetch<KIND>(TYPE_K, region, n_block, slot, min(first + k, n_unit - 1));
            UNROLL for (int k = 0; k < N_AHEAD; k++) {
                if (first + k >= n_unit) break;
                vec4 x[8];
                unit_decode<KIND>(TYPE_K, units[k], x);
                unit_add((first + k) * len / 4, len / 4, x, s);
            }
        }
    }

    // The same for units of nibbles. The loop has one unit in its body, since units are long, and
    // loads three units ahead.
    template <int MAX_ROWS>
    inline void score_add_nibbles(u64 region, int slot, float (&s)[MAX_ROWS]) {
        const int n_unit = STORED_K / 32;
        Unit next[3];
        UNROLL for (int k = 0; k < 3; k++) next[k] =
            unit_fetch<KIND_NIBBLES>(TYPE_K, region, n_unit, slot, min(k, n_unit - 1));
        DONT_UNROLL for (int u = 0; u < n_unit; u++) {
            vec4 x[8];
            Unit unit = next[0];
            next[0] = next[1];
            next[1] = next[2];
            next[2] =
                unit_fetch<KIND_NIBBLES>(TYPE_K, region, n_unit, slot, min(u + 3, n_unit - 1));
            unit_decode<KIND_NIBBLES>(TYPE_K, unit, x);
            unit_add(u * 8, 8, x, s);
        }
    }

    // Adds the products of the n vectors x and the queries' vectors at .. at + n - 1.
    template <int MAX_ROWS>
    inline void unit_add(int at, int n, const vec4 x[8], float (&s)[MAX_ROWS]) {
        UNROLL for (int i = 0; i < 8; i++) {
            if (i >= n) break;
            UNROLL for (int j = 0; j < MAX_ROWS; j++) {
                if (own_row(j) >= ROWS) break;
                vec4 q = query[own_row(j) * STORED_K / 4 + at + i];
                float sum = fma(q.x, x[i].x, s[j]);
                sum = fma(q.y, x[i].y, sum);
                sum = fma(q.z, x[i].z, sum);
                s[j] = fma(q.w, x[i].w, sum);
            }
        }
    }

    // s[j] += the product of own row j and the row of K in a slot of a page's region.
    template <int MAX_ROWS>
    inline __attribute__((always_inline)) void slot_dot(u64 region, int slot,
                                                        float (&s)[MAX_ROWS]) {
        if (kind_of(TYPE_K) == KIND_PLAIN)
            score_add<KIND_PLAIN, 8>(region, slot, s);
        else if (kind_of(TYPE_K) == KIND_BYTES)
            score_add<KIND_BYTES, 4>(region, slot, s);
        else
            score_add_nibbles(region, slot, s);
    }
};

#endif
