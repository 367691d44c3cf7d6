/* SPDX-License-Identifier: MIT
 *
 * adapter.c: the adapters of a model. Reading their files: adapter_load.c.
 */
#include "llm/adapter.h"

#include <stdlib.h>

uint32_t llm_adapters_all(const llm_model *m) {
    return m->n_adapter > 0 ? UINT32_MAX >> (32 - m->n_adapter) : 0;
}

float llm_adapter_factor(const llm_adapter *a) {
    return a->alpha != 0 ? a->alpha / (float)a->rank : 1.0f;
}

void llm_adapters_free(llm_model *m) {
    for (int32_t i = 0; i < m->n_adapter; i++) {
        llm_gguf_close(m->adapters[i].gguf);
        free(m->adapters[i].pair);
        free(m->adapters[i].halves);
    }
    free(m->adapters);
    m->adapters = NULL;
    m->n_adapter = 0;
}
