/* SPDX-License-Identifier: MIT
 *
 * gguf_value.c: reads the value of a key as a given type, and prints values.
 *
 * Converters write integers of different widths, so any integer type is accepted if the value fits.
 * No other type is converted. The bytes were checked when the file was opened (gguf_part.c); only
 * types and ranges are checked here.
 */
#include "llm/gguf/gguf.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "llm/gguf/gguf_part.h"

const char *llm_gguf_type_name(llm_gguf_type type) {
    static const char *const name[LLM_GGUF_TYPE_COUNT_] = {
        [LLM_GGUF_U8] = "u8",       [LLM_GGUF_I8] = "i8",     [LLM_GGUF_U16] = "u16",
        [LLM_GGUF_I16] = "i16",     [LLM_GGUF_U32] = "u32",   [LLM_GGUF_I32] = "i32",
        [LLM_GGUF_F32] = "f32",     [LLM_GGUF_BOOL] = "bool", [LLM_GGUF_STRING] = "string",
        [LLM_GGUF_ARRAY] = "array", [LLM_GGUF_U64] = "u64",   [LLM_GGUF_I64] = "i64",
        [LLM_GGUF_F64] = "f64",
    };
    return (unsigned)type < LLM_GGUF_TYPE_COUNT_ ? name[type] : "?";
}

static bool type_is_integer(llm_gguf_type type) {
    return llm_gguf_type_size(type) != 0 && type != LLM_GGUF_F32 && type != LLM_GGUF_F64 &&
           type != LLM_GGUF_BOOL;
}

/* An integer or bool at `data`. A u64 above INT64_MAX becomes INT64_MAX, which is above the limits
 * of all callers. */
static int64_t integer_load(llm_gguf_type type, const uint8_t *data) {
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
    } v;
    memcpy(&v, data, llm_gguf_type_size(type));
    switch (type) {
    case LLM_GGUF_U8:
    case LLM_GGUF_BOOL: return v.u8;
    case LLM_GGUF_I8: return v.i8;
    case LLM_GGUF_U16: return v.u16;
    case LLM_GGUF_I16: return v.i16;
    case LLM_GGUF_U32: return v.u32;
    case LLM_GGUF_I32: return v.i32;
    case LLM_GGUF_U64: return v.u64 > INT64_MAX ? INT64_MAX : (int64_t)v.u64;
    case LLM_GGUF_I64: return v.i64;
    default: return 0;
    }
}

static double float_load(llm_gguf_type type, const uint8_t *data) {
    float f32 = 0;
    double f64 = 0;
    if (type == LLM_GGUF_F64) {
        memcpy(&f64, data, sizeof f64);
        return f64;
    }
    memcpy(&f32, data, sizeof f32);
    return f32;
}

/* Converting a double outside the range of float is undefined behaviour. */
static float float_narrow(double value) {
    if (value > (double)FLT_MAX) return INFINITY;
    if (value < -(double)FLT_MAX) return -INFINITY;
    return (float)value;
}

static llm_gguf_str string_load(const uint8_t *data) {
    uint64_t len = 0;
    memcpy(&len, data, sizeof len);
    return (llm_gguf_str){(const char *)data + sizeof len, (size_t)len};
}

static tdm_status key_fail_type(const llm_gguf_key *key, const char *shown, const char *wanted,
                                tdm_error *err) {
    return tdm_fail(err, TDM_DATA_LOSS,
                    "%s: key '%.80s' is of type %s, not %s; the file was converted wrongly, get "
                    "another",
                    shown, key->name, llm_gguf_type_name(key->type), wanted);
}

/* Finds the key. *key is NULL and the status TDM_OK if an optional key is missing. */
static tdm_status key_need(const llm_gguf *g, const char *name, llm_gguf_need need,
                           const llm_gguf_key **key, tdm_error *err) {
    *key = llm_gguf_key_find(g, name);
    if (*key != NULL || need == LLM_GGUF_OPTIONAL) return TDM_OK;
    return tdm_fail(err, TDM_NOT_FOUND,
                    "%s: key '%.80s' is missing; the file was converted wrongly, get another",
                    llm_gguf_name(g), name);
}

tdm_status llm_gguf_key_integer(const llm_gguf_key *key, const char *shown, int64_t low,
                                int64_t high, int64_t *value, tdm_error *err) {
    if (!type_is_integer(key->type)) return key_fail_type(key, shown, "an integer", err);
    const int64_t v = integer_load(key->type, key->data);
    if (v < low || v > high)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "%s: key '%.80s' is %" PRId64 ", outside %" PRId64 " to %" PRId64
                        "; the file was converted wrongly, get another",
                        shown, key->name, v, low, high);
    *value = v;
    return TDM_OK;
}

tdm_status llm_gguf_get_i64(const llm_gguf *g, const char *name, llm_gguf_need need, int64_t *value,
                            tdm_error *err) {
    const llm_gguf_key *key;
    tdm_status status = key_need(g, name, need, &key, err);
    if (status != TDM_OK || key == NULL) return status;
    return llm_gguf_key_integer(key, llm_gguf_name(g), INT64_MIN, INT64_MAX, value, err);
}

tdm_status llm_gguf_get_u32(const llm_gguf *g, const char *name, llm_gguf_need need,
                            uint32_t *value, tdm_error *err) {
    const llm_gguf_key *key;
    int64_t wide = 0;
    tdm_status status = key_need(g, name, need, &key, err);
    if (status != TDM_OK || key == NULL) return status;
    status = llm_gguf_key_integer(key, llm_gguf_name(g), 0, UINT32_MAX, &wide, err);
    if (status == TDM_OK) *value = (uint32_t)wide;
    return status;
}

tdm_status llm_gguf_get_f32(const llm_gguf *g, const char *name, llm_gguf_need need, float *value,
                            tdm_error *err) {
    const llm_gguf_key *key;
    tdm_status status = key_need(g, name, need, &key, err);
    if (status != TDM_OK || key == NULL) return status;
    if (key->type != LLM_GGUF_F32 && key->type != LLM_GGUF_F64)
        return key_fail_type(key, llm_gguf_name(g), "a float", err);
    *value = float_narrow(float_load(key->type, key->data));
    return TDM_OK;
}

tdm_status llm_gguf_get_bool(const llm_gguf *g, const char *name, llm_gguf_need need, bool *value,
                             tdm_error *err) {
    const llm_gguf_key *key;
    tdm_status status = key_need(g, name, need, &key, err);
    if (status != TDM_OK || key == NULL) return status;
    if (key->type != LLM_GGUF_BOOL) return key_fail_type(key, llm_gguf_name(g), "a bool", err);
    *value = key->data[0] != 0;
    return TDM_OK;
}

tdm_status llm_gguf_get_str(const llm_gguf *g, const char *name, llm_gguf_need need,
                            llm_gguf_str *value, tdm_error *err) {
    const llm_gguf_key *key;
    tdm_status status = key_need(g, name, need, &key, err);
    if (status != TDM_OK || key == NULL) return status;
    if (key->type != LLM_GGUF_STRING) return key_fail_type(key, llm_gguf_name(g), "a string", err);
    *value = string_load(key->data);
    return TDM_OK;
}

/* Whether elements of type `found` can be read as `wanted`. */
static bool type_serves(llm_gguf_type wanted, llm_gguf_type found) {
    if (wanted == found) return true;
    if (type_is_integer(wanted)) return type_is_integer(found);
    return wanted == LLM_GGUF_F32 && found == LLM_GGUF_F64;
}

tdm_status llm_gguf_get_array(const llm_gguf *g, const char *name, llm_gguf_type type,
                              llm_gguf_need need, llm_gguf_array *value, tdm_error *err) {
    const llm_gguf_key *key;
    tdm_status status = key_need(g, name, need, &key, err);
    if (status != TDM_OK || key == NULL) return status;
    if (key->type != LLM_GGUF_ARRAY) return key_fail_type(key, llm_gguf_name(g), "an array", err);
    if (!type_serves(type, key->array.type))
        return tdm_fail(err, TDM_DATA_LOSS,
                        "%s: key '%.80s' is an array of %s, not of %s; the file was converted "
                        "wrongly, get another",
                        llm_gguf_name(g), name, llm_gguf_type_name(key->array.type),
                        llm_gguf_type_name(type));
    *value = key->array;
    return TDM_OK;
}

tdm_status llm_gguf_get_u32_each(const llm_gguf *g, const char *name, llm_gguf_need need,
                                 uint32_t n, uint32_t *values, tdm_error *err) {
    const llm_gguf_key *key;
    tdm_status status = key_need(g, name, need, &key, err);
    if (status != TDM_OK || key == NULL) return status;
    if (key->type != LLM_GGUF_ARRAY) {
        uint32_t one = 0;
        status = llm_gguf_get_u32(g, name, need, &one, err);
        if (status != TDM_OK) return status;
        for (uint32_t i = 0; i < n; ++i) values[i] = one;
        return TDM_OK;
    }
    llm_gguf_array array;
    status = llm_gguf_get_array(g, name, LLM_GGUF_U32, need, &array, err);
    if (status != TDM_OK) return status;
    if (array.n != n)
        return tdm_fail(err, TDM_DATA_LOSS,
                        "%s: key '%.80s' has %" PRIu64 " elements, not %" PRIu32
                        "; the file was converted wrongly, get another",
                        llm_gguf_name(g), name, array.n, n);
    for (uint32_t i = 0; i < n; ++i) {
        const int64_t v = llm_gguf_array_i64(&array, i);
        if (v < 0 || v > UINT32_MAX)
            return tdm_fail(err, TDM_OUT_OF_RANGE,
                            "%s: key '%.80s': element %" PRIu32 " is %" PRId64
                            "; the file was converted wrongly, get another",
                            llm_gguf_name(g), name, i, v);
    }
    for (uint32_t i = 0; i < n; ++i) values[i] = (uint32_t)llm_gguf_array_i64(&array, i);
    return TDM_OK;
}

int64_t llm_gguf_array_i64(const llm_gguf_array *array, uint64_t i) {
    if (!type_is_integer(array->type) && array->type != LLM_GGUF_BOOL) return 0;
    return integer_load(array->type, array->data + i * llm_gguf_type_size(array->type));
}

float llm_gguf_array_f32(const llm_gguf_array *array, uint64_t i) {
    if (array->type != LLM_GGUF_F32 && array->type != LLM_GGUF_F64) return 0;
    return float_narrow(float_load(array->type, array->data + i * llm_gguf_type_size(array->type)));
}

llm_gguf_str llm_gguf_array_str(const llm_gguf_array *array, uint64_t i) {
    if (array->string_off == NULL) return (llm_gguf_str){"", 0};
    return string_load(array->data + array->string_off[i]);
}

bool llm_gguf_str_equals(llm_gguf_str str, const char *text) {
    return strlen(text) == str.len && memcmp(str.ptr, text, str.len) == 0;
}

/* ---- Printing ---- */

/* Text in a buffer of fixed size; `full` is set once a piece did not fit. */
typedef struct line {
    char *text;
    size_t size, len; /* bytes; len < size */
    bool full;
} line;

/* Appends all of `piece` or nothing, so that no escape or number is cut. */
static void line_put(line *l, const char *piece, size_t len) {
    if (l->full || len >= l->size - l->len) {
        l->full = true;
        return;
    }
    memcpy(l->text + l->len, piece, len);
    l->len += len;
}

static void line_put_str(line *l, llm_gguf_str str) {
    line_put(l, "\"", 1);
    for (size_t i = 0; i < str.len && !l->full; ++i) {
        const unsigned char byte = (unsigned char)str.ptr[i];
        char escape[8];
        if (byte == '"' || byte == '\\')
            snprintf(escape, sizeof escape, "\\%c", byte);
        else if (byte == '\n')
            snprintf(escape, sizeof escape, "\\n");
        else if (byte < 0x20 || byte == 0x7f)
            snprintf(escape, sizeof escape, "\\x%02x", byte);
        else
            snprintf(escape, sizeof escape, "%c", byte);
        line_put(l, escape, strlen(escape));
    }
    line_put(l, "\"", 1);
}

static void line_put_number(line *l, llm_gguf_type type, const uint8_t *data) {
    char number[40];
    uint64_t u64 = 0;
    if (type == LLM_GGUF_BOOL) {
        snprintf(number, sizeof number, "%s", data[0] != 0 ? "true" : "false");
    } else if (type == LLM_GGUF_F32 || type == LLM_GGUF_F64) {
        snprintf(number, sizeof number, "%.9g", float_load(type, data));
    } else if (type == LLM_GGUF_U64) {
        memcpy(&u64, data, sizeof u64);
        snprintf(number, sizeof number, "%" PRIu64, u64);
    } else {
        snprintf(number, sizeof number, "%" PRId64, integer_load(type, data));
    }
    line_put(l, number, strlen(number));
}

static void line_put_array(line *l, const llm_gguf_array *array) {
    char head[64];
    snprintf(head, sizeof head, "[%" PRIu64 " x %s]", array->n, llm_gguf_type_name(array->type));
    line_put(l, head, strlen(head));
    if (array->type == LLM_GGUF_ARRAY) return;
    for (uint64_t i = 0; i < array->n && !l->full; ++i) {
        line_put(l, i == 0 ? " " : ", ", i == 0 ? 1 : 2);
        if (array->type == LLM_GGUF_STRING)
            line_put_str(l, llm_gguf_array_str(array, i));
        else
            line_put_number(l, array->type, array->data + i * llm_gguf_type_size(array->type));
    }
}

size_t llm_gguf_key_print(const llm_gguf_key *key, char *text, size_t text_size) {
    if (text_size == 0) return 0;
    /* Room for "...", which marks an omission. */
    const size_t tail = 3;
    line l = {.text = text, .size = text_size > tail ? text_size - tail : 1};
    if (key->type == LLM_GGUF_ARRAY)
        line_put_array(&l, &key->array);
    else if (key->type == LLM_GGUF_STRING)
        line_put_str(&l, string_load(key->data));
    else
        line_put_number(&l, key->type, key->data);
    if (l.full && text_size > tail) {
        /* Do not end in the middle of a UTF-8 sequence: remove its continuation bytes. */
        while (l.len > 0 && ((unsigned char)text[l.len - 1] & 0xc0) == 0x80) --l.len;
        if (l.len > 0 && ((unsigned char)text[l.len - 1] & 0xc0) == 0xc0) --l.len;
        memcpy(text + l.len, "...", tail);
        l.len += tail;
    }
    text[l.len] = '\0';
    return l.len;
}
