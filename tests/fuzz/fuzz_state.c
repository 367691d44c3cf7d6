/* SPDX-License-Identifier: MIT
 *
 * fuzz_state.c: the input is a state file. It is loaded into a small context that has another
 * sequence. An accepted state must be exported byte for byte, and the sequence must accept another
 * token, whatever numbers its rows hold. A refusal leaves the sequence empty. The other sequence
 * does not change.
 *
 * Most files would fail at the first number that must be right. So the input's first byte says
 * what is made right in the rest of it before it is loaded: FIX_.
 */
#include <string.h>
#include <unistd.h>

#include "bench/random_model.h"
#include "core/runtime.h"
#include "llm/cache/state.h"
#include "tests/fuzz/fuzz.h"

enum {
    FIX_HEADER = 1, /* magic and header are this context's own, but for the number of tokens */
    FIX_SIZE = 2,   /* as many tokens as the bytes are enough for, and no byte more */
    FIX_TOKENS = 4, /* ids are below n_vocab */
    FIX_HASH = 8,   /* the hash is that of the bytes before it */
};

enum { N_CTX = 48, N_OTHER = 20, N_VOCAB = 259, HASH_SIZE = 8, SIZE_LIMIT = 1 << 16 };

static fuzz_file file;
static llm_context *ctx;
static uint8_t header[256]; /* magic and header of an empty sequence */
static size_t header_size, row_size;
static float other_logits[N_VOCAB];

/* The runtime, the model and the context live as long as the program. */
static void context_make(tdm_error *err) {
    const random_model_spec spec = {.name = "fuzz",
                                    .n_layer = 1,
                                    .n_embd = 32,
                                    .n_head = 1,
                                    .n_head_kv = 1,
                                    .head_dim = 32,
                                    .n_ff = 32,
                                    .n_vocab = N_VOCAB,
                                    .n_ctx = 64,
                                    .seed = 1,
                                    .n_thread = 1,
                                    .type = TDM_TYPE_F32,
                                    .rope_base = 10000,
                                    .rope_factor = 1,
                                    .is_tied = true};
    const tdm_runtime_params runtime_params = {.struct_size = sizeof runtime_params};
    const tdm_option options[] = {{"threads", "1"}};
    const tdm_device_spec device = {"fuzz", "cpu", 0, options, 1};
    const tdm_type q8_0 = TDM_TYPE_Q8_0, q4_0 = TDM_TYPE_Q4_0;
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = N_CTX,
                                       .n_ubatch = 32,
                                       .n_seq = 2,
                                       .page_len = 8,
                                       .type_k = &q8_0,
                                       .type_v = &q4_0};
    char folder[96], path[128];
    const char *temp = getenv("TMPDIR");
    tdm_runtime *rt;
    tdm_open_device *dev;
    llm_model *model;
    snprintf(folder, sizeof folder, "%s/tandem-fuzz-XXXXXX",
             temp != NULL && strlen(temp) < 60 ? temp : "/tmp");
    FUZZ_DEMAND(mkdtemp(folder) != NULL, "%s: cannot be made", folder);
    snprintf(path, sizeof path, "%s/model", folder);
    FUZZ_DEMAND(random_model_write(&spec, path, NULL, NULL, NULL, err) == TDM_OK, "%s",
                err->message);
    FUZZ_DEMAND(tdm_runtime_create(&runtime_params, &rt, err) == TDM_OK, "%s", err->message);
    FUZZ_DEMAND(tdm_runtime_declare(rt, &device, err) == TDM_OK, "%s", err->message);
    FUZZ_DEMAND(tdm_runtime_open(rt, "fuzz", &dev, err) == TDM_OK, "%s", err->message);
    FUZZ_DEMAND(llm_model_open(path, &model, err) == TDM_OK, "%s", err->message);
    FUZZ_DEMAND(llm_model_load(model, rt, &dev, 1, NULL, NULL, err) == TDM_OK, "%s", err->message);
    FUZZ_DEMAND(llm_context_create(model, &params, &ctx, err) == TDM_OK, "%s", err->message);
    unlink(path);

    FUZZ_DEMAND(llm_state_save(ctx, 1, NULL, 0, path, err) == TDM_OK, "%s", err->message);
    FILE *f = fopen(path, "rb");
    FUZZ_DEMAND(f != NULL, "%s: cannot be read", path);
    header_size = fread(header, 1, sizeof header, f) - HASH_SIZE;
    fclose(f);
    unlink(path);
    rmdir(folder);
    row_size = sizeof(int32_t) + llm_context_rows_size(ctx, 1);
}

/* Logits of one more token of a sequence, which is then taken off again. */
static const float *next_logits(int32_t seq) {
    tdm_error err = {0};
    const int32_t token = 7;
    const llm_batch batch = {&token, &seq, NULL, 1};
    FUZZ_DEMAND(llm_context_decode(ctx, &batch, &err) == TDM_OK, "%s", err.message);
    FUZZ_DEMAND(llm_context_truncate(ctx, seq, llm_context_length(ctx, seq) - 1, &err) == TDM_OK,
                "%s", err.message);
    return llm_context_logits(ctx, 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    tdm_error err = {0};
    int32_t tokens[N_OTHER];
    fuzz_file_create(&file);
    context_make(&err);
    for (int32_t i = 0; i < N_OTHER; i++) tokens[i] = (i * 37 + 5) % N_VOCAB;
    const llm_batch batch = {tokens, NULL, NULL, N_OTHER};
    FUZZ_DEMAND(llm_context_decode(ctx, &batch, &err) == TDM_OK, "%s", err.message);
    memcpy(other_logits, next_logits(0), sizeof other_logits);
    return 0;
}

/* Corrects the fields that `fix` selects. Returns the size of the file. */
static size_t bytes_fix(uint8_t *bytes, size_t size, unsigned fix) {
    int32_t n_tok;
    uint64_t hash = 0xcbf29ce484222325u;
    if (size < header_size + HASH_SIZE) return size;
    uint8_t *n_tok_at = bytes + header_size - sizeof n_tok, *ids = bytes + header_size;
    if ((fix & FIX_HEADER) != 0) memcpy(bytes, header, header_size - sizeof n_tok);
    if ((fix & FIX_SIZE) != 0) {
        n_tok = (int32_t)((size - header_size - HASH_SIZE) / row_size);
        memcpy(n_tok_at, &n_tok, sizeof n_tok);
        size = header_size + (size_t)n_tok * row_size + HASH_SIZE;
    }
    memcpy(&n_tok, n_tok_at, sizeof n_tok);
    if ((fix & FIX_TOKENS) != 0)
        for (int32_t i = 0; i < n_tok && (size_t)i < (size - header_size - HASH_SIZE) / 4; i++) {
            ids[4 * i + 1] &= 0;
            ids[4 * i + 2] = ids[4 * i + 3] = 0;
        }
    if ((fix & FIX_HASH) != 0) {
        for (size_t i = 0; i < size - HASH_SIZE; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
        memcpy(bytes + size - HASH_SIZE, &hash, sizeof hash);
    }
    return size;
}

/* What was loaded must be what the file holds. Chunks are the file's: LLM_STATE_CHUNK tokens. */
static void loaded_check(const uint8_t *bytes, const int32_t *tokens, int32_t n_tok) {
    tdm_error err = {0};
    const uint8_t *ids = bytes + header_size, *rows = ids + (size_t)n_tok * sizeof *tokens;
    const size_t size = llm_context_rows_size(ctx, n_tok);
    FUZZ_DEMAND(n_tok <= LLM_STATE_CHUNK, "%d tokens in a context of %d", n_tok, N_CTX);
    FUZZ_DEMAND(llm_context_length(ctx, 1) == n_tok, "%d tokens", llm_context_length(ctx, 1));
    FUZZ_DEMAND(memcmp(tokens, ids, (size_t)n_tok * sizeof *tokens) == 0, "other tokens");
    for (int32_t i = 0; i < n_tok; i++)
        FUZZ_DEMAND(tokens[i] >= 0 && tokens[i] < N_VOCAB, "token %d", tokens[i]);
    if (n_tok > 0) {
        uint8_t *out = malloc(size);
        FUZZ_DEMAND(out != NULL, "no memory");
        FUZZ_DEMAND(llm_context_export_rows(ctx, 1, 0, n_tok, out, &err) == TDM_OK, "%s",
                    err.message);
        FUZZ_DEMAND(memcmp(out, rows, size) == 0, "other rows come out than went in");
        free(out);
    }
    if (n_tok + N_OTHER < N_CTX) (void)next_logits(1);
    FUZZ_DEMAND(llm_context_truncate(ctx, 1, 0, &err) == TDM_OK, "%s", err.message);
    FUZZ_DEMAND(memcmp(next_logits(0), other_logits, sizeof other_logits) == 0,
                "the other sequence goes on differently");
}

/* The prefix that a file has in common with a prompt. Of a file that loads: the requested tokens.
 * Of another file: the same failure, unless only the context was too small. */
static void prefix_check(tdm_status whole, const int32_t *tokens, int32_t n_tok) {
    static const int32_t any[] = {7, 7, 7};
    tdm_error err = {0};
    int32_t n_asked = whole != TDM_OK ? 3 : n_tok < 3 ? n_tok : 3, n = -7;
    tdm_status status =
        llm_state_load_prefix(ctx, 1, file.path, whole == TDM_OK ? tokens : any, n_asked, &n, &err);
    FUZZ_DEMAND(status == whole || whole == TDM_OUT_OF_RANGE, "%s: a prefix gives '%s'",
                tdm_status_text(whole), err.message);
    FUZZ_DEMAND(status == TDM_OK ? n >= 0 && n <= 3 : n == -7, "a prefix of %d tokens", n);
    FUZZ_DEMAND(whole != TDM_OK || n == n_asked, "a prefix of %d tokens, not %d", n, n_asked);
    FUZZ_DEMAND(llm_context_length(ctx, 1) == (n > 0 ? n : 0), "%d tokens",
                llm_context_length(ctx, 1));
    FUZZ_DEMAND(llm_context_truncate(ctx, 1, 0, &err) == TDM_OK, "%s", err.message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t bytes[SIZE_LIMIT];
    tdm_error err = {0};
    int32_t *tokens = NULL, n_tok = -7;
    if (size < 1 || size - 1 > sizeof bytes) return 0;
    memcpy(bytes, data + 1, size - 1);
    size = bytes_fix(bytes, size - 1, data[0]);
    fuzz_file_write(&file, bytes, size);
    tdm_status status = llm_state_load(ctx, 1, file.path, &tokens, &n_tok, &err);
    if (status == TDM_OK) {
        loaded_check(bytes, tokens, n_tok);
        prefix_check(status, tokens, n_tok);
        free(tokens);
        return 0;
    }
    FUZZ_DEMAND(err.status == status && err.message[0] != '\0' && strchr(err.message, '\n') == NULL,
                "a message must be one line: '%s'", err.message);
    FUZZ_DEMAND(tokens == NULL && n_tok == -7, "a failed load gives tokens");
    FUZZ_DEMAND(llm_context_length(ctx, 1) == 0, "a failed load leaves %d tokens",
                llm_context_length(ctx, 1));
    prefix_check(status, NULL, 0);
    return 0;
}
