/* SPDX-License-Identifier: MIT
 *
 * choices.h: a random test case as a sequence of small numbers. Whatever is made at random draws
 * its decisions here; the numbers drawn are kept, so that the same case can be made again, and a
 * case that fails can be made smaller by leaving numbers out or lowering them, without knowing what
 * they mean (the idea of MacIver and Donaldson, "Test-Case Reduction via Test-Case Generation",
 * ECOOP 2020). It judges nothing.
 *
 * Makers keep to two rules: 0 is the simplest choice, and any sequence gives a valid case: numbers
 * out of range are folded into it, numbers past the end are 0.
 */
#ifndef TANDEM_TESTS_CHOICES_H
#define TANDEM_TESTS_CHOICES_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/support/random.h"

enum { CHOICES_MAX = 4096 };

typedef struct choices {
    uint64_t random;               /* state of the generator; not used while replaying */
    bool is_replay;                /* numbers come from `kept` */
    int n_kept;                    /* of a replay: how many there are */
    uint32_t kept[CHOICES_MAX];    /* of a replay: what to give */
    int n;                         /* drawn so far; at most CHOICES_MAX, later ones are 0 */
    uint32_t drawn[CHOICES_MAX];   /* what was given */
    bool is_mark[CHOICES_MAX + 1]; /* something that can be left out begins at this number */
} choices;

/* Fresh numbers of a seed. */
void choices_begin(choices *c, uint64_t seed);
/* The numbers of `drawn` again, from the first; may be the same object's. */
void choices_replay(choices *c, const uint32_t *drawn, int n);
/* 0 .. n-1; n >= 1. */
uint32_t choice_below(choices *c, uint32_t n);
/* True once in n times; false is the simpler. */
bool choice_rarely(choices *c, uint32_t n);
/* Something begins here that the case can do without. */
void choice_mark(choices *c);

/* Makes the sequence smaller while `fails` returns true, for at most `seconds`. `fails` replays the
 * given sequence, which afterwards holds the drawn numbers. Returns the number of cases tried. */
int choices_shrink(choices *c, bool (*fails)(choices *c, void *context), void *context,
                   double seconds);

#endif
