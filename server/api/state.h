/* SPDX-License-Identifier: MIT
 *
 * state.h: the API's state, and what its files call of each other. Only server/api includes it.
 *
 * Functions without a tag are called by the thread that prepares the request: a reader of the API,
 * or the HTTP thread where the route is immediate (api.c). Those that fail have not replied.
 */
#ifndef TANDEM_SERVER_API_STATE_H
#define TANDEM_SERVER_API_STATE_H

#include "server/api/answer.h"

#define KEY_HASH_SIZE 32 /* bytes of SHA-256 */

struct server_api {
    server_api_params params;
    unsigned char *key_hashes; /* [n_key][KEY_HASH_SIZE] */
    char **origins, **hosts;   /* as in the params, copied */
    const server_http *http;   /* NULL until server_api_set_http */
    api_pool *readers;        /* prepare requests */
    api_pool *compilers;      /* compile their grammars */
    api_pool *large_compiler; /* the same, one thread, for large ones */
    api_pool *writers;        /* write replies */
    int64_t started;          /* seconds since 1970 */
    pthread_mutex_t lock;
    api_answer *answers; /* guarded by lock: all that are not over, by next */
    int n_active;        /* guarded by lock: requests in preparation and answers */
    bool is_draining;    /* atomic */
    bool is_stopping;    /* atomic: requests in preparation are refused */
    bool is_settling;    /* atomic: answers end without being written */
};

/* A request in preparation. */
typedef struct api_context {
    server_api *api;
    server_exchange *x;
    int32_t model_index;       /* number of the model that the request names; -1 = the route has
                                  none */
    const server_model *model; /* open; the reference is the caller's. NULL = the route needs
                                  none */
    json_t *body; /* an object, or an array (api_route.takes_array); NULL = the request has none */
    api_shape shape;
} api_context;

/* Answers a request: replies, or submits it to the engine. Where it fails, it has not replied. */
typedef tdm_status (*api_handler)(api_context *c, tdm_error *err);

/* The family of a model's calls, by its template. [any-thread] */
reply_family api_family(const server_model *model);

/* ---- The model of a request ---- */

/* The number of the model of that name. "" names the first model, and so does any name where there
 * is only one. The message of TDM_NOT_FOUND lists the names. [any-thread] */
tdm_status api_model_find(const server_api *api, const char *name, int32_t *index_out,
                          tdm_error *err);
/* The number of the model that the argument `model` of the path names; -1 = it is absent, which
 * means all models. [any-thread] */
tdm_status api_model_argument(const api_context *c, int32_t *index_out, tdm_error *err);

/* ---- access.c ---- */

/* Whether the request may be served (is_public: without a key); if not, it has been replied to.
 * Adds CORS headers to the reply. [HTTP thread] */
bool api_access_check(server_api *api, server_exchange *x, bool is_public, api_shape shape);
/* Copies origins, hosts and hashes of the keys into the API; api_access_destroy frees them, also
 * after a failure. */
tdm_status api_access_create(server_api *api, const server_api_params *params, tdm_error *err);
void api_access_destroy(server_api *api);
/* The number of a client for server_request.key: from the API key, or else from the address. */
uint64_t api_access_client(const server_exchange *x);
/* The number of a client for server_request.scope: from the API key; 0 where the request has
 * none. */
uint64_t api_access_scope(const server_exchange *x);

/* ---- settings.c ---- */

/* Sets the defaults of the model, and a random seed. */
void api_settings_default(const api_context *c, api_settings *settings);
/* Reads the fields that all APIs share, under OpenAI's and llama-server's names, into settings that
 * have the defaults. It copies what it keeps of the body. */
tdm_status api_settings_read(const api_context *c, const json_t *body, api_settings *settings,
                             tdm_error *err);
/* Reads response_format, json_schema and grammar. Keeps their text in the settings, which
 * api_submit compiles. A request has at most one of them. */
tdm_status api_format_read(const api_context *c, const json_t *body, api_settings *settings,
                           tdm_error *err);
/* Sets the format of the answer: a JSON Schema. */
tdm_status api_grammar_schema(const api_context *c, const json_t *schema, api_settings *settings,
                              tdm_error *err);
/* The same: GBNF. Takes `text` over, also on failure; NULL = there was no memory for it. */
tdm_status api_grammar_text(const api_context *c, char *text, api_settings *settings,
                            tdm_error *err);
/* Adds stop strings: a string or an array of them; NULL and null = none. `name` is the field's
 * name, for messages. */
tdm_status api_stops_read(const json_t *value, const char *name, api_settings *settings,
                          tdm_error *err);
/* Compiles the grammar of the settings, which may take seconds, and computes its first mask. A
 * grammar of calls (constrains_calls) that cannot be compiled is no failure: the calls are then
 * free. */
tdm_status api_grammar_compile(const server_api *api, const server_model *model,
                               api_settings *settings, tdm_error *err);
/* Makes a constraint for one answer from settings with a compiled grammar. The caller frees its
 * state with out->destroy, or gives it to server_engine_submit. */
tdm_status api_constraint_make(const server_model *model, const api_settings *settings,
                               llm_constraint *out, tdm_error *err);

/* ---- calls.c ---- */

/* Whether the calls of a family have a grammar: all but REPLY_PLAIN. [any-thread] */
bool api_call_has_grammar(reply_family family);
/* Whether the calls of a family are JSON objects, so that api_call_schema describes them.
 * [any-thread] */
bool api_call_is_json(reply_family family);
/* The text in an answer behind which the grammar of a call begins. [any-thread] */
const char *api_call_behind(reply_family family);
/* The JSON Schema of a call of one of the tools (in OpenAI's form): a new object, NULL = no memory.
 * Where is_tolerant, a tool whose own schema is not supported takes any object. [any-thread] */
json_t *api_call_schema(reply_family family, const json_t *tools, bool is_tolerant);
/* GBNF of a call: of what follows the text that opens it, up to its end, or (is_whole) with that
 * text. Unless `answer` is NULL, a text of that JSON Schema is allowed instead of a call.
 * is_tolerant as in api_call_schema. The caller frees *text_out. [any-thread] */
tdm_status api_call_text(const server_model *model, reply_family family, const json_t *tools,
                         const json_t *answer, bool is_tolerant, bool is_whole, char **text_out,
                         tdm_error *err);
/* The compiled grammar of what follows the text that opens a call, up to the end of the call. The
 * caller releases *out with grammar_release. [any-thread] */
tdm_status api_call_grammar(const server_model *model, reply_family family, const json_t *tools,
                            struct grammar **out, tdm_error *err);

/* ---- lora.c ---- */

/* Reads [{"id": number of an adapter, "scale": number}] into scales_out [LLM_MAX_ADAPTERS].
 * Adapters that the list does not name get 0. */
tdm_status api_scales_read(const server_model *model, const json_t *list, float *scales_out,
                           tdm_error *err);

/* ---- samplers.c ---- */

/* Reads the fields of the sampler; values whose fields are missing stay. */
tdm_status api_samplers_read(const api_context *c, const json_t *body, api_settings *settings,
                             tdm_error *err);
/* The same fields of a sampler, without seed and breakers, as a new object. */
json_t *api_samplers_json(const llm_sampler_params *sampler);

/* ---- prompt.c ---- */

typedef struct api_chat {
    json_t *messages;     /* in OpenAI's form; owned */
    json_t *tools;        /* in OpenAI's form; NULL = none; owned */
    json_t *options;      /* more variables of the template; NULL = none; owned */
    const json_t *choice; /* tool_choice; borrowed from the body; NULL = none */
    bool continues_final; /* the answer continues the text of the last message */
    bool is_closed;       /* the prompt does not open the assistant's turn */
} api_chat;
/* Releases what the chat owns, and clears it. */
void api_chat_clear(api_chat *chat);
/* Reads messages, tools, tool_choice and the template's options of OpenAI's chat request. The
 * caller clears the chat, also after a failure, and keeps the body until then. */
tdm_status api_chat_read(const json_t *body, api_chat *chat, tdm_error *err);
/* Renders the model's template. The caller frees *text_out. */
tdm_status api_chat_render(const api_context *c, api_chat *chat, char **text_out, size_t *len_out,
                           tdm_error *err);
/* Renders the template and adds its tokens as a prompt; sets what the answer is parsed for and its
 * grammar of calls. tool_choice may remove tools from the chat. */
tdm_status api_chat_settings(const api_context *c, api_chat *chat, api_settings *settings,
                             tdm_error *err);
/* Adds a prompt, a text or an array of ids and texts, or several, an array of those. adds_special:
 * the token that begins a text is added where the model adds one. */
tdm_status api_prompt_add(const api_context *c, const json_t *prompt, bool adds_special,
                          api_settings *settings, tdm_error *err);

/* Adds texts or ids for embeddings, texts with all tokens that the model adds. */
tdm_status api_inputs_add(const api_context *c, const json_t *input, api_settings *settings,
                          tdm_error *err);

/* Adds a query and a text that is scored for it as one prompt; both are JSON strings. */
tdm_status api_pair_add(const api_context *c, const json_t *query, const json_t *text,
                        api_settings *settings, tdm_error *err);

/* ---- infill.c ---- */

/* Adds the prompt for the text that follows `before` and `line` and comes before `behind`, cut so
 * that prompt and answer fit the context. `files` (NULL = none) is llama-server's input_extra.
 * TDM_UNSUPPORTED where the model has no tokens for it. The settings have no prompt before. */
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

/* Submits the settings, and empties them. Where they have a grammar, another thread compiles it
 * first, so that it delays no other request; failures there become the reply. A refusal of the
 * engine becomes the reply, too, with Retry-After where its queue is full. id_prefix is that of
 * api_answer.id. Takes `text` (api_answer.text; NULL = none) over, also on failure. */
tdm_status api_submit(api_context *c, const api_dialect *dialect, const char *id_prefix,
                      api_settings *settings, char *text, tdm_error *err);

#endif
