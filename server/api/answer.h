/* SPDX-License-Identifier: MIT
 *
 * answer.h: an answer: one exchange of HTTP and the requests of the engine (choices) that fill it.
 *
 * The engine's thread puts text into the queue of a choice (queue.c). A task of the API's
 * threads takes it, parses it (reply/parse.h), and passes the pieces to a dialect, which writes them
 * in the form of an API. Where the client reads more slowly than the model writes, pieces stay in
 * the queue, and from ANSWER_QUEUE_MAX bytes or ANSWER_TOKEN_MAX tokens on the choice is paused.
 *
 * An answer frees itself once the engine is through with all choices and the reply has ended.
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
#define ANSWER_TOKEN_MAX                                                                           \
    256 /* tokens in a queue, of replies that show them: some KB of JSON each */
#define ANSWER_CHOICE_MAX 128
#define ANSWER_PROMPT_MAX 2048 /* texts of a request for embeddings: OpenAI's limit */
#define ANSWER_TOP_MAX    20
#define ANSWER_BIAS_MAX   1024

/* Bytes that grow. Cleared = empty. */
typedef struct api_buffer {
    char *data; /* [len], with a NUL behind */
    size_t len, size;
    bool is_short; /* memory ran out: bytes are missing */
} api_buffer;
void api_buffer_add(api_buffer *buffer, const char *data, size_t len);
void api_buffer_clear(api_buffer *buffer);
/* "" where it is empty. */
const char *api_buffer_text(const api_buffer *buffer);
/* A new JSON string. */
json_t *api_buffer_json(const api_buffer *buffer);

/* A token with its probability, for replies that show them. */
typedef struct api_token {
    int32_t token;
    float logprob;
    int32_t n_top;
    server_logprob top[ANSWER_TOP_MAX];
} api_token;

typedef struct api_call {
    char id[32];
    api_buffer name, arguments;
} api_call;

/* The settings of a request; the owner clears it with api_settings_clear. */
typedef struct api_settings {
    int32_t *prompts[ANSWER_PROMPT_MAX]; /* [n_prompt] token ids; each is continued n times */
    int32_t prompt_lens[ANSWER_PROMPT_MAX];
    int32_t n_prompt;
    int32_t n;
    llm_sampler_params sampler; /* choice i draws with seed + i */
    int32_t *breakers;          /* of the sampler, where the request names some. Owned */
    int32_t max_tokens;         /* 0 = no limit */
    bool only_reads;            /* the prompt is read, and the answer is empty; max_tokens is 1 */
    uint64_t line_limit; /* ns from the first token, after which an answer that has a line end
                                   ends; 0 = none */
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
    bool begins_text; /* a prompt has no text: the first space of the answer is dropped */
    bool is_chat;     /* a turn: it ends with the model's token or text for that */
    bool parses_calls, parses_reasoning, is_reasoning, is_call;
    json_t *tools;      /* as in the request; NULL = none. Owned */
    json_t *fields;     /* llama-server's response_fields; NULL = all. Owned */
    char *grammar_text; /* GBNF or a JSON Schema, to compile; NULL = none. Owned */
    bool grammar_is_schema;
    bool constrains_calls; /* each call follows the schema of its tool; there is no grammar_text */
    struct grammar *grammar;    /* of grammar_text, or of calls; NULL = not yet. Owned */
    const char *grammar_behind; /* the grammar begins behind this text; NULL = at once */
} api_settings;
void api_settings_clear(api_settings *settings);

typedef struct api_answer api_answer;

typedef struct api_choice {
    api_answer *answer;
    int index;
    server_request_id id; /* 0 = not submitted; guarded by the answer's lock */
    reply_stop stop;      /* of the engine's thread, once submitted; as the next three */
    uint64_t first_ns;    /* when the first token came; 0 = not yet */
    bool has_line;        /* a line end has come */
    bool is_late;         /* it ended by line_limit */
    /* The queue, guarded by the answer's lock */
    api_buffer text;
    api_token *tokens;
    int n_token, token_size;
    bool is_paused, is_over;
    server_result result; /* its text is in the queue */
    tdm_status failure;   /* TDM_OK = none */
    char message[512];    /* of the failure */
    /* Of the task */
    reply_parser *parser;
    api_buffer content, reasoning;
    api_call *calls;
    int n_call;
    api_token *shown; /* tokens taken from the queue, for replies that show them; in a stream those
                         that have been written leave */
    int n_shown, shown_size, n_written; /* n_written: of them, already in a stream */
    bool has_ended, is_first;           /* is_first: of those that continue the same prompt */
    int n_asked_stop; /* of the strings in `stop`, the request's own; one more is the template's */
    int state;        /* of the dialect: 0 at first */
    int n_block;
    api_buffer item; /* of the dialect: text of the present item */
    char item_id[40];
} api_choice;

/* How an API writes an answer. [task] */
typedef struct api_dialect {
    api_shape shape;
    const char *stream_type; /* content type of streams */
    bool keeps_request;      /* api_answer.request is there */
    void (*begin)(api_answer *a);
    /* A piece, in streams only; the choice has it already. */
    void (*piece)(api_answer *a, api_choice *c, reply_piece piece, const char *text, size_t len);
    void (*choice_end)(api_answer *a, api_choice *c); /* in streams only */
    void (*end)(api_answer *a);                       /* the last events, or the whole reply */
    void (*error)(api_answer *a, int http_status, const char *message); /* in a stream */
} api_dialect;

struct api_answer {
    api_task task;
    server_api *api;
    server_exchange *x;
    const api_dialect *dialect;
    const server_model *model;
    pthread_mutex_t lock;
    api_choice *choices;
    int n_choice, n_open; /* n_open: submitted and not over; guarded by lock */
    bool is_gone;         /* guarded by lock */
    bool is_stream, includes_usage, wants_logprobs, wants_tokens, has_begun, has_failed;
    bool shows_special, only_reads, is_unlinked;
    uint64_t retry_ns, started_ns, line_limit;
    int32_t n_top;
    int64_t created;
    char id[40];
    char *text;              /* of the dialect: freed with the answer */
    json_t *request;         /* a copy, for dialects that keep it, or NULL; owned */
    json_t *tools;           /* a copy; NULL = none; owned */
    json_t *fields;          /* of the dialect: response_fields, a copy; NULL = all; owned */
    server_usage usage;      /* of all choices, once they are over */
    int n_event;             /* of the dialect */
    int32_t n_prompt;        /* tokens of all prompts */
    json_t *output;          /* of the dialect; owned */
    api_answer *next, *prev; /* of the API: all answers */
};

/* Submits a request; what the engine refuses becomes the reply. `request` is copied where the dialect
 * keeps it, `text` is taken over, the settings are read during the call. Fails only without memory, before
 * anything was submitted: the exchange has no reply then. */
tdm_status api_answer_start(server_api *api, server_exchange *x, const server_model *model,
                            const api_dialect *dialect, const char *id_prefix, json_t *request,
                            api_settings *settings, char *text, tdm_error *err);

/* Cancels what still runs. The caller holds the answer's lock, so that the engine cannot end all
 * choices and be destroyed meanwhile. [any-thread] */
void api_answer_cancel(api_answer *a);

/* ---- For dialects ---- */

/* Writes an event of a stream, and releases `data`. name NULL: without an event line. */
void api_answer_event(api_answer *a, const char *name, json_t *data);
/* A line of NDJSON, or, where the answer is no stream, the whole reply. Releases `data`. */
void api_answer_line(api_answer *a, json_t *data);
/* The whole reply. Releases `data`. */
void api_answer_json(api_answer *a, json_t *data);
/* "stop", "length" or "tool_calls". */
const char *api_finish_reason(const api_choice *c);
/* A call with its arguments parsed: a new object; {} where they are no object. */
json_t *api_call_arguments(const api_call *call);
/* Random letters behind a prefix. */
void api_id_make(char *text, size_t size, const char *prefix);

#endif
