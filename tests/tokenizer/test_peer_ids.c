/* SPDX-License-Identifier: MIT
 *
 * test_peer_ids.c: for each pre-tokenizer and each kind of vocabulary, compares the ids of 10,000
 * random texts and the texts of all ids with llama.cpp's. peer_ids.txt has their hashes, one line
 * for each:
 *
 *   NAME HASH...    of each 1,000 texts, then of the pieces; - = not compared
 *
 *   test_peer_ids PEER_IDS.txt         the test
 *   test_peer_ids --write FOLDER       vocabularies, texts and list.txt for peer_ids.c
 *   test_peer_ids --hash FOLDER        the lines, from the output of peer_ids.c in that folder
 *   test_peer_ids --compare FOLDER [NAME]   the differences from that output, for each text
 *
 * Not compared, because Tandem differs on purpose or llama.cpp gives no answer (text_is_left_out,
 * pieces_are_left_out, update.sh):
 * - the pre-tokenizer "whitespace" with the model "gpt2": llama.cpp aborts at a space;
 * - SentencePiece with a byte above 0xF7: llama.cpp joins the three bytes behind it to it;
 * - the text of a control token where control tokens are not parsed, with RWKV and PLaMo-2:
 *   llama.cpp gives the token;
 * - pieces of the model "whitespace": llama.cpp reads their code points as bytes.
 *
 * Random texts: random_text.c. Vocabularies: made_vocab.c. New hashes: update.sh.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llm/tokenizer/pretokenizer_table.h"
#include "llm/tokenizer/tokenizer.h"
#include "tests/tokenizer/made_vocab.h"
#include "tests/tokenizer/random_text.h"

enum { N_TEXT = 10000, N_BLOCK = 10, N_HASH = N_BLOCK + 1, NAME_SIZE = 64 };
/* Blocks that are compared. The texts of each are of the same kinds. */
#ifdef TANDEM_SANITIZED
enum { N_TESTED = 2 };
#else
enum { N_TESTED = N_BLOCK };
#endif

static uint64_t hash_add(uint64_t hash, const void *bytes, size_t size) {
    const unsigned char *b = bytes;
    for (size_t i = 0; i < size; ++i) hash = (hash ^ b[i]) * UINT64_C(1099511628211);
    return hash;
}

/* Called for every name. */
typedef bool name_visitor(const char *name, void *context);

static bool names_visit(name_visitor *visit, void *context) {
    const llm_pre_kind *kind;
    for (size_t k = 0; (kind = llm_pre_kind_at(k)) != NULL; ++k) {
        for (const char *at = kind->names; *at != '\0'; at += strspn(at, " ")) {
            const size_t n = strcspn(at, " ");
            char name[NAME_SIZE];
            snprintf(name, sizeof name, "gpt2:%.*s", (int)n, at);
            if (strcmp(name, "gpt2:whitespace") != 0 && !visit(name, context)) return false;
            at += n;
        }
    }
    for (size_t i = 0; made_vocab_names[i] != NULL; ++i) {
        if (!visit(made_vocab_names[i], context)) return false;
    }
    return true;
}

static void path_make(char *path, size_t size, const char *folder, const char *name,
                      const char *suffix) {
    const int n = snprintf(path, size, "%s/%s%s", folder, name, suffix);
    if (n < 0 || (size_t)n >= size) abort();
    for (char *at = path + strlen(folder); *at != '\0'; ++at) {
        if (*at == ':') *at = '-';
    }
}

static llm_vocab *vocab_open(const char *path) {
    tdm_error err = {0};
    llm_gguf *gguf;
    llm_vocab *vocab = NULL;
    if (llm_gguf_open(path, &gguf, &err) != TDM_OK) {
        fprintf(stderr, "%s\n", err.message);
        return NULL;
    }
    if (llm_vocab_from_gguf(gguf, &vocab, &err) != TDM_OK) fprintf(stderr, "%s\n", err.message);
    llm_gguf_close(gguf);
    return vocab;
}

static bool name_begins(const char *name, const char *model) {
    return strncmp(name, model, strlen(model)) == 0;
}

static bool text_is_left_out(const char *name, uint32_t i, const char *text, size_t len) {
    if (name_begins(name, "llama:")) {
        for (size_t k = 0; k < len; ++k) {
            if ((unsigned char)text[k] > 0xF7) return true;
        }
        return false;
    }
    const bool matches = name_begins(name, "rwkv:") || name_begins(name, "plamo2:");
    return matches && (i & 2) == 0 && memmem(text, len, "<|ctl|>", 7) != NULL;
}

static bool pieces_are_left_out(const char *name) {
    return name_begins(name, "whitespace:");
}

static unsigned text_flags(uint32_t i) {
    return (i % 2 == 1 ? LLM_TOKENIZE_ADD_SPECIAL : 0u) |
           ((i & 2) != 0 ? LLM_TOKENIZE_PARSE_SPECIAL : 0u);
}

/* Writes the vocabulary to a temporary file and reads it, so that the keys are tested too. */
static llm_vocab *vocab_make(const char *name) {
    char path[] = "/tmp/tandem-vocab-XXXXXX";
    const int fd = mkstemp(path);
    if (fd < 0) return NULL;
    close(fd);
    tdm_error err = {0};
    llm_vocab *vocab = NULL;
    if (made_vocab_write(name, path, &err) == TDM_OK)
        vocab = vocab_open(path);
    else
        fprintf(stderr, "%s\n", err.message);
    unlink(path);
    return vocab;
}

static bool name_hash(const char *name, uint64_t hashes[N_HASH]) {
    llm_vocab *vocab = vocab_make(name);
    if (vocab == NULL) return false;
    bool is_ok = true;
    for (size_t i = 0; i < N_HASH; ++i) hashes[i] = UINT64_C(14695981039346656037);
    for (uint32_t i = 0; i < N_TEXT / N_BLOCK * N_TESTED && is_ok; ++i) {
        char text[RANDOM_TEXT_MAX];
        const size_t len = random_text(i, text);
        if (text_is_left_out(name, i, text, len)) continue;
        int32_t *ids = NULL;
        size_t n = 0;
        tdm_error err = {0};
        is_ok = llm_tokenize(vocab, text, len, text_flags(i), &ids, &n, &err) == TDM_OK;
        if (!is_ok) fprintf(stderr, "%s, text %u: %s\n", name, i, err.message);
        uint64_t *hash = &hashes[i / (N_TEXT / N_BLOCK)];
        const uint32_t count = (uint32_t)n;
        *hash = hash_add(*hash, &count, sizeof count);
        *hash = hash_add(*hash, ids, n * sizeof *ids);
        free(ids);
    }
    for (int32_t id = 0; id < llm_vocab_n_token(vocab); ++id) {
        const llm_vocab_str piece = llm_vocab_token_bytes(vocab, id);
        const uint32_t count = (uint32_t)piece.len;
        hashes[N_BLOCK] = hash_add(hashes[N_BLOCK], &count, sizeof count);
        hashes[N_BLOCK] = hash_add(hashes[N_BLOCK], piece.ptr, piece.len);
    }
    llm_vocab_destroy(vocab);
    return is_ok;
}

/* ---- The test ---- */

typedef struct expectation {
    char name[NAME_SIZE];
    uint64_t hashes[N_HASH];
    bool is_known[N_HASH];
} expectation;

typedef struct expectations {
    expectation rows[256];
    size_t n, n_name, n_wrong;
} expectations;

static bool expectations_read(const char *path, expectations *all) {
    FILE *f = fopen(path, "r");
    if (f == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return false;
    }
    while (all->n < sizeof all->rows / sizeof *all->rows &&
           fscanf(f, "%63s", all->rows[all->n].name) == 1) {
        expectation *row = &all->rows[all->n];
        for (size_t i = 0; i < N_HASH; ++i) {
            char word[32], *end = word;
            if (fscanf(f, "%31s", word) == 1) row->hashes[i] = strtoull(word, &end, 16);
            row->is_known[i] = *end == '\0' && end > word;
            if (!row->is_known[i] && strcmp(word, "-") != 0) {
                fprintf(stderr, "%s: line %zu is damaged\n", path, all->n + 1);
                fclose(f);
                return false;
            }
        }
        if (!row->is_known[0]) fprintf(stderr, "%s: nothing is compared\n", row->name);
        ++all->n;
    }
    fclose(f);
    return all->n > 0;
}

static bool name_test(const char *name, void *context) {
    expectations *all = context;
    ++all->n_name;
    const expectation *want = NULL;
    for (size_t i = 0; i < all->n && want == NULL; ++i) {
        if (strcmp(all->rows[i].name, name) == 0) want = &all->rows[i];
    }
    uint64_t have[N_HASH];
    if (want == NULL) {
        fprintf(stderr, "%s: llama.cpp's ids are not stored; see update.sh\n", name);
        ++all->n_wrong;
    } else if (!name_hash(name, have)) {
        ++all->n_wrong;
    } else {
        size_t i = 0;
        while (i < N_HASH && (!want->is_known[i] || (i >= N_TESTED && i < N_BLOCK) ||
                              have[i] == want->hashes[i]))
            ++i;
        if (i == N_HASH) return true;
        fprintf(stderr, "%s: %s %zu differ from llama.cpp's; see update.sh\n", name,
                i < N_BLOCK ? "ids of the texts from" : "pieces,", i * (N_TEXT / N_BLOCK));
        ++all->n_wrong;
    }
    return true;
}

/* The hash depends on the order of the ids. */
static bool hash_is_sensitive(void) {
    const int32_t ids[] = {3, 4}, other[] = {4, 3};
    return hash_add(1, ids, sizeof ids) != hash_add(1, other, sizeof other);
}

static int test_run(const char *path) {
    static expectations all;
    if (!expectations_read(path, &all) || !hash_is_sensitive()) return 1;
    names_visit(name_test, &all);
    printf("%zu vocabularies, %d texts each: %zu differ from llama.cpp\n", all.n_name,
           N_TEXT / N_BLOCK * N_TESTED, all.n_wrong);
    return all.n_wrong == 0 && all.n_name == all.n ? 0 : 1;
}

/* ---- Comparing with llama.cpp ---- */

typedef struct folder {
    const char *path, *only;
    FILE *list;
} folder;

static bool name_write(const char *name, void *context) {
    const folder *f = context;
    char gguf[1024], out[1024];
    path_make(gguf, sizeof gguf, f->path, name, ".gguf");
    path_make(out, sizeof out, f->path, name, ".ids");
    tdm_error err = {0};
    if (made_vocab_write(name, gguf, &err) != TDM_OK) {
        fprintf(stderr, "%s\n", err.message);
        return false;
    }
    fprintf(f->list, "%s %s/texts %s\n", gguf, f->path, out);
    return true;
}

static int folder_write(folder *f) {
    char path[1024];
    path_make(path, sizeof path, f->path, "list.txt", "");
    f->list = fopen(path, "w");
    path_make(path, sizeof path, f->path, "texts", "");
    FILE *texts = fopen(path, "wb");
    if (f->list == NULL || texts == NULL) return 1;
    for (uint32_t i = 0; i < N_TEXT; ++i) {
        char text[RANDOM_TEXT_MAX];
        const uint32_t len = (uint32_t)random_text(i, text);
        fwrite(&len, sizeof len, 1, texts);
        fwrite(text, 1, len, texts);
    }
    const bool is_ok = names_visit(name_write, f);
    return fclose(texts) != 0 || fclose(f->list) != 0 || !is_ok ? 1 : 0;
}

/* False at the end of the file, which may be incomplete. */
static bool record_read(FILE *f, void *data, size_t element, uint32_t *n) {
    *n = 0;
    return fread(n, sizeof *n, 1, f) == 1 && *n <= 65536 && fread(data, element, *n, f) == *n;
}

static bool name_peer_hash(const char *name, void *context) {
    const folder *f = context;
    char path[1024];
    static int32_t data[65536];
    path_make(path, sizeof path, f->path, name, ".ids");
    FILE *in = fopen(path, "rb");
    if (in == NULL) return false;
    uint64_t hashes[N_HASH];
    size_t n_known = N_HASH;
    uint32_t n;
    for (size_t i = 0; i < N_HASH; ++i) hashes[i] = UINT64_C(14695981039346656037);
    for (uint32_t i = 0; i < N_TEXT && n_known == N_HASH; ++i) {
        const size_t block = i / (N_TEXT / N_BLOCK);
        char text[RANDOM_TEXT_MAX];
        const size_t len = random_text(i, text);
        if (!record_read(in, data, sizeof *data, &n)) n_known = block;
        if (text_is_left_out(name, i, text, len)) continue;
        hashes[block] = hash_add(hashes[block], &n, sizeof n);
        hashes[block] = hash_add(hashes[block], data, n * sizeof *data);
    }
    while (n_known == N_HASH && record_read(in, data, 1, &n)) {
        hashes[N_BLOCK] = hash_add(hashes[N_BLOCK], &n, sizeof n);
        hashes[N_BLOCK] = hash_add(hashes[N_BLOCK], data, n);
    }
    fclose(in);
    printf("%s", name);
    for (size_t i = 0; i < N_HASH; ++i) {
        if (i < n_known && !(i == N_BLOCK && pieces_are_left_out(name)))
            printf(" %016" PRIx64, hashes[i]);
        else
            printf(" -");
    }
    printf("\n");
    return true;
}

static void ids_print(const llm_vocab *vocab, const char *who, const int32_t *ids, size_t n) {
    printf("  %s:", who);
    for (size_t i = 0; i < n; ++i) {
        const llm_vocab_str piece = llm_vocab_token_bytes(vocab, ids[i]);
        printf(" %d[%.*s]", ids[i], (int)piece.len, piece.ptr);
    }
    printf("\n");
}

static bool name_compare(const char *name, void *context) {
    const folder *f = context;
    if (f->only != NULL && strcmp(f->only, name) != 0) return true;
    char path[1024];
    static int32_t theirs[65536];
    path_make(path, sizeof path, f->path, name, ".gguf");
    llm_vocab *vocab = vocab_open(path);
    path_make(path, sizeof path, f->path, name, ".ids");
    FILE *in = fopen(path, "rb");
    if (vocab == NULL || in == NULL) {
        printf("%s: cannot be read\n", name);
        llm_vocab_destroy(vocab);
        if (in != NULL) fclose(in);
        return true;
    }
    size_t n_unlike = 0;
    for (uint32_t i = 0; i < N_TEXT; ++i) {
        char text[RANDOM_TEXT_MAX];
        const size_t len = random_text(i, text);
        uint32_t n_theirs;
        if (!record_read(in, theirs, sizeof *theirs, &n_theirs)) {
            printf("%s: llama.cpp's ids end at text %u\n", name, i);
            break;
        }
        if (text_is_left_out(name, i, text, len)) continue;
        int32_t *ids = NULL;
        size_t n = 0;
        tdm_error err = {0};
        (void)llm_tokenize(vocab, text, len, text_flags(i), &ids, &n, &err);
        if (n == n_theirs && memcmp(ids, theirs, n * sizeof *ids) == 0) {
            free(ids);
            continue;
        }
        if (n_unlike++ < 3) {
            printf("%s, text %u '%.*s' %s\n", name, i, (int)len, text, err.message);
            ids_print(vocab, "llama.cpp", theirs, n_theirs);
            ids_print(vocab, "ours     ", ids, n);
        }
        free(ids);
    }
    size_t n_piece = 0;
    for (int32_t id = 0; id < llm_vocab_n_token(vocab); ++id) {
        uint32_t n;
        if (!record_read(in, theirs, 1, &n)) break;
        const llm_vocab_str piece = llm_vocab_token_bytes(vocab, id);
        if (piece.len == n && (n == 0 || memcmp(piece.ptr, theirs, n) == 0)) continue;
        if (n_piece++ < 3)
            printf("%s, piece %d: llama.cpp '%.*s', ours '%.*s'\n", name, id, (int)n,
                   (const char *)theirs, (int)piece.len, piece.ptr);
    }
    printf("%s: %zu texts and %zu pieces differ\n", name, n_unlike, n_piece);
    fclose(in);
    llm_vocab_destroy(vocab);
    return true;
}

int main(int argc, char **argv) {
    folder f = {.path = argc > 2 ? argv[2] : ".", .only = argc > 3 ? argv[3] : NULL};
    if (argc == 2 && argv[1][0] != '-') return test_run(argv[1]);
    if (argc >= 3 && strcmp(argv[1], "--write") == 0) return folder_write(&f);
    if (argc >= 3 && strcmp(argv[1], "--hash") == 0) return names_visit(name_peer_hash, &f) ? 0 : 1;
    if (argc >= 3 && strcmp(argv[1], "--compare") == 0)
        return names_visit(name_compare, &f) ? 0 : 1;
    fprintf(stderr, "usage: see the top of test_peer_ids.c\n");
    return 2;
}
