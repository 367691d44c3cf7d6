/* SPDX-License-Identifier: MIT
 *
 * apertus.c: Apertus, with xIELU (arXiv:2411.13010) between the matrices of a dense block. Swiss AI
 * (arXiv:2509.14233).
 */
#include <math.h>

#include "llm/arch/families.h"

/* Keys of one layer; the activation has the softplus of the two alphas. */
static bool xielu_of(const llm_gguf *gguf, int32_t layer, llm_xielu *x, float *eps) {
    const llm_key_reader r = {.gguf = gguf, .arch = "xielu"};
    float n = 0, p = 0;
    bool is_good = llm_key_layer_float(&r, "alpha_n", layer, &n) &&
                   llm_key_layer_float(&r, "alpha_p", layer, &p) &&
                   llm_key_layer_float(&r, "beta", layer, &x->beta) &&
                   llm_key_layer_float(&r, "eps", layer, eps);
    x->alpha_n = x->beta + log1pf(expf(n));
    x->alpha_p = log1pf(expf(p));
    return is_good && isfinite(x->alpha_n) && isfinite(x->alpha_p);
}

/* The activation has exp(min(x, eps)) with eps near 0. It is computed with eps 0, so that files
 * with a larger eps are refused. */
static void apertus_read(llm_key_reader *r, llm_hparams *h) {
    for (int32_t i = 0; i < h->n_layer && r->status == TDM_OK; i++) {
        llm_xielu x = {0};
        float eps = 0;
        if (!xielu_of(r->gguf, i, &x, &eps) || !(fabsf(eps) <= 1e-5f))
            r->status = tdm_fail(r->err, TDM_DATA_LOSS,
                                 "%s: keys 'xielu.alpha_n', 'alpha_p', 'beta' and 'eps' have no "
                                 "finite numbers for layer %d, with eps in -1e-5 to 1e-5",
                                 llm_gguf_name(r->gguf), i);
    }
}

static void apertus_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                          llm_layer_spec *spec) {
    float eps = 0;
    (void)h;
    if (!xielu_of(gguf, layer, &spec->xielu, &eps)) spec->xielu = (llm_xielu){0};
}

const llm_arch llm_arch_apertus = {
    .name = "apertus",
    .families = "Apertus",
    .keys = LLM_KEY_ATTN_SCALE,
    LLM_PRE_NORMS,
    LLM_HEAD_NORMS,
    .rope = TDM_ROPE_HALVES,
    .ffn = LLM_FFN_PLAIN,
    .read = apertus_read,
    .layer = apertus_layer,
};
