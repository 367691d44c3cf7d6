/* SPDX-License-Identifier: MIT
 *
 * vocab.c: creates a vocabulary's tables from plain arrays, and returns facts about tokens.
 */
#include "llm/tokenizer/vocab.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/vocab_table.h"

/* ---- Creating: memory ---- */

static tdm_status no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "vocabulary: no memory for its tables");
}

/* Makes room for `add` more elements in an array of `n`. */
static bool array_reserve(void **array, size_t n, size_t *capacity, size_t add, size_t element) {
    size_t need, grown, size;
    if (__builtin_add_overflow(n, add, &need)) return false;
    if (need <= *capacity && *array != NULL) return true;
    if (__builtin_add_overflow(need, need / 2 + 16, &grown)) return false;
    if (__builtin_mul_overflow(grown, element, &size)) return false;
    void *moved = realloc(*array, size);
    if (moved == NULL) return false;
    *array = moved;
    *capacity = grown;
    return true;
}

bool llm_vocab_bytes_add(char **bytes, size_t *size, size_t *capacity, const char *add, size_t n) {
    void *array = *bytes;
    if (!array_reserve(&array, *size, capacity, n, 1)) return false;
    *bytes = array;
    if (n > 0) memcpy(*bytes + *size, add, n);
    *size += n;
    return true;
}

/* The smallest power of two of which n entries fill at most 5/8; 0 if it is too large. */
static uint32_t table_size(size_t n) {
    uint32_t size = 16;
    while (size / 8 * 5 < n) {
        if (size > UINT32_MAX / 2) return 0;
        size *= 2;
    }
    return size;
}

/* ---- Creating: pieces ---- */

/* Adds a piece to the string table, which has room. If the table has an equal piece, nothing
 * changes. */
static void string_enter(llm_vocab *vocab, uint32_t piece) {
    const llm_byte_range *range = &vocab->pieces[piece];
    const uint32_t hash = llm_vocab_hash(vocab->text + range->off, range->size);
    uint32_t i = hash & vocab->string_mask;
    for (; vocab->strings[i].piece != LLM_PIECE_NONE; i = (i + 1) & vocab->string_mask) {
        if (vocab->strings[i].hash != hash) continue;
        const llm_byte_range *other = &vocab->pieces[vocab->strings[i].piece];
        if (other->size == range->size &&
            memcmp(vocab->text + other->off, vocab->text + range->off, range->size) == 0)
            return;
    }
    vocab->strings[i] = (llm_string_slot){hash, piece};
}

static tdm_status piece_add(llm_vocab *vocab, const char *text, size_t size, tdm_error *err) {
    if (size > INT32_MAX)
        return tdm_fail(err, TDM_DATA_LOSS, "vocabulary: a token of %zu bytes is too long", size);
    void *pieces = vocab->pieces;
    if (!array_reserve(&pieces, vocab->n_piece, &vocab->piece_capacity, 1, sizeof *vocab->pieces))
        return no_memory(err);
    vocab->pieces = pieces;
    const size_t off = vocab->text_size;
    if (!llm_vocab_bytes_add(&vocab->text, &vocab->text_size, &vocab->text_capacity, text, size))
        return no_memory(err);
    vocab->pieces[vocab->n_piece++] = (llm_byte_range){off, (uint32_t)size};
    if (size > vocab->max_piece_size) vocab->max_piece_size = (uint32_t)size;
    return TDM_OK;
}

/* Finds or adds the piece of a text. The string table has room. */
static tdm_status piece_intern(llm_vocab *vocab, const char *text, size_t size, uint32_t *piece,
                               tdm_error *err) {
    *piece = llm_vocab_piece_find(vocab, text, size);
    if (*piece != LLM_PIECE_NONE) return TDM_OK;
    *piece = vocab->n_piece;
    const tdm_status status = piece_add(vocab, text, size, err);
    if (status == TDM_OK) string_enter(vocab, *piece);
    return status;
}

static tdm_status tokens_make(llm_vocab *vocab, const llm_vocab_params *params, tdm_error *err) {
    const size_t n = params->n_token;
    if (n == 0 || params->tokens == NULL)
        return tdm_fail(err, TDM_DATA_LOSS,
                        "vocabulary: no tokens (tokenizer.ggml.tokens is empty)");
    if (n > INT32_MAX / 2 || params->n_merge > INT32_MAX / 8)
        return tdm_fail(err, TDM_DATA_LOSS, "vocabulary: %zu tokens and %zu merges are too many", n,
                        params->n_merge);
    vocab->n_token = (int32_t)n;
    for (size_t i = 0; i < n; ++i) {
        const tdm_status status =
            piece_add(vocab, params->tokens[i].ptr, params->tokens[i].len, err);
        if (status != TDM_OK) return status;
    }
    vocab->types = malloc(n);
    if (vocab->types == NULL) return no_memory(err);
    for (size_t i = 0; i < n; ++i) {
        const int32_t type = params->types != NULL ? params->types[i] : LLM_TOKEN_NORMAL;
        vocab->types[i] =
            (uint8_t)(type >= 0 && type <= LLM_TOKEN_BYTE ? type : LLM_TOKEN_UNDEFINED);
    }
    if (vocab->rule->has_scores) {
        vocab->scores = calloc(n, sizeof *vocab->scores);
        if (vocab->scores == NULL) return no_memory(err);
        for (size_t i = 0; i < n && params->scores != NULL; ++i) {
            if (isnan(params->scores[i]))
                return tdm_fail(err, TDM_DATA_LOSS,
                                "vocabulary: the score of token %zu (tokenizer.ggml.scores) is not "
                                "a number",
                                i);
            vocab->scores[i] = params->scores[i];
        }
        vocab->min_score = FLT_MAX;
        for (size_t i = 0; i < n; ++i) {
            if (vocab->types[i] == LLM_TOKEN_NORMAL && vocab->scores[i] < vocab->min_score)
                vocab->min_score = vocab->scores[i];
        }
    }

    /* A merge may add three pieces: its halves and their union. */
    const size_t n_piece = vocab->rule->kind == LLM_VOCAB_BPE ? n + 3 * params->n_merge : n;
    const uint32_t slots = table_size(n_piece);
    if (slots == 0) return no_memory(err);
    vocab->strings = malloc(slots * sizeof *vocab->strings);
    if (vocab->strings == NULL) return no_memory(err);
    for (uint32_t i = 0; i < slots; ++i) vocab->strings[i] = (llm_string_slot){0, LLM_PIECE_NONE};
    vocab->string_mask = slots - 1;
    for (uint32_t i = 0; i < vocab->n_piece; ++i) {
        if (vocab->pieces[i].size > 0) string_enter(vocab, i);
    }
    return TDM_OK;
}

/* ---- Creating: merges ---- */

static tdm_status merge_enter(llm_vocab *vocab, size_t rank, const char *text, size_t len,
                              char **joined, size_t *joined_capacity, tdm_error *err) {
    /* The left half may begin with a space, but is not empty. */
    const char *space = len > 2 ? memchr(text + 1, ' ', len - 2) : NULL;
    if (space == NULL)
        return tdm_fail(
            err, TDM_DATA_LOSS,
            "vocabulary: merge %zu (tokenizer.ggml.merges) is not two pieces separated by a "
            "space",
            rank);
    const size_t n_left = (size_t)(space - text), n_right = len - n_left - 1;
    uint32_t left, right, whole;
    tdm_status status = piece_intern(vocab, text, n_left, &left, err);
    if (status == TDM_OK) status = piece_intern(vocab, space + 1, n_right, &right, err);
    if (status != TDM_OK) return status;
    size_t size = 0;
    if (!llm_vocab_bytes_add(joined, &size, joined_capacity, text, n_left) ||
        !llm_vocab_bytes_add(joined, &size, joined_capacity, space + 1, n_right))
        return no_memory(err);
    status = piece_intern(vocab, *joined, size, &whole, err);
    if (status != TDM_OK) return status;

    const uint64_t pair = (uint64_t)left << 32 | right;
    uint32_t i = llm_vocab_pair_hash(pair) & vocab->merge_mask;
    for (; vocab->merges[i].pair != UINT64_MAX; i = (i + 1) & vocab->merge_mask) {
        if (vocab->merges[i].pair == pair) return TDM_OK; /* the first of equal ones counts */
    }
    vocab->merges[i] = (llm_merge_slot){pair, (uint32_t)rank, whole};
    return TDM_OK;
}

static tdm_status merges_make(llm_vocab *vocab, const llm_vocab_params *params, tdm_error *err) {
    const uint32_t slots = table_size(params->n_merge);
    if (slots == 0) return no_memory(err);
    vocab->merges = malloc(slots * sizeof *vocab->merges);
    if (vocab->merges == NULL) return no_memory(err);
    for (uint32_t i = 0; i < slots; ++i) vocab->merges[i] = (llm_merge_slot){UINT64_MAX, 0, 0};
    vocab->merge_mask = slots - 1;

    tdm_status status = TDM_OK;
    char *joined = NULL;
    size_t joined_capacity = 0;
    for (size_t i = 0; i < params->n_merge && status == TDM_OK; ++i)
        status = merge_enter(vocab, i, params->merges[i].ptr, params->merges[i].len, &joined,
                             &joined_capacity, err);
    free(joined);
    return status;
}

/* ---- Creating: bytes ---- */

static void byte_pieces_make(llm_vocab *vocab) {
    static const char digits[] = "0123456789ABCDEF";
    const bool is_lettered =
        vocab->rule->kind == LLM_VOCAB_BPE && !llm_pretokenizer_is_raw(vocab->pre);
    for (unsigned b = 0; b < 256; ++b) {
        char letter[2];
        if (is_lettered) {
            const size_t size = llm_byte_letter_write((unsigned char)b, letter);
            vocab->byte_piece[b] = llm_vocab_piece_find(vocab, letter, size);
            continue;
        }
        const char name[6] = {'<', '0', 'x', digits[b >> 4], digits[b & 15], '>'};
        vocab->byte_piece[b] = llm_vocab_piece_find(vocab, name, sizeof name);
        if (vocab->byte_piece[b] == LLM_PIECE_NONE && vocab->rule->kind == LLM_VOCAB_SPM) {
            letter[0] = (char)b;
            vocab->byte_piece[b] = llm_vocab_piece_find(vocab, letter, 1);
        }
    }
}

/* ---- Creating: special tokens ---- */

/* Texts by which the families of models end a turn, a message or a document. The keys of a file
 * usually name one of them, but a model may use several. The list is llama.cpp's
 * (ggml-org/llama.cpp, src/llama-vocab.cpp, special_eog_ids). */
static const char *const end_texts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "</s>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]", /* Kimi-K2 */
    "<end_of_utterance>",
    "<|return|>", /* gpt-oss */
    "<|call|>",
    "<|flush|>", /* Solar Open */
    "<|calls|>",
    "<eos>", /* Gemma 4, as the next two */
    "<turn|>",
    "<|tool_response>",
    ("<\xEF\xBD\x9C"
     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"), /* DeepSeek */
    "[e~[",                                                 /* MiniMax-M2 */
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
};

/* The first of these end a turn, in order of preference. */
enum { N_TURN_TEXT = 4 };

static int end_id_compare(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static bool has_text(const llm_vocab *vocab, const char *text) {
    return llm_vocab_find(vocab, text, strlen(text)) != LLM_TOKEN_NONE;
}

/* Two texts do not end generation in some vocabularies: "<|end|>" of gpt-oss and Solar Open ends
 * only a part of an answer, and Gemma 4 uses "</s>" for something else. Other texts of the
 * vocabulary tell these models apart. If a key of the file names such a token, it still ends
 * generation. */
static bool is_end_text(const llm_vocab *vocab, const char *text) {
    if (strcmp(text, "</s>") == 0) return !has_text(vocab, "<|tool_response>");
    if (strcmp(text, "<|end|>") != 0) return true;
    const bool has_call = has_text(vocab, "<|call|>") || has_text(vocab, "<|calls|>");
    return !has_call || !(has_text(vocab, "<|return|>") || has_text(vocab, "<|flush|>"));
}

static tdm_status ends_make(llm_vocab *vocab, tdm_error *err) {
    const size_t n_text = sizeof end_texts / sizeof *end_texts;
    vocab->end_ids = malloc((n_text + 3) * sizeof *vocab->end_ids);
    if (vocab->end_ids == NULL) return no_memory(err);
    size_t n = 0;
    for (size_t i = 0; i < n_text; ++i) {
        const int32_t id = llm_vocab_find(vocab, end_texts[i], strlen(end_texts[i]));
        if (id == LLM_TOKEN_NONE || !is_end_text(vocab, end_texts[i])) continue;
        vocab->types[id] = LLM_TOKEN_CONTROL;
        vocab->end_ids[n++] = id;
        if (i < N_TURN_TEXT && vocab->eot_id == LLM_TOKEN_NONE) vocab->eot_id = id;
    }
    const int32_t by_key[] = {vocab->eos_id, vocab->eot_id, vocab->eom_id};
    for (size_t i = 0; i < sizeof by_key / sizeof *by_key; ++i) {
        if (by_key[i] != LLM_TOKEN_NONE) vocab->end_ids[n++] = by_key[i];
    }
    qsort(vocab->end_ids, n, sizeof *vocab->end_ids, end_id_compare);
    vocab->n_end_id = n;
    return TDM_OK;
}

/* Keeps the ids inside the vocabulary, each once. */
static tdm_status suppressed_make(llm_vocab *vocab, const llm_vocab_params *params,
                                  tdm_error *err) {
    if (params->n_suppressed == 0) return TDM_OK;
    const size_t n_token = (size_t)vocab->n_token;
    bool *is_taken = calloc(n_token, sizeof *is_taken);
    vocab->suppressed = malloc(n_token * sizeof *vocab->suppressed);
    for (size_t i = 0; i < params->n_suppressed && is_taken != NULL && vocab->suppressed != NULL;
         ++i) {
        const int32_t id = params->suppressed[i];
        if (id < 0 || id >= vocab->n_token || is_taken[id]) continue;
        is_taken[id] = true;
        vocab->suppressed[vocab->n_suppressed++] = id;
    }
    const bool has_memory = is_taken != NULL && vocab->suppressed != NULL;
    free(is_taken);
    return has_memory ? TDM_OK : no_memory(err);
}

/* The id from the parameters, or the default of the vocabulary's kind. */
static tdm_status special_id(const llm_vocab *vocab, const char *name, int32_t given,
                             int32_t assumed, int32_t *id, tdm_error *err) {
    if (given == LLM_TOKEN_DEFAULT) {
        *id = assumed < vocab->n_token ? assumed : LLM_TOKEN_NONE;
        return TDM_OK;
    }
    if (given < LLM_TOKEN_NONE || given >= vocab->n_token)
        return tdm_fail(err, TDM_DATA_LOSS,
                        "vocabulary: %s (tokenizer.ggml.*_token_id) is %d, but tokens are 0 to %d",
                        name, given, vocab->n_token - 1);
    *id = given;
    return TDM_OK;
}

static tdm_status specials_make(llm_vocab *vocab, const llm_vocab_params *params, tdm_error *err) {
    const llm_vocab_rule *rule = vocab->rule;
    const int32_t none = LLM_TOKEN_NONE;
    const int32_t pad = params->pad_id < vocab->n_token ? params->pad_id : none;
    const struct {
        const char *name;
        int32_t given, assumed, *id;
    } ids[] = {
        {"bos", params->bos_id, rule->bos_id, &vocab->bos_id},
        {"eos", params->eos_id, rule->eos_id, &vocab->eos_id},
        {"unk", params->unk_id, rule->unk_id, &vocab->unk_id},
        {"sep", params->sep_id, rule->sep_id, &vocab->sep_id},
        {"eot", params->eot_id, none, &vocab->eot_id},
        {"eom", params->eom_id, none, &vocab->eom_id},
        {"pad", pad == LLM_TOKEN_DEFAULT || pad >= none ? pad : none, rule->pad_id, &vocab->pad_id},
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; ++i) {
        const tdm_status status =
            special_id(vocab, ids[i].name, ids[i].given, ids[i].assumed, ids[i].id, err);
        if (status != TDM_OK) return status;
    }

    const bool is_bpe = rule->kind == LLM_VOCAB_BPE, is_wpm = rule->kind == LLM_VOCAB_WPM;
    const bool has_bos =
        is_bpe ? llm_pretokenizer_adds_bos(vocab->pre) : rule->adds_bos && vocab->bos_id != none;
    vocab->last_id = is_wpm ? vocab->sep_id : vocab->eos_id;
    const bool has_last = rule->adds_eos && vocab->last_id != none;
    vocab->add_bos = params->add_bos == LLM_FLAG_DEFAULT ? has_bos : params->add_bos != 0;
    vocab->add_eos = params->add_eos == LLM_FLAG_DEFAULT ? has_last : params->add_eos != 0;
    vocab->add_sep = !is_wpm && params->add_sep == 1 && vocab->sep_id != none;
    if (is_bpe && llm_pretokenizer_keeps_lines(vocab->pre)) vocab->add_bos = true; /* Gemma 4 */
    if (is_wpm) { /* a class token and a separator, whatever the file says */
        vocab->add_bos = has_bos;
        vocab->add_eos = has_last;
    }
    vocab->add_space_prefix =
        !is_bpe && !is_wpm && rule->kind != LLM_VOCAB_RWKV && rule->kind != LLM_VOCAB_PLAMO2 &&
        (params->add_space_prefix == LLM_FLAG_DEFAULT ? rule->adds_space
                                                      : params->add_space_prefix != 0);
    const bool lacks_bos = vocab->add_bos && vocab->bos_id == none;
    if (lacks_bos || (vocab->add_eos && vocab->last_id == none)) {
        const char *lacking = lacks_bos ? "bos" : "eos";
        return tdm_fail(err, TDM_DATA_LOSS,
                        "vocabulary: a %s token is added to texts (tokenizer.ggml.add_%s_token, or "
                        "the default of the tokenizer), but there is no tokenizer.ggml.%s_token_id",
                        lacking, lacking, lacking);
    }
    return ends_make(vocab, err);
}

static void keep_space_ids_make(llm_vocab *vocab) {
    static const char *const texts[3] = {"<s>", "<unk>", "<|endoftext|>"};
    for (size_t i = 0; i < 3; ++i)
        vocab->keep_space_ids[i] = llm_vocab_find(vocab, texts[i], strlen(texts[i]));
}

static int special_size_compare(const void *a, const void *b) {
    const llm_special_size *x = a, *y = b;
    return (x->size < y->size) - (x->size > y->size);
}

/* Collects the lengths of special tokens and their first bytes. */
static tdm_status special_sizes_make(llm_vocab *vocab, tdm_error *err) {
    size_t capacity = 0;
    for (int32_t id = 0; id < vocab->n_token; ++id) {
        const uint8_t type = vocab->types[id];
        const llm_byte_range *piece = &vocab->pieces[id];
        const bool is_user = type == LLM_TOKEN_USER_DEFINED;
        if (piece->size == 0 ||
            !(is_user || type == LLM_TOKEN_CONTROL || type == LLM_TOKEN_UNKNOWN))
            continue;
        size_t s = 0;
        while (s < vocab->n_special_size && vocab->special_sizes[s].size != piece->size) ++s;
        if (s == vocab->n_special_size) {
            void *sizes = vocab->special_sizes;
            if (!array_reserve(&sizes, s, &capacity, 1, sizeof *vocab->special_sizes))
                return no_memory(err);
            vocab->special_sizes = sizes;
            vocab->special_sizes[vocab->n_special_size++] = (llm_special_size){.size = piece->size};
        }
        const unsigned char first = (unsigned char)vocab->text[piece->off];
        uint64_t *set =
            is_user ? vocab->special_sizes[s].first_user : vocab->special_sizes[s].first_other;
        set[first / 64] |= (uint64_t)1 << (first % 64);
    }
    if (vocab->n_special_size > 1)
        qsort(vocab->special_sizes, vocab->n_special_size, sizeof *vocab->special_sizes,
              special_size_compare);
    return TDM_OK;
}

/* ---- Creating: the whole ---- */

llm_vocab_params llm_vocab_params_default(void) {
    return (llm_vocab_params){
        .bos_id = LLM_TOKEN_DEFAULT,
        .eos_id = LLM_TOKEN_DEFAULT,
        .unk_id = LLM_TOKEN_DEFAULT,
        .eot_id = LLM_TOKEN_DEFAULT,
        .eom_id = LLM_TOKEN_DEFAULT,
        .sep_id = LLM_TOKEN_DEFAULT,
        .pad_id = LLM_TOKEN_DEFAULT,
        .add_bos = LLM_FLAG_DEFAULT,
        .add_eos = LLM_FLAG_DEFAULT,
        .add_space_prefix = LLM_FLAG_DEFAULT,
        .lowers_case = LLM_FLAG_DEFAULT,
        .strips_accents = LLM_FLAG_DEFAULT,
    };
}

static tdm_status model_refuse(const char *model, tdm_error *err) {
    char known[300] = "";
    size_t n = 0;
    const llm_vocab_rule *rule;
    for (size_t i = 0; (rule = llm_vocab_rule_at(i)) != NULL; ++i) {
        const int w = snprintf(known + n, sizeof known - n, "%s%s (%s)", i > 0 ? ", " : "",
                               rule->model, rule->people);
        if (w < 0 || (size_t)w >= sizeof known - n) break;
        n += (size_t)w;
    }
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "tokenizer '%.60s' (tokenizer.ggml.model) is not supported; supported are %s; "
                    "the model still takes token ids",
                    model, known);
}

static tdm_status normalization_make(llm_vocab *vocab, const llm_vocab_params *params,
                                     tdm_error *err) {
    /* With the pre-tokenizer "whitespace" text keeps its case by default. */
    const bool may_lower = vocab->rule->lowers_case || vocab->rule->drops_space;
    const bool lowers =
        vocab->rule->lowers_case || (may_lower && !llm_pretokenizer_is_raw(vocab->pre));
    vocab->lowers_case =
        may_lower && (params->lowers_case == LLM_FLAG_DEFAULT ? lowers : params->lowers_case != 0);
    vocab->strips_accents = params->strips_accents == LLM_FLAG_DEFAULT
                                ? vocab->lowers_case
                                : params->strips_accents != 0;
    vocab->merges_spaces = params->merges_spaces;
    if (vocab->rule->kind != LLM_VOCAB_UGM) return TDM_OK;
    return llm_charsmap_make(&vocab->charsmap, params->charsmap.ptr, params->charsmap.len, err);
}

/* Whether encoding may give a token for a part of the text that is not special. */
static bool is_text_token(const llm_vocab *vocab, int32_t id) {
    switch (vocab->types[id]) {
    case LLM_TOKEN_CONTROL:
    case LLM_TOKEN_UNKNOWN: return false;
    case LLM_TOKEN_BYTE:
        return vocab->rule->kind != LLM_VOCAB_PLAMO2 && vocab->rule->kind != LLM_VOCAB_UGM;
    case LLM_TOKEN_UNDEFINED: return vocab->rule->kind != LLM_VOCAB_UGM;
    default: return true;
    }
}

static tdm_status index_make(const llm_vocab *vocab, bool users_only, llm_piece_index *index,
                             tdm_error *err) {
    /* RWKV matches decoded bytes. An unused token has none, so it is not in the index. */
    const bool is_decoded = vocab->rule->kind == LLM_VOCAB_RWKV;
    const llm_byte_range *ranges = is_decoded ? vocab->shown : vocab->pieces;
    const char *text = is_decoded ? vocab->bytes : vocab->text;
    llm_piece_entry *entries = malloc((size_t)vocab->n_token * sizeof *entries);
    if (entries == NULL) return no_memory(err);
    size_t n = 0;
    for (int32_t id = 0; id < vocab->n_token; ++id) {
        const bool is_member =
            users_only ? vocab->types[id] == LLM_TOKEN_USER_DEFINED : is_text_token(vocab, id);
        if (is_member && ranges[id].size > 0)
            entries[n++] = (llm_piece_entry){text + ranges[id].off, ranges[id].size, id};
    }
    llm_piece_index_make(index, entries, n);
    return TDM_OK;
}

static tdm_status indices_make(llm_vocab *vocab, tdm_error *err) {
    const llm_vocab_kind kind = vocab->rule->kind;
    if (kind == LLM_VOCAB_SPM || kind == LLM_VOCAB_BPE) return TDM_OK;
    for (unsigned b = 0; b < 256 && kind == LLM_VOCAB_PLAMO2; ++b) {
        if (vocab->byte_piece[b] >= (uint32_t)vocab->n_token)
            return tdm_fail(err, TDM_DATA_LOSS,
                            "vocabulary: there is no token <0x%02X>, but PLaMo-2's tokenizer needs "
                            "one for each byte",
                            b);
    }
    tdm_status status = index_make(vocab, false, &vocab->index, err);
    if (status == TDM_OK && kind == LLM_VOCAB_UGM)
        status = index_make(vocab, true, &vocab->user_index, err);
    return status;
}

static tdm_status vocab_make(llm_vocab *vocab, const llm_vocab_params *params, tdm_error *err) {
    const char *model = params->model != NULL ? params->model : "";
    vocab->rule = llm_vocab_rule_find(model);
    if (vocab->rule == NULL) return model_refuse(model, err);
    const bool is_bpe = vocab->rule->kind == LLM_VOCAB_BPE;
    const bool has_pre = params->pre != NULL && params->pre[0] != '\0';
    const char *pre = has_pre ? params->pre : "default";
    if (vocab->rule->pre != NULL) pre = vocab->rule->pre;
    vocab->pre_name = strdup(is_bpe ? pre : "");
    if (vocab->pre_name == NULL) return no_memory(err);

    tdm_status status = TDM_OK;
    if (is_bpe) status = llm_pretokenizer_create(vocab->pre_name, &vocab->pre, err);
    if (status == TDM_OK) status = tokens_make(vocab, params, err);
    if (status == TDM_OK && is_bpe) status = merges_make(vocab, params, err);
    if (status != TDM_OK) return status;
    byte_pieces_make(vocab);
    vocab->special_drops_space = params->special_drops_space;
    keep_space_ids_make(vocab);
    status = specials_make(vocab, params, err);
    if (status == TDM_OK) status = normalization_make(vocab, params, err);
    if (status == TDM_OK) status = special_sizes_make(vocab, err);
    if (status == TDM_OK) status = suppressed_make(vocab, params, err);
    if (status == TDM_OK) status = llm_vocab_shown_make(vocab, err);
    if (status == TDM_OK) status = indices_make(vocab, err);
    return status;
}

tdm_status llm_vocab_create(const llm_vocab_params *params, llm_vocab **out, tdm_error *err) {
    *out = NULL;
    llm_vocab *vocab = calloc(1, sizeof *vocab);
    if (vocab == NULL) return no_memory(err);
    const tdm_status status = vocab_make(vocab, params, err);
    if (status != TDM_OK) {
        llm_vocab_destroy(vocab);
        return status;
    }
    *out = vocab;
    return TDM_OK;
}

void llm_vocab_destroy(llm_vocab *vocab) {
    if (vocab == NULL) return;
    llm_pretokenizer_destroy(vocab->pre);
    free(vocab->pre_name);
    free(vocab->text);
    free(vocab->pieces);
    free(vocab->bytes);
    free(vocab->shown);
    free(vocab->types);
    free(vocab->scores);
    free(vocab->strings);
    free(vocab->merges);
    free(vocab->special_sizes);
    free(vocab->end_ids);
    free(vocab->suppressed);
    llm_piece_index_free(&vocab->index);
    llm_piece_index_free(&vocab->user_index);
    llm_charsmap_free(&vocab->charsmap);
    free(vocab);
}

/* ---- Reading ---- */

static bool has_token(const llm_vocab *vocab, int32_t id) {
    return id >= 0 && id < vocab->n_token;
}

int32_t llm_vocab_n_token(const llm_vocab *vocab) {
    return vocab->n_token;
}

const char *llm_vocab_model_name(const llm_vocab *vocab) {
    return vocab->rule->model;
}

const char *llm_vocab_pre_name(const llm_vocab *vocab) {
    return vocab->pre_name;
}

int32_t llm_vocab_bos(const llm_vocab *vocab) {
    return vocab->bos_id;
}
int32_t llm_vocab_eos(const llm_vocab *vocab) {
    return vocab->eos_id;
}
int32_t llm_vocab_eot(const llm_vocab *vocab) {
    return vocab->eot_id;
}
int32_t llm_vocab_unk(const llm_vocab *vocab) {
    return vocab->unk_id;
}
int32_t llm_vocab_pad(const llm_vocab *vocab) {
    return vocab->pad_id;
}

int32_t llm_vocab_sep(const llm_vocab *vocab) {
    return vocab->sep_id;
}
int32_t llm_vocab_last(const llm_vocab *vocab) {
    return vocab->last_id;
}

bool llm_vocab_adds_bos(const llm_vocab *vocab) {
    return vocab->add_bos;
}
bool llm_vocab_adds_eos(const llm_vocab *vocab) {
    return vocab->add_eos;
}
bool llm_vocab_adds_sep(const llm_vocab *vocab) {
    return vocab->add_sep;
}
bool llm_vocab_adds_space(const llm_vocab *vocab) {
    return vocab->add_space_prefix;
}

bool llm_vocab_ends_generation(const llm_vocab *vocab, int32_t id) {
    return bsearch(&id, vocab->end_ids, vocab->n_end_id, sizeof id, end_id_compare) != NULL;
}

const int32_t *llm_vocab_suppressed(const llm_vocab *vocab, int32_t *n_out) {
    *n_out = vocab->n_suppressed;
    return vocab->n_suppressed > 0 ? vocab->suppressed : NULL;
}

llm_token_type llm_vocab_token_type(const llm_vocab *vocab, int32_t id) {
    return has_token(vocab, id) ? (llm_token_type)vocab->types[id] : LLM_TOKEN_UNDEFINED;
}

llm_vocab_str llm_vocab_token_text(const llm_vocab *vocab, int32_t id) {
    if (!has_token(vocab, id) || vocab->pieces[id].size == 0) return (llm_vocab_str){NULL, 0};
    return (llm_vocab_str){vocab->text + vocab->pieces[id].off, vocab->pieces[id].size};
}

llm_vocab_str llm_vocab_token_bytes(const llm_vocab *vocab, int32_t id) {
    if (!has_token(vocab, id) || vocab->shown[id].size == 0) return (llm_vocab_str){NULL, 0};
    return (llm_vocab_str){vocab->bytes + vocab->shown[id].off, vocab->shown[id].size};
}

int32_t llm_vocab_find(const llm_vocab *vocab, const char *text, size_t len) {
    if (len == 0) return LLM_TOKEN_NONE;
    const uint32_t piece = llm_vocab_piece_find(vocab, text, len);
    return piece < (uint32_t)vocab->n_token ? (int32_t)piece : LLM_TOKEN_NONE;
}
