/* SPDX-License-Identifier: MIT
 *
 * template_text.c: see template_text.h.
 */
#include "llm/template/template_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "llm/tokenizer/utf8.h"

/* ---- The buffer ---- */

bool llm_tpl_put(llm_tpl_job *job, llm_tpl_buffer *buffer, llm_tpl_str text) {
    if (text.len == 0) return job->status == TDM_OK;
    if (buffer->capacity - buffer->len < text.len) {
        size_t capacity = buffer->capacity * 2 + text.len + 64;
        char *grown = llm_tpl_alloc(job, capacity, 1);
        if (grown == NULL) return false;
        if (buffer->len > 0) memcpy(grown, buffer->ptr, buffer->len);
        buffer->ptr = grown;
        buffer->capacity = capacity;
    }
    memcpy(buffer->ptr + buffer->len, text.ptr, text.len);
    buffer->len += text.len;
    return llm_tpl_step(job, 1 + text.len / 64);
}

bool llm_tpl_put_chars(llm_tpl_job *job, llm_tpl_buffer *buffer, const char *text) {
    return llm_tpl_put(job, buffer, llm_tpl_str_of(text));
}

bool llm_tpl_put_escaped(llm_tpl_job *job, llm_tpl_buffer *buffer, llm_tpl_str text) {
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    for (size_t i = 0; i < text.len; i++) {
        const char *found = text.ptr[i] != '\0' ? strchr(from, text.ptr[i]) : NULL;
        if (!(found != NULL ? llm_tpl_put_chars(job, buffer, to[found - from])
                            : llm_tpl_put(job, buffer, (llm_tpl_str){text.ptr + i, 1})))
            return false;
    }
    return true;
}

bool llm_tpl_put_code(llm_tpl_job *job, llm_tpl_buffer *buffer, uint32_t code) {
    utf8proc_uint8_t bytes[4];
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) code = 0xFFFD;
    size_t n = (size_t)utf8proc_encode_char((utf8proc_int32_t)code, bytes);
    return llm_tpl_put(job, buffer, (llm_tpl_str){(const char *)bytes, n});
}

llm_tpl_str llm_tpl_buffer_str(const llm_tpl_buffer *buffer) {
    return (llm_tpl_str){buffer->ptr, buffer->len};
}

/* ---- Characters ---- */

size_t llm_tpl_char_len(llm_tpl_str text, size_t at) {
    size_t n;
    return llm_utf8_begin(text.ptr + at, text.len - at, &n) == LLM_UTF8_WHOLE ? n : 1;
}

size_t llm_tpl_char_read(llm_tpl_str text, size_t at, uint32_t *code_out) {
    size_t n = llm_tpl_char_len(text, at);
    unsigned char first = (unsigned char)text.ptr[at];
    uint32_t code = n == 1 ? first : first & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) code = code << 6 | ((unsigned char)text.ptr[at + i] & 0x3Fu);
    *code_out = n == 1 && first >= 0x80 ? 0xFFFD : code;
    return n;
}

size_t llm_tpl_text_count(llm_tpl_str text) {
    size_t n = 0;
    for (size_t at = 0; at < text.len; at += llm_tpl_char_len(text, at)) n++;
    return n;
}

size_t llm_tpl_text_offset(llm_tpl_str text, size_t index) {
    size_t at = 0;
    while (at < text.len && index-- > 0) at += llm_tpl_char_len(text, at);
    return at;
}

bool llm_tpl_is_space(uint32_t code) {
    return (code >= 9 && code <= 13) || (code >= 28 && code <= 32) || code == 0x85 ||
           code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
           code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

static bool char_is_among(llm_tpl_str set, uint32_t code) {
    if (set.ptr == NULL) return llm_tpl_is_space(code);
    for (size_t at = 0; at < set.len;) {
        uint32_t other;
        at += llm_tpl_char_read(set, at, &other);
        if (other == code) return true;
    }
    return false;
}

llm_tpl_str llm_tpl_text_strip(llm_tpl_str text, llm_tpl_str set, bool left, bool right) {
    uint32_t code;
    while (left && text.len > 0) {
        size_t n = llm_tpl_char_read(text, 0, &code);
        if (!char_is_among(set, code)) break;
        text.ptr += n;
        text.len -= n;
    }
    while (right && text.len > 0) {
        size_t at = text.len - 1;
        while (at > 0 && text.len - at < 4 && ((unsigned char)text.ptr[at] & 0xC0) == 0x80) at--;
        if (llm_tpl_char_len(text, at) != text.len - at) at = text.len - 1;
        llm_tpl_char_read(text, at, &code);
        if (!char_is_among(set, code)) break;
        text.len = at;
    }
    return text;
}

size_t llm_tpl_text_find(llm_tpl_str text, llm_tpl_str part, size_t from) {
    if (part.len > text.len || from > text.len - part.len) return SIZE_MAX;
    if (part.len == 0) return from;
    const char *at = memmem(text.ptr + from, text.len - from, part.ptr, part.len);
    return at == NULL ? SIZE_MAX : (size_t)(at - text.ptr);
}

bool llm_tpl_text_replace(llm_tpl_job *job, llm_tpl_str text, llm_tpl_str old, llm_tpl_str new,
                          int64_t limit, llm_tpl_str *out) {
    llm_tpl_buffer buffer = {0};
    size_t at = 0;
    if (!llm_tpl_step(job, 1 + text.len / 16)) return false;
    for (; limit != 0; limit -= limit > 0) {
        size_t found = llm_tpl_text_find(text, old, at);
        if (found == SIZE_MAX) break;
        /* an empty text occurs before every character and after the last */
        size_t step = old.len > 0 ? old.len : found < text.len ? llm_tpl_char_len(text, found) : 1;
        llm_tpl_str before = {text.ptr + at, found - at}, one = {text.ptr + found, step};
        if (!llm_tpl_put(job, &buffer, before) || !llm_tpl_put(job, &buffer, new)) return false;
        if (old.len == 0 && found < text.len && !llm_tpl_put(job, &buffer, one)) return false;
        at = found + step;
        if (at > text.len) break;
    }
    if (at < text.len && !llm_tpl_put(job, &buffer, (llm_tpl_str){text.ptr + at, text.len - at}))
        return false;
    *out = llm_tpl_buffer_str(&buffer);
    return job->status == TDM_OK;
}

/* Whether a word ends at this character, so that the next letter begins one. */
static bool ends_word(llm_tpl_case how, uint32_t code) {
    if (how == LLM_TPL_CASE_TITLE_WORDS)
        return llm_tpl_is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' ||
               code == '<';
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category != UTF8PROC_CATEGORY_LU && category != UTF8PROC_CATEGORY_LL &&
           category != UTF8PROC_CATEGORY_LT;
}

bool llm_tpl_text_case(llm_tpl_job *job, llm_tpl_str text, llm_tpl_case how, llm_tpl_str *out) {
    llm_tpl_buffer buffer = {0};
    bool is_first = true;
    for (size_t at = 0; at < text.len;) {
        uint32_t code;
        size_t n = llm_tpl_char_read(text, at, &code);
        bool is_upper = how == LLM_TPL_CASE_UPPER || (how != LLM_TPL_CASE_LOWER && is_first);
        bool is_title = is_upper && how != LLM_TPL_CASE_UPPER;
        is_first =
            (how == LLM_TPL_CASE_TITLE || how == LLM_TPL_CASE_TITLE_WORDS) && ends_word(how, code);
        llm_tpl_str same = {text.ptr + at, n};
        bool is_done;
        if (code == 0xFFFD)
            is_done = llm_tpl_put(job, &buffer, same);
        else if (code == 0xDF && is_upper) /* its upper case is two letters; others like it stay */
            is_done = llm_tpl_put_chars(job, &buffer, is_title ? "Ss" : "SS");
        else
            is_done =
                llm_tpl_put_code(job, &buffer,
                                 (uint32_t)(is_title   ? utf8proc_totitle((utf8proc_int32_t)code)
                                            : is_upper ? utf8proc_toupper((utf8proc_int32_t)code)
                                                       : utf8proc_tolower((utf8proc_int32_t)code)));
        if (!is_done) return false;
        at += n;
    }
    *out = llm_tpl_buffer_str(&buffer);
    return true;
}

/* ---- Values as text ---- */

bool llm_tpl_put_float(llm_tpl_job *job, llm_tpl_buffer *buffer, double real) {
    char text[40];
    if (isnan(real)) return llm_tpl_put_chars(job, buffer, "nan");
    if (isinf(real)) return llm_tpl_put_chars(job, buffer, real > 0 ? "inf" : "-inf");
    int digits = 1;
    for (; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, real);
        if (strtod(text, NULL) == real) break;
    }
    int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent < -4 || exponent >= 16) {
        /* C and Python write exponents the same way: a sign and at least two digits */
        return llm_tpl_put_chars(job, buffer, text);
    }
    int decimals = digits - 1 - exponent;
    snprintf(text, sizeof text, "%.*f", decimals > 1 ? decimals : 1, real);
    return llm_tpl_put_chars(job, buffer, text);
}

static bool code_is_printable(uint32_t code) {
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return code == ' ';
    default: return true;
    }
}

static bool put_repr(llm_tpl_job *job, llm_tpl_buffer *buffer, llm_tpl_str text) {
    bool has_single = text.len > 0 && memchr(text.ptr, '\'', text.len) != NULL;
    bool has_double = text.len > 0 && memchr(text.ptr, '"', text.len) != NULL;
    char quote = has_single && !has_double ? '"' : '\'';
    char escaped[16] = {quote};
    bool ok = llm_tpl_put_chars(job, buffer, escaped);
    for (size_t at = 0; at < text.len && ok;) {
        uint32_t code;
        size_t n = llm_tpl_char_read(text, at, &code);
        llm_tpl_str same = {text.ptr + at, n};
        if (code == (unsigned char)quote || code == '\\')
            snprintf(escaped, sizeof escaped, "\\%c", (int)code);
        else if (code == '\n' || code == '\r' || code == '\t')
            snprintf(escaped, sizeof escaped, "\\%c",
                     code == '\n'   ? 'n'
                     : code == '\r' ? 'r'
                                    : 't');
        else if (code_is_printable(code))
            escaped[0] = '\0';
        else
            snprintf(escaped, sizeof escaped,
                     code < 0x100     ? "\\x%02" PRIx32
                     : code < 0x10000 ? "\\u%04" PRIx32
                                      : "\\U%08" PRIx32,
                     code);
        ok = escaped[0] != '\0' ? llm_tpl_put_chars(job, buffer, escaped)
                                : llm_tpl_put(job, buffer, same);
        at += n;
    }
    escaped[0] = quote;
    escaped[1] = '\0';
    return ok && llm_tpl_put_chars(job, buffer, escaped);
}

static bool put_nested(llm_tpl_job *job, llm_tpl_buffer *buffer, const llm_tpl_value *value);

static bool put_list(llm_tpl_job *job, llm_tpl_buffer *buffer, const llm_tpl_list *list) {
    bool is_tuple = list->flavor == LLM_TPL_TUPLE;
    bool ok = llm_tpl_put_chars(job, buffer, is_tuple ? "(" : "[");
    for (size_t i = 0; i < list->n && ok; i++)
        ok = (i == 0 || llm_tpl_put_chars(job, buffer, ", ")) &&
             put_nested(job, buffer, &list->items[i]);
    if (ok && is_tuple && list->n == 1) ok = llm_tpl_put_chars(job, buffer, ",");
    return ok && llm_tpl_put_chars(job, buffer, is_tuple ? ")" : "]");
}

static bool put_dict(llm_tpl_job *job, llm_tpl_buffer *buffer, const llm_tpl_dict *dict) {
    bool ok = llm_tpl_put_chars(job, buffer, "{");
    for (size_t i = 0; i < dict->n && ok; i++)
        ok = (i == 0 || llm_tpl_put_chars(job, buffer, ", ")) &&
             put_nested(job, buffer, &dict->pairs[i].key) && llm_tpl_put_chars(job, buffer, ": ") &&
             put_nested(job, buffer, &dict->pairs[i].value);
    return ok && llm_tpl_put_chars(job, buffer, "}");
}

/* repr() */
static bool put_nested(llm_tpl_job *job, llm_tpl_buffer *buffer, const llm_tpl_value *value) {
    if (job->depth >= LLM_TPL_DEPTH_MAX)
        return llm_tpl_fail(job, TDM_OUT_OF_RANGE, "nested too deeply to be printed");
    job->depth++;
    bool ok;
    char text[32];
    switch (value->kind) {
    case LLM_TPL_ABSENT:
    case LLM_TPL_UNDEFINED: ok = llm_tpl_put_chars(job, buffer, "Undefined"); break;
    case LLM_TPL_NONE: ok = llm_tpl_put_chars(job, buffer, "None"); break;
    case LLM_TPL_BOOL:
        ok = llm_tpl_put_chars(job, buffer, value->as.truth ? "True" : "False");
        break;
    case LLM_TPL_INT:
        snprintf(text, sizeof text, "%" PRId64, value->as.number);
        ok = llm_tpl_put_chars(job, buffer, text);
        break;
    case LLM_TPL_FLOAT: ok = llm_tpl_put_float(job, buffer, value->as.real); break;
    case LLM_TPL_STRING: ok = put_repr(job, buffer, value->as.text); break;
    case LLM_TPL_LIST: ok = put_list(job, buffer, value->as.list); break;
    case LLM_TPL_DICT: ok = put_dict(job, buffer, value->as.dict); break;
    case LLM_TPL_NAMESPACE:
        ok = llm_tpl_put_chars(job, buffer, "<Namespace ") &&
             put_dict(job, buffer, value->as.dict) && llm_tpl_put_chars(job, buffer, ">");
        break;
    default:
        ok = llm_tpl_fail(job, TDM_INVALID_ARGUMENT, "a %s cannot be shown as text",
                          llm_tpl_kind_name(value));
    }
    job->depth--;
    return ok;
}

bool llm_tpl_put_value(llm_tpl_job *job, llm_tpl_buffer *buffer, const llm_tpl_value *value) {
    if (value->kind == LLM_TPL_STRING) return llm_tpl_put(job, buffer, value->as.text);
    if (value->kind == LLM_TPL_UNDEFINED) return true;
    return put_nested(job, buffer, value);
}

bool llm_tpl_to_text(llm_tpl_job *job, const llm_tpl_value *value, llm_tpl_str *out) {
    llm_tpl_buffer buffer = {0};
    if (value->kind == LLM_TPL_STRING) {
        *out = value->as.text;
        return true;
    }
    bool ok = llm_tpl_put_value(job, &buffer, value);
    *out = llm_tpl_buffer_str(&buffer);
    return ok;
}

/* ---- Python's % ---- */

typedef struct conversion {
    bool left, zero, plus, space, alternate;
    int width, precision; /* precision -1 = none */
    char letter;
} conversion;

#define FIELD_MAX 1000 /* width and precision */

/* Reads the conversion after a '%'. Returns its length, 0 if it is invalid. */
static size_t conversion_read(llm_tpl_str format, size_t at, conversion *c) {
    size_t start = at;
    *c = (conversion){.precision = -1};
    for (; at < format.len && strchr("-0+ #", format.ptr[at]) != NULL && format.ptr[at] != '\0';
         at++) {
        c->left |= format.ptr[at] == '-';
        c->zero |= format.ptr[at] == '0';
        c->plus |= format.ptr[at] == '+';
        c->space |= format.ptr[at] == ' ';
        c->alternate |= format.ptr[at] == '#';
    }
    for (; at < format.len && format.ptr[at] >= '0' && format.ptr[at] <= '9'; at++) {
        c->width = c->width * 10 + (format.ptr[at] - '0');
        if (c->width > FIELD_MAX) return 0;
    }
    if (at < format.len && format.ptr[at] == '.') {
        c->precision = 0;
        for (at++; at < format.len && format.ptr[at] >= '0' && format.ptr[at] <= '9'; at++) {
            c->precision = c->precision * 10 + (format.ptr[at] - '0');
            if (c->precision > FIELD_MAX) return 0;
        }
    }
    if (at >= format.len) return 0;
    c->letter = format.ptr[at++];
    return at - start;
}

static bool put_padded(llm_tpl_job *job, llm_tpl_buffer *buffer, const conversion *c,
                       llm_tpl_str text) {
    size_t n = llm_tpl_text_count(text);
    bool ok = c->left ? llm_tpl_put(job, buffer, text) : true;
    for (; n < (size_t)c->width && ok; n++) ok = llm_tpl_put_chars(job, buffer, " ");
    return ok && (c->left || llm_tpl_put(job, buffer, text));
}

/* An integer as Python writes it: a sign before the digits also in base 8 and 16, 0o before octal
 * digits, a digit at least, and zeros up to the width also where there is a precision. */
static bool put_integer(llm_tpl_job *job, llm_tpl_buffer *buffer, const conversion *c,
                        int64_t number) {
    char digits[FIELD_MAX + 32], text[sizeof digits + 8];
    const uint64_t magnitude = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    const char *sign = number < 0 ? "-" : c->plus ? "+" : c->space ? " " : "", *base = "";
    if (c->alternate)
        base = c->letter == 'x' ? "0x" : c->letter == 'X' ? "0X" : c->letter == 'o' ? "0o" : "";
    const int n_before = (int)(strlen(sign) + strlen(base));
    int n_digit = c->precision > 1 ? c->precision : 1; /* at least */
    if (c->zero && !c->left && c->width - n_before > n_digit) n_digit = c->width - n_before;
    switch (c->letter) {
    case 'x': snprintf(digits, sizeof digits, "%.*" PRIx64, n_digit, magnitude); break;
    case 'X': snprintf(digits, sizeof digits, "%.*" PRIX64, n_digit, magnitude); break;
    case 'o': snprintf(digits, sizeof digits, "%.*" PRIo64, n_digit, magnitude); break;
    default: snprintf(digits, sizeof digits, "%.*" PRIu64, n_digit, magnitude); break;
    }
    snprintf(text, sizeof text, "%s%s%s", sign, base, digits);
    return put_padded(job, buffer, c, llm_tpl_str_of(text));
}

/* Formats a number: as an integer, a float without its fraction, or with C's printf, which has the
 * same conversions of floats. */
static bool put_number(llm_tpl_job *job, llm_tpl_buffer *buffer, const conversion *c,
                       const llm_tpl_value *value) {
    char format[48], width[16] = "", precision[16] = "", text[FIELD_MAX * 2 + 400];
    if (!llm_tpl_is_number(value))
        return llm_tpl_fail(job, TDM_INVALID_ARGUMENT, "%%%c needs a number, not a %s", c->letter,
                            llm_tpl_kind_name(value));
    const double real = llm_tpl_as_real(value);
    if (strchr("eEfFgG", c->letter) == NULL) {
        if (value->kind != LLM_TPL_FLOAT) return put_integer(job, buffer, c, llm_tpl_as_int(value));
        if (!(real > -9e18) || !(real < 9e18))
            return llm_tpl_fail(job, TDM_OUT_OF_RANGE, "%%%c: the number is too large", c->letter);
        return put_integer(job, buffer, c, (int64_t)real);
    }
    /* printf would read a width of 0 as the flag 0 */
    if (c->width > 0) snprintf(width, sizeof width, "%d", c->width);
    if (c->precision >= 0) snprintf(precision, sizeof precision, ".%d", c->precision);
    snprintf(format, sizeof format, "%%%s%s%s%s%s%s%s%c", c->left ? "-" : "", c->zero ? "0" : "",
             c->plus ? "+" : "", c->space ? " " : "", c->alternate ? "#" : "", width, precision,
             c->letter);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof text, format, real);
#pragma GCC diagnostic pop
    return llm_tpl_put_chars(job, buffer, text);
}

bool llm_tpl_text_format(llm_tpl_job *job, llm_tpl_str format, const llm_tpl_value *args,
                         size_t n_arg, llm_tpl_str *out) {
    llm_tpl_buffer buffer = {0};
    size_t used = 0;
    for (size_t at = 0; at < format.len;) {
        const char *percent = memchr(format.ptr + at, '%', format.len - at);
        size_t end = percent == NULL ? format.len : (size_t)(percent - format.ptr);
        if (!llm_tpl_put(job, &buffer, (llm_tpl_str){format.ptr + at, end - at})) return false;
        if (percent == NULL) break;
        conversion c;
        size_t n = conversion_read(format, end + 1, &c);
        if (n == 0 || strchr("%srdiuxXoeEfFgG", c.letter) == NULL || c.letter == '\0')
            return llm_tpl_fail(job, TDM_UNSUPPORTED, "unknown conversion after '%%'");
        at = end + 1 + n;
        if (c.letter == '%') {
            if (!llm_tpl_put_chars(job, &buffer, "%")) return false;
            continue;
        }
        if (used == n_arg)
            return llm_tpl_fail(job, TDM_INVALID_ARGUMENT, "not enough arguments for the format");
        const llm_tpl_value *value = &args[used++];
        if (c.letter == 's' || c.letter == 'r') {
            llm_tpl_buffer one = {0};
            if (!(c.letter == 's' ? llm_tpl_put_value(job, &one, value)
                                  : put_nested(job, &one, value)))
                return false;
            llm_tpl_str text = llm_tpl_buffer_str(&one);
            if (c.precision >= 0) text.len = llm_tpl_text_offset(text, (size_t)c.precision);
            if (!put_padded(job, &buffer, &c, text)) return false;
        } else if (!put_number(job, &buffer, &c, value)) {
            return false;
        }
    }
    if (used < n_arg)
        return llm_tpl_fail(job, TDM_INVALID_ARGUMENT, "more arguments than the format takes");
    *out = llm_tpl_buffer_str(&buffer);
    return true;
}
