/* SPDX-License-Identifier: MIT
 *
 * vendors.c: see vendors.h.
 */
#include "tests/simt/vendors.h"

#include <math.h>
#include <time.h>

#include "core/runtime.h"

const char *const vendor_names[N_VENDOR] = {"nvidia", "amd", "vulkan", "cpu"};
const char *vendor_cuda_driver, *vendor_hip_driver;

tdm_status vendor_open(int i, tdm_open_device **dev_out, tdm_error *err) {
    const tdm_option options[N_VENDOR][2] = {{{"driver", vendor_cuda_driver}},
                                             {{"driver", vendor_hip_driver}},
                                             {{"allow-cpu", "yes"}},
                                             {{"threads", "1"}, {"activation-bits", "15"}}};
    static const char *const plugins[N_VENDOR] = {"cuda", "hip", "vulkan", "cpu"};
    static const int n_option[N_VENDOR] = {1, 1, 1, 2};
    const tdm_device_spec spec = {vendor_names[i], plugins[i], 0, options[i], n_option[i]};
    tdm_runtime_declare(rig_runtime(), &spec, NULL); /* may be there already */
    return tdm_runtime_open(rig_runtime(), vendor_names[i], dev_out, err);
}

tdm_open_device *vendor_device(int i) {
    tdm_open_device *dev = NULL;
    tdm_error err = {0};
    RIG_OK(vendor_open(i, &dev, &err));
    return dev;
}

llm_model *vendor_model(const char *path, tdm_open_device *dev) {
    tdm_open_device *devs[] = {dev, vendor_device(VENDOR_CPU)};
    llm_model *model = NULL;
    tdm_error err = {0};
    RIG_OK(llm_model_open(path, &model, &err));
    RIG_OK(llm_model_load(model, rig_runtime(), devs, dev == devs[1] ? 1 : 2, NULL, NULL, &err));
    return model;
}

int32_t vendor_token(int i, int n_vocab) {
    return (i * 7919 + i * i * 31 + 13) % n_vocab;
}

tdm_status vendor_context_create(llm_model *model, llm_context **ctx_out, tdm_error *err) {
    static const tdm_type type = TDM_TYPE_Q8_0;
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 64,
                                       .n_ubatch = 32,
                                       .page_len = 16,
                                       .type_k = &type,
                                       .type_v = &type};
    return llm_context_create(model, &params, ctx_out, err);
}

llm_context *vendor_context(llm_model *model) {
    llm_context *ctx = NULL;
    tdm_error err = {0};
    RIG_OK(vendor_context_create(model, &ctx, &err));
    return ctx;
}

tdm_status vendor_token_decode(llm_context *ctx, int i, tdm_error *err) {
    const int32_t token = vendor_token(i, llm_context_model(ctx)->hparams.n_vocab);
    const llm_batch batch = {.tokens = &token, .n_tok = 1};
    return llm_context_decode(ctx, &batch, err);
}

void vendor_wait_usable(llm_model *model) {
    tdm_error err = {0};
    tdm_status status = TDM_UNAVAILABLE;
    for (int i = 0; i < 1000 && status != TDM_OK; i++) {
        llm_context *ctx = NULL;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        status = vendor_context_create(model, &ctx, &err);
        if (status == TDM_OK) status = vendor_token_decode(ctx, 0, &err);
        llm_context_destroy(ctx);
    }
    RIG_OK(status);
}

int rows_argmax(const float *x, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

rows_verdict rows_compare(const rows *reference, const rows *found) {
    int n_vocab = reference->n_vocab;
    rows_verdict v = {0};
    assert_int_equal(reference->n, found->n);
    v.error =
        sqrt(rig_nmse(reference->logits, found->logits, (size_t)reference->n * (size_t)n_vocab));
    /* As the error of a member alone it would be a bound that everything keeps. */
    if (!isfinite(v.error)) fail_msg("logits that are not finite");
    for (int i = 0; i < reference->n; i++) {
        const float *a = reference->logits + (size_t)i * (size_t)n_vocab;
        const float *b = found->logits + (size_t)i * (size_t)n_vocab;
        int best = rows_argmax(a, n_vocab);
        double sum = 0;
        float second = -INFINITY;
        if (rows_argmax(b, n_vocab) == best) continue;
        for (int k = 0; k < n_vocab; k++) {
            if (k != best && a[k] > second) second = a[k];
            sum += ((double)a[k] - b[k]) * ((double)a[k] - b[k]);
        }
        v.n_other++;
        v.n_wrong += (double)a[best] - second > 8 * sqrt(sum / n_vocab);
    }
    return v;
}
