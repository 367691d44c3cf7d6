/* SPDX-License-Identifier: MIT
 *
 * chat.c: `tandem chat`: holds a conversation with a model, in its chat template. Answers go to
 * standard output, everything else to standard error.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/chat/chat_answer.h"
#include "runner/chat/chat_input.h"
#include "runner/chat/chat_prompt.h"
#include "runner/plan/fit.h"
#include "runner/plan/pick.h"
#include "runner/interrupt.h"
#include "runner/sampling.h"
#include "runner/lora.h"

typedef struct chat {
    runner_app *app;
    runner_session session;
    runner_chat_prompt prompt;
    runner_chat_history history;
    runner_chat_held held;
    runner_sampling sampling;
    runner_chat_answer_params params; /* of all answers; each adds its prompt, n_keep and seed */
    size_t first; /* index of the first message of the prompt behind the system's: earlier ones no
                   * longer fit the context */
    char last;    /* byte written last to standard output */
    int64_t n_answer, n_generated;    /* of the whole conversation */
    uint64_t decode_ns;
    runner_chat_answer_result result; /* of the last answer */
    int32_t n_failed; /* messages and commands that failed while the conversation went on */
    bool ends;        /* the conversation is over */
} chat;

static void note(chat *c, const char *text) {
    runner_terminal_print(c->app->terminal, RUNNER_MESSAGE_NOTE, "%s", text);
}

/* Reports a failure after which the conversation goes on. */
static void complain(chat *c, const char *message) {
    runner_terminal_print(c->app->terminal, RUNNER_MESSAGE_ERROR, "%s", message);
    c->n_failed++;
}

/* ---- Answers ---- */

static tdm_status text_show(void *user, int32_t seq, const char *text, size_t len, tdm_error *err) {
    chat *c = user;
    (void)seq;
    errno = 0;
    if (fwrite(text, 1, len, c->app->out) != len || fflush(c->app->out) != 0)
        return tdm_fail(err, TDM_IO, "cannot write to standard output: %s", strerror(errno));
    if (len > 0) c->last = text[len - 1];
    return TDM_OK;
}

/* Makes the tokens of the conversation. A quarter of the context, at most 512 tokens, is kept free
 * for the answer; as long as the tokens do not fit the rest, the oldest turn is left out. A failure
 * leaves out none. */
static tdm_status prompt_make(chat *c, int32_t **tokens, int32_t *n, tdm_error *err) {
    int32_t n_ctx = llm_context_n_ctx(c->session.ctx);
    int32_t room = n_ctx - (n_ctx / 4 < 512 ? n_ctx / 4 : 512);
    size_t before = c->first, n_system = runner_chat_history_n_system(&c->history);
    if (c->first < n_system) c->first = n_system;
    for (;;) {
        tdm_status status =
            runner_chat_prompt_tokens(&c->prompt, &c->history, c->first, true, tokens, n, err);
        if (status != TDM_OK) {
            c->first = before;
            return status;
        }
        if (*n <= room) break;
        /* A turn is a message of the user and the messages up to the user's next one. */
        size_t next = c->first + 1;
        while (next < c->history.n && strcmp(c->history.messages[next].role, "user") != 0) next++;
        if (next >= c->history.n || !c->params.shifts_context) {
            if (*n < n_ctx) break; /* there is room for some of an answer */
            free(*tokens);
            *tokens = NULL;
            c->first = before;
            return tdm_fail(err, TDM_OUT_OF_RANGE,
                            "the conversation has %d tokens, the context room for %d; raise "
                            "ctx-size or say less",
                            *n, n_ctx);
        }
        free(*tokens);
        *tokens = NULL;
        c->first = next;
    }
    if (c->first > before && before >= n_system && c->first > n_system)
        runner_terminal_print(c->app->terminal, RUNNER_MESSAGE_NOTE,
                              "the context is full: the oldest %zu messages are forgotten",
                              c->first - n_system);
    return TDM_OK;
}

/* The number of tokens that a shift in the middle of an answer keeps: those of the system message,
 * as far as the prompt begins with them; at least 1, at most half of the context. */
static int32_t keep_find(chat *c, const int32_t *tokens, int32_t n) {
    runner_chat_history system = c->history;
    int32_t *ids = NULL, n_id = 0, n_same = 0;
    system.n = runner_chat_history_n_system(&c->history);
    if (system.n > 0 &&
        runner_chat_prompt_tokens(&c->prompt, &system, 0, false, &ids, &n_id, NULL) == TDM_OK)
        while (n_same < n_id && n_same < n && ids[n_same] == tokens[n_same]) n_same++;
    free(ids);
    int32_t most = llm_context_n_ctx(c->session.ctx) / 2;
    if (n_same == 0) n_same = 1; /* the token that begins every text */
    return n_same < most ? n_same : most;
}

/* Answers the last message and appends the answer to the history. Where there is no answer (an
 * error, or Ctrl-C before any text), *has_answer is false and the history is unchanged. */
static tdm_status answer(chat *c, bool *has_answer, tdm_error *err) {
    int32_t *tokens = NULL;
    char *text = NULL;
    runner_chat_answer_params params = c->params;
    tdm_error reason = {0};
    *has_answer = false;
    tdm_status status = prompt_make(c, &tokens, &params.n_prompt, &reason);
    if (status != TDM_OK) {
        /* The template refuses the message, or it is too long: the conversation goes on without
         * an answer. */
        complain(c, reason.message);
        return TDM_OK;
    }
    params.prompt = tokens;
    params.n_keep = keep_find(c, tokens, params.n_prompt);
    params.sampler.seed += (uint64_t)c->n_answer++;
    c->last = '\n';
    status = runner_chat_answer(&c->session, &c->held, &params, &c->result, &text, err);
    free(tokens);
    if (status == TDM_OK && c->last != '\n') status = text_show(c, 0, "\n", 1, err);
    c->n_generated += c->result.n_generated;
    c->decode_ns += c->result.decode_ns;
    const bool is_answer =
        status == TDM_OK && (text[0] != '\0' || c->result.stop != RUNNER_STOP_INTERRUPT);
    if (is_answer) status = runner_chat_history_add(&c->history, "assistant", text, err);
    free(text);
    if (status != TDM_OK) return status;
    *has_answer = is_answer;
    if (c->result.stop == RUNNER_STOP_CONTEXT)
        note(c, "the answer ends here: the context is full; raise ctx-size or /clear");
    if (c->result.stop == RUNNER_STOP_INTERRUPT) {
        if (!runner_interrupt_obey()) return tdm_fail(err, TDM_CANCELLED, "interrupted");
        note(c, "stopped");
    }
    return TDM_OK;
}

/* ---- Commands ---- */

typedef struct chat_command {
    const char *name, *argument, *help;
    tdm_status (*run)(chat *c, const char *argument, tdm_error *err);
} chat_command;

static tdm_status run_help(chat *c, const char *argument, tdm_error *err);

static tdm_status run_quit(chat *c, const char *argument, tdm_error *err) {
    (void)argument, (void)err;
    c->ends = true;
    return TDM_OK;
}

static tdm_status run_regen(chat *c, const char *argument, tdm_error *err) {
    (void)argument;
    const size_t n = c->history.n;
    bool has_answer;
    if (n == 0 || strcmp(c->history.messages[n - 1].role, "assistant") != 0) {
        complain(c, "there is no answer yet");
        return TDM_OK;
    }
    /* The present answer stays where there is no other one. */
    const runner_chat_message present = c->history.messages[n - 1];
    c->history.n = n - 1;
    const tdm_status status = answer(c, &has_answer, err);
    if (has_answer) {
        free(present.role);
        free(present.content);
    } else {
        c->history.messages[n - 1] = present;
        c->history.n = n;
    }
    return status;
}

static tdm_status run_clear(chat *c, const char *argument, tdm_error *err) {
    (void)argument, (void)err;
    runner_chat_history_truncate(&c->history, runner_chat_history_n_system(&c->history));
    c->first = 0;
    note(c, "a new conversation");
    return TDM_OK;
}

/* The path of the cache beside the file of messages: FILE.cache. NULL = no memory. The caller frees
 * it. */
static char *cache_path_make(const char *path) {
    size_t size = strlen(path) + sizeof ".cache";
    char *cache_path = malloc(size);
    if (cache_path != NULL) snprintf(cache_path, size, "%s.cache", path);
    return cache_path;
}

/* A file that cannot be written is reported, and the conversation goes on. */
static tdm_status run_save(chat *c, const char *argument, tdm_error *err) {
    tdm_error reason = {0};
    char *cache_path = cache_path_make(argument);
    if (cache_path == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a path");
    if (runner_chat_history_save(&c->history, argument, &reason) != TDM_OK) {
        complain(c, reason.message);
    } else {
        runner_terminal_print(c->app->terminal, RUNNER_MESSAGE_NOTE, "%zu messages saved as %s",
                              c->history.n, argument);
        if (c->held.n > 0 &&
            runner_chat_held_save(&c->session, &c->held, cache_path, &reason) != TDM_OK)
            complain(c, reason.message);
        else if (c->held.n > 0)
            runner_terminal_print(c->app->terminal, RUNNER_MESSAGE_NOTE,
                                  "the cache of %d tokens saved as %s", c->held.n, cache_path);
    }
    free(cache_path);
    return TDM_OK;
}

/* Loads FILE.cache. Where there is none, or it is of another model or context, the conversation is
 * computed again. */
static void cache_load(chat *c, const char *cache_path) {
    tdm_error reason = {0};
    if (access(cache_path, F_OK) != 0 && errno == ENOENT) return;
    tdm_status status = runner_chat_held_load(&c->session, &c->held, cache_path, &reason);
    if (status == TDM_OK)
        runner_terminal_print(c->app->terminal, RUNNER_MESSAGE_NOTE,
                              "the cache of %d tokens loaded from %s", c->held.n, cache_path);
    else
        runner_terminal_print(c->app->terminal, RUNNER_MESSAGE_WARNING,
                              "the conversation is computed again: %s", reason.message);
}

static tdm_status run_load(chat *c, const char *argument, tdm_error *err) {
    tdm_error reason = {0};
    char *cache_path = cache_path_make(argument);
    if (cache_path == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a path");
    if (runner_chat_history_load(&c->history, argument, &reason) != TDM_OK) {
        complain(c, reason.message);
    } else {
        c->first = 0;
        runner_terminal_print(c->app->terminal, RUNNER_MESSAGE_NOTE, "%zu messages loaded from %s",
                              c->history.n, argument);
        cache_load(c, cache_path);
    }
    free(cache_path);
    return TDM_OK;
}

static double per_second(int64_t n, uint64_t ns) {
    return ns > 0 ? (double)n * 1e9 / (double)ns : 0.0;
}

static tdm_status run_stats(chat *c, const char *argument, tdm_error *err) {
    (void)argument, (void)err;
    runner_terminal *terminal = c->app->terminal;
    const runner_chat_answer_result *r = &c->result;
    runner_terminal_print(terminal, RUNNER_MESSAGE_NOTE,
                          "prompt      %d tokens in %.1f ms, %.1f t/s; %d were there already",
                          r->n_prompt, (double)r->prompt_ns / 1e6,
                          per_second(r->n_prompt, r->prompt_ns), r->n_reused);
    runner_terminal_print(terminal, RUNNER_MESSAGE_NOTE,
                          "generation  %d tokens in %.1f ms, %.1f t/s", r->n_generated,
                          (double)r->decode_ns / 1e6, per_second(r->n_generated, r->decode_ns));
    runner_terminal_print(terminal, RUNNER_MESSAGE_NOTE, "in all      %lld tokens, %.1f t/s",
                          (long long)c->n_generated, per_second(c->n_generated, c->decode_ns));
    runner_terminal_print(terminal, RUNNER_MESSAGE_NOTE,
                          "context     %d of %d tokens, shifted %d times in the last answer; %zu "
                          "messages",
                          llm_context_length(c->session.ctx, 0), llm_context_n_ctx(c->session.ctx),
                          r->n_shift, c->history.n);
    return TDM_OK;
}

static const chat_command chat_commands[] = {
    {"/regen", "", "answer the last message again", run_regen},
    {"/clear", "", "forget the conversation, but not the system prompt", run_clear},
    {"/save", " FILE", "write the conversation to FILE, as JSON, and its cache to FILE.cache",
     run_save},
    {"/load", " FILE",
     "go on with the conversation of FILE; with FILE.cache it is not computed again", run_load},
    {"/stats", "", "how fast the last answer came, and how full the context is", run_stats},
    {"/help", "", "show this", run_help},
    {"/quit", "", "end; so does Ctrl-D", run_quit},
};
#define N_COMMAND (sizeof chat_commands / sizeof chat_commands[0])

static tdm_status run_help(chat *c, const char *argument, tdm_error *err) {
    (void)argument, (void)err;
    for (size_t i = 0; i < N_COMMAND; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%s", chat_commands[i].name, chat_commands[i].argument);
        runner_terminal_print(c->app->terminal, RUNNER_MESSAGE_NOTE, "%-12s %s", name,
                              chat_commands[i].help);
    }
    note(c, "a line that ends in \\ goes on in the next; \"\"\" begins and ends several");
    note(c, "Ctrl-C stops an answer, or ends the program where there is none");
    return TDM_OK;
}

static tdm_status command_run(chat *c, const char *text, tdm_error *err) {
    size_t n = strcspn(text, " \n");
    const char *argument = text + n + strspn(text + n, " ");
    char message[128];
    for (size_t i = 0; i < N_COMMAND; i++) {
        const chat_command *command = &chat_commands[i];
        if (strlen(command->name) != n || strncmp(text, command->name, n) != 0) continue;
        if ((command->argument[0] != '\0') == (argument[0] != '\0'))
            return command->run(c, argument, err);
        snprintf(message, sizeof message, "it is %s%s", command->name, command->argument);
        complain(c, message);
        return TDM_OK;
    }
    snprintf(message, sizeof message, "no command '%.*s'; /help lists them", (int)(n < 64 ? n : 64),
             text);
    complain(c, message);
    return TDM_OK;
}

/* ---- The program ---- */

static tdm_status turn(chat *c, tdm_error *err) {
    char *text = NULL;
    tdm_status status = runner_chat_read(&text, err);
    if (status != TDM_OK) return status;
    if (text == NULL) {
        c->ends = true;
        if (runner_chat_is_typed()) fputc('\n', c->app->out);
        return TDM_OK;
    }
    if (text[0] == '/') {
        status = command_run(c, text, err);
    } else if (text[strspn(text, " \t\n")] != '\0') {
        bool has_answer = true;
        status = runner_chat_history_add(&c->history, "user", text, err);
        if (status == TDM_OK) status = answer(c, &has_answer, err);
        if (!has_answer) runner_chat_history_truncate(&c->history, c->history.n - 1);
    }
    free(text);
    return status;
}

static void params_read(chat *c) {
    runner_config *config = c->app->config;
    bool is_default =
        runner_config_get_origin(config, "context-shift").level == RUNNER_LEVEL_BUILT_IN;
    c->params = (runner_chat_answer_params){
        .n_batch = (int32_t)runner_config_get_int(config, "batch-size"),
        .sampler = c->sampling.params,
        .n_predict = (int32_t)runner_config_get_int(config, "predict"),
        .shifts_context = is_default || runner_config_get_bool(config, "context-shift"),
        .stop = c->prompt.stop,
        .stop_id = c->prompt.stop_id,
        .text = text_show,
        .user = c,
    };
}

static tdm_status chat_open(chat *c, tdm_error *err) {
    runner_context_wish wish = {0};
    const char *system = runner_config_get_string(c->app->config, "system-prompt");
    tdm_status status = runner_session_open(&c->session, c->app, NULL, err);
    if (status == TDM_OK)
        status = runner_chat_prompt_open(&c->prompt, c->app, c->session.model, err);
    const llm_vocab *vocab = NULL;
    if (status == TDM_OK) status = llm_model_vocab(c->session.model, &vocab, err);
    if (status == TDM_OK) status = runner_sampling_read(c->app->config, vocab, &c->sampling, err);
    if (status == TDM_OK) params_read(c);
    if (status == TDM_OK) status = runner_config_check(c->app->config, err);
    if (status == TDM_OK && system[0] != '\0')
        status = runner_chat_history_add(&c->history, "system", system, err);
    if (status == TDM_OK) status = runner_session_pick(&c->session, NULL, 0, err);
    if (status == TDM_OK) status = runner_fit(&c->session, &wish, err);
    if (status == TDM_OK) status = runner_session_load(&c->session, err);
    if (status == TDM_OK) status = runner_session_begin(&c->session, &wish, err);
    return status;
}

/* The status of a conversation that has come to its end. A script cannot read the messages, so that
 * it gets a failure where a message was not answered or a command failed. */
static tdm_status end_status(const chat *c, tdm_error *err) {
    if (c->n_failed == 0 || runner_chat_is_typed()) return TDM_OK;
    return tdm_fail(err, TDM_FAILED_PRECONDITION,
                    "%d of the messages and commands failed; the reasons are above",
                    (int)c->n_failed);
}

static tdm_status chat_main(runner_app *app, tdm_error *err) {
    chat c = {.app = app};
    if (runner_chat_is_typed()) runner_chat_input_begin();
    tdm_status status = chat_open(&c, err);
    if (status == TDM_OK && runner_chat_is_typed()) note(&c, "/help lists what else can be typed");
    while (status == TDM_OK && !c.ends) status = turn(&c, err);
    if (status == TDM_OK) status = end_status(&c, err);
    runner_sampling_free(&c.sampling);
    runner_chat_history_clear(&c.history);
    runner_chat_prompt_close(&c.prompt);
    free(c.held.tokens);
    runner_session_close(&c.session);
    return status;
}

static const runner_key own_keys[] = {
    {.topic = "Only chat",
     .name = "system-prompt",
     .flag = "sys",
     .type = RUNNER_KEY_STRING,
     .default_value = "",
     .value_name = "TEXT",
     .help = "system message at the start of the conversation"},
};

const runner_command runner_command_chat = {
    .name = "chat",
    .summary = "talk with a model, in the chat template that its file carries",
    .run = chat_main,
    .keys = RUNNER_KEYS_COMPUTE RUNNER_KEYS_LORA
    " ctx-size context-shift predict template" RUNNER_KEYS_SAMPLING
    " mlock jinja conversation warmup",
    .own_keys = own_keys,
    .n_own_key = sizeof own_keys / sizeof own_keys[0],
    .opens_devices = true,
};
