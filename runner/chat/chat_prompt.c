/* SPDX-License-Identifier: MIT
 *
 * chat_prompt.c: see chat_prompt.h.
 */
#include "runner/chat/chat_prompt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llm/tokenizer/tokenizer.h"

#define TEMPLATE_SIZE_MAX ((size_t)16 << 20)
/* The assistant's words in a trial turn, which is rendered to find the text that follows them. */
#define PROBE "tandem-probe-7f3a"

static tdm_status no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the chat template");
}

/* Makes prompt->tpl, and prompt->source as a copy of the text. Refuses a template of white space
 * alone, which would drop the whole conversation. */
static tdm_status template_make(runner_chat_prompt *prompt, const char *name, const char *text,
                                size_t len, tdm_error *err) {
    size_t n = 0;
    while (n < len && strchr(" \t\r\n", text[n]) != NULL && text[n] != '\0') n++;
    if (n == len)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s: is empty; give a chat template with --template FILE, or continue "
                        "texts with `tandem run`",
                        name);
    const tdm_status status = llm_template_create(name, text, len, &prompt->tpl, err);
    if (status != TDM_OK) return status;
    prompt->source = strndup(text, len);
    return prompt->source != NULL ? TDM_OK : no_memory(err);
}

static tdm_status file_open(runner_chat_prompt *prompt, const char *path, tdm_error *err) {
    errno = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return tdm_fail(err, errno == ENOENT ? TDM_NOT_FOUND : TDM_IO, "%s: cannot be read: %s",
                        path, strerror(errno));
    char *text = malloc(TEMPLATE_SIZE_MAX);
    size_t len = text != NULL ? fread(text, 1, TEMPLATE_SIZE_MAX, file) : 0;
    tdm_status status;
    if (text == NULL)
        status = no_memory(err);
    else if (ferror(file) != 0)
        status = tdm_fail(err, TDM_IO, "%s: cannot be read: %s", path, strerror(errno));
    else if (len == TEMPLATE_SIZE_MAX)
        status = tdm_fail(err, TDM_OUT_OF_RANGE, "%s: longer than 16 MiB", path);
    else
        status = template_make(prompt, path, text, len, err);
    free(text);
    fclose(file);
    return status;
}

static tdm_status template_open(runner_chat_prompt *prompt, runner_app *app, const llm_model *model,
                                tdm_error *err) {
    const char *path = runner_config_get_string(app->config, "template");
    llm_gguf_str text = {NULL, 0};
    tdm_status status = runner_config_check(app->config, err);
    if (status == TDM_OK && path[0] != '\0') return file_open(prompt, path, err);
    if (status == TDM_OK)
        status =
            llm_gguf_get_str(model->gguf, "tokenizer.chat_template", LLM_GGUF_OPTIONAL, &text, err);
    if (status != TDM_OK) return status;
    if (text.ptr == NULL)
        return tdm_fail(err, TDM_NOT_FOUND,
                        "%s: carries no chat template (tokenizer.chat_template), as models that "
                        "were not trained to chat do; give one with --template FILE, or continue "
                        "texts with `tandem run`",
                        model->path);
    return template_make(prompt, "tokenizer.chat_template", text.ptr, text.len, err);
}

static char *token_text(const llm_vocab *vocab, int32_t id) {
    llm_vocab_str text = llm_vocab_token_text(vocab, id); /* empty for an id that is not a token */
    return strndup(text.len > 0 ? text.ptr : "", text.len);
}

static tdm_status render(const runner_chat_prompt *prompt, const runner_chat_history *history,
                         size_t first, bool is_open, char **text_out, size_t *len_out,
                         tdm_error *err) {
    char *json = NULL;
    tdm_status status =
        runner_chat_history_context(history, first, is_open, prompt->bos, prompt->eos, &json, err);
    if (status == TDM_OK)
        status = llm_template_render(prompt->tpl, json, strlen(json), (int64_t)time(NULL), text_out,
                                     len_out, err);
    free(json);
    return status;
}

/* Finds what ends a turn in `tail`, the text that the template writes behind the assistant's words:
 * its first token, if that is a special one; otherwise the first line of `tail`, as text. */
static tdm_status stop_take(runner_chat_prompt *prompt, const char *tail, tdm_error *err) {
    int32_t *ids = NULL;
    size_t n = 0;
    tail += strspn(tail, " \t\r\n");
    tdm_status status =
        llm_tokenize(prompt->vocab, tail, strlen(tail), LLM_TOKENIZE_PARSE_SPECIAL, &ids, &n, err);
    if (status != TDM_OK) return status;
    llm_token_type type = n > 0 ? llm_vocab_token_type(prompt->vocab, ids[0]) : LLM_TOKEN_UNDEFINED;
    if (type == LLM_TOKEN_CONTROL || type == LLM_TOKEN_USER_DEFINED) {
        prompt->stop_id = ids[0];
    } else {
        free(prompt->stop);
        prompt->stop = strndup(tail, strcspn(tail, "\r\n"));
        if (prompt->stop == NULL) status = no_memory(err);
    }
    free(ids);
    return status;
}

/* Finds what ends a turn by rendering a trial turn. If the template does not render it, only the
 * end tokens of the vocabulary end a turn. */
static tdm_status stop_find(runner_chat_prompt *prompt, tdm_error *err) {
    runner_chat_history history = {0};
    char *text = NULL;
    size_t len = 0;
    tdm_status status = runner_chat_history_add(&history, "user", "x", err);
    if (status == TDM_OK) status = runner_chat_history_add(&history, "assistant", PROBE, err);
    if (status == TDM_OK && render(prompt, &history, 0, false, &text, &len, NULL) == TDM_OK) {
        const char *found = strstr(text, PROBE);
        if (found != NULL) status = stop_take(prompt, found + strlen(PROBE), err);
    }
    free(text);
    runner_chat_history_clear(&history);
    return status;
}

tdm_status runner_chat_prompt_open(runner_chat_prompt *prompt, runner_app *app,
                                   const llm_model *model, tdm_error *err) {
    tdm_status status = llm_model_vocab(model, &prompt->vocab, err);
    prompt->stop_id = LLM_TOKEN_NONE;
    if (status == TDM_OK) status = template_open(prompt, app, model, err);
    if (status != TDM_OK) return status;
    prompt->bos = token_text(prompt->vocab, llm_vocab_bos(prompt->vocab));
    prompt->eos = token_text(prompt->vocab, llm_vocab_eos(prompt->vocab));
    prompt->stop = strdup("");
    if (prompt->bos == NULL || prompt->eos == NULL || prompt->stop == NULL) return no_memory(err);
    return stop_find(prompt, err);
}

void runner_chat_prompt_close(runner_chat_prompt *prompt) {
    llm_template_destroy(prompt->tpl);
    free(prompt->source);
    free(prompt->bos);
    free(prompt->eos);
    free(prompt->stop);
    *prompt = (runner_chat_prompt){0};
}

tdm_status runner_chat_prompt_tokens(const runner_chat_prompt *prompt,
                                     const runner_chat_history *history, size_t first, bool is_open,
                                     int32_t **tokens_out, int32_t *n_out, tdm_error *err) {
    char *text = NULL;
    int32_t *ids = NULL, *tokens = NULL;
    size_t len = 0, n = 0;
    *tokens_out = NULL;
    tdm_status status = render(prompt, history, first, is_open, &text, &len, err);
    if (status == TDM_OK)
        status = llm_tokenize(prompt->vocab, text, len, LLM_TOKENIZE_PARSE_SPECIAL, &ids, &n, err);
    free(text);
    if (status != TDM_OK) return status;
    /* most templates write the token that begins a text; for the others the tokenizer adds it */
    int32_t bos = llm_vocab_bos(prompt->vocab);
    bool adds_bos = bos != LLM_TOKEN_NONE && (n == 0 || ids[0] != bos) &&
                    (llm_vocab_adds_bos(prompt->vocab) || n == 0);
    if (n + adds_bos == 0)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "the template makes no text of this");
    else if (n >= INT32_MAX)
        status = tdm_fail(err, TDM_OUT_OF_RANGE, "the conversation has %zu tokens", n);
    else if ((tokens = malloc((n + 1) * sizeof *tokens)) == NULL)
        status = no_memory(err);
    if (status == TDM_OK) {
        if (adds_bos) tokens[0] = bos;
        memcpy(tokens + adds_bos, ids, n * sizeof *ids);
        *tokens_out = tokens;
        *n_out = (int32_t)n + adds_bos;
    }
    free(ids);
    return status;
}
