/* SPDX-License-Identifier: MIT
 *
 * wait.c: see wait.h.
 */
#include "plugins/gpu/rt/wait.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tandem/collective.h"

_Static_assert(offsetof(rt_wait_report, slots) == 64 && sizeof(rt_wait_slot) == 32,
               "kernels/flags.h writes them there");
_Static_assert(offsetof(rt_wait_state, report) == 16, "kernels/flags.h reads it there");
_Static_assert(offsetof(tdm_step_header, epoch) == 2 * sizeof(int32_t),
               "kernels/flags.h reads epoch there");

/* ---- Kernels of plans ------------------------------------------------------------------------ */

static void words_of_u64(int32_t word[2], uint64_t x) {
    word[0] = (int32_t)(uint32_t)x;
    word[1] = (int32_t)(uint32_t)(x >> 32);
}

/* A clock of 1 kHz has 1 tick in a millisecond. */
static uint64_t ticks_of(const rt_device *device, uint64_t ns) {
    return ns / 1000000 * (uint64_t)device->facts->attribute[RT_CLOCK_KHZ];
}

bool rt_wait_is_in(int32_t kernel) {
    return kernel == GPU_KERNEL_WIRE_WAIT || kernel == GPU_KERNEL_WIRE_REDUCE;
}

bool rt_wait_is_needed(const gpu_plan *steps) {
    for (int32_t i = 0; i < steps->n_step; i++)
        if (rt_wait_is_in(steps->steps[i].kernel)) return true;
    return false;
}

void rt_wait_args_set(const rt_device *device, const gpu_plan *steps, uint64_t state,
                      rt_args *args) {
    bool is_first = true;
    for (int32_t i = 0; i < steps->n_step; i++) {
        if (!rt_wait_is_in(steps->steps[i].kernel)) continue;
        args[i].args.word[5] = is_first;
        words_of_u64(&args[i].args.word[6], ticks_of(device, TDM_EXCHANGE_TIMEOUT_NS));
        words_of_u64(&args[i].args.word[9], state);
        is_first = false;
    }
}

static int first_missing(const rt_wait_slot *slot) {
    for (int m = 0; m < 64; m++)
        if ((slot->missing[m / 32] >> m % 32 & 1) != 0) return m;
    return -1;
}

tdm_status rt_wait_status(const rt_device *device, const rt_wait_report *report, uint32_t run,
                          tdm_error *err) {
    const rt_wait_slot *slot = &report->slots[run % RT_WAIT_N_SLOT];
    if (slot->run != run) return TDM_OK;
    const int member = first_missing(slot);
    const bool is_abort = slot->code == RT_WAIT_ABORTED;
    char who[64] = "";
    if (member >= 0) snprintf(who, sizeof who, ": the flag of member %d is missing", member);
    return tdm_fail(err, is_abort ? TDM_CANCELLED : TDM_UNAVAILABLE, "%s: exchange: stage %u %s%s",
                    device->name, (unsigned)slot->stage,
                    is_abort ? "was aborted" : "ran out of time", who);
}

/* ---- The test -------------------------------------------------------------------------------- */

enum {
    TEST_SIZE = 4096 * 4,
    TEST_FLAGS = 64, /* as of an arena of two members: the device is 0, the host 1 */
    TEST_STEP = 1024,
    TEST_VERDICT = 2048,
    TEST_STATE = 3072,
    TEST_REPORT = 4096,
    TEST_LONG_MS = 1000,
    TEST_SHORT_MS = 20,
    /* Most polls of the test's kernel, which ends it where the clock does not run: some seconds, as
     * a poll over PCIe takes about 1 us */
    TEST_POLLS = 4 << 20
};
_Static_assert(TEST_REPORT + sizeof(rt_wait_report) <= TEST_SIZE, "the report has room");

typedef struct test {
    rt_device *device;
    uint8_t *bytes;       /* [TEST_SIZE] an arena, and the other memory that the kernel uses */
    rt_memory memory;     /* the same, imported */
    rt_function function; /* of WIRE_WAIT */
    uint32_t run;         /* of the last launch; also its epoch */
} test;

static uint64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static _Atomic uint64_t *test_flag(const test *t, int member) {
    return (_Atomic uint64_t *)(void *)(t->bytes + TEST_FLAGS + 64 * member);
}

static tdm_status test_open(test *t, tdm_error *err) {
    const gpu_step step = {.kernel = GPU_KERNEL_WIRE_WAIT};
    t->bytes = aligned_alloc(4096, TEST_SIZE);
    if (t->bytes == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", t->device->name);
    memset(t->bytes, 0, TEST_SIZE);
    tdm_status status = rt_memory_import(t->device, t->bytes, TEST_SIZE, &t->memory, err);
    const rt_wait_state state = {.report = t->memory.address + TEST_REPORT};
    memcpy(t->bytes + TEST_STATE, &state, sizeof state);
    return status != TDM_OK ? status : rt_function_get(t->device, &step, &t->function, err);
}

static void test_close(test *t) {
    rt_memory_free(t->device, &t->memory);
    free(t->bytes);
}

static tdm_status test_launch(test *t, uint64_t timeout_ms, tdm_error *err) {
    const gpu_step step = {.kernel = GPU_KERNEL_WIRE_WAIT};
    const tdm_step_header header = {.epoch = (int32_t)++t->run};
    const uint64_t at = t->memory.address;
    rt_args args = {.args = {.address = {at, at + TEST_VERDICT, at + TEST_STEP},
                             .word = {2, 0, TEST_FLAGS, 0, 1, 1, 0, 0, TEST_POLLS}}};
    void *params[] = {&args};
    words_of_u64(&args.args.word[6], ticks_of(t->device, timeout_ms * 1000000));
    words_of_u64(&args.args.word[9], at + TEST_STATE);
    memcpy(t->bytes + TEST_STEP, &header, sizeof header);
    tdm_status status = rt_enter(t->device, err);
    if (status != TDM_OK) return status;
    rt_result result =
        t->device->fn->launch(t->function.handle, 1, 1, 1, 64, 1, 1, rt_shared_size(&step),
                              t->device->copy_stream, params, NULL);
    return result == RT_SUCCESS ? TDM_OK : rt_fail(t->device, err, result, RT_FN_launch);
}

/* True where the host sees in time that the running kernel has raised its flag. */
static bool test_flag_comes(const test *t) {
    const uint64_t end = now_ms() + TEST_LONG_MS;
    while (atomic_load(test_flag(t, 0)) != ((uint64_t)t->run << 32 | 1)) {
        if (now_ms() >= end) return false;
        nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    }
    return true;
}

/* One wait of the kernel for the host, which publishes or does not. Where the wait does not end as
 * it must, sets *why_out to the reason. */
static tdm_status test_wait(test *t, bool publishes, const char **why_out, tdm_error *err) {
    const rt_wait_report *report = (const rt_wait_report *)(const void *)(t->bytes + TEST_REPORT);
    tdm_status status = test_launch(t, publishes ? TEST_LONG_MS : TEST_SHORT_MS, err);
    if (status != TDM_OK) return status;
    const uint64_t begin = now_ms();
    const bool is_seen = test_flag_comes(t);
    if (publishes) atomic_store(test_flag(t, 1), (uint64_t)t->run << 32 | 1);
    rt_result result = rt_stream_end(t->device, t->device->copy_stream);
    if (result != RT_SUCCESS) return rt_fail(t->device, err, result, RT_FN_stream_sync);
    const uint64_t ms = now_ms() - begin;
    const rt_wait_slot *slot = &report->slots[t->run % RT_WAIT_N_SLOT];
    const uint32_t code = slot->run == t->run ? slot->code : RT_WAIT_REACHED;
    uint32_t verdict;
    memcpy(&verdict, t->bytes + TEST_VERDICT, sizeof verdict);
    if (!is_seen || report->run != t->run)
        *why_out = "the host does not see what a running kernel writes";
    else if (publishes && (code != RT_WAIT_REACHED || verdict != 1))
        *why_out = "a running kernel does not see what the host writes";
    else if (!publishes && (code != RT_WAIT_LATE || verdict != 0 || slot->missing[0] != 2 ||
                            ms < TEST_SHORT_MS / 2 || ms > TEST_LONG_MS))
        *why_out = "its clock does not end a wait in time";
    return TDM_OK;
}

static tdm_status test_run(rt_device *device, const char **why_out, tdm_error *err) {
    test t = {.device = device};
    tdm_status status = test_open(&t, err);
    if (status == TDM_OK) status = test_wait(&t, true, why_out, err);
    if (status == TDM_OK && *why_out == NULL) status = test_wait(&t, false, why_out, err);
    test_close(&t);
    return status;
}

/* The reason why the attributes of the device rule out waiting; NULL = the test decides. */
static const char *fact_against(const rt_device *device) {
    const int32_t *a = device->facts->attribute;
    if (a[RT_MAPS_HOST] == 0) return "it does not map host memory";
    if (a[RT_KERNEL_TIMEOUT] != 0) return "its driver ends kernels that run long";
    if (a[RT_CLOCK_KHZ] <= 0) return "it has no clock";
    return NULL;
}

tdm_status rt_wait_decide(rt_device *device, const rt_options *options, tdm_error *err) {
    const tdm_host *host = device->instance->host;
    tdm_error failed = {0};
    if (options->exchange == RT_EXCHANGE_PHASES) return TDM_OK;
    const char *why = fact_against(device);
    tdm_status status = why == NULL ? test_run(device, &why, &failed) : TDM_OK;
    if (status != TDM_OK) why = failed.message;
    device->target.may_wait = why == NULL;
    if (why == NULL) return TDM_OK;
    if (atomic_load(&device->is_lost)) return tdm_fail(err, status, "%s", failed.message);
    if (options->exchange == RT_EXCHANGE_PLAN)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s (%s): exchange = plan: its kernels cannot wait for other members: %s; "
                        "use auto or phases",
                        device->name, device->facts->name, why);
    if (TDM_HAS(host, log))
        host->log(host->context, TDM_LOG_INFO,
                  "%s (%s): its kernels do not wait for other members: %s", device->name,
                  device->facts->name, why);
    return TDM_OK;
}
