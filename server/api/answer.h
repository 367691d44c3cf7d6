/* SPDX-License-Identifier: MIT
 *
 * answer.h: an answer: one HTTP exchange and the requests of the engine (choices) that fill it.
 *
 * The engine's thread puts text into the queue of a choice (queue.c). The answer's task, which the
 * API's writers run, takes the text, parses it (reply/parse.h), and passes the pieces to a dialect,
 * which writes them in the form of an API. Where the client reads more slowly than the model
 * writes, text stays in the queue; with more than ANSWER_QUEUE_MAX bytes or ANSWER_TOKEN_MAX tokens
 * in it the choice is paused (server_engine_pause).
 *
 * The task frees the answer once the engine has ended all choices and the reply has ended.
 */
#ifndef TANDEM_SERVER_ANSWER_H
#define TANDEM_SERVER_ANSWER_H

#include <jansson.h>
#include <pthread.h>

#include "server/api/api.h"
#include "server/api/body.h"
#include "server/api/pool.h"
#include "server/reply/parse.h"
#include "server/reply/stop.h"

#define ANSWER_QUEUE_MAX ((size_t)64 << 10)
/* Tokens in a queue, of replies that show tokens: each becomes some KB of JSON. */
#define ANSWER_TOKEN_MAX  256
#define ANSWER_CHOICE_MAX 128  /* choices of a request */
#define ANSWER_PROMPT_MAX 2048 /* texts of a request for embeddings: OpenAI's limit */
#define ANSWER_TOP_MAX    20   /* most likely tokens shown with each token: OpenAI's limit */
#define ANSWER_BIAS_MAX   1024 /* tokens with a bias */

/* Bytes that grow. Cleared = empty. */
typedef struct api_buffer {
    char *data; /* [len], with a NUL behind */
    size_t len, size;
    bool is_short; /* memory ran out: bytes are missing, and the contents are not to be used */
} api_buffer;
/* Appends bytes; sets is_short where memory runs out. */
void api_buffer_add(api_buffer *buffer, const char *data, size_t len);
void api_buffer_clear(api_buffer *buffer);
/* The bytes with a NUL behind; "" where the buffer is empty. */
const char *api_buffer_text(const api_buffer *buffer);
/* The bytes as a new JSON string. */
json_t *api_buffer_json(const api_buffer *buffer);

/* A token with its probability, for replies that show them. */
typedef struct api_token {
    int32_t token;
    float logprob;
    int32_t n_top;
    server_logprob top[ANSWER_TOP_MAX];
} api_token;

/* A call of a tool. */
typedef struct api_call {
    char id[32];
    api_buffer name, arguments;
} api_call;

/* The settings of a request; the owner clears them with api_settings_clear. */
typedef struct api_settings {
    int32_t *prompts[ANSWER_PROMPT_MAX]; /* [n_prompt] token ids; each is continued n times */
    int32_t prompt_lens[ANSWER_PROMPT_MAX];
    int32_t n_prompt;
    int32_t n;                  /* answers to each prompt, at least 1 */
    llm_sampler_params sampler; /* answer i to a prompt draws with seed + i */
    llm_sampler_breakers *breakers; /* of the sampler, where the request names some. Owned */
    int32_t max_tokens;         /* 0 = no limit */
    bool only_reads;            /* the prompt is read, and the answer is empty; max_tokens is 1 */
    uint64_t line_limit;        /* ns from the first token on, after which an answer ends that has
                                   at least one line end; 0 = none */
    llm_logit_bias *bias;
    int32_t n_bias;
    bool has_scales; /* the request has scales of adapters; else they are the engine's */
    float scales[LLM_MAX_ADAPTERS];
    char *stops[REPLY_N_STOP_MAX]; /* owned */
    int32_t n_stop;
    bool ignores_end, wants_logprobs, shows_special, is_uncached, wants_tokens;
    int32_t n_top;
    int32_t max_draft, min_draft; /* as in server_request */
    float min_draft_p;
    bool is_stream, includes_usage;
    bool begins_text; /* the answer does not continue the prompt's text: its first space is
                         dropped */
    bool is_chat;     /* the answer is a turn: it ends with the model's token or text for that */
    bool parses_calls, parses_reasoning, is_reasoning, is_call; /* as in reply_parser_params */
    json_t *tools;      /* as in the request; NULL = none. Owned */
    json_t *fields;     /* llama-server's response_fields; NULL = all. Owned */
    char *grammar_text; /* GBNF or a JSON Schema, to compile; NULL = none. Owned */
    bool grammar_is_schema;
    bool constrains_calls;      /* each call follows the schema of its tool; grammar_text is NULL */
    struct grammar *grammar;    /* of grammar_text, or of calls; NULL = not yet. Owned */
    const char *grammar_behind; /* the grammar begins behind this text; NULL = at once */
} api_settings;
void api_settings_clear(api_settings *settings);

typedef struct api_answer api_answer;

typedef struct api_choice {
    api_answer *answer;
    int index;
    server_request_id id; /* 0 = not submitted; guarded by the answer's lock */
    /* From the submission on, the engine's thread alone uses these four until is_over. */
    reply_stop stop;
    uint64_t first_ns; /* when the first token came, of server_clock(); 0 = not yet */
    bool has_line;     /* a line end has come */
    bool is_late;      /* it ended by line_limit */
    /* The queue, guarded by the answer's lock */
    api_buffer text;
    api_token *tokens; /* [n_token] */
    int n_token, token_size;
    bool is_paused, is_over; /* is_over: the last event has come, and the next four are final */
    server_result result;    /* its text was added to the queue */
    tdm_status failure;      /* TDM_OK = none */
    uint64_t retry_ns;       /* of an engine that refused it (server_engine_submit); 0 = none */
    char message[512];    /* of the failure */
    /* Of the task */
    reply_parser *parser;
    /* What was parsed so far. content.is_short is also set where a call or a token lacks bytes. */
    api_buffer content, reasoning;
    api_call *calls; /* [n_call] */
    int n_call;
    api_token *shown; /* [n_shown] tokens taken from the queue, for replies that show them; a stream
                         drops those that are written */
    int n_shown, shown_size, n_written; /* n_written: how many of them a stream has written */
    bool has_ended;                     /* all of it is parsed, or it has failed */
    bool is_first;                      /* the first choice of its prompt */
    int n_asked_stop; /* how many strings in `stop` the request has given; one more may be the
                         template's */
    /* Of the dialect, 0 at first: the kind of the present block or item; its number; its text; its
     * name. */
    int state;
    int n_block;
    api_buffer item;
    char item_id[40];
} api_choice;

/* How an API writes an answer. The answer's task calls the functions; NULL = nothing to write,
 * where that is said. */
typedef struct api_dialect {
    api_shape shape;
    const char *stream_type; /* content type of streams */
    bool keeps_request;      /* api_answer.request is set */
    void (*begin)(api_answer *a); /* the first events of a stream; NULL = none */
    /* A piece of a stream, which the choice has already added to its content, reasoning or calls.
     * NULL = none. */
    void (*piece)(api_answer *a, api_choice *c, reply_piece piece, const char *text, size_t len);
    void (*choice_end)(api_answer *a, api_choice *c); /* the end of a choice in a stream; NULL =
                                                         none */
    void (*end)(api_answer *a); /* the last events of a stream, or the whole reply */
    void (*error)(api_answer *a, int http_status, const char *message); /* an event of a stream */
} api_dialect;

/* Receives the events of an exchange, as its user (server_exchange_user). The HTTP thread calls the
 * functions, with the API's lock held: so whoever takes the listener off the exchange under that
 * lock may free it. */
typedef struct api_listener {
    void (*gone)(struct api_listener *listener);    /* the client has left */
    void (*drained)(struct api_listener *listener); /* the reply has room again */
} api_listener;

struct api_answer {
    api_task task;
    api_listener listener;
    server_api *api;
    server_exchange *x;
    const api_dialect *dialect;
    const server_model *model;
    pthread_mutex_t lock;
    api_choice *choices;
    int n_choice;
    int n_open;   /* guarded by lock: choices that are not over, and 1 while they are submitted */
    bool is_gone; /* guarded by lock: the client has left */
    bool is_stream, includes_usage, wants_logprobs, wants_tokens, has_begun, has_failed;
    bool shows_special, only_reads;
    bool is_unlinked; /* no other thread finds the answer any more */
    uint64_t started_ns, line_limit;
    int32_t n_top;
    int64_t created;
    char id[40];
    char *text;              /* of the dialect, or NULL; owned */
    json_t *request;         /* a copy of the body, for dialects that keep it, or NULL; owned */
    json_t *tools;           /* a copy; NULL = none; owned */
    json_t *fields;          /* of the dialect: response_fields, a copy; NULL = all; owned */
    server_usage usage;      /* of all choices, once they are over */
    int n_event;             /* of the dialect: events written */
    int32_t n_prompt;        /* tokens of all prompts */
    json_t *output;          /* of the dialect: items written, or NULL; owned */
    api_answer *next, *prev; /* of the API: all answers */
};

/* Submits a request; a refusal of the engine becomes the reply. `request` is copied where the
 * dialect keeps it, `text` is taken over, the settings are read during the call. Fails before
 * anything was submitted, without a reply: TDM_RESOURCE_EXHAUSTED, or TDM_INVALID_ARGUMENT for more
 * than ANSWER_CHOICE_MAX choices. */
tdm_status api_answer_start(server_api *api, server_exchange *x, const server_model *model,
                            const api_dialect *dialect, const char *id_prefix, json_t *request,
                            api_settings *settings, char *text, tdm_error *err);

/* Cancels the choices that are not over. The caller holds the answer's lock: without it the engine
 * could end all choices and be destroyed during the call. [any-thread] */
void api_answer_cancel(api_answer *a);

/* ---- For dialects ---- */

/* Writes an event of a stream, and releases `data`. name NULL: without an event line. Breaks the
 * stream where there is no memory, also for `data` NULL. */
void api_answer_event(api_answer *a, const char *name, json_t *data);
/* Writes a line of NDJSON, or, where the answer is no stream, the whole reply. Releases `data`. */
void api_answer_line(api_answer *a, json_t *data);
/* Writes the whole reply. Releases `data`. */
void api_answer_json(api_answer *a, json_t *data);
/* Whether a limit (of tokens, of time) ended the answer within its last call, whose arguments are not
 * whole. */
bool api_call_is_cut(const api_choice *c);
/* "stop", "length" or "tool_calls"; "length" also where the last call is cut. */
const char *api_finish_reason(const api_choice *c);
/* A call with its arguments parsed: a new object; {} where they are no object. */
json_t *api_call_arguments(const api_call *call);
/* Writes a prefix and up to 24 random letters and digits, as many as `size` has room for. */
void api_id_make(char *text, size_t size, const char *prefix);

#endif
