/* SPDX-License-Identifier: MIT
 *
 * verdict_file.h: verdicts on pipelines on disk, and how the findings of several processes become
 * one file. verdict.c says what the verdicts mean for plans.
 */
#ifndef TANDEM_VULKAN_VERDICT_FILE_H
#define TANDEM_VULKAN_VERDICT_FILE_H

#include "plugins/vulkan/cache_file.h"

typedef enum vk_verdict {
    VK_VERDICT_NONE = 0,  /* could not be tried now */
    VK_VERDICT_RIGHT = 1, /* the results agree */
    VK_VERDICT_WRONG = 2,
    VK_VERDICT_UNTRIED = 3, /* no small graph uses the pipeline, only the shapes of its node do */
    VK_VERDICT_FATAL = 4    /* the driver ends the process (compile_mark.h) */
} vk_verdict;

typedef struct vk_verdict_row {
    uint64_t pipeline; /* vk_pipeline_hash */
    uint64_t code;     /* vk_shader_hash of its kernel */
    int32_t verdict;   /* vk_verdict */
    char kernel[28];
} vk_verdict_row;

/* A list with one row for each pipeline. It begins as zeros; the owner frees `rows` with free(). */
typedef struct vk_verdict_list {
    vk_verdict_row *rows;
    int32_t n, room;
} vk_verdict_list;

/* Whether plans must do without a pipeline with this vk_verdict. */
bool vk_verdict_is_bad(int32_t verdict);

/* The row of a pipeline; NULL where there is none. Valid until the list changes. */
const vk_verdict_row *vk_verdict_list_find(const vk_verdict_list *list, uint64_t pipeline);

/* Makes room for n more rows. False without memory; the list stays as it is. */
bool vk_verdict_list_reserve(vk_verdict_list *list, int32_t n);

/* Adds a row for which there is room. Of two verdicts on a pipeline the more cautious one stays:
 * fatal, then wrong, right, untried. */
void vk_verdict_list_add(vk_verdict_list *list, const vk_verdict_row *row);

/* Adds the rows of a file for this key whose code `is_known` accepts. False without memory; a file
 * that is absent, damaged or of another key has no rows. */
bool vk_verdict_file_read(const char *path, const vk_cache_key *key,
                          bool (*is_known)(uint64_t code), vk_verdict_list *list);

/* Adds the rows that other processes have put into the file to `list`, then writes the whole
 * list. A lock (`path`.lock) is held from reading to writing, so that processes that do so at the
 * same time lose no rows. Where the lock is not free within 10 s, the file is written without it;
 * then rows that another process writes at the same time may be lost. False where nothing was
 * written; an older file stays. One thread at a time uses the list. */
bool vk_verdict_file_merge(const char *path, const vk_cache_key *key,
                           bool (*is_known)(uint64_t code), vk_verdict_list *list);

#endif
