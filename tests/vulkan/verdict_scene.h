/* SPDX-License-Identifier: MIT
 *
 * verdict_scene.h: a driver's key and rows of verdicts, for tests of the files beside its cache.
 */
#ifndef TANDEM_TESTS_VULKAN_VERDICT_SCENE_H
#define TANDEM_TESTS_VULKAN_VERDICT_SCENE_H

#include <stdio.h>

#include "plugins/vulkan/verdict_file.h"

static const vk_cache_key key = {.vendor_id = 0x1002, .version = 1};

/* The code of this build's kernels. */
static inline bool is_even(uint64_t code) {
    return code % 2 == 0;
}

static inline vk_verdict_row row_of(uint64_t pipeline, vk_verdict verdict) {
    vk_verdict_row row = {.pipeline = pipeline, .code = 2, .verdict = (int32_t)verdict};
    snprintf(row.kernel, sizeof row.kernel, "k%llu", (unsigned long long)pipeline);
    return row;
}

#endif
