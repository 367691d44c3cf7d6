/* SPDX-License-Identifier: MIT
 *
 * json_load.c: see json_load.h. Where jansson finds a number too large, the text is parsed again
 * with these numbers in another form.
 */
#include "server/json/json_load.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static size_t n_digit(const char *text) {
    return strspn(text, "0123456789");
}

/* The bytes of the number at the beginning of a text that ends with a NUL, and whether it is whole.
 * 0 = there is no number as JSON has it. */
static size_t number_len(const char *text, bool *is_whole) {
    const size_t sign = text[0] == '-', whole = n_digit(text + sign);
    size_t n = sign + whole;
    *is_whole = true;
    if (whole == 0 || (whole > 1 && text[sign] == '0')) return 0;
    if (text[n] == '.') {
        const size_t fraction = n_digit(text + n + 1);
        if (fraction == 0) return 0;
        n += 1 + fraction;
        *is_whole = false;
    }
    if (text[n] == 'e' || text[n] == 'E') {
        const size_t mark = text[n + 1] == '+' || text[n + 1] == '-' ? 2 : 1;
        const size_t exponent = n_digit(text + n + mark);
        if (exponent == 0) return 0;
        n += mark + exponent;
        *is_whole = false;
    }
    return n;
}

static bool is_beyond_integers(const char *number) {
    errno = 0;
    (void)strtoll(number, NULL, 10);
    return errno == ERANGE;
}

/* The bytes of the string at the beginning of a text, quotes included. */
static size_t string_len(const char *text) {
    size_t n = 1;
    while (text[n] != '"' && text[n] != '\0') n += text[n] == '\\' && text[n + 1] != '\0' ? 2 : 1;
    return text[n] == '"' ? n + 1 : n;
}

/* Copies `text`, which ends with a NUL, and writes numbers that are too large as real numbers or as
 * strings. `to` has room for twice as much. Returns the bytes written. */
static size_t numbers_convert(const char *text, char *to) {
    char *const begin = to;
    while (*text != '\0') {
        bool is_whole = false;
        const size_t sign = *text == '-', n_digits = n_digit(text + sign);
        const size_t number = n_digits > 0 ? number_len(text, &is_whole) : 0;
        /* Digits that are no number are skipped together: text that is no JSON takes no longer. */
        size_t n = number > 0 ? number : n_digits > 0 ? sign + n_digits : 1;
        if (*text == '"') n = string_len(text);
        const bool is_string = number > 0 && !isfinite(strtod(text, NULL));
        const bool is_real = number > 0 && is_whole && !is_string && is_beyond_integers(text);
        if (is_string) *to++ = '"';
        memcpy(to, text, n);
        to += n;
        text += n;
        if (is_string) *to++ = '"';
        if (is_real) *to++ = 'e', *to++ = '0';
    }
    return (size_t)(to - begin);
}

json_t *server_json_load(const char *text, size_t len, size_t flags, json_error_t *reason) {
    json_error_t own;
    if (reason == NULL) reason = &own;
    json_t *value = json_loadb(text, len, flags, reason);
    const bool has_large = value == NULL && json_error_code(reason) == json_error_numeric_overflow;
    if (!has_large || memchr(text, '\0', len) != NULL) return value;
    char *copy = malloc(len + 1), *converted = malloc(2 * len + 1);
    if (copy != NULL && converted != NULL) {
        memcpy(copy, text, len);
        copy[len] = '\0';
        value = json_loadb(converted, numbers_convert(copy, converted), flags, reason);
    }
    free(copy);
    free(converted);
    return value;
}
