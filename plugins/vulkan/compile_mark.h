/* SPDX-License-Identifier: MIT
 *
 * compile_mark.h: which pipelines the driver is compiling or running for the first time, in a file
 * beside that of verdicts, so that the next start learns what a process was doing when it ended. A
 * driver's compiler may crash, also one that compiles a pipeline when it is first run; so may a
 * user end a process that compiles for long. Therefore:
 *   - a pipeline whose compilation did not end is compiled by itself the next time: of those that
 *     several threads compiled at the same time, only the cause ends the process again. The same
 *     holds for the pipelines of a first run, which run together
 *   - if the process ends then too, the verdict is VK_VERDICT_FATAL, and nothing compiles it again
 *   - a pipeline that was compiled, or whose first run ended, is no longer in the file
 * A pipeline that is compiled at its first run counts as compiled before it: its marks for both are
 * separate.
 *
 * The file has a fixed number of slots. A process locks the slot of a pipeline while it compiles or
 * runs it; the system releases the lock when the process ends. What a process wrote is there for
 * others also after a crash of it; only a crash of the system may lose it. verdict.c says which
 * pipelines are marked.
 */
#ifndef TANDEM_VULKAN_COMPILE_MARK_H
#define TANDEM_VULKAN_COMPILE_MARK_H

#include "plugins/vulkan/verdict_file.h"

typedef struct vk_compile_marks vk_compile_marks;

/* A pipeline that is being compiled. */
typedef struct vk_compile_mark {
    int32_t slot;  /* -1 = not in the file */
    bool is_alone; /* no other marked pipeline is compiled at the same time in this process */
    bool is_begun; /* false: vk_compile_mark_end does nothing */
} vk_compile_mark;

/* Opens the marks beside the verdict file `path` and makes them where there are none. Adds the
 * pipelines that ended two processes to `verdicts`, the verdicts of that file, and to the file;
 * n_fatal_out: how many; they follow the rows that `verdicts` had. Marks of pipelines that have a
 * verdict are removed. Returns NULL where nothing can be marked: without memory, or in a folder
 * that cannot be written. Released with vk_compile_marks_close. [setup] */
vk_compile_marks *vk_compile_marks_open(const char *path, const vk_cache_key *key,
                                        bool (*is_known)(uint64_t code), vk_verdict_list *verdicts,
                                        int32_t *n_fatal_out);

/* NULL is a no-op. No pipeline is being compiled. */
void vk_compile_marks_close(vk_compile_marks *marks);

/* Adds the pipelines that the next vk_compile_marks_open will find to have ended two processes to
 * `verdicts`, and changes no file. [any-thread] */
void vk_compile_marks_read(const char *path, const vk_cache_key *key,
                           bool (*is_known)(uint64_t code), vk_verdict_list *verdicts);

/* Marks a pipeline, of which `row` has all but the verdict, as being compiled by the calling
 * thread. Waits until it may be compiled: one that is to be compiled by itself waits for the others
 * of this process, and they for it. Without a free slot, or where `marks` is NULL, it is not in the
 * file. The same thread calls vk_compile_mark_end, whether or not the compiler succeeded, and
 * begins no other before. [any-thread] */
vk_compile_mark vk_compile_mark_begin(vk_compile_marks *marks, const vk_verdict_row *row);
void vk_compile_mark_end(vk_compile_marks *marks, const vk_compile_mark *mark);

enum { VK_FIRST_RUN_MAX = 8 };

/* Pipelines that run for the first time, together. */
typedef struct vk_first_run {
    int32_t slots[VK_FIRST_RUN_MAX]; /* [n]; -1 = not in the file */
    int32_t n;
    bool is_alone, is_begun; /* as of vk_compile_mark */
} vk_first_run;

/* As vk_compile_mark_begin and _end, for the first run of the pipelines rows[0 .. n - 1]. Of more
 * than VK_FIRST_RUN_MAX the others are not marked. In between, the calling thread compiles nothing.
 * [any-thread] */
vk_first_run vk_first_run_begin(vk_compile_marks *marks, const vk_verdict_row *rows, int32_t n);
void vk_first_run_end(vk_compile_marks *marks, const vk_first_run *run);

#endif
