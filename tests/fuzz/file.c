/* SPDX-License-Identifier: MIT
 *
 * file.c: inputs as files, for readers that take a path.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

void fuzz_file_create(fuzz_file *file) {
    file->fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_DEMAND(file->fd >= 0, "no file in memory");
    snprintf(file->path, sizeof file->path, "/proc/self/fd/%d", file->fd);
}

void fuzz_file_write(const fuzz_file *file, const void *data, size_t size) {
    FUZZ_DEMAND(ftruncate(file->fd, 0) == 0, "cannot empty the file");
    for (size_t done = 0; done < size;) {
        ssize_t n = pwrite(file->fd, (const char *)data + done, size - done, (off_t)done);
        FUZZ_DEMAND(n > 0, "cannot write %zu bytes", size);
        done += (size_t)n;
    }
}
