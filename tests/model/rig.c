/* SPDX-License-Identifier: MIT
 *
 * rig.c: whole models on the CPU plugin, for tests.
 */
#include "tests/model/rig.h"

#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/runtime.h"

extern char **environ;

enum { MAX_FILES = 96, MAX_PATH = 512 };

static tdm_runtime *runtime;
static char folder[256];
static char files[MAX_FILES][MAX_PATH];
static int n_file, n_warning;

#if defined(__x86_64__)
const char *const rig_isas[] = {"plain", "avx2", "avx512", "amx", NULL};
#elif defined(__aarch64__)
const char *const rig_isas[] = {"plain", "neon", NULL};
#else
const char *const rig_isas[] = {"plain", NULL};
#endif

/* ---- Runtime and devices ---- */

static void take_log(void *context, int32_t level, const char *line) {
    (void)context;
    (void)level;
    n_warning++;
    printf("log: %s\n", line);
}

int rig_begin(void **state) {
    (void)state;
    const char *temp = getenv("TMPDIR");
    tdm_error err = {0};
    tdm_runtime_params params = {
        .struct_size = sizeof params, .log = take_log, .log_level = TDM_LOG_WARN};
    setvbuf(stdout, NULL, _IOLBF, 0);
    snprintf(folder, sizeof folder, "%s/tandem-model-XXXXXX", temp != NULL ? temp : "/tmp");
    if (mkdtemp(folder) == NULL || tdm_runtime_create(&params, &runtime, &err) != TDM_OK) {
        fprintf(stderr, "%s: %s\n", folder, err.message);
        return -1;
    }
    for (int i = 0; rig_isas[i] != NULL; i++)
        if (!rig_has_isa(rig_isas[i]))
            printf("SKIPPED: all of isa %s, which this machine does not have\n", rig_isas[i]);
    return 0;
}

int rig_end(void **state) {
    (void)state;
    tdm_runtime_destroy(runtime);
    runtime = NULL;
    for (int i = 0; i < n_file; i++) unlink(files[i]);
    n_file = 0;
    return rmdir(folder); /* fails if a test left a file behind */
}

tdm_runtime *rig_runtime(void) {
    return runtime;
}

int rig_n_warning(void) {
    return n_warning;
}

/* Declares and opens; a device once open is found again by its name. */
static tdm_status device_open(const char *isa, const char *path, int n_thread,
                              tdm_open_device **dev_out, tdm_error *err) {
    char name[64], threads[12];
    snprintf(name, sizeof name, "%s-%s-%d", isa, path, n_thread);
    snprintf(threads, sizeof threads, "%d", n_thread);
    if (tdm_runtime_open(runtime, name, dev_out, err) == TDM_OK) return TDM_OK;
    bool is_8 = strcmp(path, RIG_FAST_8) == 0, is_auto = strcmp(path, RIG_FAST_AUTO) == 0;
    const tdm_option options[] = {{"isa", isa},
                                  {"threads", threads},
                                  {"path", is_8 || is_auto ? "fast" : path},
                                  {"activation-bits", is_8      ? "8"
                                                      : is_auto ? "auto"
                                                                : "15"}};
    const tdm_device_spec spec = {name, "cpu", 0, options, 4};
    tdm_runtime_declare(runtime, &spec, NULL); /* declared before where opening was refused */
    return tdm_runtime_open(runtime, name, dev_out, err);
}

bool rig_has_isa(const char *isa) {
    tdm_open_device *dev;
    tdm_error err = {0};
    if (device_open(isa, "fast", 1, &dev, &err) == TDM_OK) return true;
    if (err.status != TDM_UNSUPPORTED) fail_msg("%s", err.message);
    return false;
}

tdm_open_device *rig_device(const char *isa, const char *path, int n_thread) {
    tdm_open_device *dev = NULL;
    tdm_error err = {0};
    RIG_OK(device_open(isa != NULL ? isa : "auto", path, n_thread, &dev, &err));
    return dev;
}

/* ---- Files and programs ---- */

const char *rig_file(const char *name) {
    char path[MAX_PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (int i = 0; i < n_file; i++)
        if (strcmp(files[i], path) == 0) return files[i];
    assert_true(n_file < MAX_FILES);
    memcpy(files[n_file], path, sizeof path);
    return files[n_file++];
}

char *rig_source_file(const char *name) {
    const char *root = getenv("TANDEM_SOURCE_ROOT");
    char *path = malloc(MAX_PATH);
    assert_non_null(path);
    snprintf(path, MAX_PATH, "%s/%s", root != NULL ? root : ".", name);
    if (access(path, R_OK) == 0) return path;
    free(path);
    return NULL;
}

int rig_spawn(const char *const *argv) {
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = -1;
    if (posix_spawn_file_actions_init(&actions) != 0) return -1;
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ) == 0)
        waitpid(pid, &status, 0);
    posix_spawn_file_actions_destroy(&actions);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- Models ---- */

llm_model *rig_model(const char *path, tdm_open_device *dev) {
    llm_model *model = NULL;
    tdm_error err = {0};
    RIG_OK(llm_model_open(path, &model, &err));
    if (llm_model_load(model, runtime, &dev, 1, NULL, NULL, &err) != TDM_OK) {
        llm_model_close(model);
        fail_msg("%s", err.message);
    }
    return model;
}

llm_context *rig_context(llm_model *model, const llm_context_params *params) {
    static const tdm_type f32 = TDM_TYPE_F32;
    llm_context_params p = {.struct_size = sizeof p};
    llm_context *ctx = NULL;
    tdm_error err = {0};
    if (params != NULL) p = *params;
    if (p.type_k == NULL) p.type_k = &f32;
    if (p.type_v == NULL) p.type_v = &f32;
    RIG_OK(llm_context_create(model, &p, &ctx, &err));
    return ctx;
}

void rig_decode(llm_context *ctx, const int32_t *tokens, int n_tok, int n_row, float *logits_out) {
    rig_decode_as(ctx, tokens, NULL, n_tok, n_row, logits_out);
}

void rig_decode_prompt(llm_context *ctx, const int32_t *tokens, int n_tok, int n_row,
                       float *logits_out) {
    uint8_t *roles = malloc((size_t)n_tok);
    assert_non_null(roles);
    memset(roles, TDM_ROLE_PROMPT, (size_t)n_tok);
    rig_decode_as(ctx, tokens, roles, n_tok, n_row, logits_out);
    free(roles);
}

void rig_decode_as(llm_context *ctx, const int32_t *tokens, const uint8_t *roles, int n_tok,
                   int n_row, float *logits_out) {
    size_t n_vocab = (size_t)llm_context_model(ctx)->hparams.n_vocab;
    tdm_error err = {0};
    bool *wanted = malloc((size_t)n_tok * sizeof *wanted);
    assert_non_null(wanted);
    for (int i = 0; i < n_tok; i++) wanted[i] = i >= n_tok - n_row;
    const llm_batch batch = {.tokens = tokens, .wanted = wanted, .n_tok = n_tok, .roles = roles};
    tdm_status status = llm_context_decode(ctx, &batch, &err);
    free(wanted);
    if (status != TDM_OK) fail_msg("%s", err.message);
    for (int i = 0; i < n_row; i++)
        memcpy(logits_out + (size_t)i * n_vocab, llm_context_logits(ctx, i),
               n_vocab * sizeof *logits_out);
    assert_null(llm_context_logits(ctx, n_row));
}

/* ---- Numbers ---- */

void rig_softmax(float *rows, int n_row, int n_vocab) {
    for (float *x = rows; x < rows + (size_t)n_row * (size_t)n_vocab; x += n_vocab) {
        float max = x[0];
        double sum = 0;
        for (int i = 1; i < n_vocab; i++) max = x[i] > max ? x[i] : max;
        for (int i = 0; i < n_vocab; i++) sum += exp((double)(x[i] - max));
        for (int i = 0; i < n_vocab; i++) x[i] = (float)(exp((double)(x[i] - max)) / sum);
    }
}

double rig_nmse(const float *expected, const float *found, size_t n) {
    double difference = 0, energy = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)expected[i] - (double)found[i];
        difference += d * d;
        energy += (double)expected[i] * (double)expected[i];
    }
    double nmse = energy > 0 ? difference / energy : difference;
    return isfinite(nmse) ? nmse : (double)INFINITY;
}

static double log_sum(const float *x, int n) {
    float max = x[0];
    double sum = 0;
    for (int i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
    for (int i = 0; i < n; i++) sum += exp((double)(x[i] - max));
    return (double)max + log(sum);
}

double rig_kl(const float *expected, const float *found, int n_row, int n_vocab) {
    double kl = 0;
    for (int r = 0; r < n_row; r++, expected += n_vocab, found += n_vocab) {
        double le = log_sum(expected, n_vocab), lf = log_sum(found, n_vocab);
        for (int i = 0; i < n_vocab; i++) {
            double log_p = (double)expected[i] - le, log_q = (double)found[i] - lf;
            kl += exp(log_p) * (log_p - log_q);
        }
    }
    kl /= n_row;
    return isfinite(kl) ? kl : (double)INFINITY;
}

void rig_line_check(const char *what, const char *message) {
    if (message[0] == '\0' || strchr(message, '\n') != NULL)
        fail_msg("%s: the message is not one line: '%s'", what, message);
}
