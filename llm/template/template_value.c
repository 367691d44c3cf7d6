/* SPDX-License-Identifier: MIT
 *
 * template_value.c: see template_value.h.
 */
#include "llm/template/template_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "llm/template/template_text.h"

/* ---- The job ---- */

typedef struct chunk {
    struct chunk *before;
    size_t size, used; /* bytes */
    max_align_t bytes[];
} chunk;

#define CHUNK_SIZE ((size_t)64 << 10)

bool llm_tpl_fail(llm_tpl_job *job, tdm_status status, const char *format, ...) {
    if (job->status != TDM_OK) return false;
    char reason[TDM_ERROR_MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    for (char *at = reason; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7F) *at = ' '; /* messages are one line */
    job->status = tdm_fail(job->err, status, "%.160s, line %d: %s", job->name, job->line, reason);
    return false;
}

bool llm_tpl_fail_undefined(llm_tpl_job *job, const llm_tpl_value *value) {
    llm_tpl_str name = value->as.text;
    return llm_tpl_fail(job, TDM_INVALID_ARGUMENT, "'%.*s' is undefined",
                        (int)(name.len < 64 ? name.len : 64), name.len > 0 ? name.ptr : "");
}

void *llm_tpl_alloc(llm_tpl_job *job, size_t n, size_t size) {
    size_t bytes;
    const size_t align = sizeof(max_align_t);
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > LLM_TPL_MEMORY_MAX ||
        job->n_byte + bytes > LLM_TPL_MEMORY_MAX) {
        llm_tpl_fail(job, TDM_OUT_OF_RANGE, "needs more than %zu MiB of memory",
                     LLM_TPL_MEMORY_MAX >> 20);
        return NULL;
    }
    bytes = (bytes + align - 1) / align * align;
    chunk *last = job->chunks;
    if (last == NULL || last->size - last->used < bytes) {
        size_t room = bytes > CHUNK_SIZE ? bytes : CHUNK_SIZE;
        chunk *made = calloc(1, sizeof *made + room);
        if (made == NULL) {
            llm_tpl_fail(job, TDM_RESOURCE_EXHAUSTED, "no memory");
            return NULL;
        }
        made->size = room;
        made->before = last;
        job->chunks = last = made;
    }
    void *at = (char *)last->bytes + last->used;
    last->used += bytes;
    job->n_byte += bytes;
    return at;
}

void llm_tpl_job_end(llm_tpl_job *job) {
    for (chunk *at = job->chunks; at != NULL;) {
        chunk *before = at->before;
        free(at);
        at = before;
    }
    job->chunks = NULL;
}

bool llm_tpl_step(llm_tpl_job *job, size_t n) {
    if (n > LLM_TPL_STEPS_MAX || (job->n_step += (int64_t)n) > LLM_TPL_STEPS_MAX)
        return llm_tpl_fail(job, TDM_OUT_OF_RANGE, "does not end within %d steps",
                            LLM_TPL_STEPS_MAX);
    return job->status == TDM_OK;
}

/* ---- Creating values ---- */

llm_tpl_str llm_tpl_str_of(const char *text) {
    return (llm_tpl_str){text, strlen(text)};
}

bool llm_tpl_str_same(llm_tpl_str a, llm_tpl_str b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool llm_tpl_str_is(llm_tpl_str str, const char *text) {
    return llm_tpl_str_same(str, llm_tpl_str_of(text));
}

llm_tpl_value llm_tpl_undefined(llm_tpl_str name) {
    return (llm_tpl_value){.kind = LLM_TPL_UNDEFINED, .as.text = name};
}

llm_tpl_value llm_tpl_none(void) {
    return (llm_tpl_value){.kind = LLM_TPL_NONE};
}

llm_tpl_value llm_tpl_bool(bool truth) {
    return (llm_tpl_value){.kind = LLM_TPL_BOOL, .as.truth = truth};
}

llm_tpl_value llm_tpl_int(int64_t number) {
    return (llm_tpl_value){.kind = LLM_TPL_INT, .as.number = number};
}

llm_tpl_value llm_tpl_float(double real) {
    return (llm_tpl_value){.kind = LLM_TPL_FLOAT, .as.real = real};
}

llm_tpl_value llm_tpl_string(llm_tpl_str text) {
    return (llm_tpl_value){.kind = LLM_TPL_STRING, .as.text = text};
}

bool llm_tpl_list_make(llm_tpl_job *job, llm_tpl_flavor flavor, llm_tpl_value *out) {
    llm_tpl_list *list = llm_tpl_alloc(job, 1, sizeof *list);
    if (list == NULL) return false;
    list->flavor = flavor;
    *out = (llm_tpl_value){.kind = LLM_TPL_LIST, .as.list = list};
    return true;
}

bool llm_tpl_dict_make(llm_tpl_job *job, llm_tpl_value *out) {
    llm_tpl_dict *dict = llm_tpl_alloc(job, 1, sizeof *dict);
    if (dict == NULL) return false;
    *out = (llm_tpl_value){.kind = LLM_TPL_DICT, .as.dict = dict};
    return true;
}

bool llm_tpl_list_push(llm_tpl_job *job, llm_tpl_list *list, llm_tpl_value item) {
    if (list->n == list->capacity) {
        size_t capacity = list->capacity == 0 ? 4 : list->capacity * 2;
        llm_tpl_value *items = llm_tpl_alloc(job, capacity, sizeof *items);
        if (items == NULL) return false;
        if (list->n > 0) memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->n++] = item;
    return llm_tpl_step(job, 1);
}

/* FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv); equal values have equal hashes. */
static uint32_t key_hash(const llm_tpl_value *key) {
    uint32_t hash = 2166136261u;
    if (key->kind == LLM_TPL_STRING) {
        for (size_t i = 0; i < key->as.text.len; i++)
            hash = (hash ^ (unsigned char)key->as.text.ptr[i]) * 16777619u;
    } else if (llm_tpl_is_number(key)) {
        double real = llm_tpl_as_real(key);
        if (real > -9e15 && real < 9e15) hash ^= (uint32_t)(int64_t)real;
        hash *= 16777619u;
    }
    return hash;
}

static bool numbers_equal(const llm_tpl_value *a, const llm_tpl_value *b) {
    if (a->kind == LLM_TPL_FLOAT || b->kind == LLM_TPL_FLOAT)
        return llm_tpl_as_real(a) == llm_tpl_as_real(b);
    return llm_tpl_as_int(a) == llm_tpl_as_int(b);
}

static bool key_is_possible(const llm_tpl_value *key) {
    return key->kind == LLM_TPL_STRING || key->kind == LLM_TPL_NONE || llm_tpl_is_number(key);
}

static bool keys_equal(const llm_tpl_value *a, const llm_tpl_value *b) {
    if (a->kind == LLM_TPL_STRING || b->kind == LLM_TPL_STRING)
        return a->kind == b->kind && llm_tpl_str_same(a->as.text, b->as.text);
    if (!llm_tpl_is_number(a) || !llm_tpl_is_number(b)) return a->kind == b->kind;
    return numbers_equal(a, b);
}

/* The slot of the key in the index, or the free slot for it. */
static size_t index_find(const llm_tpl_dict *dict, const llm_tpl_value *key) {
    size_t at = key_hash(key) & (dict->n_index - 1);
    while (dict->index[at] != 0 && !keys_equal(&dict->pairs[dict->index[at] - 1].key, key))
        at = (at + 1) & (dict->n_index - 1);
    return at;
}

const llm_tpl_value *llm_tpl_dict_get(const llm_tpl_dict *dict, const llm_tpl_value *key) {
    if (!key_is_possible(key)) return NULL;
    if (dict->index != NULL) {
        uint32_t place = dict->index[index_find(dict, key)];
        return place == 0 ? NULL : &dict->pairs[place - 1].value;
    }
    for (size_t i = 0; i < dict->n; i++)
        if (keys_equal(&dict->pairs[i].key, key)) return &dict->pairs[i].value;
    return NULL;
}

const llm_tpl_value *llm_tpl_dict_get_str(const llm_tpl_dict *dict, llm_tpl_str key) {
    llm_tpl_value value = llm_tpl_string(key);
    return llm_tpl_dict_get(dict, &value);
}

static bool dict_grow(llm_tpl_job *job, llm_tpl_dict *dict) {
    size_t capacity = dict->capacity == 0 ? 4 : dict->capacity * 2;
    llm_tpl_pair *pairs = llm_tpl_alloc(job, capacity, sizeof *pairs);
    if (pairs == NULL) return false;
    if (dict->n > 0) memcpy(pairs, dict->pairs, dict->n * sizeof *pairs);
    dict->pairs = pairs;
    dict->capacity = capacity;
    if (capacity <= 8) return true;
    dict->n_index = capacity * 2;
    dict->index = llm_tpl_alloc(job, dict->n_index, sizeof *dict->index);
    if (dict->index == NULL) return false;
    for (size_t i = 0; i < dict->n; i++)
        dict->index[index_find(dict, &pairs[i].key)] = (uint32_t)i + 1;
    return true;
}

bool llm_tpl_dict_set(llm_tpl_job *job, llm_tpl_dict *dict, llm_tpl_value key,
                      llm_tpl_value value) {
    if (!key_is_possible(&key))
        return llm_tpl_fail(job, TDM_INVALID_ARGUMENT, "a %s cannot be the key of a dict",
                            llm_tpl_kind_name(&key));
    llm_tpl_value *there = (llm_tpl_value *)llm_tpl_dict_get(dict, &key);
    if (there != NULL) {
        *there = value;
        return llm_tpl_step(job, 1);
    }
    if (dict->n == dict->capacity && !dict_grow(job, dict)) return false;
    if (dict->index != NULL) dict->index[index_find(dict, &key)] = (uint32_t)dict->n + 1;
    dict->pairs[dict->n++] = (llm_tpl_pair){key, value};
    return llm_tpl_step(job, 1);
}

/* ---- Reading values ---- */

bool llm_tpl_is_number(const llm_tpl_value *value) {
    return value->kind == LLM_TPL_BOOL || value->kind == LLM_TPL_INT ||
           value->kind == LLM_TPL_FLOAT;
}

double llm_tpl_as_real(const llm_tpl_value *value) {
    return value->kind == LLM_TPL_FLOAT ? value->as.real : (double)llm_tpl_as_int(value);
}

int64_t llm_tpl_as_int(const llm_tpl_value *value) {
    return value->kind == LLM_TPL_BOOL ? value->as.truth : value->as.number;
}

bool llm_tpl_is_true(const llm_tpl_value *value) {
    switch (value->kind) {
    case LLM_TPL_ABSENT:
    case LLM_TPL_UNDEFINED:
    case LLM_TPL_NONE: return false;
    case LLM_TPL_BOOL: return value->as.truth;
    case LLM_TPL_INT: return value->as.number != 0;
    case LLM_TPL_FLOAT: return value->as.real != 0;
    case LLM_TPL_STRING: return value->as.text.len > 0;
    case LLM_TPL_LIST: return value->as.list->n > 0 || value->as.list->flavor == LLM_TPL_LAZY;
    case LLM_TPL_DICT: return value->as.dict->n > 0;
    default: return true;
    }
}

/* Limit of comparisons in one ==. A small list that contains another list many times, on several
 * levels, would need very many. */
#define EQUALS_MAX 1000000

typedef struct effort {
    int left;      /* comparisons */
    size_t n_byte; /* of texts, compared so far */
} effort;

static bool equals_nested(const llm_tpl_value *a, const llm_tpl_value *b, int depth, effort *spent);

static bool lists_equal(const llm_tpl_list *a, const llm_tpl_list *b, int depth, effort *spent) {
    if (a == b) return true;
    if (a->n != b->n || a->flavor != b->flavor || a->flavor == LLM_TPL_LAZY) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!equals_nested(&a->items[i], &b->items[i], depth, spent)) return false;
    return true;
}

static bool dicts_equal(const llm_tpl_dict *a, const llm_tpl_dict *b, int depth, effort *spent) {
    if (a == b) return true;
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const llm_tpl_value *other = llm_tpl_dict_get(b, &a->pairs[i].key);
        if (other == NULL || !equals_nested(&a->pairs[i].value, other, depth, spent)) return false;
    }
    return true;
}

static bool equals_nested(const llm_tpl_value *a, const llm_tpl_value *b, int depth,
                          effort *spent) {
    if (depth > LLM_TPL_DEPTH_MAX || --spent->left < 0) return false;
    if (llm_tpl_is_number(a) && llm_tpl_is_number(b)) return numbers_equal(a, b);
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case LLM_TPL_STRING:
        if (a->as.text.len == b->as.text.len) spent->n_byte += a->as.text.len;
        return llm_tpl_str_same(a->as.text, b->as.text);
    case LLM_TPL_LIST: return lists_equal(a->as.list, b->as.list, depth + 1, spent);
    case LLM_TPL_DICT: return dicts_equal(a->as.dict, b->as.dict, depth + 1, spent);
    case LLM_TPL_NAMESPACE: return a->as.dict == b->as.dict;
    case LLM_TPL_LOOP: return a->as.loop == b->as.loop;
    case LLM_TPL_MACRO: return a->as.macro == b->as.macro;
    case LLM_TPL_FUNCTION: return a->as.function == b->as.function;
    case LLM_TPL_METHOD: return a->as.method == b->as.method;
    default: return true; /* none and none, undefined and undefined */
    }
}

bool llm_tpl_equals(llm_tpl_job *job, const llm_tpl_value *a, const llm_tpl_value *b) {
    effort spent = {.left = EQUALS_MAX};
    /* Callers compare with each item of long lists without a look at the job: end quickly after a
     * failure. */
    if (job->status != TDM_OK) return false;
    const bool is_equal = equals_nested(a, b, 0, &spent);
    (void)llm_tpl_step(job, (size_t)(EQUALS_MAX - spent.left) / 4 + spent.n_byte / 64);
    return is_equal;
}

static bool compare_nested(llm_tpl_job *job, const llm_tpl_value *a, const llm_tpl_value *b,
                           int depth, int *out) {
    if (!llm_tpl_step(job, 1)) return false;
    if (llm_tpl_is_number(a) && llm_tpl_is_number(b)) {
        if (a->kind == LLM_TPL_FLOAT || b->kind == LLM_TPL_FLOAT) {
            double x = llm_tpl_as_real(a), y = llm_tpl_as_real(b);
            *out = (x > y) - (x < y);
        } else {
            int64_t x = llm_tpl_as_int(a), y = llm_tpl_as_int(b);
            *out = (x > y) - (x < y);
        }
        return true;
    }
    if (a->kind == LLM_TPL_STRING && b->kind == LLM_TPL_STRING) {
        /* UTF-8 sorts as its code points do */
        size_t n = a->as.text.len < b->as.text.len ? a->as.text.len : b->as.text.len;
        *out = n > 0 ? memcmp(a->as.text.ptr, b->as.text.ptr, n) : 0;
        if (*out == 0) *out = (a->as.text.len > b->as.text.len) - (a->as.text.len < b->as.text.len);
        return llm_tpl_step(job, n / 64);
    }
    if (a->kind == LLM_TPL_LIST && b->kind == LLM_TPL_LIST && depth < LLM_TPL_DEPTH_MAX) {
        const llm_tpl_list *x = a->as.list, *y = b->as.list;
        for (size_t i = 0; i < x->n && i < y->n; i++) {
            if (llm_tpl_equals(job, &x->items[i], &y->items[i])) continue;
            return compare_nested(job, &x->items[i], &y->items[i], depth + 1, out);
        }
        *out = (x->n > y->n) - (x->n < y->n);
        return true;
    }
    if (a->kind == LLM_TPL_UNDEFINED || b->kind == LLM_TPL_UNDEFINED)
        return llm_tpl_fail_undefined(job, a->kind == LLM_TPL_UNDEFINED ? a : b);
    return llm_tpl_fail(job, TDM_INVALID_ARGUMENT, "a %s and a %s cannot be ordered",
                        llm_tpl_kind_name(a), llm_tpl_kind_name(b));
}

bool llm_tpl_compare(llm_tpl_job *job, const llm_tpl_value *a, const llm_tpl_value *b, int *out) {
    return compare_nested(job, a, b, 0, out);
}

const char *llm_tpl_kind_name(const llm_tpl_value *value) {
    switch (value->kind) {
    case LLM_TPL_ABSENT:
    case LLM_TPL_UNDEFINED: return "Undefined";
    case LLM_TPL_NONE: return "NoneType";
    case LLM_TPL_BOOL: return "bool";
    case LLM_TPL_INT: return "int";
    case LLM_TPL_FLOAT: return "float";
    case LLM_TPL_STRING: return "str";
    case LLM_TPL_LIST:
        return value->as.list->flavor == LLM_TPL_PLAIN   ? "list"
               : value->as.list->flavor == LLM_TPL_TUPLE ? "tuple"
                                                         : "generator";
    case LLM_TPL_DICT: return "dict";
    case LLM_TPL_NAMESPACE: return "Namespace";
    case LLM_TPL_LOOP: return "LoopContext";
    case LLM_TPL_MACRO: return "Macro";
    case LLM_TPL_FUNCTION: return "function";
    case LLM_TPL_METHOD: return "method";
    }
    return "value";
}

bool llm_tpl_iterate(llm_tpl_job *job, const llm_tpl_value *value, llm_tpl_list **out) {
    llm_tpl_value made;
    if (value->kind == LLM_TPL_LIST && value->as.list->flavor != LLM_TPL_LAZY) {
        *out = value->as.list;
        return true;
    }
    if (!llm_tpl_list_make(job, LLM_TPL_PLAIN, &made)) return false;
    *out = made.as.list;
    switch (value->kind) {
    case LLM_TPL_LIST:
        **out = *value->as.list;
        (*out)->flavor = LLM_TPL_PLAIN;
        value->as.list->n = value->as.list->capacity = 0;
        return true;
    case LLM_TPL_UNDEFINED: return true;
    case LLM_TPL_DICT:
        for (size_t i = 0; i < value->as.dict->n; i++)
            if (!llm_tpl_list_push(job, *out, value->as.dict->pairs[i].key)) return false;
        return true;
    case LLM_TPL_STRING:
        for (size_t at = 0, n; at < value->as.text.len; at += n) {
            n = llm_tpl_char_len(value->as.text, at);
            llm_tpl_str one = {value->as.text.ptr + at, n};
            if (!llm_tpl_list_push(job, *out, llm_tpl_string(one))) return false;
        }
        return true;
    default:
        return llm_tpl_fail(job, TDM_INVALID_ARGUMENT, "a %s cannot be iterated",
                            llm_tpl_kind_name(value));
    }
}
