/* SPDX-License-Identifier: MIT
 *
 * state.c: writing and reading state files.
 */
#include "llm/cache/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/hash.h"

/* The last byte is the version of the format. Files of WINDOWED have, behind the header, the first
 * token that layers with a window have rows of (i32); in files of WHOLE they have all. Files of
 * LAYERED have there a state_layer for each layer, then that token, 0 where rows are whole. */
enum { MAGIC_LEN = 8, WHOLE = '1', WINDOWED = '2', LAYERED = '3' };
static const char magic[MAGIC_LEN - 1] = {'T', 'D', 'M', 'S', 'T', 'A', 'T'};

/* Bits of state_header.form. */
enum { FORM_ROTATED = 1, FORM_SPARSE = 2 /* rows have the keys of an index */ };

/* All that must be equal for the rows to have the same meaning, and the number of tokens. Without
 * padding, so that headers are compared and written as bytes. */
typedef struct state_header {
    uint64_t fingerprint; /* of the model, and of the adapters that the sequence has */
    int32_t n_layer, n_head_kv, head_dim_k, head_dim_v;
    int32_t type_k, type_v;
    int32_t form; /* FORM_* */
    int32_t n_rot, rope_offset, rope_mode, n_ctx_orig;
    float freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow;
    int32_t n_tok;
} state_header;

/* The types of a layer's rows, where layers differ; the header's types are -1 then. All 0 for a
 * layer without a cache. */
typedef struct state_layer {
    uint8_t type_k, type_v;
    uint8_t is_rotated_k, is_rotated_v; /* 1 = yes */
} state_layer;

static state_layer layer_of(const llm_context *ctx, int32_t l) {
    const llm_layer_types t = llm_context_layer_types(ctx, l);
    if (!llm_layer_has_cache(&llm_context_model(ctx)->specs[l])) return (state_layer){0};
    return (state_layer){(uint8_t)t.k, (uint8_t)t.v, t.rotates_k, t.rotates_v};
}

static state_header header_of(const llm_context *ctx, int32_t seq, int32_t n_tok) {
    const llm_model *m = llm_context_model(ctx);
    const tdm_kv_desc *d = llm_context_kv_desc(ctx);
    const tdm_rope_params *r = &m->hparams.rope;
    state_header h;
    memset(&h, 0, sizeof h);
    h.fingerprint = m->fingerprint ^ llm_context_scales_hash(ctx, seq);
    h.n_layer = m->hparams.n_layer;
    h.n_head_kv = d->n_head_kv;
    h.head_dim_k = d->head_dim_k;
    h.head_dim_v = d->head_dim_v;
    const bool is_layered = llm_context_has_layer_types(ctx);
    h.type_k = is_layered ? -1 : (int32_t)d->type_k;
    h.type_v = is_layered ? -1 : (int32_t)d->type_v;
    if (!is_layered && (d->flags & (TDM_KV_ROTATE_K | TDM_KV_ROTATE_V)) != 0)
        h.form |= FORM_ROTATED;
    if ((d->flags & TDM_KV_SPARSE) != 0) h.form |= FORM_SPARSE;
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

/* A file and the hash of all bytes read from it or written to it so far. */
typedef struct state_file {
    FILE *stream;
    const char *path;
    uint64_t hash;
} state_file;

static void file_hash(state_file *f, const void *data, size_t size) {
    f->hash = tdm_hash_add(f->hash, data, size);
}

static tdm_status file_write(state_file *f, const void *data, size_t size, tdm_error *err) {
    file_hash(f, data, size);
    /* An empty sequence has tokens NULL, which fwrite does not take. */
    if (size == 0 || fwrite(data, 1, size, f->stream) == size) return TDM_OK;
    return tdm_fail(err, TDM_IO, "%s: cannot be written: %s", f->path, strerror(errno));
}

static tdm_status file_read(state_file *f, void *data, size_t size, tdm_error *err) {
    if (size > 0 && fread(data, 1, size, f->stream) != size) {
        if (ferror(f->stream))
            return tdm_fail(err, TDM_IO, "%s: cannot be read: %s", f->path, strerror(errno));
        return tdm_fail(err, TDM_DATA_LOSS, "%s: the file is truncated; remove it", f->path);
    }
    file_hash(f, data, size);
    return TDM_OK;
}

static tdm_status rows_write(llm_context *ctx, int32_t seq, int32_t n_tok, state_file *f,
                             tdm_error *err) {
    tdm_status status = TDM_OK;
    const int32_t chunk = llm_context_chunk(ctx);
    void *rows = malloc(llm_context_rows_size(ctx, chunk));
    if (rows == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", f->path);
    const int32_t window_first = llm_context_window_first(ctx, seq);
    for (int32_t at = 0; at < n_tok && status == TDM_OK; at += chunk) {
        int32_t n = n_tok - at < chunk ? n_tok - at : chunk;
        const size_t size = llm_context_rows_size_at(ctx, at, n, window_first);
        status = llm_context_export_rows(ctx, seq, at, n, rows, err);
        if (status == TDM_OK) status = file_write(f, rows, size, err);
    }
    free(rows);
    return status;
}

/* Recurrent states, where the model has them: as they are behind the last token. */
static tdm_status slot_write(llm_context *ctx, int32_t seq, state_file *f, tdm_error *err) {
    const size_t size = llm_context_slot_size(ctx);
    if (size == 0) return TDM_OK;
    void *data = malloc(size);
    if (data == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", f->path);
    tdm_status status = llm_context_export_slot(ctx, seq, data, err);
    if (status == TDM_OK) status = file_write(f, data, size, err);
    free(data);
    return status;
}

static tdm_status state_write(llm_context *ctx, int32_t seq, const int32_t *tokens, int32_t n_tok,
                              state_file *f, tdm_error *err) {
    state_header h = header_of(ctx, seq, n_tok);
    const int32_t window_first = llm_context_window_first(ctx, seq);
    const bool is_layered = llm_context_has_layer_types(ctx);
    const char version = is_layered ? LAYERED : window_first > 0 ? WINDOWED : WHOLE;
    tdm_status status = file_write(f, magic, sizeof magic, err);
    if (status == TDM_OK) status = file_write(f, &version, 1, err);
    if (status == TDM_OK) status = file_write(f, &h, sizeof h, err);
    for (int32_t l = 0; is_layered && l < h.n_layer && status == TDM_OK; l++) {
        const state_layer layer = layer_of(ctx, l);
        status = file_write(f, &layer, sizeof layer, err);
    }
    if (status == TDM_OK && version != WHOLE)
        status = file_write(f, &window_first, sizeof window_first, err);
    if (status == TDM_OK) status = file_write(f, tokens, (size_t)n_tok * sizeof *tokens, err);
    if (status == TDM_OK) status = rows_write(ctx, seq, n_tok, f, err);
    if (status == TDM_OK) status = slot_write(ctx, seq, f, err);
    uint64_t hash = f->hash;
    if (status == TDM_OK) status = file_write(f, &hash, sizeof hash, err);
    if (status == TDM_OK && (fflush(f->stream) != 0 || fsync(fileno(f->stream)) != 0))
        status = tdm_fail(err, TDM_IO, "%s: cannot be written: %s", f->path, strerror(errno));
    return status;
}

/* Writes the file at `path`, which is not a link. */
static tdm_status file_save(llm_context *ctx, int32_t seq, const int32_t *tokens, int32_t n_tok,
                            const char *path, tdm_error *err) {
    size_t temporary_size = strlen(path) + 32;
    char *temporary = malloc(temporary_size);
    if (temporary == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    snprintf(temporary, temporary_size, "%s.%ld.tmp", path, (long)getpid());
    /* "x": an existing file of that name is not overwritten. */
    state_file f = {fopen(temporary, "wbx"), path, TDM_HASH_BEGIN};
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

tdm_status llm_state_save(llm_context *ctx, int32_t seq, const int32_t *tokens, int32_t n_tok,
                          const char *path, tdm_error *err) {
    if (n_tok != llm_context_length(ctx, seq))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: %d token ids for a sequence of %d", path,
                        n_tok, llm_context_length(ctx, seq));
    char *target = realpath(path, NULL); /* NULL: there is no such file yet */
    tdm_status status = file_save(ctx, seq, tokens, n_tok, target != NULL ? target : path, err);
    free(target);
    return status;
}

/* Refuses a file whose RoPE parameters differ, and names the first of them. */
static tdm_status rope_check(const state_header *own, const state_header *found, const char *path,
                             tdm_error *err) {
    const struct {
        const char *name;
        double own, found;
    } params[] = {
        {"dimension count", own->n_rot, found->n_rot},
        {"offset", own->rope_offset, found->rope_offset},
        {"mode", own->rope_mode, found->rope_mode},
        {"original context length", own->n_ctx_orig, found->n_ctx_orig},
        {"frequency base", (double)own->freq_base, (double)found->freq_base},
        {"frequency scale", (double)own->freq_scale, (double)found->freq_scale},
        {"extrapolation factor", (double)own->ext_factor, (double)found->ext_factor},
        {"attention factor", (double)own->attn_factor, (double)found->attn_factor},
        {"beta fast", (double)own->beta_fast, (double)found->beta_fast},
        {"beta slow", (double)own->beta_slow, (double)found->beta_slow},
    };
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        if (!(params[i].own == params[i].found))
            return tdm_fail(err, TDM_FAILED_PRECONDITION,
                            "%s: saved with RoPE %s %g, the model has %g; use the model file that "
                            "it was saved with, or remove it",
                            path, params[i].name, params[i].found, params[i].own);
    return TDM_OK;
}

/* Refuses a header that differs from the one that this context would write, and names the first
 * difference. */
static tdm_status header_check(const llm_context *ctx, int32_t seq, const state_header *h,
                               char version, const char *path, tdm_error *err) {
    state_header own = header_of(ctx, seq, h->n_tok);
    const bool is_layered = llm_context_has_layer_types(ctx);
    if (own.fingerprint != h->fingerprint)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "%s: saved with another model%s; use %s, or remove the file", path,
                        llm_context_scales(ctx, seq) != NULL ? " or with other adapters or scales"
                                                             : "",
                        llm_context_scales(ctx, seq) != NULL ? "those" : "that model");
    if (is_layered != (version == LAYERED))
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "%s: saved with %s, this one has %s; set cache-budget and kv-rotate as "
                        "saved, or remove the file",
                        path,
                        is_layered ? "a cache of one type for all layers"
                                   : "a cache of types for each layer",
                        is_layered ? "types for each layer" : "one type for all");
    if (own.type_k != h->type_k || own.type_v != h->type_v)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "%s: saved with a cache of K %s, V %s, this one has K %s, V %s; set "
                        "cache-type-k and cache-type-v as saved, or remove the file",
                        path, tdm_type_name((tdm_type)h->type_k),
                        tdm_type_name((tdm_type)h->type_v), tdm_type_name((tdm_type)own.type_k),
                        tdm_type_name((tdm_type)own.type_v));
    if (((own.form ^ h->form) & FORM_ROTATED) != 0)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "%s: saved %s rotation; set kv-rotate = %s, or remove the file", path,
                        (h->form & FORM_ROTATED) != 0 ? "with" : "without",
                        (h->form & FORM_ROTATED) != 0 ? "yes" : "no");
    if (((own.form ^ h->form) & FORM_SPARSE) != 0)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "%s: saved in a context of %s tokens than the model's attention selects; "
                        "set ctx-size as saved, or remove the file",
                        path, (h->form & FORM_SPARSE) != 0 ? "more" : "no more");
    tdm_status status = rope_check(&own, h, path, err);
    if (status != TDM_OK) return status;
    if (memcmp(&own, h, sizeof own) != 0 || h->n_tok < 0 || h->n_tok > LLM_MAX_CTX)
        return tdm_fail(err, TDM_DATA_LOSS, "%s: the file is damaged; remove it", path);
    return TDM_OK;
}

/* What is read of a file: all of it, or what it has in common with a prompt. */
typedef struct state_load {
    const int32_t *prompt; /* [n_prompt]; NULL = all */
    int32_t n_prompt;
    int32_t *tokens;      /* all: the ids, [n_keep] */
    int32_t n_keep;       /* tokens whose rows are taken */
    int32_t window_first; /* of the file */
} state_load;

static tdm_status tokens_read(const llm_context *ctx, state_file *f, int32_t n_tok,
                              state_load *load, tdm_error *err) {
    int32_t n_vocab = llm_context_model(ctx)->hparams.n_vocab;
    int32_t ids[LLM_STATE_CHUNK];
    if (load->prompt == NULL) {
        if (n_tok > llm_context_n_ctx(ctx))
            return tdm_fail(err, TDM_OUT_OF_RANGE,
                            "%s: holds %d tokens, the context has room for %d; raise ctx-size",
                            f->path, n_tok, llm_context_n_ctx(ctx));
        load->tokens = malloc((size_t)n_tok * sizeof *load->tokens + 1);
        if (load->tokens == NULL)
            return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", f->path);
    }
    for (int32_t at = 0; at < n_tok; at += LLM_STATE_CHUNK) {
        int32_t n = n_tok - at < LLM_STATE_CHUNK ? n_tok - at : LLM_STATE_CHUNK;
        tdm_status status = file_read(f, ids, (size_t)n * sizeof *ids, err);
        if (status != TDM_OK) return status;
        for (int32_t i = 0; i < n; i++) {
            if (ids[i] < 0 || ids[i] >= n_vocab)
                return tdm_fail(err, TDM_DATA_LOSS, "%s: the file is damaged; remove it", f->path);
            if (load->prompt == NULL)
                load->tokens[load->n_keep++] = ids[i];
            else if (load->n_keep == at + i && at + i < load->n_prompt &&
                     load->prompt[at + i] == ids[i])
                load->n_keep++;
        }
    }
    return TDM_OK;
}

static tdm_status rows_read(llm_context *ctx, int32_t seq, int32_t n_tok, const state_load *load,
                            state_file *f, tdm_error *err) {
    const int32_t n_keep = load->n_keep, window_first = load->window_first;
    tdm_status status = TDM_OK;
    const int32_t chunk = llm_context_chunk(ctx);
    void *rows = malloc(llm_context_rows_size(ctx, chunk));
    if (rows == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", f->path);
    if (n_keep > 0) llm_context_import_begin(ctx, seq, window_first);
    for (int32_t at = 0; at < n_tok && status == TDM_OK; at += chunk) {
        int32_t n = n_tok - at < chunk ? n_tok - at : chunk;
        int32_t n_taken = n_keep - at < n ? n_keep - at : n;
        status = file_read(f, rows, llm_context_rows_size_at(ctx, at, n, window_first), err);
        if (status != TDM_OK || n_taken <= 0) continue;
        if (n_taken < n) llm_context_rows_shorten(ctx, rows, at, n, n_taken, window_first);
        status = llm_context_import_rows(ctx, seq, n_taken, rows, err);
    }
    free(rows);
    return status;
}

static tdm_status slot_read(llm_context *ctx, int32_t seq, state_file *f, const state_load *load,
                            tdm_error *err) {
    const size_t size = llm_context_slot_size(ctx);
    if (size == 0) return TDM_OK;
    void *data = malloc(size);
    if (data == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", f->path);
    tdm_status status = file_read(f, data, size, err);
    if (status == TDM_OK && load->n_keep > 0)
        status = llm_context_import_slot(
            ctx, seq, load->prompt != NULL ? load->prompt : load->tokens, data, err);
    free(data);
    return status;
}

static tdm_status magic_check(const char found[MAGIC_LEN], const char *path, tdm_error *err) {
    const char version = found[MAGIC_LEN - 1];
    if (memcmp(found, magic, sizeof magic) != 0 || version <= ' ' || version > '~')
        return tdm_fail(err, TDM_DATA_LOSS, "%s: not a state file; give another name", path);
    if (version >= WHOLE && version <= LAYERED) return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "%s: a state file of version %c, this program reads versions %c to %c; use "
                    "the program that saved it, or remove the file",
                    path, version, WHOLE, LAYERED);
}

/* Refuses a file whose layers have other types than this context's, and names the first. */
static tdm_status layers_check(const llm_context *ctx, state_file *f, tdm_error *err) {
    for (int32_t l = 0; l < llm_context_model(ctx)->hparams.n_layer; l++) {
        const state_layer own = layer_of(ctx, l);
        state_layer found;
        const tdm_status status = file_read(f, &found, sizeof found, err);
        if (status != TDM_OK) return status;
        if (memcmp(&own, &found, sizeof own) != 0)
            return tdm_fail(err, TDM_FAILED_PRECONDITION,
                            "%s: saved with other cache types of layer %d; set cache-budget, "
                            "cache-file and kv-rotate as saved, or remove the file",
                            f->path, l);
    }
    return TDM_OK;
}

/* Reads the first token that layers with a window have rows of. may_be_whole: it may be 0, which
 * means that the file has all rows. */
static tdm_status window_read(const llm_context *ctx, state_file *f, int32_t n_tok,
                              bool may_be_whole, state_load *load, tdm_error *err) {
    tdm_status status = file_read(f, &load->window_first, sizeof load->window_first, err);
    if (status != TDM_OK || (may_be_whole && load->window_first == 0)) return status;
    if (!llm_context_has_window(ctx))
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "%s: saved without the rows before the windows of attention, which this "
                        "context keeps; set swa-full = no and a larger ctx-size, or remove the "
                        "file",
                        f->path);
    if (load->window_first < 1 || !llm_context_window_suffices(ctx, n_tok, load->window_first))
        return tdm_fail(err, TDM_DATA_LOSS, "%s: the file is damaged; remove it", f->path);
    return TDM_OK;
}

static tdm_status state_read(llm_context *ctx, int32_t seq, state_file *f, state_load *load,
                             tdm_error *err) {
    char found[MAGIC_LEN] = {0};
    state_header h;
    memcpy(found, magic, sizeof magic);
    tdm_status status = file_read(f, found, sizeof found, err);
    /* A short file of another kind is not a truncated one: the user may want to keep it. */
    if (status == TDM_OK || (status == TDM_DATA_LOSS && memcmp(found, magic, sizeof magic) != 0))
        status = magic_check(found, f->path, err);
    if (status == TDM_OK) status = file_read(f, &h, sizeof h, err);
    const char version = found[MAGIC_LEN - 1];
    if (status == TDM_OK) status = header_check(ctx, seq, &h, version, f->path, err);
    if (status == TDM_OK && version == LAYERED) status = layers_check(ctx, f, err);
    if (status == TDM_OK && version != WHOLE)
        status = window_read(ctx, f, h.n_tok, version == LAYERED, load, err);
    if (status == TDM_OK) status = tokens_read(ctx, f, h.n_tok, load, err);
    /* A shorter sequence needs rows from further back. */
    if (status == TDM_OK && !llm_context_window_suffices(ctx, load->n_keep, load->window_first))
        load->n_keep = 0;
    /* Recurrent states are those behind the last token: a prompt has all of the tokens, or none is
     * taken. */
    if (status == TDM_OK && llm_context_slot_size(ctx) > 0 && load->n_keep < h.n_tok)
        load->n_keep = 0;
    if (status == TDM_OK) status = rows_read(ctx, seq, h.n_tok, load, f, err);
    if (status == TDM_OK && load->n_keep > 0)
        llm_context_import_tokens(ctx, seq, load->prompt != NULL ? load->prompt : load->tokens);
    if (status == TDM_OK) status = slot_read(ctx, seq, f, load, err);
    if (status != TDM_OK) return status;
    uint64_t expected = f->hash, hash;
    status = file_read(f, &hash, sizeof hash, err);
    if (status == TDM_OK && (hash != expected || fgetc(f->stream) != EOF))
        status = tdm_fail(err, TDM_DATA_LOSS, "%s: the file is damaged; remove it", f->path);
    return status;
}

/* On failure the sequence is empty and load->tokens NULL. */
static tdm_status file_load(llm_context *ctx, int32_t seq, const char *path, state_load *load,
                            tdm_error *err) {
    if (llm_context_length(ctx, seq) != 0)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "%s: sequence %d is not empty", path, seq);
    state_file f = {fopen(path, "rb"), path, TDM_HASH_BEGIN};
    if (f.stream == NULL)
        return tdm_fail(err, errno == ENOENT ? TDM_NOT_FOUND : TDM_IO, "%s: cannot be read: %s",
                        path, strerror(errno));
    tdm_status status = state_read(ctx, seq, &f, load, err);
    fclose(f.stream);
    if (status == TDM_OK) return TDM_OK;
    free(load->tokens);
    load->tokens = NULL;
    llm_context_truncate(ctx, seq, 0, NULL);
    return status;
}

tdm_status llm_state_load(llm_context *ctx, int32_t seq, const char *path, int32_t **tokens_out,
                          int32_t *n_tok_out, tdm_error *err) {
    state_load load = {0};
    tdm_status status = file_load(ctx, seq, path, &load, err);
    if (status != TDM_OK) return status;
    *tokens_out = load.tokens;
    *n_tok_out = load.n_keep;
    return TDM_OK;
}

tdm_status llm_state_load_prefix(llm_context *ctx, int32_t seq, const char *path,
                                 const int32_t *prompt, int32_t n_prompt, int32_t *n_tok_out,
                                 tdm_error *err) {
    state_load load = {.prompt = prompt, .n_prompt = n_prompt};
    tdm_status status = file_load(ctx, seq, path, &load, err);
    if (status == TDM_OK) *n_tok_out = load.n_keep;
    return status;
}
