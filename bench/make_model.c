/* SPDX-License-Identifier: MIT
 *
 * make_model.c: the command tandem-make-model, which writes a random model (random_model.h) to a
 * file. It only reads the options; random_model.c makes the model.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "bench/random_model.h"

static const char *const rope_names[RANDOM_MODEL_ROPE_COUNT_] = {"none", "linear", "yarn",
                                                                 "llama3"};

static void usage_print(FILE *out) {
    fputs(
        "Usage: tandem-make-model [--preset NAME] [options] OUT.gguf\n"
        "\n"
        "Writes a Llama, Mistral, Mixtral or DeepSeek-2 model with random weights, or one of the\n"
        "retrieval models, whose weights recall what stood behind a key in their context.\n"
        "\n"
        "  --preset NAME          ",
        out);
    const char *name;
    for (int i = 0; random_model_preset_at(i, &name) != NULL; ++i)
        fprintf(out, "%s%s", i == 0 ? "" : i == 4 ? ",\n                         " : ", ", name);
    fputs(" (default: tiny-llama)\n"
          "  --type TYPE            of the matrices: f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q2_K\n"
          "                         q3_K q4_K q5_K q6_K iq4_nl iq4_xs mxfp4 iq1_s iq1_m\n"
          "                         iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s tq1_0 tq2_0 nvfp4\n"
          "  --round TYPE           first round the weights to this type: with --type f32, the\n"
          "                         exact model that a quantised one stands for\n"
          "  --layers N  --width N  --heads N  --heads-kv N  --head-dim N  --ff N  --vocab N\n"
          "  --ctx N                context length that the model claims\n"
          "  --experts N  --experts-used N   a mixture of experts; 0: a plain block\n"
          "  --tied, --untied       whether the output head is the token embedding\n"
          "  --same-layers          all layers have the first one's numbers: quicker to make,\n"
          "                         for measurements of speed\n"
          "  --window N             of the preset retrieval-window: tokens that its windows hold\n"
          "  --sharpness X          of the retrieval presets: how clearly they recall\n"
          "  --rope-base X\n"
          "  --rope-scaling KIND    none, linear, yarn, llama3 (a rope_freqs tensor)\n"
          "  --rope-factor X        of the scaling\n"
          "  --seed N  --threads N\n"
          "  -o OUT.gguf            the same as OUT.gguf alone\n"
          "  --quiet                print nothing but errors\n"
          "  --help\n",
          out);
}

static int usage_fail(const char *option, const char *problem) {
    fprintf(stderr, "tandem-make-model: %s: %s; see --help\n", option, problem);
    return 2;
}

static bool number_parse(const char *text, int64_t *value) {
    char *end = NULL;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0') return false;
    *value = v;
    return true;
}

static bool real_parse(const char *text, float *value) {
    char *end = NULL;
    errno = 0;
    const float v = strtof(text, &end);
    if (errno != 0 || end == text || *end != '\0') return false;
    *value = v;
    return true;
}

static bool type_parse(const char *text, tdm_type *type) {
    for (int i = 0; i < TDM_TYPE_LIMIT_; ++i) {
        const char *name = tdm_type_get_info((tdm_type)i).name;
        if (name == NULL || strcasecmp(name, text) != 0) continue;
        *type = (tdm_type)i;
        return true;
    }
    return false;
}

static bool rope_parse(const char *text, random_model_rope *rope) {
    for (int i = 0; i < RANDOM_MODEL_ROPE_COUNT_; ++i) {
        if (strcmp(rope_names[i], text) != 0) continue;
        *rope = (random_model_rope)i;
        return true;
    }
    return false;
}

static bool preset_find(const char *text, random_model_spec *spec) {
    const char *name;
    const random_model_spec *preset;
    for (int i = 0; (preset = random_model_preset_at(i, &name)) != NULL; ++i) {
        if (strcmp(name, text) != 0) continue;
        *spec = *preset;
        return true;
    }
    return false;
}

/* Reads option argv[*i] and its value, and moves *i to the value. Returns 0, or the exit code after
 * a message. */
static int option_take(random_model_spec *spec, int argc, char **argv, int *i) {
    const struct {
        const char *name;
        int64_t *number;
        float *real;
        tdm_type *type;
        random_model_rope *rope;
    } options[] = {
        {"--layers", .number = &spec->n_layer},
        {"--width", .number = &spec->n_embd},
        {"--heads", .number = &spec->n_head},
        {"--heads-kv", .number = &spec->n_head_kv},
        {"--head-dim", .number = &spec->head_dim},
        {"--ff", .number = &spec->n_ff},
        {"--vocab", .number = &spec->n_vocab},
        {"--ctx", .number = &spec->n_ctx},
        {"--experts", .number = &spec->n_expert},
        {"--experts-used", .number = &spec->n_expert_used},
        {"--seed", .number = &spec->seed},
        {"--threads", .number = &spec->n_thread},
        {"--window", .number = &spec->n_window},
        {"--sharpness", .real = &spec->sharpness},
        {"--rope-base", .real = &spec->rope_base},
        {"--rope-factor", .real = &spec->rope_factor},
        {"--rope-scaling", .rope = &spec->rope},
        {"--type", .type = &spec->type},
        {"--round", .type = &spec->round_type},
    };
    const char *name = argv[*i];
    for (size_t o = 0; o < sizeof options / sizeof *options; ++o) {
        if (strcmp(options[o].name, name) != 0) continue;
        if (*i + 1 >= argc) return usage_fail(name, "needs a value");
        const char *value = argv[++*i];
        if (options[o].number != NULL && !number_parse(value, options[o].number))
            return usage_fail(name, "needs a whole number");
        if (options[o].real != NULL && !real_parse(value, options[o].real))
            return usage_fail(name, "needs a number");
        if (options[o].type != NULL && !type_parse(value, options[o].type))
            return usage_fail(name, "unknown type");
        if (options[o].rope != NULL && !rope_parse(value, options[o].rope))
            return usage_fail(name, "must be none, linear, yarn or llama3");
        return 0;
    }
    return usage_fail(name, "unknown option");
}

static void progress_print(int64_t done, int64_t all, void *user) {
    int *shown = user;
    const int percent = (int)(done * 100 / all);
    if (percent == *shown) return;
    *shown = percent;
    fprintf(stderr, "\r%3d %%%s", percent, done == all ? "\r     \r" : "");
}

int main(int argc, char **argv) {
    random_model_spec spec = {0};
    const char *path = NULL, *preset = "tiny-llama";
    bool is_quiet = false;
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            usage_print(stdout);
            return 0;
        }
        if (strcmp(argv[i], "--preset") != 0) continue;
        if (i + 1 >= argc) return usage_fail(argv[i], "needs a value");
        preset = argv[i + 1];
    }
    /* The preset is read first, wherever it stands, so that the other options change it. */
    if (!preset_find(preset, &spec)) return usage_fail(preset, "unknown preset");
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--preset") == 0) {
            ++i;
        } else if (strcmp(argv[i], "--tied") == 0) {
            spec.is_tied = true;
        } else if (strcmp(argv[i], "--untied") == 0) {
            spec.is_tied = false;
        } else if (strcmp(argv[i], "--same-layers") == 0) {
            spec.has_same_layers = true;
        } else if (strcmp(argv[i], "--quiet") == 0) {
            is_quiet = true;
        } else if (strcmp(argv[i], "-o") == 0 && path == NULL) {
            if (i + 1 >= argc) return usage_fail(argv[i], "needs a value");
            path = argv[++i];
        } else if (argv[i][0] == '-') {
            const int code = option_take(&spec, argc, argv, &i);
            if (code != 0) return code;
        } else if (path == NULL) {
            path = argv[i];
        } else {
            return usage_fail(argv[i], "one output file only");
        }
    }
    if (path == NULL) return usage_fail("OUT.gguf", "is missing");

    const bool with_progress = !is_quiet && isatty(STDERR_FILENO);
    int shown = -1;
    random_model_facts facts;
    tdm_error err = {0};
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    const tdm_status status = random_model_write(
        &spec, path, &facts, with_progress ? progress_print : NULL, &shown, &err);
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (status != TDM_OK) {
        fprintf(stderr, "%standem-make-model: %s\n", shown >= 0 ? "\n" : "", err.message);
        return status == TDM_INVALID_ARGUMENT ? 2 : 1;
    }
    if (is_quiet) return 0;
    if (facts.n_fallback > 0)
        printf("%" PRId64 " matrices are %s, not %s: rows such as %s's, of %" PRId64
               " elements, are not whole blocks\n",
               facts.n_fallback, tdm_type_name(facts.fallback_type), tdm_type_name(spec.type),
               facts.fallback_name, facts.fallback_row);
    printf("%s: %.1f M parameters, %s, %.1f MiB, %.1f s\n", path, (double)facts.n_param / 1e6,
           tdm_type_name(spec.type), (double)facts.size / 1048576.0,
           (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9);
    return 0;
}
