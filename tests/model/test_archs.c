/* SPDX-License-Identifier: MIT
 *
 * test_archs.c: tiny models of every architecture (../shared/archs) against llama.cpp's logits with
 * an f32 cache: in one batch, token by token and in ubatches of 7; and over groups of 2 and 3
 * members with uneven shares. Where ../shared is absent, those of tests/model/archs, a few for each
 * family with the last rows of logits, are compared and the others skipped. archs.txt lists the
 * fixtures that must run; one that runs and is not listed fails, too.
 *
 * test_archs NAME ...: these fixtures only, with the error of each.
 */
#include <math.h>
#include <unistd.h>

#include "llm/arch/arch.h"
#include "tests/model/arch_fixture.h"
#include "tests/model/group_device.h"

enum { N_TOK = 48, MAX_FIXTURE = 200 };

/* Only the order of additions differs. */
#define BOUND 1e-5

typedef struct fixture {
    char name[48];
    bool is_listed;
} fixture;

static fixture fixtures[MAX_FIXTURE];
static int n_fixture;
static int32_t tokens[N_TOK];
static char **chosen;                          /* names from the command line, NULL = all */
static const char *folder = "../shared/archs"; /* of headers */
static const char *logits_folder = "../shared/archs/logits";

static FILE *source_open(const char *name) {
    char *path = rig_source_file(name);
    FILE *f = path != NULL ? fopen(path, "r") : NULL;
    free(path);
    return f;
}

static bool tokens_read(void) {
    int n = 0;
    FILE *f = source_open("../shared/archs/logits/tokens.txt");
    if (f == NULL) {
        folder = logits_folder = "tests/model/archs";
        f = source_open("tests/model/archs/tokens.txt");
        print_message("../shared/archs is not there: only fixtures of %s\n", folder);
    }
    while (f != NULL && n < N_TOK && fscanf(f, "%d%*[,]", &tokens[n]) == 1) n++;
    if (f != NULL) fclose(f);
    return n == N_TOK;
}

/* Lines of archs.txt: "NAME", those that must run, or "- NAME", those that do not run yet. */
static bool fixtures_read(void) {
    char line[128], sign[8], name[48];
    FILE *f = source_open("tests/model/archs.txt");
    while (f != NULL && fgets(line, sizeof line, f) != NULL && n_fixture < MAX_FIXTURE) {
        if (line[0] == '#' || line[0] == '\n') continue;
        bool is_missing = sscanf(line, "%7s %47s", sign, name) == 2 && strcmp(sign, "-") == 0;
        if (!is_missing && sscanf(line, "%47s", name) != 1) continue;
        snprintf(fixtures[n_fixture].name, sizeof fixtures[0].name, "%s", name);
        fixtures[n_fixture++].is_listed = !is_missing;
    }
    if (f != NULL) fclose(f);
    return n_fixture > 0;
}

static bool is_chosen(const fixture *f) {
    if (chosen == NULL) return true;
    for (char **c = chosen; *c != NULL; c++)
        if (strcmp(*c, f->name) == 0) return true;
    return false;
}

/* A file of the fixture; NULL where it is not there. The caller frees it. */
static char *fixture_file(const char *in, const fixture *f, const char *suffix) {
    char name[128];
    snprintf(name, sizeof name, "%s/%s.%s", in, f->name, suffix);
    return rig_source_file(name);
}

/* The model's file, valid until the next call; NULL where the fixture is not there. */
static const char *model_file(const fixture *f) {
    static const char *path;
    char *head = fixture_file(folder, f, "head");
    if (head == NULL) return NULL;
    if (path == NULL) path = rig_file("arch.gguf");
    unlink(path);
    if (!arch_fixture_write(head, f->name, 1, path)) fail_msg("%s: cannot be made", f->name);
    free(head);
    return path;
}

/* NMSE of rows [N_TOK, n_vocab] against llama.cpp's logits, which are those of the last tokens. */
static double peer_nmse(const fixture *f, const float *found, size_t n_vocab) {
    char *path = fixture_file(logits_folder, f, "f32");
    FILE *in = path != NULL ? fopen(path, "rb") : NULL;
    float *rows = malloc((N_TOK + 1) * n_vocab * sizeof *rows);
    assert_non_null(in);
    assert_non_null(rows);
    size_t n = fread(rows, sizeof *rows, (N_TOK + 1) * n_vocab, in);
    if (n == 0 || n % n_vocab != 0 || n > N_TOK * n_vocab)
        fail_msg("%s: %zu logits for %zu tokens of the vocabulary", f->name, n, n_vocab);
    double nmse = rig_nmse(rows, found + N_TOK * n_vocab - n, n);
    fclose(in);
    free(path);
    free(rows);
    return nmse;
}

/* Logits of all tokens, `n_each` of them in a batch. */
static void logits_of(llm_model *model, int n_ubatch, int n_each, float *rows) {
    const llm_context_params params = {
        .struct_size = sizeof params, .n_ctx = 512, .n_ubatch = n_ubatch};
    llm_context *ctx = rig_context(model, &params);
    for (int i = 0; i < N_TOK; i += n_each)
        rig_decode(ctx, tokens + i, n_each, n_each,
                   rows + (size_t)i * (size_t)model->hparams.n_vocab);
    llm_context_destroy(ctx);
}

typedef struct result {
    double batch, single, ubatch; /* NMSE */
} result;

static double worst(const result *r) {
    double w = r->batch > r->single ? r->batch : r->single;
    return w > r->ubatch ? w : r->ubatch;
}

/* Tokens that see later ones must be in one ubatch with them. */
static void split_refused(llm_model *model) {
    const llm_context_params params = {.struct_size = sizeof params, .n_ctx = 512, .n_ubatch = 7};
    llm_context *ctx = rig_context(model, &params);
    const llm_batch batch = {tokens, NULL, NULL, N_TOK};
    tdm_error err = {0};
    assert_int_equal(llm_context_decode(ctx, &batch, &err), TDM_UNSUPPORTED);
    assert_non_null(strstr(err.message, "ubatch-size"));
    llm_context_destroy(ctx);
}

/* Attention that would select tokens is refused beyond the contexts in which it selects all. */
static void select_refused(llm_model *model) {
    const int n_select = model->hparams.n_select;
    const llm_context_params params = {.struct_size = sizeof params, .n_ctx = n_select + 1};
    llm_context *ctx = NULL;
    tdm_error err = {0};
    char most[16];
    assert_in_range(llm_context_n_ctx_default(model), 1, n_select);
    assert_int_equal(llm_context_create(model, &params, &ctx, &err), TDM_UNSUPPORTED);
    snprintf(most, sizeof most, "%d", n_select);
    assert_non_null(strstr(err.message, most));
}

/* Under a sanitizer a listed fixture of number i runs in ubatches, and every third one in a batch
 * or token by token too: a fixture's graph is built by the same code in all three. */
static bool way_is_left_out(const fixture *f, int i, int rest) {
#ifdef TANDEM_SANITIZED
    return f->is_listed && chosen == NULL && i % 3 != rest;
#else
    (void)f, (void)i, (void)rest;
    return false;
#endif
}

static result compare(const fixture *f, int i, llm_model *model) {
    const size_t n_vocab = (size_t)model->hparams.n_vocab;
    float *found = malloc(N_TOK * n_vocab * sizeof *found);
    result r = {0};
    assert_non_null(found);
    if (model->hparams.n_select > 0) select_refused(model);
    if (model->arch->is_bidirectional || !way_is_left_out(f, i, 0)) {
        logits_of(model, N_TOK, N_TOK, found);
        r.batch = peer_nmse(f, found, n_vocab);
    }
    if (!model->arch->is_bidirectional) {
        if (!way_is_left_out(f, i, 1)) {
            logits_of(model, N_TOK, 1, found);
            r.single = peer_nmse(f, found, n_vocab);
        }
        logits_of(model, 7, N_TOK, found);
        r.ubatch = peer_nmse(f, found, n_vocab);
    } else {
        split_refused(model);
    }
    free(found);
    return r;
}

static void test_one_device(void **state) {
    (void)state;
    int n_run = 0, n_there = 0, n_all = 0, n_bad = 0;
    for (int i = 0; i < n_fixture; i++) {
        const fixture *f = &fixtures[i];
        tdm_error err = {0};
        llm_model *model = NULL;
        n_all++;
        const char *path = is_chosen(f) ? model_file(f) : NULL;
        if (path == NULL) continue;
        n_there++;
        if (llm_model_open(path, &model, &err) != TDM_OK) {
            if (f->is_listed || chosen != NULL) print_message("%s: %s\n", f->name, err.message);
            n_bad += f->is_listed;
            continue;
        }
        llm_model_close(model);
        model = rig_model(path, rig_device(NULL, "reference", 2));
        result r = compare(f, i, model);
        bool is_good = worst(&r) <= BOUND;
        if (is_good != f->is_listed || chosen != NULL)
            print_message("%s: batch %.1e, single %.1e, ubatches of 7 %.1e%s\n", f->name, r.batch,
                          r.single, r.ubatch, is_good && !f->is_listed ? ": not listed" : "");
        n_run += is_good;
        n_bad += is_good != f->is_listed;
        llm_model_close(model);
    }
    if (chosen == NULL) {
        print_message("%d of %d fixtures run; %d are not there\n", n_run, n_all, n_all - n_there);
        assert_int_equal(n_bad, 0);
        assert_true(n_run > 30);
    }
}

static void test_groups(void **state) {
    (void)state;
    static const group_config groups[] = {
        {.n_member = 2, .path = "reference"},
        {.n_member = 2, .path = "reference", .shares = "5,2"},
        {.n_member = 3, .path = "reference", .shares = "5,2,1"},
        {.n_member = 3, .path = "reference", .shares = "3,0,2"},
    };
    int n_run = 0, n_bad = 0;
    for (int i = 0; i < n_fixture; i++) {
        const fixture *f = &fixtures[i];
        if (!is_chosen(f) || !f->is_listed) continue;
        const char *path = model_file(f);
        if (path == NULL) continue;
        /* Every fixture in one group, every group with many fixtures. */
        int first = chosen != NULL ? 0 : i % 4, last = chosen != NULL ? 3 : first;
        for (int c = first; c <= last; c++) {
            llm_model *model = rig_model(path, group_device(&groups[c]));
            const size_t n_vocab = (size_t)model->hparams.n_vocab;
            float *found = malloc(N_TOK * n_vocab * sizeof *found);
            assert_non_null(found);
            logits_of(model, model->arch->is_bidirectional ? N_TOK : 7, N_TOK, found);
            double nmse = peer_nmse(f, found, n_vocab);
            if (!(nmse <= BOUND) || chosen != NULL)
                print_message("%s, %s: %.1e\n", f->name, group_words(&groups[c]), nmse);
            n_bad += !(nmse <= BOUND);
            free(found);
            llm_model_close(model);
        }
        n_run++;
    }
    if (chosen == NULL) print_message("%d fixtures in groups\n", n_run);
    assert_int_equal(n_bad, 0);
}

int main(int argc, char **argv) {
    if (argc > 1) chosen = argv + 1;
    if (!fixtures_read()) {
        fprintf(stderr, "tests/model/archs.txt: cannot be read\n");
        return 1;
    }
    if (!tokens_read()) {
        fprintf(stderr, "tests/model/archs/tokens.txt: cannot be read\n");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_device),
        cmocka_unit_test(test_groups),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
