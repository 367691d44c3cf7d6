/* SPDX-License-Identifier: MIT
 *
 * state.h: what the API consists of, for the files of server/api alone.
 */
#ifndef TANDEM_SERVER_API_STATE_H
#define TANDEM_SERVER_API_STATE_H

#include "server/api/answer.h"

#define KEY_HASH_SIZE 32 /* bytes of SHA-256 */

struct server_api {
    server_api_params params;
    unsigned char *key_hashes; /* [n_key][KEY_HASH_SIZE] */
    char **origins, **hosts;
    const server_http *http;
    api_pool *readers;        /* prepare requests */
    api_pool *compilers;      /* compile their grammars */
    api_pool *large_compiler; /* the same, one thread, for large ones */
    api_pool *writers;        /* write replies */
    int64_t started;          /* seconds since 1970 */
    pthread_mutex_t lock;
    api_answer *answers; /* guarded by lock */
    int n_active;        /* guarded by lock: requests in preparation and answers */
    bool is_draining;    /* atomic */
    bool is_stopping;    /* atomic: requests in preparation are refused */
    bool is_settling;    /* atomic: answers end without being written */
};

/* A request in preparation. */
typedef struct api_context {
    server_api *api;
    server_exchange *x;
    int32_t model_index;       /* that the request names; -1 = the route has none */
    const server_model *model; /* the reference is the caller's; NULL = the route needs none open */
    json_t *body; /* an object, or an array (api_route.takes_array); NULL = the request has none */
    api_shape shape;
} api_context;

typedef tdm_status (*api_handler)(api_context *c, tdm_error *err);

/* The family of a model's calls, by its template. [any-thread] */
reply_family api_family(const server_model *model);

/* ---- The model of a request ---- */

/* The number of a name; "" is the first model's, and so is any where there is one model. TDM_NOT_FOUND
 * lists the names. [any-thread] */
tdm_status api_model_find(const server_api *api, const char *name, int32_t *index_out,
                          tdm_error *err);
/* The same of the argument `model`; -1 = all, where it names none. [any-thread] */
tdm_status api_model_argument(const api_context *c, int32_t *index_out, tdm_error *err);

/* ---- access.c ---- */

/* Whether the request may be served; if not, it has been replied to. Sets CORS headers. */
bool api_access_check(server_api *api, server_exchange *x, bool is_public, api_shape shape);
tdm_status api_access_create(server_api *api, const server_api_params *params, tdm_error *err);
void api_access_destroy(server_api *api);
/* Numbers by which the engine tells clients apart: of the key, or else of the address. */
uint64_t api_access_client(const server_exchange *x);
/* 0 where the request has no key. */
uint64_t api_access_scope(const server_exchange *x);

/* ---- settings.c ---- */

/* Reads the fields that all APIs share under OpenAI's and llama-server's names into the settings,
 * which hold the defaults before. */
void api_settings_default(const api_context *c, api_settings *settings);
tdm_status api_settings_read(const api_context *c, const json_t *body, api_settings *settings,
                             tdm_error *err);
/* response_format, json_schema and grammar. Their texts are only kept: api_submit has them compiled. */
tdm_status api_format_read(const api_context *c, const json_t *body, api_settings *settings,
                           tdm_error *err);
tdm_status api_grammar_schema(const api_context *c, const json_t *schema, api_settings *settings,
                              tdm_error *err);
/* GBNF, which is taken over. */
tdm_status api_grammar_text(const api_context *c, char *text, api_settings *settings,
                            tdm_error *err);
tdm_status api_stops_read(const json_t *value, const char *name, api_settings *settings,
                          tdm_error *err);
/* Compiles the grammar of settings, which may take seconds, and computes its first mask. Where calls
 * of tools cannot be constrained, they are not. */
tdm_status api_grammar_compile(const server_api *api, const server_model *model,
                               api_settings *settings, tdm_error *err);
/* The constraint of settings with a compiled grammar; its state is new. */
tdm_status api_constraint_make(const server_model *model, const api_settings *settings,
                               llm_constraint *out, tdm_error *err);

/* ---- calls.c ---- */

/* Whether the calls of a family have a grammar: all but REPLY_PLAIN. [any-thread] */
bool api_call_has_grammar(reply_family family);
/* Whether they are JSON objects, which api_call_schema is for. [any-thread] */
bool api_call_is_json(reply_family family);
/* The text behind which the grammar of a call begins. [any-thread] */
const char *api_call_behind(reply_family family);
/* The JSON Schema of a call of one of the tools (in OpenAI's form): a new object, NULL = no memory.
 * Where is_tolerant, a tool whose own schema is not supported takes any object. [any-thread] */
json_t *api_call_schema(reply_family family, const json_t *tools, bool is_tolerant);
/* GBNF of what follows the text that opens a call, up to the end of the call, or (is_whole) of a call
 * with that text. Unless `answer` is NULL, a text of that schema may stand in its place. The caller
 * frees *text_out. [any-thread] */
tdm_status api_call_text(const server_model *model, reply_family family, const json_t *tools,
                         const json_t *answer, bool is_tolerant, bool is_whole, char **text_out,
                         tdm_error *err);
/* The grammar of what follows the text that opens a call, up to the end of the call. [any-thread] */
tdm_status api_call_grammar(const server_model *model, reply_family family, const json_t *tools,
                            struct grammar **out, tdm_error *err);

/* ---- lora.c ---- */

/* Reads [{"id": number of an adapter, "scale": number}]; adapters that it does not name have 0.
 * scales_out[LLM_MAX_ADAPTERS]. */
tdm_status api_scales_read(const server_model *model, const json_t *list, float *scales_out,
                           tdm_error *err);

/* ---- samplers.c ---- */

/* Reads the fields of the sampler; those that are missing stay. */
tdm_status api_samplers_read(const api_context *c, const json_t *body, api_settings *settings,
                             tdm_error *err);
/* The same fields, but seed and breakers, of a sampler: a new object. */
json_t *api_samplers_json(const llm_sampler_params *sampler);

/* ---- prompt.c ---- */

typedef struct api_chat {
    json_t *messages;     /* in OpenAI's form; owned */
    json_t *tools;        /* in OpenAI's form; NULL = none; owned */
    json_t *options;      /* more variables of the template; NULL = none; owned */
    const json_t *choice; /* tool_choice; borrowed */
    bool continues_final; /* the last message is the beginning of the answer */
    bool is_closed;       /* the assistant's turn is not opened */
} api_chat;
void api_chat_clear(api_chat *chat);
/* Reads messages, tools, tool_choice and the template's options of OpenAI's chat request. */
tdm_status api_chat_read(const json_t *body, api_chat *chat, tdm_error *err);
/* Renders the template. The caller frees *text_out. */
tdm_status api_chat_render(const api_context *c, api_chat *chat, char **text_out, size_t *len_out,
                           tdm_error *err);
/* The same as tokens, into the settings; and what the answer is parsed for. */
tdm_status api_chat_settings(const api_context *c, api_chat *chat, api_settings *settings,
                             tdm_error *err);
/* Adds a prompt: text, or an array of ids and texts. */
tdm_status api_prompt_add(const api_context *c, const json_t *prompt, bool adds_special,
                          api_settings *settings, tdm_error *err);

/* The texts of embeddings, with all tokens that the model adds. */
tdm_status api_inputs_add(const api_context *c, const json_t *input, api_settings *settings,
                          tdm_error *err);

/* A text that is scored beside a query, as a prompt; both are JSON strings. */
tdm_status api_pair_add(const api_context *c, const json_t *query, const json_t *text,
                        api_settings *settings, tdm_error *err);

/* ---- infill.c ---- */

/* Adds the prompt for the text between `before` `line` and `behind`, cut so that it fits the context
 * beside the answer; `files` (NULL = none) is llama-server's input_extra. TDM_UNSUPPORTED where the
 * model has no tokens for it. To settings without a prompt. */
tdm_status api_infill_add(const api_context *c, const json_t *files, const char *before,
                          const char *line, const char *behind, api_settings *settings,
                          tdm_error *err);
/* The same from the fields of /infill. */
tdm_status api_infill_read(const api_context *c, api_settings *settings, tdm_error *err);

/* ---- Handlers ---- */

tdm_status api_chat_completions(api_context *c, tdm_error *err);
tdm_status api_completions(api_context *c, tdm_error *err);
tdm_status api_fim_completions(api_context *c, tdm_error *err);
tdm_status api_responses(api_context *c, tdm_error *err);
tdm_status api_embeddings(api_context *c, tdm_error *err);
tdm_status api_rerank(api_context *c, tdm_error *err);
tdm_status api_models(api_context *c, tdm_error *err);
tdm_status api_models_load(api_context *c, tdm_error *err);
tdm_status api_models_unload(api_context *c, tdm_error *err);
tdm_status api_messages(api_context *c, tdm_error *err);
tdm_status api_count_tokens(api_context *c, tdm_error *err);
tdm_status api_ollama_chat(api_context *c, tdm_error *err);
tdm_status api_ollama_generate(api_context *c, tdm_error *err);
tdm_status api_ollama_embed(api_context *c, tdm_error *err);
tdm_status api_ollama_embeddings(api_context *c, tdm_error *err);
tdm_status api_ollama_tags(api_context *c, tdm_error *err);
tdm_status api_ollama_show(api_context *c, tdm_error *err);
tdm_status api_ollama_ps(api_context *c, tdm_error *err);
tdm_status api_ollama_version(api_context *c, tdm_error *err);
tdm_status api_llama_completion(api_context *c, tdm_error *err);
tdm_status api_llama_infill(api_context *c, tdm_error *err);
tdm_status api_tokenize(api_context *c, tdm_error *err);
tdm_status api_detokenize(api_context *c, tdm_error *err);
tdm_status api_apply_template(api_context *c, tdm_error *err);
tdm_status api_lora_get(api_context *c, tdm_error *err);
tdm_status api_lora_set(api_context *c, tdm_error *err);
tdm_status api_health(api_context *c, tdm_error *err);
tdm_status api_props(api_context *c, tdm_error *err);
tdm_status api_slots(api_context *c, tdm_error *err);
tdm_status api_metrics(api_context *c, tdm_error *err);
tdm_status api_page(api_context *c, tdm_error *err);

/* Replies to a request that failed before it was submitted. */
void api_fail_reply(server_exchange *x, api_shape shape, tdm_status status, const char *message);
/* Adds n to the requests in preparation and answers. */
void api_active_add(server_api *api, int n);

/* ---- submit.c ---- */

/* Submits the settings, which it empties; where they have a grammar, another thread compiles that
 * before, so that it holds up no other request, and replies to what fails. An engine that refuses is
 * replied to with its status and Retry-After. Takes `text` over. */
tdm_status api_submit(api_context *c, const api_dialect *dialect, const char *id_prefix,
                      api_settings *settings, char *text, tdm_error *err);

#endif
