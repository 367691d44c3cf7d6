/* SPDX-License-Identifier: MIT
 *
 * parse.c: see parse.h: a state machine over a buffer of undecided text. Each state takes what it
 * can decide from the front of the buffer, or waits for more. The head of a call is read again from
 * its beginning whenever more text comes, so its length has a limit (HEAD_MAX).
 */
#include "server/reply/parse.h"

#include <stdlib.h>
#include <string.h>

#include "server/reply/call.h"
#include "server/reply/json_scan.h"

#define HEAD_MAX 4096 /* bytes of a call up to its arguments, and of a parameter up to its value */

typedef enum parse_state {
    IN_TEXT,
    IN_REASONING,
    IN_HEAD,      /* the buffer begins with the text that opens a call */
    IN_ARGUMENTS, /* a JSON value */
    IN_PARAMETERS,
    IN_TAIL,    /* behind the arguments of a call, before the text that closes it */
    IN_CHANNEL, /* gpt-oss: the head of a message */
} parse_state;

struct reply_parser {
    reply_parser_params params;
    parse_state state;
    char *buffer;
    size_t len, size;
    size_t n_scanned;  /* the text that ends the state does not begin in so many bytes at the front
                          of the buffer */
    size_t n_lead;     /* of IN_HEAD: bytes of white space before the call */
    bool skips_space;  /* white space at the front is not text */
    bool has_text;     /* text or a call has been passed */
    bool is_ended;     /* no more will come */
    json_scan value;   /* of IN_ARGUMENTS, or in IN_TAIL of the object around them */
    bool is_in_object; /* the arguments are a member of an object, whose end follows them */
    reply_piece piece; /* gpt-oss: what the present message is, where it is no call */
    bool is_call;      /* gpt-oss: the present message is a call */
    char tool[256];    /* name of the present call's tool, cut off at 255 bytes */
    int n_parameter;   /* parameters of the present call that were passed */
    bool is_cut;       /* reply_parser_is_cut */
};

/* ---- Families ---- */

/* The family of the first mark in this list that a template has. */
static const struct {
    reply_family family;
    const char *mark;
} family_marks[] = {
    {REPLY_GPT_OSS, "<|channel|>"},  {REPLY_DEEPSEEK, REPLY_DEEPSEEK_CALLS_OPEN},
    {REPLY_MISTRAL, "[TOOL_CALLS]"}, {REPLY_GLM, "<arg_key>"},
    {REPLY_QWEN_XML, "<function="},  {REPLY_HERMES, "<tool_call>"},
    {REPLY_LLAMA, "<|python_tag|>"}, {REPLY_LLAMA, "\"parameters\": dictionary"},
};

static const struct {
    const char *name, *open, *close;
    const char *dropped[2]; /* texts around calls that are no part of the answer */
} families[] = {
    [REPLY_PLAIN] = {"plain", "", "", {NULL}},
    [REPLY_HERMES] = {"hermes", "<tool_call>", "</tool_call>", {NULL}},
    [REPLY_QWEN_XML] = {"qwen-xml", "<tool_call>", "</tool_call>", {NULL}},
    [REPLY_LLAMA] = {"llama", "<|python_tag|>", "", {NULL}},
    [REPLY_MISTRAL] = {"mistral", "[TOOL_CALLS]", "", {NULL}},
    [REPLY_DEEPSEEK] = {"deepseek",
                        REPLY_DEEPSEEK_CALL_OPEN,
                        REPLY_DEEPSEEK_CALL_CLOSE,
                        {REPLY_DEEPSEEK_CALLS_OPEN, REPLY_DEEPSEEK_CALLS_CLOSE}},
    [REPLY_GLM] = {"glm", "<tool_call>", "</tool_call>", {NULL}},
    [REPLY_GPT_OSS] = {"gpt-oss", "", "", {NULL}},
};

reply_family reply_family_find(const char *template_text) {
    for (size_t i = 0; i < sizeof family_marks / sizeof family_marks[0]; i++)
        if (strstr(template_text, family_marks[i].mark) != NULL) return family_marks[i].family;
    return REPLY_PLAIN;
}

const char *reply_family_name(reply_family family) {
    return families[family].name;
}

const char *reply_family_call_open(reply_family family) {
    return families[family].open;
}

const char *reply_family_call_close(reply_family family) {
    return families[family].close;
}

/* ---- The buffer ---- */

static void take(reply_parser *p, reply_piece piece, const char *text, size_t len) {
    if (len > 0 || piece == REPLY_CALL_END) p->params.take(p->params.user, piece, text, len);
}

static void drop(reply_parser *p, size_t n) {
    memmove(p->buffer, p->buffer + n, p->len - n);
    p->len -= n;
    p->n_scanned = 0;
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Passes the first n bytes as text or reasoning, and drops them. */
static void pass(reply_parser *p, reply_piece piece, size_t n) {
    size_t at = 0;
    if (p->skips_space)
        while (at < n && is_space(p->buffer[at])) at++;
    if (at < n) {
        p->skips_space = false;
        if (piece == REPLY_TEXT) p->has_text = true;
    }
    take(p, piece, p->buffer + at, n - at);
    drop(p, n);
}

/* Where the first of the marks is in the buffer; *which is the mark. With *which NULL there is
 * none, and the result is how many bytes at the front cannot be a part of one. NULL and empty marks
 * are skipped. */
static size_t marks_find(const reply_parser *p, const char *const *marks, int n_mark,
                         const char **which) {
    size_t best = p->len, n_open = 0;
    *which = NULL;
    for (int i = 0; i < n_mark; i++) {
        if (marks[i] == NULL || marks[i][0] == '\0') continue;
        const size_t n = strlen(marks[i]);
        const char *found = p->len > 0 ? memmem(p->buffer, p->len, marks[i], n) : NULL;
        if (found != NULL && (size_t)(found - p->buffer) < best) {
            best = (size_t)(found - p->buffer);
            *which = marks[i];
        }
        size_t k = n - 1 < p->len ? n - 1 : p->len;
        while (k > n_open && memcmp(p->buffer + p->len - k, marks[i], k) != 0) k--;
        if (k > n_open) n_open = k;
    }
    if (*which != NULL) return best;
    return p->is_ended ? p->len : p->len - n_open;
}

/* Where `text` begins in the buffer; false = it is not there yet. */
static bool text_find(reply_parser *p, const char *text, size_t *at) {
    const size_t n = strlen(text);
    const char *found = p->len > p->n_scanned
                            ? memmem(p->buffer + p->n_scanned, p->len - p->n_scanned, text, n)
                            : NULL;
    if (found == NULL) {
        p->n_scanned = p->len >= n ? p->len - n + 1 : 0;
        return false;
    }
    *at = (size_t)(found - p->buffer);
    return true;
}

/* ---- States. Each returns whether it took bytes or changed the state ---- */

static void state_set(reply_parser *p, parse_state state) {
    p->state = state;
    p->n_scanned = 0;
}

static bool reasoning_step(reply_parser *p) {
    static const char *const marks[] = {REPLY_THINK_CLOSE};
    const char *which;
    const size_t n = marks_find(p, marks, 1, &which);
    if (n > 0) pass(p, REPLY_REASONING, n);
    if (which == NULL) return false;
    drop(p, strlen(which));
    p->skips_space = true;
    state_set(p, IN_TEXT);
    return true;
}

/* Whether the answer begins with a brace at *at and may so be a call without the text that opens
 * one. */
static bool begins_call(const reply_parser *p, size_t *at) {
    size_t i = 0;
    if (p->has_text || !p->params.parses_calls) return false;
    if (p->params.family != REPLY_LLAMA && !p->params.is_call) return false;
    while (i < p->len && is_space(p->buffer[i])) i++;
    *at = i;
    return i < p->len && p->buffer[i] == '{';
}

static bool text_step(reply_parser *p) {
    const reply_family family = p->params.family;
    size_t at = 0;
    if (begins_call(p, &at)) {
        p->n_lead = at;
        state_set(p, IN_HEAD);
        return true;
    }
    const bool calls = p->params.parses_calls;
    const char *const marks[] = {
        p->params.parses_reasoning && !p->has_text ? REPLY_THINK_OPEN : NULL,
        calls ? families[family].open : NULL,
        calls ? families[family].dropped[0] : NULL,
        calls ? families[family].dropped[1] : NULL,
    };
    const char *which;
    const size_t n = marks_find(p, marks, 4, &which);
    size_t n_text = n;
    /* white space before a call or reasoning is no part of the answer, so it waits */
    const bool waits = calls || marks[0] != NULL;
    if (waits && (which != NULL || !p->is_ended))
        while (n_text > 0 && is_space(p->buffer[n_text - 1])) n_text--;
    if (n_text > 0) pass(p, REPLY_TEXT, n_text);
    if (which == NULL) return false;
    if (which == marks[0] && n_text > 0) return true; /* reasoning is at the beginning only */
    if (which == marks[1]) {
        p->n_lead = n - n_text;
        state_set(p, IN_HEAD);
    } else {
        drop(p, n - n_text);
        drop(p, strlen(which));
        p->skips_space = true;
        if (which == marks[0]) state_set(p, IN_REASONING);
    }
    return true;
}

/* The head is not that of a call: passes the text that opens it, or one byte, as text. */
static bool head_fail(reply_parser *p) {
    const char *open = families[p->params.family].open;
    const size_t n_open = strlen(open), n_left = p->len - p->n_lead;
    const bool has_open =
        n_open > 0 && n_left >= n_open && memcmp(p->buffer + p->n_lead, open, n_open) == 0;
    const size_t n = has_open ? n_open : 1;
    pass(p, REPLY_TEXT, p->n_lead + (n < n_left ? n : n_left));
    state_set(p, IN_TEXT);
    return true;
}

static void call_begin(reply_parser *p, const char *name, size_t len) {
    const size_t n = len < sizeof p->tool - 1 ? len : sizeof p->tool - 1;
    memcpy(p->tool, name, n);
    p->tool[n] = '\0';
    p->n_parameter = 0;
    p->has_text = true;
    take(p, REPLY_CALL, name, len);
}

static void call_end(reply_parser *p) {
    take(p, REPLY_CALL_END, "", 0);
    p->skips_space = true;
}

static bool head_step(reply_parser *p) {
    reply_call_head head = {0};
    const reply_scan result = reply_call_head_read(p->params.family, p->buffer + p->n_lead,
                                                   p->len - p->n_lead, p->is_ended, &head);
    if (result == REPLY_SCAN_MORE && !p->is_ended && p->len - p->n_lead < HEAD_MAX) return false;
    if (result != REPLY_SCAN_OK) return head_fail(p);
    drop(p, p->n_lead);
    p->is_in_object = head.is_in_object;
    call_begin(p, p->buffer + head.name_at, head.name_len);
    if (head.form == REPLY_FORM_PARAMETERS) {
        drop(p, head.end);
        state_set(p, IN_PARAMETERS);
    } else if (head.form == REPLY_FORM_VALUE) {
        drop(p, head.end);
        p->value = (json_scan){0};
        state_set(p, IN_ARGUMENTS);
    } else {
        if (head.arguments_len > 0)
            take(p, REPLY_ARGUMENTS, p->buffer + head.arguments_at, head.arguments_len);
        else
            take(p, REPLY_ARGUMENTS, "{}", 2);
        drop(p, head.end);
        call_end(p);
        p->value.is_done = true;
        state_set(p, IN_TAIL);
    }
    return true;
}

static bool arguments_step(reply_parser *p) {
    const size_t n = json_scan_push(&p->value, p->buffer, p->len);
    take(p, REPLY_ARGUMENTS, p->buffer, n);
    drop(p, n);
    if (!p->value.is_done && !p->is_ended) return false;
    p->is_cut = !p->value.is_done;
    call_end(p);
    p->value =
        (json_scan){.depth = p->is_in_object, .has_begun = true, .is_done = !p->is_in_object};
    state_set(p, IN_TAIL);
    return true;
}

/* Passes a parameter, which is text between marks, as a member of a JSON object. */
static bool parameters_step(reply_parser *p) {
    reply_parameter one = {0};
    const reply_scan result =
        reply_parameter_read(p->params.family, p->buffer, p->len, p->n_scanned, p->is_ended, &one);
    /* a name that does not end is read again whenever text comes, so it has a limit */
    if (result == REPLY_SCAN_MORE && (one.n_scanned > 0 || p->len < HEAD_MAX)) {
        p->n_scanned = one.n_scanned;
        return false;
    }
    if (result == REPLY_SCAN_OK) {
        char name[256];
        const size_t n = one.name_len < sizeof name - 1 ? one.name_len : sizeof name - 1;
        memcpy(name, p->buffer + one.name_at, n);
        name[n] = '\0';
        const char *value = p->buffer + one.value_at;
        bool is_string = !json_scan_is_value(value, one.value_len);
        if (p->params.is_string != NULL && !is_string)
            is_string = p->params.is_string(p->params.user, p->tool, name);
        take(p, REPLY_ARGUMENTS, p->n_parameter++ == 0 ? "{" : ",", 1);
        json_scan_quote(p->params.take, p->params.user, p->buffer + one.name_at, one.name_len);
        take(p, REPLY_ARGUMENTS, ":", 1);
        if (is_string)
            json_scan_quote(p->params.take, p->params.user, value, one.value_len);
        else
            take(p, REPLY_ARGUMENTS, value, one.value_len);
        drop(p, one.end);
        return true;
    }
    /* the end of the call, or text that is no parameter */
    size_t at = 0;
    json_scan_space(p->buffer, p->len, &at);
    p->is_cut = p->is_ended && (p->len - at < 2 || memcmp(p->buffer + at, "</", 2) != 0);
    take(p, REPLY_ARGUMENTS, p->n_parameter == 0 ? "{}" : "}", p->n_parameter == 0 ? 2 : 1);
    call_end(p);
    state_set(p, IN_TAIL);
    return true;
}

static bool tail_step(reply_parser *p) {
    const char *close = families[p->params.family].close;
    size_t at = 0;
    if (close[0] != '\0') {
        if (text_find(p, close, &at)) {
            drop(p, at + strlen(close));
        } else if (!p->is_ended) {
            return false;
        } else {
            drop(p, p->len);
        }
        state_set(p, IN_TEXT);
        return true;
    }
    if (!p->value.is_done) {
        drop(p, json_scan_push(&p->value, p->buffer, p->len));
        return p->value.is_done;
    }
    /* skips what separates two calls or ends their array */
    while (at < p->len && (is_space(p->buffer[at]) || strchr(",;]", p->buffer[at]) != NULL)) at++;
    drop(p, at);
    if (p->len == 0) return false;
    p->n_lead = 0;
    state_set(p, p->buffer[0] == '{' ? IN_HEAD : IN_TEXT);
    return true;
}

/* ---- gpt-oss: messages with a channel and a recipient
 * (https://cookbook.openai.com/articles/openai-harmony) ---- */

static void message_end(reply_parser *p) {
    if (p->is_call) call_end(p);
    p->is_call = false;
    state_set(p, IN_CHANNEL);
}

static bool message_step(reply_parser *p) {
    static const char *const marks[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>",
                                        "<|channel|>"};
    const char *which;
    const size_t n = marks_find(p, marks, 5, &which);
    if (n > 0 && p->is_call) {
        take(p, REPLY_ARGUMENTS, p->buffer, n);
        drop(p, n);
    } else if (n > 0) {
        pass(p, p->piece, n);
    }
    if (which == NULL) return false;
    /* the marks that begin the head of the next message stay */
    if (which != marks[3] && which != marks[4]) drop(p, strlen(which));
    message_end(p);
    return true;
}

static bool channel_step(reply_parser *p) {
    size_t at = 0;
    if (!text_find(p, "<|message|>", &at)) {
        if (!p->is_ended && p->len < HEAD_MAX) return false;
        p->piece = REPLY_TEXT; /* it is not a message of the format */
        state_set(p, IN_TEXT);
        if (p->len > 0) pass(p, REPLY_TEXT, p->len);
        return true;
    }
    const char *name = memmem(p->buffer, at, "to=functions.", 13);
    const bool is_analysis = memmem(p->buffer, at, "analysis", 8) != NULL;
    p->piece = is_analysis && p->params.parses_reasoning ? REPLY_REASONING : REPLY_TEXT;
    p->is_call = name != NULL && p->params.parses_calls;
    if (p->is_call) {
        size_t n = 0;
        name += 13;
        const size_t room = at - (size_t)(name - p->buffer);
        while (n < room && !is_space(name[n]) && name[n] != '<') n++;
        p->is_call = n > 0; /* a call without a name would add its text to the call before it */
        if (p->is_call) call_begin(p, name, n);
    }
    drop(p, at + strlen("<|message|>"));
    state_set(p, IN_TEXT);
    return true;
}

static bool step(reply_parser *p) {
    switch (p->state) {
    case IN_TEXT: return p->params.family == REPLY_GPT_OSS ? message_step(p) : text_step(p);
    case IN_REASONING: return reasoning_step(p);
    case IN_HEAD: return head_step(p);
    case IN_ARGUMENTS: return arguments_step(p);
    case IN_PARAMETERS: return parameters_step(p);
    case IN_TAIL: return tail_step(p);
    case IN_CHANNEL: return channel_step(p);
    }
    return false;
}

/* ---- The parser ---- */

reply_parser *reply_parser_create(const reply_parser_params *params) {
    reply_parser *p = calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    p->params = *params;
    if (params->family == REPLY_GPT_OSS)
        p->state = IN_CHANNEL;
    else if (params->is_reasoning && params->parses_reasoning)
        p->state = IN_REASONING;
    p->skips_space = p->state == IN_REASONING;
    return p;
}

bool reply_parser_push(reply_parser *p, const char *text, size_t len) {
    if (len == 0) return true;
    if (p->size - p->len < len) {
        const size_t size = (p->len + len) * 2;
        char *grown = realloc(p->buffer, size);
        if (grown == NULL) return false;
        p->buffer = grown;
        p->size = size;
    }
    if (len > 0) memcpy(p->buffer + p->len, text, len);
    p->len += len;
    while (p->len > 0 && step(p)) continue;
    return true;
}

void reply_parser_end(reply_parser *p) {
    p->is_ended = true;
    while (p->len > 0 && step(p)) continue;
    if (p->state == IN_ARGUMENTS || p->state == IN_PARAMETERS) {
        p->is_cut = true;
        if (p->state == IN_PARAMETERS)
            take(p, REPLY_ARGUMENTS, p->n_parameter == 0 ? "{}" : "}", p->n_parameter == 0 ? 2 : 1);
        call_end(p);
    } else if (p->is_call) {
        p->is_cut = true;
        call_end(p);
    }
    p->is_call = false;
}

bool reply_parser_is_cut(const reply_parser *p) {
    return p->is_cut;
}

void reply_parser_destroy(reply_parser *p) {
    if (p == NULL) return;
    free(p->buffer);
    free(p);
}
