/* SPDX-License-Identifier: MIT
 *
 * test_sessions.c: random whole sessions on random sets of devices. A seed chooses a tiny model,
 * devices or groups of them, a context, and operations on its sequences: batches, forks, shifts,
 * files, cancelled and refused calls, failures of members. Each operation must return what it
 * returns on one CPU device with the same cache: status, lengths, free pages and, within a bound,
 * logits. At the end each sequence of the CPU device is compared with the same computed afresh.
 *
 *   test_sessions                        the seeds of the list below
 *   test_sessions FIRST N [OPTION ...]   a campaign: N seeds from FIRST on
 *     -v                print every case
 *     --mask M, --path P, --cache T, --cpus
 *                       these operations only, path of CPU devices, type of K and V, CPU devices
 *                       alone: to examine a case
 *     --model NAME      of this model only
 *     --rough           more devices that refuse ops, and caches in host memory
 *     --cuda DRIVER, --hip DRIVER, --vulkan   every set of devices has such a one
 *
 * Each case runs in a process of its own, so that one that crashes or does not end in time is found
 * too. A case that fails is reduced: operations are left out as long as it fails.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "llm/quantize/quantize.h"
#include "tests/model/lora_file.h"
#include "tests/model/noise_file.h"
#include "tests/model/preset.h"
#include "tests/model/session_run.h"

/* Seeds of the test. */
static const struct {
    uint64_t seed;
    int n;
#ifdef TANDEM_SANITIZED
} listed[] = {{13, 10}};
#else
} listed[] = {{1, 40}};
#endif

/* A case of few operations, to be spoiled. Its model is one of tests/model/archs, which every
 * checkout has. */
enum { SPOILED_SEED = 4 };
/* A case that takes longer is taken for one that does not end. */
enum { CASE_SECONDS = 600 };

static arch_scene scene;
static session_choice choice;
static bool is_verbose, is_spoiled;
/* What the command line sets instead of what the seed chooses; NULL or 0 = nothing. */
static struct {
    const char *path, *cache;
    uint64_t mask;
    bool all_cpu;
} given;

/* ---- Judging --------------------------------------------------------------------------------- */

/* NMSE of a row. Where the cache has few bits, a difference in the last bit of a number can become
 * a whole step of the type. */
static double bound_of(const session_case *c, const char *path) {
    const bool is_fast = strcmp(path, "fast") == 0;
    const tdm_type types[] = {c->type_k, c->type_v};
    double bound = c->has_layer_types ? (is_fast ? 1e-4 : 1e-5) : is_fast ? 1e-7 : 1e-9;
    for (int i = 0; i < 2; i++) {
        const bool has_8_bits = types[i] == TDM_TYPE_BF16 || types[i] == TDM_TYPE_Q8_0;
        const double own = types[i] == TDM_TYPE_F32   ? 0
                           : types[i] == TDM_TYPE_F16 ? 1e-8
                           : has_8_bits               ? 1e-6
                                                      : 1e-5;
        if (own * (is_fast ? 10 : 1) > bound) bound = own * (is_fast ? 10 : 1);
    }
    /* Cards may round q, K, V and the weights of the softmax to f16. */
    if (choice.has_cuda || choice.has_hip || choice.has_vulkan) bound *= 100;
    return bound;
}

typedef enum verdict { GOOD, INEXACT, BAD } verdict;

static bool is_same_record(const session_record *a, const session_record *b, bool is_injected) {
    return a->status == b->status && a->n_value == b->n_value &&
           memcmp(a->values, b->values, sizeof a->values) == 0 &&
           memcmp(a->lengths, b->lengths, sizeof a->lengths) == 0 &&
           (a->n_free == b->n_free || is_injected) && a->n_row == b->n_row &&
           a->row_len == b->row_len;
}

static void record_print(const char *whose, const session_record *r) {
    printf("  %s: %s %s; lengths %d %d %d %d, %d free, %d rows of %d, %d values %d\n", whose,
           tdm_status_text(r->status), r->message, r->lengths[0], r->lengths[1], r->lengths[2],
           r->lengths[3], r->n_free, r->n_row, r->row_len, r->n_value, r->values[0]);
}

static const char *op_words(const session_case *c, int i) {
    static char text[64];
    snprintf(text, sizeof text, "operation %d, %s", i,
             i < c->n_op ? session_op_name(c->ops[i].kind) : "the end");
    return text;
}

/* Compares what the devices did (`got`) with what one CPU device did. */
static verdict records_judge(const session_case *c, const session_trace *want,
                             const session_trace *got, double bound, double *worst) {
    verdict v = GOOD;
    for (int i = 0; i < want->n_record && i < got->n_record; i++) {
        const session_record *a = &want->records[i], *b = &got->records[i];
        if (b->is_injected) continue;
        if (!is_same_record(a, b, got->is_injected)) {
            printf("WRONG: %s\n", op_words(c, i));
            record_print("the devices", b);
            record_print("one CPU", a);
            return BAD;
        }
        for (int k = 0; k < a->n_row; k++) {
            const size_t at = (size_t)k * (size_t)a->row_len;
            const double nmse = rig_nmse(want->rows + a->row_at + at, got->rows + b->row_at + at,
                                         (size_t)a->row_len);
            if (!(nmse <= *worst)) *worst = nmse;
            if (nmse <= bound || v == INEXACT) continue;
            printf("%s: row %d of %d: NMSE %.1e, bound %.1e\n", op_words(c, i), k, a->n_row, nmse,
                   bound);
            v = INEXACT;
        }
        const struct {
            const char *what;
            size_t want_at, got_at;
            int n;
        } more[] = {{"hidden state", a->hidden_at, b->hidden_at, a->hidden_len},
                    {"the other context", a->other_at, b->other_at, a->other_len}};
        for (int k = 0; k < 2; k++) {
            if (more[k].n == 0) continue;
            const double nmse = rig_nmse(want->rows + more[k].want_at, got->rows + more[k].got_at,
                                         (size_t)more[k].n);
            if (!(nmse <= *worst)) *worst = nmse;
            if (nmse <= bound || v == INEXACT) continue;
            printf("%s: %s: NMSE %.1e, bound %.1e\n", op_words(c, i), more[k].what, nmse, bound);
            v = INEXACT;
        }
    }
    return v;
}

/* The file with its matrices quantised. */
static const char *quantized_file(const char *file, const char *name) {
    const llm_quantize_kind *kind = llm_quantize_kind_find(name);
    const char *path = rig_file("quantized.gguf");
    tdm_error err = {0};
    llm_gguf *g = NULL;
    assert_non_null(kind);
    RIG_OK(llm_gguf_open(file, &g, &err));
    llm_quantize_choice *choices = calloc((size_t)llm_gguf_tensor_count(g) + 1, sizeof *choices);
    assert_non_null(choices);
    RIG_OK(llm_quantize_choose(g, kind, false, false, choices, &err));
    RIG_OK(llm_quantize_write(g, kind, choices, NULL, path, 1, NULL, NULL, &err));
    free(choices);
    llm_gguf_close(g);
    return path;
}

static const char *model_file(const session_case *c) {
    if (c->is_preset) {
        random_model_spec spec = preset_find(c->model);
        spec.type = c->weights;
        return preset_file("session.gguf", &spec);
    }
    const char *file = NULL;
    for (int i = 0; i < scene.n_fixture; i++)
        if (strcmp(scene.fixtures[i].name, c->model) == 0)
            file = arch_scene_model(&scene, &scene.fixtures[i]);
    return file != NULL && c->quantized != NULL ? quantized_file(file, c->quantized) : file;
}

static void adapters_make(const session_case *c, const char *file) {
    for (int i = 0; i < c->n_adapter; i++) {
        const lora_spec spec = {.rank = 3 + 2 * i,
                                .alpha = i == 0 ? 8 : 0,
                                .strength = 0.3f,
                                .type = i == 0 ? TDM_TYPE_F32 : TDM_TYPE_F16,
                                .seed = i + 1};
        char name[32];
        snprintf(name, sizeof name, "adapter-%d.gguf", i);
        lora_file_write(file, &spec, rig_file(name));
    }
}

/* Runs a case with CPU devices of that path. */
static verdict path_run(const session_case *c, const char *file, const char *path, double *worst,
                        bool *is_quantized) {
    session_trace got, want = {0};
    verdict v = GOOD;
    *worst = 0;
    session_run(c, file, path, NULL, &got);
    if (got.problem[0] != 0 && !got.is_refused) {
        printf("WRONG: %s: %s\n", op_words(c, got.problem_at), got.problem);
        v = BAD;
    } else if (!got.is_refused || got.n_record > 0) {
        session_run(c, file, path, &got, &want);
        if (want.problem[0] != 0 && !got.is_refused) {
            printf("WRONG: %s on one CPU: %s\n", op_words(c, want.problem_at), want.problem);
            v = BAD;
        }
    }
    const double bound = bound_of(c, path);
    if (v == GOOD) v = records_judge(c, &want, &got, bound, worst);
    /* The reference path computes equal bits whatever came before. */
    if (v == GOOD && !(want.fresh_nmse <= (strcmp(path, "fast") == 0 ? 100 * bound : 0))) {
        printf("the end: NMSE %.1e to the sequence computed afresh\n", want.fresh_nmse);
        v = strcmp(path, "fast") == 0 ? INEXACT : BAD;
    }
    if (is_verbose)
        printf("seed %llu %s%s K %s V %s %s%s%s: nmse %.1e fresh %.1e%s%s%s | %s\n",
               (unsigned long long)c->seed, c->model, c->quantized != NULL ? " quantized" : "",
               tdm_type_name(c->type_k), tdm_type_name(c->type_v), path,
               want.is_recurrent ? " recurrent" : "", want.has_experts ? " experts" : "", *worst,
               want.fresh_nmse, got.is_injected ? " injected" : "",
               got.is_refused ? " refused: " : "", got.is_refused ? got.problem : "",
               session_place_words(&c->places[0]));
    *is_quantized = got.is_quantized;
    session_trace_free(&got);
    session_trace_free(&want);
    return v;
}

/* The rounding of devices that round more than a CPU does: relative, of one number; 0 = none is
 * there. Cards round q, K, V and p to f16; exchanges round addends to their type. */
static double rounding_of(const session_case *c) {
    double most = choice.has_cuda || choice.has_hip || choice.has_vulkan ? 5e-4 : 0;
    for (int i = 0; i < 2; i++) {
        const char *type = c->places[i].reduce_type;
        const double own = !c->places[i].is_group || strcmp(type, "f32") == 0 ? 0
                           : strcmp(type, "f16") == 0                         ? 5e-4
                           : strcmp(type, "bf16") == 0                        ? 4e-3
                                                                              : 8e-3;
        if (own > most) most = own;
    }
    return most;
}

/* How far results of one CPU are apart, the worst NMSE of a row: those that add in another order
 * (the fast path's beside the reference path's), and those of embeddings with noise of that
 * rounding. */
static double sensitivity_of(const session_case *c, const char *file, double rounding) {
    enum { N_NOISE = 6 };
    static const session_trace none;
    session_trace a, b;
    double worst = 0;
    session_run(c, file, "reference", &none, &a);
    for (int seed = 0; seed <= (rounding > 0 ? N_NOISE : 0); seed++) {
        const char *copy = rig_file("noise.gguf");
        if (seed > 0) noise_file_write(file, copy, rounding, seed);
        session_run(c, seed > 0 ? copy : file, seed > 0 ? "reference" : "fast", &none, &b);
        records_judge(c, &a, &b, INFINITY, &worst);
        session_trace_free(&b);
    }
    session_trace_free(&a);
    return worst;
}

/* Runs a case in this process; whether it is good. Where the fast path is not exact enough, the
 * reference path must be: a router or a selection may be so near a tie that the rounding of
 * activations decides. Where that is not either, a cache in blocks, and devices that round more
 * than a CPU, may be as far off as one CPU is from itself with additions in another order, or with
 * noise of that rounding. */
static bool case_run(const session_case *c) {
    const char *file = model_file(c);
    double worst = 0;
    bool is_quantized = false;
    if (file == NULL) {
        printf("SKIPPED: seed %llu: %s has no header\n", (unsigned long long)c->seed, c->model);
        return true;
    }
    adapters_make(c, file);
    verdict v = path_run(c, file, c->path, &worst, &is_quantized);
    if (v == INEXACT && strcmp(c->path, "fast") == 0)
        v = path_run(c, file, "reference", &worst, &is_quantized);
    if (v != INEXACT) return v == GOOD;
    /* A step of 4 or 5 bits that differs can choose other experts or other tokens. */
    const double rounding = rounding_of(c);
    const double usual = 4 * sensitivity_of(c, file, rounding), least = is_quantized ? 5e-3 : 0;
    const bool is_good = is_quantized   ? worst <= fmax(usual, least)
                         : rounding > 0 ? worst <= usual
                                        : worst <= fmin(usual, 1e-5);
    printf("%s: NMSE %.1e, on one CPU with additions in another order%s %.1e\n",
           is_good ? "inexact" : "WRONG", worst, rounding > 0 ? " and noise" : "", usual / 4);
    return is_good;
}

/* ---- Processes ------------------------------------------------------------------------------- */

static int entry_remove(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void case_make(session_case *c, uint64_t seed) {
    session_case_make(c, &scene, &choice, seed);
    if (given.path != NULL) c->path = given.path;
#define KV_TYPE(ID, name)                                                                          \
    if (given.cache != NULL && strcmp(given.cache, #name) == 0)                                    \
        c->type_k = c->type_v = TDM_TYPE_##ID;
    TDM_KV_TYPE_LIST(KV_TYPE)
#undef KV_TYPE
    for (int i = 0; given.all_cpu && i < 2 * SESSION_MAX_MEMBER; i++)
        c->places[i % 2].members[i / 2] = SESSION_CPU;
}

/* Runs the operations of `mask` of a seed in a process; whether they are good. */
static bool seed_run(uint64_t seed, uint64_t mask, bool is_quiet) {
    static session_case c;
    char folder[] = "/tmp/tandem-session-XXXXXX";
    int status = 0;
    case_make(&c, seed);
    c.is_spoiled = is_spoiled;
    session_case_keep(&c, mask);
    if (mkdtemp(folder) == NULL) return false;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid < 0) {
        rmdir(folder);
        return false;
    }
    if (pid == 0) {
        const int null = open("/dev/null", O_WRONLY), out = dup(STDOUT_FILENO);
        dup2(null, STDOUT_FILENO); /* rig_begin says what the machine lacks: once would be enough */
        if (is_quiet) dup2(null, STDERR_FILENO);
        alarm(CASE_SECONDS);
        setenv("TMPDIR", folder, 1);
        bool is_good = rig_begin(NULL) == 0;
        fflush(stdout);
        if (!is_quiet) dup2(out, STDOUT_FILENO);
        is_good = is_good && case_run(&c);
        rig_end(NULL);
        exit(is_good ? 0 : 1);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    nftw(folder, entry_remove, 16, FTW_DEPTH | FTW_PHYS);
    if (WIFSIGNALED(status) && !is_quiet)
        printf("WRONG: %s\n",
               WTERMSIG(status) == SIGALRM ? "does not end" : strsignal(WTERMSIG(status)));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Leaves out operations as long as the case fails; the mask of those that are left. */
static uint64_t seed_reduce(uint64_t seed) {
    static session_case c;
    case_make(&c, seed);
    uint64_t mask = (UINT64_C(1) << c.n_op) - 1;
    if (given.mask != 0) mask &= given.mask;
    for (int size = c.n_op / 2; size > 0; size /= 2)
        for (int at = c.n_op - size; at > -size; at -= size) {
            const int from = at > 0 ? at : 0;
            const uint64_t out = ((UINT64_C(1) << (at + size - from)) - 1) << from;
            if ((mask & out) != 0 && !seed_run(seed, mask & ~out, true)) mask &= ~out;
        }
    return mask;
}

static void reduced_print(uint64_t seed) {
    static session_case c;
    const uint64_t mask = seed_reduce(seed);
    case_make(&c, seed);
    session_case_keep(&c, mask);
    printf("reduced to operations %#llx:\n", (unsigned long long)mask);
    session_case_print(&c);
    seed_run(seed, mask, false);
}

/* A case whose devices get another token fails, and is reduced to one batch. */
static bool spoiled_is_found(uint64_t seed) {
    is_spoiled = true;
    const bool is_found = !seed_run(seed, UINT64_MAX, true);
    const int n_left = is_found ? __builtin_popcountll(seed_reduce(seed)) : 0;
    is_spoiled = false;
    if (!is_found || n_left != 1)
        printf("WRONG: a spoiled case is%s found, and reduced to %d operations\n",
               is_found ? "" : " not", n_left);
    return is_found && n_left == 1;
}

static int seeds_run(uint64_t first, int n) {
    int n_bad = 0;
    for (uint64_t seed = first; seed < first + (uint64_t)n; seed++) {
        if (seed_run(seed, given.mask != 0 ? given.mask : UINT64_MAX, false)) continue;
        n_bad++;
        printf("seed %llu fails\n", (unsigned long long)seed);
        reduced_print(seed);
    }
    return n_bad;
}

int main(int argc, char **argv) {
    int n_bad = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!arch_scene_read(&scene)) return 1;
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "-v") == 0) is_verbose = true;
        if (strcmp(argv[i], "--vulkan") == 0) choice.has_vulkan = true;
        if (strcmp(argv[i], "--rough") == 0) choice.is_rough = true;
        if (strcmp(argv[i], "--cpus") == 0) given.all_cpu = true;
        if (i + 1 == argc) break;
        if (strcmp(argv[i], "--model") == 0) choice.model = argv[i + 1];
        if (strcmp(argv[i], "--mask") == 0) given.mask = strtoull(argv[i + 1], NULL, 0);
        if (strcmp(argv[i], "--path") == 0) given.path = argv[i + 1];
        if (strcmp(argv[i], "--cache") == 0) given.cache = argv[i + 1];
        if (strcmp(argv[i], "--cuda") == 0) session_cuda_driver = argv[i + 1];
        if (strcmp(argv[i], "--hip") == 0) session_hip_driver = argv[i + 1];
    }
    choice.has_cuda = session_cuda_driver != NULL;
    if (choice.has_cuda) setenv("TANDEM_SIMT_DEVICES", "4", 1);
    choice.has_hip = session_hip_driver != NULL;
    if (argc >= 3) {
        n_bad = seeds_run(strtoull(argv[1], NULL, 0), atoi(argv[2]));
    } else {
        for (size_t i = 0; i < sizeof listed / sizeof *listed; i++)
            n_bad += seeds_run(listed[i].seed, listed[i].n);
        n_bad += !spoiled_is_found(SPOILED_SEED);
    }
    printf("%d cases fail\n", n_bad);
    return n_bad > 0;
}
