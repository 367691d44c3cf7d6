/* SPDX-License-Identifier: MIT
 *
 * driver.c: an emulated driver for tests: its settings and state. Its functions, in the files
 * beside this one, are those of plugins/gpu/rt/driver.h under CUDA's names or, with SIMT_HIP
 * defined, under HIP's. Its kernels are those of this library (block.h); any image that is loaded
 * has all of them. README.md lists the files, the settings in the environment, and what the driver
 * does not show.
 *
 * After a kernel that breaks a rule, or an injected loss, every call on the device fails until its
 * context is released and made again. The failure is returned when no command of the device runs
 * any more, since the caller may free the memory of these commands then.
 */
#include "tests/simt/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef SIMT_HIP
enum { DEFAULT_WAVE = 64 };
#else
enum { DEFAULT_WAVE = 32 };
#endif

const int tandem_simt_version = 1;

struct simt_settings simt_settings;
pthread_mutex_t simt_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t simt_changed = PTHREAD_COND_INITIALIZER;
simt_context simt_contexts[SIMT_MAX_DEVICE];
__thread simt_context *simt_current;
__thread int simt_n_capture;
__thread bool simt_is_capture_broken;

static uint64_t number_of(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 10) : otherwise;
}

static void environment_read(void) {
    struct simt_settings *s = &simt_settings;
    const char *order = getenv("TANDEM_SIMT_ORDER"), *fail = getenv("TANDEM_SIMT_FAIL");
    s->n_device = (int)number_of("TANDEM_SIMT_DEVICES", 1);
    if (s->n_device > SIMT_MAX_DEVICE) s->n_device = SIMT_MAX_DEVICE;
    s->wave_size = (uint32_t)number_of("TANDEM_SIMT_WAVE", DEFAULT_WAVE);
    s->grid_x = (uint32_t)number_of("TANDEM_SIMT_GRID", 2147483647);
    s->ends_kernels = (int)number_of("TANDEM_SIMT_KERNEL_TIMEOUT", 0);
    simt_peer_set(getenv("TANDEM_SIMT_PEER"));
    s->memory = number_of("TANDEM_SIMT_MEMORY", (uint64_t)4 << 30);
    if (order != NULL && strcmp(order, "reverse") == 0) s->order = SIMT_REVERSE;
    if (order != NULL && strcmp(order, "random") == 0) s->order = SIMT_RANDOM;
    if (fail != NULL &&
        sscanf(fail, "%31[a-z_]:%ld:%d", s->fail_name, &s->fail_at, &s->fail_result) != 3)
        s->fail_name[0] = '\0';
}

void simt_settings_read(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, environment_read);
}

rt_result simt_loss_of(const simt_context *c) {
    while (c->sticky != RT_SUCCESS && c->n_pending > 0)
        pthread_cond_wait(&simt_changed, &simt_mutex);
    return c->sticky;
}

static long n_call; /* counts the calls that simt_settings.fail_name means; under simt_mutex */

rt_result simt_call_begin(const char *name, bool needs_context) {
    rt_result result = RT_SUCCESS;
    simt_settings_read();
    pthread_mutex_lock(&simt_mutex);
    const char *fail_name = simt_settings.fail_name;
    /* How often an event is polled depends on the speed of the machine. */
    bool is_any = strcmp(fail_name, "any") == 0 && strcmp(name, "event_query") != 0;
    bool counts = strcmp(fail_name, name) == 0 || is_any;
    if (counts && ++n_call == simt_settings.fail_at) {
        result = simt_settings.fail_result;
        if (rt_result_is_loss(result) && simt_current != NULL) simt_current->sticky = result;
    }
    if (simt_current != NULL && (needs_context || result != RT_SUCCESS)) {
        rt_result sticky = simt_loss_of(simt_current);
        if (result == RT_SUCCESS) result = sticky;
    }
    if (needs_context && simt_current == NULL && result == RT_SUCCESS) result = INVALID_CONTEXT;
    pthread_mutex_unlock(&simt_mutex);
    return result;
}

/* How many objects were made and not released, of all kinds together (simt_live_add). */
EXPORT long tandem_simt_live(void);
static long n_live; /* under simt_mutex */

void simt_live_add(int n) {
    pthread_mutex_lock(&simt_mutex);
    n_live += n;
    pthread_mutex_unlock(&simt_mutex);
}

long tandem_simt_live(void) {
    pthread_mutex_lock(&simt_mutex);
    long n = n_live;
    pthread_mutex_unlock(&simt_mutex);
    return n;
}

/* Chooses the call that fails: call number `in`, counted from now on, of the function `name`
 * returns `result`. As TANDEM_SIMT_FAIL; "" = none. */
EXPORT void tandem_simt_fail(const char *name, long in, int result);

void tandem_simt_fail(const char *name, long in, int result) {
    simt_settings_read();
    pthread_mutex_lock(&simt_mutex);
    snprintf(simt_settings.fail_name, sizeof simt_settings.fail_name, "%s", name);
    simt_settings.fail_at = n_call + in;
    simt_settings.fail_result = result;
    pthread_mutex_unlock(&simt_mutex);
}

/* Whether the call that was chosen last has been made. */
EXPORT bool tandem_simt_has_failed(void);

bool tandem_simt_has_failed(void) {
    pthread_mutex_lock(&simt_mutex);
    bool has_failed = n_call >= simt_settings.fail_at;
    pthread_mutex_unlock(&simt_mutex);
    return has_failed;
}
