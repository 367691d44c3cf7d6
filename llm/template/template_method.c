/* SPDX-License-Identifier: MIT
 *
 * template_method.c: methods of texts, lists, dicts and loops: those of Python's that do not change
 * their object, and append and pop of a list, which templates use as a queue. Other methods that
 * change their object are missing: chat templates are rendered in a sandbox that refuses them.
 */
#include <string.h>
#include <utf8proc.h>

#include "llm/template/template_render.h"

static bool give(llm_tpl_value *out, llm_tpl_str text) {
    *out = llm_tpl_string(text);
    return true;
}

static const llm_tpl_str space = {NULL, 0};

/* ---- Texts ---- */

static bool strip(llm_tpl_call *c, bool left, bool right, llm_tpl_value *out) {
    llm_tpl_str set;
    if (!llm_tpl_arg_text(c, 0, space, &set)) return false;
    if (c->argv[0].kind == LLM_TPL_STRING && set.ptr == NULL) set.ptr = "";
    return give(out, llm_tpl_text_strip(c->self->as.text, set, left, right));
}

static bool text_strip(llm_tpl_call *c, llm_tpl_value *out) {
    return strip(c, true, true, out);
}

static bool text_lstrip(llm_tpl_call *c, llm_tpl_value *out) {
    return strip(c, true, false, out);
}

static bool text_rstrip(llm_tpl_call *c, llm_tpl_value *out) {
    return strip(c, false, true, out);
}

static bool case_change(llm_tpl_call *c, llm_tpl_case how, llm_tpl_value *out) {
    llm_tpl_str text;
    return llm_tpl_text_case(c->job, c->self->as.text, how, &text) && give(out, text);
}

static bool text_upper(llm_tpl_call *c, llm_tpl_value *out) {
    return case_change(c, LLM_TPL_CASE_UPPER, out);
}

static bool text_lower(llm_tpl_call *c, llm_tpl_value *out) {
    return case_change(c, LLM_TPL_CASE_LOWER, out);
}

static bool text_capitalize(llm_tpl_call *c, llm_tpl_value *out) {
    return case_change(c, LLM_TPL_CASE_CAPITAL, out);
}

static bool text_title(llm_tpl_call *c, llm_tpl_value *out) {
    return case_change(c, LLM_TPL_CASE_TITLE, out);
}

static bool needed(llm_tpl_call *c, size_t i, llm_tpl_str *text) {
    if (c->argv[i].kind != LLM_TPL_STRING)
        return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "argument %zu must be a str, not a %s",
                            i + 1, llm_tpl_kind_name(&c->argv[i]));
    *text = c->argv[i].as.text;
    return true;
}

static bool stands_at(llm_tpl_str text, llm_tpl_str part, bool at_end) {
    return part.len <= text.len &&
           (part.len == 0 ||
            memcmp(text.ptr + (at_end ? text.len - part.len : 0), part.ptr, part.len) == 0);
}

/* The argument is a text, or a tuple of texts of which one must match. */
static bool edge_test(llm_tpl_call *c, bool at_end, llm_tpl_value *out) {
    const llm_tpl_value *arg = &c->argv[0], *items = arg;
    size_t n = 1;
    bool found = false;
    if (arg->kind == LLM_TPL_LIST && arg->as.list->flavor == LLM_TPL_TUPLE) {
        items = arg->as.list->items;
        n = arg->as.list->n;
    }
    for (size_t i = 0; i < n && !found; i++) {
        if (items[i].kind != LLM_TPL_STRING)
            return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "a str is needed, not a %s",
                                llm_tpl_kind_name(&items[i]));
        found = stands_at(c->self->as.text, items[i].as.text, at_end);
    }
    *out = llm_tpl_bool(found);
    return true;
}

static bool text_startswith(llm_tpl_call *c, llm_tpl_value *out) {
    return edge_test(c, false, out);
}

static bool text_endswith(llm_tpl_call *c, llm_tpl_value *out) {
    return edge_test(c, true, out);
}

static bool text_removeprefix(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str text = c->self->as.text, part = {0};
    if (!needed(c, 0, &part)) return false;
    if (part.len > 0 && stands_at(text, part, false)) {
        text.ptr += part.len;
        text.len -= part.len;
    }
    return give(out, text);
}

static bool text_removesuffix(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str text = c->self->as.text, part = {0};
    if (!needed(c, 0, &part)) return false;
    if (stands_at(text, part, true)) text.len -= part.len;
    return give(out, text);
}

static bool text_replace(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str old, new, text;
    int64_t count;
    return needed(c, 0, &old) && needed(c, 1, &new) && llm_tpl_arg_int(c, 2, -1, &count) &&
           llm_tpl_text_replace(c->job, c->self->as.text, old, new, count < 0 ? -1 : count,
                                &text) &&
           give(out, text);
}

/* The offset of the last `part` in the text; SIZE_MAX = none. */
static size_t find_last(llm_tpl_str text, llm_tpl_str part) {
    if (part.len > text.len) return SIZE_MAX;
    for (size_t at = text.len - part.len + 1; at > 0; at--)
        if (part.len == 0 || memcmp(text.ptr + at - 1, part.ptr, part.len) == 0) return at - 1;
    return SIZE_MAX;
}

static bool find(llm_tpl_call *c, bool is_last, bool must, llm_tpl_value *out) {
    llm_tpl_str text = c->self->as.text, part = {0};
    if (!needed(c, 0, &part) || !llm_tpl_step(c->job, 1 + text.len / 8)) return false;
    size_t at = is_last ? find_last(text, part) : llm_tpl_text_find(text, part, 0);
    if (at == SIZE_MAX && must)
        return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "index: the text is not there");
    text.len = at == SIZE_MAX ? 0 : at;
    *out = llm_tpl_int(at == SIZE_MAX ? -1 : (int64_t)llm_tpl_text_count(text));
    return true;
}

static bool text_find(llm_tpl_call *c, llm_tpl_value *out) {
    return find(c, false, false, out);
}

static bool text_rfind(llm_tpl_call *c, llm_tpl_value *out) {
    return find(c, true, false, out);
}

static bool text_index(llm_tpl_call *c, llm_tpl_value *out) {
    return find(c, false, true, out);
}

static bool text_count(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str text = c->self->as.text, part = {0};
    int64_t n = 0;
    if (!needed(c, 0, &part) || !llm_tpl_step(c->job, 1 + text.len / 8)) return false;
    if (part.len == 0)
        n = (int64_t)llm_tpl_text_count(text) + 1;
    else
        for (size_t at = 0; (at = llm_tpl_text_find(text, part, at)) != SIZE_MAX; at += part.len)
            n++;
    *out = llm_tpl_int(n);
    return true;
}

static bool push_part(llm_tpl_call *c, llm_tpl_list *list, size_t from, size_t to) {
    llm_tpl_str part = {c->self->as.text.ptr + from, to - from};
    return llm_tpl_list_push(c->job, list, llm_tpl_string(part));
}

/* Splits at white space and removes it, except after the last split that the limit allows. */
static bool split_words(llm_tpl_call *c, int64_t limit, llm_tpl_list *list) {
    llm_tpl_str text = c->self->as.text;
    uint32_t code;
    for (size_t at = 0, start; at < text.len;) {
        size_t n = llm_tpl_char_read(text, at, &code);
        if (llm_tpl_is_space(code)) {
            at += n;
            continue;
        }
        start = at;
        if (limit-- == 0) {
            llm_tpl_str rest = {text.ptr + start, text.len - start};
            return llm_tpl_list_push(c->job, list, llm_tpl_string(rest));
        }
        for (; at < text.len; at += n) {
            n = llm_tpl_char_read(text, at, &code);
            if (llm_tpl_is_space(code)) break;
        }
        if (!push_part(c, list, start, at)) return false;
    }
    return true;
}

static bool split_arguments(llm_tpl_call *c, llm_tpl_str *by, int64_t *limit, llm_tpl_value *out) {
    if (!llm_tpl_arg_text(c, 0, space, by) || !llm_tpl_arg_int(c, 1, -1, limit) ||
        !llm_tpl_list_make(c->job, LLM_TPL_PLAIN, out) ||
        !llm_tpl_step(c->job, 1 + c->self->as.text.len / 8))
        return false;
    return c->argv[0].kind != LLM_TPL_STRING || by->len > 0 ||
           llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "split: an empty separator");
}

static bool text_split(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str by;
    int64_t limit;
    size_t at = 0, next;
    if (!split_arguments(c, &by, &limit, out)) return false;
    if (by.len == 0) return split_words(c, limit < 0 ? -1 : limit, out->as.list);
    for (; limit != 0 && (next = llm_tpl_text_find(c->self->as.text, by, at)) != SIZE_MAX;
         limit--) {
        if (!push_part(c, out->as.list, at, next)) return false;
        at = next + by.len;
    }
    return push_part(c, out->as.list, at, c->self->as.text.len);
}

/* Splits from the right; without a limit it equals split. */
static bool text_rsplit(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str by, rest = c->self->as.text;
    int64_t limit;
    if (!split_arguments(c, &by, &limit, out)) return false;
    if (limit < 0 || by.len == 0) {
        if (limit >= 0)
            return llm_tpl_fail(c->job, TDM_UNSUPPORTED,
                                "rsplit with a limit and without a separator is not supported");
        return text_split(c, out);
    }
    llm_tpl_list *list = out->as.list;
    for (size_t at; limit > 0 && (at = find_last(rest, by)) != SIZE_MAX; limit--) {
        if (!push_part(c, list, at + by.len, rest.len)) return false;
        rest.len = at;
    }
    if (!llm_tpl_list_push(c->job, list, llm_tpl_string(rest))) return false;
    for (size_t i = 0, k = list->n - 1; i < k; i++, k--) {
        llm_tpl_value item = list->items[i];
        list->items[i] = list->items[k];
        list->items[k] = item;
    }
    return true;
}

static bool partition(llm_tpl_call *c, bool is_last, llm_tpl_value *out) {
    llm_tpl_str text = c->self->as.text, by, none = {"", 0};
    if (!needed(c, 0, &by) || !llm_tpl_list_make(c->job, LLM_TPL_TUPLE, out)) return false;
    if (by.len == 0) return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "an empty separator");
    size_t at = is_last ? find_last(text, by) : llm_tpl_text_find(text, by, 0);
    llm_tpl_str parts[3] = {text, none, none};
    if (at == SIZE_MAX && is_last) {
        parts[0] = none;
        parts[2] = text;
    } else if (at != SIZE_MAX) {
        parts[0].len = at;
        parts[1] = by;
        parts[2] = (llm_tpl_str){text.ptr + at + by.len, text.len - at - by.len};
    }
    for (int i = 0; i < 3; i++)
        if (!llm_tpl_list_push(c->job, out->as.list, llm_tpl_string(parts[i]))) return false;
    return true;
}

static bool text_partition(llm_tpl_call *c, llm_tpl_value *out) {
    return partition(c, false, out);
}

static bool text_rpartition(llm_tpl_call *c, llm_tpl_value *out) {
    return partition(c, true, out);
}

/* The line ends of str.splitlines (Python's documentation lists them). */
static bool ends_line(uint32_t code) {
    return (code >= 10 && code <= 13) || (code >= 28 && code <= 30) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

bool llm_tpl_split_lines(llm_tpl_job *job, llm_tpl_str text, llm_tpl_list *lines) {
    size_t start = 0, at = 0;
    while (at < text.len) {
        uint32_t code;
        size_t n = llm_tpl_char_read(text, at, &code);
        if (ends_line(code)) {
            llm_tpl_str line = {text.ptr + start, at - start};
            if (!llm_tpl_list_push(job, lines, llm_tpl_string(line))) return false;
            if (code == '\r' && at + 1 < text.len && text.ptr[at + 1] == '\n') n++;
            start = at + n;
        }
        at += n;
    }
    llm_tpl_str rest = {text.ptr + start, text.len - start};
    return rest.len == 0 || llm_tpl_list_push(job, lines, llm_tpl_string(rest));
}

static bool text_splitlines(llm_tpl_call *c, llm_tpl_value *out) {
    return llm_tpl_list_make(c->job, LLM_TPL_PLAIN, out) &&
           llm_tpl_split_lines(c->job, c->self->as.text, out->as.list);
}

static bool text_join(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_list *items;
    llm_tpl_buffer buffer = {0};
    if (!llm_tpl_iterate(c->job, &c->argv[0], &items)) return false;
    for (size_t i = 0; i < items->n; i++) {
        if (items->items[i].kind != LLM_TPL_STRING)
            return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "join: item %zu is a %s, not a str",
                                i, llm_tpl_kind_name(&items->items[i]));
        if ((i > 0 && !llm_tpl_put(c->job, &buffer, c->self->as.text)) ||
            !llm_tpl_put(c->job, &buffer, items->items[i].as.text))
            return false;
    }
    return give(out, llm_tpl_buffer_str(&buffer));
}

/* The value of a field "{}", "{0}" or "{name}" of str.format. */
static bool field_find(llm_tpl_call *c, llm_tpl_str field, size_t *next, llm_tpl_value *out) {
    const llm_tpl_args *args = c->args;
    size_t n_plain = args->n - args->n_named, at = 0;
    for (size_t i = 0; i < args->n_named; i++)
        if (llm_tpl_str_same(args->names[i], field)) {
            *out = args->items[n_plain + i];
            return true;
        }
    for (size_t i = 0; i < field.len; i++) {
        if (field.ptr[i] < '0' || field.ptr[i] > '9' || field.len > 6)
            return llm_tpl_fail(c->job, TDM_UNSUPPORTED, "format: no argument for '{%.*s}'",
                                (int)(field.len < 64 ? field.len : 64), field.ptr);
        at = at * 10 + (size_t)(field.ptr[i] - '0');
    }
    if (field.len == 0) at = (*next)++;
    if (at >= n_plain)
        return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "format: argument %zu is missing",
                            at + 1);
    *out = args->items[at];
    return true;
}

static bool text_format(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str text = c->self->as.text;
    llm_tpl_buffer buffer = {0};
    llm_tpl_value value;
    size_t next = 0;
    for (size_t at = 0; at < text.len; at++) {
        char b = text.ptr[at];
        bool is_double = at + 1 < text.len && text.ptr[at + 1] == b;
        if ((b == '{' || b == '}') && !is_double) {
            const char *end = b == '{' ? memchr(text.ptr + at, '}', text.len - at) : NULL;
            if (end == NULL)
                return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "format: a single brace");
            llm_tpl_str field = {text.ptr + at + 1, (size_t)(end - text.ptr) - at - 1};
            if (!field_find(c, field, &next, &value) || !llm_tpl_put_value(c->job, &buffer, &value))
                return false;
            at = (size_t)(end - text.ptr);
            continue;
        }
        if (!llm_tpl_put(c->job, &buffer, (llm_tpl_str){text.ptr + at, 1})) return false;
        at += b == '{' || b == '}';
    }
    return give(out, llm_tpl_buffer_str(&buffer));
}

typedef bool (*class_fn)(uint32_t code);

static bool is_digit(uint32_t code) {
    return utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_ND;
}

/* U+FFFD, as which ill-formed bytes are read, is none. */
static bool is_letter(uint32_t code) {
    const utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)code);
    return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

static bool is_letter_or_number(uint32_t code) {
    const utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)code);
    return is_letter(code) || (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO);
}

/* Whether the text is not empty and all characters are of that class. */
static bool each_is(llm_tpl_call *c, class_fn is_such, llm_tpl_value *out) {
    llm_tpl_str text = c->self->as.text;
    bool all = text.len > 0;
    for (size_t at = 0; at < text.len && all;) {
        uint32_t code;
        at += llm_tpl_char_read(text, at, &code);
        all = is_such(code);
    }
    *out = llm_tpl_bool(all);
    return llm_tpl_step(c->job, 1 + text.len / 8);
}

/* Digits of a decimal system; Python also counts signs such as a superscript 2. */
static bool text_isdigit(llm_tpl_call *c, llm_tpl_value *out) {
    return each_is(c, is_digit, out);
}

static bool text_isalpha(llm_tpl_call *c, llm_tpl_value *out) {
    return each_is(c, is_letter, out);
}

static bool text_isalnum(llm_tpl_call *c, llm_tpl_value *out) {
    return each_is(c, is_letter_or_number, out);
}

static bool text_isspace(llm_tpl_call *c, llm_tpl_value *out) {
    return each_is(c, llm_tpl_is_space, out);
}

static bool case_is(llm_tpl_call *c, const char *test, llm_tpl_value *out) {
    llm_tpl_args none = {0};
    bool is_so = false;
    if (!llm_tpl_test_run(c->job, llm_tpl_str_of(test), c->self, &none, &is_so)) return false;
    *out = llm_tpl_bool(is_so);
    return true;
}

static bool text_isupper(llm_tpl_call *c, llm_tpl_value *out) {
    return case_is(c, "upper", out);
}

static bool text_islower(llm_tpl_call *c, llm_tpl_value *out) {
    return case_is(c, "lower", out);
}

/* ---- Lists ---- */

static bool list_index(llm_tpl_call *c, llm_tpl_value *out) {
    const llm_tpl_list *list = c->self->as.list;
    for (size_t i = 0; i < list->n; i++)
        if (llm_tpl_equals(c->job, &list->items[i], &c->argv[0])) {
            *out = llm_tpl_int((int64_t)i);
            return llm_tpl_step(c->job, i);
        }
    return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "index: the item is not there");
}

static bool list_count(llm_tpl_call *c, llm_tpl_value *out) {
    const llm_tpl_list *list = c->self->as.list;
    int64_t n = 0;
    for (size_t i = 0; i < list->n; i++) n += llm_tpl_equals(c->job, &list->items[i], &c->argv[0]);
    *out = llm_tpl_int(n);
    return llm_tpl_step(c->job, list->n);
}

static bool list_copy(llm_tpl_call *c, llm_tpl_value *out) {
    const llm_tpl_list *list = c->self->as.list;
    if (!llm_tpl_list_make(c->job, list->flavor, out)) return false;
    for (size_t i = 0; i < list->n; i++)
        if (!llm_tpl_list_push(c->job, out->as.list, list->items[i])) return false;
    return true;
}

/* The list of a method that changes it; fails for a tuple or a lazy list. */
static llm_tpl_list *list_changed(llm_tpl_call *c) {
    if (c->self->as.list->flavor == LLM_TPL_PLAIN) return c->self->as.list;
    llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "a %s cannot be changed",
                 llm_tpl_kind_name(c->self));
    return NULL;
}

static bool list_append(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_list *list = list_changed(c);
    *out = llm_tpl_none();
    if (list == NULL) return false;
    if (c->argv[0].kind == LLM_TPL_ABSENT)
        return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "append takes one argument");
    return llm_tpl_list_push(c->job, list, c->argv[0]);
}

static bool list_pop(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_list *list = list_changed(c);
    int64_t at;
    if (list == NULL || !llm_tpl_arg_int(c, 0, -1, &at)) return false;
    if (at < 0) at += (int64_t)list->n;
    if (at < 0 || at >= (int64_t)list->n)
        return llm_tpl_fail(c->job, TDM_OUT_OF_RANGE, "pop from a list of %zu: no such item",
                            list->n);
    const size_t i = (size_t)at;
    *out = list->items[i];
    memmove(&list->items[i], &list->items[i + 1], (list->n - i - 1) * sizeof *list->items);
    list->n--;
    return llm_tpl_step(c->job, 1 + (list->n - i) / 8);
}

/* ---- Dicts ---- */

static bool dict_get(llm_tpl_call *c, llm_tpl_value *out) {
    const llm_tpl_value *found = llm_tpl_dict_get(c->self->as.dict, &c->argv[0]);
    *out = found != NULL ? *found : c->argv[1].kind != LLM_TPL_ABSENT ? c->argv[1] : llm_tpl_none();
    return true;
}

/* A list of all keys (which 0), values (1) or pairs (2). */
static bool dict_list(llm_tpl_call *c, int which, llm_tpl_value *out) {
    const llm_tpl_dict *dict = c->self->as.dict;
    if (!llm_tpl_list_make(c->job, LLM_TPL_PLAIN, out)) return false;
    for (size_t i = 0; i < dict->n; i++) {
        llm_tpl_value item = which == 0 ? dict->pairs[i].key : dict->pairs[i].value;
        if (which == 2 && (!llm_tpl_list_make(c->job, LLM_TPL_TUPLE, &item) ||
                           !llm_tpl_list_push(c->job, item.as.list, dict->pairs[i].key) ||
                           !llm_tpl_list_push(c->job, item.as.list, dict->pairs[i].value)))
            return false;
        if (!llm_tpl_list_push(c->job, out->as.list, item)) return false;
    }
    return true;
}

static bool dict_keys(llm_tpl_call *c, llm_tpl_value *out) {
    return dict_list(c, 0, out);
}

static bool dict_values(llm_tpl_call *c, llm_tpl_value *out) {
    return dict_list(c, 1, out);
}

static bool dict_items(llm_tpl_call *c, llm_tpl_value *out) {
    return dict_list(c, 2, out);
}

static bool dict_copy(llm_tpl_call *c, llm_tpl_value *out) {
    *out = *c->self;
    return true;
}

/* ---- Loops ---- */

static bool loop_cycle(llm_tpl_call *c, llm_tpl_value *out) {
    if (c->args->n == 0) return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "cycle: no arguments");
    *out = c->args->items[c->self->as.loop->index % c->args->n];
    return true;
}

static bool loop_changed(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_value seen;
    if (!llm_tpl_list_make(c->job, LLM_TPL_TUPLE, &seen)) return false;
    for (size_t i = 0; i < c->args->n; i++)
        if (!llm_tpl_list_push(c->job, seen.as.list, c->args->items[i])) return false;
    llm_tpl_value *before = &c->self->as.loop->changed;
    *out = llm_tpl_bool(before->kind == LLM_TPL_ABSENT || !llm_tpl_equals(c->job, before, &seen));
    *before = seen;
    return true;
}

static const llm_tpl_builtin text_methods[] = {
    {"capitalize", "", text_capitalize},
    {"count", "sub", text_count},
    {"endswith", "suffix", text_endswith},
    {"find", "sub", text_find},
    {"format", "*", text_format},
    {"index", "sub", text_index},
    {"isalnum", "", text_isalnum},
    {"isalpha", "", text_isalpha},
    {"isdigit", "", text_isdigit},
    {"islower", "", text_islower},
    {"isspace", "", text_isspace},
    {"isupper", "", text_isupper},
    {"join", "iterable", text_join},
    {"lower", "", text_lower},
    {"lstrip", "chars", text_lstrip},
    {"partition", "sep", text_partition},
    {"removeprefix", "prefix", text_removeprefix},
    {"removesuffix", "suffix", text_removesuffix},
    {"replace", "old new count", text_replace},
    {"rfind", "sub", text_rfind},
    {"rpartition", "sep", text_rpartition},
    {"rsplit", "sep maxsplit", text_rsplit},
    {"rstrip", "chars", text_rstrip},
    {"split", "sep maxsplit", text_split},
    {"splitlines", "", text_splitlines},
    {"startswith", "prefix", text_startswith},
    {"strip", "chars", text_strip},
    {"title", "", text_title},
    {"upper", "", text_upper},
};

static const llm_tpl_builtin list_methods[] = {
    {"append", "value", list_append}, {"copy", "", list_copy},    {"count", "value", list_count},
    {"index", "value", list_index},   {"pop", "index", list_pop},
};

static const llm_tpl_builtin dict_methods[] = {
    {"copy", "", dict_copy}, {"get", "key default", dict_get}, {"items", "", dict_items},
    {"keys", "", dict_keys}, {"values", "", dict_values},
};

static const llm_tpl_builtin loop_methods[] = {
    {"changed", "*", loop_changed},
    {"cycle", "*", loop_cycle},
};

const llm_tpl_builtin *llm_tpl_method_find(const llm_tpl_value *self, llm_tpl_str name) {
    switch (self->kind) {
    case LLM_TPL_STRING:
        return llm_tpl_builtin_find(text_methods, sizeof text_methods / sizeof text_methods[0],
                                    name);
    case LLM_TPL_LIST:
        return llm_tpl_builtin_find(list_methods, sizeof list_methods / sizeof list_methods[0],
                                    name);
    case LLM_TPL_DICT:
        return llm_tpl_builtin_find(dict_methods, sizeof dict_methods / sizeof dict_methods[0],
                                    name);
    case LLM_TPL_LOOP:
        return llm_tpl_builtin_find(loop_methods, sizeof loop_methods / sizeof loop_methods[0],
                                    name);
    default: return NULL;
    }
}
