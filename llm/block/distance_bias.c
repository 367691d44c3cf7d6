/* SPDX-License-Identifier: MIT
 *
 * distance_bias.c: what attention adds to its scores for the distance between two tokens (block.h),
 * as T5 has it (Raffel et al., arXiv:1910.10683, section 2.1): files have a number for each head
 * and range of distances; the op reads one for each distance. Layers without numbers of their own
 * have those of the first.
 */
#include <math.h>
#include <stdlib.h>

#include "quant/convert.h"
#include "llm/arch/arch.h"
#include "llm/block/block.h"

/* The range of a distance: first those of tokens before, then of those behind. Of each half the
 * first half holds one distance each; the others grow with the logarithm, up to LLM_FAR_DISTANCE.
 * A decoder has all of them for tokens before, and sees none behind. */
static int32_t range_of(int32_t distance, int32_t n_range, bool is_decoder) {
    if (is_decoder && distance > 0) return 0;
    const int32_t n = is_decoder ? n_range : n_range / 2, n_exact = n / 2, size = abs(distance);
    const int32_t first = distance > 0 ? n : 0;
    if (size < n_exact) return first + size;
    const float log_size = logf((float)((double)size / n_exact)) * (float)(n - n_exact);
    const double share = (double)log_size / log((double)LLM_FAR_DISTANCE / n_exact);
    const int32_t range = (int32_t)floorf((float)(n_exact + share));
    return first + (range < n - 1 ? range : n - 1);
}

void llm_declare_distance_bias(llm_declarer *d) {
    const llm_model *m = d->model;
    const int32_t n_head = m->specs[d->layer].n_head, n_range = m->hparams.n_distance_bucket;
    const llm_role role = LLM_ROLE_ATTN_DISTANCE_BIAS;
    const llm_gguf_tensor *t = llm_role_tensor(m->gguf, role, d->layer);
    const int32_t first = d->layer < m->hparams.n_layer_encoder ? 0 : m->hparams.n_layer_encoder;
    if (t == NULL) t = llm_role_tensor(m->gguf, role, first);
    if (d->status != TDM_OK) return;
    if (t == NULL || t->ne[0] != n_head || t->ne[1] != n_range || t->ne[2] != 1 || t->ne[3] != 1 ||
        tdm_row_codec_get(t->type).dequantize == NULL) {
        char name[LLM_TENSOR_NAME_SIZE];
        llm_role_name_in(m->gguf, role, first, name);
        d->status = tdm_fail(d->err, t == NULL ? TDM_NOT_FOUND : TDM_DATA_LOSS,
                             "%s: tensor '%s' is missing, or is no matrix of numbers of shape "
                             "[%d, %d]; the file is damaged or of another architecture",
                             llm_gguf_name(m->gguf), t == NULL ? name : t->name, n_head, n_range);
        return;
    }
    const bool is_decoder =
        m->hparams.n_layer_encoder > 0 && d->layer >= m->hparams.n_layer_encoder;
    float *bias = llm_declare_made(d, role); /* [LLM_N_DISTANCE, n_head] */
    float *row = malloc((size_t)n_head * sizeof *row);
    if (bias != NULL && row == NULL)
        d->status = tdm_fail(d->err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", m->path);
    for (int32_t i = 0; bias != NULL && row != NULL && i < LLM_N_DISTANCE; i++) {
        const int32_t range = range_of(i - LLM_FAR_DISTANCE, n_range, is_decoder);
        const size_t row_size = tdm_type_row_size(t->type, n_head);
        tdm_row_dequantize(t->type, (const uint8_t *)t->data + (size_t)range * row_size, row,
                           n_head);
        for (int32_t h = 0; h < n_head; h++) bias[h * LLM_N_DISTANCE + i] = row[h];
    }
    free(row);
}
