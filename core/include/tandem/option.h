/* SPDX-License-Identifier: MIT
 *
 * option.h: the options of a plugin's devices: how a configuration gives them, and how a plugin
 * describes them.
 *
 * A plugin that has options lists them in tdm_plugin.options. The host reads files and command
 * lines by that table: it accepts the keys in it, checks each value, prints the keys in help
 * texts, and suggests the nearest key or word for a misspelt one. The plugin still checks what
 * device_open receives, because other hosts may not have read the table.
 */
#ifndef TANDEM_OPTION_H
#define TANDEM_OPTION_H

#include <string.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One "key = value" for a device. Keys that every device has are handled by the core; a plugin
 * refuses a key that it does not have with TDM_INVALID_ARGUMENT, naming the key and those it has.
 * An option that was not given is left out, as is one whose value is "auto" or empty. */
typedef struct tdm_option {
    const char *key;
    const char *value; /* in the form that its kind states below */
} tdm_option;

/* What a user may write, and what the plugin then receives. */
typedef enum tdm_option_kind {
    TDM_OPTION_TEXT = 0, /* any text, received as it is */
    TDM_OPTION_INT,      /* a whole number from min to max, received in decimal */
    TDM_OPTION_REAL,     /* a finite number from min to max, received as the user wrote it */
    TDM_OPTION_BOOL,     /* yes no on off true false 1 0; received as "yes" or "no" */
    TDM_OPTION_SIZE,     /* bytes from min to max, K, M, G and T allowed; received in decimal */
    TDM_OPTION_WORD,     /* one of `words` */
    TDM_OPTION_PATH,     /* a path. In a configuration file it is relative to the file's folder,
                            and is received with that folder in front */
    TDM_OPTION_INTS,     /* whole numbers from min to max, each at most once, such as "0-3,5";
                            received as the user wrote them */
    TDM_OPTION_KIND_COUNT_
} tdm_option_kind;

enum {
    TDM_OPTION_HAS_AUTO = 1u << 0 /* "auto" is a value too: the plugin chooses */
};

/* One option. Texts are UTF-8 without control characters; optional ones may be NULL. */
typedef struct tdm_option_desc {
    const char *name;          /* the key: a to z, 0 to 9 and '-', a letter first, at most 31 */
    const char *short_flag;    /* "t": -t is --name on a command line; optional */
    const char *help;          /* one sentence, lower case, without the default */
    const char *default_value; /* the value when none is given, as a user would write it; "" or NULL
                                  = none, or one that the plugin works out */
    const char *value_name;    /* "N" in `--name N`; optional: made from the kind */
    const char *const *words;  /* of a WORD: ends with NULL; else NULL */
    double min, max;           /* inclusive, whole numbers up to 2^53; both 0 = no limits */
    int32_t kind;              /* tdm_option_kind */
    uint32_t flags;            /* TDM_OPTION_HAS_AUTO */
} tdm_option_desc;

/* All options of a plugin's devices, in the order in which help texts list them. */
typedef struct tdm_option_table {
    size_t struct_size;
    size_t desc_size; /* sizeof(tdm_option_desc): the distance between two of `descs` */
    const tdm_option_desc *descs;
    int32_t n_desc;
} tdm_option_table;

/* Copies description `i` as far as the plugin's version of the struct goes; further fields are 0.
 * [any-thread] */
static inline tdm_option_desc tdm_option_desc_at(const tdm_option_table *table, int32_t i) {
    tdm_option_desc desc;
    size_t size = table->desc_size < sizeof desc ? table->desc_size : sizeof desc;
    memset(&desc, 0, sizeof desc);
    memcpy(&desc, (const char *)table->descs + (size_t)i * table->desc_size, size);
    return desc;
}

#ifdef __cplusplus
}
#endif

#endif
