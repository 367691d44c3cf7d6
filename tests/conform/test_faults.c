/* SPDX-License-Identifier: MIT
 *
 * test_faults.c: runs the conformance suite against a plugin with every fault that it has
 * (TANDEM_TEST_FAULT, tests/plugins/), and expects exactly one check to fail each time. A check of
 * the suite for which there is no fault is an error, unless it is in the list of gaps.
 *
 *     test_faults null|shim PLUGIN.so [PART N_PART]
 *
 * With PART, counted from 0, only every N_PART-th fault, so that several processes share the work.
 * How many checks run beside the one that must fail depends on what they cost: see only_of.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/conform/failed_checks.h"

typedef struct fault {
    const char *name;
    const char *check; /* the one that must fail */
    bool is_alone;     /* only this check is run, because the fault breaks or slows others, too */
} fault;

static const fault null_faults[] = {
    {"name", "plugin.load"},
    {"entry", "plugin.entry-pure"},
    {"leak", "plugin.deinit"},
    {"free-size", "plugin.deinit"},
    {"log-newline", "plugin.deinit"},
    {"no-delete", "plugin.unload"},
    {"static-host", "plugin.hosts"},
    {"host-smaller", "plugin.host-smaller"},
    {"host-larger", "plugin.host-larger"},
    {"print", "plugin.quiet"},
    {"count-reason", "device.count"},
    {"name-control", "device.describe"},
    {"unstable", "device.stable"},
    {"describe-end", "device.describe-end"},
    {"describe-size", "device.describe-size"},
    {"eager", "device.lazy"},
    {"open", "device.open"},
    {"open-index", "device.open-index"},
    {"option-twice", "option.table"},
    {"option-range", "option.table"},
    {"option-words", "option.table"},
    {"option-moves", "option.constant"},
    {"option-default", "option.default"},
    {"option-ignored", "device.open-option"},
    {"option-name", "device.open-option"},
    {"open-size", "device.open-size"},
    {"close-wipes", "device.open-twice"},
    {"close-null", "device.close-null"},
    {"limits", "device.limits"},
    {"limits-size", "device.limits"},
    {"message", "status.message"},
    {"null-error", "status.null-error"},
    {"size-zero", "status.size-zero"},
    {"error-touched", "status.untouched"},
    {"upload-odd", "buffer.transfer"},
    {"upload-staging", "buffer.threads"},
    {"apart", "buffer.apart", true},
    {"upload-range", "buffer.upload-range"},
    {"download-range", "buffer.download-range"},
    {"zero", "buffer.zero"},
    {"oversize", "buffer.oversize"},
    {"exit", "buffer.oversize"},
    {"free-null", "buffer.free-null"},
    {"purpose", "buffer.params-size"},
    {"pure", "graph.supports-pure"},
    {"claims-any", "graph.supports-refuses"},
    {"supports-busy", "graph.supports-threads"},
    {"temp-clear", "graph.memory"},
    {"first-graph", "graph.repeat", true},
    {"empty", "graph.empty", true},
    {"stride", "graph.stride"},
    {"unused-slot", "graph.unused-slot"},
    {"views", "graph.views"},
    {"reason", "op.truth"},
    {"denies-scale", "op.truth"},
    {"claims-act", "op.act"},
    {"scale-bias", "op.scale"},
    {"last-element", "op.scale"},
    {"input", "op.scale"},
    {"guard", "op.mul"},
    {"copy", "memory.copy"},
    {"copy-range", "memory.copy-range"},
    {"fill", "memory.fill"},
    {"hang", "memory.fill"},
    {"host-pointer", "memory.host-pointer"},
    {"queue-null", "queue.destroy-null"},
    {"queue-idle", "queue.run", true},
    {"queue-last", "queue.plans", true},
    {"queue-alone", "queue.threads"},
    {"bind-once", "queue.rebind"},
    {"sync-bits", "queue.sync-agrees"},
    {"destroy", "queue.destroy"},
    {"arrays", "queue.arrays"},
    {"other-queue", "queue.refused"},
    {"scratch", "queue.scratch"},
    {"bounded", "queue.never-waits"},
    {"steady", "queue.steady"},
    {"plan-info", "queue.plan-info"},
    {"wait-any", "order.wait-first"},
    {"wait-one", "order.across", true},
    {"overtake", "order.serial"},
    {"one-signal", "order.signals"},
    {"poison", "order.poison"},
    {"poison-hop", "order.poison-spreads"},
    {"not-skipped", "order.skipped"},
    {"recover", "order.recover"},
    {"attach-early", "order.attach"},
    {"attach-blocks", "order.attach"},
};

/* page-slot-OP for each cache op. */
#define SLOT_FAULT_VIEW(name)
#define SLOT_FAULT_VALUE(name)
#define SLOT_FAULT_GROUP(name)
#define SLOT_FAULT_CACHE(name)                   {"page-slot-" #name, "kv.required"},
#define SLOT_FAULT_(ID, name, number, kind, ...) SLOT_FAULT_##kind(name)

static const fault shim_faults[] = {
    {"tensor-pair", "plugin.load"},
    {"graph-supports", "op.truth"},
    {"tensor-pieces", "tensor.pieces"},
    {"tensor-size", "tensor.size"},
    {"tensor-bounds", "tensor.bounds"},
    {"tensor-threads", "tensor.threads", true},
    {"open-name", "device.info"},
    {"import-info", "memory.import"},
    {"page-size", "kv.page-size"},
    {"denies-bias", "kv.described"},
    {"in-host", "kv.in-host"},
    {"split-unit", "split.unit"},
    {"exchange-abort", "exchange.abort"},
    {"exchange-sum", "exchange.sum"},
    {"exchange-part", "exchange.part"},
    {"exchange-gather", "exchange.gather"},
    {"exchange-chunks", "exchange.chunks"},
    {"exchange-wait", "exchange.wait"},
    {"exchange-together", "exchange.together"},
    {"exchange-second", "exchange.pair"},
    {"exchange-publish", "exchange.phases"},
    {"exchange-collect", "exchange.phases"},
    {"import-coarse", "memory.import-align"},
    {"peer-copy", "memory.peer"},
    {"pinned-align", "memory.host-alloc"},
    {"pinned-piece", "tensor.pinned"},
    {"pinned-all", "tensor.pinned"},
    {"reshape", "op.one"},
    {"reshape", "op.reshape"},
    {"permute", "op.permute"},
    {"slice", "op.slice"},
    {"copy", "op.copy"},
    {"concat", "op.concat"},
    {"matmul", "op.matmul"},
    {"add", "op.add"},
    {"softmax", "op.softmax"},
    {"sum-sq", "op.sum-sq"},
    {"sinkhorn", "op.sinkhorn"},
    {"moe-matmul", "op.moe-matmul"},
    {"act", "op.act"},
    {"glu", "op.glu"},
    {"get-rows", "op.get-rows"},
    {"rms-norm", "op.rms-norm"},
    {"rms-apply", "op.rms-apply"},
    {"layer-norm", "op.layer-norm"},
    {"clamp", "op.clamp"},
    {"div", "op.div"},
    {"sqrt", "op.sqrt"},
    {"repeat", "op.repeat"},
    {"softplus", "op.act"},
    {"rope", "op.rope"},
    {"top-k", "op.top-k"},
    {"moe-route", "op.moe-route"},
    {"moe-ffn", "op.moe-ffn"},
    {"lse-merge", "op.lse-merge"},
    {"kv-write", "kv.write"},
    {"kv-skip", "kv.skip"},
    {"kv-shift", "kv.shift", true},
    {"kv-shift-factor", "kv.shift-factor"},
    {"kv-copy", "kv.copy"},
    {"kv-import", "kv.import"},
    {"write-class", "kv.class"},
    {"attention-class", "kv.class"},
    {"causal", "kv.attention", true},
    {"attention-ml", "kv.attention-ml"},
    {"attention-long", "kv.attention-long"},
    {"attention", "kv.attention-variants"},
    {"attention-bias", "kv.attention-bias"},
    {"conv1d", "recurrent.conv1d"},
    {"linear-scan", "recurrent.linear-scan"},
    {"linear-scan-erased", "recurrent.linear-scan-erased"},
    {"block-pool", "recurrent.block-pool"},
    {"select-early", "sparse.select", true},
    {"select-class", "sparse.class"},
    {"select-local", "sparse.blocks"},
    {"attention-lists", "sparse.lists", true},
    {"strided-write", "strided.write"},
    {"kv-copy", "strided.copy"},
    {"kv-import", "strided.import"},
    {"causal", "strided.attention"},
    {"select-early", "strided.select"},
    /* clang-format off */
    TDM_OP_LIST(SLOT_FAULT_)
    /* clang-format on */
};
enum {
    N_NULL = sizeof null_faults / sizeof null_faults[0],
    N_SHIM = sizeof shim_faults / sizeof shim_faults[0]
};

/* The checks that have no fault. */
static const struct gap {
    const char *check, *reason;
} gaps[] = {
    {"plugin.exports", "a plugin built for it must fail: test 'certify export'"},
    {"exchange.peer", "the CPU plugin, the shim's target, runs no EXCHANGE in peer memory"},
};
enum { N_GAP = sizeof gaps / sizeof gaps[0] };

static const char *plugin_file;
static bool is_shim;

#ifdef TANDEM_SANITIZED
static const bool is_sanitized = true;
#else
static const bool is_sanitized = false;
#endif

/* ---- Faults ---- */

/* Faults for which the suite runs in batches and not in batches, with the same result: one ends the
 * process, one hangs, one prints, the others are in the middle of a family. */
static bool runs_twice(const char *name) {
    static const char *const names[] = {"exit",  "hang",   "scale-bias",
                                        "print", "poison", "pinned-all"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

static bool has_prefix(const char *text, const char *const *prefixes, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strncmp(text, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

/* What the ids of the checks that run with a fault begin with:
 *   null plugin   nothing, for the whole suite, which shows that no other check fails; the family of
 *                 the check for faults of queues, which other families do not use, and for a hang
 *   shim          the family of the check; the check itself where the family is slow
 * A sanitizer makes everything slow: then the family with the null plugin, the check with the shim.
 */
static const char *only_of(const fault *f, const char *family) {
    static const char *const slow[] = {"op.", "kv.", "strided.", "device."};
    static const char *const queued[] = {"queue.", "order."};
    const bool is_slow = is_sanitized || has_prefix(f->check, slow, sizeof slow / sizeof *slow);
    const bool is_queued = has_prefix(f->check, queued, sizeof queued / sizeof *queued);
    if (f->is_alone || (is_shim && is_slow)) return f->check;
    return is_shim || is_sanitized || is_queued || strcmp(f->name, "hang") == 0 ? family : "";
}

/* Whether `id` is in a list of ids with commas between them. */
static bool is_listed(const char *ids, const char *id) {
    const size_t n = strlen(id);
    for (const char *at = ids; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, id, n) == 0 && (at[n] == ',' || at[n] == 0)) return true;
    }
    return false;
}

static void test_fault(void **state) {
    const fault *f = *state;
    char family[32], ids[1024];
    snprintf(family, sizeof family, "%.*s", (int)strcspn(f->check, ".") + 1, f->check);
    const char *only = only_of(f, family);
    const certify_params params = {
        .file = plugin_file,
        .level = -1,
        .seed = 20,
        .limit_s = strcmp(f->name, "hang") == 0 ? 2 : 0,
        .only = only,
        .is_batch = only[0] == 0, /* halves the time of the whole suite */
    };
    setenv("TANDEM_TEST_FAULT", f->name, 1);
    const certify_result result = failed_checks_run(&params, ids, sizeof ids);
    if (f->is_alone) { /* checks whose ids begin with its id have run, too, and may have failed */
        if (!is_listed(ids, f->check)) fail_msg("'%s' failed, not '%s'", ids, f->check);
        return;
    }
    assert_string_equal(ids, f->check);
    assert_int_equal(result.n_failed, 1);
    if (!runs_twice(f->name)) return;
    certify_params other = params;
    other.is_batch = !params.is_batch;
    const certify_result again = failed_checks_run(&other, ids, sizeof ids);
    assert_string_equal(ids, f->check);
    assert_memory_equal(&again, &result, sizeof result);
}

/* ---- Checks without a fault ---- */

/* How many faults a check has. */
static size_t faults_of(const char *check) {
    size_t n = 0;
    for (size_t i = 0; i < N_NULL; i++) n += strcmp(null_faults[i].check, check) == 0;
    for (size_t i = 0; i < N_SHIM; i++) n += strcmp(shim_faults[i].check, check) == 0;
    return n;
}

static bool is_gap(const char *check) {
    for (size_t i = 0; i < N_GAP; i++)
        if (strcmp(gaps[i].check, check) == 0) return true;
    return false;
}

/* Each check of the suite has a fault or is a gap, and not both; and tables name no other check. */
static void test_every_check_has_a_fault(void **state) {
    char line[1024], id[128];
    size_t n_found = 0, n_wrong = 0;
    FILE *list = tmpfile();
    (void)state;
    assert_non_null(list);
    assert_int_equal(certify_list(list, NULL), TDM_OK);
    rewind(list);
    while (fgets(line, sizeof line, list) != NULL) {
        if (sscanf(line, "%*1[0-9] %127s", id) != 1) continue; /* a citation */
        const size_t n_fault = faults_of(id);
        n_found += n_fault + is_gap(id);
        if ((n_fault > 0) != is_gap(id)) continue;
        n_wrong++;
        print_error("%s: %s\n", id,
                    n_fault > 0 ? "has a fault and is in the list of gaps"
                                : "no fault proves that this check can fail");
    }
    fclose(list);
    for (size_t i = 0; i < N_GAP; i++)
        print_message("no fault for %s: %s\n", gaps[i].check, gaps[i].reason);
    assert_int_equal(n_wrong, 0);
    assert_int_equal(n_found, N_NULL + N_SHIM + N_GAP); /* else a table names an unknown check */
}

int main(int argc, char **argv) {
    struct CMUnitTest tests[1 + N_NULL + N_SHIM];
    if (argc != 3 && argc != 5) return 2;
    is_shim = strcmp(argv[1], "shim") == 0;
    plugin_file = argv[2];
    const fault *faults = is_shim ? shim_faults : null_faults;
    const size_t n_fault = is_shim ? N_SHIM : N_NULL;
    const size_t first = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    const size_t step = argc > 3 ? strtoull(argv[4], NULL, 10) : 1;
    size_t n = 0;
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_every_check_has_a_fault);
    for (size_t i = first; i < n_fault; i += step)
        tests[n++] = (struct CMUnitTest){faults[i].name, test_fault, NULL, NULL,
                                         (void *)(uintptr_t)&faults[i]};
    return _cmocka_run_group_tests("certify faults", tests, n, NULL, NULL);
}
