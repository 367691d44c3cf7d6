/* SPDX-License-Identifier: MIT
 *
 * schema_string.c: strings of a JSON Schema: lengths, patterns and formats. See schema.h.
 */
#include <string.h>

#include "server/grammar/schema.h"

#define DIGIT "[0-9]"
#define HEX   "[0-9a-fA-F]"
#define OCTET "(\"25\" [0-5] | \"2\" [0-4] [0-9] | \"1\" [0-9] [0-9] | [1-9]? [0-9])"
#define LABEL "([a-z0-9] ([a-z0-9-]{0,61} [a-z0-9])?)"
#define DATE                                                                                       \
    "((\"0\" [0-9]{2} [1-9] | [1-9] [0-9]{3}) \"-\" ((\"01\" | \"03\" | \"05\" | \"07\" | \"08\" " \
    "| \"10\" | \"12\") \"-\" "                                                                    \
    "(\"0\" [1-9] | [12] [0-9] | \"3\" [01]) | (\"04\" | \"06\" | \"09\" | \"11\") \"-\" "         \
    "(\"0\" [1-9] | [12] [0-9] | \"30\") | \"02-\" (\"0\" [1-9] | \"1\" [0-9] | \"2\" [0-8])))"
#define TIME                                                                                       \
    "(([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9] \":\" [0-5] [0-9] (\".\" [0-9]{1,6})? (\"Z\" "  \
    "| "                                                                                           \
    "[+-] ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9]))"

/* The formats of draft 2020-12, section 7.3, that are regular, with rules for some of their texts.
 * Left out are 29 February, the rarer forms of addresses, and the year 0000, which some libraries
 * refuse. rule NULL = the format is a note. */
static const struct {
    const char *name, *rule;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE " \"T\" " TIME},
    {"duration", "\"P\" ([0-9]{1,4} \"W\" | [0-9]{1,4} \"D\" (\"T\" [0-9]{1,2} \"H\")? | \"T\" "
                 "([0-9]{1,4} \"H\" ([0-9]{1,4} \"M\" ([0-9]{1,4} \"S\")?)? | [0-9]{1,4} \"M\" "
                 "([0-9]{1,4} \"S\")? | [0-9]{1,4} \"S\"))"},
    {"uuid", HEX "{8} \"-\" " HEX "{4} \"-\" " HEX "{4} \"-\" " HEX "{4} \"-\" " HEX "{12}"},
    {"email", "[a-zA-Z0-9_] [a-zA-Z0-9_+-]{0,30} (\".\" [a-zA-Z0-9_+-]{1,30})? \"@\" " LABEL
              " (\".\" " LABEL "){1,3}"},
    {"hostname", LABEL " (\".\" " LABEL "){0,3}"},
    {"ipv4", OCTET " (\".\" " OCTET "){3}"},
    {"ipv6", HEX "{1,4} (\":\" " HEX "{1,4}){7}"},
    {"uri", "(\"http\" \"s\"? | \"ftp\" | \"file\") \"://\" " LABEL " (\".\" " LABEL "){0,3} "
            "(\":\" [1-9] " DIGIT "{0,3})? (\"/\" [a-zA-Z0-9._~-]*)* (\"?\" [a-zA-Z0-9._~=&-]*)? "
            "(\"#\" [a-zA-Z0-9._~-]*)?"},
    {"int32", NULL}, /* these are OpenAPI's: of numbers, and of how a string is displayed */
    {"int64", NULL},
    {"float", NULL},
    {"double", NULL},
    {"password", NULL},
};

static bool format_write(schema_writer *w, const char *name, FILE *out, bool *is_written) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, name) != 0) continue;
        *is_written = formats[i].rule != NULL;
        if (*is_written) fprintf(out, "(\"\\\"\" %s \"\\\"\")", formats[i].rule);
        return true;
    }
    return schema_fail(
        w, TDM_UNSUPPORTED,
        "format '%.60s' is not supported; there are date, time, date-time, duration, "
        "uuid, email, hostname, ipv4, ipv6 and uri, or a 'pattern'",
        name);
}

bool schema_string_write(schema_writer *w, json_t *schema, FILE *out) {
    const json_t *pattern = json_object_get(schema, "pattern");
    const json_t *format = json_object_get(schema, "format");
    int64_t n_min = 0, n_max = INT64_MAX;
    bool is_written = false;
    if (!schema_count_read(w, schema, "minLength", &n_min) ||
        !schema_count_read(w, schema, "maxLength", &n_max))
        return false;
    if (n_min > n_max)
        return schema_fail(w, TDM_INVALID_ARGUMENT, "'minLength' is above 'maxLength'");
    if ((pattern != NULL && !json_is_string(pattern)) ||
        (format != NULL && !json_is_string(format)))
        return schema_fail(w, TDM_INVALID_ARGUMENT, "'pattern' and 'format' must be strings");
    const bool has_lengths = n_min > 0 || n_max != INT64_MAX;
    if (format != NULL && !format_write(w, json_string_value(format), out, &is_written))
        return false;
    if ((is_written || pattern != NULL) && (has_lengths || (is_written && pattern != NULL)))
        return schema_fail(w, TDM_UNSUPPORTED,
                           "more than one of 'pattern', 'format' and lengths is not supported; "
                           "put lengths into the pattern, as in ^[a-z]{2,8}$");
    if (is_written) return true;
    if (pattern != NULL) {
        fprintf(out, "(\"\\\"\" ");
        if (!schema_pattern_write(w, json_string_value(pattern), json_string_length(pattern), out))
            return false;
        fprintf(out, " \"\\\"\")");
        return true;
    }
    if (!has_lengths)
        fprintf(out, "string");
    else if (n_max == INT64_MAX)
        fprintf(out, "(\"\\\"\" char{%lld,} \"\\\"\")", (long long)n_min);
    else
        fprintf(out, "(\"\\\"\" char{%lld,%lld} \"\\\"\")", (long long)n_min, (long long)n_max);
    return true;
}
