/* SPDX-License-Identifier: MIT
 *
 * config_file.c: reads one INI file into a runner_config, through inih.
 *
 * The form of a file (docs/config.md describes it for users):
 *
 *     # a comment; so is a line that begins with ';'
 *     key = value        # a comment too: '#' after a blank
 *     key = a=x;b=y      a ';' inside a line is always part of the value
 *     key = " # "        text in double quotes, with \n \t \r \" \\
 *     [device NAME]
 *
 * inih splits lines into sections, names and values. `reader_next` gives it the lines and changes
 * them, because some of what inih (release 55) does must be prevented:
 *   - It takes an indented line as part of the value above: indentation is removed.
 *   - It takes a blank and ';' as the start of a comment, which would cut regular expressions and
 *     prompts: ';' (and '#', which other builds of inih treat so) is replaced by a control
 *     character, and put back afterwards.
 *   - It does not report a section without keys: behind each heading, inih gets a line of ours with
 *     the key HEADING_KEY, so that it reports the section.
 *   - It splits lines above 200 bytes: the limit is raised where this inih allows that, and a
 *     longer line is an error.
 *   - It skips lines that it cannot parse: a line that inih does not report is an error here.
 */
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/config/config_state.h"

#define FILE_SIZE_MAX    ((size_t)1 << 20)
#define LINE_SIZE_MAX    65536
#define SECTION_NAME_MAX 31 /* tdm_split_member.name, which identifies a member, holds no more */

/* Stand in for characters on the way through inih. A file that contains these bytes is refused. */
#define STAND_IN_SEMICOLON '\x01'
#define STAND_IN_HASH      '\x02'
#define HEADING_KEY        "\x03"

typedef struct file_reader {
    runner_config *config;
    runner_section *section; /* that the next settings belong to */
    const char *path;
    const char *at;       /* the rest of the text */
    int line;             /* number of the line last taken from it */
    bool heading_pending; /* inih got a heading, and gets our line behind it next */
    bool is_reported;     /* inih has reported the line that it got last */
    tdm_status status;    /* the first failure; nothing is read after it */
    tdm_error *err;
} file_reader;

TDM_PRINTF(2, 3)
static void reader_fail(file_reader *reader, const char *format, ...) {
    char message[TDM_ERROR_MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (reader->status == TDM_OK)
        reader->status = tdm_fail(reader->err, TDM_INVALID_ARGUMENT, "%s:%d: %s", reader->path,
                                  reader->line, message);
}

/* Checks the form of "[...]" and of what follows it. */
static bool heading_check(file_reader *reader, const char *text, size_t len) {
    const char *end = memchr(text, ']', len);
    if (end == NULL) {
        reader_fail(reader, "the section heading '%.*s' has no ']'", (int)(len < 60 ? len : 60),
                    text);
        return false;
    }
    for (const char *at = end + 1; at < text + len; at++) {
        if (*at == '#' || *at == ';') break;
        if (*at != ' ' && *at != '\t') {
            reader_fail(reader,
                        "text after the section heading '%.*s'; keys go on lines of "
                        "their own",
                        (int)(end + 1 - text < 60 ? end + 1 - text : 60), text);
            return false;
        }
    }
    return true;
}

/* An ini_reader: gives inih the next line; NULL ends the file. */
static char *reader_next(char *line, int size, void *user) {
    file_reader *reader = user;
    if (reader->status != TDM_OK) return NULL;
    if (reader->heading_pending) {
        reader->heading_pending = false;
        snprintf(line, (size_t)size, "%s=\n", HEADING_KEY);
        return line;
    }
    if (!reader->is_reported) {
        reader_fail(reader, "expected 'key = value' or '[section]'");
        return NULL;
    }
    while (*reader->at != '\0') {
        size_t len = strcspn(reader->at, "\n");
        const char *text = reader->at;
        reader->at += len + (text[len] == '\n');
        reader->line++;
        while (len > 0 && strchr(" \t\r", text[len - 1]) != NULL) len--;
        while (len > 0 && strchr(" \t\r", *text) != NULL) text++, len--;
        if (len == 0 || *text == '#' || *text == ';') continue;
        bool is_heading = *text == '[';
        if (is_heading && !heading_check(reader, text, len)) return NULL;
        if (is_heading) len = (size_t)((const char *)memchr(text, ']', len) + 1 - text);
        if (len + 2 > (size_t)size) {
            reader_fail(reader, "a line of %zu bytes; the most is %d", len, size - 2);
            return NULL;
        }
        for (size_t i = 0; i < len; i++)
            line[i] = text[i] == ';'   ? STAND_IN_SEMICOLON
                      : text[i] == '#' ? STAND_IN_HASH
                                       : text[i];
        line[len] = '\n';
        line[len + 1] = '\0';
        reader->heading_pending = is_heading;
        reader->is_reported = false;
        return line;
    }
    return NULL;
}

static void stand_ins_undo(char *text) {
    for (; *text != '\0'; text++) {
        if (*text == STAND_IN_SEMICOLON) *text = ';';
        if (*text == STAND_IN_HASH) *text = '#';
    }
}

/* Reads a quoted value in place: removes the quotes and replaces escapes. */
static bool quoted_read(file_reader *reader, char *text) {
    char *to = text, *from = text + 1;
    for (; *from != '"'; from++) {
        if (*from == '\0') {
            reader_fail(reader, "the text in quotes does not end");
            return false;
        }
        if (*from != '\\') {
            *to++ = *from;
            continue;
        }
        static const char letters[] = "ntr\"\\", meant[] = "\n\t\r\"\\";
        from++;
        const char *letter = *from != '\0' ? strchr(letters, *from) : NULL;
        if (letter == NULL) {
            reader_fail(reader,
                        "unknown escape '\\%.1s' in quotes; there are \\n \\t \\r \\\" "
                        "\\\\",
                        from);
            return false;
        }
        *to++ = meant[letter - letters];
    }
    from++;
    size_t blanks = strspn(from, " \t");
    if (from[blanks] != '\0' && (from[blanks] != '#' || blanks == 0)) {
        reader_fail(reader, "text after the closing quote; a quote inside is written \\\"");
        return false;
    }
    *to = '\0';
    return true;
}

/* Removes the comment or the quotes of a value. */
static bool value_read(file_reader *reader, char *text) {
    stand_ins_undo(text);
    if (text[0] == '"') return quoted_read(reader, text);
    for (char *at = text; *at != '\0'; at++) {
        if (*at != '#' || (at != text && at[-1] != ' ' && at[-1] != '\t')) continue;
        while (at > text && (at[-1] == ' ' || at[-1] == '\t')) at--;
        *at = '\0';
        break;
    }
    return true;
}

static bool section_name_is_valid(const char *name) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_.-";
    size_t len = strlen(name);
    return len > 0 && len <= SECTION_NAME_MAX && strspn(name, allowed) == len;
}

static void heading_unknown(file_reader *reader, const char *heading, const char *kind) {
    static const char *const kinds[] = {"device", "group", "model"};
    const char *nearest = runner_word_nearest(kind, kinds, 3);
    char guess[96] = "";
    if (nearest != NULL)
        snprintf(guess, sizeof guess, "; did you mean '[%s %s]'?", nearest,
                 heading[strlen(kind)] != '\0' ? heading + strlen(kind) + 1 : "NAME");
    reader_fail(reader,
                "unknown section '[%s]': there are [*], [device NAME], [group NAME] and "
                "[model NAME]%s",
                heading, guess);
}

/* Opens the section of a heading (without brackets). */
static void heading_read(file_reader *reader, const char *heading) {
    runner_config *config = reader->config;
    if (strcmp(heading, "*") == 0) {
        reader->section = config->sections;
        if (reader->section->line != 0)
            reader_fail(reader, "section [*] was already given on line %d", reader->section->line);
        reader->section->line = reader->line;
        return;
    }
    char kind[64];
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(heading, " \t"), heading);
    const char *name = heading + strlen(kind);
    name += strspn(name, " \t");
    runner_section_kind which = RUNNER_SECTION_DEFAULTS;
    for (int k = RUNNER_SECTION_MODEL; k <= RUNNER_SECTION_GROUP; k++)
        if (strcmp(kind, runner_section_kind_word((runner_section_kind)k)) == 0)
            which = (runner_section_kind)k;
    if (which == RUNNER_SECTION_DEFAULTS) {
        heading_unknown(reader, heading, kind);
        return;
    }
    if (*name == '\0') {
        reader_fail(reader, "section '[%s]' has no name: [%s NAME]", kind, kind);
        return;
    }
    if (!section_name_is_valid(name) || strcmp(name, "auto") == 0) {
        reader_fail(reader,
                    "bad section name '%s': at most %d letters, digits, '_', '.' and '-', "
                    "and not 'auto'",
                    name, SECTION_NAME_MAX);
        return;
    }
    /* `device` may name a device or a group, so no two of them may have the same name */
    const runner_section *same = runner_config_find_section(config, which, name);
    if (same == NULL && which == RUNNER_SECTION_DEVICE)
        same = runner_config_find_section(config, RUNNER_SECTION_GROUP, name);
    if (same == NULL && which == RUNNER_SECTION_GROUP)
        same = runner_config_find_section(config, RUNNER_SECTION_DEVICE, name);
    if (same != NULL && same->kind != which) {
        reader_fail(reader,
                    "[%s %s] has the name of [%s %s] on line %d; `device = %s` would mean "
                    "both",
                    kind, name, runner_section_kind_word(same->kind), name, same->line, name);
        return;
    }
    if (same != NULL) {
        reader_fail(reader, "section [%s %s] was already given on line %d", kind, name, same->line);
        return;
    }
    tdm_status status =
        runner_config_add_section(config, which, name, reader->line, &reader->section, reader->err);
    if (status != TDM_OK) reader->status = status;
}

static void setting_read(file_reader *reader, const char *name, const char *text) {
    runner_config *config = reader->config;
    unsigned bit = runner_section_kind_bit(reader->section->kind);
    const runner_key *key = runner_key_find_in(&config->keys, name, bit);
    tdm_status status;
    if (key != NULL) {
        status =
            runner_file_assign(config, reader->section, key, name, text, reader->line, reader->err);
    } else {
        runner_pending entry = {.section = reader->section,
                                .name = (char *)name,
                                .text = (char *)text,
                                .line = reader->line};
        status = runner_pending_add(config, &entry, reader->err);
    }
    if (reader->status == TDM_OK) reader->status = status;
}

/* An ini_handler: inih reports a setting, or a heading by our own line behind it. */
static int reader_handle(void *user, const char *section, const char *name, const char *value) {
    file_reader *reader = user;
    if (reader->status != TDM_OK) return 1;
    reader->is_reported = true;
    if (strcmp(name, HEADING_KEY) == 0) {
        if (strlen(section) >= 49)
            reader_fail(reader,
                        "the section heading '[%s...' is too long; a name has at most %d "
                        "letters",
                        section, SECTION_NAME_MAX);
        else {
            char heading[64];
            snprintf(heading, sizeof heading, "%s", section);
            stand_ins_undo(heading);
            char *text = heading + strspn(heading, " \t");
            size_t len = strlen(text);
            while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t')) text[--len] = '\0';
            heading_read(reader, text);
        }
        return 1;
    }
    if (name[0] == '\0' || value == NULL) {
        reader_fail(reader, "expected 'key = value' or '[section]'");
        return 1;
    }
    char *key = strdup(name), *text = strdup(value);
    if (key == NULL || text == NULL) {
        reader->status = tdm_fail(reader->err, TDM_RESOURCE_EXHAUSTED, "%s:%d: no memory",
                                  reader->path, reader->line);
    } else {
        stand_ins_undo(key);
        if (value_read(reader, text)) setting_read(reader, key, text);
    }
    free(key);
    free(text);
    return 1;
}

/* Reads the whole file as a string; the caller frees *text_out. */
static tdm_status file_load(const char *path, char **text_out, tdm_error *err) {
    *text_out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return tdm_fail(err, errno == ENOENT ? TDM_NOT_FOUND : TDM_IO,
                        "%s: cannot open the configuration: %s", path, strerror(errno));
    struct stat info;
    tdm_status status = TDM_OK;
    if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode))
        status = tdm_fail(err, TDM_IO, "%s: is a folder; --config takes an INI file", path);
    char *text = malloc(FILE_SIZE_MAX + 1);
    if (text == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory to read it", path);
    size_t n = 0;
    while (status == TDM_OK && n <= FILE_SIZE_MAX) {
        ssize_t got = read(fd, text + n, FILE_SIZE_MAX + 1 - n);
        if (got == 0) break;
        if (got > 0)
            n += (size_t)got;
        else if (errno != EINTR)
            status = tdm_fail(err, TDM_IO, "%s: cannot read: %s", path, strerror(errno));
    }
    close(fd);
    if (status == TDM_OK && n > FILE_SIZE_MAX)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                          "%s: larger than %zu KiB; this is not a configuration file", path,
                          FILE_SIZE_MAX / 1024);
    int line = 1;
    for (size_t i = 0; status == TDM_OK && i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n') line++;
        if ((c < ' ' && c != '\n' && c != '\t' && c != '\r') || c == 0x7F)
            status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                              "%s:%d: byte 0x%02x: this is not a text file", path, line, c);
    }
    if (status != TDM_OK) {
        free(text);
        return status;
    }
    text[n] = '\0';
    *text_out = text;
    return TDM_OK;
}

/* Runs inih over the text. Its limits are process-wide variables in Debian's build, and constants
 * elsewhere. */
static int text_parse(file_reader *reader) {
#ifdef RUNNER_INIH_HAS_LIMITS
    int line_before = ini_max_line;
    bool stack_before = ini_use_stack;
    int alloc_before = ini_initial_alloc;
    ini_max_line = LINE_SIZE_MAX;
    ini_initial_alloc = LINE_SIZE_MAX;
    ini_use_stack = false;
#endif
    int result = ini_parse_stream(reader_next, reader, reader_handle, reader);
#ifdef RUNNER_INIH_HAS_LIMITS
    ini_max_line = line_before;
    ini_initial_alloc = alloc_before;
    ini_use_stack = stack_before;
#endif
    return result;
}

/* Checks required keys, and rules on several values of a section. */
static tdm_status section_check(const runner_config *config, runner_section *section,
                                tdm_error *err) {
    const char *kind = runner_section_kind_word(section->kind);
    for (size_t i = 0; i < config->keys.n; i++) {
        const runner_key *key = config->keys.items[i];
        bool is_needed = key->sections == runner_section_kind_bit(section->kind) &&
                         (key->traits & RUNNER_KEY_REQUIRED) != 0;
        if (section->kind == RUNNER_SECTION_MODEL && strcmp(key->name, "model") == 0)
            is_needed = true;
        const runner_setting *own = runner_settings_find(section->settings, key);
        if (!is_needed || (own != NULL && own->text[0] != '\0')) continue;
        if (own == NULL) {
            tdm_status status = runner_pending_check(config, section, key, err);
            if (status != TDM_OK) return status;
        }
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s:%d: [%s %s] needs '%s = %s': %s",
                        config->file, section->line, kind, section->name, key->name,
                        key->value_name, key->help);
    }
    if (section->kind != RUNNER_SECTION_GROUP) return TDM_OK;
    return runner_group_check(config, section, err);
}

tdm_status runner_config_read_file(runner_config *config, const char *path, tdm_error *err) {
    if (config->file != NULL)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "%s: only one configuration can be read",
                        path);
    char *text;
    tdm_status status = file_load(path, &text, err);
    if (status != TDM_OK) return status;
    config->file = strdup(path);
    if (config->file == NULL) {
        free(text);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory to read it", path);
    }
    file_reader reader = {.config = config,
                          .section = config->sections,
                          .path = config->file,
                          .at = text,
                          .is_reported = true,
                          .err = err};
    if (strncmp(reader.at, "\xEF\xBB\xBF", 3) == 0) reader.at += 3; /* byte order mark */
    int result = text_parse(&reader);
    if (reader.status == TDM_OK && !reader.is_reported)
        reader_fail(&reader, "expected 'key = value' or '[section]'");
    if (reader.status == TDM_OK && result < 0)
        reader.status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory to read it", path);
    free(text);
    for (runner_section *at = config->sections; at != NULL && reader.status == TDM_OK;
         at = at->next)
        reader.status = section_check(config, at, err);
    return reader.status == TDM_OK ? runner_pending_resolve(config, false, err) : reader.status;
}
