/* SPDX-License-Identifier: MIT
 *
 * weight_upload.h: brings a model's weights from its files to the devices they were placed on.
 *
 * The model in the head: threads, the caller among them, take stretches of the files in the order in
 * which they lie there. Each reads its stretch a piece at a time into memory of its own that a
 * processor's cache holds, and hands the piece to the device, which arranges it for itself. So what
 * storage takes, what the device does with the bytes, and the system's search for memory that nobody
 * has touched yet all go on at the same time, and nothing but the weights as kept grows with the model.
 */
#ifndef LLM_WEIGHT_UPLOAD_H
#define LLM_WEIGHT_UPLOAD_H

#include "llm/model.h"

/* Uploads every weight; the model's buffers are allocated. `progress` (NULL: nobody asks) is called
 * by the calling thread only. Fails with what the device says of a piece, or llm_gguf_read of the
 * file; the buffers then hold anything. [setup] */
tdm_status llm_weights_upload(const llm_model *model, llm_progress_fn progress, void *context,
                              tdm_error *err);

#endif
