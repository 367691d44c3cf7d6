/* SPDX-License-Identifier: MIT
 *
 * context_encode.c: sequences of a model with an encoder. The tokens of a sequence before its first
 * llm_hparams.decoder_start are the encoder's; that token and all later ones are the decoder's. So
 * the tokens alone determine the two parts, and sequences share equal beginnings as in other
 * models. Both parts have cells in the same pages; each has a page table of its own in the step
 * block.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/context_internal.h"

/* In place of a number of encoded tokens: the batch begins the sequence, but has no token that
 * begins the decoder's text. */
enum { NO_START = -1 };

/* Sets n_encoded[] of each sequence that the batch begins: how many of its tokens are the
 * encoder's, or NO_START. Leaves the other sequences' numbers unchanged. */
static void encoded_count(const llm_context *ctx, const llm_batch *batch, int32_t *n_encoded) {
    int32_t n_tok[LLM_MAX_SEQ] = {0};
    for (int32_t i = 0; i < batch->n_tok; i++) {
        const int32_t seq = llm_batch_seq(batch, i);
        if (llm_kv_length(ctx->kv, seq) > 0) continue;
        if (n_tok[seq] == 0) n_encoded[seq] = NO_START;
        if (n_encoded[seq] == NO_START && batch->tokens[i] == ctx->model->hparams.decoder_start)
            n_encoded[seq] = n_tok[seq];
        n_tok[seq]++;
    }
}

tdm_status llm_encode_refuse(const llm_context *ctx, const char *what, const char *way,
                             tdm_error *err) {
    if (ctx->encoded == NULL) return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "architecture '%s' has an encoder: %s is not supported; %s",
                    ctx->model->hparams.arch, what, way);
}

tdm_status llm_encode_check(const llm_context *ctx, const llm_batch *batch, tdm_error *err) {
    const llm_hparams *h = &ctx->model->hparams;
    int32_t n_encoded[LLM_MAX_SEQ], next[LLM_MAX_SEQ];
    if (ctx->encoded == NULL) return TDM_OK;
    memcpy(n_encoded, ctx->encoded, (size_t)ctx->n_seq * sizeof *n_encoded);
    encoded_count(ctx, batch, n_encoded);
    for (int32_t s = 0; s < ctx->n_seq; s++) next[s] = llm_kv_length(ctx->kv, s);
    for (int32_t i = 0; i < batch->n_tok; i++) {
        const int32_t seq = llm_batch_seq(batch, i);
        if (n_encoded[seq] == NO_START)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "architecture '%s' has an encoder: the first batch of sequence %d has "
                            "no token %d, which begins the decoder's text (key "
                            "'%s.decoder_start_token_id'); a prompt is computed whole",
                            h->arch, seq, h->decoder_start, h->arch);
        if (n_encoded[seq] == 0)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "architecture '%s' has an encoder: sequence %d has no text for it "
                            "before token %d, which begins the decoder's",
                            h->arch, seq, h->decoder_start);
        if (next[seq]++ >= n_encoded[seq]) continue;
        if (n_encoded[seq] > ctx->n_ubatch)
            return tdm_fail(
                err, TDM_UNSUPPORTED,
                "tokens in the encoder of '%s' see later ones: %d of them do not fit an "
                "ubatch of %d; raise ubatch-size",
                h->arch, n_encoded[seq], ctx->n_ubatch);
        if (llm_batch_wants(ctx, batch, i))
            return tdm_fail(err, TDM_UNSUPPORTED,
                            "token %d of the batch is read by the encoder of '%s', which predicts "
                            "no tokens: only those from token %d on have logits",
                            i, h->arch, h->decoder_start);
    }
    return TDM_OK;
}

void llm_encode_begin(llm_context *ctx, const llm_batch *batch) {
    for (int32_t s = 0; s < ctx->n_seq; s++)
        if (llm_kv_length(ctx->kv, s) == 0) ctx->encoded[s] = 0;
    encoded_count(ctx, batch, ctx->encoded);
}

tdm_status llm_encode_split(const llm_context *ctx, const llm_batch *batch,
                            llm_encode_parts *parts_out, tdm_error *err) {
    int32_t next[LLM_MAX_SEQ], first[LLM_MAX_SEQ], n_encoded = 0;
    *parts_out = (llm_encode_parts){.decoder = *batch};
    for (int32_t s = 0; s < ctx->n_seq; s++) {
        next[s] = llm_kv_length(ctx->kv, s);
        first[s] = n_encoded;
        if (next[s] < ctx->encoded[s]) n_encoded += ctx->encoded[s];
    }
    if (n_encoded == 0) return TDM_OK;
    const size_t n = (size_t)batch->n_tok;
    /* Tokens, sequences, roles and whether logits are wanted. */
    int32_t *tokens = malloc(n * (2 * sizeof *tokens + 2));
    if (tokens == NULL) return llm_context_no_memory(err);
    int32_t *seqs = tokens + n;
    uint8_t *roles = (uint8_t *)(seqs + n);
    bool *wanted = (bool *)(roles + n);
    for (int32_t i = 0, n_decoder = 0; i < batch->n_tok; i++) {
        const int32_t seq = llm_batch_seq(batch, i);
        const bool is_encoded = llm_is_encoded(ctx, seq, next[seq]);
        const int32_t to = is_encoded ? first[seq] + next[seq] : n_encoded + n_decoder++;
        next[seq]++;
        tokens[to] = batch->tokens[i];
        seqs[to] = seq;
        roles[to] = (uint8_t)llm_batch_role(batch, i);
        wanted[to] = llm_batch_wants(ctx, batch, i);
    }
    parts_out->memory = tokens;
    parts_out->encoder = (llm_batch){
        .tokens = tokens, .seqs = seqs, .wanted = wanted, .n_tok = n_encoded, .roles = roles};
    parts_out->decoder = (llm_batch){.tokens = tokens + n_encoded,
                                     .seqs = seqs + n_encoded,
                                     .wanted = wanted + n_encoded,
                                     .n_tok = batch->n_tok - n_encoded,
                                     .roles = roles + n_encoded,
                                     .n_room = batch->n_room};
    return TDM_OK;
}

int32_t llm_encode_end(const llm_context *ctx, const llm_batch *encoder, int32_t first) {
    int32_t end = first;
    while (end < encoder->n_tok) {
        const int32_t next = end + ctx->encoded[encoder->seqs[end]];
        if (next - first > ctx->n_ubatch) break; /* a single sequence fits: llm_encode_check */
        end = next;
    }
    return end;
}

void llm_encode_free(llm_encode_parts *parts) {
    free(parts->memory);
    *parts = (llm_encode_parts){0};
}

/* Writes the page tables of a class into the step block: for each used sequence the entries of the
 * encoder's tokens, or (is_encoder false) those of the decoder's. An entry that has both is cut.
 * Returns the index behind the last entry. */
static size_t part_fill(llm_context *ctx, const tdm_step_class *to, bool is_encoder,
                        const bool *is_used) {
    int32_t n = 0;
    for (int32_t s = 0; s < ctx->n_seq; s++) {
        const tdm_page_entry *entries = llm_kv_entries(ctx->kv, s);
        const int32_t count = is_used[s] ? llm_kv_entry_count(ctx->kv, s) : 0;
        ctx->step[to->first_entry_off + s] = n;
        for (int32_t e = 0; e < count; e++) {
            tdm_page_entry entry = entries[e];
            int32_t n_encoded = ctx->encoded[s] - entry.base_pos;
            if (n_encoded < 0) n_encoded = 0;
            if (n_encoded > entry.count) n_encoded = entry.count;
            if (!is_encoder) {
                entry.first += n_encoded;
                entry.base_pos += n_encoded;
            }
            entry.count = is_encoder ? n_encoded : entry.count - n_encoded;
            if (entry.count == 0) continue;
            memcpy(&ctx->step[to->entry_off + 4 * n++], &entry, sizeof entry);
        }
    }
    ctx->step[to->first_entry_off + ctx->n_seq] = n;
    return (size_t)to->entry_off + 4 * (size_t)n;
}

/* Pads the step block between the entries of two classes. */
static void room_clear(llm_context *ctx, size_t from, size_t to) {
    memset(&ctx->step[from], 0xff, (to - from) * sizeof *ctx->step);
}

size_t llm_encode_tables_fill(llm_context *ctx, const llm_plan *plan, const bool *is_used) {
    const tdm_step_class *cls = plan->header.cls;
    size_t end = part_fill(ctx, &cls[LLM_CLASS_ALL], false, is_used);
    room_clear(ctx, end, (size_t)cls[LLM_CLASS_ENCODED].entry_off);
    for (int32_t s = 0; s <= ctx->n_seq; s++)
        ctx->step[cls[LLM_CLASS_WINDOW].first_entry_off + s] = 0;
    return part_fill(ctx, &cls[LLM_CLASS_ENCODED], true, is_used);
}
