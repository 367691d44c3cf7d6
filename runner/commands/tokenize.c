/* SPDX-License-Identifier: MIT
 *
 * tokenize.c: `tandem tokenize`: text to tokens, and back with --decode. Reads only the
 * vocabulary of the model: files without weights and of unknown architectures work too.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/tokenizer.h"
#include "llm/tokenizer/utf8.h"
#include "runner/prompt.h"

/* Prints bytes between quotes, with escapes for control characters, quotes and bytes that are not
 * UTF-8, so that every token takes one line. */
static void piece_print(FILE *out, llm_vocab_str piece) {
    fputc('\'', out);
    for (size_t i = 0; i < piece.len;) {
        unsigned char c = (unsigned char)piece.ptr[i];
        size_t n;
        bool is_whole = llm_utf8_begin(piece.ptr + i, piece.len - i, &n) == LLM_UTF8_WHOLE;
        if (c == '\n')
            fputs("\\n", out);
        else if (c == '\r')
            fputs("\\r", out);
        else if (c == '\t')
            fputs("\\t", out);
        else if (c == '\'' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f || !is_whole)
            fprintf(out, "\\x%02x", c);
        else
            fwrite(piece.ptr + i, 1, n, out);
        i += is_whole ? n : 1;
    }
    fputc('\'', out);
}

static void tokens_print(runner_app *app, const llm_vocab *vocab, const int32_t *ids, size_t n) {
    bool only_ids = runner_config_get_bool(app->config, "ids");
    int width = snprintf(NULL, 0, "%" PRId32, llm_vocab_n_token(vocab) - 1);
    for (size_t i = 0; i < n; i++) {
        if (only_ids) {
            fprintf(app->out, "%s%" PRId32, i > 0 ? "," : "", ids[i]);
            continue;
        }
        fprintf(app->out, "%*" PRId32 " ", width, ids[i]);
        piece_print(app->out, llm_vocab_token_bytes(vocab, ids[i]));
        fputc('\n', app->out);
    }
    if (only_ids) fputc('\n', app->out);
    if (runner_config_get_bool(app->config, "show-count")) fprintf(app->out, "%zu tokens\n", n);
}

static tdm_status encode(runner_app *app, const llm_vocab *vocab, tdm_error *err) {
    char *text = NULL;
    int32_t *ids = NULL;
    size_t len = 0, n = 0;
    unsigned flags = 0;
    if (runner_config_get_bool(app->config, "bos")) flags |= LLM_TOKENIZE_ADD_SPECIAL;
    if (runner_config_get_bool(app->config, "parse-special")) flags |= LLM_TOKENIZE_PARSE_SPECIAL;
    tdm_status status = runner_prompt_read(app, &text, &len, err);
    if (status == TDM_OK) status = llm_tokenize(vocab, text, len, flags, &ids, &n, err);
    if (status == TDM_OK) tokens_print(app, vocab, ids, n);
    free(ids);
    free(text);
    return status;
}

static tdm_status decode(runner_app *app, const llm_vocab *vocab, size_t n, tdm_error *err) {
    char *text = NULL;
    size_t len = 0;
    unsigned flags = runner_config_get_bool(app->config, "special") ? LLM_DETOKENIZE_SPECIAL : 0u;
    int32_t *ids = malloc(n * sizeof *ids);
    if (ids == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for %zu tokens", n);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)runner_config_get_int_at(app->config, "decode", i);
    tdm_status status = runner_config_check(app->config, err);
    if (status == TDM_OK) status = llm_detokenize(vocab, ids, n, flags, &text, &len, err);
    if (status == TDM_OUT_OF_RANGE) {
        const tdm_error why = *err;
        status =
            runner_config_fail(app->config, "decode", TDM_INVALID_ARGUMENT, err, "%s", why.message);
    }
    if (status == TDM_OK) {
        fwrite(text, 1, len, app->out);
        if (len == 0 || text[len - 1] != '\n') fputc('\n', app->out);
    }
    free(text);
    free(ids);
    return status;
}

static bool is_text_given(runner_config *config) {
    return runner_config_get_origin(config, "prompt").level == RUNNER_LEVEL_FLAG ||
           runner_config_get_origin(config, "file").level == RUNNER_LEVEL_FLAG;
}

static tdm_status tokenize_command(runner_app *app, tdm_error *err) {
    const char *path = runner_config_get_string(app->config, "model");
    size_t n_decode = runner_config_get_count(app->config, "decode");
    llm_gguf *gguf = NULL;
    llm_vocab *vocab = NULL;
    tdm_status status = runner_config_check(app->config, err);
    if (status == TDM_OK && path[0] == '\0')
        status = runner_usage(app, err, "no model given: use -m MODEL.gguf");
    if (status == TDM_OK && n_decode == 0 &&
        runner_config_get_origin(app->config, "decode").level == RUNNER_LEVEL_FLAG)
        status = runner_usage(app, err, "no tokens given: use --decode 1,2,3 or --decode @FILE");
    if (status == TDM_OK && n_decode > 0 && is_text_given(app->config))
        status =
            runner_usage(app, err, "--decode gives tokens, -p and -f a text: give one of them");
    if (status == TDM_OK) status = llm_gguf_open(path, &gguf, err);
    if (status == TDM_OK) status = llm_vocab_from_gguf(gguf, &vocab, err);
    if (status == TDM_OK)
        status = n_decode > 0 ? decode(app, vocab, n_decode, err) : encode(app, vocab, err);
    if (status == TDM_OK) status = runner_config_check(app->config, err);
    llm_vocab_destroy(vocab);
    llm_gguf_close(gguf);
    return status;
}

static const runner_key own_keys[] = {
    {.topic = "Only tokenize",
     .name = "decode",
     .type = RUNNER_KEY_INTS,
     .default_value = "",
     .value_name = "ID,ID,...",
     .max = RUNNER_KEY_INT_MAX,
     .traits = RUNNER_KEY_REPEATABLE | RUNNER_KEY_AT_FILE,
     .help = "print the text of these token ids, or of those in @FILE"},
    {.topic = "Only tokenize",
     .name = "ids",
     .type = RUNNER_KEY_BOOL,
     .default_value = "no",
     .help = "print only the ids, as a list for --tokens"},
    {.topic = "Only tokenize",
     .name = "bos",
     .type = RUNNER_KEY_BOOL,
     .default_value = "yes",
     .help = "add the tokens that the model requires at the beginning and the end of a text"},
    {.topic = "Only tokenize",
     .name = "parse-special",
     .type = RUNNER_KEY_BOOL,
     .default_value = "yes",
     .help = "read the names of special tokens in the text as these tokens"},
    {.topic = "Only tokenize",
     .name = "show-count",
     .type = RUNNER_KEY_BOOL,
     .default_value = "no",
     .help = "print the number of tokens"},
};

const runner_command runner_command_tokenize = {
    .name = "tokenize",
    .summary = "show the tokens of a text",
    .run = tokenize_command,
    .keys = RUNNER_KEYS_EVERY " model prompt file escape special",
    .own_keys = own_keys,
    .n_own_key = sizeof own_keys / sizeof own_keys[0],
};
