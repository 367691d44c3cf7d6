/* SPDX-License-Identifier: MIT
 *
 * session.c: loads the plugin and opens its device for a check, and implements the other functions
 * of suite.h.
 */
#include "certify/suite.h"

#include <dirent.h>
#include <dlfcn.h>
#include <string.h>
#include <time.h>

certify_verdict certify_fail(certify *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(c->message, sizeof c->message, format, args);
    va_end(args);
    return CERTIFY_FAILED;
}

certify_verdict certify_skip(certify *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(c->message, sizeof c->message, format, args);
    va_end(args);
    return CERTIFY_SKIPPED;
}

certify_verdict certify_prefix(certify *c, certify_verdict verdict, const char *format, ...) {
    char words[128], inner[TDM_ERROR_MESSAGE_SIZE];
    va_list args;
    if (verdict == CERTIFY_PASSED) return verdict;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    memcpy(inner, c->message, sizeof inner);
    snprintf(c->message, sizeof c->message, "%s: %.380s", words, inner);
    return verdict;
}

certify_verdict certify_expect(certify *c, const char *what, tdm_status status, tdm_status want) {
    if (status == want) return CERTIFY_PASSED;
    return certify_fail(c, "%s returned '%s', not '%s'", what, tdm_status_text(status),
                        tdm_status_text(want));
}

/* ---- Random numbers: xorshift64*, Vigna (arXiv:1402.6246) ---- */

uint64_t certify_random(certify *c) {
    c->random ^= c->random >> 12;
    c->random ^= c->random << 25;
    c->random ^= c->random >> 27;
    return c->random * 0x2545f4914f6cdd1du;
}

int64_t certify_random_in(certify *c, int64_t lo, int64_t hi) {
    return lo + (int64_t)((certify_random(c) >> 11) % (uint64_t)(hi - lo + 1));
}

void certify_random_bytes(certify *c, void *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) ((uint8_t *)bytes)[i] = (uint8_t)(certify_random(c) >> 32);
}

/* ---- Threads ---- */

int certify_thread_count(void) {
    DIR *dir = opendir("/proc/self/task");
    int n = 0;
    if (dir == NULL) return 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

bool certify_threads_settle(int n) {
    for (int i = 0; i < 200; i++) {
        if (certify_thread_count() <= n) return true;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return false;
}

/* ---- Loading ---- */

certify_verdict certify_object_open(certify *c, void **object_out, tdm_plugin_entry_fn *entry_out) {
    void *object = dlopen(c->params->file, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) {
        const char *reason = dlerror();
        return certify_fail(c, "cannot be loaded: %s", reason != NULL ? reason : "no reason given");
    }
    void *symbol = dlsym(object, TDM_PLUGIN_ENTRY_NAME);
    if (symbol == NULL) return certify_fail(c, "there is no symbol " TDM_PLUGIN_ENTRY_NAME);
    /* dlsym gives a data pointer; ISO C has no cast from it to a function. */
    memcpy(entry_out, &symbol, sizeof *entry_out);
    *object_out = object;
    return CERTIFY_PASSED;
}

certify_verdict certify_load(certify *c) {
    tdm_plugin_entry_fn entry = NULL;
    tdm_error err = {.struct_size = sizeof err};
    if (c->plugin != NULL) return CERTIFY_PASSED;
    if (certify_object_open(c, &c->object, &entry) != CERTIFY_PASSED) return CERTIFY_SKIPPED;
    const tdm_plugin *plugin = NULL;
    if (entry(&c->host.table, &plugin, &err) != TDM_OK || plugin == NULL)
        return certify_skip(c, "its entry failed: %.200s", err.message);
    if (plugin->init != NULL && plugin->init(&c->host.table, &c->instance, &err) != TDM_OK)
        return certify_skip(c, "its init failed: %.200s", err.message);
    c->plugin = plugin;
    return CERTIFY_PASSED;
}

const tdm_device_params *certify_options(certify *c) {
    c->options = (tdm_device_params){sizeof c->options, c->params->device, c->params->n_option,
                                     c->params->options};
    return &c->options;
}

certify_verdict certify_open_on(certify *c, tdm_instance *instance, tdm_device **device_out) {
    const tdm_device_ops *ops = c->plugin->device;
    tdm_error err = {.struct_size = sizeof err};
    int32_t n = 0;
    if (ops->count(instance, certify_options(c), &n, &err) != TDM_OK)
        return certify_skip(c, "its devices cannot be counted: %.200s", err.message);
    if (n == 0) return certify_skip(c, "it has no device here: %.200s", err.message);
    if (c->params->device >= n)
        return certify_skip(c, "it has %d devices, none of number %d", (int)n,
                            (int)c->params->device);
    if (ops->open(instance, certify_options(c), device_out, &err) != TDM_OK)
        return certify_skip(c, "its device cannot be opened: %.200s", err.message);
    return CERTIFY_PASSED;
}

certify_verdict certify_open_next(certify *c, tdm_device **device_out) {
    tdm_device_params params = *certify_options(c);
    const tdm_device_ops *ops = c->plugin->device;
    tdm_error err = {.struct_size = sizeof err};
    int32_t n = 0;
    if (ops->count(c->instance, certify_options(c), &n, &err) != TDM_OK || n == 0)
        return certify_skip(c, "its devices cannot be counted: %.200s", err.message);
    params.index = (params.index + 1) % n;
    if (ops->open(c->instance, &params, device_out, &err) != TDM_OK)
        return certify_skip(c, "its device %d cannot be opened: %.200s", (int)params.index,
                            err.message);
    return CERTIFY_PASSED;
}

certify_verdict certify_open(certify *c) {
    if (c->device != NULL) return CERTIFY_PASSED;
    certify_verdict verdict = certify_load(c);
    if (verdict == CERTIFY_PASSED) verdict = certify_open_on(c, c->instance, &c->device);
    if (verdict != CERTIFY_PASSED) return verdict;
    tdm_device_info info = {.struct_size = sizeof info};
    c->align = 1;
    if (c->plugin->device->describe(c->instance, c->params->device, certify_options(c), &info,
                                    NULL) == TDM_OK &&
        info.buffer_align > 0 && info.buffer_align <= 65536)
        c->align = info.buffer_align;
    return CERTIFY_PASSED;
}

tdm_status certify_device_info(certify *c, tdm_device_info *info_out, tdm_error *err) {
    const tdm_device_ops *ops = c->plugin->device;
    if (TDM_HAS(ops, get_info)) return ops->get_info(c->device, info_out, err);
    return ops->describe(c->instance, c->params->device, certify_options(c), info_out, err);
}

uint64_t certify_import_align(certify *c) {
    tdm_device_info info = {.struct_size = sizeof info};
    const bool is_known = certify_device_info(c, &info, NULL) == TDM_OK && info.import_align != 0;
    return is_known ? info.import_align : 64;
}

void certify_close(certify *c) {
    if (c->device != NULL) c->plugin->device->close(c->device);
    if (c->plugin != NULL && c->plugin->init != NULL && c->plugin->deinit != NULL)
        c->plugin->deinit(c->instance);
    if (c->object != NULL) dlclose(c->object);
    c->device = NULL;
    c->instance = NULL;
    c->plugin = NULL;
    c->object = NULL;
}

certify_verdict certify_alloc(certify *c, uint64_t size, tdm_buffer **buffer_out) {
    tdm_buffer_params params = {sizeof params, size, TDM_BUFFER_ANY};
    tdm_error err = {.struct_size = sizeof err};
    tdm_buffer *buffer = NULL;
    if (c->plugin->buffer->alloc(c->device, &params, &buffer, &err) != TDM_OK)
        return certify_fail(c, "alloc of %llu bytes: %s", (unsigned long long)size, err.message);
    if (buffer == NULL) return certify_fail(c, "alloc returned TDM_OK and no buffer");
    *buffer_out = buffer;
    return CERTIFY_PASSED;
}
