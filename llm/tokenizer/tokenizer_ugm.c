/* SPDX-License-Identifier: MIT
 *
 * tokenizer_ugm.c: Unigram, as in T5: the sequence of tokens with the highest sum of scores that
 * spells the normalized text. A user-defined token has the score 0. A character that is no token
 * is the unknown token, with the lowest score less 10; several in a row give one.
 *
 * best(0) = 0; best(j) = max over tokens t that end at j: best(j - size(t)) + score(t)
 */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/tokenizer_kind.h"
#include "llm/tokenizer/utf8.h"

static const char space_mark[3] = {'\xE2', '\x96', '\x81'};
static const char replacement[3] = {'\xEF', '\xBF', '\xBD'}; /* U+FFFD */
static const double unknown_penalty = 10.0;

/* The normalized text has at most GROWTH_MAX bytes for each byte of the text, and GROWTH_FREE more.
 * Unicode's longest compatibility mapping, of U+FDFA, makes 11 bytes of one. */
enum { GROWTH_MAX = 64, GROWTH_FREE = 4096 };

/* A growing text of at most max bytes. */
typedef struct ugm_text {
    char *bytes;
    size_t n, capacity, max;
} ugm_text;

static bool ugm_text_add(ugm_text *text, const char *bytes, size_t n) {
    if (n > text->max - text->n) return false;
    const size_t need = text->n + n;
    if (need > text->capacity) {
        const size_t capacity = need + need / 2 + 64;
        char *grown = realloc(text->bytes, capacity);
        if (grown == NULL) return false;
        text->bytes = grown;
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->n, bytes, n);
    text->n = need;
    return true;
}

/* Applies the rules to the first characters of a text: text[0..*size) becomes *out, of *n_out
 * bytes. If the text begins with the first bytes of a user-defined token, these bytes stay as they
 * are, also where the token does not continue (as in llama.cpp). */
static void prefix_normalize(const llm_vocab *vocab, const char *text, size_t len, size_t *size,
                             const char **out, size_t *n_out) {
    llm_piece_walk walk = {0};
    size_t n_user = 0;
    while (n_user < len &&
           llm_piece_walk_step(&vocab->user_index, &walk, (unsigned char)text[n_user]))
        ++n_user;
    *out = text;
    if (n_user > 0) {
        *size = *n_out = n_user;
        return;
    }
    const char *found = llm_charsmap_find(&vocab->charsmap, text, len, size);
    if (found != NULL) {
        *out = found;
        *n_out = strlen(found);
    } else if (llm_utf8_begin(text, len, size) == LLM_UTF8_WHOLE) {
        *n_out = *size;
    } else {
        *size = 1;
        *out = replacement;
        *n_out = sizeof replacement;
    }
}

/* Applies the rules and marks spaces. If the vocabulary says so, adds a space before the text, and
 * makes one space of several. False if the text becomes too long or there is no memory. */
static bool text_normalize(const llm_vocab *vocab, const char *text, size_t len, ugm_text *out) {
    bool in_word = false, is_prefixed = false;
    for (size_t at = 0, size; at < len; at += size) {
        const char *part;
        size_t n;
        prefix_normalize(vocab, text + at, len - at, &size, &part, &n);
        for (size_t i = 0; i < n; ++i) {
            if (part[i] == ' ') {
                in_word = false;
                if (!vocab->merges_spaces && !ugm_text_add(out, space_mark, sizeof space_mark))
                    return false;
                continue;
            }
            const bool begins = !in_word;
            in_word = true;
            if (begins && ((vocab->add_space_prefix && !is_prefixed) || vocab->merges_spaces)) {
                is_prefixed = true;
                if (!ugm_text_add(out, space_mark, sizeof space_mark)) return false;
            }
            if (!ugm_text_add(out, part + i, 1)) return false;
        }
    }
    return true;
}

/* The best way to spell the text up to a byte. */
typedef struct ugm_step {
    double score;
    uint32_t begin; /* where its last token begins */
    int32_t id;
} ugm_step;

static void step_offer(ugm_step *step, double score, size_t begin, int32_t id) {
    if (score > step->score) *step = (ugm_step){score, (uint32_t)begin, id};
}

static void steps_fill(const llm_vocab *vocab, const char *text, size_t len, ugm_step *steps) {
    for (size_t i = 0; i <= len; ++i) steps[i] = (ugm_step){-DBL_MAX, 0, vocab->unk_id};
    steps[0].score = 0;
    for (size_t at = 0, size; at < len; at += size) {
        if (llm_utf8_begin(text + at, len - at, &size) != LLM_UTF8_WHOLE) size = 1;
        bool has_token = false;
        llm_piece_walk walk = {0};
        for (size_t i = at;
             i < len && llm_piece_walk_step(&vocab->index, &walk, (unsigned char)text[i]); ++i) {
            const int32_t id = llm_piece_walk_id(&vocab->index, &walk);
            if (id < 0) continue;
            if (i + 1 - at == size) has_token = true;
            const double score =
                vocab->types[id] == LLM_TOKEN_USER_DEFINED ? 0.0 : (double)vocab->scores[id];
            step_offer(&steps[i + 1], steps[at].score + score, at, id);
        }
        if (!has_token)
            step_offer(&steps[at + size],
                       steps[at].score + ((double)vocab->min_score - unknown_penalty), at,
                       vocab->unk_id);
    }
}

/* Adds the ids of the best way. Steps lead from the end to the beginning, so the ids are reversed
 * afterwards. */
static tdm_status steps_emit(const llm_vocab *vocab, const ugm_step *steps, size_t len,
                             llm_id_list *ids, tdm_error *err) {
    const size_t n_before = ids->n;
    tdm_status status = TDM_OK;
    bool was_unknown = false;
    for (size_t end = len; end > 0 && status == TDM_OK; end = steps[end].begin) {
        const bool is_unknown = steps[end].id == vocab->unk_id;
        if (!(is_unknown && was_unknown) && steps[end].id != LLM_TOKEN_NONE)
            status = llm_id_list_add(ids, steps[end].id, err);
        was_unknown = is_unknown;
    }
    for (size_t i = n_before, j = ids->n; i + 1 < j; ++i) {
        const int32_t swap = ids->ids[i];
        ids->ids[i] = ids->ids[--j];
        ids->ids[j] = swap;
    }
    return status;
}

tdm_status llm_ugm_encode(const llm_vocab *vocab, const char *text, size_t len, llm_id_list *ids,
                          tdm_error *err) {
    ugm_text normal = {.max = len * GROWTH_MAX + GROWTH_FREE}; /* llm_tokenize bounds len */
    ugm_step *steps = NULL;
    tdm_status status = TDM_OK;
    if (!text_normalize(vocab, text, len, &normal) || normal.n >= UINT32_MAX ||
        (steps = malloc((normal.n + 1) * sizeof *steps)) == NULL) {
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                          "tokenizer: no memory for %zu bytes of text, or the model's "
                          "precompiled_charsmap makes more than %zu of them",
                          len, normal.max);
    } else if (normal.n > 0) {
        steps_fill(vocab, normal.bytes, normal.n, steps);
        status = steps_emit(vocab, steps, normal.n, ids, err);
    }
    free(steps);
    free(normal.bytes);
    return status;
}
