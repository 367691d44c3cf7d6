/* SPDX-License-Identifier: MIT
 *
 * hrm.c: HRM-Text, whose two stacks of layers run in cycles (block/stacks.c).
 */
#include "llm/arch/families.h"

/* hrm.prefix_lm is not read: it says that a prompt may be marked as one whose tokens see later
 * ones, which no prompt here is. Without such marks the published code is causal, too. */
static void hrm_read(llm_key_reader *r, llm_hparams *h) {
    llm_key_int(r, "hrm.layers_per_stack", LLM_GGUF_REQUIRED, 1, LLM_MAX_LAYERS, &h->n_stack_layer);
    llm_key_int(r, "hrm.h_cycles", LLM_GGUF_REQUIRED, 1, LLM_MAX_LAYERS, &h->n_cycle_high);
    llm_key_int(r, "hrm.l_cycles", LLM_GGUF_REQUIRED, 1, LLM_MAX_LAYERS, &h->n_cycle_low);
    if (r->status != TDM_OK) return;
    h->n_layer_stored = 2 * h->n_stack_layer;
    int64_t n = (int64_t)h->n_stack_layer * h->n_cycle_high * (h->n_cycle_low + 1);
    if (n != h->n_layer)
        r->status = tdm_fail(r->err, TDM_DATA_LOSS,
                             "%s: key '%s.block_count' is %d, but %d layers in a stack and %d and "
                             "%d cycles make %lld",
                             llm_gguf_name(r->gguf), r->arch, h->n_layer, h->n_stack_layer,
                             h->n_cycle_high, h->n_cycle_low, (long long)n);
}

/* The blocks of the low stack come first in the file, then those of the high one. */
static void hrm_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                      llm_layer_spec *spec) {
    const int32_t pass = layer / h->n_stack_layer, at = layer % h->n_stack_layer;
    const bool is_high = pass % (h->n_cycle_low + 1) == h->n_cycle_low;
    (void)gguf;
    spec->weight_layer = is_high ? h->n_stack_layer + at : at;
}

const llm_arch llm_arch_hrm_text = {
    .name = "hrm_text",
    .families = "HRM-Text",
    .keys = LLM_KEY_EMBD_SCALE,
    LLM_PRE_NORMS,
    .has_bare_norms = true,
    .stream = LLM_STREAM_STACKS,
    .rope = TDM_ROPE_HALVES,
    .gate = LLM_GATE_ELEMENT,
    .act = TDM_ACT_SILU,
    .read = hrm_read,
    .layer = hrm_layer,
};
