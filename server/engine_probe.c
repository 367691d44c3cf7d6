/* SPDX-License-Identifier: MIT
 *
 * engine_probe.c: finds out whether a device works again after a failed step. While a step has
 * failed, /health reports an error, and a load balancer sends no requests. Without probes no step
 * would follow that could succeed. By the engine's thread.
 */
#include <stdio.h>

#include "server/engine_internal.h"

#define DELAY_MOST 32 /* times probe_ns */

/* Adds to a failure of memory which device has too little, and what takes less. */
static void memory_explain(const server_engine *e, tdm_error *err) {
    char why[TDM_ERROR_MESSAGE_SIZE], where[96] = "";
    if (e->model->n_dev == 1)
        snprintf(where, sizeof where, "device '%.64s': ", tdm_open_device_name(e->model->devs[0]));
    snprintf(why, sizeof why, "%.300s", err->message);
    tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
             "%sno memory for a step: %s; start the server with a smaller ubatch-size, parallel or "
             "ctx-size, or free memory of the device",
             where, why);
}

void server_probe_note(server_engine *e, tdm_status status, tdm_error *err) {
    const bool has_failed = status != TDM_OK;
    if (status == TDM_RESOURCE_EXHAUSTED) memory_explain(e, err);
    if (e->device_noted != NULL && has_failed != e->has_failed)
        e->device_noted(e->device_noted_user, has_failed ? err->message : NULL);
    e->has_failed = has_failed;
    e->failure = has_failed ? *err : (tdm_error){0};
    e->probe_delay = has_failed ? e->limits.probe_ns : 0;
    e->probe_at = has_failed ? server_clock() + e->probe_delay : 0;
}

bool server_probe_is_due(const server_engine *e, uint64_t now) {
    return e->probe_at != 0 && e->probe_at <= now;
}

void server_probe_step(server_engine *e) {
    llm_context *ctx = e->ctx != NULL ? e->ctx : e->embed_ctx;
    int32_t seq = 0;
    if (e->ctx != NULL)
        seq = server_memory_borrow(e);
    else /* it may hold tokens of a text that has failed */
        (void)llm_context_truncate(ctx, 0, 0, NULL);
    tdm_status status = TDM_RESOURCE_EXHAUSTED;
    tdm_error err = {0};
    if (seq >= 0) {
        /* A model with an encoder and a decoder: one token for the encoder, then the one that
         * begins the decoder's text. Other models: one token. */
        const int32_t start = e->n_encode > 0 ? e->model->hparams.decoder_start : 0;
        const int32_t tokens[2] = {start > 0 ? 0 : e->n_vocab - 1, start}, seqs[2] = {seq, seq};
        const bool is_wanted[2] = {false, true};
        const int32_t from = e->n_encode > 0 ? 0 : 1;
        const llm_batch batch = {.tokens = tokens + from,
                                 .seqs = seqs + from,
                                 .wanted = is_wanted + from,
                                 .n_tok = 2 - from,
                                 .role = TDM_ROLE_PROMPT};
        if (e->ctx != NULL) (void)llm_context_set_candidates(ctx, 0, NULL);
        status = llm_context_decode(ctx, &batch, &err);
        e->tally.n_probe++;
        if (e->ctx != NULL) server_memory_return(e, seq);
    }
    const uint64_t delay = e->probe_delay;
    server_probe_note(e, status, &err);
    if (status == TDM_OK) return;
    e->probe_delay = delay < DELAY_MOST * e->limits.probe_ns ? 2 * delay : delay;
    e->probe_at = server_clock() + e->probe_delay;
}
