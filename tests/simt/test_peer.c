/* SPDX-License-Identifier: MIT
 *
 * test_peer.c: groups of devices of one emulated driver, CUDA's and HIP's, whose exchanges have
 * flags and data in memory of one member. The bits are those of the arena in host memory. Where a
 * device does not reach the memory, or reaches other memory, the group uses the arena, or fails
 * with the reason where peer memory is demanded. A member that stands still, and one that is lost,
 * end the waits of the others.
 *
 *     test_peer CUDA_DRIVER HIP_DRIVER
 */
#include <dlfcn.h>

#include "core/runtime.h"
#include "llm/report.h"
#include "plugins/meta/meta.h"
#include "tests/model/preset.h"
#include "tests/simt/vendors.h"

enum { N_DEVICE = 3, N_PROMPT = 19, N_TOKEN = 4 };
enum { OUT_OF_MEMORY = 2, TOO_MANY_PEERS = 711, LAUNCH_FAILED = 719 };

/* An emulated driver, and what its library offers beside the driver's functions. */
typedef struct driver {
    const char *plugin, *path;
    void (*fail_call)(const char *name, long in, int result);
    void (*hold_device)(int device, bool hold);
    void (*peer)(const char *mode);
} driver;
static driver drivers[2] = {{.plugin = "cuda"}, {.plugin = "hip"}};

/* Both plugins have the same code: under a sanitizer, that of CUDA is enough. Other types on the
 * wire and more members change numbers only. */
#ifdef TANDEM_SANITIZED
enum { N_DRIVER_ALL = 1, IS_SANITIZED = 1 };
#else
enum { N_DRIVER_ALL = 2, IS_SANITIZED = 0 };
#endif

static void symbol_get(void *library, const char *name, void *function_out) {
    void *symbol = dlsym(library, name);
    if (symbol == NULL) fail_msg("%s", dlerror());
    memcpy(function_out, &symbol, sizeof symbol);
}

static void driver_open(driver *d, const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fail_msg("%s", dlerror());
    d->path = path;
    symbol_get(library, "tandem_simt_fail", &d->fail_call);
    symbol_get(library, "tandem_simt_hold_device", &d->hold_device);
    symbol_get(library, "tandem_simt_peer", &d->peer);
}

/* ---- Groups ---------------------------------------------------------------------------------- */

/* Opens a group of the first n_member devices. `extra` is one more option. */
static tdm_status group_try(const driver *d, int n_member, const char *memory, tdm_option extra,
                            tdm_open_device **group_out, tdm_error *err) {
    static int n_group;
    char members[96] = "", shares[32] = "", name[32];
    for (int i = 0; i < n_member; i++) {
        const tdm_option options[] = {{"driver", d->path}, {"exchange", "plan"}};
        snprintf(name, sizeof name, "%s-%d", d->plugin, i);
        const tdm_device_spec spec = {name, d->plugin, i, options, 2};
        tdm_runtime_declare(rig_runtime(), &spec, NULL); /* may be there already */
        snprintf(members + strlen(members), sizeof members - strlen(members), "%s%s",
                 i > 0 ? ", " : "", name);
        snprintf(shares + strlen(shares), sizeof shares - strlen(shares), "%s%d", i > 0 ? ", " : "",
                 i == 0 ? 2 : 1);
    }
    const tdm_option options[] = {
        {"members", members}, {"share", shares}, {"exchange-memory", memory}, extra};
    snprintf(name, sizeof name, "group %d", n_group++);
    const tdm_device_spec spec = {name, "meta", 0, options, 4};
    tdm_status status = tdm_runtime_declare(rig_runtime(), &spec, err);
    return status == TDM_OK ? tdm_runtime_open(rig_runtime(), name, group_out, err) : status;
}

static const tdm_option nothing_more = {"check", "off"};

static tdm_open_device *group_open(const driver *d, int n_member, const char *memory,
                                   tdm_option extra) {
    tdm_open_device *group = NULL;
    tdm_error err = {0};
    RIG_OK(group_try(d, n_member, memory, extra, &group, &err));
    return group;
}

/* The member whose memory has flags and data; -1 = the arena has them. */
static int home_of(tdm_open_device *group) {
    const meta_device *device = tdm_open_device_handle(group);
    return device->home != NULL ? (int)(device->home - device->members) : -1;
}

/* Logits of one token, of a prompt (for which the memory of exchanges grows), and of more
 * tokens. */
static float *logits_of(const char *path, tdm_open_device *dev, size_t *size_out) {
    tdm_error err = {0};
    llm_model *model = vendor_model(path, dev);
    llm_context *ctx = vendor_context(model);
    const size_t n_vocab = (size_t)model->hparams.n_vocab;
    int32_t tokens[N_PROMPT];
    bool wanted[N_PROMPT];
    *size_out = (N_PROMPT + N_TOKEN) * n_vocab * sizeof(float);
    float *logits = calloc(1, *size_out), *at = logits;
    assert_non_null(logits);
    for (int i = 0; i < N_PROMPT; i++) tokens[i] = vendor_token(i, (int)n_vocab), wanted[i] = true;
    for (int i = 0; i < N_TOKEN; i++, at += n_vocab) {
        RIG_OK(vendor_token_decode(ctx, N_PROMPT + i, &err));
        memcpy(at, llm_context_logits(ctx, 0), n_vocab * sizeof *at);
        if (i > 0) continue;
        const llm_batch batch = {.tokens = tokens, .wanted = wanted, .n_tok = N_PROMPT};
        at += n_vocab;
        RIG_OK(llm_context_decode(ctx, &batch, &err));
        for (int k = 0; k < N_PROMPT; k++, at += n_vocab)
            memcpy(at, llm_context_logits(ctx, k), n_vocab * sizeof *at);
        at -= n_vocab;
    }
    llm_context_destroy(ctx);
    llm_model_close(model);
    return logits;
}

static const char *model_of(const char *preset, tdm_type type) {
    random_model_spec spec = preset_find(preset);
    spec.type = type;
    return preset_file(preset, &spec);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void same_bits(const driver *d, int n_member, const char *preset, tdm_type type,
                      tdm_option extra) {
    const char *path = model_of(preset, type);
    size_t size = 0;
    tdm_open_device *host = group_open(d, n_member, "host", extra);
    tdm_open_device *peer = group_open(d, n_member, "peer", extra);
    assert_int_equal(home_of(host), -1);
    assert_int_equal(home_of(peer), 0);
    float *want = logits_of(path, host, &size), *found = logits_of(path, peer, &size);
    if (memcmp(found, want, size) != 0)
        fail_msg("%s, %d members of %s, %s = %s: not the bits of the arena", preset, n_member,
                 d->plugin, extra.key, extra.value);
    free(found);
    free(want);
}

/* Sums on the wire in f32, f16 and q8_0, in parts, gathers, routes of experts, partial
 * attention. */
static void test_same_bits(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const driver *d = &drivers[i];
        same_bits(d, 2, "tiny-llama", TDM_TYPE_Q8_0, (tdm_option){"reduce-type", "f32"});
        if (i >= N_DRIVER_ALL) continue;
        same_bits(d, 2, "tiny-mixtral", TDM_TYPE_Q4_0, (tdm_option){"experts", "whole"});
        if (IS_SANITIZED) continue;
        same_bits(d, 3, "tiny-llama", TDM_TYPE_Q8_0, (tdm_option){"reduce-type", "q8_0"});
        if (i == 0)
            same_bits(d, 2, "tiny-deepseek2", TDM_TYPE_Q4_0, (tdm_option){"reduce-type", "f16"});
    }
}

/* Flags of the last epochs before they are zeroed, and of the first ones after. */
static void test_epochs(void **state) {
    (void)state;
    const char *path = model_of("tiny-llama", TDM_TYPE_Q8_0);
    tdm_open_device *host = group_open(&drivers[0], 2, "host", nothing_more);
    tdm_open_device *peer = group_open(&drivers[0], 2, "peer", nothing_more);
    size_t size = 0;
    /* Of a second model, so that there are flags of earlier epochs. It is cut otherwise. */
    free(logits_of(path, host, &size));
    free(logits_of(path, peer, &size));
    tdm_open_device_handle(peer)->epoch = INT32_MAX - 3;
    float *want = logits_of(path, host, &size), *found = logits_of(path, peer, &size);
    assert_true(tdm_open_device_handle(peer)->epoch < 100);
    assert_memory_equal(found, want, size);
    free(found);
    free(want);
}

/* exchange-memory = auto takes the faster one, and says which it is. */
static void test_choice(void **state) {
    (void)state;
    const driver *d = &drivers[0];
    const char *path = model_of("tiny-llama", TDM_TYPE_Q8_0);
    for (int is_faster = 0; is_faster < 2; is_faster++) {
        tdm_error err = {0};
        tdm_split_member members[2];
        tdm_split_report report = {.struct_size = sizeof report,
                                   .member_size = sizeof *members,
                                   .members = members,
                                   .capacity = 2,
                                   .is_brief = 1};
        setenv("TANDEM_TEST_EXCHANGE", is_faster ? "2e-5,1e-5" : "1e-5,2e-5", 1);
        tdm_open_device *group = group_open(d, 2, "auto", nothing_more);
        assert_int_equal(home_of(group), is_faster ? 0 : -1);
        llm_model *model = vendor_model(path, group);
        const llm_context_params params = {.struct_size = sizeof params, .n_ctx = 64};
        RIG_OK(llm_model_report(model, group, &params, 1, 1, &report, &err));
        for (int m = 0; m < 2; m++)
            assert_string_equal(members[m].transport, is_faster ? "memory of 'cuda-0', in its plan"
                                                                : "shared memory, in its plan");
        llm_model_close(model);
    }
    /* Measured: either may be faster here. */
    unsetenv("TANDEM_TEST_EXCHANGE");
    setenv("TANDEM_TEST_LINKS", "measure", 1);
    group_open(d, 2, "auto", nothing_more);
    setenv("TANDEM_TEST_LINKS", "1e-6,1e-6", 1);
}

/* One fault: the group demands peer memory and gets the reason, then goes without and is right. */
static void refused(const driver *d, const char *mode, const char *reason) {
    const char *path = model_of("tiny-llama", TDM_TYPE_Q8_0);
    tdm_error err = {0};
    tdm_open_device *group = NULL;
    size_t size = 0;
    char names[64];
    setenv("TANDEM_TEST_EXCHANGE", "2e-5,1e-5", 1);
    d->peer(mode);
    tdm_status status = group_try(d, 2, "peer", nothing_more, &group, &err);
    assert_int_equal(status, TDM_UNSUPPORTED);
    snprintf(names, sizeof names, "member '%s-1'", d->plugin);
    if (strstr(err.message, names) == NULL || strstr(err.message, reason) == NULL ||
        strstr(err.message, "exchange-memory = peer") == NULL)
        fail_msg("%s: no '%s' and '%s' in '%s'", mode, names, reason, err.message);
    const int n_warning = rig_n_warning();
    group = group_open(d, 2, "auto", nothing_more);
    assert_int_equal(home_of(group), -1);
    /* What the devices lack is no warning. */
    assert_int_equal(rig_n_warning() - n_warning, strcmp(mode, "no") != 0);
    d->peer("yes");
    float *found = logits_of(path, group, &size);
    float *want = logits_of(path, group_open(d, 2, "host", nothing_more), &size);
    assert_memory_equal(found, want, size);
    free(found);
    free(want);
    unsetenv("TANDEM_TEST_EXCHANGE");
}

static void test_refused(void **state) {
    (void)state;
    for (int i = 0; i < N_DRIVER_ALL; i++) {
        refused(&drivers[i], "no", "the driver says that it cannot");
        refused(&drivers[i], "copy", "reaches other memory");
        refused(&drivers[i], "kernel", "did not end in time");
    }
}

/* A failing call is that member's refusal; another member's memory is tried. */
static void test_calls_fail(void **state) {
    (void)state;
    const driver *d = &drivers[0];
    static const char *const calls[] = {"peer_query", "peer_enable"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        d->fail_call(calls[i], 1, OUT_OF_MEMORY);
        assert_int_equal(home_of(group_open(d, 2, "peer", nothing_more)), 1);
    }
    /* A card that reaches no more others is not lost. */
    d->fail_call("peer_enable", 1, TOO_MANY_PEERS);
    assert_int_equal(home_of(group_open(d, 2, "peer", nothing_more)), 1);
    /* HIP's card has no memory that others see while kernels run. */
    drivers[1].fail_call("shared_alloc", 1, OUT_OF_MEMORY);
    assert_int_equal(home_of(group_open(&drivers[1], 2, "peer", nothing_more)), 1);
}

/* One device is held while the kernel of the other waits for it: first the one whose memory has the
 * flags, then the other. The group fails after its timeout and names the member, the kernel ends,
 * and the next run is right. */
static void test_late(void **state) {
    (void)state;
    const driver *d = &drivers[0];
    const char *path = model_of("tiny-llama", TDM_TYPE_Q8_0);
    for (int held = 0; held < 2; held++) {
        tdm_error err = {0};
        char name[24];
        tdm_open_device *group = group_open(d, 2, "peer", (tdm_option){"timeout", "1"});
        llm_model *model = vendor_model(path, group);
        llm_context *ctx = vendor_context(model);
        RIG_OK(vendor_token_decode(ctx, 0, &err));
        d->hold_device(held, true);
        assert_int_equal(vendor_token_decode(ctx, 1, &err), TDM_DEADLINE_EXCEEDED);
        d->hold_device(held, false);
        snprintf(name, sizeof name, "'cuda-%d'", held);
        if (strstr(err.message, name) == NULL) fail_msg("no %s in '%s'", name, err.message);
        llm_context_destroy(ctx);
        vendor_wait_usable(model);
        llm_model_close(model);
    }
}

/* A device is lost by a submission while the kernel of the other waits for it: the run fails, and
 * everything can be freed. */
static void test_lost(void **state) {
    (void)state;
    const driver *d = &drivers[1];
    tdm_error err = {0};
    llm_model *model = vendor_model(model_of("tiny-llama", TDM_TYPE_Q8_0),
                                    group_open(d, 2, "peer", (tdm_option){"timeout", "20"}));
    llm_context *ctx = vendor_context(model);
    RIG_OK(vendor_token_decode(ctx, 0, &err));
    d->fail_call("graph_launch", 1, LAUNCH_FAILED);
    assert_int_equal(vendor_token_decode(ctx, 1, &err), TDM_UNAVAILABLE);
    if (strstr(err.message, "hip-") == NULL) fail_msg("no member in '%s'", err.message);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

static int peer_begin(void **state) {
    char n[16];
    snprintf(n, sizeof n, "%d", N_DEVICE);
    setenv("TANDEM_SIMT_DEVICES", n, 1);
    setenv("TANDEM_TEST_RATES", "4e11,4e12", 1);
    setenv("TANDEM_TEST_LINKS", "1e-6,1e-6", 1);
    driver_open(&drivers[0], vendor_cuda_driver);
    driver_open(&drivers[1], vendor_hip_driver);
    return rig_begin(state);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),  cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_choice),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_calls_fail), cmocka_unit_test(test_late),
        cmocka_unit_test(test_lost), /* last: an emulated HIP device stays lost */
    };
    if (argc == 4)
        cmocka_set_test_filter(argv[3]);
    else if (argc != 3)
        return 2;
    vendor_cuda_driver = argv[1];
    vendor_hip_driver = argv[2];
    return cmocka_run_group_tests(tests, peer_begin, rig_end);
}
