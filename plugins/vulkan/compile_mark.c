/* SPDX-License-Identifier: MIT
 *
 * compile_mark.c: see compile_mark.h.
 */
#include "plugins/vulkan/compile_mark.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/hash.h"

enum { N_SLOT = 64 /* more than threads compile at a time */, N_END_FATAL = 2 };

/* What a process does with a pipeline. */
typedef enum mark_work { WORK_COMPILE = 0, WORK_RUN } mark_work;

/* A slot of the file. A pipeline on which no process works stays in it where n_end > 0. */
typedef struct mark_slot {
    uint64_t check; /* slot_check; of other content the slot counts as empty */
    vk_verdict_row row;
    int32_t is_open;  /* the process that holds the lock works on it; without one, it has ended */
    int32_t n_end;    /* how many processes ended meanwhile */
    int32_t work;     /* mark_work */
    int32_t reserved; /* 0 */
} mark_slot;

struct vk_compile_marks {
    int fd;
    uint64_t key_hash;
    bool (*is_known)(uint64_t code);
    /* From reading a slot to marking it: the system grants an open file the same lock twice. */
    pthread_mutex_t mutex;
};

/* Held for reading while a pipeline is compiled or runs first, for writing while one does so by
 * itself: of all devices, since a crash ends the process. */
static pthread_rwlock_t work_lock = PTHREAD_RWLOCK_INITIALIZER;

/* ---- Slots ----------------------------------------------------------------------------------- */

static uint64_t slot_check(uint64_t key_hash, const mark_slot *slot) {
    return tdm_hash_add(key_hash, &slot->row, sizeof *slot - offsetof(mark_slot, row));
}

/* False where a slot is empty. */
static bool is_used(const vk_compile_marks *m, const mark_slot *slot) {
    return slot->check == slot_check(m->key_hash, slot) && m->is_known(slot->row.code) &&
           memchr(slot->row.kernel, '\0', sizeof slot->row.kernel) != NULL;
}

static bool slot_read(const vk_compile_marks *m, int32_t i, mark_slot *out) {
    return pread(m->fd, out, sizeof *out, (off_t)i * (off_t)sizeof *out) == (ssize_t)sizeof *out &&
           is_used(m, out);
}

/* Reads all slots at once, also empty ones. Returns how many the file has. */
static int32_t table_read(const vk_compile_marks *m, mark_slot out[N_SLOT]) {
    const ssize_t size = pread(m->fd, out, N_SLOT * sizeof *out, 0);
    return size > 0 ? (int32_t)((size_t)size / sizeof *out) : 0;
}

/* NULL empties the slot. */
static bool slot_write(const vk_compile_marks *m, int32_t i, const mark_slot *slot) {
    mark_slot bytes = {.check = 0};
    if (slot != NULL) {
        bytes = *slot;
        bytes.check = slot_check(m->key_hash, &bytes);
    }
    return pwrite(m->fd, &bytes, sizeof bytes, (off_t)i * (off_t)sizeof bytes) ==
           (ssize_t)sizeof bytes;
}

/* A lock belongs to the open file, so that two devices of a process exclude each other too, and
 * goes with the process. */
static struct flock slot_range(int32_t i, int type) {
    return (struct flock){.l_type = (short)type,
                          .l_whence = SEEK_SET,
                          .l_start = (off_t)i * (off_t)sizeof(mark_slot),
                          .l_len = sizeof(mark_slot)};
}

/* False where another device or process holds the slot. */
static bool slot_lock(const vk_compile_marks *m, int32_t i) {
    struct flock range = slot_range(i, F_WRLCK);
    return fcntl(m->fd, F_OFD_SETLK, &range) == 0;
}

static void slot_unlock(const vk_compile_marks *m, int32_t i) {
    struct flock range = slot_range(i, F_UNLCK);
    (void)fcntl(m->fd, F_OFD_SETLK, &range);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static bool marks_init(vk_compile_marks *m, const char *path, int flags, const vk_cache_key *key,
                       bool (*is_known)(uint64_t code)) {
    char name[4200];
    int n = snprintf(name, sizeof name, "%s.compiling", path);
    *m = (vk_compile_marks){.fd = -1, .is_known = is_known};
    m->key_hash = tdm_hash_add(TDM_HASH_BEGIN, key, sizeof *key);
    if (n > 0 && (size_t)n < sizeof name) m->fd = open(name, flags | O_CLOEXEC, 0600);
    return m->fd >= 0;
}

/* Adds a fatal pipeline to the verdicts. False without memory. */
static bool fatal_add(vk_verdict_list *verdicts, const mark_slot *slot) {
    vk_verdict_row row = slot->row;
    row.verdict = VK_VERDICT_FATAL;
    if (!vk_verdict_list_reserve(verdicts, 1)) return false;
    vk_verdict_list_add(verdicts, &row);
    return true;
}

/* What a process that ended has left in a slot. Returns true where its pipeline is fatal; the slot
 * then stays as it is and locked. */
static bool slot_settle(const vk_compile_marks *m, int32_t i, vk_verdict_list *verdicts) {
    mark_slot slot;
    if (!slot_lock(m, i)) return false;
    if (slot_read(m, i, &slot)) {
        if (vk_verdict_list_find(verdicts, slot.row.pipeline) != NULL) {
            (void)slot_write(m, i, NULL);
        } else if (slot.is_open) {
            if (slot.n_end + 1 >= N_END_FATAL && fatal_add(verdicts, &slot)) return true;
            slot.is_open = 0;
            slot.n_end = 1;
            (void)slot_write(m, i, &slot);
        }
    }
    slot_unlock(m, i);
    return false;
}

vk_compile_marks *vk_compile_marks_open(const char *path, const vk_cache_key *key,
                                        bool (*is_known)(uint64_t code), vk_verdict_list *verdicts,
                                        int32_t *n_fatal_out) {
    vk_compile_marks *m = malloc(sizeof *m);
    bool is_fatal[N_SLOT];
    *n_fatal_out = 0;
    if (m == NULL || !vk_cache_folder_make(path) ||
        !marks_init(m, path, O_RDWR | O_CREAT, key, is_known)) {
        free(m);
        return NULL;
    }
    pthread_mutex_init(&m->mutex, NULL);
    for (int32_t i = 0; i < N_SLOT; i++) {
        is_fatal[i] = slot_settle(m, i, verdicts);
        *n_fatal_out += is_fatal[i];
    }
    /* The file of verdicts has them before the slots are emptied. */
    const bool is_kept = *n_fatal_out > 0 && vk_verdict_file_merge(path, key, is_known, verdicts);
    for (int32_t i = 0; i < N_SLOT; i++) {
        if (!is_fatal[i]) continue;
        if (is_kept) (void)slot_write(m, i, NULL);
        slot_unlock(m, i);
    }
    return m;
}

void vk_compile_marks_close(vk_compile_marks *m) {
    if (m == NULL) return;
    close(m->fd);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}

void vk_compile_marks_read(const char *path, const vk_cache_key *key,
                           bool (*is_known)(uint64_t code), vk_verdict_list *verdicts) {
    vk_compile_marks m;
    mark_slot slots[N_SLOT];
    if (!marks_init(&m, path, O_RDONLY, key, is_known)) return;
    const int32_t n = table_read(&m, slots);
    for (int32_t i = 0; i < n; i++) {
        struct flock range = slot_range(i, F_WRLCK);
        if (slots[i].is_open && slots[i].n_end + 1 >= N_END_FATAL && is_used(&m, &slots[i]) &&
            vk_verdict_list_find(verdicts, slots[i].row.pipeline) == NULL &&
            fcntl(m.fd, F_OFD_GETLK, &range) == 0 && range.l_type == F_UNLCK)
            (void)fatal_add(verdicts, &slots[i]);
    }
    close(m.fd);
}

/* ---- Marking --------------------------------------------------------------------------------- */

/* Whether a process ended at this work on a pipeline. */
static bool is_suspect(const vk_compile_marks *m, uint64_t pipeline, mark_work work) {
    mark_slot slots[N_SLOT];
    const int32_t n = table_read(m, slots);
    for (int32_t i = 0; i < n; i++)
        if (slots[i].row.pipeline == pipeline && slots[i].work == (int32_t)work &&
            slots[i].n_end > 0 && is_used(m, &slots[i]))
            return true;
    return false;
}

/* What may become of a slot: that of the same suspect at the same work, an empty one, else another
 * suspect's. */
typedef enum slot_choice { SLOT_SAME = 0, SLOT_EMPTY, SLOT_OTHER, SLOT_CHOICES_ } slot_choice;

static bool is_choice(const vk_compile_marks *m, int32_t i, slot_choice choice,
                      const mark_slot *mark) {
    mark_slot slot;
    if (!slot_read(m, i, &slot)) return choice == SLOT_EMPTY;
    const bool is_same =
        slot.row.pipeline == mark->row.pipeline && slot.work == mark->work && slot.n_end > 0;
    return choice == (is_same ? SLOT_SAME : slot.is_open ? SLOT_CHOICES_ : SLOT_OTHER);
}

/* Locks a slot and writes the row into it. -1 where there is none. */
static int32_t slot_take(vk_compile_marks *m, const vk_verdict_row *row, mark_work work,
                         bool is_again) {
    const mark_slot mark = {.row = *row, .is_open = 1, .n_end = is_again, .work = work};
    int32_t taken = -1;
    pthread_mutex_lock(&m->mutex);
    for (int choice = is_again ? SLOT_SAME : SLOT_EMPTY; choice < SLOT_CHOICES_ && taken < 0;
         choice++)
        for (int32_t i = 0; i < N_SLOT && taken < 0; i++) {
            if (!is_choice(m, i, (slot_choice)choice, &mark) || !slot_lock(m, i)) continue;
            /* Another process may have had the slot until now. */
            if (is_choice(m, i, (slot_choice)choice, &mark) && slot_write(m, i, &mark))
                taken = i;
            else
                slot_unlock(m, i);
        }
    pthread_mutex_unlock(&m->mutex);
    return taken;
}

static void slot_give(vk_compile_marks *m, int32_t slot) {
    if (slot < 0) return;
    pthread_mutex_lock(&m->mutex);
    (void)slot_write(m, slot, NULL);
    slot_unlock(m, slot);
    pthread_mutex_unlock(&m->mutex);
}

/* Called before anything is marked: what ends the process while this waits is another's. */
static void work_begin(bool is_alone) {
    if (is_alone)
        pthread_rwlock_wrlock(&work_lock);
    else
        pthread_rwlock_rdlock(&work_lock);
}

vk_compile_mark vk_compile_mark_begin(vk_compile_marks *m, const vk_verdict_row *row) {
    vk_compile_mark mark = {.slot = -1};
    if (m == NULL) return mark;
    mark.is_begun = true;
    mark.is_alone = is_suspect(m, row->pipeline, WORK_COMPILE);
    work_begin(mark.is_alone);
    mark.slot = slot_take(m, row, WORK_COMPILE, mark.is_alone);
    return mark;
}

void vk_compile_mark_end(vk_compile_marks *m, const vk_compile_mark *mark) {
    if (!mark->is_begun) return;
    slot_give(m, mark->slot);
    pthread_rwlock_unlock(&work_lock);
}

vk_first_run vk_first_run_begin(vk_compile_marks *m, const vk_verdict_row *rows, int32_t n) {
    vk_first_run run = {.n = n < VK_FIRST_RUN_MAX ? n : VK_FIRST_RUN_MAX};
    bool is_again[VK_FIRST_RUN_MAX] = {false};
    if (m == NULL || n == 0) return run;
    run.is_begun = true;
    for (int32_t i = 0; i < run.n; i++) {
        is_again[i] = is_suspect(m, rows[i].pipeline, WORK_RUN);
        run.is_alone = run.is_alone || is_again[i];
    }
    work_begin(run.is_alone);
    for (int32_t i = 0; i < run.n; i++)
        run.slots[i] = slot_take(m, &rows[i], WORK_RUN, is_again[i]);
    return run;
}

void vk_first_run_end(vk_compile_marks *m, const vk_first_run *run) {
    if (!run->is_begun) return;
    for (int32_t i = 0; i < run->n; i++) slot_give(m, run->slots[i]);
    pthread_rwlock_unlock(&work_lock);
}
