/* SPDX-License-Identifier: MIT
 *
 * position.h: how ATTENTION's scores depend on positions (op.h, tdm_attention_params): which
 * positions a token sees, the slopes of ALiBi, the temperature. Parameters were verified. For the
 * plain code and the emitters of plugins; certify has formulas of its own. All [any-thread].
 */
#ifndef TANDEM_BASE_POSITION_H
#define TANDEM_BASE_POSITION_H

#include <math.h>
#include <stdint.h>

#include "tandem/op.h"

/* The first position that a token at `pos` sees, by the window alone. */
static inline int64_t tdm_window_first(const tdm_attention_params *p, int64_t pos) {
    if (p->window <= 0) return 0;
    if (p->window_kind == TDM_WINDOW_CHUNKED) return pos / p->window * p->window;
    int64_t first =
        p->window_kind == TDM_WINDOW_SYMMETRIC ? pos - p->window / 2 : pos - p->window + 1;
    return first > 0 ? first : 0;
}

/* The last position that it sees, by the window and causality; INT32_MAX = all later ones. */
static inline int64_t tdm_window_last(const tdm_attention_params *p, int64_t pos) {
    if (p->is_causal != 0) return pos;
    if (p->window <= 0 || p->window_kind != TDM_WINDOW_SYMMETRIC) return INT32_MAX;
    return pos + p->window / 2;
}

/* The slope of absolute head `head`; 0 without ALiBi. */
static inline float tdm_alibi_slope(const tdm_attention_params *p, int32_t head) {
    int32_t n = 1;
    if (!(p->alibi_max_bias > 0)) return 0;
    while (n <= p->n_head_all / 2) n *= 2;
    return head < n ? exp2f(-p->alibi_max_bias * (float)(head + 1) / (float)n)
                    : exp2f(-p->alibi_max_bias / 2 * (float)(2 * (head - n) + 1) / (float)n);
}

/* t(pos); 1 without a temperature. */
static inline float tdm_attention_temperature(const tdm_attention_params *p, int64_t pos) {
    if (p->temperature_scale == 0 || pos < 0) return 1;
    int64_t step = (pos + p->temperature_offset) / p->temperature_length;
    return 1 + p->temperature_scale * logf((float)(1 + step));
}

#endif
