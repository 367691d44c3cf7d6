/* SPDX-License-Identifier: MIT
 *
 * parse.h: divides the text of a chat model into answer, reasoning and calls of tools, while the
 * text arrives. How models write these differs by family; the source of a model's chat template
 * shows its family.
 *
 *     hermes     <tool_call>{"name": N, "arguments": {...}}</tool_call>       (Hermes, Qwen 2.5, 3)
 *     qwen-xml   <tool_call><function=N><parameter=K>V</parameter></function></tool_call>
 *     llama      {"name": N, "parameters": {...}}, after <|python_tag|> or alone   (Llama 3.x)
 *     mistral    [TOOL_CALLS][{"name": N, "arguments": {...}}] or [TOOL_CALLS]N[ARGS]{...}
 *     deepseek   <|tool_calls_begin|><|tool_call_begin|>...N<|tool_sep|>{...}<|tool_call_end|>
 *                (with the fullwidth bars and the block sign of its tokens)
 *     glm        <tool_call>N<arg_key>K</arg_key><arg_value>V</arg_value></tool_call>
 *     gpt-oss    <|channel|>commentary to=functions.N<|message|>{...}<|call|>
 *     (none)     text only
 *
 * All but gpt-oss may write reasoning, between REPLY_THINK_OPEN and REPLY_THINK_CLOSE. The formats
 * are those of the models' own templates. Text that begins like a call but is none is passed as
 * text, so nothing is lost.
 */
#ifndef TANDEM_SERVER_PARSE_H
#define TANDEM_SERVER_PARSE_H

#include <stdbool.h>
#include <stddef.h>

/* The marks around reasoning, in all families but gpt-oss. */
#define REPLY_THINK_OPEN  "<think>"
#define REPLY_THINK_CLOSE "</think>"

/* DeepSeek's marks: around all calls, around each call, and between its parts. They have the
 * fullwidth bar (U+FF5C) and the block sign (U+2581) of its tokens. */
#define REPLY_DEEPSEEK_BLOCK       "\xe2\x96\x81"
#define REPLY_DEEPSEEK_MARK(words) "<\xef\xbd\x9ctool" REPLY_DEEPSEEK_BLOCK words "\xef\xbd\x9c>"
#define REPLY_DEEPSEEK_CALLS_OPEN  REPLY_DEEPSEEK_MARK("calls" REPLY_DEEPSEEK_BLOCK "begin")
#define REPLY_DEEPSEEK_CALLS_CLOSE REPLY_DEEPSEEK_MARK("calls" REPLY_DEEPSEEK_BLOCK "end")
#define REPLY_DEEPSEEK_CALL_OPEN   REPLY_DEEPSEEK_MARK("call" REPLY_DEEPSEEK_BLOCK "begin")
#define REPLY_DEEPSEEK_CALL_CLOSE  REPLY_DEEPSEEK_MARK("call" REPLY_DEEPSEEK_BLOCK "end")
#define REPLY_DEEPSEEK_SEP         REPLY_DEEPSEEK_MARK("sep")

typedef enum reply_family {
    REPLY_PLAIN,
    REPLY_HERMES,
    REPLY_QWEN_XML,
    REPLY_LLAMA,
    REPLY_MISTRAL,
    REPLY_DEEPSEEK,
    REPLY_GLM,
    REPLY_GPT_OSS,
} reply_family;

/* The family of a template by its source; REPLY_PLAIN where the source has no mark of calls.
 * [any-thread] */
reply_family reply_family_find(const char *template_text);
/* Its name as above; that of REPLY_PLAIN is "plain". [any-thread] */
const char *reply_family_name(reply_family family);
/* The text that opens a call; "" = there is no such single text. [any-thread] */
const char *reply_family_call_open(reply_family family);
/* The text that closes a call; "" = a call ends with its last byte. [any-thread] */
const char *reply_family_call_close(reply_family family);

typedef enum reply_piece {
    REPLY_TEXT,
    REPLY_REASONING,
    REPLY_CALL,      /* begins a call: the text is the tool's name */
    REPLY_ARGUMENTS, /* a piece of its arguments, as JSON */
    REPLY_CALL_END,
} reply_piece;

typedef void (*reply_piece_fn)(void *user, reply_piece piece, const char *text, size_t len);

typedef struct reply_parser_params {
    reply_family family;
    bool parses_calls;     /* false: calls are text */
    bool parses_reasoning; /* false: reasoning is text */
    bool is_reasoning;     /* the prompt ends within reasoning */
    bool is_call;          /* the answer may begin with a call that lacks the text that opens one */
    /* For families that write arguments as text between marks: whether the value of a parameter
     * that is well-formed JSON is still a string. Other values are strings anyway. NULL = it is
     * not. */
    bool (*is_string)(void *user, const char *tool, const char *parameter);
    reply_piece_fn take;
    void *user; /* of both */
} reply_parser_params;

typedef struct reply_parser reply_parser;

/* Copies the params. NULL = no memory. One thread at a time for a parser. */
reply_parser *reply_parser_create(const reply_parser_params *params);
/* Adds text, and passes the pieces that are decided. False = no memory; this text is lost. */
bool reply_parser_push(reply_parser *parser, const char *text, size_t len);
/* The text ends: passes the rest. */
void reply_parser_end(reply_parser *parser);
/* Whether the text ended within a call, before all of its arguments had come; the call was ended
 * nevertheless. Of gpt-oss also where a call's arguments are whole, since the mark that ends it need
 * not be text. False until reply_parser_end is called. */
bool reply_parser_is_cut(const reply_parser *parser);
/* NULL is a no-op. */
void reply_parser_destroy(reply_parser *parser);

#endif
