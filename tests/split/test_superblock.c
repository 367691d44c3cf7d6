/* SPDX-License-Identifier: MIT
 *
 * test_superblock.c: superblocks cut at every multiple of 32: masked elements are 0, all other
 * bits stay, and the parts together are the block again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/convert.h"
#include "plugins/meta/layout/superblock.h"
#include "split_random.h"

enum { LEN = TDM_SUPERBLOCK_LEN, UNIT = META_SUPERBLOCK_UNIT, N_BLOCK = 40, MAX_SIZE = 256 };

static const tdm_type types[] = {TDM_TYPE_Q2_K, TDM_TYPE_Q3_K, TDM_TYPE_Q4_K,
                                 TDM_TYPE_Q5_K, TDM_TYPE_Q6_K, TDM_TYPE_IQ4_XS};
enum { N_TYPE = sizeof types / sizeof types[0] };

static uint32_t next(void) {
    return (uint32_t)random_word();
}

/* Any bytes are a block; the scales of the whole are made finite, as those of a model are. */
static void block_fill(tdm_type type, uint16_t words[MAX_SIZE / 2]) {
    uint8_t *block = (uint8_t *)words;
    const size_t size = tdm_type_row_size(type, LEN);
    for (size_t i = 0; i < size; i++) block[i] = (uint8_t)(next() >> 8);
    const tdm_f16 d = (tdm_f16)(0x2000 + next() % 0x1c00), m = (tdm_f16)(0xa000 + next() % 0x1c00);
    switch ((int)type) {
    case TDM_TYPE_Q2_K:
        ((tdm_block_q2_K *)words)->d = d;
        ((tdm_block_q2_K *)words)->dmin = m;
        break;
    case TDM_TYPE_Q3_K: ((tdm_block_q3_K *)words)->d = m; break;
    case TDM_TYPE_Q4_K:
        ((tdm_block_q4_K *)words)->d = d;
        ((tdm_block_q4_K *)words)->dmin = m;
        break;
    case TDM_TYPE_Q5_K:
        ((tdm_block_q5_K *)words)->d = m;
        ((tdm_block_q5_K *)words)->dmin = d;
        break;
    case TDM_TYPE_Q6_K: ((tdm_block_q6_K *)words)->d = d; break;
    default: ((tdm_block_iq4_xs *)words)->d = m; break;
    }
}

static void values_get(tdm_type type, const void *block, float values[LEN]) {
    assert_int_equal(tdm_row_dequantize(type, block, values, LEN), TDM_OK);
}

/* Every part, of random blocks. */
static void test_mask(void **context) {
    (void)context;
    for (int t = 0; t < N_TYPE; t++) {
        const tdm_type type = types[t];
        const size_t size = tdm_type_row_size(type, LEN);
        assert_true(meta_superblock_is_cuttable(type));
        for (int b = 0; b < N_BLOCK; b++) {
            uint16_t whole[MAX_SIZE / 2], part[MAX_SIZE / 2];
            float expected[LEN], found[LEN];
            block_fill(type, whole);
            values_get(type, whole, expected);
            for (int lo = 0; lo <= LEN; lo += UNIT) {
                for (int hi = lo; hi <= LEN; hi += UNIT) {
                    memcpy(part, whole, size);
                    meta_superblock_mask(type, part, lo, hi);
                    values_get(type, part, found);
                    for (int i = 0; i < LEN; i++) {
                        if (i < lo || i >= hi ? found[i] == 0
                                              : memcmp(&found[i], &expected[i], sizeof(float)) == 0)
                            continue;
                        fail_msg("%s, part %d .. %d, element %d: %g of %g", tdm_type_name(type), lo,
                                 hi, i, (double)found[i], (double)expected[i]);
                    }
                    if (lo == 0 && hi == LEN) assert_memory_equal(part, whole, size);
                }
            }
        }
    }
}

/* Cut at random places, in random order, into memory that held something else. */
static void test_join(void **context) {
    (void)context;
    for (int t = 0; t < N_TYPE; t++) {
        const tdm_type type = types[t];
        const size_t size = tdm_type_row_size(type, LEN);
        for (int b = 0; b < 8 * N_BLOCK; b++) {
            uint16_t whole[MAX_SIZE / 2], part[MAX_SIZE / 2], joined[MAX_SIZE / 2];
            int cuts[LEN / UNIT + 1], n_cut = 0;
            block_fill(type, whole);
            memset(joined, (int)(next() & 255), sizeof joined);
            for (int at = 0; at < LEN; at += UNIT)
                if (at == 0 || (next() & 1) != 0) cuts[n_cut++] = at;
            cuts[n_cut] = LEN;
            for (int i = 0, first = (int)(next() % (unsigned)n_cut); i < n_cut; i++) {
                const int p = (first + i) % n_cut;
                memcpy(part, whole, size);
                meta_superblock_mask(type, part, cuts[p], cuts[p + 1]);
                meta_superblock_join(type, joined, part, cuts[p], cuts[p + 1]);
            }
            if (memcmp(joined, whole, size) != 0)
                fail_msg("%s: %d parts do not make the block again", tdm_type_name(type), n_cut);
        }
    }
}

/* Without its last part the block is another one: the comparison above can fail. */
static void test_join_is_needed(void **context) {
    (void)context;
    for (int t = 0; t < N_TYPE; t++) {
        const size_t size = tdm_type_row_size(types[t], LEN);
        uint16_t whole[MAX_SIZE / 2], joined[MAX_SIZE / 2];
        block_fill(types[t], whole);
        for (size_t i = 0; i < MAX_SIZE / 2; i++) joined[i] = (uint16_t)~whole[i];
        meta_superblock_join(types[t], joined, whole, 0, LEN - UNIT);
        assert_memory_not_equal(joined, whole, size);
    }
}

/* Superblocks of grid points and of trits cannot be cut either: no value of a scale means 0. */
static void test_others_are_not_cut(void **context) {
    (void)context;
    for (int type = 0; type < TDM_TYPE_LIMIT_; type++) {
        bool is_listed = false;
        for (int t = 0; t < N_TYPE; t++) is_listed = is_listed || (int)types[t] == type;
        assert_true(meta_superblock_is_cuttable((tdm_type)type) == is_listed);
    }
}

int main(void) {
    random_begin("superblock");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mask),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_join_is_needed),
        cmocka_unit_test(test_others_are_not_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
