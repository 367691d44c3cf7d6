/* SPDX-License-Identifier: MIT
 *
 * draft.c: see draft.h.
 *
 * A layer that drafts decodes each token together with the large model's hidden state of the token
 * before it. So `states` of a sequence begin with that of the last token that the layer holds and
 * end with that of the last token that the large model holds: one state more than the tokens that
 * the layer has still to decode. The state before the first token of a sequence is zeros. After a
 * fork or a truncation the state of the last kept token may be missing; zeros are used instead of
 * this one state. Wrong states make worse proposals, but never another text.
 *
 * A draft model may have fewer or more token ids than the large model. Its rows are changed to the
 * large model's ids before they are sampled (row_fit). Instead of a token that the draft model
 * lacks, it decodes its own last one, which is padding in most files. It then reads a slightly
 * different text, which again can only make worse proposals.
 */
#include "llm/draft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "llm/arch/arch.h"

/* The tokens that may follow the last proposal of an item, by its constraint. */
typedef struct allowed {
    bool goes_on;    /* another proposal may follow */
    uint64_t *mask;  /* [(n_vocab + 63) / 64] set of tokens, as of llm_constraint.mask */
    bool is_over;    /* no more tokens are proposed: the constraint failed, or the only token that
                        it allows is barred */
    bool is_limited; /* only the tokens of `mask` may follow; false = all may */
    int32_t forced;  /* the only token that may follow; -1 = there is not exactly one */
} allowed;

/* The large model's hidden states of a sequence, for a layer. */
typedef struct states {
    float *rows;     /* [n][hidden_len] */
    int32_t n, room; /* states; states allocated */
    bool is_lost;    /* more than the first of them is missing: nothing can be decoded */
} states;

struct llm_draft {
    llm_context *ctx;   /* NULL = n-grams */
    llm_ngrams *ngrams; /* [n_seq] of n-grams; else NULL */
    int32_t n_gram;     /* of n-grams */
    int32_t n_max;      /* proposals at a time */
    int32_t n_seq;
    bool is_layer;      /* a layer of the large model; only then states and hidden are used */
    int32_t hidden_len; /* floats of a hidden state */
    states *states;     /* [n_seq]; NULL without a layer */
    float *hidden;      /* [n_room][hidden_len] of a batch */
    int32_t n_vocab;    /* token ids of the large model */
    /* Token ids of the draft model; n_vocab of other drafts. */
    int32_t n_vocab_own;
    /* Scratch of row_fit: [max(n_vocab, n_vocab_own)] logits, always -inf from n_vocab_own on, and
     * the ids of a row of candidates. */
    float *fitted;
    int32_t fitted_ids[LLM_MAX_CANDIDATES];
    float *logits;   /* [n_vocab] scratch: a row that is changed (llm_row_change) */
    uint64_t *masks; /* [n_seq][(n_vocab + 63) / 64] memory of the masks of `may` */
    allowed *may;    /* [n_seq] of each item */
    int32_t *tokens; /* [n_room] a batch */
    int32_t *seqs;   /* [n_room] */
    bool *wanted;    /* [n_room] */
    int32_t n_room;  /* tokens allocated */
};

/* ---- Vocabulary ---- */

static tdm_status differ(const llm_model *draft, const llm_model *model, const char *what,
                         tdm_error *err) {
    return tdm_fail(err, TDM_INVALID_ARGUMENT,
                    "%s cannot draft for %s: %s; a draft model must have the same vocabulary, "
                    "with at most %d tokens more or fewer at its end",
                    draft->path, model->path, what, LLM_MAX_DRAFT_VOCAB_GAP);
}

static bool are_near(int32_t a, int32_t b) {
    return abs(a - b) <= LLM_MAX_DRAFT_VOCAB_GAP;
}

tdm_status llm_draft_check(const llm_model *draft, const llm_model *model, tdm_error *err) {
    const llm_vocab *a = NULL, *b = NULL;
    char what[256];
    if (model->arch->is_encoder || draft->arch->is_encoder)
        return tdm_fail(
            err, TDM_UNSUPPORTED,
            "%s cannot draft for %s: '%s' is an encoder, which continues no text; leave "
            "out model-draft",
            draft->path, model->path,
            model->arch->is_encoder ? model->arch->name : draft->arch->name);
    const llm_model *encoder = model->hparams.n_layer_encoder > 0 ? model : draft;
    if (encoder->hparams.n_layer_encoder > 0)
        return tdm_fail(
            err, TDM_UNSUPPORTED,
            "%s cannot draft for %s: architecture '%s' has an encoder, with which drafts "
            "are not supported; leave out model-draft",
            draft->path, model->path, encoder->hparams.arch);
    tdm_status status = llm_model_vocab(draft, &a, err);
    if (status == TDM_OK) status = llm_model_vocab(model, &b, err);
    if (status != TDM_OK) return status;
    const int32_t n_own = llm_vocab_n_token(a), n_other = llm_vocab_n_token(b);
    if (!are_near(n_own, n_other) || !are_near(draft->hparams.n_vocab, model->hparams.n_vocab)) {
        const bool is_rows = are_near(n_own, n_other);
        snprintf(what, sizeof what, "it has %d %s, not %d",
                 is_rows ? draft->hparams.n_vocab : n_own,
                 is_rows ? "rows in its embedding" : "tokens",
                 is_rows ? model->hparams.n_vocab : n_other);
        return differ(draft, model, what, err);
    }
    for (int32_t id = 0; id < n_own && id < n_other; id++) {
        llm_vocab_str s = llm_vocab_token_text(a, id), t = llm_vocab_token_text(b, id);
        if (s.len == t.len && (s.len == 0 || memcmp(s.ptr, t.ptr, s.len) == 0) &&
            llm_vocab_ends_generation(a, id) == llm_vocab_ends_generation(b, id))
            continue;
        snprintf(what, sizeof what, "its token %d is '%.*s'%s, not '%.*s'%s", id,
                 (int)(s.len < 40 ? s.len : 40), s.len > 0 ? s.ptr : "",
                 llm_vocab_ends_generation(a, id) ? " (an end)" : "",
                 (int)(t.len < 40 ? t.len : 40), t.len > 0 ? t.ptr : "",
                 llm_vocab_ends_generation(b, id) ? " (an end)" : "");
        return differ(draft, model, what, err);
    }
    return TDM_OK;
}

static tdm_status no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "draft: no memory");
}

/* ---- Hidden states ---- */

/* Makes room for n hidden states. */
static tdm_status states_reserve(const llm_draft *draft, states *s, int32_t n, tdm_error *err) {
    if (n <= s->room) return TDM_OK;
    float *grown = realloc(s->rows, (size_t)n * (size_t)draft->hidden_len * sizeof *grown);
    if (grown == NULL) return no_memory(err);
    s->rows = grown;
    s->room = n;
    return TDM_OK;
}

/* Appends the states of tokens first .. first+n-1 of the large model's last batch. */
static tdm_status states_append(const llm_draft *draft, states *s, const llm_context *target,
                                int32_t first, int32_t n, tdm_error *err) {
    const size_t len = (size_t)draft->hidden_len;
    tdm_status status = states_reserve(draft, s, s->n + n, err);
    for (int32_t i = 0; i < n && status == TDM_OK; i++) {
        const float *row = llm_context_hidden(target, first + i);
        if (row == NULL)
            return tdm_fail(err, TDM_INTERNAL, "the model gave no hidden state of token %d", i);
        memcpy(s->rows + (size_t)s->n++ * len, row, len * sizeof *row);
    }
    return status;
}

/* Forgets the first n states. */
static void states_drop(const llm_draft *draft, states *s, int32_t n) {
    const size_t len = (size_t)draft->hidden_len;
    s->n -= n;
    memmove(s->rows, s->rows + (size_t)n * len, (size_t)s->n * len * sizeof *s->rows);
}

/* Sets one state, of zeros: that before the first token that is decoded next. */
static void states_begin(const llm_draft *draft, states *s) {
    memset(s->rows, 0, (size_t)draft->hidden_len * sizeof *s->rows);
    s->n = 1;
    s->is_lost = false;
}

/* ---- Creation ---- */

tdm_status llm_draft_create(const llm_draft_params *p, llm_draft **draft_out, tdm_error *err) {
    *draft_out = NULL;
    llm_draft *draft = calloc(1, sizeof *draft);
    if (draft == NULL) return no_memory(err);
    const llm_model *model = llm_context_model(p->ctx != NULL ? p->ctx : p->target);
    draft->ctx = p->ctx;
    draft->n_gram = p->n_gram;
    draft->n_seq = llm_context_n_seq(p->target);
    draft->n_vocab = llm_context_model(p->target)->hparams.n_vocab;
    draft->n_vocab_own = model->hparams.n_vocab;
    draft->hidden_len = llm_model_hidden_len(model);
    draft->is_layer = model->lender != NULL;
    draft->n_max = p->n_max;
    if (p->ctx == NULL) draft->ngrams = calloc((size_t)draft->n_seq, sizeof *draft->ngrams);
    const int32_t n_most =
        draft->n_vocab > draft->n_vocab_own ? draft->n_vocab : draft->n_vocab_own;
    draft->fitted = malloc((size_t)n_most * sizeof *draft->fitted);
    for (int32_t i = draft->n_vocab_own; i < n_most && draft->fitted != NULL; i++)
        draft->fitted[i] = -INFINITY;
    draft->logits = malloc((size_t)draft->n_vocab * sizeof *draft->logits);
    const size_t n_word = ((size_t)draft->n_vocab + 63) / 64;
    draft->masks = malloc((size_t)draft->n_seq * n_word * sizeof *draft->masks);
    draft->may = calloc((size_t)draft->n_seq, sizeof *draft->may);
    const bool has_memory = draft->fitted != NULL && draft->logits != NULL &&
                            draft->masks != NULL && draft->may != NULL &&
                            (p->ctx != NULL || draft->ngrams != NULL);
    tdm_status status = has_memory ? TDM_OK : no_memory(err);
    for (int32_t s = 0; s < draft->n_seq && status == TDM_OK; s++)
        draft->may[s].mask = draft->masks + (size_t)s * n_word;
    if (status == TDM_OK && draft->is_layer) {
        draft->states = calloc((size_t)draft->n_seq, sizeof *draft->states);
        if (draft->states == NULL) status = no_memory(err);
        for (int32_t s = 0; s < draft->n_seq && status == TDM_OK; s++) {
            status = states_reserve(draft, &draft->states[s], draft->n_max + 2, err);
            if (status == TDM_OK) states_begin(draft, &draft->states[s]);
        }
    }
    if (status != TDM_OK) {
        llm_draft_destroy(draft);
        return status;
    }
    *draft_out = draft;
    return TDM_OK;
}

void llm_draft_destroy(llm_draft *draft) {
    if (draft == NULL) return;
    for (int32_t s = 0; s < draft->n_seq && draft->states != NULL; s++) free(draft->states[s].rows);
    free(draft->states);
    for (int32_t s = 0; s < draft->n_seq && draft->ngrams != NULL; s++)
        llm_ngrams_free(&draft->ngrams[s]);
    free(draft->ngrams);
    free(draft->hidden);
    free(draft->fitted);
    free(draft->logits);
    free(draft->masks);
    free(draft->may);
    free(draft->tokens);
    free(draft->seqs);
    free(draft->wanted);
    free(draft);
}

bool llm_draft_is_layer(const llm_draft *draft) {
    return draft->is_layer;
}

bool llm_draft_decodes(const llm_draft *draft) {
    return draft->ngrams == NULL;
}

int32_t llm_draft_n_extra(const llm_draft *draft) {
    return draft->n_vocab_own > draft->n_vocab ? draft->n_vocab_own - draft->n_vocab : 0;
}

int32_t llm_draft_length(const llm_draft *draft, int32_t seq) {
    return draft->ngrams != NULL ? draft->ngrams[seq].n_tok : llm_context_length(draft->ctx, seq);
}

int32_t llm_draft_missing(const llm_draft *draft, int32_t seq, int32_t n_tok) {
    const int32_t n = n_tok - llm_draft_length(draft, seq);
    if (draft->ngrams != NULL) return 0;
    const bool is_lost =
        draft->is_layer && (draft->states[seq].is_lost || draft->states[seq].n != n + 1);
    return n < 0 || is_lost ? -1 : n;
}

/* ---- Batches ---- */

static bool array_grow(void **array, size_t n, size_t size) {
    void *grown = realloc(*array, n * size);
    if (grown != NULL) *array = grown;
    return grown != NULL;
}

/* Makes room for a batch of n tokens. */
static tdm_status batch_reserve(llm_draft *draft, int32_t n, tdm_error *err) {
    const size_t len = (size_t)draft->hidden_len;
    if (n <= draft->n_room) return TDM_OK;
    const size_t room = (size_t)n + (size_t)n / 2;
    if (!array_grow((void **)&draft->tokens, room, sizeof *draft->tokens) ||
        !array_grow((void **)&draft->seqs, room, sizeof *draft->seqs) ||
        !array_grow((void **)&draft->wanted, room, sizeof *draft->wanted) ||
        (draft->is_layer && !array_grow((void **)&draft->hidden, room, len * sizeof(float))))
        return no_memory(err);
    draft->n_room = (int32_t)room;
    return TDM_OK;
}

/* Puts a token into place `at` of the batch, or the draft model's last id where it lacks the token.
 * hidden: the state of the token before it; NULL for a draft model. */
static void batch_put(llm_draft *draft, int32_t at, int32_t seq, int32_t token, const float *hidden,
                      bool is_wanted) {
    const size_t len = (size_t)draft->hidden_len;
    draft->tokens[at] = token < draft->n_vocab_own ? token : draft->n_vocab_own - 1;
    draft->seqs[at] = seq;
    draft->wanted[at] = is_wanted;
    if (draft->is_layer && hidden != NULL)
        memcpy(draft->hidden + (size_t)at * len, hidden, len * sizeof *hidden);
}

/* Decodes the batch of n tokens. n_room: llm_batch.n_room. */
static tdm_status batch_decode(llm_draft *draft, int32_t n, int32_t n_room, tdm_role role,
                               tdm_error *err) {
    const llm_batch batch = {.tokens = draft->tokens,
                             .seqs = draft->seqs,
                             .wanted = draft->wanted,
                             .n_tok = n,
                             .role = role,
                             .hidden = draft->is_layer ? draft->hidden : NULL,
                             .n_room = n_room};
    return llm_context_decode(draft->ctx, &batch, err);
}

/* The state with which a layer decodes the i-th token that it does not hold yet; NULL for a draft
 * model. */
static const float *state_at(const llm_draft *draft, int32_t seq, int32_t i) {
    return draft->is_layer ? draft->states[seq].rows + (size_t)i * (size_t)draft->hidden_len : NULL;
}

static tdm_status states_check(const llm_draft *draft, int32_t seq, int32_t n, tdm_error *err) {
    if (!draft->is_layer || n <= draft->states[seq].n) return TDM_OK;
    return tdm_fail(err, TDM_INTERNAL, "%d hidden states for %d tokens", draft->states[seq].n, n);
}

tdm_status llm_draft_follow(llm_draft *draft, const llm_draft_part *parts, int32_t n_part,
                            tdm_error *err) {
    int32_t n = 0, at = 0;
    for (int32_t i = 0; i < n_part; i++) n += parts[i].n_tok;
    tdm_status status = n > 0 ? batch_reserve(draft, n, err) : TDM_OK;
    if (n == 0) return TDM_OK;
    for (int32_t i = 0; i < n_part && status == TDM_OK; i++) {
        const llm_draft_part *part = &parts[i];
        status = states_check(draft, part->seq, part->n_tok, err);
        for (int32_t k = 0; k < part->n_tok && status == TDM_OK; k++)
            batch_put(draft, at++, part->seq, part->tokens[k], state_at(draft, part->seq, k),
                      false);
    }
    if (status == TDM_OK) status = batch_decode(draft, n, 0, TDM_ROLE_PROMPT, err);
    for (int32_t i = 0; i < n_part && status == TDM_OK && draft->is_layer; i++)
        states_drop(draft, &draft->states[parts[i].seq], parts[i].n_tok);
    return status;
}

/* ---- Proposals ---- */

/* The probability of a token by the softmax of a row. */
static double probability(const llm_row *row, int32_t token) {
    float most = -INFINITY, own = -INFINITY;
    double sum = 0;
    for (int32_t i = 0; i < row->n; i++) {
        if (row->logits[i] > most) most = row->logits[i];
        if ((row->tokens != NULL ? row->tokens[i] : i) == token) own = row->logits[i];
    }
    for (int32_t i = 0; i < row->n; i++)
        if (row->logits[i] > -INFINITY) sum += exp((double)row->logits[i] - (double)most);
    return own > -INFINITY ? exp((double)own - (double)most) / sum : 0;
}

/* The draft's row with the ids of the large model: those that only the large model has get -inf,
 * and those that only the draft has are left out. The result points to memory of the draft or of
 * the row, and is valid until the next call. */
static llm_row row_fit(llm_draft *draft, const llm_row *row) {
    const int32_t n_vocab = draft->n_vocab, n_own = draft->n_vocab_own;
    int32_t n = 0;
    if (n_vocab == n_own || (row->tokens != NULL && n_vocab > n_own)) return *row;
    if (row->tokens == NULL && n_vocab < n_own) return (llm_row){row->logits, NULL, n_vocab};
    if (row->tokens == NULL) {
        memcpy(draft->fitted, row->logits, (size_t)n_own * sizeof *draft->fitted);
        return (llm_row){draft->fitted, NULL, n_vocab};
    }
    for (int32_t i = 0; i < row->n; i++) {
        if (row->tokens[i] >= n_vocab) continue;
        draft->fitted[n] = row->logits[i];
        draft->fitted_ids[n++] = row->tokens[i];
    }
    return (llm_row){draft->fitted, draft->fitted_ids, n};
}

static bool is_barred(const llm_draft_item *item, int32_t token) {
    for (int32_t i = 0; i < item->n_bar; i++)
        if (item->bars[i] == token) return true;
    return false;
}

/* Finds which tokens may follow the last proposal. */
static void allowed_find(const llm_draft *draft, const llm_draft_item *item, allowed *a) {
    const llm_constraint *c = item->constraint;
    int32_t n = 0;
    *a = (allowed){.mask = a->mask, .forced = -1};
    if (c == NULL) return;
    a->is_over = c->mask(c->state, a->mask, &a->is_limited, NULL) != TDM_OK;
    if (a->is_over || !a->is_limited) return;
    for (int32_t w = 0; w < (draft->n_vocab + 63) / 64 && n < 2; w++) {
        if (a->mask[w] == 0) continue;
        n += __builtin_popcountll(a->mask[w]);
        a->forced = 64 * w + __builtin_ctzll(a->mask[w]);
    }
    if (n != 1) a->forced = -1;
    a->is_over = a->forced >= 0 && is_barred(item, a->forced);
}

/* Appends a proposal to those of an item; *goes_on_out = another may follow. */
static void proposal_add(llm_draft_item *item, int32_t token, bool *goes_on_out) {
    const llm_constraint *c = item->constraint;
    *goes_on_out = false;
    if (c != NULL && c->accept(c->state, token, NULL) != TDM_OK) return;
    item->tokens_out[item->n_out++] = token;
    *goes_on_out =
        item->n_out < item->n && (c == NULL || c->is_done == NULL || !c->is_done(c->state));
}

/* Finds which tokens may follow. While only one may, it is appended at once, without logits. Not
 * for a layer: it must decode each token before the next, to have the hidden state for that one. */
static void forced_add(const llm_draft *draft, llm_draft_item *item, allowed *may) {
    bool goes_on = true;
    allowed_find(draft, item, may);
    while (goes_on && !draft->is_layer && !may->is_over && may->forced >= 0) {
        llm_sampler_accept(item->sampler, may->forced);
        proposal_add(item, may->forced, &goes_on);
        if (goes_on) allowed_find(draft, item, may);
    }
    may->goes_on = goes_on && !may->is_over;
}

/* Samples the next proposal of an item from row i; *goes_on_out = it was kept, and another may
 * follow. */
static tdm_status pick(llm_draft *draft, llm_draft_item *item, const allowed *may, int32_t i,
                       bool *goes_on_out, tdm_error *err) {
    const llm_row_change change = {.barred = item->bars,
                                   .n_barred = item->n_bar,
                                   .bias = item->bias,
                                   .n_bias = item->n_bias,
                                   .mask = may->is_limited ? may->mask : NULL};
    llm_row row = llm_context_row(draft->ctx, i);
    *goes_on_out = false;
    if (row.n == 0) return tdm_fail(err, TDM_INTERNAL, "the draft gave no logits");
    row = row_fit(draft, &row);
    row = llm_row_changed(&row, &change, draft->logits);
    int32_t token = may->forced;
    const tdm_status status =
        token < 0 ? llm_sampler_pick(item->sampler, &row, &token, err) : TDM_OK;
    /* No allowed token has a probability. */
    if (status == TDM_DATA_LOSS && may->is_limited) return TDM_OK;
    if (status != TDM_OK) return status;
    if (item->p_min > 0 && may->forced < 0 && probability(&row, token) < (double)item->p_min)
        return TDM_OK;
    llm_sampler_accept(item->sampler, token);
    proposal_add(item, token, goes_on_out);
    return TDM_OK;
}

/* Proposals from n-grams: the tokens that followed an earlier occurrence of the last tokens, and
 * tokens that are the only allowed ones. Each proposal is appended to the n-grams' sequence, so
 * that the search for the next one sees it; at the end they are removed again. */
static tdm_status ngrams_propose(llm_draft *draft, llm_draft_item *item, tdm_error *err) {
    llm_ngrams *g = &draft->ngrams[item->seq];
    const int32_t n = draft->n_gram;
    tdm_status status = TDM_OK;
    bool goes_on = true;
    item->n_out = 0;
    llm_ngrams_truncate(g, n, item->n_history);
    while (g->n_tok < item->n_history && status == TDM_OK)
        status = llm_ngrams_append(g, n, item->history[g->n_tok], err);
    if (status == TDM_OK) status = llm_ngrams_append(g, n, item->next, err);
    int32_t at = status == TDM_OK ? llm_ngrams_find(g, n) : -1;
    while (goes_on && status == TDM_OK) {
        allowed *may = &draft->may[0];
        allowed_find(draft, item, may);
        int32_t token = may->forced;
        if (may->is_over) break;
        if (token < 0 && at >= 0) token = g->tokens[at];
        if (token < 0 || is_barred(item, token) ||
            (may->is_limited && (may->mask[token / 64] >> (token % 64) & 1) == 0))
            break;
        proposal_add(item, token, &goes_on);
        if (!goes_on) break;
        const bool is_followed = at >= 0 && g->tokens[at] == token;
        status = llm_ngrams_append(g, n, token, err);
        if (status == TDM_OK) at = is_followed ? at + 1 : llm_ngrams_find(g, n);
    }
    llm_ngrams_truncate(g, n, item->n_history);
    return status;
}

/* Puts the proposals of an item from the k-th on into the batch, from place *n on. goes_on: another
 * proposal follows, from the logits of the last one. Otherwise the last one is left out: nothing
 * needs its logits, and a draft model never holds the last token that the large model accepts
 * (llm_draft_accept). */
static tdm_status proposals_put(llm_draft *draft, const llm_draft_item *item, int32_t k,
                                bool goes_on, const float *hidden, int32_t *n, tdm_error *err) {
    const int32_t end = goes_on ? item->n_out : item->n_out - 1;
    const tdm_status status = k < end ? batch_reserve(draft, *n + end - k, err) : TDM_OK;
    for (; k < end && status == TDM_OK; k++)
        batch_put(draft, (*n)++, item->seq, item->tokens_out[k], hidden, goes_on && k == end - 1);
    return status;
}

/* Decodes the tokens that the draft does not hold yet, then `next`, then the forced proposals. For
 * a layer, steps of every size up to n_max + 1 tokens per item use one plan (llm_batch.n_room): how
 * many tokens are missing depends on how many proposals were accepted. */
static tdm_status missing_decode(llm_draft *draft, llm_draft_item *items, int32_t n_item,
                                 tdm_error *err) {
    int32_t n = 0;
    for (int32_t i = 0; i < n_item; i++) {
        const bool goes_on = draft->may[i].goes_on;
        const int32_t n_held = llm_draft_length(draft, items[i].seq);
        const int32_t n_new = items[i].n_history - n_held;
        if (n_new < 0 || items[i].n_history + items[i].n > llm_context_n_ctx(draft->ctx))
            return tdm_fail(err, TDM_INTERNAL, "the draft holds %d tokens of %d", n_held,
                            items[i].n_history);
        tdm_status status = states_check(draft, items[i].seq, n_new + 1, err);
        if (status == TDM_OK) status = batch_reserve(draft, n + n_new + 1, err);
        if (status != TDM_OK) return status;
        for (int32_t k = 0; k <= n_new; k++)
            batch_put(
                draft, n++, items[i].seq, k < n_new ? items[i].history[n_held + k] : items[i].next,
                state_at(draft, items[i].seq, k), goes_on && k == n_new && items[i].n_out == 0);
        status = proposals_put(draft, &items[i], 0, goes_on, NULL, &n, err);
        if (status != TDM_OK) return status;
    }
    const tdm_status status = batch_decode(
        draft, n, draft->is_layer ? n_item * (draft->n_max + 1) : 0, TDM_ROLE_GENERATED, err);
    for (int32_t i = 0; i < n_item && status == TDM_OK && draft->is_layer; i++)
        draft->states[items[i].seq].n = 0;
    return status;
}

tdm_status llm_draft_propose(llm_draft *draft, llm_draft_item *items, int32_t n_item,
                             tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < n_item && status == TDM_OK && draft->ngrams != NULL; i++)
        status = ngrams_propose(draft, &items[i], err);
    if (draft->ngrams != NULL || n_item == 0) return status;
    for (int32_t i = 0; i < n_item; i++) {
        items[i].n_out = 0;
        llm_sampler_copy(items[i].sampler, items[i].model);
        forced_add(draft, &items[i], &draft->may[i]);
    }
    status = missing_decode(draft, items, n_item, err);
    for (int32_t n = n_item; n > 0 && status == TDM_OK;) {
        int32_t row = 0;
        n = 0;
        for (int32_t i = 0; i < n_item && status == TDM_OK; i++) {
            const int32_t n_held = items[i].n_out;
            allowed *may = &draft->may[i];
            if (!may->goes_on) continue;
            status = pick(draft, &items[i], may, row++, &may->goes_on, err);
            if (may->goes_on) forced_add(draft, &items[i], may);
            /* The large model has no hidden state of a proposal yet: the layer's own is used. */
            if (status == TDM_OK)
                status = proposals_put(draft, &items[i], n_held, may->goes_on,
                                       llm_context_hidden(draft->ctx, row - 1), &n, err);
        }
        /* n = 0: no item needs more logits. */
        if (n > 0 && status == TDM_OK) status = batch_decode(draft, n, 0, TDM_ROLE_GENERATED, err);
    }
    return status;
}

/* ---- Sequences ---- */

/* Keeps at most the first n_tok tokens of a sequence; leaves its states unchanged. */
static tdm_status shorten(llm_draft *draft, int32_t seq, int32_t n_tok, tdm_error *err) {
    if (n_tok >= llm_draft_length(draft, seq)) return TDM_OK;
    if (draft->ngrams != NULL) {
        if (n_tok > 0)
            llm_ngrams_truncate(&draft->ngrams[seq], draft->n_gram, n_tok);
        else
            llm_ngrams_free(&draft->ngrams[seq]);
        return TDM_OK;
    }
    return llm_context_truncate(draft->ctx, seq, n_tok, err);
}

tdm_status llm_draft_accept(llm_draft *draft, int32_t seq, const llm_context *target, int32_t first,
                            int32_t length, int32_t n_kept, tdm_error *err) {
    /* A draft model keeps one token less than the large model holds: then its next step has the
     * same shape whether all proposals were accepted or not. */
    if (!draft->is_layer) return shorten(draft, seq, length + n_kept - 1, err);
    if (draft->states[seq].is_lost) return TDM_OK;
    /* The layer decoded the tokens after the first one with its own states. It decodes them again
     * with those of the large model, which give better proposals. */
    tdm_status status = shorten(draft, seq, length + 1, err);
    return status == TDM_OK ? states_append(draft, &draft->states[seq], target, first, n_kept, err)
                            : status;
}

tdm_status llm_draft_truncate(llm_draft *draft, int32_t seq, int32_t n_tok, tdm_error *err) {
    const int32_t n_held = llm_draft_length(draft, seq);
    const tdm_status status = shorten(draft, seq, n_tok, err);
    if (status != TDM_OK || !draft->is_layer) return status;
    states *s = &draft->states[seq];
    if (n_tok < n_held || n_tok == 0)
        states_begin(draft, s);
    else if (s->n > n_tok - n_held + 1)
        s->n = n_tok - n_held + 1;
    return TDM_OK;
}

tdm_status llm_draft_fork(llm_draft *draft, int32_t dst, int32_t src, int32_t n_tok,
                          tdm_error *err) {
    const size_t len = (size_t)draft->hidden_len;
    const int32_t n_held = llm_draft_length(draft, src);
    /* N-grams read the tokens again when they propose: that is no more work than a copy. */
    if (draft->ngrams != NULL) return TDM_OK;
    const int32_t n = llm_context_reach(draft->ctx, src, n_tok < n_held ? n_tok : n_held);
    tdm_status status = n > 0 ? llm_context_fork(draft->ctx, dst, src, n, err) : TDM_OK;
    if (status != TDM_OK || !draft->is_layer) return status;
    const states *from = &draft->states[src];
    states *to = &draft->states[dst];
    const int32_t n_state = n_tok - n + 1;
    const bool has_states = n == n_held && !from->is_lost && from->n >= n_state;
    states_begin(draft, to);
    to->is_lost = !has_states && n < n_tok;
    if (!has_states) return TDM_OK;
    status = states_reserve(draft, to, n_state, err);
    if (status != TDM_OK) return status;
    memcpy(to->rows, from->rows, (size_t)n_state * len * sizeof *to->rows);
    to->n = n_state;
    return TDM_OK;
}

tdm_status llm_draft_shift(llm_draft *draft, int32_t seq, const int32_t *history, int32_t n_history,
                           int32_t n_keep, int32_t n_discard, tdm_error *err) {
    /* A draft model and n-grams read the tokens again whose positions change. */
    if (!draft->is_layer) return shorten(draft, seq, n_keep, err);
    const int32_t n_held = llm_draft_length(draft, seq);
    const llm_draft_part part = {seq, history + n_held, n_history - n_held};
    tdm_status status = llm_draft_follow(draft, &part, 1, err);
    return status == TDM_OK ? llm_context_shift(draft->ctx, seq, n_keep, n_discard, err) : status;
}
