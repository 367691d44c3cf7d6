/* SPDX-License-Identifier: MIT
 *
 * template_value.h: the values of templates, with Python's semantics as in Jinja, and the job that
 * owns them.
 *
 * A job is one parse or one rendering. All memory comes from its arena and is released with it, so
 * values have no owner of their own. Memory, steps and depth of a job are bounded. The job keeps
 * the first failure; after it every function that can fail returns false. Text and conversions:
 * template_text.h.
 */
#ifndef LLM_TEMPLATE_VALUE_H
#define LLM_TEMPLATE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

#define LLM_TPL_MEMORY_MAX ((size_t)128 << 20) /* bytes of one job */
#define LLM_TPL_STEPS_MAX  20000000            /* of one rendering; about seconds */
#define LLM_TPL_DEPTH_MAX  1000                /* calls and nested nodes: bounds the C stack */
#define LLM_TPL_RANGE_MAX  100000              /* items of range(), as in Jinja's sandbox */

typedef enum llm_tpl_kind {
    LLM_TPL_ABSENT, /* an argument that was not given; never a value of a template */
    LLM_TPL_UNDEFINED,
    LLM_TPL_NONE,
    LLM_TPL_BOOL,
    LLM_TPL_INT,
    LLM_TPL_FLOAT,
    LLM_TPL_STRING,
    LLM_TPL_LIST,
    LLM_TPL_DICT,
    LLM_TPL_NAMESPACE,
    LLM_TPL_LOOP,     /* `loop` inside a for */
    LLM_TPL_MACRO,    /* of the template, `caller` too */
    LLM_TPL_FUNCTION, /* of the interpreter: range, namespace, ... */
    LLM_TPL_METHOD    /* of a value: text.strip */
} llm_tpl_kind;

/* Bytes, usually UTF-8; not NUL-terminated. */
typedef struct llm_tpl_str {
    const char *ptr; /* NULL only if len is 0 */
    size_t len;
} llm_tpl_str;

typedef struct llm_tpl_list llm_tpl_list;
typedef struct llm_tpl_dict llm_tpl_dict;
typedef struct llm_tpl_loop llm_tpl_loop;
typedef struct llm_tpl_macro llm_tpl_macro;
typedef struct llm_tpl_method llm_tpl_method;
struct llm_tpl_node;
struct llm_tpl_scope;
struct llm_tpl_builtin;

typedef struct llm_tpl_value {
    llm_tpl_kind kind;
    bool is_markup; /* of a string: marked as escaped, so that '+' escapes what is joined to it */
    union {
        bool truth;
        int64_t number;
        double real;
        llm_tpl_str text; /* of a string; of an undefined value, its name */
        llm_tpl_list *list;
        llm_tpl_dict *dict; /* of a namespace too */
        llm_tpl_loop *loop;
        const llm_tpl_macro *macro;
        const struct llm_tpl_builtin *function;
        const llm_tpl_method *method;
    } as;
} llm_tpl_value;

/* Kinds of Python's sequences. They differ in how they print and in whether an empty one is
 * false. */
typedef enum llm_tpl_flavor {
    LLM_TPL_PLAIN,
    LLM_TPL_TUPLE,
    LLM_TPL_LAZY /* results of filters such as map: always true; reading it once empties it */
} llm_tpl_flavor;

struct llm_tpl_list {
    llm_tpl_value *items; /* [n] */
    size_t n, capacity;
    llm_tpl_flavor flavor;
};

typedef struct llm_tpl_pair {
    llm_tpl_value key, value;
} llm_tpl_pair;

struct llm_tpl_dict {
    llm_tpl_pair *pairs; /* [n] in order of insertion */
    size_t n, capacity;
    uint32_t *index; /* [n_index] 1 + index into pairs, 0 = free; NULL for a small dict */
    size_t n_index;  /* a power of two */
};

/* A loop reads an item of its source when the body or an attribute needs it, as in Jinja: the body
 * may change the source, and what the condition depends on. */
struct llm_tpl_loop {
    const struct llm_tpl_node *node; /* the statement: its target, and its condition in c */
    struct llm_tpl_scope *scope;     /* around the loop, in which the condition is evaluated */
    const llm_tpl_list *source;
    size_t n_read;  /* items of the source that were read */
    bool is_at_end; /* no further item is read */
    llm_tpl_list *items;   /* read items that met the condition; loop.last and others read ahead */
    size_t index;          /* of the current item, from 0 */
    int64_t length;        /* loop.length, fixed at its first use; -1 = not used yet */
    llm_tpl_value changed; /* the last argument of loop.changed(); ABSENT = none */
};

struct llm_tpl_macro {
    llm_tpl_str name;
    const struct llm_tpl_node *node; /* parameters and body */
    struct llm_tpl_scope *scope;     /* of its definition */
};

struct llm_tpl_method {
    llm_tpl_value self;
    llm_tpl_str name;
};

typedef struct llm_tpl_job {
    const char *name; /* of the template, for messages */
    int line;         /* the current one, for messages */
    tdm_status status;
    tdm_error *err; /* nullable */
    void *chunks;   /* the arena */
    size_t n_byte;  /* allocated from it; at most LLM_TPL_MEMORY_MAX */
    int64_t n_step; /* at most LLM_TPL_STEPS_MAX */
    int depth;      /* at most LLM_TPL_DEPTH_MAX */
    int64_t now;    /* seconds since 1970, for strftime_now */
    struct llm_tpl_scope *scope; /* the innermost one */
    struct llm_tpl_buffer *out;  /* receives the text of statements */
} llm_tpl_job;

/* Keeps the failure if it is the first, with template and line in the message; returns false. */
TDM_PRINTF(3, 4)
bool llm_tpl_fail(llm_tpl_job *job, tdm_status status, const char *format, ...);
/* Fails with "'x' is undefined", for a value of LLM_TPL_UNDEFINED; returns false. */
bool llm_tpl_fail_undefined(llm_tpl_job *job, const llm_tpl_value *value);

/* Zeroed memory for `n` elements of `size` bytes, valid until the job ends. NULL is a failure,
 * which the job keeps. */
void *llm_tpl_alloc(llm_tpl_job *job, size_t n, size_t size);
/* Releases all memory of the job. */
void llm_tpl_job_end(llm_tpl_job *job);
/* Counts `n` steps; fails the job past the limit. */
bool llm_tpl_step(llm_tpl_job *job, size_t n);

/* ---- Creating values ---- */

llm_tpl_str llm_tpl_str_of(const char *text); /* borrowed */
bool llm_tpl_str_is(llm_tpl_str str, const char *text);
bool llm_tpl_str_same(llm_tpl_str a, llm_tpl_str b);

llm_tpl_value llm_tpl_undefined(llm_tpl_str name);
llm_tpl_value llm_tpl_none(void);
llm_tpl_value llm_tpl_bool(bool truth);
llm_tpl_value llm_tpl_int(int64_t number);
llm_tpl_value llm_tpl_float(double real);
llm_tpl_value llm_tpl_string(llm_tpl_str text);
bool llm_tpl_list_make(llm_tpl_job *job, llm_tpl_flavor flavor, llm_tpl_value *out);
bool llm_tpl_dict_make(llm_tpl_job *job, llm_tpl_value *out);

bool llm_tpl_list_push(llm_tpl_job *job, llm_tpl_list *list, llm_tpl_value item);
/* Adds or replaces. Fails for a value that cannot be a key (a list). */
bool llm_tpl_dict_set(llm_tpl_job *job, llm_tpl_dict *dict, llm_tpl_value key, llm_tpl_value value);
/* The value of a key, valid until the dict changes; NULL = there is none. */
const llm_tpl_value *llm_tpl_dict_get(const llm_tpl_dict *dict, const llm_tpl_value *key);
const llm_tpl_value *llm_tpl_dict_get_str(const llm_tpl_dict *dict, llm_tpl_str key);

/* ---- Reading values ---- */

bool llm_tpl_is_true(const llm_tpl_value *value);
bool llm_tpl_is_number(const llm_tpl_value *value); /* true for a bool too, as in Python */
double llm_tpl_as_real(const llm_tpl_value *value); /* of a number */
int64_t llm_tpl_as_int(const llm_tpl_value *value); /* of an int or bool */
/* Python's ==. Values that are nested or branched too far count as unequal. Counts steps, which may
 * fail the job. */
bool llm_tpl_equals(llm_tpl_job *job, const llm_tpl_value *a, const llm_tpl_value *b);
/* Sets *out to a number < 0, 0 or > 0: a before, equal to, or behind b. Fails for kinds without an
 * order. */
bool llm_tpl_compare(llm_tpl_job *job, const llm_tpl_value *a, const llm_tpl_value *b, int *out);
/* "str", "list", ...: Python's names. */
const char *llm_tpl_kind_name(const llm_tpl_value *value);
/* The items that a for loop reads: those of a list, keys of a dict, characters of a string, none of
 * an undefined value. For a list that is not lazy *out is the list itself. A lazy list is empty
 * afterwards. Fails for other values. */
bool llm_tpl_iterate(llm_tpl_job *job, const llm_tpl_value *value, llm_tpl_list **out);

#endif
