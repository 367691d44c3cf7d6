/* SPDX-License-Identifier: MIT
 *
 * changed_model.c: see changed_model.h.
 */
#include "tests/model/changed_model.h"

#include "llm/gguf/gguf_write.h"
#include "tests/model/rig.h"

static void name_make(const llm_gguf *g, const char *suffix, char name_out[80]) {
    tdm_error err = {0};
    llm_gguf_str arch;
    RIG_OK(llm_gguf_get_str(g, "general.architecture", LLM_GGUF_REQUIRED, &arch, &err));
    snprintf(name_out, 80, "%.*s.%s", (int)arch.len, arch.ptr, suffix);
}

/* Begins the copy with all keys but one. */
static llm_gguf_writer *copy_begin(const llm_gguf *g, const char *path, const char *without) {
    tdm_error err = {0};
    llm_gguf_writer *w = NULL;
    RIG_OK(llm_gguf_writer_create(path, &w, &err));
    for (uint32_t i = 0; i < llm_gguf_key_count(g); i++) {
        const llm_gguf_key *key = llm_gguf_key_at(g, i);
        if (llm_gguf_key_find(g, without) != key) llm_gguf_writer_put_key(w, key);
    }
    return w;
}

/* Adds the tensors, and ends the copy. One more of f32 has the name `tensor`; NULL = none. */
static void copy_end_with(const llm_gguf *g, llm_gguf_writer *w, const char *tensor,
                          const float *numbers, int64_t n_number) {
    tdm_error err = {0};
    const uint32_t n = llm_gguf_tensor_count(g);
    const int64_t ne[TDM_MAX_DIMS] = {n_number, 1, 1, 1};
    for (uint32_t i = 0; i < n; i++) {
        const llm_gguf_tensor *t = llm_gguf_tensor_at(g, i);
        llm_gguf_writer_add_tensor(w, t->name, t->type, t->n_dims, t->ne);
    }
    if (tensor != NULL) llm_gguf_writer_add_tensor(w, tensor, TDM_TYPE_F32, 1, ne);
    for (uint32_t i = 0; i < n; i++) {
        const llm_gguf_tensor *t = llm_gguf_tensor_at(g, i);
        RIG_OK(llm_gguf_writer_write(w, t->data, t->size, &err));
    }
    if (tensor != NULL)
        RIG_OK(llm_gguf_writer_write(w, numbers, (size_t)n_number * sizeof *numbers, &err));
    RIG_OK(llm_gguf_writer_finish(w, &err));
    llm_gguf_writer_destroy(w);
}

static void copy_end(const llm_gguf *g, llm_gguf_writer *w) {
    copy_end_with(g, w, NULL, NULL, 0);
}

const char *changed_model_add(const char *from, const char *name, const char *tensor,
                              const float *numbers, int64_t n) {
    const char *path = rig_file(name);
    llm_gguf *g = NULL;
    tdm_error err = {0};
    RIG_OK(llm_gguf_open(from, &g, &err));
    copy_end_with(g, copy_begin(g, path, ""), tensor, numbers, n);
    llm_gguf_close(g);
    return path;
}

void changed_model_write(const llm_gguf *g, const char *path, const char *suffix,
                         changed_value value) {
    char name[80];
    name_make(g, suffix, name);
    llm_gguf_writer *w = copy_begin(g, path, name);
    if (!value.is_absent && value.type == LLM_GGUF_U32)
        llm_gguf_writer_put_u32(w, name, value.number);
    else if (!value.is_absent && value.type == LLM_GGUF_BOOL)
        llm_gguf_writer_put_bool(w, name, value.number != 0);
    else if (!value.is_absent && value.type == LLM_GGUF_F32)
        llm_gguf_writer_put_f32(w, name, value.real);
    else if (!value.is_absent)
        llm_gguf_writer_put_text(w, name, value.text);
    copy_end(g, w);
}

const char *changed_model_copy(const char *from, const char *name, const char *suffix,
                               changed_value value) {
    const char *path = rig_file(name);
    llm_gguf *g = NULL;
    tdm_error err = {0};
    RIG_OK(llm_gguf_open(from, &g, &err));
    changed_model_write(g, path, suffix, value);
    llm_gguf_close(g);
    return path;
}

void changed_model_write_ids(const llm_gguf *g, const char *path, const char *name,
                             const int32_t *ids, size_t n) {
    llm_gguf_writer *w = copy_begin(g, path, name);
    llm_gguf_writer_put_array(w, name, LLM_GGUF_I32, ids, n);
    copy_end(g, w);
}
