/* SPDX-License-Identifier: MIT
 *
 * needs.c: see needs.h.
 */
#include "llm/needs.h"

#include <stdlib.h>
#include <string.h>

#include "llm/arch/arch.h"
#include "llm/model.h"
#include "llm/template/template.h"

static const struct {
    const char *name, *remedy;
} kinds[] = {
    [LLM_NEED_ARCH] =
        {"architecture",
         "a table of the architecture in llm/arch, and blocks in llm/block for what it "
         "computes"},
    [LLM_NEED_TYPE] = {"type", "a conversion of the file to a supported type, or a row in "
                               "TDM_TYPE_LIST with its kernels"},
    [LLM_NEED_TENSOR] = {"tensor",
                         "a role in llm/arch/role.c, and a block in llm/block that reads it"},
    [LLM_NEED_MODEL] = {"model",
                        "a file that is whole and of this architecture, or support for what "
                        "the message names"},
    [LLM_NEED_TOKENIZER] = {"tokenizer",
                            "a file with a whole tokenizer of a supported kind, or a row in "
                            "llm/tokenizer/vocab_kind.c or pretokenizer_table.c; token ids work"},
    [LLM_NEED_TEMPLATE] = {"template", "another template, by the option 'template'"},
};

const char *llm_need_kind_name(llm_need_kind kind) {
    return kinds[kind].name;
}

const char *llm_need_remedy(llm_need_kind kind) {
    return kinds[kind].remedy;
}

void llm_needs_free(llm_needs *needs) {
    free(needs->needs);
    *needs = (llm_needs){0};
}

/* Copies a text as one line. */
static void line_copy(char *out, size_t size, const char *text, size_t len) {
    if (len >= size) len = size - 1;
    memcpy(out, text, len);
    out[len] = '\0';
    for (char *c = out; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = '?';
}

/* Names of one kind that are listed one by one. A file may have a million: all further ones are
 * counted together, under the name OTHERS. */
#define NAMES_MAX 100
#define OTHERS    "others"

/* The need of this kind and name, a new one if there is none yet; NULL without memory. All needs of
 * one kind must be added before those of the next: OTHERS is found as the last entry. */
static llm_need *need_add(llm_needs *all, llm_need_kind kind, const char *name, size_t len,
                          tdm_error *err) {
    char line[sizeof all->needs->name];
    size_t n_name = 0;
    line_copy(line, sizeof line, name, len);
    for (size_t i = 0; i < all->n; i++) {
        if (all->needs[i].kind != kind) continue;
        if (strcmp(all->needs[i].name, line) == 0) return &all->needs[i];
        n_name++;
    }
    if (n_name > NAMES_MAX) return &all->needs[all->n - 1];
    if (n_name == NAMES_MAX) line_copy(line, sizeof line, OTHERS, sizeof OTHERS - 1);
    llm_need *grown = realloc(all->needs, (all->n + 1) * sizeof *grown);
    if (grown == NULL) {
        tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a list of what a file needs");
        return NULL;
    }
    all->needs = grown;
    llm_need *need = &all->needs[all->n++];
    *need = (llm_need){.kind = kind};
    memcpy(need->name, line, sizeof line);
    return need;
}

static tdm_status message_add(llm_needs *all, llm_need_kind kind, const char *name, size_t len,
                              const char *reason, tdm_error *err) {
    llm_need *need = need_add(all, kind, name, len, err);
    if (need == NULL) return TDM_RESOURCE_EXHAUSTED;
    line_copy(need->reason, sizeof need->reason, reason, strlen(reason));
    return TDM_OK;
}

/* The name without "blk.N.". For a tensor that T5 files name differently, the name of its role in
 * llm/arch/role.c. */
static const char *tensor_suffix(const char *name) {
    const bool is_t5 = strncmp(name, "enc.blk.", 8) == 0 || strncmp(name, "dec.blk.", 8) == 0;
    const char *first = is_t5 ? name + 4 : name;
    const char *suffix;
    if (llm_tensor_layer(first, &suffix) < 0) return name;
    const bool is_out = is_t5 && strcmp(suffix, "attn_o.weight") == 0;
    return is_out ? llm_role_get(LLM_ROLE_ATTN_OUT)->suffix : suffix;
}

/* Whether a role has this suffix. A few converters leave out ".weight": then without it. */
static bool has_role(const char *suffix) {
    const size_t len = strlen(suffix);
    for (int role = LLM_ROLE_NONE + 1; role < LLM_ROLE_COUNT_; role++) {
        const char *known = llm_role_get((llm_role)role)->suffix;
        if (known != NULL && strncmp(known, suffix, len) == 0 &&
            (known[len] == 0 || strcmp(known + len, ".weight") == 0))
            return true;
    }
    return false;
}

static tdm_status arch_check(const llm_gguf *gguf, llm_needs *all, const llm_arch **arch,
                             tdm_error *err) {
    llm_gguf_str text = {"", 0};
    char name[64];
    tdm_error inner = {0};
    tdm_status status =
        llm_gguf_get_str(gguf, "general.architecture", LLM_GGUF_REQUIRED, &text, &inner);
    line_copy(name, sizeof name, text.ptr, text.len);
    if (status == TDM_OK) status = llm_arch_find(name, arch, &inner);
    if (status == TDM_OK) return TDM_OK;
    return message_add(all, LLM_NEED_ARCH, name, strlen(name), inner.message, err);
}

static tdm_status types_check(const llm_gguf *gguf, llm_needs *all, tdm_error *err) {
    for (uint32_t i = 0; i < llm_gguf_tensor_count(gguf); i++) {
        const llm_gguf_tensor *tensor = llm_gguf_tensor_at(gguf, i);
        if (tensor->data != NULL) continue;
        char name[32];
        snprintf(name, sizeof name, "%u", (unsigned)tensor->type_raw);
        llm_need *need = need_add(all, LLM_NEED_TYPE, name, strlen(name), err);
        if (need == NULL) return TDM_RESOURCE_EXHAUSTED;
        if (need->n_tensor++ == 0)
            snprintf(need->reason, sizeof need->reason,
                     "type %u of tensor '%.80s' is unknown to this build",
                     (unsigned)tensor->type_raw, tensor->name);
    }
    return TDM_OK;
}

static tdm_status tensors_check(const llm_gguf *gguf, const llm_arch *arch, llm_needs *all,
                                tdm_error *err) {
    for (uint32_t i = 0; i < llm_gguf_tensor_count(gguf); i++) {
        const llm_gguf_tensor *tensor = llm_gguf_tensor_at(gguf, i);
        const char *suffix = tensor_suffix(tensor->name);
        if (llm_tensor_is_scale(gguf, tensor->name, ".scale") ||
            llm_tensor_is_scale(gguf, tensor->name, ".input_scale"))
            continue;
        if (has_role(suffix) || (arch != NULL && llm_arch_is_harmless(arch, tensor->name)))
            continue;
        llm_need *need = need_add(all, LLM_NEED_TENSOR, suffix, strlen(suffix), err);
        if (need == NULL) return TDM_RESOURCE_EXHAUSTED;
        if (need->n_tensor++ == 0)
            snprintf(need->reason, sizeof need->reason, "no block reads tensor '%.80s'",
                     tensor->name);
    }
    return TDM_OK;
}

/* Opens the model, which checks what no table shows: keys, shapes, missing tensors. The need's
 * reason is the first failure. */
static tdm_status model_check(const char *path, llm_needs *all, tdm_error *err) {
    llm_model *model = NULL;
    tdm_error inner = {0};
    const tdm_status status = llm_model_open(path, &model, &inner);
    llm_model_close(model);
    return status == TDM_OK ? TDM_OK : message_add(all, LLM_NEED_MODEL, "", 0, inner.message, err);
}

static tdm_status tokenizer_check(const llm_gguf *gguf, llm_needs *all, tdm_error *err) {
    llm_vocab *vocab = NULL;
    tdm_error inner = {0};
    const tdm_status status = llm_vocab_from_gguf(gguf, &vocab, &inner);
    llm_vocab_destroy(vocab);
    return status == TDM_OK ? TDM_OK
                            : message_add(all, LLM_NEED_TOKENIZER, "", 0, inner.message, err);
}

static tdm_status template_check(const llm_gguf *gguf, llm_needs *all, tdm_error *err) {
    static const char context[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"bos_token\": \"\", "
        "\"eos_token\": \"\", \"add_generation_prompt\": true}";
    llm_gguf_str text = {NULL, 0};
    tdm_error inner = {0};
    llm_template *tpl = NULL;
    char *shown = NULL;
    size_t n;
    tdm_status status =
        llm_gguf_get_str(gguf, "tokenizer.chat_template", LLM_GGUF_OPTIONAL, &text, &inner);
    if (status == TDM_OK && text.len == 0) return TDM_OK;
    if (status == TDM_OK)
        status = llm_template_create("tokenizer.chat_template", text.ptr, text.len, &tpl, &inner);
    if (status == TDM_OK)
        status = llm_template_render(tpl, context, sizeof context - 1, 0, &shown, &n, &inner);
    free(shown);
    llm_template_destroy(tpl);
    return status == TDM_OK ? TDM_OK
                            : message_add(all, LLM_NEED_TEMPLATE, "", 0, inner.message, err);
}

tdm_status llm_needs_find(const llm_gguf *gguf, const char *path, llm_needs *out, tdm_error *err) {
    const llm_arch *arch = NULL;
    *out = (llm_needs){0};
    tdm_status status = arch_check(gguf, out, &arch, err);
    if (status == TDM_OK) status = types_check(gguf, out, err);
    if (status == TDM_OK) status = tensors_check(gguf, arch, out, err);
    /* If something is missing already, opening would only report it again. */
    if (status == TDM_OK && out->n == 0) status = model_check(path, out, err);
    out->can_run = out->n == 0;
    if (status == TDM_OK) status = tokenizer_check(gguf, out, err);
    if (status == TDM_OK) status = template_check(gguf, out, err);
    if (status != TDM_OK) llm_needs_free(out);
    return status;
}
