/* SPDX-License-Identifier: MIT
 *
 * prompt.c: see prompt.h.
 */
#include "llm/prompt.h"

#include <stdlib.h>

size_t llm_prompt_encoded(const llm_model *model, const int32_t *ids, size_t n) {
    size_t i = 0;
    if (model->hparams.n_layer_encoder == 0) return 0;
    while (i < n && ids[i] != model->hparams.decoder_start) i++;
    return i;
}

tdm_status llm_prompt_end(const llm_model *model, const llm_vocab *vocab, int32_t **ids, size_t *n,
                          tdm_error *err) {
    if (model->hparams.n_layer_encoder == 0 || llm_prompt_encoded(model, *ids, *n) < *n)
        return TDM_OK;
    int32_t *grown = realloc(*ids, (*n + 2) * sizeof *grown);
    if (grown == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a prompt of %zu tokens", *n);
    *ids = grown;
    if (llm_vocab_adds_eos(vocab)) grown[(*n)++] = llm_vocab_eos(vocab);
    grown[(*n)++] = model->hparams.decoder_start;
    return TDM_OK;
}
