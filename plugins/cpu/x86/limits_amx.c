/* SPDX-License-Identifier: MIT
 *
 * limits_amx.c: the machine's limits with AMX: 16384 products of 8 bits an instruction. Memory and
 * f32 are those of AVX-512.
 */
#include <immintrin.h>
#include <string.h>

#include "plugins/cpu/machine/limits.h"

enum { N_STEP = 500, N_SUM = 4, ROW = 16, ROW_SIZE = 64 };

static uint64_t limit_int8_amx(uint32_t seed, double *n_op_out) {
    /* The operand of LDTILECFG (Intel SDM volume 1, chapter 18): palette 1; eight sizes of rows,
     * two bytes each, from byte 16 on, and as many numbers of rows from byte 48 on. */
    uint8_t config[64] = {1}, codes[ROW * ROW_SIZE];
    int32_t sums[ROW * ROW_SIZE / 4];
    uint64_t all = 0;
    for (int i = 0; i < 8; i++) {
        config[16 + 2 * i] = ROW_SIZE;
        config[48 + i] = ROW;
    }
    memset(codes, (int)seed, sizeof codes);
    __asm__ volatile("" : : : "memory"); /* GCC's intrinsics do not say what they read */
    _tile_loadconfig(config);
    _tile_loadd(4, codes, ROW_SIZE);
    _tile_loadd(5, codes, ROW_SIZE);
    for (int n = 0; n < N_STEP; n++) {
        _tile_dpbssd(0, 4, 5);
        _tile_dpbssd(1, 4, 5);
        _tile_dpbssd(2, 4, 5);
        _tile_dpbssd(3, 4, 5);
    }
    _tile_stored(0, sums, ROW_SIZE); /* tiles have constant numbers */
    all += (uint64_t)sums[0];
    _tile_stored(1, sums, ROW_SIZE);
    all += (uint64_t)sums[0];
    _tile_stored(2, sums, ROW_SIZE);
    all += (uint64_t)sums[0];
    _tile_stored(3, sums, ROW_SIZE);
    all += (uint64_t)sums[0];
    _tile_release();
    *n_op_out = 2.0 * ROW * ROW * ROW_SIZE * N_SUM * N_STEP;
    return all;
}

const cpu_limit_loops cpu_limit_loops_amx = {"AMX", cpu_limit_read_avx512, limit_int8_amx,
                                             cpu_limit_f32_avx512};
