/* SPDX-License-Identifier: MIT
 *
 * grids.c: see grids.h.
 */
#include "quant/grids.h"

#include <pthread.h>

static const uint64_t iq2_xxs_bits[] = TDM_GRID_IQ2_XXS_BITS;
static const uint64_t iq2_xs_bits[] = TDM_GRID_IQ2_XS_BITS;
static const uint64_t iq2_s_bits[] = TDM_GRID_IQ2_S_BITS;
static const uint64_t iq1_bits[] = TDM_GRID_IQ1_BITS;
static const uint64_t iq3_xxs_bits[] = TDM_GRID_IQ3_XXS_BITS;
static const uint64_t iq3_s_bits[] = TDM_GRID_IQ3_S_BITS;

static const uint8_t iq2_levels[] = {8, 25, 43};
static const uint8_t iq1_levels[] = {0, 8, 16};
static const uint8_t iq3_xxs_levels[] = {4, 12, 20, 28, 36, 44, 52, 62};
static const uint8_t iq3_s_levels[] = {1, 3, 5, 7, 9, 11, 13, 15};

const tdm_grid tdm_grid_iq2_xxs = {iq2_xxs_bits, TDM_GRID_IQ2_XXS_LEN, 8, 3, 2, iq2_levels};
const tdm_grid tdm_grid_iq2_xs = {iq2_xs_bits, TDM_GRID_IQ2_XS_LEN, 8, 3, 2, iq2_levels};
const tdm_grid tdm_grid_iq2_s = {iq2_s_bits, TDM_GRID_IQ2_S_LEN, 8, 3, 2, iq2_levels};
const tdm_grid tdm_grid_iq1 = {iq1_bits, TDM_GRID_IQ1_LEN, 8, 3, 1, iq1_levels};
const tdm_grid tdm_grid_iq3_xxs = {iq3_xxs_bits, TDM_GRID_IQ3_XXS_LEN, 4, 8, 1, iq3_xxs_levels};
const tdm_grid tdm_grid_iq3_s = {iq3_s_bits, TDM_GRID_IQ3_S_LEN, 4, 8, 1, iq3_s_levels};

static tdm_grids grids;
enum { N_POINT_MAX = TDM_GRID_IQ1_LEN, N_HALF_MAX = 81, N_GRID = 6 };
static struct {
    uint8_t lo[N_POINT_MAX];
    uint16_t first[N_HALF_MAX + 1];
    int32_t n_half;
} halves[N_GRID];
static const struct {
    const tdm_grid *grid;
    void *points;
} all[N_GRID] = {
    {&tdm_grid_iq2_xxs, grids.iq2_xxs}, {&tdm_grid_iq2_xs, grids.iq2_xs},
    {&tdm_grid_iq2_s, grids.iq2_s},     {&tdm_grid_iq1, grids.iq1},
    {&tdm_grid_iq3_xxs, grids.iq3_xxs}, {&tdm_grid_iq3_s, grids.iq3_s},
};
static pthread_once_t grids_once = PTHREAD_ONCE_INIT;

static void halves_make(int g) {
    const tdm_grid *grid = all[g].grid;
    int n_half = 1, i = 0, hi = 0;
    for (int c = 0; c < grid->dim / 2; c++) n_half *= grid->n_level;
    for (int bit = 0; i < grid->n_point; bit++) {
        if ((grid->bits[bit / 64] >> bit % 64 & 1) == 0) continue;
        int number = bit * grid->stride;
        while (hi <= number / n_half) halves[g].first[hi++] = (uint16_t)i;
        halves[g].lo[i++] = (uint8_t)(number % n_half);
    }
    while (hi <= n_half) halves[g].first[hi++] = (uint16_t)i;
    halves[g].n_half = n_half;
}

static void grids_make(void) {
    for (int g = 0; g < N_GRID; g++) {
        tdm_grid_expand(all[g].grid, all[g].points);
        halves_make(g);
    }
}

const tdm_grids *tdm_grids_get(void) {
    pthread_once(&grids_once, grids_make);
    return &grids;
}

tdm_grid_search tdm_grid_search_get(const tdm_grid *grid) {
    int g = 0;
    pthread_once(&grids_once, grids_make);
    while (all[g].grid != grid) g++;
    return (tdm_grid_search){all[g].points, halves[g].lo, halves[g].first, halves[g].n_half};
}
