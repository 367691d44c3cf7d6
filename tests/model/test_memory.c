/* SPDX-License-Identifier: MIT
 *
 * test_memory.c: a model of 1.1 B parameters needs at most 5 % more memory than its weights as the
 * device keeps them, its cache and its compute plan; the file is read in small pieces. A child
 * process loads the model, reads a prompt of 512 tokens and generates. Its peak resident size
 * (VmHWM) is compared with what model and context report.
 *
 * The model is made here; where memory or disk are short the test is skipped and says so.
 */
#include "tests/model/rig.h"

#include <sys/statvfs.h>

#include "tests/model/preset.h"

#define NEEDED_SIZE ((uint64_t)4 << 30) /* of memory, and of disk */

static const char *program;

/* The number in kB behind a key of a file under /proc, in bytes; 0 where there is none. */
static uint64_t proc_read(const char *path, const char *key) {
    char line[256];
    unsigned long long found = 0;
    FILE *f = fopen(path, "r");
    if (f == NULL) return 0;
    while (found == 0 && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key), "%llu", &found);
    fclose(f);
    return found * 1024;
}

static double mib(uint64_t size) {
    return (double)size / 1048576.0;
}

/* ---- The child ---- */

static void child_test(void **state) {
    enum { N_PROMPT = 512, N_GENERATED = 16 };
    static const tdm_type f16 = TDM_TYPE_F16;
    const llm_context_params params = {
        .struct_size = sizeof params, .n_ctx = 640, .type_k = &f16, .type_v = &f16};
    int32_t tokens[N_PROMPT];
    float *logits = calloc(32000, sizeof *logits);
    assert_non_null(logits);
    for (int i = 0; i < N_PROMPT; i++) tokens[i] = (i * 7919 + 13) % 32000;
    uint64_t before = proc_read("/proc/self/status", "VmHWM:");
    llm_model *model = rig_model(*(char **)*state, rig_device(NULL, "fast", 2));
    uint64_t loaded = proc_read("/proc/self/status", "VmHWM:");
    llm_context *ctx = rig_context(model, &params);
    rig_decode(ctx, tokens, N_PROMPT, 1, logits);
    for (int i = 0; i < N_GENERATED; i++) rig_decode(ctx, &tokens[i], 1, 1, logits);
    uint64_t peak = proc_read("/proc/self/status", "VmHWM:");
    llm_context_memory memory = llm_context_get_memory(ctx);
    uint64_t weights = 0;
    for (int i = 0; i < model->n_weight; i++) weights += model->weights[i].size;
    uint64_t said = weights + memory.cache + memory.compute + memory.output;
    printf("weights: %.1f MiB in the file, %.1f MiB as kept\n", mib(model->file_size),
           mib(weights));
    printf("cache %.1f MiB, compute %.1f MiB, logits %.1f MiB\n", mib(memory.cache),
           mib(memory.compute), mib(memory.output));
    printf("VmHWM: %.1f MiB before loading, %.1f MiB after, %.1f MiB at the end: %.1f %% of the "
           "%.1f MiB accounted for\n",
           mib(before), mib(loaded), mib(peak), 100.0 * (double)peak / (double)said, mib(said));
    llm_context_destroy(ctx);
    llm_model_close(model);
    free(logits);
    assert_true(weights > 0 && peak > 0);
    assert_true((double)peak <= 1.05 * (double)said);
}

/* ---- The parent ---- */

static void test_peak(void **state) {
    (void)state;
    struct statvfs disk;
    tdm_error err = {0};
    const char *path = rig_file("large.gguf");
    char folder[600];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    assert_int_equal(statvfs(folder, &disk), 0);
    uint64_t disk_free = (uint64_t)disk.f_bavail * disk.f_frsize;
    uint64_t memory_free = proc_read("/proc/meminfo", "MemAvailable:");
    if (disk_free < NEEDED_SIZE || memory_free < NEEDED_SIZE) {
        printf("SKIPPED: %.0f MiB of disk and %.0f MiB of memory are free; %.0f MiB of each are "
               "needed\n",
               mib(disk_free), mib(memory_free), mib(NEEDED_SIZE));
        skip();
    }
    random_model_spec spec = preset_find("1.1b");
    spec.type = TDM_TYPE_Q4_0;
    spec.n_thread = 2;
    RIG_OK(random_model_write(&spec, path, NULL, NULL, NULL, &err));
    const char *argv[] = {program, "child", path, NULL};
    assert_int_equal(rig_spawn(argv), 0);
}

int main(int argc, char **argv) {
    program = argv[0];
    if (argc > 2 && strcmp(argv[1], "child") == 0) {
        const struct CMUnitTest tests[] = {
            cmocka_unit_test_prestate(child_test, &argv[2]),
        };
        return cmocka_run_group_tests_name("child", tests, rig_begin, rig_end);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_peak)};
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
