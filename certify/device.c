/* SPDX-License-Identifier: MIT
 *
 * device.c: checks of enumerating, describing, opening and closing devices.
 */
#include "certify/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CANARY = 0xc3, N_CANARY = 32 };

static bool bytes_are(const void *bytes, size_t size, uint8_t value) {
    for (size_t i = 0; i < size; i++)
        if (((const uint8_t *)bytes)[i] != value) return false;
    return true;
}

static certify_verdict count_check(certify *c) {
    const tdm_device_ops *ops;
    int32_t n = -1, again = -1;
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_load(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    ops = c->plugin->device;
    tdm_status status = ops->count(c->instance, certify_options(c), &n, &err);
    if (status != TDM_OK)
        return certify_fail(c, "returned '%s': %.200s; no device is a count of 0 and a reason",
                            tdm_status_text(status), err.message);
    if (n < 0) return certify_fail(c, "counted %d devices", (int)n);
    if (n == 0 && err.message[0] == 0) return certify_fail(c, "counted none, without a reason");
    if (n == 0 && strchr(err.message, '\n') != NULL)
        return certify_fail(c, "the reason is more than one line");
    status = ops->count(c->instance, certify_options(c), &again, NULL);
    if (status != TDM_OK || again != n)
        return certify_fail(c, "with err NULL returned '%s' and %d devices, not %d",
                            tdm_status_text(status), (int)again, (int)n);
    return CERTIFY_PASSED;
}

static certify_verdict text_judge(certify *c, const char *word, const char *text, size_t size) {
    if (memchr(text, 0, size) == NULL) return certify_fail(c, "%s is not terminated", word);
    for (const char *at = text; *at != 0; at++)
        if ((unsigned char)*at < ' ') return certify_fail(c, "%s holds a control character", word);
    return CERTIFY_PASSED;
}

static certify_verdict info_judge(certify *c, const tdm_device_info *info, int32_t index) {
    certify_verdict verdict = text_judge(c, "name", info->name, sizeof info->name);
    if (verdict == CERTIFY_PASSED)
        verdict = text_judge(c, "description", info->description, sizeof info->description);
    if (verdict == CERTIFY_PASSED)
        verdict = text_judge(c, "vendor", info->vendor, sizeof info->vendor);
    if (verdict == CERTIFY_PASSED)
        verdict = text_judge(c, "pci_address", info->pci_address, sizeof info->pci_address);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (info->name[0] == 0) return certify_fail(c, "device %d has no name", (int)index);
    if ((info->buffer_align & (info->buffer_align - 1)) != 0)
        return certify_fail(c, "buffer_align = %llu is no power of two",
                            (unsigned long long)info->buffer_align);
    if (info->memory_total != 0 && info->memory_free > info->memory_total)
        return certify_fail(c, "more memory is free than there is");
    return CERTIFY_PASSED;
}

/* Compares the fields of a description that are constant. */
static bool info_is_same(const tdm_device_info *a, const tdm_device_info *b) {
    return strcmp(a->name, b->name) == 0 && strcmp(a->description, b->description) == 0 &&
           strcmp(a->vendor, b->vendor) == 0 && strcmp(a->pci_address, b->pci_address) == 0 &&
           a->memory_total == b->memory_total && a->buffer_align == b->buffer_align &&
           a->max_buffer == b->max_buffer && a->flags == b->flags && a->n_thread == b->n_thread;
}

enum { MAX_DEVICES = 64 };

static certify_verdict list_read(certify *c, tdm_device_info *infos, int32_t *n_out) {
    int32_t n = 0;
    tdm_error err = {.struct_size = sizeof err};
    if (c->plugin->device->count(c->instance, certify_options(c), &n, &err) != TDM_OK)
        return certify_skip(c, "its devices cannot be counted: %.200s", err.message);
    if (n > MAX_DEVICES) n = MAX_DEVICES;
    for (int32_t i = 0; i < n; i++) {
        memset(&infos[i], 0, sizeof infos[i]);
        infos[i].struct_size = sizeof infos[i];
        if (c->plugin->device->describe(c->instance, i, certify_options(c), &infos[i], &err) !=
            TDM_OK)
            return certify_fail(c, "describe of device %d: %.300s", (int)i, err.message);
    }
    *n_out = n;
    return n > 0 ? CERTIFY_PASSED : certify_skip(c, "it has no device here");
}

static certify_verdict describe_check(certify *c) {
    static tdm_device_info infos[MAX_DEVICES];
    int32_t n;
    certify_verdict verdict = certify_load(c);
    if (verdict == CERTIFY_PASSED) verdict = list_read(c, infos, &n);
    for (int32_t i = 0; verdict == CERTIFY_PASSED && i < n; i++) {
        verdict = info_judge(c, &infos[i], i);
        for (int32_t k = 0; k < i; k++)
            if (strcmp(infos[k].name, infos[i].name) == 0)
                return certify_fail(c, "devices %d and %d are both called %s", (int)k, (int)i,
                                    infos[i].name);
    }
    return verdict;
}

static certify_verdict stable_check(certify *c) {
    static tdm_device_info first[MAX_DEVICES], again[MAX_DEVICES];
    int32_t n, m;
    certify_verdict verdict = certify_load(c);
    if (verdict == CERTIFY_PASSED) verdict = list_read(c, first, &n);
    for (int pass = 0; verdict == CERTIFY_PASSED && pass < 3; pass++) {
        if (pass == 2) { /* a new instance */
            certify_close(c);
            verdict = certify_load(c);
            if (verdict != CERTIFY_PASSED) return verdict;
        }
        verdict = list_read(c, again, &m);
        if (verdict != CERTIFY_PASSED) return verdict;
        if (m != n) return certify_fail(c, "listed %d devices, then %d", (int)n, (int)m);
        for (int32_t i = 0; i < n; i++)
            if (!info_is_same(&first[i], &again[i]))
                return certify_fail(c, "device %d (%s) was described in two ways%s", (int)i,
                                    first[i].name, pass == 2 ? " by two instances" : "");
    }
    return verdict;
}

static certify_verdict end_check(certify *c) {
    tdm_device_info info;
    int32_t n = 0;
    certify_verdict verdict = certify_load(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (c->plugin->device->count(c->instance, certify_options(c), &n, NULL) != TDM_OK)
        return certify_skip(c, "its devices cannot be counted");
    const int32_t bad[] = {n, -1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        memset(&info, CANARY, sizeof info);
        info.struct_size = sizeof info;
        tdm_status status =
            c->plugin->device->describe(c->instance, bad[i], certify_options(c), &info, NULL);
        if (status != TDM_NOT_FOUND)
            return certify_fail(c, "describe of device %d of %d returned '%s'", (int)bad[i], (int)n,
                                tdm_status_text(status));
        if (!bytes_are(info.name, sizeof info - offsetof(tdm_device_info, name), CANARY))
            return certify_fail(c, "describe of device %d failed and wrote to info", (int)bad[i]);
    }
    return CERTIFY_PASSED;
}

typedef tdm_status (*info_fn)(certify *c, tdm_device_info *info);

static tdm_status describe_call(certify *c, tdm_device_info *info) {
    return c->plugin->device->describe(c->instance, c->params->device, certify_options(c), info,
                                       NULL);
}

static tdm_status get_info_call(certify *c, tdm_device_info *info) {
    return c->plugin->device->get_info(c->device, info, NULL);
}

/* The struct of an earlier caller is shorter, that of a later caller longer. */
static certify_verdict info_size_judge(certify *c, info_fn call) {
    union {
        tdm_device_info info;
        uint8_t bytes[sizeof(tdm_device_info) + N_CANARY];
    } small, large;
    size_t small_size = offsetof(tdm_device_info, memory_total);
    memset(&small, CANARY, sizeof small);
    memset(&large, CANARY, sizeof large);
    small.info.struct_size = small_size;
    large.info.struct_size = sizeof large;
    if (call(c, &small.info) != TDM_OK || call(c, &large.info) != TDM_OK)
        return certify_fail(c, "failed with another struct_size");
    if (!bytes_are(small.bytes + small_size, sizeof small - small_size, CANARY))
        return certify_fail(c, "wrote behind a struct_size of %zu", small_size);
    if (small.info.name[0] == 0 || strncmp(small.info.name, large.info.name, 32) != 0)
        return certify_fail(c, "did not fill what a struct_size of %zu holds", small_size);
    if (!bytes_are(large.bytes + sizeof large.info, N_CANARY, CANARY))
        return certify_fail(c, "wrote beyond its own version of the struct");
    return CERTIFY_PASSED;
}

static certify_verdict describe_size_check(certify *c) {
    certify_verdict verdict = certify_open(c);
    return verdict == CERTIFY_PASSED ? info_size_judge(c, describe_call) : verdict;
}

static certify_verdict info_check(certify *c) {
    tdm_device_info told = {.struct_size = sizeof told}, open = {.struct_size = sizeof open};
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (!TDM_HAS(c->plugin->device, get_info)) return certify_skip(c, "no slot get_info");
    if (describe_call(c, &told) != TDM_OK || get_info_call(c, &open) != TDM_OK)
        return certify_fail(c, "returned no description");
    verdict = info_judge(c, &open, c->params->device);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (strcmp(told.name, open.name) != 0)
        return certify_fail(c, "is called %s, and %s once it is open", told.name, open.name);
    return info_size_judge(c, get_info_call);
}

/* The struct of an earlier caller ends before the names of arithmetic. */
static certify_verdict limits_check(certify *c) {
    union {
        tdm_device_limits limits;
        uint8_t bytes[sizeof(tdm_device_limits) + N_CANARY];
    } whole, small;
    const size_t small_size = offsetof(tdm_device_limits, arithmetic);
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (!TDM_HAS(c->plugin->device, measure_limits))
        return certify_skip(c, "no slot measure_limits");
    memset(&whole, CANARY, sizeof whole);
    memset(&small, CANARY, sizeof small);
    whole.limits.struct_size = sizeof whole.limits;
    small.limits.struct_size = small_size;
    if (c->plugin->device->measure_limits(c->device, &whole.limits, &err) != TDM_OK ||
        c->plugin->device->measure_limits(c->device, &small.limits, NULL) != TDM_OK)
        return certify_fail(c, "failed: %.200s", err.message);
    const double told[] = {whole.limits.read_bandwidth, whole.limits.int8_peak,
                           whole.limits.f32_peak};
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++)
        if (!(told[i] >= 0) || isinf(told[i]))
            return certify_fail(c, "a limit of %g: numbers from 0 on, 0 = unknown", told[i]);
    verdict = text_judge(c, "arithmetic", whole.limits.arithmetic, sizeof whole.limits.arithmetic);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (!bytes_are(small.bytes + small_size, sizeof small - small_size, CANARY))
        return certify_fail(c, "wrote behind a struct_size of %zu", small_size);
    if (!(small.limits.f32_peak >= 0))
        return certify_fail(c, "did not fill what a struct_size of %zu holds", small_size);
    return CERTIFY_PASSED;
}

/* The first enumeration may load a driver, which may start threads; those that follow add none. */
static certify_verdict lazy_check(certify *c) {
    static tdm_device_info infos[MAX_DEVICES];
    int32_t n;
    int n_thread = 0;
    certify_verdict verdict = certify_load(c);
    for (int i = 0; i < 4 && verdict == CERTIFY_PASSED; i++) {
        verdict = list_read(c, infos, &n);
        if (i == 0) n_thread = certify_thread_count();
    }
    if (verdict == CERTIFY_PASSED && certify_thread_count() > n_thread)
        return certify_fail(c, "enumerating 3 more times started %d threads",
                            certify_thread_count() - n_thread);
    return verdict;
}

/* ---- Opening ---- */

static certify_verdict open_check(certify *c) {
    tdm_error err = {.struct_size = sizeof err};
    tdm_device *device = NULL;
    int32_t n = 0;
    certify_verdict verdict = certify_load(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (c->plugin->device->count(c->instance, certify_options(c), &n, &err) != TDM_OK || n == 0)
        return certify_skip(c, "it has no device here: %.200s", err.message);
    if (c->params->device < 0 || c->params->device >= n)
        return certify_fail(c, "there is no device %d, there are %d", (int)c->params->device,
                            (int)n);
    tdm_device_params params = {sizeof params, c->params->device, c->params->n_option,
                                c->params->options};
    if (c->plugin->device->open(c->instance, &params, &device, &err) != TDM_OK)
        return certify_fail(c, "%s", err.message);
    if (device == NULL) return certify_fail(c, "returned TDM_OK and no device");
    c->plugin->device->close(device);
    return CERTIFY_PASSED;
}

static certify_verdict open_bad(certify *c, const tdm_device_params *params, const char *what,
                                tdm_error *err, tdm_status *status_out) {
    tdm_device *const before = (tdm_device *)(void *)c, *device = before;
    *status_out = c->plugin->device->open(c->instance, params, &device, err);
    if (*status_out == TDM_OK) return certify_fail(c, "%s was accepted", what);
    if (device != before) return certify_fail(c, "%s failed and wrote *device_out", what);
    return CERTIFY_PASSED;
}

static certify_verdict option_check(certify *c) {
    const tdm_option option = {"certify-no-such-key", "1"};
    tdm_error err = {.struct_size = sizeof err};
    tdm_status status;
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    tdm_device_params params = {sizeof params, c->params->device, 1, &option};
    verdict = open_bad(c, &params, "an unknown option", &err, &status);
    if (verdict == CERTIFY_PASSED)
        verdict = certify_expect(c, "an unknown option", status, TDM_INVALID_ARGUMENT);
    if (verdict == CERTIFY_PASSED && strstr(err.message, option.key) == NULL)
        return certify_fail(c, "the message does not name the key: \"%.200s\"", err.message);
    return verdict;
}

static certify_verdict open_index_check(certify *c) {
    int32_t n = 0;
    tdm_status status;
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (c->plugin->device->count(c->instance, certify_options(c), &n, NULL) != TDM_OK)
        return certify_skip(c, "its devices cannot be counted");
    const int32_t bad[] = {n, -1, INT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tdm_device_params params = {sizeof params, bad[i], 0, NULL};
        verdict = open_bad(c, &params, "an index past the end", NULL, &status);
        if (verdict != CERTIFY_PASSED) return verdict;
    }
    return CERTIFY_PASSED;
}

/* The struct of an earlier caller ends before the options; that of a later caller has more
 * fields. */
static certify_verdict open_size_check(certify *c) {
    const tdm_option option = {"certify-no-such-key", "1"};
    struct {
        tdm_device_params params;
        uint8_t more[32];
    } later;
    tdm_error err = {.struct_size = sizeof err};
    tdm_device *device = NULL;
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (c->params->n_option == 0) { /* else the device may need them */
        tdm_device_params earlier = {offsetof(tdm_device_params, n_option), c->params->device, 1,
                                     &option};
        if (c->plugin->device->open(c->instance, &earlier, &device, &err) != TDM_OK)
            return certify_fail(c, "read options behind the struct_size: %.200s", err.message);
        c->plugin->device->close(device);
    }
    memset(&later, 0xee, sizeof later);
    later.params = (tdm_device_params){sizeof later, c->params->device, c->params->n_option,
                                       c->params->options};
    if (c->plugin->device->open(c->instance, &later.params, &device, &err) != TDM_OK)
        return certify_fail(c, "refused a larger struct: %.200s", err.message);
    c->plugin->device->close(device);
    return CERTIFY_PASSED;
}

static certify_verdict twice_check(certify *c) {
    const tdm_buffer_ops *ops;
    tdm_buffer *buffer = NULL;
    tdm_device *second = NULL;
    uint8_t in[256], out[256] = {0};
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    ops = c->plugin->buffer;
    if (certify_open_on(c, c->instance, &second) != CERTIFY_PASSED) return CERTIFY_FAILED;
    if (second == c->device) return certify_fail(c, "two calls of open returned the same device");
    verdict = certify_alloc(c, sizeof in, &buffer);
    if (verdict != CERTIFY_PASSED) return verdict;
    certify_random_bytes(c, in, sizeof in);
    tdm_status status = ops->upload(buffer, 0, in, sizeof in, &err);
    c->plugin->device->close(second);
    if (status == TDM_OK) status = ops->download(buffer, 0, out, sizeof out, &err);
    if (status != TDM_OK || memcmp(in, out, sizeof in) != 0)
        return certify_fail(c, "closing one opening disturbed the other: %.200s", err.message);
    ops->free(buffer);
    return CERTIFY_PASSED;
}

static certify_verdict close_null_check(certify *c) {
    certify_verdict verdict = certify_load(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    c->plugin->device->close(NULL);
    return CERTIFY_PASSED;
}

static const certify_check checks[] = {
    {"device.count", 0,
     "device.h: count: \"Stores the number of devices […] where it is 0, *err (nullable) "
     "receives the reason while the call still returns TDM_OK.\"",
     count_check},
    {"device.describe", 0,
     "device.h: tdm_device_info: \"Texts are NUL-terminated, empty where unknown.\" name: "
     "\"unique within the plugin and stable\"",
     describe_check},
    {"device.stable", 0,
     "device.h: \"Enumeration is quiet and stable: it […] gives the same list in the same order "
     "while the machine and the options do not change.\"",
     stable_check},
    {"device.describe-end", 0, "device.h: describe: \"TDM_NOT_FOUND past the end.\"", end_check},
    {"device.describe-size", 0,
     "device.h: describe: \"fills *info_out as far as its struct_size goes\"", describe_size_check},
    {"device.lazy", 0,
     "device.h: \"Enumeration is quiet and stable: it neither opens a device nor prints\"",
     lazy_check},
    {"device.open", 0, "device.h: open: \"Opens a device\"", open_check},
    {"device.open-index", 0, "device.h: tdm_device_params: index: \"as enumerated\"",
     open_index_check},
    {"device.open-option", 0,
     "option.h: tdm_option: \"a plugin refuses a key that it does not have with "
     "TDM_INVALID_ARGUMENT, naming the key\"",
     option_check},
    {"device.open-size", 0, "plugin.h: \"a reader uses no field beyond it [struct_size]\"",
     open_size_check},
    {"device.open-twice", 0,
     "device.h: open: \"One device may be opened several times, with different options; each is a "
     "device of its own.\"",
     twice_check},
    {"device.close-null", 0, "device.h: close: \"Closes; NULL is a no-op.\"", close_null_check},
    {"device.info", 0, "device.h: get_info: \"What an open device is; memory_free is current.\"",
     info_check},
    {"device.limits", 0,
     "device.h: measure_limits: \"fills *limits_out as far as its struct_size goes\" "
     "tdm_device_limits: \"0 = unknown\"",
     limits_check},
};
const certify_table certify_device_table = CERTIFY_TABLE(checks);
