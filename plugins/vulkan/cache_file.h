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

/* What the bytes are for: they are read by exactly the driver that wrote them. */
typedef struct vk_cache_key {
    uint32_t vendor_id;
    uint32_t device_id;
    uint32_t driver_version;
    uint32_t version; /* of what the file keeps; 0 = compiled pipelines */
    uint8_t driver_uuid[16];
    uint8_t cache_uuid[16];
} vk_cache_key;

/* The file's path in the user's cache folder: $XDG_CACHE_HOME/tandem, else $HOME/.cache/tandem.
 * False where neither variable names a folder. */
bool vk_cache_path(const vk_cache_key *key, char *path, size_t path_size);

/* Makes the last two folders of a file's path where they are missing. False where that fails. */
bool vk_cache_folder_make(const char *path);

/* The bytes of a file for this key, for the caller to free; NULL where there are none, or not for
 * this key, or where they are damaged. */
void *vk_cache_read(const char *path, const vk_cache_key *key, size_t *size_out);

/* Makes the folders, writes beside the file, then takes its place, so that a reader never sees half
 * of it. False where it cannot be written; an older file stays. */
bool vk_cache_write(const char *path, const vk_cache_key *key, const void *data, size_t size);

#endif
