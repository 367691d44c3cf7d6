/* SPDX-License-Identifier: MIT
 *
 * cache_file.c: reads and writes the file: a header, then the driver's bytes.
 */
#include "plugins/vulkan/cache_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/hash.h"

/* Bytes behind the header, at most: more than any driver stores for our kernels. A larger file
 * counts as damaged. */
#define MAX_SIZE ((size_t)256 << 20)

typedef struct file_header {
    char magic[8]; /* "TDMVKPC1" */
    uint64_t size; /* of the bytes behind the header */
    uint64_t hash; /* of them */
    vk_cache_key key;
} file_header;

static const char magic[8] = {'T', 'D', 'M', 'V', 'K', 'P', 'C', '1'};

static uint64_t hash_of(const void *data, size_t size) {
    return tdm_hash_add(TDM_HASH_BEGIN, data, size);
}

bool vk_cache_path(const vk_cache_key *key, char *path, size_t path_size) {
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[3072];
    int n;
    if (base != NULL && base[0] == '/')
        n = snprintf(folder, sizeof folder, "%s", base);
    else if (home != NULL && home[0] == '/')
        n = snprintf(folder, sizeof folder, "%s/.cache", home);
    else
        return false;
    if (n < 0 || (size_t)n >= sizeof folder) return false;
    n = snprintf(path, path_size, "%s/tandem/vulkan-%04x-%04x-%08x-%016llx.bin", folder,
                 key->vendor_id, key->device_id, key->driver_version,
                 (unsigned long long)hash_of(key->cache_uuid, sizeof key->cache_uuid));
    return n > 0 && (size_t)n < path_size;
}

void *vk_cache_read(const char *path, const vk_cache_key *key, size_t *size_out) {
    FILE *file = fopen(path, "rb");
    file_header header;
    void *data = NULL;
    if (file == NULL) return NULL;
    bool is_good = fread(&header, sizeof header, 1, file) == 1 &&
                   memcmp(header.magic, magic, sizeof magic) == 0 &&
                   memcmp(&header.key, key, sizeof *key) == 0 && header.size > 0 &&
                   header.size <= MAX_SIZE;
    if (is_good) data = malloc((size_t)header.size);
    if (data != NULL)
        is_good = fread(data, (size_t)header.size, 1, file) == 1 && fgetc(file) == EOF &&
                  hash_of(data, (size_t)header.size) == header.hash;
    fclose(file);
    if (data != NULL && is_good) {
        *size_out = (size_t)header.size;
        return data;
    }
    free(data);
    return NULL;
}

bool vk_cache_folder_make(const char *path) {
    char folder[4200];
    const char *end = strrchr(path, '/');
    if (end == NULL || (size_t)(end - path) >= sizeof folder) return false;
    memcpy(folder, path, (size_t)(end - path));
    folder[end - path] = '\0';
    if (mkdir(folder, 0700) == 0 || errno == EEXIST) return true;
    char *parent_end = strrchr(folder, '/');
    if (errno != ENOENT || parent_end == NULL) return false;
    *parent_end = '\0';
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) return false;
    *parent_end = '/';
    return mkdir(folder, 0700) == 0 || errno == EEXIST;
}

bool vk_cache_write(const char *path, const vk_cache_key *key, const void *data, size_t size) {
    char beside[4200];
    file_header header = {.size = size, .hash = hash_of(data, size), .key = *key};
    memcpy(header.magic, magic, sizeof magic);
    if (size == 0 || size > MAX_SIZE || !vk_cache_folder_make(path)) return false;
    int n = snprintf(beside, sizeof beside, "%s.XXXXXX", path);
    if (n < 0 || (size_t)n >= sizeof beside) return false;
    int fd = mkstemp(beside); /* mode 0600 */
    if (fd < 0) return false;
    FILE *file = fdopen(fd, "wb");
    if (file == NULL) close(fd);
    bool is_written = file != NULL && fwrite(&header, sizeof header, 1, file) == 1 &&
                      fwrite(data, size, 1, file) == 1;
    if (file != NULL && fclose(file) != 0) is_written = false;
    if (is_written && rename(beside, path) == 0) return true;
    unlink(beside);
    return false;
}
