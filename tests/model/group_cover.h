/* SPDX-License-Identifier: MIT
 *
 * group_cover.h: a small set of rows that contains every pair. A row selects one level of each
 * factor; any two levels of two factors occur together in some row. The meaning of factors is the
 * caller's.
 */
#ifndef TANDEM_TESTS_GROUP_COVER_H
#define TANDEM_TESTS_GROUP_COVER_H

#include <stdbool.h>

enum { COVER_MAX_FACTOR = 16, COVER_MAX_LEVEL = 16, COVER_MAX_ROW = 512 };

typedef struct cover {
    int n_factor;
    int n_level[COVER_MAX_FACTOR];
    int n_row;
    unsigned char rows[COVER_MAX_ROW][COVER_MAX_FACTOR];
} cover;

/* Fills the rows for n_factor and n_level; the same every time. False where COVER_MAX_ROW rows are
 * not enough. */
bool cover_make(cover *c);
/* Pairs that no row has: 0 for what cover_make made. */
int cover_missing(const cover *c);

#endif
