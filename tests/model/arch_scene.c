/* SPDX-License-Identifier: MIT
 *
 * arch_scene.c: see arch_scene.h.
 */
#include "tests/model/arch_scene.h"

#include <math.h>
#include <unistd.h>

#include "tests/model/arch_fixture.h"

static FILE *source_open(const char *name) {
    char *path = rig_source_file(name);
    FILE *f = path != NULL ? fopen(path, "r") : NULL;
    free(path);
    return f;
}

static bool tokens_read(arch_scene *scene) {
    int n = 0;
    FILE *f = source_open("../shared/archs/logits/tokens.txt");
    scene->folder = "../shared/archs";
    scene->logits_folder = "../shared/archs/logits";
    if (f == NULL) {
        scene->folder = scene->logits_folder = "tests/model/archs";
        f = source_open("tests/model/archs/tokens.txt");
        printf("../shared/archs is not there: only fixtures of %s\n", scene->folder);
    }
    while (f != NULL && n < ARCH_N_TOK && fscanf(f, "%d%*[,]", &scene->tokens[n]) == 1) n++;
    if (f != NULL) fclose(f);
    return n == ARCH_N_TOK;
}

/* Lines of archs.txt: "NAME", those that must run, or "- NAME", those that do not run yet. */
static bool fixtures_read(arch_scene *scene) {
    char line[128], sign[8], name[48];
    FILE *f = source_open("tests/model/archs.txt");
    while (f != NULL && fgets(line, sizeof line, f) != NULL &&
           scene->n_fixture < ARCH_MAX_FIXTURE) {
        if (line[0] == '#' || line[0] == '\n') continue;
        bool is_missing = sscanf(line, "%7s %47s", sign, name) == 2 && strcmp(sign, "-") == 0;
        if (!is_missing && sscanf(line, "%47s", name) != 1) continue;
        arch_fixture *fixture = &scene->fixtures[scene->n_fixture++];
        snprintf(fixture->name, sizeof fixture->name, "%s", name);
        fixture->is_listed = !is_missing;
    }
    if (f != NULL) fclose(f);
    return scene->n_fixture > 0;
}

bool arch_scene_read(arch_scene *scene) {
    memset(scene, 0, sizeof *scene);
    scene->seed = 1;
    scene->n_compared = ARCH_N_TOK;
    bool has_list = fixtures_read(scene), has_tokens = tokens_read(scene);
    if (!has_list) fprintf(stderr, "tests/model/archs.txt: cannot be read\n");
    if (!has_tokens) fprintf(stderr, "%s: the tokens cannot be read\n", scene->logits_folder);
    return has_list && has_tokens;
}

/* The folder of a fixture's file: `folder`, or where that does not have it the tree's own, which
 * has forms that ../shared does not. A folder that the user gave is the only one. */
static const char *folder_of(const char *folder, const char *file) {
    char name[512];
    snprintf(name, sizeof name, "%s/%s", folder, file);
    if (folder[0] == '/') return folder;
    char *path = rig_source_file(name);
    free(path);
    return path != NULL ? folder : "tests/model/archs";
}

bool arch_scene_write(const arch_scene *scene, const arch_fixture *f, const char *path) {
    char file[64], name[128];
    snprintf(file, sizeof file, "%s.head", f->name);
    snprintf(name, sizeof name, "%s/%s", folder_of(scene->folder, file), file);
    char *head = rig_source_file(name);
    if (head == NULL) return false;
    unlink(path);
    if (!arch_fixture_write(head, f->name, scene->seed, path))
        fail_msg("%s: cannot be made", f->name);
    free(head);
    return true;
}

const char *arch_scene_model(const arch_scene *scene, const arch_fixture *f) {
    const char *path = rig_file("arch.gguf");
    return arch_scene_write(scene, f, path) ? path : NULL;
}

size_t arch_scene_row_len(const llm_model *model) {
    return (size_t)(model->arch->is_encoder ? model->hparams.n_embd : model->hparams.n_vocab);
}

int arch_scene_first(const arch_scene *scene, const llm_model *model) {
    int first = 0;
    if (model->hparams.n_layer_encoder == 0) return 0;
    while (first < ARCH_N_TOK && scene->tokens[first] != model->hparams.decoder_start) first++;
    assert_in_range(first, 1, ARCH_N_TOK - 1);
    return first;
}

/* The hidden states of all tokens. */
static void hidden_rows(const arch_scene *scene, llm_context *ctx, float *rows_out) {
    const size_t len = arch_scene_row_len(llm_context_model(ctx));
    const llm_batch batch = {.tokens = scene->tokens, .n_tok = ARCH_N_TOK};
    tdm_error err = {0};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    for (int32_t i = 0; i < ARCH_N_TOK; i++)
        memcpy(rows_out + (size_t)i * len, llm_context_hidden(ctx, i), len * sizeof *rows_out);
}

void arch_scene_logits(const arch_scene *scene, llm_model *model, const tdm_type *type_k,
                       const tdm_type *type_v, int n_ubatch, int n_each, float *rows_out) {
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 512,
                                       .n_ubatch = n_ubatch,
                                       .page_len = ARCH_PAGE_LEN,
                                       .type_k = type_k,
                                       .type_v = type_v,
                                       .begins_decoder = true,
                                       .gives_embeddings = model->arch->is_encoder};
    llm_context *ctx = rig_context(model, &params);
    const int first = arch_scene_first(scene, model);
    const size_t len = arch_scene_row_len(model);
    memset(rows_out, 0, (size_t)first * len * sizeof *rows_out);
    if (model->arch->is_encoder) hidden_rows(scene, ctx, rows_out);
    for (int i = first, begin = 0; i < ARCH_N_TOK && !model->arch->is_encoder; begin = i) {
        const int n = ARCH_N_TOK - i < n_each ? ARCH_N_TOK - i : n_each;
        float *rows = rows_out + (size_t)i * len;
        i += n;
        rig_decode(ctx, scene->tokens + begin, i - begin, n, rows);
    }
    llm_context_destroy(ctx);
}

bool arch_scene_is_latent(llm_model *model) {
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 64,
                                       .begins_decoder = true,
                                       .gives_embeddings = model->arch->is_encoder};
    llm_context *ctx = rig_context(model, &params);
    const tdm_kv_desc *desc = llm_context_kv_desc(ctx);
    bool is_latent = desc != NULL && (desc->flags & TDM_KV_V_FROM_K) != 0;
    llm_context_destroy(ctx);
    return is_latent;
}

float *arch_scene_rows(const llm_model *model) {
    float *rows = malloc(ARCH_N_TOK * arch_scene_row_len(model) * sizeof *rows);
    assert_non_null(rows);
    return rows;
}

static FILE *logits_open(const arch_scene *scene, const arch_fixture *f) {
    char file[64], name[512];
    snprintf(file, sizeof file, "%s.f32", f->name);
    snprintf(name, sizeof name, "%s/%s", folder_of(scene->logits_folder, file), file);
    return name[0] == '/' ? fopen(name, "rb") : source_open(name);
}

bool arch_scene_has_logits(const arch_scene *scene, const arch_fixture *f) {
    FILE *in = logits_open(scene, f);
    if (in != NULL) fclose(in);
    return in != NULL;
}

double arch_scene_nmse(const arch_scene *scene, const arch_fixture *f, const llm_model *model,
                       const float *rows) {
    const size_t len = arch_scene_row_len(model), room = (ARCH_N_TOK + 1) * len;
    FILE *in = logits_open(scene, f);
    if (in == NULL) fail_msg("%s/%s.f32 cannot be read", scene->logits_folder, f->name);
    float *expected = malloc(room * sizeof *expected);
    assert_non_null(expected);
    size_t n = fread(expected, sizeof *expected, room, in);
    fclose(in);
    if (n == 0 || n % len != 0 || n > ARCH_N_TOK * len)
        fail_msg("%s: %zu numbers for rows of %zu", f->name, n, len);
    const size_t first = ARCH_N_TOK * len - n, end = (size_t)scene->n_compared * len;
    double nmse = end > first ? rig_nmse(expected, rows + first, end - first) : (double)INFINITY;
    free(expected);
    return nmse;
}
