/* SPDX-License-Identifier: MIT
 *
 * commands.c: the table of commands, in the order of the help text. What each takes beside its keys
 * is here; the keys, and which commands have them, are in options.c.
 */
#include "runner/config/options.h"

const runner_command runner_commands[] = {
    {"run", RUNNER_COMMAND_RUN, "", 0, 0, "generate text from a prompt, a file or standard input"},
    {"chat", RUNNER_COMMAND_CHAT, "", 0, 0,
     "talk with a model, in the chat template that its file carries"},
    {"plan", RUNNER_COMMAND_PLAN, "", 0, 0,
     "explain what a configuration takes, and how fast it will be"},
    {"logits", RUNNER_COMMAND_LOGITS, "", 0, 0,
     "write the logits of every position of given tokens to a file"},
    {"bench", RUNNER_COMMAND_BENCH, "", 0, 0,
     "measure prefill and decoding speed, for every combination given"},
    {"perplexity", RUNNER_COMMAND_PERPLEXITY, "", 0, 0,
     "measure how well a model foretells a text, alone or against another"},
    {"tokenize", RUNNER_COMMAND_TOKENIZE, "", 0, 0, "show the tokens of a text"},
    {"devices", RUNNER_COMMAND_DEVICES, "", 0, 0, "list plugins and the devices they found"},
    {"config", RUNNER_COMMAND_CONFIG, "", 0, 0,
     "print the effective configuration and where it came from"},
    {"quantize", RUNNER_COMMAND_QUANTIZE, "IN.gguf OUT.gguf TYPE", 3, 3,
     "write a model in a smaller type, such as q8_0 or q4_K_M"},
    {"convert-info", RUNNER_COMMAND_INFO, "MODEL.gguf", 1, 1,
     "show what is in a GGUF file: keys, tensors, types, chat template"},
    {"certify", RUNNER_COMMAND_CERTIFY, "PLUGIN.so", 0, 1, /* --list needs none */
     "run the conformance suite against a plugin"},
};
const size_t n_runner_commands = sizeof runner_commands / sizeof runner_commands[0];
