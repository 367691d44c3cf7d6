/* SPDX-License-Identifier: MIT
 *
 * prompt.c: from messages and texts to tokens: OpenAI's messages in the form that templates read,
 * the template, the tokenizer. What the answer is parsed for follows from the template, too.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llm/tokenizer/tokenizer.h"
#include "llm/prompt.h"
#include "llm/score.h"
#include "server/api/state.h"
#include "server/json/json_load.h"

void api_chat_clear(api_chat *chat) {
    json_decref(chat->messages);
    json_decref(chat->tools);
    json_decref(chat->options);
    *chat = (api_chat){0};
}

/* ---- Messages ---- */

static tdm_status no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the messages");
}

/* Copies the calls of an assistant's message, with their arguments as JSON, as most templates read
 * them, instead of a string. */
static tdm_status calls_copy(const json_t *calls, json_t *message, tdm_error *err) {
    size_t i;
    const json_t *one;
    json_t *copies = json_array();
    if (!json_is_array(calls)) {
        json_decref(copies);
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'tool_calls' must be an array");
    }
    json_array_foreach(calls, i, one) {
        json_t *copy = json_deep_copy(one), *function = json_object_get(copy, "function");
        const char *text = json_string_value(json_object_get(function, "arguments"));
        json_array_append_new(copies, copy);
        if (!json_is_string(json_object_get(function, "name"))) {
            json_decref(copies);
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "an entry of 'tool_calls' has no function with a name");
        }
        json_t *arguments = text != NULL && text[0] != '\0'
                                ? server_json_load(text, strlen(text), JSON_DECODE_ANY, NULL)
                                : NULL;
        if (text != NULL && text[0] == '\0') arguments = json_object();
        if (arguments != NULL) json_object_set_new(function, "arguments", arguments);
    }
    json_object_set_new(message, "tool_calls", copies);
    return TDM_OK;
}

static tdm_status message_copy(const json_t *one, json_t *messages, tdm_error *err) {
    static const char *const others[] = {"name", "tool_call_id", "reasoning_content"};
    const char *role = NULL;
    char *text = NULL;
    if (!json_is_object(one))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "an entry of 'messages' is no object");
    tdm_status status = api_get_string(one, "role", &role, err);
    if (status == TDM_OK && role == NULL)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "an entry of 'messages' has no 'role'");
    if (status == TDM_OK) status = api_content_text(json_object_get(one, "content"), &text, err);
    if (status != TDM_OK) return status;
    /* OpenAI's newer name of the same role */
    if (strcmp(role, "developer") == 0) role = "system";
    json_t *message = json_pack("{s:s, s:s}", "role", role, "content", text);
    free(text);
    if (message == NULL || json_array_append_new(messages, message) != 0) return no_memory(err);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (json_is_string(json_object_get(one, others[i])))
            json_object_set(message, others[i], json_object_get(one, others[i]));
    const json_t *calls = api_get(one, "tool_calls");
    return calls != NULL && json_array_size(calls) > 0 ? calls_copy(calls, message, err) : TDM_OK;
}

/* Copies the tools. A null description is left out; missing parameters become an object
 * without properties. */
static tdm_status tools_copy(const json_t *tools, api_chat *chat, tdm_error *err) {
    size_t i;
    json_t *one;
    chat->tools = json_deep_copy(tools);
    if (chat->tools == NULL) return no_memory(err);
    json_array_foreach(chat->tools, i, one) {
        json_t *function = json_object_get(one, "function");
        const char *type = json_string_value(json_object_get(one, "type"));
        if (type != NULL && strcmp(type, "function") != 0)
            return tdm_fail(err, TDM_UNSUPPORTED,
                            "tools[%zu] has type '%s': only functions are supported", i, type);
        if (!json_is_string(json_object_get(function, "name")))
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "tools[%zu] has no function with a name", i);
        if (json_is_null(json_object_get(function, "description")))
            json_object_del(function, "description");
        if (!json_is_object(json_object_get(function, "parameters")))
            json_object_set_new(function, "parameters",
                                json_pack("{s:s, s:{}}", "type", "object", "properties"));
    }
    return TDM_OK;
}

tdm_status api_chat_read(const json_t *body, api_chat *chat, tdm_error *err) {
    json_t *messages = NULL, *tools = NULL, *options = NULL;
    const char *effort = NULL;
    bool opens = true;
    size_t i;
    const json_t *one;
    tdm_status status = api_get_array(body, "messages", &messages, err);
    if (status == TDM_OK && json_array_size(messages) == 0)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "'messages' is missing or empty");
    if (status == TDM_OK && (chat->messages = json_array()) == NULL) status = no_memory(err);
    if (status == TDM_OK)
        json_array_foreach(messages, i, one) if (status == TDM_OK) status =
            message_copy(one, chat->messages, err);
    if (status == TDM_OK) status = api_get_array(body, "tools", &tools, err);
    if (status == TDM_OK && json_array_size(tools) > 0) status = tools_copy(tools, chat, err);
    if (status == TDM_OK) status = api_get_object(body, "chat_template_kwargs", &options, err);
    if (status == TDM_OK) status = api_get_string(body, "reasoning_effort", &effort, err);
    if (status == TDM_OK) status = api_get_bool(body, "add_generation_prompt", &opens, err);
    if (status == TDM_OK)
        status = api_get_bool(body, "continue_final_message", &chat->continues_final, err);
    if (status != TDM_OK) return status;
    if (options != NULL || effort != NULL)
        chat->options = options != NULL ? json_deep_copy(options) : json_object();
    if (effort != NULL) json_object_set_new(chat->options, "reasoning_effort", json_string(effort));
    chat->choice = api_get(body, "tool_choice");
    chat->is_closed = !opens;
    return TDM_OK;
}

/* ---- The template ---- */

static tdm_status render(const api_context *c, const api_chat *chat, json_t *messages,
                         char **text_out, size_t *len_out, tdm_error *err) {
    json_t *variables = chat->options != NULL ? json_deep_copy(chat->options) : json_object();
    const bool opens = !chat->continues_final && !chat->is_closed;
    json_object_set(variables, "messages", messages);
    json_object_set_new(variables, "add_generation_prompt", json_boolean(opens));
    json_object_set_new(variables, "bos_token", json_string(c->model->bos));
    json_object_set_new(variables, "eos_token", json_string(c->model->eos));
    if (chat->tools != NULL) json_object_set(variables, "tools", chat->tools);
    char *json = json_dumps(variables, JSON_COMPACT);
    json_decref(variables);
    if (json == NULL) return no_memory(err);
    tdm_status status = llm_template_render(c->model->tpl, json, strlen(json), (int64_t)time(NULL),
                                            text_out, len_out, err);
    free(json);
    return status;
}

/* The messages with the arguments of calls as strings. A new array. */
static json_t *with_string_arguments(const json_t *messages) {
    json_t *copies = json_deep_copy(messages), *message, *call;
    size_t i, k;
    json_array_foreach(copies, i, message) {
        json_array_foreach(json_object_get(message, "tool_calls"), k, call) {
            json_t *function = json_object_get(call, "function");
            json_t *arguments = json_object_get(function, "arguments");
            char *text = json_is_string(arguments) || arguments == NULL
                             ? NULL
                             : json_dumps(arguments, JSON_ENCODE_ANY);
            if (text != NULL) json_object_set_new(function, "arguments", json_string(text));
            free(text);
        }
    }
    return copies;
}

/* Sets the content of a message to a text that was joined, where there is one, and clears the text.
 * Returns false where memory ran out for it. */
static bool text_take(json_t *message, api_buffer *text) {
    const bool is_whole =
        !text->is_short &&
        (text->len == 0 || json_object_set_new(message, "content", api_buffer_json(text)) == 0);
    api_buffer_clear(text);
    return is_whole;
}

/* The messages in the form that strict templates read, as a new array: one system message, at the
 * beginning, and no two user messages in a row. Later system messages become user messages.
 * Messages of the same role in a row are joined with an empty line between. NULL = no memory. */
static json_t *with_joined_messages(const json_t *messages) {
    json_t *joined = json_array(), *last = NULL;
    const json_t *message;
    const char *before = NULL;
    api_buffer text = {0}; /* of `last`, where it joins several messages */
    bool is_whole = true;
    size_t i;
    json_array_foreach(messages, i, message) {
        const char *role = json_string_value(json_object_get(message, "role"));
        const json_t *content = json_object_get(message, "content");
        if (strcmp(role, "system") == 0 && before != NULL && strcmp(before, "system") != 0)
            role = "user";
        if (before != NULL && strcmp(before, role) == 0 &&
            (strcmp(role, "user") == 0 || strcmp(role, "system") == 0)) {
            const json_t *first = json_object_get(last, "content");
            if (text.len == 0)
                api_buffer_add(&text, json_string_value(first), json_string_length(first));
            api_buffer_add(&text, "\n\n", 2);
            api_buffer_add(&text, json_string_value(content), json_string_length(content));
            continue;
        }
        is_whole = text_take(last, &text);
        last = json_copy((json_t *)(uintptr_t)message);
        is_whole = json_array_append_new(joined, last) == 0 && is_whole &&
                   json_object_set_new(last, "role", json_string(role)) == 0;
        if (!is_whole) break; /* `last` may be freed */
        before = role;
    }
    if (is_whole && text_take(last, &text)) return joined;
    json_decref(joined);
    return NULL;
}

static bool has_calls(const json_t *messages) {
    size_t i;
    const json_t *message;
    json_array_foreach(messages, i,
                       message) if (json_object_get(message, "tool_calls") != NULL) return true;
    return false;
}

/* Renders the template with the arguments of calls as JSON, and, where that fails, as strings: some
 * templates append them to text. */
static tdm_status render_any(const api_context *c, const api_chat *chat, json_t *messages,
                             char **text_out, size_t *len_out, tdm_error *err) {
    tdm_status status = render(c, chat, messages, text_out, len_out, err);
    if (status == TDM_OK || !has_calls(messages)) return status;
    json_t *copies = with_string_arguments(messages);
    if (copies != NULL && render(c, chat, copies, text_out, len_out, NULL) == TDM_OK)
        status = TDM_OK;
    json_decref(copies);
    return status;
}

tdm_status api_chat_render(const api_context *c, api_chat *chat, char **text_out, size_t *len_out,
                           tdm_error *err) {
    if (c->model->tpl == NULL)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "model '%s' has no chat template: use /v1/completions, or start the server "
                        "with --template FILE",
                        c->model->name);
    tdm_status status = render_any(c, chat, chat->messages, text_out, len_out, err);
    if (status != TDM_OK) {
        /* agents send later system messages and several user messages in a row, which some
         * templates refuse */
        json_t *joined = with_joined_messages(chat->messages);
        if (joined == NULL) status = no_memory(err);
        if (json_array_size(joined) > 0 && !json_equal(joined, chat->messages) &&
            render_any(c, chat, joined, text_out, len_out, NULL) == TDM_OK)
            status = TDM_OK;
        json_decref(joined);
    }
    if (status != TDM_OK || !chat->continues_final) return status;
    /* the turn stays open: cut off what the template writes behind the last message's text */
    const json_t *last = json_array_get(chat->messages, json_array_size(chat->messages) - 1);
    const char *content = json_string_value(json_object_get(last, "content"));
    char *found = NULL;
    if (content != NULL && content[0] != '\0')
        for (char *at = strstr(*text_out, content); at != NULL; at = strstr(at + 1, content))
            found = at;
    if (found == NULL) {
        free(*text_out);
        *text_out = NULL;
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "the last message cannot be continued: the template changes its text");
    }
    *len_out = (size_t)(found - *text_out) + strlen(content);
    (*text_out)[*len_out] = '\0';
    return TDM_OK;
}

/* ---- Tokens ---- */

/* Adds n ids as a prompt, with the token that begins a text where wants_bos and the ids do not
 * begin with it. */
static tdm_status ids_add(const api_context *c, const int32_t *ids, size_t n, bool wants_bos,
                          api_settings *settings, tdm_error *err) {
    const int32_t bos = llm_vocab_bos(c->model->vocab);
    const bool adds_bos = bos != LLM_TOKEN_NONE && wants_bos && (n == 0 || ids[0] != bos);
    if (n + adds_bos == 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "the prompt is empty, and the model has no token to begin a text with");
    if (settings->n_prompt == ANSWER_PROMPT_MAX || n >= INT32_MAX - 2)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "a request has at most %d texts",
                        ANSWER_PROMPT_MAX);
    int32_t *tokens = malloc((n + 1) * sizeof *tokens);
    if (tokens == NULL) return no_memory(err);
    if (adds_bos) tokens[0] = bos;
    if (n > 0) memcpy(tokens + adds_bos, ids, n * sizeof *ids);
    n += adds_bos;
    const tdm_status status = llm_prompt_end(c->model->model, c->model->vocab, &tokens, &n, err);
    if (status != TDM_OK) {
        free(tokens);
        return status;
    }
    /* With an encoder, the answer does not continue the prompt's text. */
    if (c->model->model->hparams.n_layer_encoder > 0) settings->begins_text = true;
    settings->prompts[settings->n_prompt] = tokens;
    settings->prompt_lens[settings->n_prompt++] = (int32_t)n;
    return TDM_OK;
}

static tdm_status text_add(const api_context *c, const char *text, size_t len, bool adds_special,
                           api_settings *settings, tdm_error *err) {
    int32_t *ids = NULL;
    size_t n = 0;
    tdm_status status =
        llm_tokenize(c->model->vocab, text, len, LLM_TOKENIZE_PARSE_SPECIAL, &ids, &n, err);
    if (status != TDM_OK) return status;
    if (n == 0) settings->begins_text = true;
    /* an empty text becomes the token that begins one, even where the model adds none */
    const bool wants_bos = (adds_special && llm_vocab_adds_bos(c->model->vocab)) || n == 0;
    status = ids_add(c, ids, n, wants_bos, settings, err);
    free(ids);
    return status;
}

/* Adds an array of ids, or of ids and texts, as one prompt. */
static tdm_status mixed_add(const api_context *c, const json_t *prompt, bool adds_special,
                            api_settings *settings, tdm_error *err) {
    const int32_t n_vocab = c->model->model->hparams.n_vocab;
    int32_t *all = NULL;
    size_t n_all = 0, i;
    bool begins_with_text = json_is_string(json_array_get(prompt, 0));
    const json_t *one;
    tdm_status status = TDM_OK;
    if (json_array_size(prompt) == 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "an array of token ids is empty");
    json_array_foreach(prompt, i, one) {
        int32_t id = 0, *ids = NULL;
        size_t n = 1;
        if (status != TDM_OK) break;
        if (json_is_string(one)) {
            status = llm_tokenize(c->model->vocab, json_string_value(one), json_string_length(one),
                                  LLM_TOKENIZE_PARSE_SPECIAL, &ids, &n, err);
        } else if (json_is_integer(one) && json_integer_value(one) >= 0 &&
                   json_integer_value(one) < n_vocab) {
            id = (int32_t)json_integer_value(one);
        } else {
            status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                              "a prompt has an entry that is neither a text nor the id of a token "
                              "below %d",
                              (int)n_vocab);
        }
        int32_t *grown = status == TDM_OK ? realloc(all, (n_all + n + 1) * sizeof *grown) : NULL;
        if (grown != NULL) {
            all = grown;
            memcpy(all + n_all, ids != NULL ? ids : &id, n * sizeof *all);
            n_all += n;
        } else if (status == TDM_OK) {
            status = no_memory(err);
        }
        free(ids);
    }
    if (status == TDM_OK)
        status = ids_add(c, all, n_all,
                         begins_with_text && adds_special && llm_vocab_adds_bos(c->model->vocab),
                         settings, err);
    free(all);
    return status;
}

tdm_status api_prompt_add(const api_context *c, const json_t *prompt, bool adds_special,
                          api_settings *settings, tdm_error *err) {
    size_t i;
    const json_t *one;
    tdm_status status = TDM_OK;
    if (json_is_string(prompt))
        return text_add(c, json_string_value(prompt), json_string_length(prompt), adds_special,
                        settings, err);
    if (!json_is_array(prompt) || json_array_size(prompt) == 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "'prompt' must be a text, an array of token ids, or an array of those");
    bool has_id = false, is_nested = false;
    json_array_foreach(prompt, i, one) {
        has_id = has_id || json_is_integer(one);
        is_nested = is_nested || json_is_array(one);
    }
    if (has_id && !is_nested) return mixed_add(c, prompt, adds_special, settings, err);
    json_array_foreach(prompt, i, one) {
        if (status != TDM_OK) break;
        if (json_is_string(one))
            status = text_add(c, json_string_value(one), json_string_length(one), adds_special,
                              settings, err);
        else if (json_is_array(one))
            status = mixed_add(c, one, adds_special, settings, err);
        else
            status = tdm_fail(err, TDM_INVALID_ARGUMENT, "'prompt' mixes texts and token ids");
    }
    return status;
}

static tdm_status input_add(const api_context *c, const json_t *text, api_settings *settings,
                            tdm_error *err) {
    int32_t *ids = NULL;
    size_t n = 0;
    tdm_status status =
        llm_tokenize(c->model->vocab, json_string_value(text), json_string_length(text),
                     LLM_TOKENIZE_ADD_SPECIAL, &ids, &n, err);
    if (status == TDM_OK) status = ids_add(c, ids, n, false, settings, err);
    free(ids);
    return status;
}

tdm_status api_pair_add(const api_context *c, const json_t *query, const json_t *text,
                        api_settings *settings, tdm_error *err) {
    int32_t *ids = NULL;
    size_t n = 0;
    tdm_status status =
        llm_score_tokenize(c->model->model, json_string_value(query), json_string_length(query),
                           json_string_value(text), json_string_length(text), &ids, &n, err);
    if (status == TDM_OK) status = ids_add(c, ids, n, false, settings, err);
    free(ids);
    return status;
}

tdm_status api_inputs_add(const api_context *c, const json_t *input, api_settings *settings,
                          tdm_error *err) {
    size_t i;
    const json_t *one;
    tdm_status status = TDM_OK;
    if (json_is_string(input)) return input_add(c, input, settings, err);
    if (!json_is_array(input) || json_array_size(input) == 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "'input' must be a text, an array of token ids, or an array of those");
    if (!json_is_string(json_array_get(input, 0)))
        return api_prompt_add(c, input, false, settings, err);
    json_array_foreach(input, i, one) {
        if (status == TDM_OK && !json_is_string(one))
            status = tdm_fail(err, TDM_INVALID_ARGUMENT, "'input' mixes texts and token ids");
        if (status == TDM_OK) status = input_add(c, one, settings, err);
    }
    return status;
}

/* ---- Tools ---- */

/* Removes all tools but the one of that name. */
static tdm_status tool_pick(api_chat *chat, const char *name, tdm_error *err) {
    size_t i;
    json_t *one;
    json_array_foreach(chat->tools, i, one) {
        const char *found =
            json_string_value(json_object_get(json_object_get(one, "function"), "name"));
        if (found == NULL || strcmp(found, name) != 0) continue;
        json_t *only = json_pack("[O]", one);
        json_decref(chat->tools);
        chat->tools = only;
        return only != NULL ? TDM_OK : no_memory(err);
    }
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "'tool_choice' names '%s', which is no tool", name);
}

/* Makes the grammar of an answer that must call a tool: the whole answer is a call. Of families
 * whose calls are JSON it is the object alone, without the text that opens a call: call_open_add
 * puts that into the prompt, or the family needs none. */
static tdm_status call_grammar(const api_context *c, const api_chat *chat, api_settings *settings,
                               tdm_error *err) {
    const reply_family family = api_family(c->model);
    if (!api_call_has_grammar(family))
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "'tool_choice' other than auto and none is not supported for a model whose "
                        "template has no calls");
    if (!api_call_is_json(family)) {
        char *text = NULL;
        const tdm_status made =
            api_call_text(c->model, family, chat->tools, NULL, false, true, &text, err);
        return made == TDM_OK ? api_grammar_text(c, text, settings, err) : made;
    }
    json_t *schema = api_call_schema(family, chat->tools, false);
    if (schema == NULL) return no_memory(err);
    tdm_status status = api_grammar_schema(c, schema, settings, err);
    json_decref(schema);
    settings->is_call = true;
    return status;
}

/* Makes each call of an answer that may call tools follow its tool's schema, from the text that
 * opens the call on. */
static void calls_constrain(const api_context *c, const api_chat *chat, api_settings *settings) {
    const reply_family family = api_family(c->model);
    if (json_array_size(chat->tools) == 0 || settings->grammar_text != NULL ||
        c->model->grammar_vocab == NULL || !api_call_has_grammar(family))
        return;
    settings->constrains_calls = true;
    settings->grammar_behind = api_call_behind(family);
}

/* Where a request has a format and offers tools: the answer has that format, or is a call. */
static tdm_status format_or_call(const api_context *c, const api_chat *chat, api_settings *settings,
                                 tdm_error *err) {
    const reply_family family = api_family(c->model);
    char *text = NULL;
    if (json_array_size(chat->tools) == 0 || !settings->grammar_is_schema ||
        settings->grammar_text == NULL || !api_call_has_grammar(family) || family == REPLY_GPT_OSS)
        return TDM_OK;
    json_t *answer = json_loads(settings->grammar_text, JSON_DECODE_ANY, NULL);
    if (answer == NULL) return no_memory(err);
    const tdm_status status =
        api_call_text(c->model, family, chat->tools, answer, true, true, &text, err);
    json_decref(answer);
    if (status != TDM_OK) return status;
    free(settings->grammar_text);
    settings->grammar_text = text;
    settings->grammar_is_schema = false;
    return TDM_OK;
}

/* tool_choice: none, auto, required, or an object that names a function. */
static tdm_status choice_read(api_chat *chat, bool *must_call, tdm_error *err) {
    const char *word = json_string_value(chat->choice);
    *must_call = false;
    if (chat->choice == NULL) return TDM_OK;
    if (word != NULL && strcmp(word, "none") == 0) {
        json_decref(chat->tools);
        chat->tools = NULL;
        return TDM_OK;
    }
    if (word != NULL && strcmp(word, "auto") == 0) return TDM_OK;
    *must_call = true;
    if (chat->tools == NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'tool_choice' requires 'tools'");
    if (word != NULL && strcmp(word, "required") == 0) return TDM_OK;
    const json_t *function = json_object_get(chat->choice, "function");
    const char *name =
        json_string_value(json_object_get(function != NULL ? function : chat->choice, "name"));
    if (name == NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "'tool_choice' must be none, auto, required or a function with a name");
    return tool_pick(chat, name, err);
}

/* Whether the prompt ends with the text that opens reasoning, which some templates write. */
static bool ends_in_reasoning(const char *text, size_t len) {
    while (len > 0 && strchr(" \t\r\n", text[len - 1]) != NULL) len--;
    const size_t n = strlen(REPLY_THINK_OPEN);
    return len >= n && memcmp(text + len - n, REPLY_THINK_OPEN, n) == 0;
}

/* Appends the text that opens a call to a prompt whose answer must be a call (Hermes only). */
static tdm_status call_open_add(const api_context *c, char **text, size_t *len, tdm_error *err) {
    if (api_family(c->model) != REPLY_HERMES) return TDM_OK;
    const char *open = reply_family_call_open(api_family(c->model));
    const size_t n = strlen(open);
    char *grown = realloc(*text, *len + n + 2);
    if (grown == NULL) return no_memory(err);
    memcpy(grown + *len, open, n);
    memcpy(grown + *len + n, "\n", 2);
    *text = grown;
    *len += n + 1;
    return TDM_OK;
}

tdm_status api_chat_settings(const api_context *c, api_chat *chat, api_settings *settings,
                             tdm_error *err) {
    char *text = NULL;
    size_t len = 0;
    bool must_call = false;
    tdm_status status = choice_read(chat, &must_call, err);
    if (status == TDM_OK) status = api_chat_render(c, chat, &text, &len, err);
    if (status == TDM_OK) settings->is_reasoning = ends_in_reasoning(text, len);
    if (status == TDM_OK && must_call) status = call_grammar(c, chat, settings, err);
    if (status == TDM_OK && !must_call) status = format_or_call(c, chat, settings, err);
    if (status == TDM_OK && must_call && !settings->is_reasoning)
        status = call_open_add(c, &text, &len, err);
    if (status == TDM_OK) status = text_add(c, text, len, true, settings, err);
    if (status == TDM_OK) {
        const bool is_harmony = api_family(c->model) == REPLY_GPT_OSS;
        settings->is_chat = true;
        settings->tools = json_incref(chat->tools);
        settings->parses_calls = chat->tools != NULL;
        settings->parses_reasoning = settings->is_reasoning || is_harmony ||
                                     strstr(c->model->tpl_text, REPLY_THINK_OPEN) != NULL ||
                                     strstr(c->model->tpl_text, REPLY_THINK_CLOSE) != NULL;
        /* in some models the marks of calls are control tokens, which have no text otherwise */
        settings->shows_special = settings->shows_special || is_harmony || settings->parses_calls;
        if (settings->is_reasoning && settings->grammar_text != NULL)
            settings->grammar_behind = REPLY_THINK_CLOSE;
        if (!must_call) calls_constrain(c, chat, settings);
    }
    free(text);
    return status;
}
