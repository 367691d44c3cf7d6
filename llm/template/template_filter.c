/* SPDX-License-Identifier: MIT
 *
 * template_filter.c: filters that return a text or a number. Filters on lists:
 * template_filter_list.c. Jinja's "List of Builtin Filters" describes them; tojson is that of chat
 * templates: Python's json.dumps without escapes for HTML.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "llm/template/template_json.h"
#include "llm/template/template_render.h"

static bool give(llm_tpl_value *out, llm_tpl_str text) {
    *out = llm_tpl_string(text);
    return true;
}

static bool self_text(llm_tpl_call *c, llm_tpl_str *text) {
    return llm_tpl_to_text(c->job, c->self, text);
}

static const llm_tpl_str nothing = {"", 0};

/* The operand of a filter that accepts only a string. */
static bool self_must_be_text(llm_tpl_call *c, const char *filter) {
    if (c->self->kind == LLM_TPL_UNDEFINED) return llm_tpl_fail_undefined(c->job, c->self);
    return c->self->kind == LLM_TPL_STRING ||
           llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "%s needs a str, not a %s", filter,
                        llm_tpl_kind_name(c->self));
}

/* ---- Texts ---- */

static bool filter_trim(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str text, set = {NULL, 0};
    if (!self_text(c, &text) || !llm_tpl_arg_text(c, 0, set, &set)) return false;
    return give(out, llm_tpl_text_strip(text, set, true, true));
}

static bool case_change(llm_tpl_call *c, llm_tpl_case how, llm_tpl_value *out) {
    llm_tpl_str text;
    return self_text(c, &text) && llm_tpl_text_case(c->job, text, how, &text) && give(out, text);
}

static bool filter_upper(llm_tpl_call *c, llm_tpl_value *out) {
    return case_change(c, LLM_TPL_CASE_UPPER, out);
}

static bool filter_lower(llm_tpl_call *c, llm_tpl_value *out) {
    return case_change(c, LLM_TPL_CASE_LOWER, out);
}

static bool filter_capitalize(llm_tpl_call *c, llm_tpl_value *out) {
    return case_change(c, LLM_TPL_CASE_CAPITAL, out);
}

static bool filter_title(llm_tpl_call *c, llm_tpl_value *out) {
    return case_change(c, LLM_TPL_CASE_TITLE_WORDS, out);
}

static bool filter_replace(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str text, old, new;
    int64_t count;
    if (c->argv[0].kind == LLM_TPL_ABSENT || c->argv[1].kind == LLM_TPL_ABSENT)
        return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "replace needs what and with what");
    bool is_all = c->argv[2].kind == LLM_TPL_ABSENT || c->argv[2].kind == LLM_TPL_NONE;
    if (is_all) c->argv[2] = llm_tpl_int(-1);
    return self_text(c, &text) && llm_tpl_to_text(c->job, &c->argv[0], &old) &&
           llm_tpl_to_text(c->job, &c->argv[1], &new) && llm_tpl_arg_int(c, 2, -1, &count) &&
           llm_tpl_text_replace(c->job, text, old, new, count < 0 ? -1 : count, &text) &&
           give(out, text);
}

static bool blanks(llm_tpl_job *job, int64_t n, llm_tpl_str *out) {
    llm_tpl_buffer buffer = {0};
    for (int64_t i = 0; i < n; i++)
        if (!llm_tpl_put_chars(job, &buffer, " ")) return false;
    *out = llm_tpl_buffer_str(&buffer);
    if (out->ptr == NULL) *out = nothing;
    return true;
}

static bool filter_indent(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str text, by;
    llm_tpl_value lines;
    llm_tpl_buffer buffer = {0};
    int64_t width = 4;
    bool first = llm_tpl_arg_true(c, 1), blank = llm_tpl_arg_true(c, 2);
    if (!self_must_be_text(c, "indent")) return false;
    if (c->argv[0].kind == LLM_TPL_STRING)
        by = c->argv[0].as.text;
    else if (!llm_tpl_arg_int(c, 0, 4, &width) || !blanks(c->job, width, &by))
        return false;
    if (!self_text(c, &text) || !llm_tpl_list_make(c->job, LLM_TPL_PLAIN, &lines) ||
        !llm_tpl_put(c->job, &buffer, text) || !llm_tpl_put_chars(c->job, &buffer, "\n") ||
        !llm_tpl_split_lines(c->job, llm_tpl_buffer_str(&buffer), lines.as.list))
        return false;
    buffer = (llm_tpl_buffer){0};
    for (size_t i = 0; i < lines.as.list->n; i++) {
        llm_tpl_str line = lines.as.list->items[i].as.text;
        bool is_indented = i == 0 ? first : blank || line.len > 0;
        if ((i > 0 && !llm_tpl_put_chars(c->job, &buffer, "\n")) ||
            (is_indented && !llm_tpl_put(c->job, &buffer, by)) ||
            !llm_tpl_put(c->job, &buffer, line))
            return false;
    }
    return give(out, llm_tpl_buffer_str(&buffer));
}

static bool filter_string(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str text;
    return self_text(c, &text) && give(out, text);
}

static bool filter_safe(llm_tpl_call *c, llm_tpl_value *out) {
    if (!filter_string(c, out)) return false;
    out->is_markup = true;
    return true;
}

static bool filter_forceescape(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str text;
    llm_tpl_buffer buffer = {0};
    if (!self_text(c, &text) || !llm_tpl_put_escaped(c->job, &buffer, text)) return false;
    *out = llm_tpl_string(llm_tpl_buffer_str(&buffer));
    out->is_markup = true;
    return true;
}

static bool filter_escape(llm_tpl_call *c, llm_tpl_value *out) {
    if (c->self->kind == LLM_TPL_STRING && c->self->is_markup) {
        *out = *c->self;
        return true;
    }
    return filter_forceescape(c, out);
}

static bool filter_urlencode(llm_tpl_call *c, llm_tpl_value *out) {
    static const char plain[] = "_.-~/";
    llm_tpl_str text;
    llm_tpl_buffer buffer = {0};
    if (c->self->kind == LLM_TPL_LIST || c->self->kind == LLM_TPL_DICT)
        return llm_tpl_fail(c->job, TDM_UNSUPPORTED, "urlencode of a %s is not supported",
                            llm_tpl_kind_name(c->self));
    if (!self_text(c, &text)) return false;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char b = (unsigned char)text.ptr[i], low = b | 0x20;
        char escaped[8];
        bool is_plain = (b >= '0' && b <= '9') || (low >= 'a' && low <= 'z' && b < 0x80) ||
                        (b != 0 && strchr(plain, b) != NULL);
        snprintf(escaped, sizeof escaped, is_plain ? "%c" : "%%%02X", b);
        if (!llm_tpl_put_chars(c->job, &buffer, escaped)) return false;
    }
    return give(out, llm_tpl_buffer_str(&buffer));
}

static bool filter_center(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str text, left, right;
    llm_tpl_buffer buffer = {0};
    int64_t width;
    if (!self_text(c, &text) || !llm_tpl_arg_int(c, 0, 80, &width)) return false;
    int64_t n = (int64_t)llm_tpl_text_count(text), pad = width > n ? width - n : 0;
    int64_t before = pad / 2 + (pad & width & 1); /* as Python rounds */
    if (!blanks(c->job, before, &left) || !blanks(c->job, pad - before, &right) ||
        !llm_tpl_put(c->job, &buffer, left) || !llm_tpl_put(c->job, &buffer, text) ||
        !llm_tpl_put(c->job, &buffer, right))
        return false;
    return give(out, llm_tpl_buffer_str(&buffer));
}

static bool filter_truncate(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str text, end;
    llm_tpl_buffer buffer = {0};
    int64_t length, leeway;
    *out = llm_tpl_string(nothing);
    if (c->self->kind == LLM_TPL_UNDEFINED) return true; /* its length is 0 */
    if (!self_must_be_text(c, "truncate") || !self_text(c, &text) ||
        !llm_tpl_arg_int(c, 0, 255, &length) ||
        !llm_tpl_arg_text(c, 2, llm_tpl_str_of("..."), &end) || !llm_tpl_arg_int(c, 3, 5, &leeway))
        return false;
    int64_t n_end = (int64_t)llm_tpl_text_count(end);
    if (length < n_end || leeway < 0)
        return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "truncate: too short for its own end");
    if ((int64_t)llm_tpl_text_count(text) - length <= leeway) return give(out, text);
    text.len = llm_tpl_text_offset(text, (size_t)(length - n_end));
    if (!llm_tpl_arg_true(c, 1))
        for (size_t at = text.len; at > 0; at--)
            if (text.ptr[at - 1] == ' ') {
                text.len = at - 1;
                break;
            }
    if (!llm_tpl_put(c->job, &buffer, text) || !llm_tpl_put(c->job, &buffer, end)) return false;
    return give(out, llm_tpl_buffer_str(&buffer));
}

static bool filter_wordcount(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str text;
    int64_t n = 0;
    bool was_word = false;
    if (!self_text(c, &text)) return false;
    for (size_t at = 0; at < text.len;) {
        uint32_t code;
        at += llm_tpl_char_read(text, at, &code);
        utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)code);
        bool is_word = code == '_' ||
                       (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO) ||
                       (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO);
        n += is_word && !was_word;
        was_word = is_word;
    }
    *out = llm_tpl_int(n);
    return true;
}

static bool filter_format(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str text;
    if (c->args->n_named > 0)
        return llm_tpl_fail(c->job, TDM_UNSUPPORTED,
                            "format with named arguments is not supported");
    return self_text(c, &text) &&
           llm_tpl_text_format(c->job, text, c->args->items, c->args->n, &text) && give(out, text);
}

static bool filter_tojson(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_json_style style = {.is_ascii = llm_tpl_arg_true(c, 0),
                                .is_sorted = llm_tpl_arg_true(c, 3)};
    llm_tpl_str text;
    int64_t width = 0;
    bool is_indented = c->argv[1].kind != LLM_TPL_ABSENT && c->argv[1].kind != LLM_TPL_NONE;
    if (c->argv[1].kind == LLM_TPL_STRING)
        style.indent = c->argv[1].as.text.ptr != NULL ? c->argv[1].as.text : nothing;
    else if (is_indented &&
             (!llm_tpl_arg_int(c, 1, 0, &width) || !blanks(c->job, width, &style.indent)))
        return false;
    style.item = llm_tpl_str_of(is_indented ? "," : ", ");
    style.key = llm_tpl_str_of(": ");
    if (c->argv[2].kind == LLM_TPL_LIST) {
        const llm_tpl_list *parts = c->argv[2].as.list;
        if (parts->n != 2 || parts->items[0].kind != LLM_TPL_STRING ||
            parts->items[1].kind != LLM_TPL_STRING)
            return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "tojson: separators are two texts");
        style.item = parts->items[0].as.text;
        style.key = parts->items[1].as.text;
    }
    return llm_tpl_json_write(c->job, &style, c->self, &text) && give(out, text);
}

/* Reads a text as JSON. */
static bool filter_from_json(llm_tpl_call *c, llm_tpl_value *out) {
    if (c->self->kind != LLM_TPL_STRING)
        return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "from_json of a %s, not of a str",
                            llm_tpl_kind_name(c->self));
    return llm_tpl_json_read(c->job, c->self->as.text, out);
}

/* ---- Numbers ---- */

/* Reads a text as Python's int() and float() do: white space around it is allowed, other text after
 * it is not. */
static bool text_to_int(llm_tpl_str text, int64_t base, int64_t *out) {
    char digits[72], *end;
    text = llm_tpl_text_strip(text, (llm_tpl_str){NULL, 0}, true, true);
    if (text.len == 0 || text.len >= sizeof digits || base < 2 || base > 36) return false;
    memcpy(digits, text.ptr, text.len);
    digits[text.len] = '\0';
    errno = 0;
    *out = strtoll(digits, &end, (int)base);
    return errno == 0 && end == digits + text.len;
}

static bool text_to_real(llm_tpl_str text, double *out) {
    char digits[400], *end;
    text = llm_tpl_text_strip(text, (llm_tpl_str){NULL, 0}, true, true);
    if (text.len == 0 || text.len >= sizeof digits) return false;
    memcpy(digits, text.ptr, text.len);
    digits[text.len] = '\0';
    /* strtod reads hexadecimal digits and nan(...), Python does not */
    if (strcspn(digits, "xX(") < text.len) return false;
    *out = strtod(digits, &end);
    return end == digits + text.len;
}

static bool real_is_int(double real) {
    return real > -9.2e18 && real < 9.2e18;
}

static bool filter_int(llm_tpl_call *c, llm_tpl_value *out) {
    int64_t number = 0, base;
    double real;
    if (!llm_tpl_arg_int(c, 1, 10, &base)) return false;
    *out = c->argv[0].kind == LLM_TPL_ABSENT ? llm_tpl_int(0) : c->argv[0];
    if (c->self->kind == LLM_TPL_UNDEFINED) return llm_tpl_fail_undefined(c->job, c->self);
    if (c->self->kind == LLM_TPL_STRING) {
        if (text_to_int(c->self->as.text, base, &number))
            *out = llm_tpl_int(number);
        else if (text_to_real(c->self->as.text, &real) && real_is_int(real))
            *out = llm_tpl_int((int64_t)real);
    } else if (llm_tpl_is_number(c->self)) {
        if (c->self->kind != LLM_TPL_FLOAT)
            *out = llm_tpl_int(llm_tpl_as_int(c->self));
        else if (real_is_int(c->self->as.real))
            *out = llm_tpl_int((int64_t)c->self->as.real);
    }
    return true;
}

static bool filter_float(llm_tpl_call *c, llm_tpl_value *out) {
    double real;
    *out = c->argv[0].kind == LLM_TPL_ABSENT ? llm_tpl_float(0) : c->argv[0];
    if (c->self->kind == LLM_TPL_UNDEFINED) return llm_tpl_fail_undefined(c->job, c->self);
    if (c->self->kind == LLM_TPL_STRING && text_to_real(c->self->as.text, &real))
        *out = llm_tpl_float(real);
    else if (llm_tpl_is_number(c->self))
        *out = llm_tpl_float(llm_tpl_as_real(c->self));
    return true;
}

static bool self_number(llm_tpl_call *c, const char *name) {
    if (c->self->kind == LLM_TPL_UNDEFINED) return llm_tpl_fail_undefined(c->job, c->self);
    return llm_tpl_is_number(c->self) ||
           llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "%s needs a number, not a %s", name,
                        llm_tpl_kind_name(c->self));
}

static bool filter_abs(llm_tpl_call *c, llm_tpl_value *out) {
    if (!self_number(c, "abs")) return false;
    if (c->self->kind == LLM_TPL_FLOAT) {
        *out = llm_tpl_float(fabs(c->self->as.real));
        return true;
    }
    int64_t number = llm_tpl_as_int(c->self);
    if (number == INT64_MIN) return llm_tpl_fail(c->job, TDM_OUT_OF_RANGE, "abs: too large");
    *out = llm_tpl_int(number < 0 ? -number : number);
    return true;
}

/* Python rounds the exact decimal value of a float, ties to even. C's printf does the same. */
static bool filter_round(llm_tpl_call *c, llm_tpl_value *out) {
    int64_t precision;
    llm_tpl_str method;
    if (!self_number(c, "round") || !llm_tpl_arg_int(c, 0, 0, &precision) ||
        !llm_tpl_arg_text(c, 1, llm_tpl_str_of("common"), &method))
        return false;
    double real = llm_tpl_as_real(c->self);
    if (precision < -300 || precision > 300 || !isfinite(real))
        return llm_tpl_fail(c->job, TDM_OUT_OF_RANGE, "round: too many digits");
    double scale = pow(10, (double)precision);
    if (llm_tpl_str_is(method, "common") && precision >= 0) {
        char text[700];
        snprintf(text, sizeof text, "%.*f", (int)precision, real);
        real = strtod(text, NULL);
    } else if (llm_tpl_str_is(method, "common")) {
        real = nearbyint(real * scale) / scale;
    } else if (llm_tpl_str_is(method, "ceil")) {
        real = ceil(real * scale) / scale;
    } else if (llm_tpl_str_is(method, "floor")) {
        real = floor(real * scale) / scale;
    } else {
        return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "round: common, ceil or floor");
    }
    /* Python's round(int, n) is an int */
    *out = c->self->kind != LLM_TPL_FLOAT && llm_tpl_str_is(method, "common") && real_is_int(real)
               ? llm_tpl_int((int64_t)real)
               : llm_tpl_float(real);
    return true;
}

/* ---- Anything ---- */

static bool filter_default(llm_tpl_call *c, llm_tpl_value *out) {
    bool is_missing =
        c->self->kind == LLM_TPL_UNDEFINED || (llm_tpl_arg_true(c, 1) && !llm_tpl_is_true(c->self));
    *out = !is_missing                         ? *c->self
           : c->argv[0].kind == LLM_TPL_ABSENT ? llm_tpl_string(nothing)
                                               : c->argv[0];
    return true;
}

static bool filter_length(llm_tpl_call *c, llm_tpl_value *out) {
    const llm_tpl_value *self = c->self;
    size_t n = 0;
    int64_t n_item = 0;
    if (self->kind == LLM_TPL_STRING) {
        n = llm_tpl_text_count(self->as.text);
        if (!llm_tpl_step(c->job, 1 + self->as.text.len / 16)) return false;
    } else if (self->kind == LLM_TPL_DICT) {
        n = self->as.dict->n;
    } else if (self->kind == LLM_TPL_LIST && self->as.list->flavor != LLM_TPL_LAZY) {
        n = self->as.list->n;
    } else if (self->kind == LLM_TPL_LOOP) {
        if (!llm_tpl_loop_length(c->job, self->as.loop, &n_item)) return false;
        n = (size_t)n_item;
    } else if (self->kind != LLM_TPL_UNDEFINED) {
        return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "a %s has no length",
                            llm_tpl_kind_name(self));
    }
    *out = llm_tpl_int((int64_t)n);
    return true;
}

static bool filter_attr(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str name;
    if (!llm_tpl_arg_text(c, 0, nothing, &name)) return false;
    if (c->self->kind != LLM_TPL_DICT) return llm_tpl_attribute(c->job, c->self, name, out);
    *out = llm_tpl_undefined(name); /* the filter reads attributes only, not keys */
    return llm_tpl_method_find(c->self, name) == NULL ||
           llm_tpl_attribute(c->job, c->self, name, out);
}

static const llm_tpl_builtin filters[] = {
    {"abs", "", filter_abs},
    {"attr", "name", filter_attr},
    {"capitalize", "", filter_capitalize},
    {"center", "width", filter_center},
    {"count", "", filter_length},
    {"d", "default_value boolean", filter_default},
    {"default", "default_value boolean", filter_default},
    {"e", "", filter_escape},
    {"escape", "", filter_escape},
    {"float", "default", filter_float},
    {"forceescape", "", filter_forceescape},
    {"format", "*", filter_format},
    {"from_json", "", filter_from_json},
    {"indent", "width first blank", filter_indent},
    {"int", "default base", filter_int},
    {"length", "", filter_length},
    {"lower", "", filter_lower},
    {"replace", "old new count", filter_replace},
    {"round", "precision method", filter_round},
    {"safe", "", filter_safe},
    {"string", "", filter_string},
    {"title", "", filter_title},
    {"tojson", "ensure_ascii indent separators sort_keys", filter_tojson},
    {"trim", "chars", filter_trim},
    {"truncate", "length killwords end leeway", filter_truncate},
    {"upper", "", filter_upper},
    {"urlencode", "", filter_urlencode},
    {"wordcount", "", filter_wordcount},
};

const llm_tpl_builtin *llm_tpl_filter_find(llm_tpl_str name) {
    const llm_tpl_builtin *found =
        llm_tpl_builtin_find(filters, sizeof filters / sizeof filters[0], name);
    return found != NULL ? found : llm_tpl_list_filter_find(name);
}

bool llm_tpl_filter_run(llm_tpl_job *job, llm_tpl_str name, const llm_tpl_value *self,
                        const llm_tpl_args *args, llm_tpl_value *out) {
    const llm_tpl_builtin *filter = llm_tpl_filter_find(name);
    if (filter == NULL)
        return llm_tpl_fail(job, TDM_UNSUPPORTED, "there is no filter '%.*s'",
                            (int)(name.len < 64 ? name.len : 64), name.ptr);
    return llm_tpl_builtin_run(job, filter, self, args, out);
}
