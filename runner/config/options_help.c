/* SPDX-License-Identifier: MIT
 *
 * options_help.c: prints the text of --help, which is made from the tables of commands and keys
 * alone.
 */
#include "runner/config/options.h"

#include <string.h>

#define COLUMN 30 /* where the explanations begin */
#define WIDTH  100

/* Columns that a UTF-8 text takes; the tables hold no wide or combining characters. */
static size_t text_width(const char *text) {
    size_t n = 0;
    for (; *text != '\0'; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

static void pad(FILE *out, size_t from, size_t to) {
    for (; from < to; from++) fputc(' ', out);
}

/* Prints `text` word by word, beginning at column `at`; later lines begin at COLUMN. */
static void print_wrapped(FILE *out, const char *text, size_t at) {
    while (*text != '\0') {
        size_t len = strcspn(text, " ");
        char word[WIDTH + 1];
        snprintf(word, sizeof word, "%.*s", (int)(len < WIDTH ? len : WIDTH), text);
        size_t width = text_width(word);
        if (at > COLUMN && at + 1 + width > WIDTH) {
            fputc('\n', out);
            pad(out, 0, COLUMN);
            at = COLUMN;
        } else if (at > COLUMN) {
            fputc(' ', out);
            at++;
        }
        fputs(word, out);
        at += width;
        text += len;
        while (*text == ' ') text++;
    }
    fputc('\n', out);
}

static void print_entry(FILE *out, const char *name, const char *text) {
    size_t at = text_width(name);
    fputs(name, out);
    if (at + 2 > COLUMN) {
        fputc('\n', out);
        at = 0;
    }
    pad(out, at, COLUMN);
    print_wrapped(out, text, COLUMN);
}

/* "  -c, --ctx-size N" */
static void key_name_format(const runner_key *key, char *text, size_t text_size) {
    char flag[16] = "    ", value[96] = "";
    if (key->flag != NULL) snprintf(flag, sizeof flag, "-%s, ", key->flag);
    if (key->words != NULL)
        snprintf(value, sizeof value, " WORD");
    else if (key->value_name != NULL)
        snprintf(value, sizeof value, " %s", key->value_name);
    snprintf(text, text_size, "  %s--%s%s%s", flag, key->type == RUNNER_KEY_BOOL ? "[no-]" : "",
             key->name, value);
}

static void key_text_format(const runner_key *key, const runner_command *command, char *text,
                            size_t text_size) {
    size_t n = (size_t)snprintf(text, text_size, "%s", key->help);
    for (size_t i = 0; key->words != NULL && key->words[i] != NULL && n < text_size; i++)
        n += (size_t)snprintf(text + n, text_size - n, "%s%s", i == 0 ? "; one of " : ", ",
                              key->words[i]);
    if (key->alias != NULL && n < text_size)
        n += (size_t)snprintf(text + n, text_size - n, "; also --%s", key->alias);
    if (command->has_lists && (key->traits & RUNNER_KEY_BENCH_LIST) != 0 && n < text_size)
        n += (size_t)snprintf(text + n, text_size - n, "; a list gives every combination");
    if (key->default_value[0] != '\0' && n < text_size)
        snprintf(text + n, text_size - n, " (default %s)", key->default_value);
}

static void print_command(FILE *out, const runner_command *command, const runner_key_list *keys) {
    fprintf(out, "usage: tandem %s [flags]%s%s\n\n%s\n", command->name,
            command->positional != NULL ? " " : "",
            command->positional != NULL ? command->positional : "", command->summary);
    const char *topic = NULL;
    for (size_t i = 0; i < keys->n; i++) {
        const runner_key *key = keys->items[i];
        if (!runner_command_takes(command, key)) continue;
        if (topic == NULL || strcmp(topic, key->topic) != 0) {
            topic = key->topic;
            fprintf(out, "\n%s\n", topic);
        }
        char name[160], text[512];
        key_name_format(key, name, sizeof name);
        key_text_format(key, command, text, sizeof text);
        print_entry(out, name, text);
    }
    fputs("\nGeneral\n", out);
    print_entry(out, "  -h, --help", "show this text");
    fputs("\nA flag beats the file given with --config; docs/config.md explains files and keys.\n",
          out);
}

void runner_help_print(FILE *out, const runner_command *command, const runner_key_list *keys) {
    if (command != NULL) {
        print_command(out, command, keys);
        return;
    }
    fputs("usage: tandem COMMAND [flags]\n\nTandem runs a language model on the devices of this "
          "machine.\n\nCommands\n",
          out);
    for (size_t i = 0; i < n_runner_commands; i++) {
        char name[64];
        snprintf(name, sizeof name, "  %s%s%s", runner_commands[i]->name,
                 runner_commands[i]->positional != NULL ? " " : "",
                 runner_commands[i]->positional != NULL ? runner_commands[i]->positional : "");
        print_entry(out, name, runner_commands[i]->summary);
    }
    fputs(
        "\n`tandem COMMAND --help` or `tandem help COMMAND` shows the flags of a command, `tandem "
        "--version`\nthe version. To begin:\n"
        "  tandem run -m MODEL.gguf -p \"Once upon a time\"\n",
        out);
}
