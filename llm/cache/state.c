/* SPDX-License-Identifier: MIT
 *
 * state.c: writing and reading state files.
 */
#include "llm/cache/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char magic[8] = {'T', 'D', 'M', 'S', 'T', 'A', 'T', '1'};

/* Everything that must be equal for the rows to mean the same; no padding inside. */
typedef struct state_header {
    uint64_t fingerprint; /* of the model */
    int32_t n_layer, n_head_kv, head_dim_k, head_dim_v;
    int32_t type_k, type_v;
    int32_t is_rotated;
    int32_t n_rot, rope_offset, rope_mode, n_ctx_orig;
    float freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow;
    int32_t n_tok;
} state_header;

static state_header header_of(const llm_context *ctx, int32_t n_tok) {
    const llm_model *m = llm_context_model(ctx);
    const tdm_kv_desc *d = llm_context_kv_desc(ctx);
    const tdm_rope_params *r = &m->hparams.rope;
    state_header h;
    memset(&h, 0, sizeof h);
    h.fingerprint = m->fingerprint;
    h.n_layer = m->hparams.n_layer;
    h.n_head_kv = d->n_head_kv;
    h.head_dim_k = d->head_dim_k;
    h.head_dim_v = d->head_dim_v;
    h.type_k = (int32_t)d->type_k;
    h.type_v = (int32_t)d->type_v;
    h.is_rotated = (d->flags & (TDM_KV_ROTATE_K | TDM_KV_ROTATE_V)) != 0;
    h.n_rot = r->n_rot;
    h.rope_offset = r->rope_offset;
    h.rope_mode = r->mode;
    h.n_ctx_orig = r->n_ctx_orig;
    h.freq_base = r->freq_base;
    h.freq_scale = r->freq_scale;
    h.ext_factor = r->ext_factor;
    h.attn_factor = r->attn_factor;
    h.beta_fast = r->beta_fast;
    h.beta_slow = r->beta_slow;
    h.n_tok = n_tok;
    return h;
}

/* A file with the hash of what went through it. */
typedef struct state_file {
    FILE *stream;
    const char *path;
    uint64_t hash;
} state_file;

static void file_hash(state_file *f, const void *data, size_t size) {
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++) f->hash = (f->hash ^ bytes[i]) * 0x100000001b3u;
}

static tdm_status file_write(state_file *f, const void *data, size_t size, tdm_error *err) {
    file_hash(f, data, size);
    /* A sequence of no tokens has no address to write from. */
    if (size == 0 || fwrite(data, 1, size, f->stream) == size) return TDM_OK;
    return tdm_fail(err, TDM_IO, "%s: cannot be written: %s", f->path, strerror(errno));
}

static tdm_status file_read(state_file *f, void *data, size_t size, tdm_error *err) {
    if (size > 0 && fread(data, 1, size, f->stream) != size) {
        if (ferror(f->stream))
            return tdm_fail(err, TDM_IO, "%s: cannot be read: %s", f->path, strerror(errno));
        return tdm_fail(err, TDM_DATA_LOSS, "%s: the file is truncated; save the state again",
                        f->path);
    }
    file_hash(f, data, size);
    return TDM_OK;
}

static tdm_status rows_write(llm_context *ctx, int32_t seq, int32_t n_tok, state_file *f,
                             tdm_error *err) {
    tdm_status status = TDM_OK;
    void *rows = malloc(llm_context_rows_size(ctx, LLM_STATE_CHUNK));
    if (rows == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", f->path);
    for (int32_t at = 0; at < n_tok && status == TDM_OK; at += LLM_STATE_CHUNK) {
        int32_t n = n_tok - at < LLM_STATE_CHUNK ? n_tok - at : LLM_STATE_CHUNK;
        status = llm_context_export_rows(ctx, seq, at, n, rows, err);
        if (status == TDM_OK) status = file_write(f, rows, llm_context_rows_size(ctx, n), err);
    }
    free(rows);
    return status;
}

static tdm_status state_write(llm_context *ctx, int32_t seq, const int32_t *tokens, int32_t n_tok,
                              state_file *f, tdm_error *err) {
    state_header h = header_of(ctx, n_tok);
    tdm_status status = file_write(f, magic, sizeof magic, err);
    if (status == TDM_OK) status = file_write(f, &h, sizeof h, err);
    if (status == TDM_OK) status = file_write(f, tokens, (size_t)n_tok * sizeof *tokens, err);
    if (status == TDM_OK) status = rows_write(ctx, seq, n_tok, f, err);
    uint64_t hash = f->hash;
    if (status == TDM_OK) status = file_write(f, &hash, sizeof hash, err);
    if (status == TDM_OK && (fflush(f->stream) != 0 || fsync(fileno(f->stream)) != 0))
        status = tdm_fail(err, TDM_IO, "%s: cannot be written: %s", f->path, strerror(errno));
    return status;
}

tdm_status llm_state_save(llm_context *ctx, int32_t seq, const int32_t *tokens, int32_t n_tok,
                          const char *path, tdm_error *err) {
    if (n_tok != llm_context_length(ctx, seq))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: %d token ids for a sequence of %d", path,
                        n_tok, llm_context_length(ctx, seq));
    size_t temporary_size = strlen(path) + 32;
    char *temporary = malloc(temporary_size);
    if (temporary == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    snprintf(temporary, temporary_size, "%s.%ld.tmp", path, (long)getpid());
    /* "x": nobody's file is taken for the temporary one. */
    state_file f = {fopen(temporary, "wbx"), path, 0xcbf29ce484222325u};
    tdm_status status = f.stream != NULL ? state_write(ctx, seq, tokens, n_tok, &f, err)
                                         : tdm_fail(err, TDM_IO, "%s: cannot be written: %s", path,
                                                    strerror(errno));
    if (f.stream != NULL && fclose(f.stream) != 0 && status == TDM_OK)
        status = tdm_fail(err, TDM_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (status == TDM_OK && rename(temporary, path) != 0)
        status = tdm_fail(err, TDM_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (status != TDM_OK && f.stream != NULL) unlink(temporary);
    free(temporary);
    return status;
}

/* Names the first thing in which a file differs from what the context would write. */
static tdm_status header_check(const llm_context *ctx, const state_header *h, const char *path,
                               tdm_error *err) {
    state_header own = header_of(ctx, h->n_tok);
    if (memcmp(&own, h, sizeof own) == 0) {
        if (h->n_tok >= 0 && h->n_tok <= llm_context_n_ctx(ctx)) return TDM_OK;
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "%s: holds %d tokens; the context takes %d; raise "
                        "ctx-size",
                        path, h->n_tok, llm_context_n_ctx(ctx));
    }
    if (own.fingerprint != h->fingerprint)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "%s: was saved with another model", path);
    if (own.type_k != h->type_k || own.type_v != h->type_v)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "%s: was saved with cache types %s and %s; set cache-type-k and "
                        "cache-type-v so",
                        path, tdm_type_name((tdm_type)h->type_k),
                        tdm_type_name((tdm_type)h->type_v));
    if (own.is_rotated != h->is_rotated)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "%s: was saved %s rotation; set kv-rotate so",
                        path, h->is_rotated ? "with" : "without");
    return tdm_fail(err, TDM_FAILED_PRECONDITION, "%s: was saved with other RoPE parameters", path);
}

static tdm_status rows_read(llm_context *ctx, int32_t seq, int32_t n_tok, state_file *f,
                            tdm_error *err) {
    tdm_status status = TDM_OK;
    void *rows = malloc(llm_context_rows_size(ctx, LLM_STATE_CHUNK));
    if (rows == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", f->path);
    for (int32_t at = 0; at < n_tok && status == TDM_OK; at += LLM_STATE_CHUNK) {
        int32_t n = n_tok - at < LLM_STATE_CHUNK ? n_tok - at : LLM_STATE_CHUNK;
        status = file_read(f, rows, llm_context_rows_size(ctx, n), err);
        if (status == TDM_OK) status = llm_context_import_rows(ctx, seq, n, rows, err);
    }
    free(rows);
    return status;
}

static tdm_status tokens_read(const llm_context *ctx, state_file *f, int32_t n_tok,
                              int32_t **tokens_out, tdm_error *err) {
    int32_t n_vocab = llm_context_model(ctx)->hparams.n_vocab;
    *tokens_out = malloc((size_t)n_tok * sizeof **tokens_out + 1);
    if (*tokens_out == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", f->path);
    tdm_status status = file_read(f, *tokens_out, (size_t)n_tok * sizeof **tokens_out, err);
    for (int32_t i = 0; i < n_tok && status == TDM_OK; i++)
        if ((*tokens_out)[i] < 0 || (*tokens_out)[i] >= n_vocab)
            status = tdm_fail(err, TDM_DATA_LOSS, "%s: the file is damaged; save the state again",
                              f->path);
    return status;
}

static tdm_status state_read(llm_context *ctx, int32_t seq, state_file *f, int32_t **tokens_out,
                             int32_t *n_tok_out, tdm_error *err) {
    char found[sizeof magic];
    state_header h;
    tdm_status status = file_read(f, found, sizeof found, err);
    if (status == TDM_OK && memcmp(found, magic, sizeof magic) != 0)
        status = tdm_fail(err, TDM_DATA_LOSS, "%s: is no state file of this version", f->path);
    if (status == TDM_OK) status = file_read(f, &h, sizeof h, err);
    if (status == TDM_OK) status = header_check(ctx, &h, f->path, err);
    if (status == TDM_OK) status = tokens_read(ctx, f, h.n_tok, tokens_out, err);
    if (status == TDM_OK) status = rows_read(ctx, seq, h.n_tok, f, err);
    if (status != TDM_OK) return status;
    uint64_t expected = f->hash, hash;
    status = file_read(f, &hash, sizeof hash, err);
    if (status == TDM_OK && (hash != expected || fgetc(f->stream) != EOF))
        status =
            tdm_fail(err, TDM_DATA_LOSS, "%s: the file is damaged; save the state again", f->path);
    if (status == TDM_OK) *n_tok_out = h.n_tok;
    return status;
}

tdm_status llm_state_load(llm_context *ctx, int32_t seq, const char *path, int32_t **tokens_out,
                          int32_t *n_tok_out, tdm_error *err) {
    if (llm_context_length(ctx, seq) != 0)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "%s: sequence %d is not empty", path, seq);
    state_file f = {fopen(path, "rb"), path, 0xcbf29ce484222325u};
    if (f.stream == NULL)
        return tdm_fail(err, errno == ENOENT ? TDM_NOT_FOUND : TDM_IO, "%s: cannot be read: %s",
                        path, strerror(errno));
    int32_t *tokens = NULL;
    tdm_status status = state_read(ctx, seq, &f, &tokens, n_tok_out, err);
    fclose(f.stream);
    if (status != TDM_OK) {
        free(tokens);
        llm_context_truncate(ctx, seq, 0, NULL);
        return status;
    }
    *tokens_out = tokens;
    return TDM_OK;
}
