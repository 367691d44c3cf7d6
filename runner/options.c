/* SPDX-License-Identifier: MIT
 *
 * options.c: the tables of commands and keys, and finding words in them. Help text is made in
 * options_help.c, values are read in config_value.c.
 *
 * Names, short flags and defaults are those of llama.cpp's command line wherever the concept is
 * the same, so that nobody has to learn a second set.
 */
#include "runner/options.h"

#include <stdint.h>
#include <string.h>

#include "llm/context.h"

#define RUN      RUNNER_COMMAND_RUN
#define LOGITS   RUNNER_COMMAND_LOGITS
#define BENCH    RUNNER_COMMAND_BENCH
#define TOKENIZE RUNNER_COMMAND_TOKENIZE
#define DEVICES  RUNNER_COMMAND_DEVICES
#define CONFIG   RUNNER_COMMAND_CONFIG
#define CERTIFY  RUNNER_COMMAND_CERTIFY
/* commands that compute with a model, and every command */
#define COMPUTE (RUN | LOGITS | BENCH | CONFIG)
#define EVERY   (COMPUTE | TOKENIZE | DEVICES | CERTIFY)

#define TOP         RUNNER_IN_DEFAULTS
#define TOP_MODEL   (RUNNER_IN_DEFAULTS | RUNNER_IN_MODEL)
#define EVERY_PLACE (RUNNER_IN_DEFAULTS | RUNNER_IN_MODEL | RUNNER_IN_DEVICE)

const runner_command runner_commands[] = {
    {"run", RUN, "", 0, 0, "generate text from a prompt, a file or standard input"},
    {"logits", LOGITS, "", 0, 0, "write the logits of every position of given tokens to a file"},
    {"bench", BENCH, "", 0, 0, "measure prefill and decoding speed, for every combination given"},
    {"tokenize", TOKENIZE, "", 0, 0, "show the tokens of a text"},
    {"devices", DEVICES, "", 0, 0, "list plugins and the devices they found"},
    {"config", CONFIG, "", 0, 0, "print the effective configuration and where it came from"},
    {"certify", CERTIFY, "PLUGIN.so", 1, 1, "run the conformance suite against a plugin"},
};
const size_t n_runner_commands = sizeof runner_commands / sizeof runner_commands[0];

/* The types that a cache can be kept in (tandem/kv.h). */
static const char *const cache_types[] = {"f32",  "f16",  "bf16", "q8_0",   "q5_1",
                                          "q5_0", "q4_1", "q4_0", "iq4_nl", NULL};
static const char *const isa_words[] = {"auto", "plain", "avx2", "avx512", NULL};
static const char *const path_words[] = {"fast", "reference", NULL};
static const char *const split_words[] = {"tensor", "layer", NULL};
static const char *const reduce_words[] = {"f32", "f16", "bf16", "q8_0", NULL};
static const char *const attention_words[] = {"auto", "replicate", "fewer", "sequence", NULL};
static const char *const expert_words[] = {"hidden", "expert", NULL};
static const char *const check_words[] = {"none", "replicas", NULL};
static const char *const format_words[] = {"md", "csv", "json", "jsonl", NULL};

#define INT_MAX_ 2147483647.0
/* What a context takes (llm/context.h). */
#define CTX_MAX    ((double)LLM_MAX_CTX)
#define UBATCH_MAX ((double)LLM_MAX_UBATCH)

const runner_key runner_keys[] = {
    {.topic = "Model and device",
     .name = "model",
     .flag = "m",
     .type = RUNNER_KEY_PATH,
     .fallback = "",
     .value_name = "PATH",
     .sections = TOP_MODEL,
     .commands = COMPUTE | TOKENIZE,
     .traits = RUNNER_KEY_BENCH_LIST,
     .help = "GGUF file, first part of a split one, or the NAME of a [model NAME] section"},
    {.topic = "Model and device",
     .name = "device",
     .flag = "dev",
     .type = RUNNER_KEY_STRING,
     .fallback = "auto",
     .value_name = "NAME",
     .sections = TOP_MODEL,
     .commands = COMPUTE,
     .traits = RUNNER_KEY_BENCH_LIST,
     .help = "device to run on: a section of the file, or a name that `tandem devices` shows; auto "
             "= the file's only one, or the CPU"},
    {.topic = "Model and device",
     .name = "plugin-path",
     .type = RUNNER_KEY_PATHS,
     .fallback = "",
     .value_name = "DIR[:DIR]",
     .sections = TOP,
     .commands = COMPUTE | DEVICES,
     .help = "folders searched for plugins, before TANDEM_PLUGIN_PATH and the installed folder"},
    {.topic = "Model and device",
     .name = "config",
     .type = RUNNER_KEY_PATH,
     .fallback = "",
     .value_name = "FILE",
     .commands = EVERY,
     .help = "INI file to read (no short flag: -c is the context size)"},

    {.topic = "Context and cache",
     .name = "ctx-size",
     .flag = "c",
     .type = RUNNER_KEY_INT,
     .fallback = "auto",
     .value_name = "N",
     .max = CTX_MAX,
     .auto_value = -1,
     .sections = TOP_MODEL,
     .commands = RUN | LOGITS | CONFIG,
     .traits = RUNNER_KEY_AUTO,
     .help = "tokens that the cache has room for; 0 = as many as the model was trained for, auto "
             "= that, but at most 4096"},
    {.topic = "Context and cache",
     .name = "batch-size",
     .flag = "b",
     .type = RUNNER_KEY_INT,
     .fallback = "2048",
     .value_name = "N",
     .min = 1,
     .max = INT_MAX_,
     .sections = TOP_MODEL,
     .commands = COMPUTE,
     .traits = RUNNER_KEY_BENCH_LIST,
     .help = "tokens of a prompt handed over at a time"},
    {.topic = "Context and cache",
     .name = "ubatch-size",
     .flag = "ub",
     .type = RUNNER_KEY_INT,
     .fallback = "512",
     .value_name = "N",
     .min = 1,
     .max = UBATCH_MAX,
     .sections = TOP_MODEL,
     .commands = COMPUTE,
     .traits = RUNNER_KEY_BENCH_LIST,
     .help = "tokens computed in one step; compute memory grows with it"},
    {.topic = "Context and cache",
     .name = "parallel",
     .flag = "np",
     .type = RUNNER_KEY_INT,
     .fallback = "1",
     .value_name = "N",
     .min = 1,
     .max = 256,
     .sections = TOP_MODEL,
     .commands = RUN | CONFIG,
     .help = "sequences generated from the prompt, decoded together"},
    {.topic = "Context and cache",
     .name = "cache-type-k",
     .flag = "ctk",
     .type = RUNNER_KEY_ENUM,
     .fallback = "f16",
     .words = cache_types,
     .sections = TOP_MODEL,
     .commands = COMPUTE,
     .traits = RUNNER_KEY_BENCH_LIST,
     .help = "type in which the cache keeps K"},
    {.topic = "Context and cache",
     .name = "cache-type-v",
     .flag = "ctv",
     .type = RUNNER_KEY_ENUM,
     .fallback = "f16",
     .words = cache_types,
     .sections = TOP_MODEL,
     .commands = COMPUTE,
     .traits = RUNNER_KEY_BENCH_LIST,
     .help = "type in which the cache keeps V, chosen apart from K's"},
    {.topic = "Context and cache",
     .name = "kv-rotate",
     .type = RUNNER_KEY_BOOL,
     .fallback = "yes",
     .sections = TOP_MODEL,
     .commands = COMPUTE,
     .traits = RUNNER_KEY_BENCH_LIST,
     .help = "rotate heads before a quantised cache type stores them; no effect on f32, f16, bf16"},
    {.topic = "Context and cache",
     .name = "page-size",
     .type = RUNNER_KEY_INT,
     .fallback = "64",
     .value_name = "N",
     .min = 1,
     .max = 1024,
     .sections = TOP_MODEL,
     .commands = COMPUTE,
     .traits = RUNNER_KEY_POWER_OF_TWO,
     .help = "tokens in a page of the cache, a power of two"},
    {.topic = "Context and cache",
     .name = "context-shift",
     .type = RUNNER_KEY_BOOL,
     .fallback = "no",
     .sections = TOP_MODEL,
     .commands = RUN | CONFIG,
     .help = "when the context is full, drop old tokens and go on instead of stopping"},
    {.topic = "Context and cache",
     .name = "keep",
     .type = RUNNER_KEY_INT,
     .fallback = "0",
     .value_name = "N",
     .min = -1,
     .max = INT_MAX_,
     .sections = TOP_MODEL,
     .commands = RUN | CONFIG,
     .help = "tokens of the prompt that a context shift leaves alone, besides the one that begins "
             "every text; -1 = the whole prompt"},

    {.topic = "Prompt and output",
     .name = "prompt",
     .flag = "p",
     .type = RUNNER_KEY_STRING,
     .fallback = "",
     .value_name = "TEXT",
     .rival = "file",
     .sections = TOP_MODEL,
     .commands = RUN | TOKENIZE | CONFIG,
     .help = "text to begin with; without it and --file, standard input"},
    {.topic = "Prompt and output",
     .name = "file",
     .flag = "f",
     .type = RUNNER_KEY_PATH,
     .fallback = "",
     .value_name = "PATH",
     .rival = "prompt",
     .sections = TOP_MODEL,
     .commands = RUN | TOKENIZE | CONFIG,
     .help = "file whose text is the prompt"},
    {.topic = "Prompt and output",
     .name = "escape",
     .flag = "e",
     .type = RUNNER_KEY_BOOL,
     .fallback = "yes",
     .sections = TOP_MODEL,
     .commands = RUN | TOKENIZE | CONFIG,
     .help = "read \\n, \\t, \\r, \\\", \\' and \\\\ in --prompt as the characters they stand for"},
    {.topic = "Prompt and output",
     .name = "display-prompt",
     .type = RUNNER_KEY_BOOL,
     .fallback = "yes",
     .sections = TOP_MODEL,
     .commands = RUN | CONFIG,
     .help = "print the prompt before the generated text"},
    {.topic = "Prompt and output",
     .name = "predict",
     .flag = "n",
     .alias = "n-predict",
     .type = RUNNER_KEY_INT,
     .fallback = "-1",
     .value_name = "N",
     .min = -1,
     .max = INT_MAX_,
     .sections = TOP_MODEL,
     .commands = RUN | CONFIG,
     .help = "tokens to generate; -1 = until the model ends the text or the context is full"},
    {.topic = "Prompt and output",
     .name = "ignore-eos",
     .type = RUNNER_KEY_BOOL,
     .fallback = "no",
     .sections = TOP_MODEL,
     .commands = RUN | CONFIG,
     .help = "go on where the model would end the text"},
    {.topic = "Prompt and output",
     .name = "special",
     .flag = "sp",
     .type = RUNNER_KEY_BOOL,
     .fallback = "no",
     .sections = TOP_MODEL,
     .commands = RUN | TOKENIZE | CONFIG,
     .help = "print special tokens as text"},

    {.topic = "Sampling",
     .name = "seed",
     .flag = "s",
     .type = RUNNER_KEY_INT,
     .fallback = "-1",
     .value_name = "N",
     .min = -1,
     .max = 4294967295.0,
     .sections = TOP_MODEL,
     .commands = RUN | BENCH | CERTIFY | CONFIG,
     .help = "seed of everything random; -1 = a new one each time"},
    {.topic = "Sampling",
     .name = "temp",
     .alias = "temperature",
     .type = RUNNER_KEY_FLOAT,
     .fallback = "0.8",
     .value_name = "X",
     .max = 1000,
     .sections = TOP_MODEL,
     .commands = RUN | CONFIG,
     .help = "temperature; 0 = always the likeliest token"},
    {.topic = "Sampling",
     .name = "top-k",
     .type = RUNNER_KEY_INT,
     .fallback = "40",
     .value_name = "N",
     .max = INT_MAX_,
     .sections = TOP_MODEL,
     .commands = RUN | CONFIG,
     .help = "choose among the N likeliest tokens; 0 = all"},
    {.topic = "Sampling",
     .name = "top-p",
     .type = RUNNER_KEY_FLOAT,
     .fallback = "0.95",
     .value_name = "X",
     .max = 1,
     .sections = TOP_MODEL,
     .commands = RUN | CONFIG,
     .help = "choose among the likeliest tokens that reach this probability together; 1 = all"},
    {.topic = "Sampling",
     .name = "min-p",
     .type = RUNNER_KEY_FLOAT,
     .fallback = "0.05",
     .value_name = "X",
     .max = 1,
     .sections = TOP_MODEL,
     .commands = RUN | CONFIG,
     .help = "leave out tokens less likely than this part of the likeliest; 0 = none"},
    {.topic = "Sampling",
     .name = "repeat-penalty",
     .type = RUNNER_KEY_FLOAT,
     .fallback = "1.0",
     .value_name = "X",
     .min = 0.01,
     .max = 100,
     .sections = TOP_MODEL,
     .commands = RUN | CONFIG,
     .help = "penalty on tokens that occurred lately; 1 = none"},
    {.topic = "Sampling",
     .name = "repeat-last-n",
     .type = RUNNER_KEY_INT,
     .fallback = "64",
     .value_name = "N",
     .min = -1,
     .max = INT_MAX_,
     .sections = TOP_MODEL,
     .commands = RUN | CONFIG,
     .help = "tokens that the penalty looks back on; 0 = none, -1 = the whole context"},

    {.topic = "Devices",
     .name = "plugin",
     .type = RUNNER_KEY_STRING,
     .fallback = "",
     .value_name = "NAME",
     .sections = RUNNER_IN_DEVICE,
     .traits = RUNNER_KEY_REQUIRED,
     .help = "plugin that drives the device, such as cpu"},
    {.topic = "Devices",
     .name = "index",
     .type = RUNNER_KEY_INT,
     .fallback = "0",
     .value_name = "N",
     .max = 1023,
     .sections = RUNNER_IN_DEVICE,
     .help = "which of the plugin's devices, counted from 0 as `tandem devices` shows them"},
    {.topic = "Devices",
     .name = "threads",
     .flag = "t",
     .type = RUNNER_KEY_INT,
     .fallback = "auto",
     .value_name = "N",
     .min = 1,
     .max = 1024,
     .auto_value = 0,
     .sections = EVERY_PLACE,
     .commands = COMPUTE,
     .traits = RUNNER_KEY_AUTO | RUNNER_KEY_BENCH_LIST,
     .help = "threads of a CPU device; auto = one for each core that it may use"},
    {.topic = "Devices",
     .name = "cores",
     .type = RUNNER_KEY_CORES,
     .fallback = "",
     .value_name = "LIST",
     .max = 4095,
     .sections = EVERY_PLACE,
     .commands = COMPUTE,
     .help = "CPU cores that a CPU device keeps to, such as 0-3,5; empty = any"},
    {.topic = "Devices",
     .name = "isa",
     .type = RUNNER_KEY_ENUM,
     .fallback = "auto",
     .words = isa_words,
     .sections = EVERY_PLACE,
     .commands = COMPUTE,
     .help = "instruction set that a CPU device's kernels use; auto = the best there is"},
    {.topic = "Devices",
     .name = "path",
     .type = RUNNER_KEY_ENUM,
     .fallback = "fast",
     .words = path_words,
     .sections = EVERY_PLACE,
     .commands = COMPUTE,
     .help = "reference = plain f32 arithmetic, slow, what the fast kernels are checked against"},
    {.topic = "Devices",
     .name = "reserve",
     .type = RUNNER_KEY_SIZE,
     .fallback = "0",
     .value_name = "SIZE",
     .sections = EVERY_PLACE,
     .commands = COMPUTE,
     .help = "memory of a device to leave free, such as 512M"},

    {.topic = "Groups",
     .name = "members",
     .type = RUNNER_KEY_NAMES,
     .fallback = "",
     .value_name = "A, B, ...",
     .sections = RUNNER_IN_GROUP,
     .traits = RUNNER_KEY_REQUIRED,
     .help = "the [device NAME] sections that work together as one device"},
    {.topic = "Groups",
     .name = "share",
     .type = RUNNER_KEY_SHARES,
     .fallback = "auto",
     .value_name = "X, Y, ...",
     .sections = RUNNER_IN_GROUP,
     .traits = RUNNER_KEY_AUTO,
     .help = "each member's part of the model, in proportion; auto = by bandwidth and memory"},
    {.topic = "Groups",
     .name = "split",
     .type = RUNNER_KEY_ENUM,
     .fallback = "tensor",
     .words = split_words,
     .sections = RUNNER_IN_GROUP,
     .help = "tensor = every layer is shared among the members, layer = whole layers are"},
    {.topic = "Groups",
     .name = "reduce-type",
     .type = RUNNER_KEY_ENUM,
     .fallback = "f32",
     .words = reduce_words,
     .sections = RUNNER_IN_GROUP,
     .help = "type in which partial sums travel between members"},
    {.topic = "Groups",
     .name = "attention",
     .type = RUNNER_KEY_ENUM,
     .fallback = "auto",
     .words = attention_words,
     .sections = RUNNER_IN_GROUP,
     .help = "with fewer KV heads than members: hold heads twice, use fewer members, or cut by "
             "sequence"},
    {.topic = "Groups",
     .name = "experts",
     .type = RUNNER_KEY_ENUM,
     .fallback = "hidden",
     .words = expert_words,
     .sections = RUNNER_IN_GROUP,
     .help = "cut every expert along its hidden dimension, or hand out whole experts"},
    {.topic = "Groups",
     .name = "check",
     .type = RUNNER_KEY_ENUM,
     .fallback = "none",
     .words = check_words,
     .sections = RUNNER_IN_GROUP,
     .help = "replicas = compare what members hold in common, as it runs"},

    {.topic = "Terminal",
     .name = "quiet",
     .type = RUNNER_KEY_BOOL,
     .fallback = "no",
     .sections = TOP_MODEL,
     .commands = EVERY,
     .help = "no progress, notes or timings; only the result itself and errors"},
    {.topic = "Terminal",
     .name = "verbose",
     .flag = "v",
     .type = RUNNER_KEY_BOOL,
     .fallback = "no",
     .sections = TOP_MODEL,
     .commands = EVERY,
     .help = "also say what plugins and the loader report for debugging"},
    {.topic = "Terminal",
     .name = "color",
     .flag = "co",
     .type = RUNNER_KEY_BOOL,
     .fallback = "auto",
     .auto_value = -1,
     .sections = TOP_MODEL,
     .commands = EVERY,
     .traits = RUNNER_KEY_AUTO,
     .help = "colours on the terminal; auto = where it is one and NO_COLOR is not set"},
    {.topic = "Terminal",
     .name = "profile",
     .type = RUNNER_KEY_BOOL,
     .fallback = "no",
     .sections = TOP_MODEL,
     .commands = RUN | CONFIG,
     .help = "print memory, and counters of graphs, plans and bytes allocated"},

    {.topic = "Only logits",
     .name = "tokens",
     .type = RUNNER_KEY_INTS,
     .fallback = "",
     .value_name = "ID,ID,...",
     .max = INT_MAX_,
     .commands = LOGITS,
     .traits = RUNNER_KEY_REPEATABLE | RUNNER_KEY_AT_FILE,
     .help = "ids of the tokens to evaluate, or @FILE that holds them"},
    {.topic = "Only logits",
     .name = "output",
     .flag = "o",
     .type = RUNNER_KEY_PATH,
     .fallback = "",
     .value_name = "PATH",
     .commands = LOGITS,
     .help = "file to write: little-endian float32, a row of n_vocab for every token"},

    {.topic = "Only tokenize",
     .name = "decode",
     .type = RUNNER_KEY_INTS,
     .fallback = "",
     .value_name = "ID,ID,...",
     .max = INT_MAX_,
     .commands = TOKENIZE,
     .traits = RUNNER_KEY_REPEATABLE | RUNNER_KEY_AT_FILE,
     .help = "the other way: print the text of these tokens, or of those in @FILE"},
    {.topic = "Only tokenize",
     .name = "ids",
     .type = RUNNER_KEY_BOOL,
     .fallback = "no",
     .commands = TOKENIZE,
     .help = "print only the ids, as a list that --tokens takes"},
    {.topic = "Only tokenize",
     .name = "bos",
     .type = RUNNER_KEY_BOOL,
     .fallback = "yes",
     .commands = TOKENIZE,
     .help = "add the tokens that the model wants at the beginning and the end of a text"},
    {.topic = "Only tokenize",
     .name = "parse-special",
     .type = RUNNER_KEY_BOOL,
     .fallback = "yes",
     .commands = TOKENIZE,
     .help = "read special tokens in the text as such"},
    {.topic = "Only tokenize",
     .name = "show-count",
     .type = RUNNER_KEY_BOOL,
     .fallback = "no",
     .commands = TOKENIZE,
     .help = "print the number of tokens"},

    {.topic = "Only bench",
     .name = "n-prompt",
     .flag = "p",
     .type = RUNNER_KEY_INTS,
     .fallback = "512",
     .value_name = "N,N,...",
     .max = CTX_MAX,
     .commands = BENCH,
     .traits = RUNNER_KEY_REPEATABLE,
     .help = "prompt lengths to measure; 0 = none"},
    {.topic = "Only bench",
     .name = "n-gen",
     .flag = "n",
     .type = RUNNER_KEY_INTS,
     .fallback = "128",
     .value_name = "N,N,...",
     .max = CTX_MAX,
     .commands = BENCH,
     .traits = RUNNER_KEY_REPEATABLE,
     .help = "numbers of generated tokens to measure; 0 = none"},
    {.topic = "Only bench",
     .name = "n-prompt-gen",
     .flag = "pg",
     .type = RUNNER_KEY_INTS,
     .fallback = "",
     .value_name = "N,N",
     .max = CTX_MAX,
     .commands = BENCH,
     .traits = RUNNER_KEY_REPEATABLE,
     .help = "pairs of a prompt length and a number of generated tokens, measured together"},
    {.topic = "Only bench",
     .name = "n-depth",
     .flag = "d",
     .type = RUNNER_KEY_INTS,
     .fallback = "0",
     .value_name = "N,N,...",
     .max = CTX_MAX,
     .commands = BENCH,
     .traits = RUNNER_KEY_REPEATABLE,
     .help = "tokens in the cache before the measured part"},
    {.topic = "Only bench",
     .name = "repetitions",
     .flag = "r",
     .type = RUNNER_KEY_INT,
     .fallback = "5",
     .value_name = "N",
     .min = 1,
     .max = 100000,
     .commands = BENCH,
     .help = "how often each test is measured"},
    {.topic = "Only bench",
     .name = "warmup",
     .type = RUNNER_KEY_BOOL,
     .fallback = "yes",
     .commands = BENCH,
     .help = "run each test's prompt, and one token of it, before it is measured"},
    {.topic = "Only bench",
     .name = "output",
     .flag = "o",
     .type = RUNNER_KEY_ENUM,
     .fallback = "md",
     .words = format_words,
     .commands = BENCH,
     .help = "form of the table on standard output"},

    {.topic = "Only certify",
     .name = "level",
     .type = RUNNER_KEY_INT,
     .fallback = "5",
     .value_name = "N",
     .max = 5,
     .commands = CERTIFY,
     .help = "run the checks of levels 0 to N; docs/abi.md says what a level is"},
    {.topic = "Only certify",
     .name = "only",
     .type = RUNNER_KEY_STRING,
     .fallback = "",
     .value_name = "ID",
     .commands = CERTIFY,
     .help = "run the checks whose id begins so, such as buffer or op.rope"},
    {.topic = "Only certify",
     .name = "list",
     .type = RUNNER_KEY_BOOL,
     .fallback = "no",
     .commands = CERTIFY,
     .help = "list all checks, each with its level and the sentence that it rests on; run none"},
    {.topic = "Only certify",
     .name = "device-index",
     .type = RUNNER_KEY_INT,
     .fallback = "0",
     .value_name = "N",
     .max = 1023,
     .commands = CERTIFY,
     .help = "which of the plugin's devices, counted from 0"},
    {.topic = "Only certify",
     .name = "option",
     .type = RUNNER_KEY_NAMES,
     .fallback = "",
     .value_name = "KEY=VALUE",
     .commands = CERTIFY,
     .traits = RUNNER_KEY_REPEATABLE,
     .help = "give the device this option whenever it is opened, such as threads=2"},
};
const size_t n_runner_keys = sizeof runner_keys / sizeof runner_keys[0];

const runner_command *runner_command_find(const char *name) {
    for (size_t i = 0; i < n_runner_commands; i++)
        if (strcmp(runner_commands[i].name, name) == 0) return &runner_commands[i];
    return NULL;
}

static bool key_is_called(const runner_key *key, const char *name) {
    return strcmp(key->name, name) == 0 || (key->alias != NULL && strcmp(key->alias, name) == 0);
}

const runner_key *runner_key_find(const char *name, const runner_command *command) {
    const runner_key *other = NULL;
    for (size_t i = 0; i < n_runner_keys; i++) {
        const runner_key *key = &runner_keys[i];
        if (!key_is_called(key, name)) continue;
        if (command == NULL || (key->commands & command->bit) != 0) return key;
        if (other == NULL) other = key;
    }
    return other;
}

const runner_key *runner_key_find_flag(const char *flag, const runner_command *command) {
    for (size_t i = 0; i < n_runner_keys; i++) {
        const runner_key *key = &runner_keys[i];
        if (key->flag != NULL && strcmp(key->flag, flag) == 0 &&
            (key->commands & command->bit) != 0)
            return key;
    }
    return NULL;
}

#define WORD_MAX 63

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t runner_word_distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    if (n > WORD_MAX || m > WORD_MAX) return SIZE_MAX;
    /* rows i-2, i-1 and i of the usual table; i-2 is for swapped neighbours */
    size_t rows[3][WORD_MAX + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    memset(before, 0, sizeof rows[0]);
    for (size_t j = 0; j <= m; j++) above[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
            size_t best = least(least(above[j], row[j - 1]) + 1, above[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = least(best, before[j - 2] + 1);
            row[j] = best;
        }
        size_t *oldest = before;
        before = above, above = row, row = oldest;
    }
    return above[m];
}

/* How far `word` is from `candidate` for the purpose of a suggestion; SIZE_MAX = too far. */
static size_t word_score(const char *word, const char *candidate) {
    size_t n = strlen(word), m = strlen(candidate);
    if (n == 0 || m == 0) return SIZE_MAX;
    size_t distance = runner_word_distance(word, candidate);
    size_t longer = n > m ? n : m, shorter = n > m ? m : n;
    size_t limit = longer / 3 > 0 ? longer / 3 : 1;
    if (distance <= limit && distance < longer) return distance;
    /* "ctx" for "ctx-size": worth a suggestion, but any near word comes first */
    if (shorter >= 2 && strncmp(word, candidate, shorter) == 0) return WORD_MAX + longer - shorter;
    return SIZE_MAX;
}

const char *runner_word_nearest(const char *word, const char *const *words, size_t n) {
    const char *nearest = NULL;
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        if (words[i] == NULL) continue;
        size_t score = word_score(word, words[i]);
        if (score < best) best = score, nearest = words[i];
    }
    return nearest;
}

const char *runner_key_nearest(const char *word, unsigned sections, const runner_command *command) {
    const char *nearest = NULL;
    size_t best = SIZE_MAX;
    while (*word == '-') word++;
    for (size_t i = 0; i < n_runner_keys; i++) {
        const runner_key *key = &runner_keys[i];
        bool fits = sections != 0 ? (key->sections & sections) != 0
                                  : command == NULL || (key->commands & command->bit) != 0;
        if (!fits) continue;
        size_t score = word_score(word, key->name);
        if (key->alias != NULL) score = least(score, word_score(word, key->alias));
        if (strcmp(key->name, word) == 0 || (key->flag != NULL && strcmp(key->flag, word) == 0))
            score = 0;
        if (score < best) best = score, nearest = key->name;
    }
    return nearest;
}
