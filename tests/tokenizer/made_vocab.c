/* SPDX-License-Identifier: MIT
 *
 * made_vocab.c: see made_vocab.h.
 */
#include "tests/tokenizer/made_vocab.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm/gguf/gguf_write.h"
#include "llm/tokenizer/pretokenizer_table.h"
#include "llm/tokenizer/vocab_table.h"
#include "tests/support/random.h"
#include "tests/tokenizer/random_text.h"

const char *const made_vocab_names[] = {
    "gemma4:",
    "whitespace:whitespace",
    "whitespace:gpt-2",
    "whitespace:lower",
    "bert:",
    "bert:cased",
    "bert:accents",
    "t5:",
    "t5:rules",
    "t5:plain",
    "rwkv:",
    "plamo2:",
    "llama:",
    NULL,
};

enum { N_TOKEN_MAX = 80000 };

static const char mark[] = "\xE2\x96\x81";

/* Tokens of a vocabulary in the making; no text occurs twice. */
typedef struct made {
    llm_gguf_str *tokens;
    float *scores;
    int32_t *types;
    uint32_t n;
    llm_gguf_str *merges;
    uint32_t n_merge;
    uint32_t *slots; /* a hash table of token numbers + 1 */
    bool is_escaped; /* a backslash begins an escape */
    uint64_t state;
} made;

enum { N_SLOT = 1 << 18 };

static void *must(void *memory) {
    if (memory == NULL) abort();
    return memory;
}

static char *text_copy(const char *text, size_t size) {
    char *copy = must(malloc(size + 1));
    memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

static float random_score(made *m) {
    return -(float)(random_u32_below(&m->state, 4000) + 1) / 256.0f;
}

/* Whether the token is new. */
static bool token_add(made *m, const char *text, size_t size, int32_t type) {
    if (size == 0 || m->n == N_TOKEN_MAX) return false;
    uint32_t at = llm_vocab_hash(text, size) % N_SLOT;
    for (; m->slots[at] != 0; at = (at + 1) % N_SLOT) {
        const llm_gguf_str *other = &m->tokens[m->slots[at] - 1];
        if (other->len == size && memcmp(other->ptr, text, size) == 0) return false;
    }
    m->slots[at] = m->n + 1;
    m->tokens[m->n] = (llm_gguf_str){text_copy(text, size), size};
    m->types[m->n] = type;
    m->scores[m->n] = type == LLM_TOKEN_NORMAL ? random_score(m) : 0;
    ++m->n;
    return true;
}

static void text_token_add(made *m, const char *text, int32_t type) {
    (void)token_add(m, text, strlen(text), type);
}

static void merge_add(made *m, const char *left, size_t n_left, const char *right, size_t n_right) {
    char *text = must(malloc(n_left + n_right + 2));
    memcpy(text, left, n_left);
    text[n_left] = ' ';
    memcpy(text + n_left + 1, right, n_right);
    text[n_left + n_right + 1] = '\0';
    m->merges[m->n_merge++] = (llm_gguf_str){text, n_left + n_right + 1};
}

static void specials_add(made *m) {
    text_token_add(m, "<|ctl|>", LLM_TOKEN_CONTROL);
    text_token_add(m, "<|usr|>", LLM_TOKEN_USER_DEFINED);
    text_token_add(m, "<|bos|>", LLM_TOKEN_CONTROL);
    text_token_add(m, "<|eos|>", LLM_TOKEN_CONTROL);
}

/* The letters of all bytes, and three quarters of their pairs. */
static void letters_add(made *m) {
    char letters[256][2];
    size_t sizes[256];
    for (unsigned b = 0; b < 256; ++b) {
        sizes[b] = llm_byte_letter_write((unsigned char)b, letters[b]);
        (void)token_add(m, letters[b], sizes[b], LLM_TOKEN_NORMAL);
    }
    /* An odd factor visits every pair once, in an order without a pattern. */
    for (uint32_t i = 0; i < 65536; ++i) {
        const uint32_t pair = (i * 40503u + 12345u) & 0xFFFF, l = pair >> 8, r = pair & 0xFF;
        if (pair % 4 == 3) continue;
        char text[4];
        memcpy(text, letters[l], sizes[l]);
        memcpy(text + sizes[l], letters[r], sizes[r]);
        (void)token_add(m, text, sizes[l] + sizes[r], LLM_TOKEN_NORMAL);
        merge_add(m, letters[l], sizes[l], letters[r], sizes[r]);
    }
}

static void byte_tokens_add(made *m) {
    for (unsigned b = 0; b < 256; ++b) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        text_token_add(m, name, LLM_TOKEN_BYTE);
    }
}

/* Code points of the pool and pairs of them; runs of newlines; spaces as marks. */
static void points_add(made *m, bool with_merges) {
    static const char *const more[] = {mark, "\n", "\n\n", "\n\n\n"};
    for (size_t i = 0; i < sizeof more / sizeof *more; ++i)
        text_token_add(m, more[i], LLM_TOKEN_NORMAL);
    const uint32_t first = m->n;
    char point[4];
    for (uint32_t i = 0; i < 4000; ++i) {
        const size_t size = random_point(&m->state, point);
        if (i % 16 != 15 && memcmp(point, " ", 1) != 0)
            (void)token_add(m, point, size, LLM_TOKEN_NORMAL);
    }
    const uint32_t n_point = m->n - first;
    for (uint32_t i = 0; i < 30000; ++i) {
        const bool is_marked = random_u32_below(&m->state, 8) == 0;
        const llm_gguf_str *l = &m->tokens[first + random_u32_below(&m->state, n_point)];
        const llm_gguf_str *r = &m->tokens[first + random_u32_below(&m->state, n_point)];
        const llm_gguf_str space = {mark, 3};
        if (is_marked) l = &space;
        char text[16];
        memcpy(text, l->ptr, l->len);
        memcpy(text + l->len, r->ptr, r->len);
        if (token_add(m, text, l->len + r->len, LLM_TOKEN_NORMAL) && with_merges)
            merge_add(m, l->ptr, l->len, r->ptr, r->len);
    }
}

/* Parts of the random texts, so that texts contain these tokens. */
static void parts_add(made *m, bool with_marks) {
    char text[RANDOM_TEXT_MAX + 4];
    for (uint32_t i = 0; i < 20000; ++i) {
        const size_t len = random_text(16 * random_u32_below(&m->state, 5000) + 1, text + 3);
        if (len == 0) continue;
        size_t begin = random_u32_below(&m->state, (uint32_t)len), end = begin;
        while (begin > 0 && (text[3 + begin] & 0xC0) == 0x80) --begin;
        for (uint32_t n = 1 + random_u32_below(&m->state, 5); n > 0 && end < len; --n) {
            do ++end;
            while (end < len && (text[3 + end] & 0xC0) == 0x80);
        }
        size_t from = 3 + begin;
        if (memchr(text + from, ' ', end - begin) != NULL ||
            memchr(text + from, '<', end - begin) != NULL ||
            memchr(text + from, '|', end - begin) != NULL)
            continue;
        /* Another spelling would make the token twice. */
        const unsigned char first = (unsigned char)text[from];
        if (m->is_escaped &&
            (end - begin == 1 || first < 0x20 || memchr(text + from, '\\', end - begin) != NULL))
            continue;
        if (with_marks && random_u32_below(&m->state, 3) == 0) {
            from -= 3;
            memcpy(text + from, mark, 3);
        }
        (void)token_add(m, text + from, 3 + end - from, LLM_TOKEN_NORMAL);
    }
}

/* WordPiece's tokens: parts of texts, roughly normalised. */
static void words_add(made *m) {
    parts_add(m, true);
    char text[8];
    memcpy(text, mark, 3);
    for (int c = 0x21; c < 0x7F; ++c) {
        text[3] = (char)c;
        (void)token_add(m, text + (c % 2 == 0 ? 0 : 3), c % 2 == 0 ? 4 : 1, LLM_TOKEN_NORMAL);
        if (c >= 'a' && c <= 'z') (void)token_add(m, text + 3, 1, LLM_TOKEN_NORMAL);
        (void)token_add(m, text, 4, LLM_TOKEN_NORMAL);
    }
}

/* RWKV's tokens are written with escapes. */
static void escaped_add(made *m) {
    char name[8];
    for (unsigned b = 0; b < 256; ++b) {
        snprintf(name, sizeof name, "\\x%02x", b);
        text_token_add(m, name, LLM_TOKEN_NORMAL);
    }
    static const char *const more[] = {"\\n\\n", "\\t\\t", "\\r\\n", " \\\\", "  ", "    "};
    for (size_t i = 0; i < sizeof more / sizeof *more; ++i)
        text_token_add(m, more[i], LLM_TOKEN_NORMAL);
    m->is_escaped = true;
    parts_add(m, false);
}

/* ---- SentencePiece's rules ---- */

typedef struct rule {
    const char *from, *to;
} rule;

static const rule rules[] = {
    {"\t", " "},
    {"\n", " "},
    {"\r", ""},
    {"\xC2\xA0", " "},
    {"\xC2\xB2", "2"},
    {"\xC3\x80", "A\xCC\x80"},
    {"\xE2\x80\xA6", "..."},
    {"\xE3\x80\x80", " "},
    {"\xEF\xAC\x81", "fi"},
    {"\xEF\xBC\xA1", "A"},
    {"\xEF\xBC\xA1\xCC\x8A", "\xC3\x85"},
    {"A\xCC\x8A", "\xC3\x85"},
    {"e\xCC\x81", "\xC3\xA9"},
    {"\xE2\x80\x8B", ""},
    {"IMGIMG", "img"},
    {"IMG", "I"},
};

enum { N_RULE = sizeof rules / sizeof *rules, N_NODE = 4096 };

typedef struct charsmap_maker {
    uint32_t nodes[N_NODE];
    bool used[N_NODE];
    uint32_t values[N_RULE];
} charsmap_maker;

/* Places the children of the node at `slot`, which is reached by the first `depth` bytes of rule
 * `first`; such rules begin with the same bytes. */
static void node_place(charsmap_maker *maker, uint32_t slot, uint32_t first, size_t depth) {
    bool has[256] = {false};
    int32_t ends = -1;
    for (uint32_t r = 0; r < N_RULE; ++r) {
        if (strncmp(rules[r].from, rules[first].from, depth) != 0) continue;
        if (rules[r].from[depth] == '\0') ends = (int32_t)r;
        has[(unsigned char)rules[r].from[depth]] = true;
    }
    uint32_t offset = 1;
    for (;; ++offset) {
        bool fits = true;
        for (uint32_t c = 0; c < 256 && fits; ++c) {
            const uint32_t at = slot ^ offset ^ c;
            fits = !has[c] || (at < N_NODE && !maker->used[at]);
        }
        if (fits) break;
        if (offset == N_NODE) abort();
    }
    maker->nodes[slot] |= offset << 10 | (ends >= 0 ? 1u << 8 : 0);
    for (uint32_t c = 0; c < 256; ++c) {
        if (has[c]) maker->used[slot ^ offset ^ c] = true;
    }
    if (ends >= 0) maker->nodes[slot ^ offset] = maker->values[ends] | 1u << 31;
    for (uint32_t c = 1; c < 256; ++c) {
        if (!has[c]) continue;
        const uint32_t child = slot ^ offset ^ c;
        maker->nodes[child] = c;
        for (uint32_t r = 0; r < N_RULE; ++r) {
            if (strncmp(rules[r].from, rules[first].from, depth) != 0 ||
                (unsigned char)rules[r].from[depth] != c)
                continue;
            node_place(maker, child, r, depth + 1);
            break;
        }
    }
}

static void charsmap_put(llm_gguf_writer *w) {
    static charsmap_maker maker;
    memset(&maker, 0, sizeof maker);
    static char bytes[4 + 4 * N_NODE + 512];
    const uint32_t array_size = 4 * N_NODE;
    size_t n = 4 + array_size;
    for (uint32_t r = 0; r < N_RULE; ++r) {
        maker.values[r] = (uint32_t)(n - 4 - array_size);
        memcpy(bytes + n, rules[r].to, strlen(rules[r].to) + 1);
        n += strlen(rules[r].to) + 1;
    }
    maker.used[0] = true;
    node_place(&maker, 0, 0, 0);
    memcpy(bytes, &array_size, 4);
    memcpy(bytes + 4, maker.nodes, array_size);
    llm_gguf_writer_put_array(w, "tokenizer.ggml.precompiled_charsmap", LLM_GGUF_U8, bytes, n);
}

/* ---- The file ---- */

static void tokens_make(made *m, const char *model, const char *pre) {
    if (strcmp(model, "bert") == 0 || strcmp(model, "t5") == 0 || strcmp(model, "plamo2") == 0 ||
        strcmp(model, "llama") == 0)
        text_token_add(m, "<unk>", LLM_TOKEN_UNKNOWN);
    specials_add(m);
    if (strcmp(model, "bert") == 0) {
        words_add(m);
    } else if (strcmp(model, "t5") == 0) {
        points_add(m, false);
        parts_add(m, true);
    } else if (strcmp(model, "rwkv") == 0) {
        escaped_add(m);
    } else if (strcmp(model, "plamo2") == 0) {
        byte_tokens_add(m);
        parts_add(m, false);
    } else if (strcmp(model, "llama") == 0) {
        byte_tokens_add(m);
        points_add(m, false);
        parts_add(m, true);
    } else {
        const llm_pre_kind *kind = llm_pre_kind_find(strcmp(model, "gemma4") == 0 ? "gemma4" : pre);
        if (kind != NULL && kind->is_raw) {
            byte_tokens_add(m);
            points_add(m, true);
        } else {
            letters_add(m);
        }
    }
}

static void keys_put(llm_gguf_writer *w, const char *model, const char *pre) {
    static const char *const sizes[] = {"context_length", "embedding_length", "block_count",
                                        "feed_forward_length", "attention.head_count"};
    llm_gguf_writer_put_text(w, "general.architecture", "llama");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        char key[64];
        snprintf(key, sizeof key, "llama.%s", sizes[i]);
        llm_gguf_writer_put_u32(w, key, 32);
    }
    llm_gguf_writer_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    llm_gguf_writer_put_text(w, "tokenizer.ggml.model", model);
    if (strcmp(model, "bert") == 0) {
        if (strcmp(pre, "cased") == 0)
            llm_gguf_writer_put_bool(w, "tokenizer.ggml.normalizer.lowercase", false);
        if (strcmp(pre, "accents") == 0)
            llm_gguf_writer_put_bool(w, "tokenizer.ggml.normalizer.strip_accents", false);
    } else if (strcmp(model, "t5") == 0) {
        if (strcmp(pre, "plain") != 0) {
            charsmap_put(w);
            llm_gguf_writer_put_bool(w, "tokenizer.ggml.add_space_prefix", true);
        }
        llm_gguf_writer_put_bool(w, "tokenizer.ggml.remove_extra_whitespaces", *pre == '\0');
    } else if (strcmp(pre, "lower") == 0) {
        llm_gguf_writer_put_bool(w, "tokenizer.ggml.normalizer.lowercase", true);
        llm_gguf_writer_put_text(w, "tokenizer.ggml.pre", "whitespace");
    } else if (*pre != '\0') {
        llm_gguf_writer_put_text(w, "tokenizer.ggml.pre", pre);
    }
}

static uint32_t token_find(const made *m, const char *text) {
    for (uint32_t i = 0; i < m->n; ++i) {
        if (strcmp(m->tokens[i].ptr, text) == 0) return i;
    }
    return 0;
}

static void made_free(made *m) {
    for (uint32_t i = 0; i < m->n; ++i) free((char *)(uintptr_t)m->tokens[i].ptr);
    for (uint32_t i = 0; i < m->n_merge; ++i) free((char *)(uintptr_t)m->merges[i].ptr);
    free(m->tokens);
    free(m->scores);
    free(m->types);
    free(m->merges);
    free(m->slots);
}

tdm_status made_vocab_write(const char *name, const char *path, tdm_error *err) {
    char model[32];
    const char *colon = strchr(name, ':');
    snprintf(model, sizeof model, "%.*s", (int)(colon - name), name);
    const char *pre = colon + 1;
    made m = {.tokens = must(calloc(N_TOKEN_MAX, sizeof *m.tokens)),
              .scores = must(calloc(N_TOKEN_MAX, sizeof *m.scores)),
              .types = must(calloc(N_TOKEN_MAX, sizeof *m.types)),
              .merges = must(calloc(N_TOKEN_MAX, sizeof *m.merges)),
              .slots = must(calloc(N_SLOT, sizeof *m.slots)),
              .state = 20261123};
    tokens_make(&m, model, strcmp(pre, "lower") == 0 ? "whitespace" : pre);

    llm_gguf_writer *w;
    tdm_status status = llm_gguf_writer_create(path, &w, err);
    if (status == TDM_OK) {
        keys_put(w, model, pre);
        llm_gguf_writer_put_strings(w, "tokenizer.ggml.tokens", m.tokens, m.n);
        llm_gguf_writer_put_array(w, "tokenizer.ggml.scores", LLM_GGUF_F32, m.scores, m.n);
        llm_gguf_writer_put_array(w, "tokenizer.ggml.token_type", LLM_GGUF_I32, m.types, m.n);
        if (m.n_merge > 0)
            llm_gguf_writer_put_strings(w, "tokenizer.ggml.merges", m.merges, m.n_merge);
        llm_gguf_writer_put_u32(w, "tokenizer.ggml.bos_token_id", token_find(&m, "<|bos|>"));
        llm_gguf_writer_put_u32(w, "tokenizer.ggml.eos_token_id", token_find(&m, "<|eos|>"));
        if (strcmp(model, "bert") == 0)
            llm_gguf_writer_put_u32(w, "tokenizer.ggml.seperator_token_id",
                                    token_find(&m, "<|eos|>"));
        if (strcmp(m.tokens[0].ptr, "<unk>") == 0)
            llm_gguf_writer_put_u32(w, "tokenizer.ggml.unknown_token_id", 0);
        status = llm_gguf_writer_finish(w, err);
    }
    llm_gguf_writer_destroy(w);
    made_free(&m);
    return status;
}
