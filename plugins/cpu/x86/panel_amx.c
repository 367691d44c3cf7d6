/* SPDX-License-Identifier: MIT
 *
 * panel_amx.c: products of panels (panel.h) on AMX, and activations as these take them. Tiles and
 * their instructions: Intel SDM volume 1, chapter 18.
 *
 * TDPBF16PS multiplies 16 tokens by 32 elements with 32 elements by 16 rows of a group. Two tiles
 * of tokens and two of weights make four products a step, so that each is loaded for two of them. A
 * product starts every 16 cycles and waits 52 for the sum before it: four sums take turns.
 */
#include <immintrin.h>
#include <string.h>

#include "plugins/cpu/ops/panel.h"
#include "plugins/cpu/x86/vector_x86.h"

enum { TILE_TOK = CPU_PANEL_TOK / 2, TILE_SIZE = 64 }; /* tokens of a tile; bytes of its rows */

/* Numbers of tiles: the tokens' two, the panel's two, and the sums of each with each. Intrinsics
 * take constants only. */
#define X0  0
#define X1  1
#define W0  2
#define W1  3
#define Y00 4
#define Y01 5
#define Y10 6
#define Y11 7

static void unit_begin(void) {
    /* The operand of LDTILECFG */
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_size[16];
        uint8_t n_row[16];
    } config = {.palette = 1};
    _Static_assert(sizeof config == 64, "as the instruction reads it");
    for (int i = 0; i < 8; i++) {
        config.n_row[i] = TILE_TOK;
        config.row_size[i] = TILE_SIZE;
    }
    __asm__ volatile("" : : : "memory"); /* GCC's intrinsic names the first 8 bytes only */
    _tile_loadconfig(&config);
}

static void unit_end(void) {
    _tile_release();
}

/* Sums of 16 tokens with 16 rows. */
typedef struct tile_sums {
    _Alignas(64) float y[TILE_TOK][CPU_MATMUL_LANE];
} tile_sums;

INLINE void steps_multiply(const cpu_panel_step *panel, int64_t n_step, const cpu_panel_x *x,
                           bool has_x1, bool has_w1, tile_sums sums[2][2]) {
    _tile_zero(Y00);
    _tile_zero(Y01);
    _tile_zero(Y10);
    _tile_zero(Y11);
    for (int64_t s = 0; s < n_step; s++, panel++, x++) {
        _tile_loadd(X0, &x->token[0], TILE_SIZE);
        if (has_x1) _tile_loadd(X1, &x->token[TILE_TOK], TILE_SIZE);
        _tile_loadd(W0, panel->w[0], TILE_SIZE);
        if (has_w1) _tile_loadd(W1, panel->w[1], TILE_SIZE);
        _tile_dpbf16ps(Y00, X0, W0);
        if (has_w1) _tile_dpbf16ps(Y01, X0, W1);
        if (has_x1) _tile_dpbf16ps(Y10, X1, W0);
        if (has_x1 && has_w1) _tile_dpbf16ps(Y11, X1, W1);
    }
    _tile_stored(Y00, sums[0][0].y, TILE_SIZE);
    if (has_w1) _tile_stored(Y01, sums[0][1].y, TILE_SIZE);
    if (has_x1) _tile_stored(Y10, sums[1][0].y, TILE_SIZE);
    if (has_x1 && has_w1) _tile_stored(Y11, sums[1][1].y, TILE_SIZE);
}

/* n_row outputs of a token, 1 .. 16. */
INLINE void outputs_add(float *y, const float *sums, int32_t n_row, bool is_first) {
    const __mmask16 mask = (__mmask16)((1u << n_row) - 1);
    __m512 sum = _mm512_load_ps(sums);
    if (!is_first) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), sum);
    _mm512_mask_storeu_ps(y, mask, sum);
}

static void panel_multiply(const cpu_panel_step *panel, int64_t n_step, const cpu_panel_tile *tile,
                           int64_t x_first, int64_t first, int32_t n_row, bool is_first) {
    const cpu_panel_x *x = tile->x + x_first;
    const bool has_x1 = tile->n_tok > TILE_TOK, has_w1 = n_row > CPU_MATMUL_LANE;
    const int32_t n_row_0 = has_w1 ? CPU_MATMUL_LANE : n_row;
    tile_sums sums[2][2];
    if (has_x1 && has_w1)
        steps_multiply(panel, n_step, x, true, true, sums);
    else if (has_x1)
        steps_multiply(panel, n_step, x, true, false, sums);
    else if (has_w1)
        steps_multiply(panel, n_step, x, false, true, sums);
    else
        steps_multiply(panel, n_step, x, false, false, sums);
    for (int32_t t = 0; t < tile->n_tok; t++) {
        if (tile->y[t] == NULL) continue;
        float *y = tile->y[t] + first;
        const tile_sums *of = sums[t / TILE_TOK];
        outputs_add(y, of[0].y[t % TILE_TOK], n_row_0, is_first);
        if (has_w1)
            outputs_add(y + CPU_MATMUL_LANE, of[1].y[t % TILE_TOK], n_row - CPU_MATMUL_LANE,
                        is_first);
    }
}

const cpu_panel_unit cpu_panel_unit_amx = {unit_begin, unit_end, panel_multiply};

void cpu_round_row_bf16_amx(const float *x, int64_t n, int32_t code_offset, void *blocks) {
    cpu_bf16_block *out = blocks;
    (void)code_offset;
    for (int64_t b = 0; b < n / CPU_X_LEN; b++, x += CPU_X_LEN, out++) {
        const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x));
        memcpy(out->x, &both, sizeof both);
    }
}
