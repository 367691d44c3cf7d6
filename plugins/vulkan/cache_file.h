/* SPDX-License-Identifier: MIT
 *
 * cache_file.h: compiled pipelines on disk, between runs. The file is checked before it is trusted:
 * another driver, another version or a damaged byte make it count for nothing, and it is written
 * anew.
 */
#ifndef TANDEM_VULKAN_CACHE_FILE_H
#define TANDEM_VULKAN_CACHE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which driver and device a file is for. A file with another key counts as absent. */
typedef struct vk_cache_key {
    uint32_t vendor_id;
    uint32_t device_id;
    uint32_t driver_version;
    uint32_t version; /* of what the file keeps; 0 = compiled pipelines */
    uint8_t driver_uuid[16];
    uint8_t cache_uuid[16];
} vk_cache_key;

/* The path of the file of compiled pipelines in the user's cache folder: $XDG_CACHE_HOME/tandem,
 * else $HOME/.cache/tandem. False where neither variable is an absolute path, or where `path` is
 * too short. [any-thread] */
bool vk_cache_path(const vk_cache_key *key, char *path, size_t path_size);

/* Makes the last two folders of a file's path where they are missing. False where that fails.
 * [any-thread] */
bool vk_cache_folder_make(const char *path);

/* The bytes of a file for this key, for the caller to free. NULL where the file is absent, has
 * another key or is damaged, or without memory. [any-thread] */
void *vk_cache_read(const char *path, const vk_cache_key *key, size_t *size_out);

/* Makes the folders, writes a temporary file beside `path` and renames it to `path`, so that a
 * reader never sees half of it. False where it cannot be written; an older file stays. size > 0.
 * [any-thread] */
bool vk_cache_write(const char *path, const vk_cache_key *key, const void *data, size_t size);

#endif
