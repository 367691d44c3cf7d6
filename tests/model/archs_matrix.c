/* SPDX-License-Identifier: MIT
 *
 * archs_matrix.c: the whole matrix of the fixtures of archs.txt, of which test `archs` and the
 * tests of GPU plugins run a covering set. tests/archs.sh runs all of it. One test for each
 * fixture; at the end the worst NMSE.
 *
 *   archs_matrix write FOLDER [--seed N] [NAME ...]
 *       writes the models there, NAME.gguf
 *   archs_matrix peer [--seed N] [--logits FOLDER] [NAME ...]
 *       one CPU device beside llama.cpp's logits in FOLDER (NAME.f32), f32 cache: in one batch,
 *       token by token and in ubatches of 7
 *   archs_matrix groups [NAME ...]
 *       2 and 3 CPU members, even and uneven shares and one of zero, beside one device with the
 *       same cache: f32, q8_0, K q8_0 and V q4_0, q4_0; K and V have one type where a cache is
 *       latent
 *   archs_matrix vulkan|cuda|hip [--driver FILE] [NAME ...]
 *       such a device, and a group of it and the CPU, beside llama.cpp's logits with an f32 cache;
 *       and the device with a quantised cache beside the CPU, with and without matrix hardware
 *       where it has any. FILE is the driver of CUDA or HIP (tests/simt).
 */
#include <math.h>
#include <string.h>

#include "core/runtime.h"
#include "tests/model/arch_scene.h"
#include "tests/model/group_device.h"
#include "tests/model/noise_file.h"

/* Only the order of additions differs. */
#define BOUND 1e-5
/* With a cache of 4 bits: an element may round to the next code. */
#define BOUND_4_BIT 1e-4
/* With a quantised cache on matrix hardware, which rounds queries and p to f16: an element of 8
 * bits may round to the next code too. */
#define BOUND_MATRIX 1e-4
/* Where a number lies beside the border between two codes, rounding makes it another code. A model
 * of many layers, or one that selects tokens, makes that difference much larger. Such a model is
 * bounded by how far the CPU's own results with that cache move where its embeddings change by
 * noise: the worst of NOISE_RUNS runs, times NOISE_BOUND. The noise of f32 is 100 times its
 * rounding, so that few runs find such numbers; it changes results with an f32 cache by 1e-10. That
 * of f16 is its rounding. */
#define NOISE       1e-5
#define NOISE_F16   5e-4
#define NOISE_RUNS  10
#define NOISE_BOUND 4

static arch_scene scene;
static const char *plugin, *driver; /* of the GPU mode */
static double worst;                /* NMSE of all comparisons */
static int n_compared, n_fixture_good, n_fixture_run;

typedef struct cache_types {
    const char *name;
    tdm_type k, v;
} cache_types;

static const cache_types caches[] = {
    {"f32", TDM_TYPE_F32, TDM_TYPE_F32},
    {"q8_0", TDM_TYPE_Q8_0, TDM_TYPE_Q8_0},
    {"q8_0/q4_0", TDM_TYPE_Q8_0, TDM_TYPE_Q4_0},
    {"q4_0", TDM_TYPE_Q4_0, TDM_TYPE_Q4_0},
};
enum { F32_CACHE = 0, Q8_CACHE = 1, MIXED_CACHE = 2, N_CACHE = sizeof caches / sizeof *caches };

static double bound_of(const cache_types *c) {
    return c->v == TDM_TYPE_Q4_0 ? BOUND_4_BIT : BOUND;
}

/* Counts a comparison and prints it where it exceeds the bound; whether it keeps it. */
static bool judge(const char *name, const char *what, double nmse, double bound) {
    n_compared++;
    if (!(nmse <= worst)) worst = nmse;
    if (!(nmse <= bound)) print_message("EXCEEDS %s, %s: %.1e\n", name, what, nmse);
    return nmse <= bound;
}

static void count(bool is_good) {
    n_fixture_run++;
    n_fixture_good += is_good;
    assert_true(is_good);
}

/* ---- Beside llama.cpp ------------------------------------------------------------------------ */

static double peer_nmse(const arch_fixture *f, llm_model *model, int n_ubatch, int n_each) {
    float *rows = arch_scene_rows(model);
    arch_scene_logits(&scene, model, NULL, NULL, n_ubatch, n_each, rows);
    double nmse = arch_scene_nmse(&scene, f, model, rows);
    free(rows);
    return nmse;
}

/* How many tokens keep the bound before the first that does not. */
static int n_good(const arch_fixture *f, llm_model *model) {
    float *rows = arch_scene_rows(model);
    int n = scene.n_compared;
    arch_scene_logits(&scene, model, NULL, NULL, ARCH_N_TOK, ARCH_N_TOK, rows);
    for (; scene.n_compared > 0; scene.n_compared--)
        if (arch_scene_nmse(&scene, f, model, rows) <= BOUND) break;
    free(rows);
    int found = scene.n_compared;
    scene.n_compared = n;
    return found;
}

static bool three_ways(const arch_fixture *f, llm_model *model, const char *device) {
    double batch = peer_nmse(f, model, ARCH_N_TOK, ARCH_N_TOK), single = 0, ubatch = 0;
    char what[96];
    if (!model->hparams.is_bidirectional) {
        single = peer_nmse(f, model, ARCH_N_TOK, 1);
        ubatch = peer_nmse(f, model, 7, ARCH_N_TOK);
    }
    print_message("%s, %s: batch %.1e, single %.1e, ubatches of 7 %.1e\n", f->name, device, batch,
                  single, ubatch);
    snprintf(what, sizeof what, "%s against llama.cpp", device);
    if (judge(f->name, what, fmax(batch, fmax(single, ubatch)), BOUND)) return true;
    print_message("the first %d tokens keep the bound\n", n_good(f, model));
    return false;
}

/* The decay factors of some random weights are above 1, so the values behind a scan grow until
 * their squares are beyond f32. llama.cpp computes these squares in f32, and its norm is 0 from
 * then on. The tokens before are compared. */
static int n_compared_of(const arch_fixture *f) {
    static const struct {
        const char *name;
        int seed, n_tok;
    } growing[] = {{"mamba2-dense", 3, 42},
                   {"nemotron_h-dense", 3, 46},
                   {"nemotron_h_moe-dense", 3, 46},
                   {"granitehybrid-dense", 3, 45},
                   {"falcon-h1-dense", 3, 39}};
    for (size_t i = 0; i < sizeof growing / sizeof *growing; i++)
        if (strcmp(growing[i].name, f->name) == 0 && growing[i].seed == scene.seed)
            return growing[i].n_tok;
    return ARCH_N_TOK;
}

static const char *model_file(const arch_fixture *f) {
    const char *path = arch_scene_model(&scene, f);
    if (path != NULL) return path;
    print_message("SKIPPED: %s: its header is not there\n", f->name);
    skip();
    return NULL;
}

static void peer_test(void **state) {
    const arch_fixture *f = *state;
    llm_model *model = rig_model(model_file(f), rig_device(NULL, "reference", 2));
    /* Of other seeds ../archs.sh gets logits alone, and an encoder has none. */
    if (model->arch->is_encoder && !arch_scene_has_logits(&scene, f)) {
        print_message("%s: skipped, %s has no hidden states of it\n", f->name, scene.logits_folder);
        llm_model_close(model);
        skip();
    }
    scene.n_compared = n_compared_of(f);
    bool is_good = three_ways(f, model, "CPU");
    llm_model_close(model);
    count(is_good);
}

/* ---- Caches ---------------------------------------------------------------------------------- */

static void cache_logits(llm_model *model, const cache_types *c, float *rows) {
    const int n_ubatch = model->hparams.is_bidirectional ? ARCH_N_TOK : 7;
    arch_scene_logits(&scene, model, &c->k, &c->v, n_ubatch, ARCH_N_TOK, rows);
}

/* Logits on one CPU device with each cache; those of another K and V are NULL where there is one
 * type. The caller frees them. */
static void cache_expect(const char *path, float *rows_out[N_CACHE]) {
    llm_model *model = rig_model(path, rig_device(NULL, "reference", 2));
    bool is_latent = arch_scene_is_latent(model);
    for (int c = 0; c < N_CACHE; c++) {
        rows_out[c] = NULL;
        if (is_latent && caches[c].k != caches[c].v) continue;
        rows_out[c] = arch_scene_rows(model);
        cache_logits(model, &caches[c], rows_out[c]);
    }
    llm_model_close(model);
}

static bool cache_compare(const arch_fixture *f, llm_model *model, const char *device,
                          float *const expected[N_CACHE]) {
    float *found = arch_scene_rows(model);
    bool is_good = true;
    for (int c = 0; c < N_CACHE; c++) {
        char what[320];
        if (expected[c] == NULL) continue;
        snprintf(what, sizeof what, "%s, cache %s", device, caches[c].name);
        cache_logits(model, &caches[c], found);
        double nmse = rig_nmse(expected[c], found, ARCH_N_TOK * arch_scene_row_len(model));
        is_good = judge(f->name, what, nmse, bound_of(&caches[c])) && is_good;
    }
    free(found);
    return is_good;
}

static void cache_free(float *rows[N_CACHE]) {
    for (int c = 0; c < N_CACHE; c++) free(rows[c]);
}

/* ---- Groups of CPUs -------------------------------------------------------------------------- */

static const group_config groups[] = {
    {.n_member = 2, .path = "reference"},
    {.n_member = 2, .path = "reference", .shares = "5,2"},
    {.n_member = 2, .path = "reference", .shares = "0,1"},
    {.n_member = 3, .path = "reference"},
    {.n_member = 3, .path = "reference", .shares = "5,2,1"},
    {.n_member = 3, .path = "reference", .shares = "3,0,2"},
};
enum { N_GROUP = sizeof groups / sizeof *groups };

static void groups_test(void **state) {
    const arch_fixture *f = *state;
    const char *path = model_file(f);
    float *expected[N_CACHE];
    bool is_good = true;
    cache_expect(path, expected);
    for (int g = 0; g < N_GROUP; g++) {
        llm_model *model = rig_model(path, group_device(&groups[g]));
        is_good = cache_compare(f, model, group_words(&groups[g]), expected) && is_good;
        llm_model_close(model);
    }
    cache_free(expected);
    count(is_good);
}

/* ---- GPU devices ----------------------------------------------------------------------------- */

static tdm_open_device *device_open(const char *name, const char *of, const tdm_option *options,
                                    int n_option) {
    const tdm_device_spec spec = {name, of, 0, options, n_option};
    tdm_open_device *dev = NULL;
    tdm_error err = {0};
    if (tdm_runtime_open(rig_runtime(), name, &dev, &err) == TDM_OK) return dev;
    RIG_OK(tdm_runtime_declare(rig_runtime(), &spec, &err));
    RIG_OK(tdm_runtime_open(rig_runtime(), name, &dev, &err));
    return dev;
}

/* NULL with a message where there is no Vulkan driver. */
static tdm_open_device *gpu_device(void) {
    const bool is_vulkan = strcmp(plugin, "vulkan") == 0;
    const tdm_option option = {is_vulkan ? "allow-cpu" : "driver", is_vulkan ? "yes" : driver};
    const tdm_device_spec spec = {"gpu", plugin, 0, &option, option.value != NULL};
    tdm_open_device *dev = NULL;
    tdm_error err = {0};
    tdm_runtime_declare(rig_runtime(), &spec, NULL); /* may be there already */
    if (tdm_runtime_open(rig_runtime(), "gpu", &dev, &err) == TDM_OK) return dev;
    if (!is_vulkan) fail_msg("%s", err.message);
    print_message("SKIPPED: %s\n", err.message);
    return NULL;
}

/* The same without matrix hardware; NULL where it has none in any case. */
static tdm_open_device *gpu_plain_device(void) {
    const tdm_option options[] = {{"driver", driver}, {"matrix", "no"}};
    return driver != NULL ? device_open("gpu-plain", plugin, options, 2) : NULL;
}

static tdm_open_device *cpu_device(void) {
    const tdm_option options[] = {{"path", "reference"}, {"threads", "2"}};
    return device_open("cpu", "cpu", options, 2);
}

/* Loads with the CPU behind the device, as the program does: it runs what the device does not. */
static llm_model *gpu_model(const char *path, tdm_open_device *dev) {
    tdm_open_device *devs[] = {dev, cpu_device()};
    llm_model *model = NULL;
    tdm_error err = {0};
    RIG_OK(llm_model_open(path, &model, &err));
    if (llm_model_load(model, rig_runtime(), devs, 2, NULL, NULL, &err) != TDM_OK) {
        llm_model_close(model);
        fail_msg("%s", err.message);
    }
    return model;
}

static tdm_open_device *gpu_group(void) {
    const tdm_option options[] = {{"members", "gpu,cpu"}, {"share", "5,2"}};
    gpu_device();
    cpu_device();
    return device_open("gpu-cpu", "meta", options, 2);
}

/* Logits of 42 tokens in ubatches of 7 and of 6 tokens one by one: the kernels of prompts and of
 * steps. */
static void steps_logits(llm_model *model, const cache_types *c, float *rows) {
    enum { N_PROMPT = 42 };
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 512,
                                       .n_ubatch = 7,
                                       .page_len = ARCH_PAGE_LEN,
                                       .type_k = &c->k,
                                       .type_v = &c->v,
                                       .begins_decoder = true};
    if (model->hparams.is_bidirectional) {
        cache_logits(model, c, rows);
        return;
    }
    llm_context *ctx = rig_context(model, &params);
    const int first = arch_scene_first(&scene, model);
    memset(rows, 0, (size_t)(first * model->hparams.n_vocab) * sizeof *rows);
    rig_decode(ctx, scene.tokens, N_PROMPT, N_PROMPT - first,
               rows + first * model->hparams.n_vocab);
    for (int i = N_PROMPT; i < ARCH_N_TOK; i++)
        rig_decode(ctx, scene.tokens + i, 1, 1, rows + i * model->hparams.n_vocab);
    llm_context_destroy(ctx);
}

/* Beside llama.cpp with an f32 cache. */
static bool steps_compare(const arch_fixture *f, llm_model *model, const char *what) {
    float *rows = arch_scene_rows(model);
    steps_logits(model, &caches[F32_CACHE], rows);
    double nmse = arch_scene_nmse(&scene, f, model, rows);
    print_message("%s, %s: %.1e\n", f->name, what, nmse);
    free(rows);
    return judge(f->name, what, nmse, BOUND);
}

/* The NMSE of all tokens; of a model that selects tokens, without the N_FLIP worst ones, which are
 * printed where they differ by much more than rounding. Where a code of the index is another one,
 * two scores that are nearly equal may change places, and a token attends to another one. */
static double rows_nmse(const arch_fixture *f, const llm_model *model, float *expected,
                        float *found) {
    enum { N_FLIP = 2 };
    const size_t len = arch_scene_row_len(model);
    for (int flip = 0; flip < N_FLIP && model->hparams.n_select > 0; flip++) {
        int at = 0;
        double most = -1;
        for (int t = 0; t < ARCH_N_TOK; t++) {
            double nmse = rig_nmse(expected + t * len, found + t * len, len);
            if (nmse > most) most = nmse, at = t;
        }
        if (most > BOUND_4_BIT)
            print_message("%s: token %d is left out with a quantised cache: %.1e\n", f->name, at,
                          most);
        memcpy(found + at * len, expected + at * len, len * sizeof *found);
    }
    return rig_nmse(expected, found, ARCH_N_TOK * len);
}

/* How far the CPU's results with this cache move by noise, the worst NMSE. */
static double noise_nmse(const arch_fixture *f, const char *path, const cache_types *c,
                         double strength, float *expected, float *found) {
    double most = 0;
    for (int seed = 1; seed <= NOISE_RUNS; seed++) {
        const char *copy = rig_file("noise.gguf");
        noise_file_write(path, copy, strength, seed);
        llm_model *model = rig_model(copy, rig_device(NULL, "reference", 2));
        steps_logits(model, c, found);
        most = fmax(most, rows_nmse(f, model, expected, found));
        llm_model_close(model);
    }
    print_message("%s: noise of %.0e moves the CPU's results by %.1e\n", f->name, strength, most);
    return most;
}

/* Beside the CPU with K of q8_0 and V of q4_0; of q8_0 where they have one type. */
static bool gpu_cache_compare(const arch_fixture *f, llm_model *model, const char *path,
                              bool has_matrices) {
    llm_model *one = rig_model(path, rig_device(NULL, "reference", 2));
    const cache_types *c = &caches[arch_scene_is_latent(one) ? Q8_CACHE : MIXED_CACHE];
    float *expected = arch_scene_rows(one), *found = arch_scene_rows(one);
    steps_logits(one, c, expected);
    steps_logits(model, c, found);
    const double nmse = rows_nmse(f, one, expected, found);
    steps_logits(one, &caches[F32_CACHE], found);
    const double effect = rig_nmse(found, expected, ARCH_N_TOK * arch_scene_row_len(one));
    double bound = has_matrices ? BOUND_MATRIX : bound_of(c);
    print_message("%s, quantised cache%s: %.1e, the quantisation itself %.1e\n", f->name,
                  has_matrices ? ", matrices" : "", nmse, effect);
    if (!(nmse <= bound)) {
        const double noise =
            noise_nmse(f, path, c, has_matrices ? NOISE_F16 : NOISE, expected, found);
        bound = fmax(bound, fmin(NOISE_BOUND * noise, effect));
    }
    free(expected);
    free(found);
    llm_model_close(one);
    return judge(f->name, has_matrices ? "quantised cache, matrices" : "quantised cache", nmse,
                 bound);
}

static void gpu_test(void **state) {
    const arch_fixture *f = *state;
    tdm_open_device *dev = gpu_device(), *plain = gpu_plain_device();
    const char *path = model_file(f);
    if (dev == NULL) skip();
    llm_model *model = gpu_model(path, dev);
    double batch = peer_nmse(f, model, ARCH_N_TOK, ARCH_N_TOK);
    bool is_good = judge(f->name, "in a batch", batch, BOUND);
    is_good = steps_compare(f, model, plugin) && is_good;
    is_good = gpu_cache_compare(f, model, path, plain != NULL) && is_good;
    llm_model_close(model);
    if (plain != NULL) {
        model = gpu_model(path, plain);
        is_good = gpu_cache_compare(f, model, path, false) && is_good;
        llm_model_close(model);
    }
    model = gpu_model(path, gpu_group());
    is_good = steps_compare(f, model, "in a group with the CPU") && is_good;
    llm_model_close(model);
    count(is_good);
}

/* ---- The program ----------------------------------------------------------------------------- */

static int models_write(const char *folder, char **names) {
    int n_written = 0;
    for (int i = 0; i < scene.n_fixture; i++) {
        char path[512];
        bool is_chosen = *names == NULL;
        for (char **n = names; *n != NULL; n++)
            is_chosen = is_chosen || strcmp(*n, scene.fixtures[i].name) == 0;
        snprintf(path, sizeof path, "%s/%s.gguf", folder, scene.fixtures[i].name);
        if (is_chosen) n_written += arch_scene_write(&scene, &scene.fixtures[i], path);
    }
    printf("%d models are in %s\n", n_written, folder);
    return n_written > 0 ? 0 : 1;
}

static int fixtures_run(CMUnitTestFunction test, char **names) {
    struct CMUnitTest tests[ARCH_MAX_FIXTURE];
    size_t n = 0;
    for (int i = 0; i < scene.n_fixture; i++) {
        arch_fixture *f = &scene.fixtures[i];
        bool is_chosen = *names == NULL && f->is_listed;
        for (char **name = names; *name != NULL; name++)
            is_chosen = is_chosen || strcmp(*name, f->name) == 0;
        if (is_chosen) tests[n++] = (struct CMUnitTest){f->name, test, NULL, NULL, f};
    }
    for (char **name = names; *name != NULL; name++) {
        bool is_there = false;
        for (size_t i = 0; i < n; i++) is_there = is_there || strcmp(tests[i].name, *name) == 0;
        if (!is_there) {
            fprintf(stderr, "%s: no such fixture in tests/model/archs.txt\n", *name);
            return 2;
        }
    }
    int n_failed = _cmocka_run_group_tests("fixtures", tests, n, rig_begin, rig_end);
    printf("%d of %d fixtures keep their bounds; %d comparisons, worst NMSE %.1e\n", n_fixture_good,
           n_fixture_run, n_compared, worst);
    return n_failed;
}

static int usage(void) {
    fprintf(stderr, "usage: archs_matrix write FOLDER | peer | groups | vulkan | cuda | hip\n"
                    "       [--seed N] [--logits FOLDER] [--driver FILE] [NAME ...]\n");
    return 2;
}

int main(int argc, char **argv) {
    char **at = argv + 2;
    const char *folder = NULL;
    if (argc < 2 || !arch_scene_read(&scene)) return usage();
    if (strcmp(argv[1], "write") == 0 && *at != NULL) folder = *at++;
    for (; *at != NULL && strncmp(*at, "--", 2) == 0; at += 2) {
        if (at[1] == NULL) return usage();
        if (strcmp(*at, "--seed") == 0)
            scene.seed = atoi(at[1]);
        else if (strcmp(*at, "--logits") == 0)
            scene.logits_folder = at[1];
        else if (strcmp(*at, "--driver") == 0)
            driver = at[1];
        else
            return usage();
    }
    plugin = argv[1];
    if (folder != NULL) return models_write(folder, at);
    if (strcmp(plugin, "peer") == 0) return fixtures_run(peer_test, at);
    if (strcmp(plugin, "groups") == 0) return fixtures_run(groups_test, at);
    if (strcmp(plugin, "vulkan") == 0 || strcmp(plugin, "cuda") == 0 || strcmp(plugin, "hip") == 0)
        return fixtures_run(gpu_test, at);
    return usage();
}
