/* SPDX-License-Identifier: MIT
 *
 * fuzz.h: the interface of the fuzz targets in this folder. A target is one source file. It
 * accepts any bytes. A finding is a report of a sanitizer, a FUZZ_DEMAND that does not hold, or a
 * run that exceeds the limits of time or memory. libFuzzer drives a target (build option `fuzz`);
 * replay.c runs it on the files of its corpus as an ordinary test.
 */
#ifndef TANDEM_TESTS_FUZZ_H
#define TANDEM_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Names and types are libFuzzer's. Called once before the first input; returns 0. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
/* One input; returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold whatever the input is. Aborts, so that the driver keeps the input. What was wrong
 * belongs into the first lines of the message: run.sh shows those by themselves. */
#define FUZZ_DEMAND(condition, ...)                                                                \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: demanded: %s\n", __FILE__, __LINE__, #condition);              \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* A file without a name on any disk. Writing replaces what it holds. */
typedef struct fuzz_file {
    int fd;
    char path[32]; /* "/proc/self/fd/N": opened as any other */
} fuzz_file;

void fuzz_file_create(fuzz_file *file);
void fuzz_file_write(const fuzz_file *file, const void *data, size_t size);

#endif
