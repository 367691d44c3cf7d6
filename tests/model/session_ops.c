/* SPDX-License-Identifier: MIT
 *
 * session_ops.c: the operations of a random session: each takes its numbers modulo what is
 * possible, makes the call, and judges its status by what the sequences hold.
 */
#include <pthread.h>

#include "llm/cache/state.h"
#include "tests/model/session_internal.h"

enum { MAX_BATCH = SESSION_MAX_SEQ * SESSION_MAX_TOK, MAX_TEXT = 12 /* of an encoder */ };
enum { OTHER_CTX = 48 }; /* tokens of the second context */

/* ---- Batches --------------------------------------------------------------------------------- */

typedef struct made_batch {
    int32_t tokens[MAX_BATCH], seqs[MAX_BATCH];
    bool wanted[MAX_BATCH];
    uint8_t roles[MAX_BATCH];
    int n, n_wanted, added[SESSION_MAX_SEQ], n_text[SESSION_MAX_SEQ];
} made_batch;

static void token_add(made_batch *b, int seq, int32_t token, tdm_role role, bool is_wanted) {
    assert_true(b->n < MAX_BATCH);
    b->tokens[b->n] = token;
    b->seqs[b->n] = seq;
    b->roles[b->n] = (uint8_t)role;
    b->wanted[b->n] = is_wanted;
    b->added[seq]++;
    b->n++;
}

/* Adds a token of a sequence; `pattern` says whether its logits are wanted. The first one of a
 * model with an encoder is preceded by its text and the token that begins the decoder's. */
static void batch_add(session *s, made_batch *b, int seq, int pattern, tdm_role role) {
    const int32_t start = s->model->hparams.decoder_start;
    if (s->has_encoder && s->seqs[seq].n + b->added[seq] == 0) {
        const int most = s->c->n_ubatch < MAX_TEXT ? s->c->n_ubatch : MAX_TEXT;
        b->n_text[seq] = 1 + session_below(s, most);
        for (int i = 0; i < b->n_text[seq]; i++) {
            const int32_t token = (int32_t)session_below(s, s->n_vocab);
            token_add(b, seq, token != start ? token : (token + 1) % s->n_vocab, role, false);
        }
        token_add(b, seq, start, role, false);
    }
    token_add(b, seq, (int32_t)session_below(s, s->n_vocab), role,
              pattern == 1 || (pattern == 2 && session_below(s, 3) == 0));
}

static unsigned decode_may(const session *s, const made_batch *b) {
    int needed = 0, n_free = 0;
    llm_context_pages(s->ctx, &n_free);
    if (s->model->hparams.is_bidirectional && b->n > s->ctx->n_ubatch) return MAY(TDM_UNSUPPORTED);
    for (int i = 0; i < s->c->n_seq; i++) {
        if (b->added[i] == 0) continue;
        if (s->seqs[i].n + b->added[i] > s->c->n_ctx) return MAY(TDM_OUT_OF_RANGE);
        needed += llm_context_pages_needed(s->ctx, i, b->added[i]);
    }
    return needed > n_free ? MAY(TDM_RESOURCE_EXHAUSTED) : MAY(TDM_OK);
}

void session_add(session_sequence *q, int32_t token) {
    assert_true(q->n < SESSION_MAX_TOK);
    q->tokens[q->n++] = token;
}

static void rows_take(session *s, const made_batch *b) {
    const int len = s->n_candidate > 0 ? s->n_candidate : s->n_vocab;
    for (int i = 0; i < b->n && s->is_encoder; i++)
        session_row_take(s, llm_context_hidden(s->ctx, i), s->model->hparams.n_embd);
    if (s->is_encoder) return;
    for (int i = 0; i < b->n_wanted; i++) {
        const llm_row row = llm_context_row(s->ctx, i);
        if (row.n != len) session_problem(s, "row %d of %d has %d numbers", i, b->n_wanted, row.n);
        if (row.n == len) session_row_take(s, row.logits, len);
    }
    if (llm_context_row(s->ctx, b->n_wanted).n != 0) session_problem(s, "there is a row too many");
    if (!s->c->gives_hidden || s->has_encoder) return;
    const float *hidden = llm_context_hidden(s->ctx, b->n - 1);
    if (hidden == NULL) {
        session_problem(s, "token %d has no hidden state", b->n - 1);
        return;
    }
    session_record_now(s)->hidden_at = s->trace->n_float;
    session_record_now(s)->hidden_len = llm_model_hidden_len(s->model);
    session_floats_take(s, hidden, session_record_now(s)->hidden_len);
}

static bool never_goes_on(void *context, uint64_t done, uint64_t total) {
    (void)context, (void)done, (void)total;
    return false;
}

/* Decodes the batch. */
static void batch_run(session *s, made_batch *b, bool is_cancelled) {
    tdm_error err = {0};
    unsigned may = decode_may(s, b);
    for (int i = 0; i < b->n; i++) b->n_wanted += b->wanted[i];
    int32_t tokens[MAX_BATCH];
    memcpy(tokens, b->tokens, (size_t)b->n * sizeof *tokens);
    if (s->c->is_spoiled && s->guide == NULL) tokens[0] = (tokens[0] + 1) % s->n_vocab;
    const llm_batch batch = {.tokens = tokens,
                             .seqs = b->seqs,
                             .wanted = b->wanted,
                             .n_tok = b->n,
                             .roles = b->roles,
                             .n_room = session_below(s, 4) == 0 ? b->n + session_below(s, 5) : 0};
    if (is_cancelled && b->n > s->ctx->n_ubatch && may == MAY(TDM_OK))
        may = MAY(TDM_CANCELLED) | (s->has_encoder ? may : 0);
    if (is_cancelled && b->n > s->ctx->n_ubatch && may == MAY(TDM_RESOURCE_EXHAUSTED))
        may |= MAY(TDM_CANCELLED); /* whichever comes first */
    if (is_cancelled) llm_context_set_progress(s->ctx, never_goes_on, NULL);
    tdm_status status = llm_context_decode(s->ctx, &batch, &err);
    llm_context_set_progress(s->ctx, NULL, NULL);
    if (!session_took(s, status, may, &err)) return;
    for (int i = 0; i < s->c->n_seq; i++)
        if (b->added[i] > 0 && s->seqs[i].n == 0) s->seqs[i].n_encoded = b->n_text[i];
    for (int i = 0; i < b->n; i++) session_add(&s->seqs[b->seqs[i]], b->tokens[i]);
    rows_take(s, b);
}

/* How many tokens a sequence gets: few, some or many. */
static int count_choose(session *s, uint32_t random, int room) {
    const int most = random % 4 == 0 ? room : random % 4 == 1 ? 24 : random % 4 == 2 ? 6 : 1;
    const int n = 1 + (int)(random / 4 % (uint32_t)(most > 0 ? most : 1));
    (void)s;
    return n < room || room < 1 ? n : room;
}

static void decode_op(session *s, const session_op *op, bool is_cancelled) {
    static made_batch b;
    const int seq = (int)(op->a % (uint32_t)s->c->n_seq);
    int n = count_choose(s, op->b, s->c->n_ctx - s->seqs[seq].n);
    memset(&b, 0, sizeof b);
    if (s->model->hparams.is_bidirectional && n > s->c->n_ubatch) n = s->c->n_ubatch;
    const tdm_role role = op->c / 4 % 2 == 0 ? TDM_ROLE_PROMPT : TDM_ROLE_GENERATED;
    for (int i = 0; i < n; i++) batch_add(s, &b, seq, (int)(op->c % 4), role);
    if (op->c % 4 != 0) b.wanted[b.n - 1] = true;
    batch_run(s, &b, is_cancelled);
}

static void together_op(session *s, const session_op *op) {
    static made_batch b;
    int left[SESSION_MAX_SEQ] = {0}, n = 0;
    memset(&b, 0, sizeof b);
    for (int i = 0; i < s->c->n_seq; i++) {
        const int room = s->c->n_ctx - s->seqs[i].n;
        if ((op->a >> i & 1) == 0 && i > 0) continue;
        if (room > 0)
            left[i] = count_choose(s, op->b >> (4 * i), room < 40 ? room : room < 90 ? 40 : 90);
        n += left[i];
    }
    if (s->model->hparams.is_bidirectional) {
        /* as far as they fit */
        n = 0;
        for (int i = 0; i < s->c->n_seq; i++) {
            if (left[i] > s->c->n_ubatch - n) left[i] = s->c->n_ubatch - n;
            n += left[i];
        }
    }
    const bool is_by_sequence = op->d % 3 == 0;
    while (n > 0) {
        int seq = is_by_sequence ? 0 : session_below(s, s->c->n_seq);
        while (left[seq] == 0) seq = (seq + 1) % s->c->n_seq;
        left[seq]--;
        n--;
        const bool is_prompt = (op->c >> (2 + seq) & 1) != 0;
        batch_add(s, &b, seq, (int)(op->c % 4), is_prompt ? TDM_ROLE_PROMPT : TDM_ROLE_GENERATED);
        if (left[seq] == 0) b.wanted[b.n - 1] = op->c % 4 != 0;
    }
    if (b.n == 0)
        session_record_now(s)->is_skipped = true;
    else
        batch_run(s, &b, false);
}

/* ---- Sequences ------------------------------------------------------------------------------- */

void session_cut(session_sequence *q, int n) {
    if (n < q->n) q->n = n;
    if (q->n <= q->n_clean || q->n == 0) q->n_clean = SESSION_CLEAN;
    if (q->n == 0) q->n_encoded = 0;
}

/* Whether going back may compute tokens again, for which pages may be missing. */
static unsigned redo_may(const session *s) {
    const bool may_redo = s->ctx->slots != NULL || s->ctx->window != NULL;
    return MAY(TDM_OK) | (may_redo ? MAY(TDM_RESOURCE_EXHAUSTED) : 0);
}

static void truncate_to(session *s, int seq, int n, unsigned may) {
    tdm_error err = {0};
    session_sequence *q = &s->seqs[seq];
    if (n == 0) may = MAY(TDM_OK);
    if (n > 0 && n < q->n && n <= q->n_encoded) may = MAY(TDM_UNSUPPORTED);
    const int reach = llm_context_reach(s->ctx, seq, n);
    if (reach < 0 || reach > n) session_problem(s, "reach %d of %d", reach, n);
    tdm_status status = llm_context_truncate(s->ctx, seq, n, &err);
    if (session_took(s, status, s->has_encoder ? may : may | redo_may(s), &err)) {
        session_cut(q, n);
        return;
    }
    const int found = llm_context_length(s->ctx, seq);
    if (found > n && found != q->n)
        session_problem(s, "length %d after a failed truncation", found);
    session_cut(q, found);
}

static void fork_op(session *s, const session_op *op, unsigned more) {
    tdm_error err = {0};
    const int dst = (int)(op->a % (uint32_t)s->c->n_seq);
    const int src = (int)(op->b % (uint32_t)s->c->n_seq);
    int n = (int)(op->c % (uint32_t)(s->seqs[src].n + 1));
    /* A group that cuts caches by sequence copies pages between members through the host, which
     * takes no rows of a model with an encoder. */
    if (dst == src || (s->has_encoder && session_may_cut_sequence(s))) {
        session_record_now(s)->is_skipped = true;
        return;
    }
    if (op->d % 4 != 0) {
        if (llm_context_truncate(s->ctx, dst, 0, &err) != TDM_OK)
            session_problem(s, "%s", err.message);
        session_cut(&s->seqs[dst], 0);
    }
    const bool is_free = s->seqs[dst].n == 0;
    if (op->d % 3 == 0) n = s->seqs[src].n;
    unsigned may = is_free ? redo_may(s) | more : MAY(TDM_FAILED_PRECONDITION);
    if (n > 0 && n <= s->seqs[src].n_encoded) may = MAY(TDM_UNSUPPORTED);
    /* An empty sequence takes the scales of the other before anything may fail. */
    if (is_free) memcpy(s->seqs[dst].scales, s->seqs[src].scales, sizeof s->seqs[dst].scales);
    tdm_status status = llm_context_fork(s->ctx, dst, src, n, &err);
    if (!session_took(s, status, may, &err)) return;
    s->seqs[dst] = s->seqs[src];
    session_cut(&s->seqs[dst], n);
}

static void shift_op(session *s, const session_op *op, unsigned more) {
    tdm_error err = {0};
    const int seq = (int)(op->a % (uint32_t)s->c->n_seq);
    session_sequence *q = &s->seqs[seq];
    const int n_keep = (int)(op->b % (uint32_t)(op->d % 2 == 0 ? q->n + 1 : q->n / 4 + 1));
    const int n_discard = (int)(op->c % (uint32_t)(q->n - n_keep + 1));
    unsigned may = MAY(TDM_OK) | MAY(TDM_RESOURCE_EXHAUSTED) | more;
    if (!llm_context_can_shift(s->ctx)) may = MAY(TDM_UNSUPPORTED);
    tdm_status status = llm_context_shift(s->ctx, seq, n_keep, n_discard, &err);
    if (!session_took(s, status, may, &err)) {
        if (session_record_now(s)->is_injected || status == TDM_CANCELLED)
            session_cut(q, llm_context_length(s->ctx, seq));
        return;
    }
    const int n_left = q->n - n_keep - n_discard;
    memmove(q->tokens + n_keep, q->tokens + n_keep + n_discard, (size_t)n_left * sizeof *q->tokens);
    q->n -= n_discard;
    if (n_discard > 0 && n_left > 0 && n_keep < q->n_clean) q->n_clean = n_keep;
    session_cut(q, q->n);
}

static void cancel_op(session *s, const session_op *op) {
    if (op->d % 4 < 2) {
        decode_op(s, op, true);
        return;
    }
    llm_context_set_progress(s->ctx, never_goes_on, NULL);
    const int seq = (int)(op->a % (uint32_t)s->c->n_seq);
    if (op->d % 4 == 2)
        truncate_to(s, seq, (int)(op->b % (uint32_t)(s->seqs[seq].n + 1)),
                    MAY(TDM_OK) | MAY(TDM_CANCELLED));
    else if (op->d / 4 % 2 == 0)
        fork_op(s, op, MAY(TDM_CANCELLED));
    else
        shift_op(s, op, MAY(TDM_CANCELLED));
    llm_context_set_progress(s->ctx, NULL, NULL);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static const char *state_file(const session *s, int i) {
    char name[32];
    snprintf(name, sizeof name, "%s-%d.state", s->guide != NULL ? "one" : "many", i);
    return rig_file(name);
}

static void save_op(session *s, const session_op *op) {
    tdm_error err = {0};
    const int seq = (int)(op->a % (uint32_t)s->c->n_seq), i = (int)(op->b % SESSION_N_FILE);
    const session_sequence *q = &s->seqs[seq];
    tdm_status status = llm_state_save(s->ctx, seq, q->tokens, q->n, state_file(s, i), &err);
    if (!session_took(s, status, s->has_encoder && q->n > 0 ? MAY(TDM_UNSUPPORTED) : MAY(TDM_OK),
                      &err))
        return;
    s->files[i] = *q;
    s->has_file[i] = true;
}

/* Whether two sequences have the same adapters: a file is of them, too. */
static bool has_scales_of(const session *s, const session_sequence *a, const session_sequence *b) {
    const size_t n = (size_t)s->model->n_adapter;
    return memcmp(a->scales, b->scales, n * sizeof *a->scales) == 0;
}

/* A file may lack the rows before windows, and the pages for its tokens may be missing. */
static unsigned load_may(const session *s, int seq, const session_sequence *file) {
    if (s->seqs[seq].n > 0 || !has_scales_of(s, &s->seqs[seq], file))
        return MAY(TDM_FAILED_PRECONDITION);
    return MAY(TDM_OK) | MAY(TDM_RESOURCE_EXHAUSTED) |
           (s->c->page_len[0] != s->c->page_len[1] ? MAY(TDM_FAILED_PRECONDITION) : 0);
}

static bool load_begin(session *s, const session_op *op, int *seq_out, int *file_out) {
    const int seq = (int)(op->a % (uint32_t)s->c->n_seq), i = (int)(op->b % SESSION_N_FILE);
    *seq_out = seq;
    *file_out = i;
    session_record_now(s)->is_skipped = !s->has_file[i];
    if (!s->has_file[i]) return false;
    if (op->c % 4 != 0) {
        llm_context_truncate(s->ctx, seq, 0, NULL);
        session_cut(&s->seqs[seq], 0);
    }
    return true;
}

static void load_op(session *s, const session_op *op) {
    tdm_error err = {0};
    int seq, i;
    int32_t *tokens = NULL, n = 0;
    if (!load_begin(s, op, &seq, &i)) return;
    const unsigned may = load_may(s, seq, &s->files[i]);
    tdm_status status = llm_state_load(s->ctx, seq, state_file(s, i), &tokens, &n, &err);
    if (!session_took(s, status, may, &err)) return;
    if (n != s->files[i].n || memcmp(tokens, s->files[i].tokens, (size_t)n * sizeof *tokens) != 0)
        session_problem(s, "%d tokens of %d were loaded, or others", n, s->files[i].n);
    s->seqs[seq] = s->files[i];
    free(tokens);
}

static void load_prefix_op(session *s, const session_op *op) {
    tdm_error err = {0};
    int seq, i;
    int32_t n = 0;
    session_sequence prompt;
    if (!load_begin(s, op, &seq, &i)) return;
    prompt = s->files[i];
    session_cut(&prompt, (int)(op->d % (uint32_t)(prompt.n + 1)));
    const int n_common = prompt.n;
    for (int k = 0; k < (int)(op->d >> 16) % 3 && prompt.n < SESSION_MAX_TOK; k++)
        session_add(&prompt, k == 0 && n_common < s->files[i].n
                                 ? (s->files[i].tokens[n_common] + 1) % s->n_vocab
                                 : (int32_t)session_below(s, s->n_vocab));
    const bool ends_in_file = n_common < s->files[i].n;
    const unsigned may = load_may(s, seq, &s->files[i]);
    tdm_status status =
        llm_state_load_prefix(s->ctx, seq, state_file(s, i), prompt.tokens, prompt.n, &n, &err);
    if (!session_took(s, status, may, &err)) return;
    session_value_take(s, n);
    if (n < 0 || n > n_common || (n < n_common && n > 0))
        session_problem(s, "a prefix of %d tokens instead of %d%s", n, n_common,
                        ends_in_file ? "" : ", all of the file");
    s->seqs[seq] = prompt;
    session_cut(&s->seqs[seq], n);
}

/* Saves all sequences, closes everything, and loads them on the other devices. */
static void move_op(session *s) {
    tdm_error err = {0};
    int status_all = 0;
    session_record_now(s)->is_skipped = s->has_encoder || s->is_lost;
    if (session_record_now(s)->is_skipped) return;
    session_heal(&s->rig);
    s->is_armed = false;
    for (int i = 0; i < s->c->n_seq; i++) {
        const session_sequence *q = &s->seqs[i];
        const char *file = state_file(s, SESSION_N_FILE + i);
        tdm_status status = llm_state_save(s->ctx, i, q->tokens, q->n, file, &err);
        if (status != TDM_OK && session_is_loss(&err)) {
            session_took(s, status, 0, &err);
            return;
        }
        if (status != TDM_OK) session_problem(s, "saving sequence %d: %s", i, err.message);
    }
    session_down(s);
    s->place = 1 - s->place;
    if (s->trace->problem[0] != 0 || !session_up(s)) return;
    for (int i = 0; i < s->c->n_seq; i++) {
        int32_t *tokens = NULL, n = 0;
        tdm_status status =
            llm_state_load(s->ctx, i, state_file(s, SESSION_N_FILE + i), &tokens, &n, &err);
        if (status == TDM_OK) {
            if (n != s->seqs[i].n)
                session_problem(s, "%d of %d tokens were moved", n, s->seqs[i].n);
            free(tokens);
            continue;
        }
        if (session_is_limit(&err)) { /* the session ends here */
            s->trace->is_refused = true;
            session_problem(s, "%s", err.message);
            return;
        }
        session_sequence empty = s->seqs[i];
        session_cut(&empty, 0);
        const session_sequence file = s->seqs[i];
        s->seqs[i] = empty;
        if ((load_may(s, i, &file) & MAY(status)) == 0)
            session_problem(s, "moving sequence %d: %s", i, err.message);
        status_all = status_all * 16 + (int)status;
    }
    session_value_take(s, status_all);
}

/* ---- Other calls ----------------------------------------------------------------------------- */

static void candidates_op(session *s, const session_op *op) {
    tdm_error err = {0};
    const int most = s->n_vocab < LLM_MAX_CANDIDATES ? s->n_vocab : LLM_MAX_CANDIDATES;
    const int n = op->a % 2 == 0 ? 0 : 1 + (int)(op->b % (uint32_t)(op->c % 2 == 0 ? most : 8));
    session_record_now(s)->is_skipped = s->is_encoder;
    if (s->is_encoder) return;
    if (session_took(s, llm_context_set_candidates(s->ctx, n, &err), MAY(TDM_OK), &err))
        s->n_candidate = n;
}

/* Calls that are refused, whatever the state. */
static void wrong_op(session *s, const session_op *op) {
    tdm_error err = {0};
    const int seq = (int)(op->b % (uint32_t)s->c->n_seq);
    const session_sequence *q = &s->seqs[seq];
    const bool can_shift = llm_context_can_shift(s->ctx);
    int32_t token = 0, bad = op->c % 2 == 0 ? -1 : s->c->n_seq;
    uint8_t role = TDM_ROLE_GENERATED;
    llm_batch batch = {.tokens = &token, .seqs = &seq, .n_tok = 1, .roles = &role};
    tdm_status status = TDM_OK;
    unsigned may = MAY(TDM_INVALID_ARGUMENT);
    if (s->has_encoder) {
        session_record_now(s)->is_skipped = true;
        return;
    }
    switch (op->a % 10) {
    case 0:
        batch.seqs = &bad;
        status = llm_context_decode(s->ctx, &batch, &err);
        break;
    case 1:
        token = op->c % 2 == 0 ? -1 : s->n_vocab;
        status = llm_context_decode(s->ctx, &batch, &err);
        break;
    case 2:
        role = 7;
        status = llm_context_decode(s->ctx, &batch, &err);
        break;
    case 3: status = llm_context_truncate(s->ctx, bad, 0, &err); break;
    case 4: status = llm_context_truncate(s->ctx, seq, -1, &err); break;
    case 5: status = llm_context_fork(s->ctx, seq, bad, 0, &err); break;
    case 6:
        may = q->n > 0 ? MAY(TDM_FAILED_PRECONDITION) : MAY(TDM_OUT_OF_RANGE);
        status = llm_context_fork(s->ctx, seq, seq, q->n + 1, &err);
        break;
    case 7:
        may = can_shift ? MAY(TDM_OUT_OF_RANGE) : MAY(TDM_UNSUPPORTED);
        status = llm_context_shift(s->ctx, seq, op->c % 2 == 0 ? -1 : q->n, 1, &err);
        break;
    case 8:
        status = llm_state_save(s->ctx, seq, q->tokens, q->n + 1, state_file(s, 9), &err);
        break;
    default: status = llm_context_set_candidates(s->ctx, LLM_MAX_CANDIDATES + 1, &err);
    }
    session_took(s, status, may, &err);
}

/* A batch for a second context of the model. */
typedef struct other_batch {
    llm_context *ctx;
    int32_t tokens[20];
    int n;
    tdm_status status;
    tdm_error err;
} other_batch;

/* Makes the second context at first, and the batch. False where the operation ends here. */
static bool other_begin(session *s, const session_op *op, other_batch *b) {
    tdm_error err = {0};
    const bool is_latent = session_is_latent(s->model);
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = OTHER_CTX,
                                       .n_ubatch = OTHER_CTX,
                                       .page_len = 16,
                                       .type_k = &s->c->type_k,
                                       .type_v = is_latent ? &s->c->type_k : &s->c->type_v,
                                       .is_cache_in_host = s->c->is_cache_in_host};
    session_record_now(s)->is_skipped = s->has_encoder || s->is_encoder;
    if (session_record_now(s)->is_skipped) return false;
    if (s->other == NULL) {
        tdm_status status = llm_context_create(s->model, &params, &s->other, &err);
        if (status != TDM_OK) s->other = NULL;
        if (!session_took(s, status, MAY(TDM_OK) | MAY(TDM_UNSUPPORTED), &err)) return false;
        s->n_other = 0;
    }
    *b = (other_batch){.ctx = s->other, .n = 1 + (int)(op->a % 20)};
    if (s->n_other + b->n > OTHER_CTX) {
        llm_context_truncate(s->other, 0, 0, NULL);
        s->n_other = 0;
    }
    for (int i = 0; i < b->n; i++) b->tokens[i] = (int32_t)session_below(s, s->n_vocab);
    return true;
}

static void *other_run(void *arg) {
    other_batch *b = arg;
    const llm_batch batch = {.tokens = b->tokens, .n_tok = b->n};
    b->status = llm_context_decode(b->ctx, &batch, &b->err);
    return NULL;
}

static void other_op(session *s, const session_op *op) {
    other_batch b;
    if (!other_begin(s, op, &b)) return;
    other_run(&b);
    if (!session_took(s, b.status, MAY(TDM_OK), &b.err)) return;
    s->n_other += b.n;
    session_row_take(s, llm_context_logits(s->other, 0), s->n_vocab);
    if (op->b % 4 != 0) return;
    llm_context_destroy(s->other);
    s->other = NULL;
}

/* Batches in both contexts at the same time. */
static void beside_op(session *s, const session_op *op) {
    other_batch b;
    pthread_t thread;
    /* Of two batches at the same time any may find that a card has too little memory. */
    session_record_now(s)->is_skipped = s->is_armed || s->is_losing || session_has_limits(s);
    if (session_record_now(s)->is_skipped || !other_begin(s, op, &b)) return;
    if (pthread_create(&thread, NULL, other_run, &b) != 0) {
        session_problem(s, "no thread");
        return;
    }
    decode_op(s, op, false);
    pthread_join(thread, NULL);
    if (b.status != TDM_OK) {
        session_problem(s, "beside: %s", b.err.message);
        return;
    }
    s->n_other += b.n;
    session_record_now(s)->other_at = s->trace->n_float;
    session_record_now(s)->other_len = s->n_vocab;
    session_floats_take(s, llm_context_logits(s->other, 0), s->n_vocab);
}

static void scales_op(session *s, const session_op *op) {
    static const float values[] = {0, 1, 0.5f, -0.25f};
    tdm_error err = {0};
    session_sequence next = {0}, *q = &s->seqs[op->a % (uint32_t)s->c->n_seq];
    session_record_now(s)->is_skipped = s->model->n_adapter == 0;
    if (session_record_now(s)->is_skipped) return;
    for (int i = 0; i < SESSION_MAX_ADAPTER; i++) next.scales[i] = values[op->b >> 2 * i & 3];
    const bool may_set = q->n == 0 || has_scales_of(s, q, &next);
    const int seq = (int)(op->a % (uint32_t)s->c->n_seq);
    tdm_status status = llm_context_set_scales(s->ctx, seq, next.scales, &err);
    if (session_took(s, status, may_set ? MAY(TDM_OK) : MAY(TDM_FAILED_PRECONDITION), &err))
        memcpy(q->scales, next.scales, sizeof q->scales);
}

static void lose_op(session *s, const session_op *op) {
    session_record_now(s)->is_skipped = true;
    s->is_losing = true;
    if (s->guide == NULL) session_lose(&s->rig, op->a, 1 + (int64_t)(op->b % 60));
}

static void fail_op(session *s, const session_op *op) {
    session_record_now(s)->is_skipped = true;
    if (s->guide != NULL) return;
    s->is_armed = session_fail(&s->rig, op->a, op->b, 1 + (int64_t)(op->c % 10)) || s->is_armed;
}

void session_op_run(session *s, const session_op *op) {
    const int seq = (int)(op->a % (uint32_t)s->c->n_seq), n = s->seqs[seq].n;
    s->random = (uint64_t)op->d << 32 | op->c;
    switch (op->kind) {
    case SESSION_DECODE: decode_op(s, op, false); break;
    case SESSION_TOGETHER: together_op(s, op); break;
    case SESSION_TRUNCATE:
        truncate_to(s, seq, (int)(op->b % (uint32_t)(n + 1)), MAY(TDM_OK));
        break;
    case SESSION_TAKE_BACK:
        truncate_to(s, seq, n - (int)(op->b % 5) > 0 ? n - (int)(op->b % 5) : 0, MAY(TDM_OK));
        break;
    case SESSION_EMPTY: truncate_to(s, seq, 0, MAY(TDM_OK)); break;
    case SESSION_FORK: fork_op(s, op, 0); break;
    case SESSION_SHIFT: shift_op(s, op, 0); break;
    case SESSION_SAVE: save_op(s, op); break;
    case SESSION_LOAD: load_op(s, op); break;
    case SESSION_LOAD_PREFIX: load_prefix_op(s, op); break;
    case SESSION_MOVE: move_op(s); break;
    case SESSION_CANDIDATES: candidates_op(s, op); break;
    case SESSION_CANCEL: cancel_op(s, op); break;
    case SESSION_WRONG: wrong_op(s, op); break;
    case SESSION_OTHER: other_op(s, op); break;
    case SESSION_BESIDE: beside_op(s, op); break;
    case SESSION_SCALES: scales_op(s, op); break;
    case SESSION_FAIL: fail_op(s, op); break;
    case SESSION_LOSE: lose_op(s, op); break;
    case SESSION_N_OP: break;
    }
}
