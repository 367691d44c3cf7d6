/* SPDX-License-Identifier: MIT
 *
 * tokens.c: /tokenize, /detokenize and /apply-template of llama-server.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/tokenizer.h"
#include "server/api/state.h"

/* A token's bytes as a string, or, where they are not well-formed UTF-8, as an array of numbers. */
static json_t *piece_json(const llm_vocab *vocab, int32_t id) {
    const llm_vocab_str bytes = llm_vocab_token_bytes(vocab, id);
    json_t *piece = json_stringn(bytes.len > 0 ? bytes.ptr : "", bytes.len);
    if (piece != NULL) return piece;
    piece = json_array();
    for (size_t i = 0; i < bytes.len; i++)
        json_array_append_new(piece, json_integer((unsigned char)bytes.ptr[i]));
    return piece;
}

tdm_status api_tokenize(api_context *c, tdm_error *err) {
    const char *text = "";
    bool adds_special = false, parses_special = true, has_pieces = false;
    tdm_status status = api_get_string(c->body, "content", &text, err);
    if (status == TDM_OK) status = api_get_bool(c->body, "add_special", &adds_special, err);
    if (status == TDM_OK) status = api_get_bool(c->body, "parse_special", &parses_special, err);
    if (status == TDM_OK) status = api_get_bool(c->body, "with_pieces", &has_pieces, err);
    if (status != TDM_OK) return status;
    int32_t *ids = NULL;
    size_t n = 0;
    const unsigned flags = (adds_special ? LLM_TOKENIZE_ADD_SPECIAL : 0u) |
                           (parses_special ? LLM_TOKENIZE_PARSE_SPECIAL : 0u);
    status = llm_tokenize(c->model->vocab, text, strlen(text), flags, &ids, &n, err);
    if (status != TDM_OK) return status;
    json_t *tokens = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(tokens, has_pieces ? json_pack("{s:i, s:o}", "id", ids[i], "piece",
                                                             piece_json(c->model->vocab, ids[i]))
                                                 : json_integer(ids[i]));
    free(ids);
    api_json_reply(c->x, 200, json_pack("{s:o}", "tokens", tokens));
    return TDM_OK;
}

tdm_status api_detokenize(api_context *c, tdm_error *err) {
    json_t *tokens = NULL;
    char *text = NULL;
    size_t i, len = 0;
    const json_t *one;
    tdm_status status = api_get_array(c->body, "tokens", &tokens, err);
    const size_t n = json_array_size(tokens);
    int32_t *ids = status == TDM_OK ? malloc((n + 1) * sizeof *ids) : NULL;
    if (status == TDM_OK && ids == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for %zu tokens", n);
    if (status == TDM_OK) json_array_foreach(tokens, i, one) {
            const json_int_t id = json_is_integer(one) ? json_integer_value(one) : -1;
            if (id < 0 || id >= llm_vocab_n_token(c->model->vocab)) {
                status =
                    tdm_fail(err, TDM_INVALID_ARGUMENT, "tokens[%zu] is no id of a token below %d",
                             i, (int)llm_vocab_n_token(c->model->vocab));
                break;
            }
            ids[i] = (int32_t)id;
        }
    if (status == TDM_OK)
        status = llm_detokenize(c->model->vocab, ids, n,
                                LLM_DETOKENIZE_SPECIAL | LLM_DETOKENIZE_CONTINUE, &text, &len, err);
    if (status == TDM_OK)
        api_json_reply(c->x, 200, json_pack("{s:o}", "content", json_stringn(text, len)));
    free(text);
    free(ids);
    return status;
}

tdm_status api_apply_template(api_context *c, tdm_error *err) {
    api_chat chat = {0};
    char *text = NULL;
    size_t len = 0;
    tdm_status status = api_chat_read(c->body, &chat, err);
    if (status == TDM_OK) status = api_chat_render(c, &chat, &text, &len, err);
    if (status == TDM_OK)
        api_json_reply(c->x, 200, json_pack("{s:o}", "prompt", json_stringn(text, len)));
    api_chat_clear(&chat);
    free(text);
    return status;
}
