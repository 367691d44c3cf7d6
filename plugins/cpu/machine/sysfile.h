/* SPDX-License-Identifier: MIT
 *
 * sysfile.h: reading the small text files in which Linux describes the machine.
 */
#ifndef TANDEM_CPU_SYSFILE_H
#define TANDEM_CPU_SYSFILE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

/* Reads the beginning of a file into `text`, NUL-terminated; false where it cannot be read. Without
 * stdio, so that nothing is allocated. [any-thread] */
static inline bool cpu_sysfile_read(const char *path, char *text, size_t text_size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t n = 0;
    while (n + 1 < text_size) {
        ssize_t got = read(fd, text + n, text_size - 1 - n);
        if (got <= 0) break;
        n += (size_t)got;
    }
    close(fd);
    text[n] = 0;
    return n > 0;
}

#endif
