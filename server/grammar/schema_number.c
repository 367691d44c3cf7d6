/* SPDX-License-Identifier: MIT
 *
 * schema_number.c: numbers of a JSON Schema with limits. See schema.h.
 *
 * A range of whole numbers is written as alternatives by digits: 27 to 130 is 2[7-9], [3-9][0-9],
 * 1[0-2][0-9], 130. A number with a fraction is written as a whole part and any fraction, where the
 * whole part is such that all these numbers are within the limits.
 */
#include <math.h>
#include <string.h>

#include "server/grammar/schema.h"

/* The largest limit: a double holds every whole number up to it exactly. */
#define WHOLE_MAX INT64_C(999999999999999)

enum { DIGIT_MAX = 15 };

/* ---- Ranges ---- */

static void digits_write(FILE *out, char lo, char hi) {
    if (lo == hi)
        fprintf(out, "\"%c\" ", lo);
    else
        fprintf(out, "[%c-%c] ", lo, hi);
}

static bool is_all(const char *digits, char digit) {
    return strspn(digits, (const char[]){digit, '\0'}) == strlen(digits);
}

/* Writes the numbers from lo to hi, which have the same number of digits. */
static void equal_length_write(FILE *out, const char *lo, const char *hi) {
    const size_t n = strlen(lo);
    if (n == 0) {
        fprintf(out, "\"\"");
        return;
    }
    if (is_all(lo + 1, '0') && is_all(hi + 1, '9')) {
        digits_write(out, lo[0], hi[0]);
        if (n > 1) fprintf(out, "[0-9]{%zu}", n - 1);
        return;
    }
    if (lo[0] == hi[0]) {
        fprintf(out, "\"%c\" (", lo[0]);
        equal_length_write(out, lo + 1, hi + 1);
        fprintf(out, ")");
        return;
    }
    char zeros[DIGIT_MAX + 1] = "", nines[DIGIT_MAX + 1] = "";
    memset(zeros, '0', n - 1);
    memset(nines, '9', n - 1);
    const bool has_low = !is_all(lo + 1, '0'), has_high = !is_all(hi + 1, '9');
    const char from = (char)(lo[0] + has_low), to = (char)(hi[0] - has_high);
    const char *before = "";
    if (has_low) {
        fprintf(out, "\"%c\" (", lo[0]);
        equal_length_write(out, lo + 1, nines);
        fprintf(out, ")");
        before = " | ";
    }
    if (from <= to) {
        fprintf(out, "%s", before);
        digits_write(out, from, to);
        fprintf(out, "[0-9]{%zu}", n - 1);
        before = " | ";
    }
    if (has_high) {
        fprintf(out, "%s\"%c\" (", before, hi[0]);
        equal_length_write(out, zeros, hi + 1);
        fprintf(out, ")");
    }
}

/* Writes the digits of a number, 0 .. WHOLE_MAX. */
static void number_write(char text[DIGIT_MAX + 1], int64_t number) {
    char reversed[DIGIT_MAX];
    int n = 0;
    do {
        reversed[n++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0 && n < DIGIT_MAX);
    for (int i = 0; i < n; i++) text[i] = reversed[n - 1 - i];
    text[n] = '\0';
}

/* Writes the whole numbers from lo to hi; 0 <= lo <= hi <= WHOLE_MAX. */
static void range_write(FILE *out, int64_t lo, int64_t hi) {
    char first[DIGIT_MAX + 1], last[DIGIT_MAX + 1], top[DIGIT_MAX + 1];
    fprintf(out, "(");
    for (;;) {
        number_write(first, lo);
        number_write(last, hi);
        size_t n = strlen(first);
        if (n == strlen(last)) break;
        memset(top, '9', n);
        top[n] = '\0';
        equal_length_write(out, first, top);
        fprintf(out, " | ");
        for (lo = 1; n > 0; n--) lo *= 10;
    }
    equal_length_write(out, first, last);
    fprintf(out, ")");
}

/* ---- Limits ---- */

/* The limits of a number. */
typedef struct limits {
    bool has_low, has_high;
    int64_t low, high;              /* the least and the largest whole number within the limits */
    double low_value, high_value;   /* the limits as the schema has them */
    bool is_low_open, is_high_open; /* the value itself is outside */
} limits;

static bool limit_read(schema_writer *w, const json_t *schema, const char *key, bool *has,
                       double *value) {
    const json_t *limit = json_object_get(schema, key);
    *has = limit != NULL;
    if (limit == NULL) return true;
    if (json_is_boolean(limit))
        return schema_fail(w, TDM_UNSUPPORTED,
                           "'%s' as true or false is of older drafts; it is a number now", key);
    if (!json_is_number(limit))
        return schema_fail(w, TDM_INVALID_ARGUMENT, "'%s' must be a number", key);
    *value = json_number_value(limit);
    return true;
}

static bool limits_read(schema_writer *w, const json_t *schema, limits *l) {
    double value = 0;
    bool has;
    if (!limit_read(w, schema, "minimum", &l->has_low, &l->low_value) ||
        !limit_read(w, schema, "maximum", &l->has_high, &l->high_value))
        return false;
    if (!limit_read(w, schema, "exclusiveMinimum", &has, &value)) return false;
    if (has && (!l->has_low || value >= l->low_value)) {
        l->has_low = l->is_low_open = true;
        l->low_value = value;
    }
    if (!limit_read(w, schema, "exclusiveMaximum", &has, &value)) return false;
    if (has && (!l->has_high || value <= l->high_value)) {
        l->has_high = l->is_high_open = true;
        l->high_value = value;
    }
    /* A limit beyond all numbers that the rules write has no effect. */
    if (l->has_low && l->low_value < -(double)WHOLE_MAX) l->low_value = -(double)WHOLE_MAX;
    if (l->has_high && l->high_value > (double)WHOLE_MAX) l->high_value = (double)WHOLE_MAX;
    if ((l->has_low && l->low_value > (double)WHOLE_MAX) ||
        (l->has_high && l->high_value < -(double)WHOLE_MAX))
        return schema_fail(w, TDM_UNSUPPORTED, "limits of numbers beyond 1e15 are not supported");
    l->low = -WHOLE_MAX;
    l->high = WHOLE_MAX;
    if (l->has_low) {
        l->low = (int64_t)ceil(l->low_value);
        if (l->is_low_open && (double)l->low == l->low_value) l->low++;
    }
    if (l->has_high) {
        l->high = (int64_t)floor(l->high_value);
        if (l->is_high_open && (double)l->high == l->high_value) l->high--;
    }
    return true;
}

/* Writes the whole numbers from low to high; low <= high. */
static void whole_write(FILE *out, int64_t low, int64_t high) {
    if (low < 0) {
        fprintf(out, "\"-\" ");
        range_write(out, high < 0 ? -high : 1, -low);
    }
    if (low < 0 && high >= 0) fprintf(out, " | ");
    if (high >= 0) range_write(out, low > 0 ? low : 0, high);
}

/* Writes the numbers with a fraction between the whole numbers low and high; low < high. x.f is
 * between x and x + 1, and -x.f between -x - 1 and -x. */
static void fraction_write(FILE *out, int64_t low, int64_t high, const char *fraction) {
    if (low < 0) {
        fprintf(out, "\"-\" ");
        range_write(out, high < 0 ? -high : 0, -low - 1);
        fprintf(out, " %s", fraction);
    }
    if (low < 0 && high > 0) fprintf(out, " | ");
    if (high > 0) {
        range_write(out, low > 0 ? low : 0, high - 1);
        fprintf(out, " %s", fraction);
    }
}

/* Whether numbers with a fraction next to an open limit are written: the limit is a whole number,
 * and small enough that these numbers, as doubles, differ from it. */
static bool has_fractions(bool is_open, double value) {
    return is_open && value == floor(value) && fabs(value) < 1e9;
}

bool schema_number_write(schema_writer *w, json_t *schema, bool is_integer, FILE *out) {
    limits l = {0};
    const json_t *step = json_object_get(schema, "multipleOf");
    if (step != NULL && !(is_integer && json_is_number(step) && json_number_value(step) == 1))
        return schema_fail(w, TDM_UNSUPPORTED,
                           "'multipleOf' is not supported, other than 1 for integers; leave it out "
                           "and check the result yourself");
    if (!limits_read(w, schema, &l)) return false;
    if (!l.has_low && !l.has_high) {
        fprintf(out, is_integer ? "whole" : "number");
        return true;
    }
    if (is_integer && l.low > l.high)
        return schema_fail(w, TDM_INVALID_ARGUMENT, "no whole number is within the limits");
    /* Next to an open whole limit the fraction must not be 0: above 0 there is 0.x with x > 0. */
    const bool is_open_low = has_fractions(l.is_low_open, l.low_value);
    const bool is_open_high = has_fractions(l.is_high_open, l.high_value);
    const int64_t from = l.low - is_open_low, to = l.high + is_open_high;
    const bool has_whole = l.low <= l.high, has_fraction = !is_integer && from < to;
    if (!has_whole && !has_fraction)
        return schema_fail(
            w, TDM_UNSUPPORTED,
            "limits of a number with no whole number between them are not supported");
    fprintf(out, "(");
    if (has_whole) whole_write(out, l.low, l.high);
    if (has_whole && has_fraction) fprintf(out, " | ");
    if (has_fraction)
        fraction_write(out, from, to,
                       is_open_low || is_open_high ? "\".\" [0-9]{0,5} [1-9]" : "\".\" [0-9]{1,6}");
    fprintf(out, ")");
    return true;
}
