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
     .help =
         "lower limits for tests: words such as shared=16384 group=128 subgroup=8 grid=64 "
         "alloc=1048576 trips=9000 part=1000 f16=no dot=no matrix=no import=no map=no fuse=no "
         "lanes=no denormals=no wrong=KERNEL wrong=bytes lost=KERNEL, with blanks between "
         "them; dot=any uses integer dot products even where they are slow, matrix=plain the "
         "kernel of matrix hardware without the hardware, where the driver has f16, registers=few "
         "kernels as for GPUs with few registers",
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

/* A word of test-limits is key=value. The functions below set what it stands for, and return false
 * where it is none of theirs. */

/* Faults of kernels: wrong=KERNEL, wrong=bytes, lost=KERNEL. */
static bool fault_parse(const char *key, const char *value, vk_options *o) {
    if (strcmp(key, "wrong") == 0 && (is_kernel(value) || strcmp(value, "bytes") == 0))
        return snprintf(o->wrong, sizeof o->wrong, "%s", value), true;
    if (strcmp(key, "lost") == 0 && is_kernel(value))
        return snprintf(o->lost, sizeof o->lost, "%s", value), true;
    return false;
}

/* What the device has: KEY=no, dot=any, matrix=plain, registers=few. */
static bool feature_parse(const char *key, const char *value, vk_options *o) {
    bool *flag = strcmp(key, "f16") == 0         ? &o->has_f16
                 : strcmp(key, "dot") == 0       ? &o->has_dot8
                 : strcmp(key, "matrix") == 0    ? &o->has_matrix
                 : strcmp(key, "import") == 0    ? &o->has_import
                 : strcmp(key, "fuse") == 0      ? &o->has_fusion
                 : strcmp(key, "lanes") == 0     ? &o->has_lanes
                 : strcmp(key, "map") == 0       ? &o->has_map
                 : strcmp(key, "denormals") == 0 ? &o->has_denormals
                                                 : NULL;
    if (flag != NULL && strcmp(value, "no") == 0) return *flag = false, true;
    if (strcmp(key, "dot") == 0 && strcmp(value, "any") == 0) return o->has_slow_dot8 = true, true;
    if (strcmp(key, "matrix") == 0 && strcmp(value, "plain") == 0)
        return o->is_matrix_plain = true, true;
    if (strcmp(key, "registers") == 0 && strcmp(value, "few") == 0)
        return o->has_few_registers = true, true;
    return false;
}

/* How much: KEY=N, N from 1 to INT32_MAX. */
static bool number_parse(const char *key, const char *value, vk_options *o) {
    char *end;
    errno = 0;
    unsigned long long n = strtoull(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 || n == 0 || n > INT32_MAX)
        return false;
    if (strcmp(key, "shared") == 0) return o->shared_size = (uint32_t)n, true;
    if (strcmp(key, "group") == 0) return o->group_size = (int32_t)n, true;
    if (strcmp(key, "subgroup") == 0) return o->subgroup = (int32_t)n, true;
    if (strcmp(key, "grid") == 0) return o->grid = (uint32_t)n, true;
    if (strcmp(key, "alloc") == 0) return o->allocation = n, true;
    if (strcmp(key, "trips") == 0) return o->trips = (int32_t)n, true;
    if (strcmp(key, "part") == 0) return o->part_us = (int32_t)n, true;
    return false;
}

static tdm_status limit_parse(const char *word, size_t len, vk_options *o, tdm_error *err) {
    char key[64];
    const size_t n = len < sizeof key ? len : sizeof key - 1;
    memcpy(key, word, n);
    key[n] = '\0';
    char *value = strchr(key, '=');
    if (value != NULL) {
        *value++ = '\0';
        if (fault_parse(key, value, o) || feature_parse(key, value, o) ||
            number_parse(key, value, o))
            return TDM_OK;
    }
    return tdm_fail(
        err, TDM_INVALID_ARGUMENT,
        "test-limits: '%.*s' is not a limit; there are shared=N group=N subgroup=N "
        "grid=N alloc=N trips=N part=N f16=no dot=no dot=any matrix=no matrix=plain "
        "registers=few import=no map=no fuse=no lanes=no denormals=no wrong=KERNEL wrong=bytes "
        "lost=KERNEL",
        (int)n, word);
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
