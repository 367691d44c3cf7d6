/* SPDX-License-Identifier: MIT
 *
 * rig.h: one graph on the device under test: memory with guard bytes, transfers, the run, and the
 * comparison with the reference (reference.h).
 */
#ifndef TANDEM_CERTIFY_RIG_H
#define TANDEM_CERTIFY_RIG_H

#include "core/graph/builder.h"
#include "certify/suite.h"

/* The content of results before a run: NaN in every floating type. */
enum { CERTIFY_RESULT_BYTE = 0xff };

typedef struct certify_rig {
    certify *c;
    tdm_graph *graph;      /* owned */
    uint8_t **bytes;       /* [n_value] canonical bytes; NULL for a view and a STATE */
    size_t *sizes;         /* [n_value] of bytes[] */
    double **want;         /* [n_value] results of the reference; NULL until certify_rig_judge */
    tdm_binding *bindings; /* [n_slot] */
    bool *is_borrowed;     /* [n_slot] the buffer is not the rig's (certify_rig_bind) */
    uint8_t **raw;         /* [n_slot] what was on the device before the run, guards included */
    uint64_t *raw_size;    /* [n_slot] */
    /* Expected size of the results, so that errors are not measured against sums that happen to
     * cancel; 0 = their own size. */
    double rms;
    /* Of a device without graph_compute_sync; NULL before the first run, a plan between runs too. */
    tdm_queue *queue;
    tdm_plan *plan;
} certify_rig;

/* Takes over the builder's graph. The builder is destroyed in any case. */
certify_verdict certify_rig_create(certify *c, tdm_builder *b, certify_rig *rig_out);
void certify_rig_destroy(certify_rig *rig);

/* Random content for a WEIGHT or INPUT: numbers in -scale .. scale; of i32 in lo .. hi. */
void certify_rig_fill(certify_rig *rig, int32_t value, double scale);
void certify_rig_fill_ids(certify_rig *rig, int32_t value, int64_t lo, int64_t hi);

/* Quantises n elements, a multiple of the type's block length, to `out`. Quantisers of superblocks
 * are slow, so only the first few superblocks are quantised. The others are copies of them, in an
 * order that matches no stride of a kernel. */
void certify_quantize(tdm_type type, const float *numbers, uint8_t *out, int64_t n);

/* Whether supports_op takes every node; the first refusal in c->failure. */
bool certify_rig_is_supported(certify_rig *rig);

/* Binds a STATE to memory that several graphs use. */
void certify_rig_bind(certify_rig *rig, int32_t value, tdm_buffer *buffer, uint64_t off,
                      uint64_t size);
/* Allocates and uploads everything that is not bound. */
certify_verdict certify_rig_upload(certify_rig *rig);
/* Makes the plan of the next certify_rig_compute, which makes it itself otherwise. Members of an
 * exchange need it: graph_prepare may wait for what the device computes. */
tdm_status certify_rig_prepare(certify_rig *rig, tdm_error *err);
/* Runs the graph once, by graph_compute_sync where there is one, else through a queue. */
tdm_status certify_rig_compute(certify_rig *rig, tdm_error *err);
/* Downloads outputs and temporaries, and checks that guards, inputs and weights are unchanged. */
certify_verdict certify_rig_download(certify_rig *rig);
/* Upload, compute, download. */
certify_verdict certify_rig_run(certify_rig *rig);

/* Compares every OUTPUT with the reference: the sum of squared errors over that of the squares is
 * at most `nmse`, no single error is far above the rest, infinities and NaN are in place, and what
 * is i32 is equal. `what` begins the message. */
certify_verdict certify_rig_judge(certify_rig *rig, const char *what, double nmse);
/* The same for numbers outside of a rig; `rms` as in the rig. */
certify_verdict certify_numbers_judge(certify *c, const char *what, const double *got,
                                      const double *want, size_t n, double nmse, double rms);

/* n elements in canonical bytes, of any type but i8, as numbers. The caller frees them. NULL
 * without memory. */
double *certify_numbers(int32_t type, const void *bytes, size_t n);

#endif
