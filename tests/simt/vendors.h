/* SPDX-License-Identifier: MIT
 *
 * vendors.h: the devices of a machine with cards of several makers, for tests of whole models: CUDA
 * and HIP on emulated drivers, Vulkan on the machine's driver, and the CPU; and how the logits of a
 * device or group compare with the CPU's reference path.
 */
#ifndef TANDEM_TESTS_SIMT_VENDORS_H
#define TANDEM_TESTS_SIMT_VENDORS_H

#include "tests/model/rig.h"

typedef enum vendor { VENDOR_NVIDIA, VENDOR_AMD, VENDOR_VULKAN, VENDOR_CPU, N_VENDOR } vendor;

/* Names of the devices. */
extern const char *const vendor_names[N_VENDOR];
/* Paths of the emulated drivers; main sets them. */
extern const char *vendor_cuda_driver, *vendor_hip_driver;

/* Opens a device; it stays open until rig_end. */
tdm_status vendor_open(int vendor, tdm_open_device **dev_out, tdm_error *err);
/* The same; fails the running test where it cannot be opened. */
tdm_open_device *vendor_device(int vendor);

/* Loads a model on the device, with the CPU as its second device, as the program does: the CPU
 * holds a cache in host memory. Closed with llm_model_close. */
llm_model *vendor_model(const char *path, tdm_open_device *dev);

/* The i-th token of the sequence that all devices get. */
int32_t vendor_token(int i, int n_vocab);

/* A context of 64 tokens with a cache of q8_0. Destroyed with llm_context_destroy. */
tdm_status vendor_context_create(llm_model *model, llm_context **ctx_out, tdm_error *err);
/* The same; fails the running test where it cannot be created. */
llm_context *vendor_context(llm_model *model);

/* Appends vendor_token(i) to the context's sequence and decodes it. */
tdm_status vendor_token_decode(llm_context *ctx, int i, tdm_error *err);

/* Waits until a group computes again after a member was late: it refuses runs until the member's
 * computation has ended. Fails the running test where that takes more than about 10 seconds. */
void vendor_wait_usable(llm_model *model);

/* Logits of some tokens. */
typedef struct rows {
    float *logits; /* [n, n_vocab] the caller's */
    int n, n_vocab;
} rows;

typedef struct rows_verdict {
    double error; /* relative RMS error against the reference */
    int n_other;  /* rows with another most likely token */
    int n_wrong;  /* of them, rows where the reference's margin is above 8 times the RMS error */
} rows_verdict;

int rows_argmax(const float *x, int n);
/* Fails the running test where a logit is not finite. */
rows_verdict rows_compare(const rows *reference, const rows *found);

#endif
