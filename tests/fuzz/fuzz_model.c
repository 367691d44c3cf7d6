/* SPDX-License-Identifier: MIT
 *
 * fuzz_model.c: the input is a GGUF file. Its model is loaded on the CPU plugin and runs a few
 * tokens; the last byte of the file selects the types of the cache. Numbers, shapes and weights
 * are those of the file. Each step succeeds or is refused in one line. A step that succeeded gives
 * the same logits again.
 */
#include <string.h>

#include "llm/context.h"
#include "core/runtime.h"
#include "tests/fuzz/fuzz.h"

enum { N_CTX = 16, N_TOK = 5 };

static fuzz_file file;
static tdm_runtime *runtime;
static tdm_open_device *dev;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    const tdm_runtime_params params = {.struct_size = sizeof params};
    const tdm_option options[] = {{"threads", "1"}};
    const tdm_device_spec device = {"fuzz", "cpu", 0, options, 1};
    tdm_error err = {0};
    fuzz_file_create(&file);
    FUZZ_DEMAND(tdm_runtime_create(&params, &runtime, &err) == TDM_OK, "%s", err.message);
    FUZZ_DEMAND(tdm_runtime_declare(runtime, &device, &err) == TDM_OK, "%s", err.message);
    FUZZ_DEMAND(tdm_runtime_open(runtime, "fuzz", &dev, &err) == TDM_OK, "%s", err.message);
    return 0;
}

/* True where the call was done. */
static bool is_done(tdm_status status, tdm_error *err) {
    if (status == TDM_OK) return true;
    FUZZ_DEMAND(err->status == status && err->message[0] != '\0' &&
                    strchr(err->message, '\n') == NULL,
                "a message must be one line: '%s'", err->message);
    FUZZ_DEMAND(status != TDM_INTERNAL, "a file makes an invariant break: %s", err->message);
    return false;
}

static void context_try(llm_context *ctx) {
    const int32_t n_vocab = llm_context_model(ctx)->hparams.n_vocab;
    const size_t size = (size_t)n_vocab * sizeof(float);
    const int32_t tokens[N_TOK] = {0, n_vocab - 1, n_vocab / 2, 0, n_vocab / 3};
    const llm_batch prompt = {tokens, NULL, NULL, N_TOK - 1};
    const llm_batch last = {tokens + N_TOK - 1, NULL, NULL, 1};
    tdm_error err = {0};
    float *logits = malloc(size);
    FUZZ_DEMAND(logits != NULL, "no memory");
    if (is_done(llm_context_decode(ctx, &prompt, &err), &err) &&
        is_done(llm_context_decode(ctx, &last, &err), &err)) {
        memcpy(logits, llm_context_logits(ctx, 0), size);
        FUZZ_DEMAND(llm_context_truncate(ctx, 0, N_TOK - 1, &err) == TDM_OK, "%s", err.message);
        FUZZ_DEMAND(llm_context_decode(ctx, &last, &err) == TDM_OK, "%s", err.message);
        FUZZ_DEMAND(memcmp(logits, llm_context_logits(ctx, 0), size) == 0,
                    "the same step gives other logits");
        if (is_done(llm_context_shift(ctx, 0, 1, 2, &err), &err))
            (void)is_done(llm_context_decode(ctx, &last, &err), &err);
    }
    free(logits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const tdm_type types[] = {TDM_TYPE_F16, TDM_TYPE_F32, TDM_TYPE_Q8_0, TDM_TYPE_Q4_0};
    tdm_error err = {0};
    llm_model *model = NULL;
    llm_context *ctx = NULL;
    fuzz_file_write(&file, data, size);
    if (!is_done(llm_model_open(file.path, &model, &err), &err)) return 0;
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = N_CTX,
                                       .n_ubatch = 4,
                                       .page_len = 4,
                                       .type_k = &types[data[size - 1] % 4],
                                       .type_v = &types[data[size - 1] / 4 % 4]};
    if (is_done(llm_model_load(model, runtime, &dev, 1, NULL, NULL, &err), &err) &&
        is_done(llm_context_create(model, &params, &ctx, &err), &err))
        context_try(ctx);
    llm_context_destroy(ctx);
    llm_model_close(model);
    return 0;
}
