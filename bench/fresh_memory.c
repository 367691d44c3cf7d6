/* SPDX-License-Identifier: MIT
 *
 * fresh_memory.c: the command tandem-fresh-memory, which prints the seconds that it takes to touch
 * memory for the first time. The memory is allocated, and advised to have huge pages, as the
 * buffers of the CPU plugin are. Every program that copies a model into its own memory needs this
 * time; on a virtual machine whose host has to provide the memory first, it can be most of the time
 * of loading.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define HUGE_PAGE  ((size_t)2 << 20)
#define SMALL_PAGE ((size_t)4 << 10)

enum { THREADS_MAX = 256 };

typedef struct part {
    volatile uint8_t *data;
    size_t size;
} part;

static void *part_touch(void *arg) {
    const part *p = arg;
    for (size_t at = 0; at < p->size; at += SMALL_PAGE) p->data[at] = 1;
    return NULL;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int usage(FILE *out) {
    fprintf(out,
            "Usage: tandem-fresh-memory BYTES [THREADS]\n"
            "Seconds that so many threads (1) take to touch so much memory for the first time.\n");
    return out == stdout ? 0 : 2;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--help") == 0) return usage(stdout);
    const long long wish = argc >= 2 ? atoll(argv[1]) : 0;
    const int n_thread = argc >= 3 ? atoi(argv[2]) : 1;
    if (argc > 3 || wish <= 0 || n_thread <= 0 || n_thread > THREADS_MAX) return usage(stderr);
    const size_t n_page = ((size_t)wish + HUGE_PAGE - 1) / HUGE_PAGE, size = n_page * HUGE_PAGE;
    uint8_t *data = aligned_alloc(HUGE_PAGE, size);
    if (data == NULL) {
        fprintf(stderr, "tandem-fresh-memory: there are no %lld bytes\n", wish);
        return 1;
    }
    (void)madvise(data, size, MADV_HUGEPAGE);
    pthread_t threads[THREADS_MAX];
    part parts[THREADS_MAX];
    bool is_running[THREADS_MAX] = {false};
    const double begin = seconds();
    for (int t = 0; t < n_thread; t++) {
        const size_t from = n_page * (size_t)t / (size_t)n_thread * HUGE_PAGE;
        const size_t to = n_page * (size_t)(t + 1) / (size_t)n_thread * HUGE_PAGE;
        parts[t] = (part){data + from, to - from};
        /* This thread touches the last part, and each part for which no thread can be created. */
        if (t + 1 < n_thread)
            is_running[t] = pthread_create(&threads[t], NULL, part_touch, &parts[t]) == 0;
        if (!is_running[t]) part_touch(&parts[t]);
    }
    for (int t = 0; t < n_thread; t++)
        if (is_running[t]) pthread_join(threads[t], NULL);
    printf("%.6f\n", seconds() - begin);
    free(data);
    return 0;
}
