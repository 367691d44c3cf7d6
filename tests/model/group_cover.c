/* SPDX-License-Identifier: MIT
 *
 * group_cover.c: see group_cover.h. Row by row: begin with a pair that is missing, give each other
 * factor the level that adds most pairs, keep the best of some tries (after Cohen, Dalal, Fredman,
 * Patton, "The AETG System", IEEE TSE 1997).
 */
#include "tests/model/group_cover.h"

#include <stdint.h>
#include <string.h>

#include "tests/support/random.h"

enum { N_TRY = 20 };

typedef struct pairs {
    bool is_covered[COVER_MAX_FACTOR][COVER_MAX_LEVEL][COVER_MAX_FACTOR][COVER_MAX_LEVEL];
} pairs;

static uint32_t next(uint32_t *state) {
    return random_lcg32(state) >> 8;
}

static void pairs_add(pairs *p, const cover *c, const unsigned char *row) {
    for (int a = 0; a < c->n_factor; a++)
        for (int b = 0; b < c->n_factor; b++) p->is_covered[a][row[a]][b][row[b]] = true;
}

static int pairs_missing(const pairs *p, const cover *c) {
    int n = 0;
    for (int a = 0; a < c->n_factor; a++)
        for (int b = a + 1; b < c->n_factor; b++)
            for (int i = 0; i < c->n_level[a]; i++)
                for (int j = 0; j < c->n_level[b]; j++) n += !p->is_covered[a][i][b][j];
    return n;
}

/* Missing pairs that `level` of factor f makes with the factors that have theirs. */
static int gain(const pairs *p, const cover *c, const unsigned char *row, const bool *is_set, int f,
                int level) {
    int n = 0;
    for (int a = 0; a < c->n_factor; a++)
        if (is_set[a] && a != f) n += !p->is_covered[f][level][a][row[a]];
    return n;
}

/* One try; its gain. */
static int row_try(const pairs *p, const cover *c, uint32_t *random, unsigned char *row) {
    bool is_set[COVER_MAX_FACTOR] = {false};
    int order[COVER_MAX_FACTOR], n_missing = 0, total = 0, at[4] = {0};
    /* A missing pair, each as likely as the others. */
    for (int a = 0; a < c->n_factor; a++)
        for (int b = a + 1; b < c->n_factor; b++)
            for (int i = 0; i < c->n_level[a]; i++)
                for (int j = 0; j < c->n_level[b]; j++)
                    if (!p->is_covered[a][i][b][j] && next(random) % (uint32_t)++n_missing == 0)
                        at[0] = a, at[1] = i, at[2] = b, at[3] = j;
    row[at[0]] = (unsigned char)at[1];
    row[at[2]] = (unsigned char)at[3];
    is_set[at[0]] = is_set[at[2]] = true;
    for (int f = 0; f < c->n_factor; f++) order[f] = f;
    for (int f = c->n_factor - 1; f > 0; f--) {
        int g = (int)(next(random) % (uint32_t)(f + 1)), t = order[f];
        order[f] = order[g];
        order[g] = t;
    }
    for (int k = 0; k < c->n_factor; k++) {
        int f = order[k], best = -1;
        if (is_set[f]) continue;
        int first = (int)(next(random) % (uint32_t)c->n_level[f]);
        for (int i = 0; i < c->n_level[f]; i++) {
            int level = (first + i) % c->n_level[f], n = gain(p, c, row, is_set, f, level);
            if (n <= best) continue;
            best = n;
            row[f] = (unsigned char)level;
        }
        is_set[f] = true;
    }
    for (int a = 0; a < c->n_factor; a++)
        for (int b = a + 1; b < c->n_factor; b++) total += !p->is_covered[a][row[a]][b][row[b]];
    return total;
}

bool cover_make(cover *c) {
    static pairs p;
    uint32_t random = 1;
    memset(&p, 0, sizeof p);
    c->n_row = 0;
    while (pairs_missing(&p, c) > 0) {
        int best = -1;
        if (c->n_row == COVER_MAX_ROW) return false;
        for (int t = 0; t < N_TRY; t++) {
            unsigned char row[COVER_MAX_FACTOR] = {0};
            int n = row_try(&p, c, &random, row);
            if (n <= best) continue;
            best = n;
            memcpy(c->rows[c->n_row], row, sizeof row);
        }
        pairs_add(&p, c, c->rows[c->n_row++]);
    }
    return true;
}

int cover_missing(const cover *c) {
    static pairs p;
    memset(&p, 0, sizeof p);
    for (int i = 0; i < c->n_row; i++) pairs_add(&p, c, c->rows[i]);
    return pairs_missing(&p, c);
}
