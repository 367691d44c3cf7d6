/* SPDX-License-Identifier: MIT
 *
 * fuzz_server.c: the first byte chooses what the rest is: the body of a request, or the text of a
 * model that is parsed for reasoning and calls. A body is refused in one line, or its fields are
 * within their ranges. A text gives the same parts whole and in pieces.
 */
#include <stdlib.h>
#include <string.h>

#include "server/api/state.h"
#include "server/grammar/grammar.h"
#include "tests/fuzz/fuzz.h"

static llm_model model;
static server_model served = {
    .name = "m", .model = &model, .tpl_text = "", .stop = "", .n_running = 4};
static server_api api;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static llm_vocab_str tokens[] = {{"<unk>", 5}, {"<s>", 3}, {"</s>", 4}, {"a", 1}};
    llm_vocab_params params = llm_vocab_params_default();
    (void)argc;
    (void)argv;
    params.model = "llama";
    params.tokens = tokens;
    params.n_token = 4;
    llm_vocab *vocab = NULL;
    FUZZ_DEMAND(llm_vocab_create(&params, &vocab, NULL) == TDM_OK, "no vocabulary");
    model.hparams.n_vocab = 4;
    served.vocab = vocab;
    return 0;
}

static void failure_check(tdm_status status, const tdm_error *err) {
    FUZZ_DEMAND(status == TDM_OK || (err->message[0] != '\0' && strchr(err->message, '\n') == NULL),
                "a message must be one line: '%s'", err->message);
}

/* A grammar is another target's. */
static void body_read(const char *text, size_t len) {
    json_t *body = NULL;
    tdm_error err = {0};
    tdm_status status = api_body_parse(text, len, false, &body, &err);
    failure_check(status, &err);
    if (status != TDM_OK) return;
    const api_context c = {.api = &api, .model = &served, .body = body};
    api_settings settings;
    api_chat chat = {0};
    api_settings_default(&c, &settings);
    status = api_settings_read(&c, body, &settings, &err);
    failure_check(status, &err);
    FUZZ_DEMAND(status != TDM_OK ||
                    (settings.n >= 1 && settings.n <= 4 && settings.max_tokens >= 0 &&
                     settings.sampler.temp >= 0 && settings.n_bias <= ANSWER_BIAS_MAX &&
                     settings.n_stop <= REPLY_N_STOP_MAX),
                "a field is out of its range");
    for (int32_t i = 0; i < settings.n_bias && status == TDM_OK; i++)
        FUZZ_DEMAND(settings.bias[i].token >= 0 && settings.bias[i].token < 4,
                    "bias of a token that is none");
    llm_sampler *sampler = NULL;
    FUZZ_DEMAND(status != TDM_OK ||
                    llm_sampler_create(&settings.sampler, 4, 16, &sampler, &err) == TDM_OK,
                "the sampler refuses what the fields of a request allow: %s", err.message);
    llm_sampler_destroy(sampler);
    status = api_chat_read(body, &chat, &err);
    failure_check(status, &err);
    if (status == TDM_OK && chat.tools != NULL) {
        json_t *schema = api_call_schema(REPLY_HERMES, chat.tools, true);
        FUZZ_DEMAND(schema != NULL, "no schema of calls");
        json_decref(schema);
    }
    if (api_get(body, "prompt") != NULL)
        failure_check(api_prompt_add(&c, api_get(body, "prompt"), true, &settings, &err), &err);
    api_chat_clear(&chat);
    api_settings_clear(&settings);
    json_decref(body);
}

static void part_take(void *user, reply_piece piece, const char *text, size_t len) {
    static reply_piece last;
    api_buffer *parts = user;
    const char mark = (char)(1 + piece);
    if (parts->len == 0 || piece != last || piece == REPLY_CALL) api_buffer_add(parts, &mark, 1);
    last = piece;
    api_buffer_add(parts, text, len);
}

static void text_parse(unsigned choice, const char *text, size_t len, size_t step,
                       api_buffer *parts) {
    const reply_parser_params params = {
        .family = (reply_family)(choice % 8),
        .parses_calls = (choice & 8) != 0,
        .parses_reasoning = (choice & 16) != 0,
        .is_reasoning = (choice & 32) != 0,
        .take = part_take,
        .user = parts,
    };
    reply_parser *parser = reply_parser_create(&params);
    for (size_t at = 0; at < len; at += step)
        reply_parser_push(parser, text + at, step < len - at ? step : len - at);
    reply_parser_end(parser);
    reply_parser_destroy(parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const char *text = (const char *)data + 1;
    const size_t len = size - 1;
    if ((data[0] & 64) != 0) {
        body_read(text, len);
        return 0;
    }
    api_buffer whole = {0}, pieces = {0};
    text_parse(data[0], text, len, len + 1, &whole);
    text_parse(data[0], text, len, 1 + data[0] / 32u, &pieces);
    FUZZ_DEMAND(whole.len == pieces.len &&
                    (whole.len == 0 || memcmp(whole.data, pieces.data, whole.len) == 0),
                "pieces give other parts than the whole text");
    api_buffer_clear(&whole);
    api_buffer_clear(&pieces);
    return 0;
}
