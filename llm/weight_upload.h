/* SPDX-License-Identifier: MIT
 *
 * weight_upload.h: uploads a model's weights from its files to their devices.
 *
 * Several threads, the caller among them, take ranges of the files in file order. A thread reads
 * its range in pieces that fit a core's cache, and gives each piece to the device, which converts
 * it to its own layout. So three things overlap: reading from storage, converting, and the clearing
 * of fresh pages by the system. Memory use besides the weights does not depend on the model's size.
 */
#ifndef LLM_WEIGHT_UPLOAD_H
#define LLM_WEIGHT_UPLOAD_H

#include "llm/model.h"

/* Uploads every weight into the model's buffers, which are allocated. `progress` (nullable) is
 * called by the calling thread only. Fails as the device's upload or llm_gguf_read; the contents of
 * the buffers are undefined then. [setup] */
tdm_status llm_weights_upload(const llm_model *model, llm_progress_fn progress, void *context,
                              tdm_error *err);

#endif
