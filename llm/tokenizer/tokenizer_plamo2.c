/* SPDX-License-Identifier: MIT
 *
 * tokenizer_plamo2.c: PLaMo-2's tokenizer: the cheapest sequence of tokens that spells the text. A
 * token costs its score, negated, in units of 1e-4. A character that is written as its bytes costs
 * 1e7 units. Of equally cheap sequences the one counts whose first token is longest, a character's
 * bytes last.
 *
 * cost(i) = min over tokens t with which text[i..) begins: cost(i + size(t)) - round(1e4 score(t))
 */
#include <math.h>
#include <stdlib.h>

#include "llm/tokenizer/tokenizer_kind.h"
#include "llm/tokenizer/utf8.h"

static const int64_t bytes_cost = 10000000;

/* The best step at a byte of the text where a character begins. */
typedef struct plamo_step {
    int64_t cost;  /* of the text from here on */
    uint32_t size; /* bytes of the token */
    int32_t id;    /* -1 = the bytes of the character */
} plamo_step;

/* A score that is no finite number of a sensible size makes a token unusable. */
static bool token_cost(const llm_vocab *vocab, int32_t id, int64_t *cost) {
    const double units = round((double)vocab->scores[id] * 1e4);
    if (!(units > -2e7 && units < 2e9)) return false;
    *cost = -(int64_t)units;
    return true;
}

static plamo_step step_find(const llm_vocab *vocab, const char *text, size_t len, size_t at,
                            size_t size, const plamo_step *steps) {
    plamo_step best = {
        .cost = steps[at + size].cost + bytes_cost, .size = (uint32_t)size, .id = -1};
    llm_piece_walk walk = {0};
    for (size_t i = at;
         i < len && llm_piece_walk_step(&vocab->index, &walk, (unsigned char)text[i]); ++i) {
        const int32_t id = llm_piece_walk_id(&vocab->index, &walk);
        int64_t cost;
        if (id < 0 || !token_cost(vocab, id, &cost)) continue;
        cost += steps[i + 1].cost;
        /* A longer token comes later here, and wins a tie. */
        if (cost <= best.cost) best = (plamo_step){cost, (uint32_t)(i + 1 - at), id};
    }
    return best;
}

static tdm_status steps_emit(const llm_vocab *vocab, const char *text, size_t len,
                             const plamo_step *steps, llm_id_list *ids, tdm_error *err) {
    tdm_status status = TDM_OK;
    for (size_t at = 0; at < len && status == TDM_OK; at += steps[at].size) {
        if (steps[at].id >= 0) {
            status = llm_id_list_add(ids, steps[at].id, err);
            continue;
        }
        for (uint32_t i = 0; i < steps[at].size && status == TDM_OK; ++i)
            status =
                llm_id_list_add(ids, (int32_t)vocab->byte_piece[(unsigned char)text[at + i]], err);
    }
    return status;
}

tdm_status llm_plamo2_encode(const llm_vocab *vocab, const char *text, size_t len, llm_id_list *ids,
                             tdm_error *err) {
    /* A byte order mark at the beginning is dropped. */
    if (len >= 3 && text[0] == '\xEF' && text[1] == '\xBB' && text[2] == '\xBF') {
        text += 3;
        len -= 3;
    }
    if (len == 0) return TDM_OK;
    char *mended;
    tdm_status status = llm_text_mend(&text, &len, &mended, err);
    if (status != TDM_OK) return status;
    plamo_step *steps = malloc((len + 1) * sizeof *steps);
    if (steps == NULL) {
        free(mended);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "tokenizer: no memory for %zu bytes of text",
                        len);
    }
    steps[len] = (plamo_step){0};
    for (size_t end = len; end > 0;) {
        size_t at = end - 1;
        while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
        /* No token may end inside a character: the cost from there on is larger than all others. */
        for (size_t i = at + 1; i < end; ++i) steps[i] = (plamo_step){.cost = INT64_MAX / 4};
        steps[at] = step_find(vocab, text, len, at, end - at, steps);
        end = at;
    }
    status = steps_emit(vocab, text, len, steps, ids, err);
    free(steps);
    free(mended);
    return status;
}
