/* SPDX-License-Identifier: MIT
 *
 * grids.h: the grids of tandem/grid.h, expanded once for the whole process, to look points up and
 * to search for the nearest point.
 */
#ifndef TANDEM_BASE_GRIDS_H
#define TANDEM_BASE_GRIDS_H

#include <stdint.h>

#include "tandem/grid.h"

/* Points by index, their coordinates as the bytes of a word, the first coordinate at the lowest
 * address. */
typedef struct tdm_grids {
    uint64_t iq2_xxs[TDM_GRID_IQ2_XXS_LEN];
    uint64_t iq2_xs[TDM_GRID_IQ2_XS_LEN];
    uint64_t iq2_s[TDM_GRID_IQ2_S_LEN];
    uint64_t iq1[TDM_GRID_IQ1_LEN];
    uint32_t iq3_xxs[TDM_GRID_IQ3_XXS_LEN];
    uint32_t iq3_s[TDM_GRID_IQ3_S_LEN];
} tdm_grids;

/* The tables; made by the first caller. [any-thread] */
const tdm_grids *tdm_grids_get(void);

/* One grid to be searched. A point's number, see tandem/grid.h, is lo + n_half * hi, the numbers of
 * its halves; the points that share a second half are neighbours. */
typedef struct tdm_grid_search {
    const uint8_t *points; /* [n_point, dim] */
    const uint8_t *lo;     /* [n_point] */
    const uint16_t *first; /* [n_half + 1]: points first[hi] .. first[hi + 1] - 1 have that half */
    int32_t n_half;        /* n_level^(dim / 2) */
} tdm_grid_search;

/* `grid` is one of the grids below. Its tables live as long as the process. [any-thread] */
tdm_grid_search tdm_grid_search_get(const tdm_grid *grid);

/* The grids of tandem/grid.h. */
extern const tdm_grid tdm_grid_iq2_xxs, tdm_grid_iq2_xs, tdm_grid_iq2_s, tdm_grid_iq1,
    tdm_grid_iq3_xxs, tdm_grid_iq3_s;

#endif
