/* SPDX-License-Identifier: MIT
 *
 * noise_file.c: see noise_file.h.
 */
#include "tests/model/noise_file.h"

#include <string.h>

#include "llm/gguf/gguf.h"
#include "llm/gguf/gguf_write.h"
#include "tests/model/rig.h"
#include "tests/support/random.h"

static bool is_changed(const llm_gguf_tensor *t, bool has_embd) {
    const size_t len = strlen(t->name);
    if (t->type != TDM_TYPE_F32) return false;
    if (has_embd) return strcmp(t->name, "token_embd.weight") == 0;
    return len > 12 && strcmp(t->name + len - 12, "_norm.weight") == 0;
}

static void changed_write(llm_gguf_writer *w, const llm_gguf_tensor *t, double strength,
                          uint64_t *random) {
    tdm_error err = {0};
    const size_t n = t->size / sizeof(float);
    float *x = malloc(t->size);
    assert_non_null(x);
    memcpy(x, t->data, t->size);
    for (size_t i = 0; i < n; i++)
        x[i] *= (float)(1 + strength * ((double)random_u32_below(random, 2000001) / 1e6 - 1));
    RIG_OK(llm_gguf_writer_write(w, x, t->size, &err));
    free(x);
}

void noise_file_write(const char *from, const char *to, double strength, int seed) {
    uint64_t random = (uint64_t)seed;
    llm_gguf *g = NULL;
    llm_gguf_writer *w = NULL;
    tdm_error err = {0};
    int n_changed = 0;
    RIG_OK(llm_gguf_open(from, &g, &err));
    RIG_OK(llm_gguf_writer_create(to, &w, &err));
    for (uint32_t i = 0; i < llm_gguf_key_count(g); i++)
        llm_gguf_writer_put_key(w, llm_gguf_key_at(g, i));
    const uint32_t n = llm_gguf_tensor_count(g);
    for (uint32_t i = 0; i < n; i++) {
        const llm_gguf_tensor *t = llm_gguf_tensor_at(g, i);
        llm_gguf_writer_add_tensor(w, t->name, t->type, t->n_dims, t->ne);
    }
    const llm_gguf_tensor *embd = llm_gguf_tensor_find(g, "token_embd.weight");
    const bool has_embd = embd != NULL && embd->type == TDM_TYPE_F32;
    for (uint32_t i = 0; i < n; i++) {
        const llm_gguf_tensor *t = llm_gguf_tensor_at(g, i);
        if (!is_changed(t, has_embd)) {
            RIG_OK(llm_gguf_writer_write(w, t->data, t->size, &err));
            continue;
        }
        changed_write(w, t, strength, &random);
        n_changed++;
    }
    RIG_OK(llm_gguf_writer_finish(w, &err));
    llm_gguf_writer_destroy(w);
    llm_gguf_close(g);
    assert_true(n_changed > 0);
}
