/* SPDX-License-Identifier: MIT
 *
 * fit.h: finding the scales, minimums and codes that represent numbers with the least weighted
 * squared error. Works with levels and sub-blocks; blocks_*.c pack them into bytes.
 *
 * Everything here takes finite numbers of at most a few million in magnitude and gives finite
 * numbers back; a group of zeros gets zero scales and zero codes. [any-thread]
 */
#ifndef TANDEM_BASE_FIT_H
#define TANDEM_BASE_FIT_H

#include <stdbool.h>
#include <stdint.h>

enum { TDM_FIT_MAX = 256, TDM_FIT_MAX_SUB = 16 };

/* dst[i] = src[i], NaN replaced by 0 and everything limited to -limit … limit. */
void tdm_fit_load(const float *src, float *dst, int n, float limit);

/* weights[i]: how much the squared error of x[i] counts: importance (NULL: all the same; negative
 * or not finite: 0) relative to its largest, times a factor that grows with |x[i]|, see fit.c.
 * Where all of x are 0, so are all weights. */
void tdm_fit_weigh(const float *x, const float *importance, float *weights, int n);

/* The levels that a code stands for: the integers lo … hi or, if `is_iq4`, the codebook of
 * tandem/block.h, codes then being indices into it. */
typedef struct tdm_fit_levels {
    int lo, hi;
    bool is_iq4;
} tdm_fit_levels;

/* x[i] ~ scale * level(codes[i]) for n (multiple of 8, up to 32) elements with one scale, which is
 * rounded to f16. Returns its bits. */
uint16_t tdm_fit_scale(const float *x, const float *weights, int n, tdm_fit_levels levels,
                       int8_t *codes);

/* x[i] ~ scale * codes[i] + offset, codes 0 … hi, scale and offset rounded to f16 (bits out). */
void tdm_fit_scale_offset(const float *x, const float *weights, int n, int hi, int8_t *codes,
                          uint16_t *scale_out, uint16_t *offset_out);

/* A superblock of 256 elements in sub-blocks of sub_len (16 or 32). */
typedef struct tdm_fit_super {
    uint16_t d, dmin; /* f16 bits; dmin is not used without minimums */
    int16_t scales[TDM_FIT_MAX_SUB];
    int16_t mins[TDM_FIT_MAX_SUB]; /* not used without minimums */
    int8_t codes[TDM_FIT_MAX];     /* integer levels themselves, which may be negative; of iq4
                                      indices into the codebook */
} tdm_fit_super;

/* x[i] ~ (d * scales[s]) * level(codes[i]) for 256 elements, s = i / sub_len; scales scale_lo …
 * scale_hi, scale_lo negative. */
void tdm_fit_super_scale(const float *x, const float *weights, int sub_len, tdm_fit_levels levels,
                         int scale_lo, int scale_hi, tdm_fit_super *out);

/* x[i] ~ (d * scales[s]) * codes[i] - (dmin * mins[s]) for 256 elements, s = i / sub_len; codes
 * 0 … hi, scales and mins 0 … scale_hi. */
void tdm_fit_super_scale_min(const float *x, const float *weights, int sub_len, int hi,
                             int scale_hi, tdm_fit_super *out);

#endif
