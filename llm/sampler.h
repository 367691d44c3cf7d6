/* SPDX-License-Identifier: MIT
 *
 * sampler.h: picks the next token from a row of logits.
 *
 * Logit biases are added first. Then steps change logits or remove tokens, in the order of
 * llm_sampler_params.order; at the end one of the remaining tokens is drawn by its probability.
 * Probabilities are always those among the tokens that remain at that point; the temperature counts
 * from the step TEMPERATURE on. ADAPTIVE_P is the last step, wherever it is listed, and needs to be
 * listed to be done. Temperature 0 keeps only the token with the highest logit, and of
 * equal ones that with the lowest id. The same seed, logits and history give the same tokens on
 * every machine.
 *
 * Names, order and formulas are those of llama.cpp (include/llama.h), which names the sources.
 */
#ifndef LLM_SAMPLER_H
#define LLM_SAMPLER_H

#include "llm/sampler_breakers.h"
#include "tandem/status.h"

typedef struct llm_sampler llm_sampler;

/* The logits of one position: of the whole vocabulary, or of the best tokens alone. */
typedef struct llm_row {
    const float *logits;   /* [n] */
    const int32_t *tokens; /* [n] the best first, equal ones by id; NULL = token i has logits[i] */
    int32_t n;             /* n_vocab where tokens is NULL */
} llm_row;

/* The steps: LLM_SAMPLER_STEP(ID, "name"), in their usual order; ADAPTIVE_P is not a usual one. */
#define LLM_SAMPLER_STEP_LIST(X)                                                                   \
    X(PENALTIES, "penalties")     /* repeat_penalty, frequency_penalty, presence_penalty */        \
    X(DRY, "dry")                 /* dry_*: tokens that would repeat a sequence again */           \
    X(TOP_N_SIGMA, "top_n_sigma") /* logits within n standard deviations of the highest */         \
    X(TOP_K, "top_k")             /* the k highest */                                              \
    X(TYPICAL_P, "typ_p")         /* those whose surprise is closest to the mean (Meister 2022) */ \
    X(TOP_P, "top_p")             /* the fewest that reach a probability */                        \
    X(MIN_P, "min_p")             /* those with a share of the highest probability */              \
    X(XTC, "xtc")                 /* sometimes leaves out the most likely ones */                  \
    X(TEMPERATURE, "temperature") /* temp, or by entropy where dynatemp_range is set */            \
    X(ADAPTIVE_P, "adaptive_p")   /* prefers tokens of a probability (llama.cpp #17927) */

typedef enum llm_sampler_step {
#define LLM_SAMPLER_ENUM(ID, name) LLM_SAMPLER_##ID,
    LLM_SAMPLER_STEP_LIST(LLM_SAMPLER_ENUM)
#undef LLM_SAMPLER_ENUM
        LLM_SAMPLER_STEP_COUNT
} llm_sampler_step;

enum {
    LLM_SAMPLER_ORDER_MAX = 16,
    LLM_SAMPLER_USUAL_COUNT = LLM_SAMPLER_ADAPTIVE_P, /* the steps before it are the usual ones */
};

typedef struct llm_logit_bias {
    int32_t token;
    float bias; /* added to the logit; -inf = the token is never picked */
} llm_logit_bias;

typedef struct llm_sampler_params {
    size_t struct_size;
    float temp;            /* 0 = greedy */
    int32_t top_k;         /* 0 = off */
    float top_p;           /* 0 or >= 1 = off */
    float min_p;           /* 0 = off */
    float repeat_penalty;  /* 0 or 1 = off */
    int32_t repeat_last_n; /* tokens of history that are penalised; 0 = off, -1 = all */
    uint64_t seed;

    /* All below: 0 = off or the usual value. */
    float frequency_penalty; /* subtracted for each time that a token is in the history */
    float presence_penalty;  /* subtracted where a token is in the history */
    float typical_p;         /* >= 1 = off */
    float top_n_sigma;       /* <= 0 = off */
    /* TYPICAL_P, TOP_P and MIN_P each leave at least this many tokens, if there are as many; XTC
     * does not act where fewer would be left. 0 or 1 = off */
    int32_t min_keep;
    float xtc_probability;   /* 0 .. 1: how often XTC acts */
    float xtc_threshold;     /* tokens from this probability on, but the least likely of them, are
                              * left out; above 0.5 = off */
    float dynatemp_range;    /* the temperature is temp -+ this, higher where the entropy is */
    float dynatemp_exponent; /* of the entropy as a share of the highest; 0 = 1 */
    float dry_multiplier;    /* DRY subtracts multiplier * base^(length - allowed_length) from a
                              * token that would continue a repetition of the last `length` tokens;
                              * 0 = off */
    float dry_base;          /* 0 = 1.75 */
    int32_t dry_allowed_length;  /* 0 = 2; -1 = 0 */
    int32_t dry_last_n;          /* tokens of history that DRY reads; 0 = all */
    const llm_sampler_breakers *dry_breakers; /* texts that end a repetition; NULL = none */
    int32_t mirostat; /* 1 or 2 = Mirostat of that version (Basu et al., 2021) after `temp`, instead
                       * of all other steps; dynatemp_range does not count; 0 = off */
    float adaptive_target; /* the probability that ADAPTIVE_P keeps to, up to 1; <= 0 = off */
    float adaptive_decay;  /* 0 .. 0.99: how much earlier tokens count in the mean that it moves to
                            * the target; 0 = 0.9 */
    float mirostat_tau;               /* the surprise to reach, in bits; 0 = 5 */
    float mirostat_eta;               /* the learning rate; 0 = 0.1 */
    const llm_logit_bias *logit_bias; /* [n_logit_bias] */
    int32_t n_logit_bias;
    /* The steps, in order; one that is not listed is left out. n_order 0 = all in the usual order,
     * -1 = none. */
    uint8_t order[LLM_SAMPLER_ORDER_MAX]; /* llm_sampler_step */
    int32_t n_order;
} llm_sampler_params;

/* The step of that name, or -1. A name may be in capitals, and have '-' or nothing for each '_';
 * llama.cpp's other names (temp, nucleus, typical) count too. [any-thread] */
int llm_sampler_step_find(const char *name, size_t len);
/* The name of a step. [any-thread] */
const char *llm_sampler_step_name(llm_sampler_step step);

/* The row with -inf for n_barred tokens. Its logits are written to logits_out[row->n], to which the
 * result points. Candidates keep their places; a row of candidates must have n_barred more of them
 * than the sampler needs. [any-thread] */
llm_row llm_row_without(const llm_row *row, const int32_t *barred, int32_t n_barred,
                        float *logits_out);

/* The row with -inf for all tokens whose bit in `mask` is not set: bit t % 64 of word t / 64. Its
 * logits are written to logits_out[row->n], to which the result points; logits_out may be
 * row->logits. The mask may bar any number of tokens: of candidates too few could be left, so the
 * row should be whole. [any-thread] */
llm_row llm_row_masked(const llm_row *row, const uint64_t *mask, float *logits_out);

/* What a request changes in the model's rows before it samples from them. */
typedef struct llm_row_change {
    const int32_t *barred; /* [n_barred] as of llm_row_without */
    int32_t n_barred;
    const llm_logit_bias *bias; /* [n_bias] added to the logits of tokens below n_vocab */
    int32_t n_bias;
    const uint64_t *mask; /* as of llm_row_masked; NULL = no token is left out */
} llm_row_change;

/* The row with all of these changes, in this order. Its logits are written to logits_out[row->n],
 * other memory than row->logits, to which the result points; where nothing is to change, the result
 * is the row itself. With biases the row must be whole, and with a mask it should be.
 * [any-thread] */
llm_row llm_row_changed(const llm_row *row, const llm_row_change *change, float *logits_out);

/* Allocates all memory for n_vocab tokens and a history of which at most the last n_history tokens
 * are read (repeat_last_n = -1 and dry_last_n = 0 mean this number). Copies the arrays and breakers
 * of params; the breakers' vocabulary outlives the sampler. TDM_INVALID_ARGUMENT names the key of a
 * bad parameter and its range. [any-thread] */
tdm_status llm_sampler_create(const llm_sampler_params *params, int32_t n_vocab, int32_t n_history,
                              llm_sampler **sampler_out, tdm_error *err);
/* NULL is a no-op. */
void llm_sampler_destroy(llm_sampler *sampler);
/* Copies the state of `other`, so that both have the same history and the same future draws. Both
 * were created with the same parameters and sizes; each keeps its own memory. One thread at a time
 * for both. */
void llm_sampler_copy(llm_sampler *sampler, const llm_sampler *other);
/* Appends a token to the history, to which the prompt's tokens belong, too. An id outside the
 * vocabulary is ignored. One thread at a time for a sampler. */
void llm_sampler_accept(llm_sampler *sampler, int32_t token);
/* Picks a token from a row of logits, without adding it to the history. The draw depends on the
 * seed and the number of accepted tokens, so a repeated pick gives the same token. NaN counts as
 * -inf. If all logits are -inf or NaN: TDM_DATA_LOSS. If the biases leave no token:
 * TDM_INVALID_ARGUMENT. A row of candidates must have at least llm_sampler_candidates() of them,
 * else TDM_INVALID_ARGUMENT; it gives the token that the whole row gives. One thread at a time for
 * a sampler. */
tdm_status llm_sampler_pick(llm_sampler *sampler, const llm_row *row, int32_t *token_out,
                            tdm_error *err);
/* How many of the best tokens the sampler needs to see; 0 = the whole row, because a step before
 * TOP_K reads or changes more of it, or because there is no TOP_K. [any-thread] */
int32_t llm_sampler_candidates(const llm_sampler *sampler);

#endif
