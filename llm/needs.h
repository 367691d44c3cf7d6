/* SPDX-License-Identifier: MIT
 *
 * needs.h: lists what a model file needs and this build does not support: its architecture,
 * tensors, types, tokenizer, chat template. It uses the tables and checks with which a model is
 * opened.
 */
#ifndef LLM_NEEDS_H
#define LLM_NEEDS_H

#include "llm/gguf/gguf.h"

typedef enum llm_need_kind {
    LLM_NEED_ARCH,      /* no table of this architecture */
    LLM_NEED_TYPE,      /* tensors have a type that this build cannot read */
    LLM_NEED_TENSOR,    /* no block reads tensors of this name */
    LLM_NEED_MODEL,     /* opening the model fails */
    LLM_NEED_TOKENIZER, /* text cannot be encoded; token ids can be used */
    LLM_NEED_TEMPLATE,  /* the chat template does not render a short conversation */
} llm_need_kind;

typedef struct llm_need {
    llm_need_kind kind;
    /* ARCH: the architecture; TENSOR: the tensors' name without "blk.N."; TYPE: the type's number
     * in the file; other kinds: "". After 100 names of a kind, "others" counts all further ones. */
    char name[96];
    uint32_t n_tensor;                   /* tensors with this type or name; 0 for other kinds */
    char reason[TDM_ERROR_MESSAGE_SIZE]; /* one line: what fails */
} llm_need;

typedef struct llm_needs {
    llm_need *needs; /* [n], in the order of the kinds */
    size_t n;
    bool can_run; /* nothing is missing but a tokenizer or a template */
} llm_needs;

/* Finds what is missing for the model in the file at `path`, which is open as `gguf`. Fails only
 * with TDM_RESOURCE_EXHAUSTED; *out is empty then. The caller frees it with llm_needs_free.
 * [setup] */
tdm_status llm_needs_find(const llm_gguf *gguf, const char *path, llm_needs *out, tdm_error *err);

/* Frees the list and leaves an empty one. */
void llm_needs_free(llm_needs *needs);

/* "architecture", "type", "tensor", "model", "tokenizer", "template". [any-thread] */
const char *llm_need_kind_name(llm_need_kind kind);

/* What would mend a need of this kind, as a phrase for messages. [any-thread] */
const char *llm_need_remedy(llm_need_kind kind);

#endif
