/* SPDX-License-Identifier: MIT
 *
 * generation.c: the loop around decoding. All sequences that are not done are one batch, so that
 * the weights are read once for all of them.
 */
#include "runner/generation.h"

#include <stdlib.h>
#include <string.h>

#include "runner/interrupt.h"

typedef struct sequence {
    llm_sampler *sampler;
    llm_detok *detok;
    grammar_state *place; /* in the grammar; NULL = none */
    int32_t next;         /* the token sampled last */
    int32_t n_picked;     /* so far */
    int32_t row;          /* of the logits of its last token; -1 = none */
    runner_stop stop;
} sequence;

typedef struct generation {
    runner_session *session;
    const runner_generation_params *params;
    runner_generation_result *result;
    const llm_vocab *vocab;
    int32_t n_vocab;
    int32_t n_limit; /* tokens that a sequence may hold; a full one is shifted, or ends */
    sequence *seqs;  /* [n_seq] */
    int32_t *bars;   /* [n_bar] tokens that are not sampled */
    int32_t n_bar;
    float *logits;       /* [n_vocab] a row without barred tokens; NULL = no token is barred */
    uint64_t *mask;      /* of tokens that the grammar allows; NULL = no grammar */
    int32_t *tokens;     /* [n_batch] the batch */
    int32_t *owners;     /* [n_batch] */
    bool *wanted;        /* [n_batch] */
    llm_draft *draft;    /* NULL = none */
    llm_draft_pace pace;
    llm_sampler *draft_sampler; /* of proposals */
    grammar_state *draft_place; /* of proposals in the grammar; NULL = no grammar */
    int32_t *history;           /* [n_ctx] the tokens that sequence 0 holds */
} generation;

static tdm_status no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "generation: no memory");
}

/* Fills g->bars: the suppressed tokens of the vocabulary, and those that end generation where that
 * is ignored. */
static tdm_status bars_collect(generation *g) {
    int32_t n = 0, n_end = 0;
    const int32_t *suppressed = llm_vocab_suppressed(g->vocab, &n);
    const int32_t n_token = g->params->ignores_end ? llm_vocab_n_token(g->vocab) : 0;
    for (int32_t id = 0; id < n_token; id++) n_end += llm_vocab_ends_generation(g->vocab, id);
    g->bars = malloc(((size_t)n + (size_t)n_end + 1) * sizeof *g->bars);
    if (g->bars == NULL) return TDM_RESOURCE_EXHAUSTED;
    for (; g->n_bar < n; g->n_bar++) g->bars[g->n_bar] = suppressed[g->n_bar];
    for (int32_t id = 0; id < n_token; id++)
        if (llm_vocab_ends_generation(g->vocab, id)) g->bars[g->n_bar++] = id;
    return TDM_OK;
}

static tdm_status generation_begin(generation *g, tdm_error *err) {
    const runner_generation_params *p = g->params;
    size_t n_seq = (size_t)p->n_seq;
    size_t n_batch = p->draft != NULL ? (size_t)p->draft->n_max + 1 : n_seq;
    tdm_status status = llm_model_vocab(g->session->model, &g->vocab, err);
    if (status != TDM_OK) return status;
    g->n_vocab = g->session->model->hparams.n_vocab;
    g->seqs = calloc(n_seq, sizeof *g->seqs);
    g->tokens = calloc(n_batch, sizeof *g->tokens);
    g->owners = calloc(n_batch, sizeof *g->owners);
    g->wanted = calloc(n_batch, sizeof *g->wanted);
    if (bars_collect(g) != TDM_OK) return no_memory(err);
    if (g->n_bar > 0 || p->grammar != NULL)
        g->logits = malloc((size_t)g->n_vocab * sizeof *g->logits);
    if (p->grammar != NULL) g->mask = malloc(((size_t)g->n_vocab + 63) / 64 * sizeof *g->mask);
    if (g->seqs == NULL || g->tokens == NULL || g->owners == NULL || g->wanted == NULL ||
        (g->n_bar > 0 && g->logits == NULL) ||
        (p->grammar != NULL && (g->logits == NULL || g->mask == NULL)))
        return no_memory(err);
    int32_t n_ctx = llm_context_n_ctx(g->session->ctx);
    /* After a shift no pages are shared, so each sequence may have only its part of them. */
    g->n_limit = p->shifts_context ? n_ctx / p->n_seq : n_ctx;
    unsigned flags = (p->shows_special ? LLM_DETOKENIZE_SPECIAL : 0u) |
                     (p->continues_text ? LLM_DETOKENIZE_CONTINUE : 0u);
    for (int32_t s = 0; s < p->n_seq && status == TDM_OK; s++) {
        llm_sampler_params sampler = p->sampler;
        sampler.seed += (uint64_t)s;
        status = llm_sampler_create(&sampler, g->n_vocab, n_ctx, &g->seqs[s].sampler, err);
        if (status == TDM_OK && p->grammar != NULL)
            status = grammar_state_create(p->grammar, &g->seqs[s].place, err);
        if (status == TDM_OK) status = llm_detok_create(g->vocab, flags, &g->seqs[s].detok, err);
        for (int32_t i = 0; i < p->n_prompt && status == TDM_OK; i++)
            llm_sampler_accept(g->seqs[s].sampler, p->prompt[i]);
        g->seqs[s].row = -1;
    }
    /* A grammar may bar any number of tokens: whole rows. */
    if (status == TDM_OK)
        status = runner_session_candidates(g->session, g->seqs[0].sampler,
                                           p->grammar != NULL ? g->n_vocab : g->n_bar, err);
    if (status != TDM_OK) return status;
    g->history = malloc(((size_t)n_ctx + 1) * sizeof *g->history);
    if (g->history == NULL) return no_memory(err);
    if (p->draft == NULL) return TDM_OK;
    g->draft = p->draft->draft;
    status = llm_sampler_create(&p->sampler, g->n_vocab, n_ctx, &g->draft_sampler, err);
    if (status == TDM_OK && p->grammar != NULL)
        status = grammar_state_create(p->grammar, &g->draft_place, err);
    if (status != TDM_OK) return status;
    return runner_draft_candidates(p->draft, g->draft_sampler,
                                   p->grammar != NULL ? g->n_vocab : g->n_bar, err);
}

static void generation_end(generation *g) {
    for (int32_t s = 0; g->seqs != NULL && s < g->params->n_seq; s++) {
        llm_sampler_destroy(g->seqs[s].sampler);
        llm_detok_destroy(g->seqs[s].detok);
        grammar_state_destroy(g->seqs[s].place);
    }
    free(g->seqs);
    free(g->bars);
    free(g->logits);
    free(g->mask);
    free(g->tokens);
    free(g->owners);
    free(g->wanted);
    free(g->history);
    g->session->batch_done = NULL;
    llm_sampler_destroy(g->draft_sampler);
    grammar_state_destroy(g->draft_place);
}

static tdm_status text_give(const generation *g, int32_t s, llm_vocab_str text, tdm_error *err) {
    if (text.len == 0) return TDM_OK;
    return g->params->text(g->params->user, s, text.ptr, text.len, err);
}

static tdm_status sequence_stop(generation *g, int32_t s, runner_stop stop, tdm_error *err) {
    g->seqs[s].stop = stop;
    g->result->stop = stop;
    return text_give(g, s, llm_detok_flush(g->seqs[s].detok), err);
}

/* Samples the next token of a sequence and passes its text to the caller. */
static tdm_status sequence_pick(generation *g, int32_t s, tdm_error *err) {
    sequence *seq = &g->seqs[s];
    llm_row row = llm_context_row(g->session->ctx, seq->row);
    if (row.n == 0) return tdm_fail(err, TDM_INTERNAL, "sequence %d has no logits", s);
    const llm_row_change change = {
        .barred = g->bars, .n_barred = g->n_bar, .mask = seq->place != NULL ? g->mask : NULL};
    llm_vocab_str text;
    tdm_status status = TDM_OK;
    if (seq->place != NULL) status = grammar_state_mask(seq->place, g->mask, err);
    if (status != TDM_OK) return status;
    row = llm_row_changed(&row, &change, g->logits);
    status = llm_sampler_pick(seq->sampler, &row, &seq->next, err);
    if (status == TDM_OK && seq->place != NULL)
        status = grammar_state_accept(seq->place, seq->next, err);
    if (status != TDM_OK) return status;
    llm_sampler_accept(seq->sampler, seq->next);
    seq->n_picked++;
    g->result->n_generated++;
    bool is_end = llm_vocab_ends_generation(g->vocab, seq->next);
    /* A row of the embedding may have no token in the tokenizer, hence no text. */
    if (seq->next < llm_vocab_n_token(g->vocab)) {
        status = llm_detok_push(seq->detok, seq->next, &text, err);
        if (status == TDM_OK) status = text_give(g, s, text, err);
    }
    if (status != TDM_OK) return status;
    /* If the grammar allows only the end now, no further step is needed. */
    if (is_end || (seq->place != NULL && grammar_state_must_end(seq->place)))
        return sequence_stop(g, s, RUNNER_STOP_END, err);
    if (g->params->n_predict >= 0 && seq->n_picked >= g->params->n_predict)
        return sequence_stop(g, s, RUNNER_STOP_LENGTH, err);
    return TDM_OK;
}

/* Shifts a sequence that is at its limit. If there is nothing to discard, the sequence ends. */
static tdm_status sequence_shift(generation *g, int32_t s, tdm_error *err) {
    const runner_generation_params *p = g->params;
    int32_t length = llm_context_length(g->session->ctx, s);
    int32_t n_keep = p->n_keep < 0 || p->n_keep > p->n_prompt ? p->n_prompt : p->n_keep;
    int32_t n_discard = (length - n_keep) / 2;
    if (n_discard < 1) return sequence_stop(g, s, RUNNER_STOP_CONTEXT, err);
    g->result->n_shift++;
    tdm_status status = TDM_OK;
    if (g->draft != NULL)
        status = llm_draft_shift(g->draft, 0, g->history, length, n_keep, n_discard, err);
    if (status == TDM_OK) status = llm_context_shift(g->session->ctx, s, n_keep, n_discard, err);
    if (status != TDM_OK || s != 0) return status;
    memmove(g->history + n_keep, g->history + n_keep + n_discard,
            (size_t)(length - n_keep - n_discard) * sizeof *g->history);
    return TDM_OK;
}

/* Cache slots in use: the shared prompt counts once until a shift. */
static int64_t slots_used(const generation *g) {
    int64_t used = g->params->n_prompt;
    for (int32_t s = 0; s < g->params->n_seq; s++)
        used += llm_context_length(g->session->ctx, s) - g->params->n_prompt;
    return used;
}

/* Makes room for one token in every sequence that is not done. */
static tdm_status room_make(generation *g, tdm_error *err) {
    const runner_generation_params *p = g->params;
    int32_t n_going = 0;
    tdm_status status = TDM_OK;
    for (int32_t s = 0; s < p->n_seq; s++) n_going += g->seqs[s].stop == RUNNER_STOP_NONE;
    bool is_full = !p->shifts_context && slots_used(g) + n_going > g->n_limit;
    for (int32_t s = 0; s < p->n_seq && status == TDM_OK; s++) {
        if (g->seqs[s].stop != RUNNER_STOP_NONE) continue;
        if (is_full)
            status = sequence_stop(g, s, RUNNER_STOP_CONTEXT, err);
        else if (p->shifts_context && llm_context_length(g->session->ctx, s) >= g->n_limit)
            status = sequence_shift(g, s, err);
    }
    return status;
}

/* Decodes the last sampled token of each sequence that is not done. *n_out = number of them. */
static tdm_status step(generation *g, int32_t *n_out, tdm_error *err) {
    int32_t n = 0;
    for (int32_t s = 0; s < g->params->n_seq; s++) {
        sequence *seq = &g->seqs[s];
        seq->row = -1;
        if (seq->stop != RUNNER_STOP_NONE) continue;
        g->tokens[n] = seq->next;
        g->owners[n] = s;
        g->wanted[n] = true;
        seq->row = n++;
    }
    *n_out = n;
    if (n == 0) return TDM_OK;
    if (g->seqs[0].row >= 0) g->history[llm_context_length(g->session->ctx, 0)] = g->seqs[0].next;
    llm_batch batch = {g->tokens, g->owners, g->wanted, n};
    return llm_context_decode(g->session->ctx, &batch, err);
}

/* Number of tokens to propose: as many as the context has room for besides the last sampled one.
 * Where the draft decodes tokens, it is the same in all steps, also near the end of the text, where
 * fewer are needed: a step of another shape would need a plan, in both contexts. */
static int32_t proposals_count(generation *g) {
    int32_t n = g->n_limit - llm_context_length(g->session->ctx, 0) - 1;
    if (n > g->params->draft->n_max) n = g->params->draft->n_max;
    return llm_draft_decodes(g->draft) ? n : llm_draft_pace_next(&g->pace, n);
}

/* With a draft: decodes the last sampled token and the proposals, and samples from the logits in
 * order while the next proposal equals the sample. The others are removed from the context. *n_out
 * = tokens that stay in the context; 0 where the sequence has ended. */
static tdm_status step_drafted(generation *g, int32_t *n_out, tdm_error *err) {
    llm_context *ctx = g->session->ctx;
    sequence *seq = &g->seqs[0];
    *n_out = 0;
    if (seq->stop != RUNNER_STOP_NONE) return TDM_OK;
    int32_t length = llm_context_length(ctx, 0), n = proposals_count(g), n_kept = 1;
    llm_constraint constraint = {0};
    g->tokens[0] = seq->next;
    if (seq->place != NULL) {
        grammar_state_assign(g->draft_place, seq->place);
        constraint = grammar_state_constraint(g->draft_place);
    }
    llm_draft_item item = {.sampler = g->draft_sampler,
                           .model = seq->sampler,
                           .history = g->history,
                           .n_history = length,
                           .next = seq->next,
                           .n = n,
                           .p_min = g->params->draft->p_min,
                           .bars = g->bars,
                           .n_bar = g->n_bar,
                           .constraint = seq->place != NULL ? &constraint : NULL,
                           .tokens_out = g->tokens + 1};
    tdm_status status = n > 0 ? llm_draft_propose(g->draft, &item, 1, err) : TDM_OK;
    n = item.n_out < g->params->draft->n_min ? 0 : item.n_out;
    for (int32_t i = 0; i <= n; i++) g->wanted[i] = true;
    llm_batch batch = {g->tokens, NULL, g->wanted, n + 1};
    if (status == TDM_OK) status = llm_context_decode(ctx, &batch, err);
    for (seq->row = 0; status == TDM_OK; seq->row++, n_kept++) {
        status = sequence_pick(g, 0, err);
        if (status != TDM_OK || seq->row == n || seq->stop != RUNNER_STOP_NONE ||
            seq->next != g->tokens[seq->row + 1])
            break;
    }
    if (status != TDM_OK) return status;
    g->result->n_proposed += n;
    g->result->n_accepted += n_kept - 1;
    llm_draft_pace_note(&g->pace, n, n_kept - 1, g->params->draft->n_min);
    *n_out = n_kept;
    memcpy(g->history + length, g->tokens, (size_t)n_kept * sizeof *g->tokens);
    status = llm_draft_accept(g->draft, 0, ctx, 0, length, n_kept, err);
    if (status == TDM_OK && n_kept < n + 1)
        status = llm_context_truncate(ctx, 0, length + n_kept, err);
    return status;
}

static tdm_status pick_all(generation *g, tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int32_t s = 0; s < g->params->n_seq && status == TDM_OK; s++)
        if (g->seqs[s].stop == RUNNER_STOP_NONE) status = sequence_pick(g, s, err);
    return status;
}

static void counters_read(uint64_t *counters) {
    for (int i = 0; i < TDM_COUNTER_COUNT_; i++) counters[i] = tdm_counter_get((tdm_counter)i);
}

static tdm_status loop(generation *g, tdm_error *err) {
    runner_generation_result *r = g->result;
    uint64_t start = runner_clock(), before[TDM_COUNTER_COUNT_] = {0};
    int64_t n_step = 0;
    tdm_status status = pick_all(g, err);
    while (status == TDM_OK) {
        int32_t n = 0;
        if (runner_interrupt_came()) {
            for (int32_t s = 0; s < g->params->n_seq && status == TDM_OK; s++)
                if (g->seqs[s].stop == RUNNER_STOP_NONE)
                    status = sequence_stop(g, s, RUNNER_STOP_INTERRUPT, err);
            if (status == TDM_OK) status = tdm_fail(err, TDM_CANCELLED, "interrupted");
            break;
        }
        status = room_make(g, err);
        if (status == TDM_OK)
            status = g->draft != NULL ? step_drafted(g, &n, err) : step(g, &n, err);
        if (status == TDM_OK && n == 0) break;
        if (status == TDM_OK) {
            r->n_decoded += n;
            /* The first step makes plans; the counters begin with the second, which makes none. */
            if (n_step++ == 0)
                counters_read(before);
            else
                r->n_steady += n;
            if (g->draft == NULL) status = pick_all(g, err);
        }
    }
    r->decode_ns = runner_clock() - start;
    counters_read(r->steady);
    for (int i = 0; i < TDM_COUNTER_COUNT_; i++) r->steady[i] -= n_step > 0 ? before[i] : 0;
    if (n_step == 0) memset(r->steady, 0, sizeof r->steady);
    return status;
}

/* A runner_session.batch_done: after each batch of the prompt, the layer that drafts decodes its
 * tokens, too. */
static tdm_status layer_follow(void *user, const int32_t *tokens, int32_t n_tok, tdm_error *err) {
    generation *g = user;
    const llm_draft_part part = {0, tokens, n_tok};
    const int32_t length = llm_draft_length(g->draft, 0);
    tdm_status status = llm_draft_accept(g->draft, 0, g->session->ctx, 0, length, n_tok, err);
    return status == TDM_OK ? llm_draft_follow(g->draft, &part, 1, err) : status;
}

/* Makes the draft decode the tokens of the prompt that it lacks, except the last one:
 * llm_draft_propose decodes that one, as it does after every step. */
static tdm_status draft_follow(generation *g, tdm_error *err) {
    const runner_generation_params *p = g->params;
    runner_terminal *terminal = g->session->app->terminal;
    const int32_t length = llm_context_length(g->session->ctx, 0);
    const int32_t n_all = llm_draft_missing(g->draft, 0, length) - 1;
    tdm_status status = TDM_OK;
    if (n_all < 1) return TDM_OK;
    runner_progress_begin(terminal, "prompt", (uint64_t)n_all, RUNNER_UNIT_TOKENS);
    for (int32_t n = n_all; n > 0 && status == TDM_OK;) {
        const llm_draft_part part = {0, g->history + llm_draft_length(g->draft, 0),
                                     n < p->n_batch ? n : p->n_batch};
        status = llm_draft_follow(g->draft, &part, 1, err);
        n -= part.n_tok;
        runner_progress_update(terminal, (uint64_t)(n_all - n));
        if (status == TDM_OK && n > 0 && runner_interrupt_came())
            status = tdm_fail(err, TDM_CANCELLED, "interrupted");
    }
    runner_progress_end(terminal);
    return status;
}

/* Decodes the part of the prompt that the context does not hold; the draft decodes all of it. */
static tdm_status prompt_compute(generation *g, tdm_error *err) {
    const runner_generation_params *p = g->params;
    int32_t n_reused = llm_context_length(g->session->ctx, 0);
    g->result->n_reused = n_reused;
    const bool is_layer = g->draft != NULL && llm_draft_is_layer(g->draft);
    if (is_layer) {
        g->session->batch_done = layer_follow;
        g->session->batch_user = g;
    }
    tdm_status status =
        runner_session_prefill(g->session, p->prompt + n_reused, p->n_prompt - n_reused, p->n_batch,
                               p->n_predict != 0, err);
    int32_t length = llm_context_length(g->session->ctx, 0);
    g->result->n_prompt = length - n_reused;
    memcpy(g->history, p->prompt, (size_t)length * sizeof *g->history);
    return status == TDM_OK && g->draft != NULL ? draft_follow(g, err) : status;
}

tdm_status runner_generate(runner_session *session, const runner_generation_params *params,
                           runner_generation_result *result, tdm_error *err) {
    generation g = {.session = session, .params = params, .result = result};
    memset(result, 0, sizeof *result);
    tdm_status status = generation_begin(&g, err);
    uint64_t start = runner_clock();
    if (status == TDM_OK) status = prompt_compute(&g, err);
    result->prompt_ns = runner_clock() - start;
    if (status == TDM_OK && params->prompt_done != NULL)
        status = params->prompt_done(params->user, err);
    for (int32_t s = 1; s < params->n_seq && status == TDM_OK; s++)
        status = llm_context_fork(session->ctx, s, 0, params->n_prompt, err);
    for (int32_t s = 0; s < params->n_seq && status == TDM_OK; s++) g.seqs[s].row = 0;
    result->stop = RUNNER_STOP_LENGTH;
    if (status == TDM_OK && params->n_predict != 0) status = loop(&g, err);
    if (status == TDM_CANCELLED) result->stop = RUNNER_STOP_INTERRUPT;
    if (g.history != NULL && params->held != NULL) {
        result->n_held = llm_context_length(session->ctx, 0);
        memcpy(params->held, g.history, (size_t)result->n_held * sizeof *g.history);
    }
    generation_end(&g);
    return status;
}
