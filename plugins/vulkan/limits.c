/* SPDX-License-Identifier: MIT
 *
 * limits.c: the options of Vulkan devices. `test-limits` lowers what a device offers, so that tests
 * on one driver cover the limits of others.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/vulkan/vk.h"

static const tdm_option_desc descs[] = {
    {.name = "allow-cpu",
     .help = "a software driver, which runs Vulkan on the processor, is a device too; for tests",
     .default_value = "no",
     .kind = TDM_OPTION_BOOL},
    {.name = "matrix",
     .help = "prompts are computed on matrix hardware, where the device has it: x, K and V are "
             "rounded to f16",
     .default_value = "yes",
     .kind = TDM_OPTION_BOOL},
    {.name = "test-limits",
     .help = "lower limits for tests: words such as shared=16384 group=128 subgroup=8 grid=64 "
             "alloc=1048576 trips=9000 part=1000 f16=no dot=no matrix=no import=no map=no fuse=no "
             "lanes=no denormals=no wrong=KERNEL wrong=bytes lost=KERNEL, with blanks between "
             "them; dot=any uses integer dot products even where they are slow, matrix=plain the "
             "kernel of matrix hardware without the hardware, where the driver has f16",
     .value_name = "WORDS",
     .kind = TDM_OPTION_TEXT},
};

const tdm_option_table vk_option_table = {
    .struct_size = sizeof(tdm_option_table),
    .desc_size = sizeof(tdm_option_desc),
    .descs = descs,
    .n_desc = sizeof descs / sizeof descs[0],
};

static bool is_kernel(const char *name) {
    for (int32_t i = 0; i < GPU_KERNEL_COUNT_; i++)
        if (strcmp(gpu_kernel_name(i), name) == 0) return true;
    return false;
}

/* One word "key=value" of test-limits. */
static tdm_status limit_parse(const char *word, size_t len, vk_options *o, tdm_error *err) {
    char text[64], *end;
    if (len >= sizeof text) len = sizeof text - 1;
    memcpy(text, word, len);
    text[len] = '\0';
    char *value = strchr(text, '=');
    if (value != NULL) {
        *value++ = '\0';
        if (strcmp(text, "wrong") == 0 && (is_kernel(value) || strcmp(value, "bytes") == 0))
            return snprintf(o->wrong, sizeof o->wrong, "%s", value), TDM_OK;
        if (strcmp(text, "lost") == 0 && is_kernel(value))
            return snprintf(o->lost, sizeof o->lost, "%s", value), TDM_OK;
        if (strcmp(value, "no") == 0) {
            bool *flag = strcmp(text, "f16") == 0         ? &o->has_f16
                         : strcmp(text, "dot") == 0       ? &o->has_dot8
                         : strcmp(text, "matrix") == 0    ? &o->has_matrix
                         : strcmp(text, "import") == 0    ? &o->has_import
                         : strcmp(text, "fuse") == 0      ? &o->has_fusion
                         : strcmp(text, "lanes") == 0     ? &o->has_lanes
                         : strcmp(text, "map") == 0       ? &o->has_map
                         : strcmp(text, "denormals") == 0 ? &o->has_denormals
                                                          : NULL;
            if (flag != NULL) {
                *flag = false;
                return TDM_OK;
            }
        }
        if (strcmp(text, "dot") == 0 && strcmp(value, "any") == 0)
            return o->has_slow_dot8 = true, TDM_OK;
        if (strcmp(text, "matrix") == 0 && strcmp(value, "plain") == 0)
            return o->is_matrix_plain = true, TDM_OK;
        errno = 0;
        unsigned long long n = strtoull(value, &end, 10);
        if (value[0] >= '0' && value[0] <= '9' && *end == '\0' && errno == 0 && n > 0 &&
            n <= INT32_MAX) {
            if (strcmp(text, "shared") == 0) return o->shared_size = (uint32_t)n, TDM_OK;
            if (strcmp(text, "group") == 0) return o->group_size = (int32_t)n, TDM_OK;
            if (strcmp(text, "subgroup") == 0) return o->subgroup = (int32_t)n, TDM_OK;
            if (strcmp(text, "grid") == 0) return o->grid = (uint32_t)n, TDM_OK;
            if (strcmp(text, "alloc") == 0) return o->allocation = n, TDM_OK;
            if (strcmp(text, "trips") == 0) return o->trips = (int32_t)n, TDM_OK;
            if (strcmp(text, "part") == 0) return o->part_us = (int32_t)n, TDM_OK;
        }
    }
    return tdm_fail(
        err, TDM_INVALID_ARGUMENT,
        "test-limits: '%.*s' is not a limit; there are shared=N group=N subgroup=N "
        "grid=N alloc=N trips=N part=N f16=no dot=no dot=any matrix=no matrix=plain "
        "import=no map=no fuse=no lanes=no denormals=no wrong=KERNEL wrong=bytes lost=KERNEL",
        (int)len, word);
}

static tdm_status limits_parse(const char *value, vk_options *o, tdm_error *err) {
    tdm_status status = TDM_OK;
    while (*value != '\0' && status == TDM_OK) {
        value += strspn(value, " ");
        size_t len = strcspn(value, " ");
        if (len > 0) status = limit_parse(value, len, o, err);
        value += len;
    }
    return status;
}

tdm_status vk_options_parse(const tdm_option *options, int32_t n_option, vk_options *options_out,
                            tdm_error *err) {
    vk_options o = {.has_map = true,
                    .has_import = true,
                    .has_f16 = true,
                    .has_dot8 = true,
                    .has_matrix = true,
                    .has_fusion = true,
                    .has_lanes = true,
                    .has_denormals = true};
    for (int32_t i = 0; i < n_option; i++) {
        const char *key = options[i].key;
        const char *value = options[i].value != NULL ? options[i].value : "";
        const bool is_matrix = strcmp(key, "matrix") == 0;
        if (strcmp(key, "allow-cpu") == 0 || is_matrix) {
            const bool is_yes = strcmp(value, "yes") == 0;
            if (!is_yes && strcmp(value, "no") != 0)
                return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s = %s: use yes or no", key, value);
            if (!is_matrix) o.allow_cpu = is_yes;
            if (is_matrix && !is_yes) o.has_matrix = false;
        } else if (strcmp(key, "test-limits") == 0) {
            tdm_status status = limits_parse(value, &o, err);
            if (status != TDM_OK) return status;
        } else {
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "%s: not an option of a vulkan device; it has allow-cpu, matrix and "
                            "test-limits",
                            key);
        }
    }
    *options_out = o;
    return TDM_OK;
}
