/* SPDX-License-Identifier: MIT
 *
 * tiny_models.h: the list in tiny_models/models.txt and the probabilities that llama.cpp gave for
 * each model of it. Making a model from its spec is random_model_write's.
 */
#ifndef TESTS_MODEL_TINY_MODELS_H
#define TESTS_MODEL_TINY_MODELS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/random_model.h"

#define TINY_MODELS_MAX 96
#define TINY_TOKENS_MAX 32

typedef struct tiny_model {
    char name[96];          /* "tiny-llama q4_K none untied" */
    random_model_spec spec; /* type: the quantised model; for the f32 model that it stands for, put
                             * type into round_type and F32 into type */
    int n_vocab;
    const float *probabilities; /* [n_rows, n_vocab] */
} tiny_model;

typedef struct tiny_models {
    tiny_model items[TINY_MODELS_MAX];
    int n;
    int tokens[TINY_TOKENS_MAX]; /* what every model is given */
    int n_tokens;
    int first_row; /* the first position whose row is kept */
    int n_rows;    /* n_tokens - first_row */
    float *data;
} tiny_models;

static inline int tiny_models_find_type(const char *text, tdm_type *type) {
    for (int i = 0; i < TDM_TYPE_LIMIT_; ++i) {
        const char *name = tdm_type_get_info((tdm_type)i).name;
        if (name == NULL || strcmp(name, text) != 0) continue;
        *type = (tdm_type)i;
        return 1;
    }
    return 0;
}

static inline int tiny_models_add(tiny_models *list, const char *line) {
    static const char *const ropes[RANDOM_MODEL_ROPE_COUNT_] = {"none", "linear", "yarn", "llama3"};
    char preset[32], type[16], rope[16], head[16];
    if (list->n == TINY_MODELS_MAX) return 0;
    tiny_model *m = &list->items[list->n];
    memset(m, 0, sizeof *m);
    if (sscanf(line, "model %31s %15s %15s %15s %d", preset, type, rope, head, &m->n_vocab) != 5)
        return 0;
    const char *name;
    const random_model_spec *spec = NULL;
    for (int i = 0; (spec = random_model_preset_at(i, &name)) != NULL; ++i)
        if (strcmp(name, preset) == 0) break;
    if (spec == NULL) return 0;
    m->spec = *spec;
    int r = 0;
    while (r < RANDOM_MODEL_ROPE_COUNT_ && strcmp(ropes[r], rope) != 0) ++r;
    if (r == RANDOM_MODEL_ROPE_COUNT_ || !tiny_models_find_type(type, &m->spec.type) ||
        m->spec.n_vocab != m->n_vocab)
        return 0;
    m->spec.rope = (random_model_rope)r;
    m->spec.is_tied = strcmp(head, "tied") == 0;
    snprintf(m->name, sizeof m->name, "%s %s %s %s", preset, type, rope, head);
    list->n += 1;
    return 1;
}

/* Reads both files of `folder` (tests/model/tiny_models of the source tree). 1, or 0 where they
 * are not there or contradict each other. Free list->data afterwards in either case. */
static inline int tiny_models_read(const char *folder, tiny_models *list) {
    char path[512], line[256];
    memset(list, 0, sizeof *list);
    snprintf(path, sizeof path, "%s/models.txt", folder);
    FILE *f = fopen(path, "r");
    if (f == NULL) return 0;
    int is_good = 1;
    while (is_good && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "tokens ", 7) == 0) {
            for (char *p = strtok(line + 7, ",\n"); p != NULL; p = strtok(NULL, ",\n"))
                if (list->n_tokens < TINY_TOKENS_MAX) list->tokens[list->n_tokens++] = atoi(p);
        } else if (strncmp(line, "first_row ", 10) == 0) {
            list->first_row = atoi(line + 10);
        } else if (line[0] != '#') {
            is_good = tiny_models_add(list, line);
        }
    }
    fclose(f);
    list->n_rows = list->n_tokens - list->first_row;
    if (!is_good || list->n == 0 || list->first_row < 0 || list->n_rows <= 0) return 0;
    size_t n = 0;
    for (int i = 0; i < list->n; ++i) n += (size_t)list->n_rows * (size_t)list->items[i].n_vocab;
    list->data = malloc((n + 1) * sizeof *list->data);
    snprintf(path, sizeof path, "%s/probabilities.f32", folder);
    f = fopen(path, "rb");
    if (f == NULL || list->data == NULL) {
        if (f != NULL) fclose(f);
        return 0;
    }
    /* Reads one more than there should be: the file must end where the list does. */
    is_good = fread(list->data, sizeof *list->data, n + 1, f) == n;
    fclose(f);
    const float *at = list->data;
    for (int i = 0; i < list->n; ++i) {
        list->items[i].probabilities = at;
        at += (size_t)list->n_rows * (size_t)list->items[i].n_vocab;
    }
    return is_good;
}

#endif
