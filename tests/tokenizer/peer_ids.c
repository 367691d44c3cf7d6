/* SPDX-License-Identifier: MIT
 *
 * peer_ids.c: writes the ids of texts and the texts of ids that llama.cpp gives through its C API.
 * update.sh builds and runs it; it is not part of the build.
 *
 *   peer_ids LIST.txt    a line each: VOCABULARY.gguf TEXTS OUT
 *
 * TEXTS: for each text u32 length, then its bytes. OUT: for each text u32 n, then n i32 ids.
 * Special tokens are added where the text's number is odd, and parsed where the second bit of that
 * number is set. Then for each id of the vocabulary u32 length and bytes of its piece.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <sys/wait.h>
#include <unistd.h>

#include "llama.h"

/* std::regex may take very long. Then OUT ends early. */
enum { SECONDS_MAX = 120 };

static void quiet(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static int run(const char *gguf, const char *texts, const char *path) {
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    struct llama_model *model = llama_model_load_from_file(gguf, params);
    FILE *in = fopen(texts, "rb"), *out = fopen(path, "wb");
    if (model == NULL || in == NULL || out == NULL) {
        fprintf(stderr, "%s: cannot be opened\n", gguf);
        return 1;
    }
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    static char text[1 << 20];
    static llama_token ids[1 << 20];
    uint32_t len;
    for (uint32_t i = 0; fread(&len, 4, 1, in) == 1; ++i) {
        if (fread(text, 1, len, in) != len) return 1;
        const int32_t n =
            llama_tokenize(vocab, text, (int32_t)len, ids, 1 << 20, i % 2 == 1, (i & 2) != 0);
        if (n < 0) return 1;
        fwrite(&n, 4, 1, out);
        fwrite(ids, 4, (size_t)n, out);
        fflush(out);
    }
    for (int32_t id = 0; id < llama_vocab_n_tokens(vocab); ++id) {
        const int32_t n = llama_token_to_piece(vocab, id, text, 4096, 0, true);
        if (n < 0) return 1;
        fwrite(&n, 4, 1, out);
        fwrite(text, 1, (size_t)n, out);
    }
    fclose(in);
    fclose(out);
    llama_model_free(model);
    return 0;
}

int main(int argc, char **argv) {
    char gguf[1024], texts[1024], out[1024];
    llama_log_set(quiet, NULL);
    llama_backend_init();
    FILE *list = argc == 2 ? fopen(argv[1], "r") : NULL;
    if (list == NULL) return 2;
    while (fscanf(list, "%1023s %1023s %1023s", gguf, texts, out) == 3) {
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            alarm(SECONDS_MAX);
            _exit(run(gguf, texts, out));
        }
        int status = 1;
        if (child < 0 || waitpid(child, &status, 0) != child) return 1;
        if (status != 0) fprintf(stderr, "%s: not finished\n", gguf);
    }
    return 0;
}
