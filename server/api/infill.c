/* SPDX-License-Identifier: MIT
 *
 * infill.c: prompts for the text between two others, for models that have tokens for it:
 * llama-server's /infill (its tools/server/README.md), `suffix` of completions.
 *
 *     REPO name FILE name text FILE name text ... FILE name PREFIX before SUFFIX behind MIDDLE
 *
 * Where a model has no token REPO or FILE, the name behind it is left out; another file then begins
 * with an empty line and its name. What does not fit the context is left out as well: first the
 * other files, from the first one on, then what is farthest from the place that is filled.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/infill_tokens.h"
#include "llm/tokenizer/tokenizer.h"
#include "server/api/state.h"

/* The names of the project and of the edited file. Requests do not have them: these are
 * llama-server's. */
#define REPO_NAME "myproject"
#define FILE_NAME "filename"

/* Token ids that grow. */
typedef struct id_list {
    int32_t *ids; /* [n] */
    size_t n, size;
} id_list;

static tdm_status no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the texts of an infill");
}

static tdm_status ids_push(id_list *list, const int32_t *ids, size_t n, tdm_error *err) {
    if (list->size - list->n < n) {
        const size_t size = (list->n + n) * 2;
        int32_t *grown = realloc(list->ids, size * sizeof *grown);
        if (grown == NULL) return no_memory(err);
        list->ids = grown;
        list->size = size;
    }
    if (n > 0) memcpy(list->ids + list->n, ids, n * sizeof *ids);
    list->n += n;
    return TDM_OK;
}

/* Appends an id; nothing for LLM_TOKEN_NONE. */
static tdm_status id_push(id_list *list, int32_t id, tdm_error *err) {
    return id != LLM_TOKEN_NONE ? ids_push(list, &id, 1, err) : TDM_OK;
}

/* Appends the tokens of a text. Names of control tokens in it are text: code about models has them,
 * too. */
static tdm_status text_push(const api_context *c, id_list *list, const char *text, tdm_error *err) {
    int32_t *ids = NULL;
    size_t n = 0;
    tdm_status status = llm_tokenize(c->model->vocab, text, strlen(text), 0, &ids, &n, err);
    if (status == TDM_OK) status = ids_push(list, ids, n, err);
    free(ids);
    return status;
}

/* Appends a line with a name. */
static tdm_status name_push(const api_context *c, id_list *list, const char *name, tdm_error *err) {
    api_buffer line = {0};
    api_buffer_add(&line, name, strlen(name));
    api_buffer_add(&line, "\n", 1);
    const tdm_status status = line.is_short ? no_memory(err) : text_push(c, list, line.data, err);
    api_buffer_clear(&line);
    return status;
}

/* Appends the last n ids of a list. */
static tdm_status tail_push(id_list *list, const id_list *from, size_t n, tdm_error *err) {
    return n > 0 ? ids_push(list, from->ids + (from->n - n), n, err) : TDM_OK;
}

/* ---- The model's tokens ---- */

static tdm_status tokens_find(const api_context *c, llm_infill_tokens *tokens, tdm_error *err) {
    tdm_status status = llm_infill_tokens_read(c->model->model->gguf, c->model->vocab, tokens, err);
    if (status != TDM_OK) return status;
    const bool has[] = {tokens->prefix != LLM_TOKEN_NONE, tokens->suffix != LLM_TOKEN_NONE,
                        tokens->middle != LLM_TOKEN_NONE};
    if (has[0] && has[1] && has[2]) return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "'%s' cannot fill in text: its vocabulary has no token for%s%s%s%s%s (keys "
                    "tokenizer.ggml.fim_*_token_id); take a model that was trained for it",
                    c->model->name, has[0] ? "" : " the prefix", !has[0] && !has[1] ? "," : "",
                    has[1] ? "" : " the suffix", (!has[0] || !has[1]) && !has[2] ? "," : "",
                    has[2] ? "" : " the middle");
}

/* ---- The prompt ---- */

/* Appends the tokens before PREFIX: the project, the other files, and the name of the edited
 * one. */
static tdm_status extra_make(const api_context *c, const llm_infill_tokens *tokens,
                             const json_t *files, id_list *list, tdm_error *err) {
    tdm_status status = TDM_OK;
    size_t i;
    const json_t *file;
    if (tokens->repo != LLM_TOKEN_NONE) {
        status = id_push(list, tokens->repo, err);
        if (status == TDM_OK) status = name_push(c, list, REPO_NAME, err);
    }
    json_array_foreach(files, i, file) {
        const char *name = "tmp", *text = NULL;
        if (status == TDM_OK && !json_is_object(file))
            status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                              "'input_extra' must be an array of {\"filename\", \"text\"}");
        if (status == TDM_OK) status = api_get_string(file, "filename", &name, err);
        if (status == TDM_OK) status = api_get_string(file, "text", &text, err);
        if (status == TDM_OK && text == NULL)
            status = tdm_fail(err, TDM_INVALID_ARGUMENT, "input_extra[%zu] has no 'text'", i);
        if (status != TDM_OK) return status;
        const bool has_token = tokens->file != LLM_TOKEN_NONE;
        status = has_token ? id_push(list, tokens->file, err) : text_push(c, list, "\n\n", err);
        if (status == TDM_OK) status = name_push(c, list, name, err);
        if (status == TDM_OK) status = text_push(c, list, text, err);
    }
    if (status == TDM_OK && tokens->file != LLM_TOKEN_NONE) {
        status = id_push(list, tokens->file, err);
        if (status == TDM_OK) status = name_push(c, list, FILE_NAME, err);
    }
    return status;
}

/* Lowers the sizes of the three parts so that they fit the room. The extra part loses tokens first,
 * then suffix and prefix: the suffix keeps up to a quarter of the room, the prefix up to three
 * quarters, and either gets what the other does not need. */
static void parts_fit(size_t room, size_t *extra, size_t *prefix, size_t *suffix) {
    const size_t quarter = room / 4;
    if (*prefix + *suffix > room) {
        const size_t rest = room - (*prefix < room - quarter ? *prefix : room - quarter);
        if (*suffix > rest) *suffix = rest;
        *prefix = room - *suffix;
    }
    const size_t left = room - *prefix - *suffix;
    if (*extra > left) *extra = left;
}

/* Tokens of the prompt's texts that the context has room for, beside the answer's. */
static size_t room_find(const api_context *c, const api_settings *settings) {
    const size_t n_ctx =
        c->model->engine != NULL ? (size_t)server_engine_n_ctx(c->model->engine) : 0;
    size_t answer = settings->max_tokens > 0 ? (size_t)settings->max_tokens : n_ctx / 4;
    if (answer > n_ctx / 2) answer = n_ctx / 2;
    /* three tokens around the parts, the one that begins a text, and one place: a prompt is shorter
     * than the context */
    const size_t n_marker = 5;
    return n_ctx > answer + n_marker ? n_ctx - answer - n_marker : 0;
}

static tdm_status parts_join(const api_context *c, const llm_infill_tokens *tokens,
                             const id_list *extra, const id_list *prefix, const id_list *suffix,
                             api_settings *settings, tdm_error *err) {
    size_t n_extra = extra->n, n_prefix = prefix->n, n_suffix = suffix->n;
    id_list all = {0};
    tdm_status status = TDM_OK;
    parts_fit(room_find(c, settings), &n_extra, &n_prefix, &n_suffix);
    if (llm_vocab_adds_bos(c->model->vocab))
        status = id_push(&all, llm_vocab_bos(c->model->vocab), err);
    if (status == TDM_OK) status = tail_push(&all, extra, n_extra, err);
    if (status == TDM_OK) status = id_push(&all, tokens->prefix, err);
    if (status == TDM_OK) status = tail_push(&all, prefix, n_prefix, err);
    if (status == TDM_OK) status = id_push(&all, tokens->suffix, err);
    if (status == TDM_OK) status = ids_push(&all, suffix->ids, n_suffix, err);
    if (status == TDM_OK) status = id_push(&all, tokens->middle, err);
    if (status != TDM_OK) {
        free(all.ids);
        return status;
    }
    settings->prompts[settings->n_prompt] = all.ids; /* it is the first prompt, so there is room */
    settings->prompt_lens[settings->n_prompt++] = (int32_t)all.n;
    return TDM_OK;
}

tdm_status api_infill_add(const api_context *c, const json_t *files, const char *before,
                          const char *line, const char *behind, api_settings *settings,
                          tdm_error *err) {
    llm_infill_tokens tokens;
    id_list extra = {0}, prefix = {0}, suffix = {0};
    tdm_status status = tokens_find(c, &tokens, err);
    if (status == TDM_OK) status = extra_make(c, &tokens, files, &extra, err);
    if (status == TDM_OK) status = text_push(c, &prefix, before, err);
    if (status == TDM_OK) status = text_push(c, &prefix, line, err);
    if (status == TDM_OK) status = text_push(c, &suffix, behind, err);
    if (status == TDM_OK) status = parts_join(c, &tokens, &extra, &prefix, &suffix, settings, err);
    free(extra.ids);
    free(prefix.ids);
    free(suffix.ids);
    return status;
}

tdm_status api_infill_read(const api_context *c, api_settings *settings, tdm_error *err) {
    const char *before = NULL, *behind = NULL, *line = "";
    json_t *files = NULL;
    tdm_status status = api_get_string(c->body, "input_prefix", &before, err);
    if (status == TDM_OK) status = api_get_string(c->body, "input_suffix", &behind, err);
    if (status == TDM_OK) status = api_get_string(c->body, "prompt", &line, err);
    if (status == TDM_OK) status = api_get_array(c->body, "input_extra", &files, err);
    if (status != TDM_OK) return status;
    if (before == NULL || behind == NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'%s' is missing",
                        before == NULL ? "input_prefix" : "input_suffix");
    return api_infill_add(c, files, before, line, behind, settings, err);
}
