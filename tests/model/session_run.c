/* SPDX-License-Identifier: MIT
 *
 * session_run.c: the model, its context and the records of a random session, and its end. Its
 * operations: session_ops.c.
 */
#include <math.h>

#include "llm/arch/arch.h"
#include "tests/model/session_internal.h"

static const session_place one_cpu = {.n_member = 1, .members = {SESSION_CPU}};

bool session_problem(session *s, const char *format, ...) {
    va_list args;
    if (s->trace->problem[0] != 0) return false;
    va_start(args, format);
    vsnprintf(s->trace->problem, sizeof s->trace->problem, format, args);
    va_end(args);
    s->trace->problem_at = s->trace->n_record;
    return false;
}

/* ---- Model and context ----------------------------------------------------------------------- */

static llm_context_params params_of(const session *s) {
    const session_case *c = s->c;
    return (llm_context_params){.struct_size = sizeof(llm_context_params),
                                .n_ctx = c->n_ctx,
                                .n_ubatch = c->n_ubatch,
                                .n_seq = c->n_seq,
                                .page_len = c->page_len[s->place],
                                .type_k = &c->type_k,
                                .type_v = &c->type_v,
                                .is_unrotated = c->is_unrotated,
                                .gives_hidden =
                                    c->gives_hidden && !s->has_encoder && !s->is_encoder,
                                .gives_embeddings = s->is_encoder,
                                .has_all_logits = c->has_all_logits,
                                .is_cache_in_host = c->is_cache_in_host,
                                .is_window_whole = c->is_window_whole,
                                .layer_types = c->has_layer_types ? s->layers : NULL,
                                .begins_decoder = true};
}

/* Whether a device of the place has an option with one of these keys. */
static bool has_option(const session_place *p, const char *key, const char *or_key) {
    for (int i = 0; i < p->n_member; i++)
        if (p->options[i].key != NULL &&
            (strcmp(p->options[i].key, key) == 0 || strcmp(p->options[i].key, or_key) == 0))
            return true;
    return false;
}

static bool may_cut(const session_place *p) {
    return p->is_group &&
           (strcmp(p->attention, "sequence") == 0 || strcmp(p->attention, "auto") == 0);
}

bool session_may_cut_sequence(const session *s) {
    return may_cut(&s->c->places[0]) || may_cut(&s->c->places[1]);
}

bool session_has_limits(const session *s) {
    return has_option(&s->c->places[0], "memory", "max-buffer") ||
           has_option(&s->c->places[1], "memory", "max-buffer");
}

/* Whether a model or a context may be refused on these devices with this error. All reasons are
 * here: a call is never wrong (TDM_INVALID_ARGUMENT), for example. */
static bool may_refuse(const session *s, tdm_status status, const tdm_error *err) {
    const session_case *c = s->c;
    const session_place *p = &c->places[s->place];
    const struct {
        tdm_status status;
        bool is_possible;
        const char *words;
    } reasons[] = {
        {TDM_RESOURCE_EXHAUSTED, has_option(p, "memory", "max-buffer"), "bytes asked for"},
        {TDM_RESOURCE_EXHAUSTED, has_option(p, "memory", "max-buffer"), "buffers of"},
        /* of the plugins "discrete" and "fault" */
        {TDM_UNSUPPORTED, has_option(p, "refuse", "refuse"), "refuses the op"},
        {TDM_UNSUPPORTED, has_option(p, "refuse", "refuse"), "has the option to refuse op"},
        {TDM_UNSUPPORTED, may_cut(p), "cut by sequence; use attention = heads or replicate"},
        {TDM_UNSUPPORTED, c->is_cache_in_host && !p->is_group && !p->has_cpu,
         "the cache is in the host's memory, which the device does not use"},
        {TDM_UNSUPPORTED, c->n_adapter > 0, "whose products are not supported with adapters"},
        {TDM_UNSUPPORTED, c->is_form_refused, ""},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status && reasons[i].is_possible &&
            strstr(err->message, reasons[i].words) != NULL)
            return true;
    return false;
}

static bool refused(session *s, tdm_status status, const tdm_error *err) {
    s->trace->is_refused = s->guide == NULL && may_refuse(s, status, err);
    return session_problem(s, "%s: %s", tdm_status_text(status), err->message);
}

void session_down(session *s) {
    llm_context_destroy(s->other);
    llm_context_destroy(s->ctx);
    llm_model_close(s->model);
    s->other = s->ctx = NULL;
    s->model = NULL;
    s->n_other = 0;
    if (s->rig.rt == NULL) return;
    session_memory_check(&s->rig);
    session_close(&s->rig);
}

bool session_is_latent(const llm_model *m) {
    tdm_kv_desc d;
    llm_cache_desc_fill(m, &d);
    return (d.flags & TDM_KV_V_FROM_K) != 0;
}

/* The device of a layer, by chance. */
static int32_t weight_device(void *user, const char *name) {
    const session *s = user;
    int layer = 0;
    if (sscanf(name, "blk.%d.", &layer) != 1) return -1;
    uint64_t r = s->c->seed ^ (uint64_t)layer;
    return (int32_t)random_u32_below(&r, 3) - 1;
}

static tdm_status model_load(session *s, tdm_error *err) {
    const llm_placement placement = {weight_device, s};
    llm_model *m = s->model;
    for (int i = 0; i < s->c->n_adapter; i++) {
        char name[32];
        snprintf(name, sizeof name, "adapter-%d.gguf", i);
        const tdm_status status = llm_model_add_adapter(m, rig_file(name), 1, err);
        if (status != TDM_OK) return status;
    }
    if (s->c->is_placed && s->rig.n_dev == 2) llm_model_place(m, &placement);
    return llm_model_load(m, s->rig.rt, s->rig.devs, s->rig.n_dev, NULL, NULL, err);
}

/* Opens devices, model and context. */
bool session_up(session *s) {
    tdm_error err = {0};
    tdm_status status =
        session_open(s->guide != NULL ? &one_cpu : &s->c->places[s->place], s->path, &s->rig, &err);
    if (status == TDM_OK) status = llm_model_open(s->file, &s->model, &err);
    if (status == TDM_OK) status = model_load(s, &err);
    if (status != TDM_OK) return refused(s, status, &err);
    const llm_model *m = s->model;
    s->is_encoder = m->arch->is_encoder;
    s->has_encoder = m->hparams.n_layer_encoder > 0;
    llm_context_params params = params_of(s);
    if (session_is_latent(m)) params.type_v = params.type_k;
    for (int i = 0; i < m->hparams.n_layer && i < SESSION_MAX_LAYER; i++) {
        s->layers[i] = session_case_layer(s->c, i);
        if (!session_is_latent(m)) continue;
        s->layers[i].v = s->layers[i].k;
        s->layers[i].rotates_v = s->layers[i].rotates_k;
    }
    status = llm_context_create(s->model, &params, &s->ctx, &err);
    if (status != TDM_OK) return refused(s, status, &err);
    s->n_vocab = m->hparams.n_vocab;
    s->n_free = llm_context_free_pages(s->ctx);
    s->trace->is_recurrent = llm_model_is_recurrent(m);
    s->trace->is_bidirectional = m->hparams.is_bidirectional;
    s->trace->has_experts = m->hparams.n_expert > 0;
    s->trace->is_quantized = s->c->has_layer_types ||
                             tdm_type_get_info(*params.type_k).is_quantized ||
                             tdm_type_get_info(*params.type_v).is_quantized;
    if (s->n_candidate > 0) llm_context_set_candidates(s->ctx, s->n_candidate, NULL);
    for (int i = 0; i < s->c->n_seq && m->n_adapter > 0; i++)
        if (llm_context_set_scales(s->ctx, i, s->seqs[i].scales, &err) != TDM_OK)
            session_problem(s, "%s", err.message);
    return true;
}

/* ---- Records --------------------------------------------------------------------------------- */

session_record *session_record_now(session *s) {
    return &s->trace->records[s->trace->n_record];
}

void session_floats_take(session *s, const float *row, int n) {
    s->trace->rows = realloc(s->trace->rows, (s->trace->n_float + (size_t)n) * sizeof *row);
    assert_non_null(s->trace->rows);
    memcpy(s->trace->rows + s->trace->n_float, row, (size_t)n * sizeof *row);
    s->trace->n_float += (size_t)n;
}

void session_row_take(session *s, const float *row, int n) {
    session_record *r = session_record_now(s);
    if (r->n_row == 0) r->row_at = s->trace->n_float;
    session_floats_take(s, row, n);
    r->row_len = n;
    r->n_row++;
}

bool session_took(session *s, tdm_status status, unsigned may, const tdm_error *err) {
    session_record *r = session_record_now(s);
    r->status = status;
    if (status == TDM_OK)
        return (may & MAY(TDM_OK)) != 0 || s->is_lost || session_problem(s, "was not refused");
    snprintf(r->message, sizeof r->message, "%.255s", err->message);
    if (s->is_lost) return false;
    if (err->message[0] == 0 || strchr(err->message, '\n') != NULL)
        return session_problem(s, "%s: the message is not one line: '%s'", tdm_status_text(status),
                               err->message);
    if (session_is_loss(err)) {
        s->is_lost = s->trace->is_lost = true;
        return false;
    }
    const bool is_own = session_is_limit(err) || (s->is_armed && session_is_failure(err));
    if ((may & MAY(status)) != 0 && !is_own) return false;
    if (!is_own) return session_problem(s, "%s: %s", tdm_status_text(status), err->message);
    r->is_injected = s->trace->is_injected = true;
    session_heal(&s->rig);
    s->is_armed = false;
    return false;
}

void session_value_take(session *s, int value) {
    session_record *r = session_record_now(s);
    if (r->n_value < 4) r->values[r->n_value++] = value;
}

/* ---- The session ----------------------------------------------------------------------------- */

/* Brings the sequences to the lengths that they have after a failure on the case's devices. */
static void follow(session *s, const session_record *of) {
    *session_record_now(s) = (session_record){.is_injected = true, .status = of->status};
    for (int i = 0; i < s->c->n_seq; i++) {
        tdm_error err = {0};
        if (of->lengths[i] == s->seqs[i].n) continue;
        if (llm_context_truncate(s->ctx, i, of->lengths[i], &err) != TDM_OK)
            session_problem(s, "%s", err.message);
        session_cut(&s->seqs[i], of->lengths[i]);
    }
}

/* Ends the record: what must hold after every operation. */
static void record_end(session *s) {
    session_record *r = session_record_now(s);
    if (s->ctx == NULL) return;
    r->n_free = llm_context_free_pages(s->ctx);
    for (int i = 0; i < s->c->n_seq; i++) {
        r->lengths[i] = llm_context_length(s->ctx, i);
        if (s->is_lost && r->lengths[i] < s->seqs[i].n) session_cut(&s->seqs[i], r->lengths[i]);
        if (r->lengths[i] != s->seqs[i].n)
            session_problem(s, "sequence %d has %d tokens, not %d", i, r->lengths[i], s->seqs[i].n);
    }
    s->trace->n_record++;
}

/* What a context gives for the last of n tokens: its logits, or of an encoder its state. */
static const float *result_row(const session *s, const llm_context *ctx, int at) {
    return s->is_encoder ? llm_context_hidden(ctx, at) : llm_context_logits(ctx, 0);
}

static int result_len(const session *s) {
    return s->is_encoder ? s->model->hparams.n_embd : s->n_vocab;
}

/* The result behind the sequence's tokens, computed afresh. */
static void fresh_check(session *s, const session_sequence *q, const float *row) {
    tdm_error err = {0};
    llm_context *ctx = NULL;
    llm_context_params params = params_of(s);
    params.n_ubatch = 40;
    params.n_seq = 1;
    params.page_len = 64;
    params.is_window_whole = true;
    params.gives_hidden = false;
    if (session_is_latent(s->model)) params.type_v = params.type_k;
    RIG_OK(llm_context_create(s->model, &params, &ctx, &err));
    if (s->model->n_adapter > 0) RIG_OK(llm_context_set_scales(ctx, 0, q->scales, &err));
    const llm_batch batch = {.tokens = q->tokens, .n_tok = q->n};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    const double nmse = rig_nmse(result_row(s, ctx, q->n - 1), row, (size_t)result_len(s));
    if (!(nmse <= s->trace->fresh_nmse)) s->trace->fresh_nmse = nmse;
    llm_context_destroy(ctx);
}

/* One more token behind each sequence. */
static void end_probe(session *s) {
    tdm_error err = {0};
    s->random = s->c->seed;
    memset(session_record_now(s), 0, sizeof *session_record_now(s));
    if (!s->is_encoder) llm_context_set_candidates(s->ctx, s->n_candidate = 0, NULL);
    for (int i = 0; i < s->c->n_seq; i++) {
        session_sequence *q = &s->seqs[i];
        int n_free;
        const int32_t token = (int32_t)session_below(s, s->n_vocab), seq = i;
        const llm_batch batch = {.tokens = &token, .seqs = &seq, .n_tok = 1};
        llm_context_pages(s->ctx, &n_free);
        if (s->has_encoder && q->n == 0) continue;
        if (q->n == s->c->n_ctx || llm_context_pages_needed(s->ctx, i, 1) > n_free) continue;
        if (!session_took(s, llm_context_decode(s->ctx, &batch, &err), MAY(TDM_OK), &err)) return;
        session_add(q, token);
        session_row_take(s, result_row(s, s->ctx, 0), result_len(s));
        if (s->guide != NULL && q->n_clean == SESSION_CLEAN && !s->trace->is_bidirectional)
            fresh_check(s, q, result_row(s, s->ctx, 0));
    }
    record_end(s);
    for (int i = 0; i < s->c->n_seq; i++)
        if (llm_context_truncate(s->ctx, i, 0, &err) != TDM_OK)
            session_problem(s, "%s", err.message);
    if (llm_context_free_pages(s->ctx) != s->n_free)
        session_problem(s, "%d of %d pages are free without tokens", llm_context_free_pages(s->ctx),
                        s->n_free);
}

void session_run(const session_case *c, const char *file, const char *path,
                 const session_trace *guide, session_trace *trace) {
    static session s;
    memset(trace, 0, sizeof *trace);
    s = (session){.c = c, .file = file, .path = path, .guide = guide, .trace = trace};
    for (int i = 0; i < SESSION_MAX_SEQ; i++) {
        s.seqs[i].n_clean = SESSION_CLEAN;
        for (int k = 0; k < SESSION_MAX_ADAPTER; k++) s.seqs[i].scales[k] = 1;
    }
    bool is_up = session_up(&s);
    int n_judged = c->n_op;
    const int n_op = guide != NULL && guide->is_lost ? guide->n_record : c->n_op;
    for (int i = 0; i < n_op && i < c->n_op && is_up && trace->problem[0] == 0; i++) {
        memset(session_record_now(&s), 0, sizeof *session_record_now(&s));
        if (guide != NULL && guide->records[i].is_injected)
            follow(&s, &guide->records[i]);
        else if (guide != NULL && guide->records[i].is_skipped)
            session_record_now(&s)->is_skipped = true;
        else
            session_op_run(&s, &c->ops[i]);
        if (s.is_lost && guide == NULL) n_judged = n_judged < i ? n_judged : i;
        record_end(&s);
    }
    if (is_up && s.ctx != NULL) session_heal(&s.rig);
    const bool has_end = !s.is_lost && (guide == NULL || !guide->is_lost);
    if (is_up && trace->problem[0] == 0 && has_end) end_probe(&s);
    if (s.is_lost && trace->n_record > n_judged) trace->n_record = n_judged;
    session_down(&s);
}

void session_trace_free(session_trace *trace) {
    free(trace->rows);
    trace->rows = NULL;
}
