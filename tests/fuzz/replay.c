/* SPDX-License-Identifier: MIT
 *
 * replay.c: runs a target once on every file of the given folders, and on every given file, in the
 * order of their names. With it, the corpus and former findings are an ordinary test without
 * libFuzzer. The name of an input is printed before the target runs on it, so that it is known
 * after a crash.
 */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

static int n_input;

/* In memory of exactly its size, so that a sanitizer finds reads past its end. */
static void file_try(const char *path, size_t size) {
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(size > 0 ? size : 1);
    FUZZ_DEMAND(f != NULL && data != NULL, "%s: cannot be read", path);
    FUZZ_DEMAND(fread(data, 1, size, f) == size, "%s: cannot be read", path);
    fclose(f);
    printf("%s\n", path);
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    n_input++;
}

static void path_try(const char *path) {
    struct stat info;
    struct dirent **entries;
    FUZZ_DEMAND(stat(path, &info) == 0, "%s: is not there", path);
    if (!S_ISDIR(info.st_mode)) {
        file_try(path, (size_t)info.st_size);
        return;
    }
    int n = scandir(path, &entries, NULL, alphasort);
    FUZZ_DEMAND(n >= 0, "%s: cannot be listed", path);
    for (int i = 0; i < n; i++) {
        char inner[1024];
        snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') path_try(inner);
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv) {
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) path_try(argv[i]);
    printf("%d inputs\n", n_input);
    return n_input > 0 ? 0 : 1;
}
