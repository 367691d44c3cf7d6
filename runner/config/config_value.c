/* SPDX-License-Identifier: MIT
 *
 * config_value.c: reads the text of a value by the type of its key.
 */
#include "runner/config/config_value.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* More values than any useful list has; the longest are the token lists of `logits`. It bounds the
 * memory of a range such as 1-2000000000. */
#define ITEMS_MAX          (1 << 20)
#define LIST_FILE_SIZE_MAX ((size_t)ITEMS_MAX * 12) /* bytes: the longest numbers, with commas */

static tdm_status out_of_memory(const runner_key *key, tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the value of '%s'", key->name);
}

/* "a whole number from 1 to 1024, or auto" */
static void expectation_format(const runner_key *key, char *text, size_t text_size) {
    size_t n = 0;
    switch (key->type) {
    case RUNNER_KEY_INT:
        n = (size_t)snprintf(text, text_size, "%s from %.0f to %.0f",
                             key->traits & RUNNER_KEY_POWER_OF_TWO ? "a power of two"
                                                                   : "a whole number",
                             key->min, key->max);
        break;
    case RUNNER_KEY_INTS:
        n = (size_t)snprintf(text, text_size,
                             "whole numbers from %.0f to %.0f, separated by ',', or ranges (1-4)",
                             key->min, key->max);
        break;
    case RUNNER_KEY_FLOAT:
        n = (size_t)snprintf(text, text_size, "a number from %g to %g", key->min, key->max);
        break;
    case RUNNER_KEY_BOOL: n = (size_t)snprintf(text, text_size, "yes or no"); break;
    case RUNNER_KEY_ENUM:
        n = (size_t)snprintf(text, text_size, "one of");
        for (size_t i = 0; key->words[i] != NULL && n < text_size; i++)
            n += (size_t)snprintf(text + n, text_size - n, "%s %s", i == 0 ? "" : ",",
                                  key->words[i]);
        break;
    case RUNNER_KEY_SIZE:
        n = (size_t)snprintf(text, text_size, "bytes, or a number with K, M, G or T (512M)");
        break;
    case RUNNER_KEY_PATH: n = (size_t)snprintf(text, text_size, "a path"); break;
    case RUNNER_KEY_PATHS:
        n = (size_t)snprintf(text, text_size, "folders separated by ':', none of them empty");
        break;
    case RUNNER_KEY_NAMES:
        n = (size_t)snprintf(text, text_size, "names separated by ',', none of them twice");
        break;
    case RUNNER_KEY_FILES:
        n = (size_t)snprintf(text, text_size, "files separated by ',', none of them twice");
        break;
    case RUNNER_KEY_SHARES:
        n = (size_t)snprintf(text, text_size, "numbers not below 0 separated by ',', not all 0");
        break;
    case RUNNER_KEY_CORES:
        n = (size_t)snprintf(text, text_size,
                             "numbers from %.0f to %.0f such as 0-3,5, none of them twice",
                             key->min, key->max);
        break;
    case RUNNER_KEY_STRING: n = (size_t)snprintf(text, text_size, "a text"); break;
    }
    if ((key->traits & RUNNER_KEY_AUTO) != 0 && n < text_size)
        snprintf(text + n, text_size - n, "%s",
                 (key->traits & RUNNER_KEY_ALL) != 0 ? ", auto or all" : ", or auto");
}

static tdm_status bad_value(const runner_key *key, const char *text, tdm_error *err) {
    char expectation[256];
    expectation_format(key, expectation, sizeof expectation);
    static const char *const bool_words[] = {"yes", "no", "on", "off", "true", "false"};
    static const char *const auto_words[] = {"auto", "all"};
    const char *nearest = NULL;
    if (key->words != NULL) {
        size_t n = 0;
        while (key->words[n] != NULL) n++;
        nearest = runner_word_nearest(text, key->words, n);
    } else if (key->type == RUNNER_KEY_BOOL) {
        nearest = runner_word_nearest(text, bool_words, sizeof bool_words / sizeof bool_words[0]);
    }
    if (nearest == NULL && (key->traits & RUNNER_KEY_AUTO) != 0)
        nearest =
            runner_word_nearest(text, auto_words, (key->traits & RUNNER_KEY_ALL) != 0 ? 2 : 1);
    /* The message has only the beginning of a long value, so that the advice behind it is not cut
     * off. */
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "bad value '%.64s%s' for '%s': expected %s%s%s%s",
                    text, strlen(text) > 64 ? "..." : "", key->name, expectation,
                    nearest != NULL ? "; did you mean '" : "", nearest != NULL ? nearest : "",
                    nearest != NULL ? "'?" : "");
}

/* Reads yes no on off true false 1 0; false = another word. */
static bool bool_parse(const char *text, bool *value_out) {
    static const char *const yes[] = {"yes", "on", "true", "1"};
    static const char *const no[] = {"no", "off", "false", "0"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        if (strcmp(text, yes[i]) == 0) return *value_out = true, true;
        if (strcmp(text, no[i]) == 0) return *value_out = false, true;
    }
    return false;
}

/* Reads a whole decimal number at the start of `text`; *end_out points behind it. */
static bool integer_scan(const char *text, int64_t *value_out, const char **end_out) {
    const char *digits = text + (*text == '-');
    if (*digits < '0' || *digits > '9') return false;
    errno = 0;
    char *end;
    long long value = strtoll(text, &end, 10);
    if (errno != 0) return false;
    *value_out = value, *end_out = end;
    return true;
}

static bool integer_in_range(const runner_key *key, int64_t value) {
    return (double)value >= key->min && (double)value <= key->max;
}

static bool float_parse(const char *text, double *value_out) {
    /* strtod alone would also take "inf", "0x1p3" and blanks */
    if (*text == '\0' || strspn(text, "+-.0123456789eE") != strlen(text)) return false;
    char *end;
    *value_out = strtod(text, &end);
    return *end == '\0' && isfinite(*value_out);
}

static bool size_parse(const char *text, int64_t *value_out) {
    const char *end;
    if (!integer_scan(text, value_out, &end) || *value_out < 0) return false;
    static const char units[] = "KMGT";
    if (*end == '\0') return true;
    char letter = (char)(*end >= 'a' && *end <= 'z' ? *end - 'a' + 'A' : *end);
    const char *unit = strchr(units, letter);
    if (unit == NULL || end[1] != '\0') return false;
    for (const char *u = units; u <= unit; u++)
        if (__builtin_mul_overflow(*value_out, (int64_t)1024, value_out)) return false;
    return true;
}

static bool item_parse(const runner_key *key, const char *text, runner_item *item_out) {
    const char *end;
    bool truth;
    switch (key->type) {
    case RUNNER_KEY_INT:
    case RUNNER_KEY_INTS:
        if (!integer_scan(text, &item_out->i, &end) || *end != '\0') return false;
        if ((key->traits & RUNNER_KEY_POWER_OF_TWO) != 0 && (item_out->i & (item_out->i - 1)) != 0)
            return false;
        return integer_in_range(key, item_out->i);
    case RUNNER_KEY_FLOAT:
        return float_parse(text, &item_out->f) && item_out->f >= key->min &&
               item_out->f <= key->max;
    case RUNNER_KEY_SHARES: return float_parse(text, &item_out->f) && item_out->f >= 0;
    case RUNNER_KEY_BOOL:
        if (!bool_parse(text, &truth)) return false;
        item_out->i = truth;
        return true;
    case RUNNER_KEY_ENUM:
        for (item_out->i = 0; key->words[item_out->i] != NULL; item_out->i++)
            if (strcmp(key->words[item_out->i], text) == 0) return true;
        return false;
    case RUNNER_KEY_SIZE:
        return size_parse(text, &item_out->i) &&
               (key->max == 0 || integer_in_range(key, item_out->i));
    case RUNNER_KEY_PATH:
    case RUNNER_KEY_PATHS:
    case RUNNER_KEY_FILES:
    case RUNNER_KEY_NAMES: return *text != '\0';
    case RUNNER_KEY_STRING: return true;
    case RUNNER_KEY_CORES: break; /* list_entry_parse reads it, since a range is several items */
    }
    return false;
}

static bool key_holds_text(const runner_key *key) {
    return key->type == RUNNER_KEY_STRING || key->type == RUNNER_KEY_PATH ||
           key->type == RUNNER_KEY_PATHS || key->type == RUNNER_KEY_NAMES ||
           key->type == RUNNER_KEY_FILES || key->type == RUNNER_KEY_ENUM;
}

/* Appends a cleared item; NULL = no memory. The capacity is the next power of two of n, so that no
 * field has to hold it. */
static runner_item *value_grow(runner_value *value) {
    if ((value->n & (value->n - 1)) == 0) {
        size_t capacity = value->n == 0 ? 1 : value->n * 2;
        runner_item *items = realloc(value->items, capacity * sizeof *items);
        if (items == NULL) return NULL;
        value->items = items;
    }
    runner_item *item = &value->items[value->n++];
    *item = (runner_item){0};
    return item;
}

/* An entry of a list, for messages. */
typedef struct list_entry {
    const char *list; /* as given: the list itself, or @FILE */
    const char *text;
    size_t number; /* from 1 */
} list_entry;

/* Fails for an entry of a list. In a list that may be long or in a file, the message names the
 * entry. */
static tdm_status bad_entry(const runner_key *key, const list_entry *entry, tdm_error *err) {
    char expectation[256];
    if ((key->traits & RUNNER_KEY_AT_FILE) == 0) return bad_value(key, entry->list, err);
    expectation_format(key, expectation, sizeof expectation);
    return tdm_fail(err, TDM_INVALID_ARGUMENT,
                    "bad value '%.64s%s' for '%s': entry %zu is '%.32s'; expected %s", entry->list,
                    strlen(entry->list) > 64 ? "..." : "", key->name, entry->number, entry->text,
                    expectation);
}

static tdm_status too_many(const runner_key *key, tdm_error *err) {
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "'%s' has more than %d values", key->name,
                    ITEMS_MAX);
}

/* Appends first..last (in steps of `step`, or multiplied by `factor` where that is above 1). */
static tdm_status range_append(const runner_key *key, const list_entry *entry, int64_t first,
                               int64_t last, int64_t step, int64_t factor, runner_value *value,
                               tdm_error *err) {
    if (first > last || step < 1 || factor < 1 || (factor > 1 && first < 1) ||
        !integer_in_range(key, first) || !integer_in_range(key, last))
        return bad_entry(key, entry, err);
    for (int64_t at = first; at <= last; at = factor > 1 ? at * factor : at + step) {
        if (value->n >= ITEMS_MAX) return too_many(key, err);
        runner_item *item = value_grow(value);
        if (item == NULL) return out_of_memory(key, err);
        item->i = at;
        if (at > INT64_MAX / (factor > 1 ? factor : 1) || at > INT64_MAX - step) break;
    }
    return TDM_OK;
}

static tdm_status list_entry_parse(const runner_key *key, const list_entry *entry,
                                   runner_value *value, tdm_error *err) {
    const char *text = entry->text;
    bool is_core = key->type == RUNNER_KEY_CORES;
    if (is_core || key->type == RUNNER_KEY_INTS || key->type == RUNNER_KEY_INT) {
        int64_t first, last, step = 1, factor = 1;
        const char *end;
        if (!integer_scan(text, &first, &end)) return bad_entry(key, entry, err);
        bool is_range = *end == '-';
        if (is_range) {
            if (!integer_scan(end + 1, &last, &end)) return bad_entry(key, entry, err);
            if (!is_core && *end == '+' && !integer_scan(end + 1, &step, &end))
                return bad_entry(key, entry, err);
            if (!is_core && *end == '*' && (!integer_scan(end + 1, &factor, &end) || factor < 2))
                return bad_entry(key, entry, err);
        }
        if ((is_range || is_core) && *end != '\0') return bad_entry(key, entry, err);
        if (is_range || is_core)
            return range_append(key, entry, first, is_range ? last : first, step, factor, value,
                                err);
    }
    runner_item item = {0};
    if (!item_parse(key, text, &item)) return bad_entry(key, entry, err);
    if (value->n >= ITEMS_MAX) return too_many(key, err);
    if (key_holds_text(key)) {
        item.s = strdup(text);
        if (item.s == NULL) return out_of_memory(key, err);
    }
    runner_item *slot = value_grow(value);
    if (slot == NULL) {
        free(item.s);
        return out_of_memory(key, err);
    }
    *slot = item;
    return TDM_OK;
}

/* Rules about a list as a whole. */
static tdm_status list_check(const runner_key *key, const char *text, const runner_value *value,
                             tdm_error *err) {
    double sum = 0;
    for (size_t i = 0; i < value->n; i++) {
        sum += value->items[i].f;
        if (key->type != RUNNER_KEY_NAMES && key->type != RUNNER_KEY_FILES &&
            key->type != RUNNER_KEY_CORES)
            continue;
        for (size_t j = 0; j < i; j++) {
            bool same = key->type == RUNNER_KEY_CORES
                            ? value->items[i].i == value->items[j].i
                            : strcmp(value->items[i].s, value->items[j].s) == 0;
            if (same) return bad_value(key, text, err);
        }
    }
    if (key->type == RUNNER_KEY_SHARES && !(sum > 0 && isfinite(sum)))
        return bad_value(key, text, err);
    return TDM_OK;
}

/* Replaces each run of blanks, line ends and commas between two values by one comma. */
static void list_normalize(char *text) {
    char *to = text;
    for (const char *from = text; *from != '\0';) {
        size_t gap = strspn(from, ", \t\r\n");
        from += gap;
        if (gap > 0 && to != text && *from != '\0') *to++ = ',';
        for (size_t n = strcspn(from, ", \t\r\n"); n > 0; n--) *to++ = *from++;
    }
    *to = '\0';
}

/* Reads a list from a file, in the form of a flag's value. The caller frees it with free(). */
static tdm_status list_file_read(const runner_key *key, const char *path, char **text_out,
                                 tdm_error *err) {
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return tdm_fail(err, errno == ENOENT ? TDM_NOT_FOUND : TDM_IO, "%s: cannot be read: %s",
                        path, strerror(errno));
    size_t n = 0, capacity = 4096;
    char *text = malloc(capacity);
    bool is_read = false;
    while (text != NULL && !is_read && n <= LIST_FILE_SIZE_MAX) {
        n += fread(text + n, 1, capacity - n - 1, file);
        is_read = feof(file) != 0 || ferror(file) != 0;
        if (is_read || n + 1 < capacity) continue;
        char *grown = realloc(text, capacity *= 2);
        if (grown == NULL) free(text);
        text = grown;
    }
    tdm_status status = TDM_OK;
    if (text == NULL)
        status = out_of_memory(key, err);
    else if (ferror(file) != 0)
        status = tdm_fail(err, TDM_IO, "%s: cannot be read: %s", path, strerror(errno));
    else if (!is_read || memchr(text, '\0', n) != NULL)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: not a list of numbers for '%s'", path,
                          key->name);
    fclose(file);
    if (status != TDM_OK) {
        free(text);
        return status;
    }
    text[n] = '\0';
    list_normalize(text);
    *text_out = text;
    return TDM_OK;
}

static tdm_status list_parse(const runner_key *key, const char *text, runner_value *value,
                             tdm_error *err) {
    char separator = key->type == RUNNER_KEY_PATHS ? ':' : ',';
    bool is_file = (key->traits & RUNNER_KEY_AT_FILE) != 0 && text[0] == '@';
    char *copy = NULL;
    tdm_status status = TDM_OK;
    if (is_file)
        status = list_file_read(key, text + 1, &copy, err);
    else if ((copy = strdup(text)) == NULL)
        status = out_of_memory(key, err);
    if (status != TDM_OK) return status;
    /* 3/1 is how llama-bench writes shares */
    for (char *at = copy; key->type == RUNNER_KEY_SHARES && *at != '\0'; at++)
        if (*at == '/') *at = ',';
    list_entry entry = {.list = text};
    for (char *at = copy; at != NULL && status == TDM_OK;) {
        char *next = strchr(at, separator);
        if (next != NULL) *next++ = '\0';
        at += strspn(at, " \t");
        size_t len = strlen(at);
        while (len > 0 && (at[len - 1] == ' ' || at[len - 1] == '\t')) at[--len] = '\0';
        entry.text = at;
        entry.number++;
        status = list_entry_parse(key, &entry, value, err);
        at = next;
    }
    free(copy);
    return status == TDM_OK ? list_check(key, text, value, err) : status;
}

static bool key_is_list(const runner_key *key) {
    return key->type == RUNNER_KEY_PATHS || key->type == RUNNER_KEY_NAMES ||
           key->type == RUNNER_KEY_FILES || key->type == RUNNER_KEY_INTS ||
           key->type == RUNNER_KEY_SHARES || key->type == RUNNER_KEY_CORES;
}

tdm_status runner_value_parse(const runner_key *key, const char *text, bool is_list,
                              runner_value *value_out, tdm_error *err) {
    *value_out = (runner_value){0};
    tdm_status status = TDM_OK;
    if ((key->traits & RUNNER_KEY_AUTO) != 0 && strcmp(text, "auto") == 0) {
        runner_item *item = value_grow(value_out);
        if (item == NULL) return out_of_memory(key, err);
        item->i = key->auto_value;
        item->f = (double)key->auto_value;
        value_out->is_auto = true;
        return TDM_OK;
    }
    if (key_is_list(key) || is_list) {
        /* an empty list is the default of most of them, and a way to undo a default */
        if (*text != '\0' || !key_is_list(key)) status = list_parse(key, text, value_out, err);
    } else if (key->type == RUNNER_KEY_PATH && *text == '\0') {
        runner_item *item = value_grow(value_out);
        if (item == NULL || (item->s = strdup("")) == NULL) status = out_of_memory(key, err);
    } else {
        runner_item item = {0};
        if ((key->traits & RUNNER_KEY_ALL) != 0 && strcmp(text, "all") == 0)
            item.i = (int64_t)key->max, item.f = key->max;
        else if (!item_parse(key, text, &item))
            return bad_value(key, text, err);
        runner_item *slot = value_grow(value_out);
        if (slot == NULL) return out_of_memory(key, err);
        *slot = item;
        if (key_holds_text(key) && (slot->s = strdup(text)) == NULL)
            status = out_of_memory(key, err);
    }
    if (status != TDM_OK) runner_value_clear(value_out);
    return status;
}

tdm_status runner_value_append(const runner_key *key, const char *text, runner_value *value,
                               runner_value *more, tdm_error *err) {
    const size_t n_before = value->n, n = n_before + more->n;
    size_t capacity = 1;
    if ((value->is_auto && more->n > 0) || (more->is_auto && n_before > 0))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "bad value '%.64s%s' for '%s': 'auto' stands alone", text,
                        strlen(text) > 64 ? "..." : "", key->name);
    if (n > ITEMS_MAX) return too_many(key, err);
    while (capacity < n) capacity *= 2;
    runner_item *items = realloc(value->items, capacity * sizeof *items);
    if (items == NULL) return out_of_memory(key, err);
    value->items = items;
    if (more->n > 0) memcpy(items + n_before, more->items, more->n * sizeof *items);
    value->n = n;
    tdm_status status = list_check(key, text, value, err);
    if (status != TDM_OK) {
        value->n = n_before;
        return status;
    }
    value->is_auto = value->is_auto || more->is_auto;
    free(more->items);
    *more = (runner_value){0};
    return TDM_OK;
}

tdm_status runner_value_rebase(const runner_key *key, runner_value *value, const char *folder,
                               tdm_error *err) {
    if (key->type != RUNNER_KEY_PATH && key->type != RUNNER_KEY_PATHS &&
        key->type != RUNNER_KEY_FILES)
        return TDM_OK;
    for (size_t i = 0; i < value->n; i++) {
        const char *path = value->items[i].s, *base = folder;
        if (path[0] == '\0' || path[0] == '/') continue;
        if (path[0] == '~' && path[1] == '/') {
            base = getenv("HOME");
            if (base == NULL || base[0] == '\0') continue;
            path += 2;
        }
        size_t size = strlen(base) + strlen(path) + 2;
        char *joined = malloc(size);
        if (joined == NULL) return out_of_memory(key, err);
        snprintf(joined, size, "%s/%s", base, path);
        free(value->items[i].s);
        value->items[i].s = joined;
    }
    return TDM_OK;
}

void runner_value_clear(runner_value *value) {
    for (size_t i = 0; i < value->n; i++) free(value->items[i].s);
    free(value->items);
    *value = (runner_value){0};
}

void runner_text_unescape(char *text) {
    static const char letters[] = "ntr\"'\\", meant[] = "\n\t\r\"'\\";
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        const char *letter = from[0] == '\\' && from[1] != '\0' ? strchr(letters, from[1]) : NULL;
        if (letter != NULL) {
            *to++ = meant[letter - letters];
            from++;
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
}
