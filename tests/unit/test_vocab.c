/* SPDX-License-Identifier: MIT
 *
 * test_vocab.c: the properties of a vocabulary's tokens, and the parameters and files that are
 * refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llm/gguf/gguf_write.h"
#include "llm/tokenizer/tokenizer.h"
#include "tests/unit/tiny_vocab.h"

static tiny_vocab tiny;

static bool str_is(llm_vocab_str str, const char *want) {
    return str.len == strlen(want) && (str.len == 0 || memcmp(str.ptr, want, str.len) == 0);
}

static void test_letters(void **state) {
    (void)state;
    /* GPT-2's table: the 68 bytes that are not printable follow from U+0100. */
    assert_int_equal(llm_byte_letter('!'), '!');
    assert_int_equal(llm_byte_letter(0), 0x100);
    assert_int_equal(llm_byte_letter('\n'), 0x10A);
    assert_int_equal(llm_byte_letter(' '), 0x120);
    assert_int_equal(llm_byte_letter(0x7F), 0x121);
    assert_int_equal(llm_byte_letter(0xA0), 0x142);
    assert_int_equal(llm_byte_letter(0xAD), 0x143);
    assert_int_equal(llm_byte_letter(0xFF), 0xFF);
    for (unsigned b = 0; b < 256; ++b)
        assert_int_equal(llm_byte_of_letter(llm_byte_letter((unsigned char)b)), b);
    unsigned n = 0;
    for (uint32_t letter = 0; letter < 0x400; ++letter) n += llm_byte_of_letter(letter) >= 0;
    assert_int_equal(n, 256);
    assert_int_equal(llm_byte_of_letter(' '), -1);
    assert_int_equal(llm_byte_of_letter(0x10FFFF), -1);
}

static void test_questions(void **state) {
    (void)state;
    tiny_spm(&tiny);
    llm_vocab *vocab;
    assert_int_equal(llm_vocab_create(&tiny.params, &vocab, NULL), TDM_OK);
    memset(&tiny, 0xA5, sizeof tiny); /* everything was copied */
    assert_int_equal(llm_vocab_n_token(vocab), SPM_COUNT);
    assert_string_equal(llm_vocab_model_name(vocab), "llama");
    assert_string_equal(llm_vocab_pre_name(vocab), "");
    assert_int_equal(llm_vocab_bos(vocab), SPM_BOS);
    assert_int_equal(llm_vocab_eos(vocab), SPM_EOS);
    assert_int_equal(llm_vocab_unk(vocab), SPM_UNK);
    assert_int_equal(llm_vocab_eot(vocab), LLM_TOKEN_NONE);
    assert_int_equal(llm_vocab_pad(vocab), LLM_TOKEN_NONE);
    assert_true(str_is(llm_vocab_token_text(vocab, SPM_SPACE_A), "\xE2\x96\x81"
                                                                 "a"));
    assert_true(str_is(llm_vocab_token_bytes(vocab, SPM_SPACE_A), " a"));
    assert_true(str_is(llm_vocab_token_bytes(vocab, SPM_C3), "\xC3"));
    assert_true(str_is(llm_vocab_token_bytes(vocab, SPM_EOS), "</s>"));
    assert_true(str_is(llm_vocab_token_bytes(vocab, SPM_UNUSED), ""));
    assert_true(str_is(llm_vocab_token_text(vocab, SPM_EMPTY), ""));
    assert_int_equal(llm_vocab_find(vocab, "ab", 2), SPM_AB);
    assert_int_equal(llm_vocab_find(vocab, "ba", 2), LLM_TOKEN_NONE);
    assert_int_equal(llm_vocab_find(vocab, "", 0), LLM_TOKEN_NONE);
    assert_int_equal(llm_vocab_token_type(vocab, SPM_X), LLM_TOKEN_USER_DEFINED);
    assert_true(llm_vocab_ends_generation(vocab, SPM_EOS));
    assert_false(llm_vocab_ends_generation(vocab, SPM_BOS));
    static const int32_t outside[] = {-1, -2, SPM_COUNT, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < TINY_COUNT(outside); ++i) {
        assert_int_equal(llm_vocab_token_type(vocab, outside[i]), LLM_TOKEN_UNDEFINED);
        assert_int_equal(llm_vocab_token_text(vocab, outside[i]).len, 0);
        assert_int_equal(llm_vocab_token_bytes(vocab, outside[i]).len, 0);
        assert_false(llm_vocab_ends_generation(vocab, outside[i]));
    }
    llm_vocab_destroy(vocab);
    llm_vocab_destroy(NULL);

    tiny_bpe(&tiny, NULL);
    tiny.params.bos_id = tiny.params.eos_id = LLM_TOKEN_DEFAULT;
    assert_int_equal(llm_vocab_create(&tiny.params, &vocab, NULL), TDM_OK);
    assert_string_equal(llm_vocab_model_name(vocab), "gpt2");
    assert_string_equal(llm_vocab_pre_name(vocab), "default");
    assert_int_equal(llm_vocab_bos(vocab), LLM_TOKEN_NONE);
    assert_true(llm_vocab_ends_generation(vocab, BPE_EOT)); /* by its text */
    assert_true(str_is(llm_vocab_token_bytes(vocab, BPE_SPACE_W), " w"));
    assert_int_equal(llm_vocab_find(vocab, "xy", 2), LLM_TOKEN_NONE); /* only a merge's piece */
    llm_vocab_destroy(vocab);
}

/* Texts that end a turn are control tokens and end a turn, even against the file. */
static void test_end_texts(void **state) {
    (void)state;
    static const llm_vocab_str tokens[] = {{"a", 1}, {"<|endoftext|>", 13}, {"<|im_end|>", 10}};
    static const int32_t types[] = {LLM_TOKEN_NORMAL, LLM_TOKEN_NORMAL, LLM_TOKEN_NORMAL};
    llm_vocab_params params = llm_vocab_params_default();
    params.model = "gpt2";
    params.pre = "qwen2";
    params.tokens = tokens;
    params.types = types;
    params.n_token = TINY_COUNT(tokens);
    params.eos_id = 1;
    llm_vocab *vocab;
    assert_int_equal(llm_vocab_create(&params, &vocab, NULL), TDM_OK);
    assert_int_equal(llm_vocab_eot(vocab), 2);
    assert_int_equal(llm_vocab_token_type(vocab, 2), LLM_TOKEN_CONTROL);
    assert_true(llm_vocab_ends_generation(vocab, 1));
    assert_true(llm_vocab_ends_generation(vocab, 2));
    assert_false(llm_vocab_ends_generation(vocab, 0));
    llm_vocab_destroy(vocab);
}

/* Whether the token `text` of a vocabulary of these ends generation; eos_id is `eos`. */
static bool ends(const char *const *texts, int32_t n, int32_t eos, const char *text) {
    llm_vocab_str tokens[8];
    llm_vocab_params params = llm_vocab_params_default();
    llm_vocab *vocab;
    assert_true(n <= 8);
    for (int32_t i = 0; i < n; i++) tokens[i] = (llm_vocab_str){texts[i], strlen(texts[i])};
    params.model = "gpt2";
    params.tokens = tokens;
    params.n_token = n;
    params.eos_id = eos;
    assert_int_equal(llm_vocab_create(&params, &vocab, NULL), TDM_OK);
    const int32_t id = llm_vocab_find(vocab, text, strlen(text));
    assert_true(id >= 0);
    const bool is_end = llm_vocab_ends_generation(vocab, id);
    if (is_end && id != eos) assert_int_equal(llm_vocab_token_type(vocab, id), LLM_TOKEN_CONTROL);
    llm_vocab_destroy(vocab);
    return is_end;
}

/* Every family's own texts end its answers. */
static void test_end_texts_of_families(void **state) {
    (void)state;
    static const char *const alone[] = {"<turn|>",
                                        "<eos>",
                                        "<|tool_response>",
                                        "[EOS]",
                                        "_<EOT>",
                                        "<|flush|>",
                                        "<|calls|>",
                                        "[e~[",
                                        "</s>",
                                        "<|end|>",
                                        "<｜end▁of▁sentence｜>"};
    for (size_t i = 0; i < TINY_COUNT(alone); i++) {
        const char *const texts[] = {"a", alone[i]};
        if (!ends(texts, 2, LLM_TOKEN_NONE, alone[i])) fail_msg("'%s' ends nothing", alone[i]);
        assert_false(ends(texts, 2, LLM_TOKEN_NONE, "a"));
    }
    static const char *const harmony[] = {"a", "<|end|>", "<|return|>", "<|call|>"};
    static const char *const solar[] = {"a", "<|end|>", "<|flush|>", "<|calls|>"};
    static const char *const phi[] = {"a", "<|end|>", "<|return|>", "<|endoftext|>"};
    static const char *const gemma[] = {"</s>", "<turn|>", "<|tool_response>", "<eos>"};
    assert_false(ends(harmony, 4, 2, "<|end|>"));
    assert_true(ends(harmony, 4, 2, "<|return|>") && ends(harmony, 4, 2, "<|call|>"));
    assert_false(ends(solar, 4, 2, "<|end|>"));
    assert_true(ends(solar, 4, 3, "<|flush|>") && ends(solar, 4, 2, "<|calls|>"));
    assert_true(ends(phi, 4, 3, "<|end|>"));
    assert_false(ends(gemma, 4, 3, "</s>"));
    assert_true(ends(gemma, 4, 3, "<turn|>"));
    /* The file's own key counts in any case. */
    assert_true(ends(harmony, 4, 1, "<|end|>"));
    assert_true(ends(gemma, 4, 0, "</s>"));
}

/* A BPE token may hold what is no letter of the byte alphabet: it shows as it is. */
static void test_odd_tokens(void **state) {
    (void)state;
    static const llm_vocab_str tokens[] = {{"\xE4\xB8\xAD x\xFF", 6}, {"\xC4", 1}};
    llm_vocab_params params = llm_vocab_params_default();
    params.model = "gpt2";
    params.tokens = tokens;
    params.n_token = TINY_COUNT(tokens);
    llm_vocab *vocab;
    assert_int_equal(llm_vocab_create(&params, &vocab, NULL), TDM_OK);
    assert_true(str_is(llm_vocab_token_bytes(vocab, 0), "\xE4\xB8\xAD x\xFF"));
    assert_true(str_is(llm_vocab_token_bytes(vocab, 1), "\xC4"));
    llm_vocab_destroy(vocab);
}

static void refuse(const llm_vocab_params *params, tdm_status want, const char *named) {
    tdm_error err = {0};
    llm_vocab *vocab = (llm_vocab *)&err;
    const tdm_status status = llm_vocab_create(params, &vocab, &err);
    if (status != want || vocab != NULL || strstr(err.message, named) == NULL ||
        strchr(err.message, '\n') != NULL)
        fail_msg("want '%s' naming '%s', have '%s': %s", tdm_status_text(want), named,
                 tdm_status_text(status), err.message);
    assert_int_equal(llm_vocab_create(params, &vocab, NULL), want);
}

static void test_refusals(void **state) {
    (void)state;
    tiny_spm(&tiny);
    tiny.params.model = "hybriddna";
    refuse(&tiny.params, TDM_UNSUPPORTED, "hybriddna");
    refuse(&tiny.params, TDM_UNSUPPORTED, "bert");
    refuse(&tiny.params, TDM_UNSUPPORTED, "gpt2");
    tiny.params.model = NULL;
    refuse(&tiny.params, TDM_UNSUPPORTED, "llama");
    tiny_bpe(&tiny, "poro");
    refuse(&tiny.params, TDM_UNSUPPORTED, "poro");
    refuse(&tiny.params, TDM_UNSUPPORTED, "qwen2");

    tiny_spm(&tiny);
    tiny.params.n_token = 0;
    refuse(&tiny.params, TDM_DATA_LOSS, "tokenizer.ggml.tokens");
    tiny_spm(&tiny);
    tiny.params.n_token = (size_t)1 << 40;
    refuse(&tiny.params, TDM_DATA_LOSS, "1099511627776");
    tiny_spm(&tiny);
    tiny.scores[SPM_BC] = NAN;
    refuse(&tiny.params, TDM_DATA_LOSS, "token 8");

    static const char *const no_merges[] = {"", " ", "a", "ab", "a ", " b", "  "};
    for (size_t i = 0; i < TINY_COUNT(no_merges); ++i) {
        tiny_bpe(&tiny, "gpt-2");
        tiny.merges[3] = (llm_vocab_str){no_merges[i], strlen(no_merges[i])};
        refuse(&tiny.params, TDM_DATA_LOSS, "merge 3");
    }

    static const int32_t bad_ids[] = {SPM_COUNT, INT32_MAX, -3, INT32_MIN};
    for (size_t i = 0; i < TINY_COUNT(bad_ids); ++i) {
        char number[16];
        snprintf(number, sizeof number, "%d", bad_ids[i]);
        int32_t *const ids[] = {&tiny.params.bos_id, &tiny.params.eos_id, &tiny.params.unk_id,
                                &tiny.params.eot_id, &tiny.params.eom_id};
        for (size_t k = 0; k < TINY_COUNT(ids); ++k) {
            tiny_spm(&tiny);
            *ids[k] = bad_ids[i];
            refuse(&tiny.params, TDM_DATA_LOSS, number);
        }
        tiny_spm(&tiny);
        tiny.params.pad_id = bad_ids[i]; /* which is optional */
        llm_vocab *vocab;
        assert_int_equal(llm_vocab_create(&tiny.params, &vocab, NULL), TDM_OK);
        assert_int_equal(llm_vocab_pad(vocab), LLM_TOKEN_NONE);
        llm_vocab_destroy(vocab);
    }
    tiny_spm(&tiny);
    tiny.params.bos_id = LLM_TOKEN_NONE;
    tiny.params.add_bos = 1;
    refuse(&tiny.params, TDM_DATA_LOSS, "bos_token_id");
    tiny_bpe(&tiny, "llama-bpe"); /* adds a bos by default */
    tiny.params.bos_id = LLM_TOKEN_NONE;
    refuse(&tiny.params, TDM_DATA_LOSS, "bos_token_id");
    tiny_bpe(&tiny, "gpt-2");
    tiny.params.eos_id = LLM_TOKEN_NONE;
    tiny.params.add_eos = 1;
    refuse(&tiny.params, TDM_DATA_LOSS, "eos_token_id");

    /* Fewer tokens than the usual special ids: then there are none. */
    tiny_spm(&tiny);
    tiny.params.n_token = 1;
    llm_vocab *vocab;
    assert_int_equal(llm_vocab_create(&tiny.params, &vocab, NULL), TDM_OK);
    assert_int_equal(llm_vocab_bos(vocab), LLM_TOKEN_NONE);
    assert_false(llm_vocab_adds_bos(vocab));
    llm_vocab_destroy(vocab);
    /* A type that is none. */
    tiny_spm(&tiny);
    tiny.types[SPM_A] = 77;
    tiny.types[SPM_B] = -1;
    assert_int_equal(llm_vocab_create(&tiny.params, &vocab, NULL), TDM_OK);
    assert_int_equal(llm_vocab_token_type(vocab, SPM_A), LLM_TOKEN_UNDEFINED);
    assert_int_equal(llm_vocab_token_type(vocab, SPM_B), LLM_TOKEN_UNDEFINED);
    llm_vocab_destroy(vocab);
}

/* ---- Files ---- */

/* Keys of a file besides its tokens; fields that are 0 are absent. */
typedef struct file_plan {
    const char *model, *pre;
    bool no_tokens, tokens_are_numbers, scores_too_short, types_are_floats;
    bool suppresses, suppressed_are_floats;
    bool bos_is_none, bos_is_text, eos_is_far, add_bos_is_number, name_is_phi3;
} file_plan;

static char path[] = "/tmp/tandem-test-vocab-XXXXXX";

static tdm_status file_try(const file_plan *plan, llm_vocab **vocab, tdm_error *err) {
    llm_gguf_writer *w;
    llm_gguf_str tokens[SPM_COUNT];
    int32_t types[SPM_COUNT];
    float scores[SPM_COUNT];
    for (size_t i = 0; i < SPM_COUNT; ++i) {
        tokens[i] = (llm_gguf_str){tiny_spm_tokens[i].text, strlen(tiny_spm_tokens[i].text)};
        types[i] = tiny_spm_tokens[i].type;
        scores[i] = tiny_spm_tokens[i].score;
    }
    assert_int_equal(llm_gguf_writer_create(path, &w, NULL), TDM_OK);
    llm_gguf_writer_put_text(w, "general.architecture", "llama");
    llm_gguf_writer_put_text(w, "general.name", plan->name_is_phi3 ? "A Phi-3 model" : "Philip");
    if (plan->model != NULL) llm_gguf_writer_put_text(w, "tokenizer.ggml.model", plan->model);
    if (plan->pre != NULL) llm_gguf_writer_put_text(w, "tokenizer.ggml.pre", plan->pre);
    if (plan->tokens_are_numbers)
        llm_gguf_writer_put_array(w, "tokenizer.ggml.tokens", LLM_GGUF_I32, types, SPM_COUNT);
    else if (!plan->no_tokens)
        llm_gguf_writer_put_strings(w, "tokenizer.ggml.tokens", tokens, SPM_COUNT);
    llm_gguf_writer_put_array(w, "tokenizer.ggml.scores", LLM_GGUF_F32, scores,
                              plan->scores_too_short ? SPM_COUNT - 1 : SPM_COUNT);
    if (plan->types_are_floats)
        llm_gguf_writer_put_array(w, "tokenizer.ggml.token_type", LLM_GGUF_F32, scores, SPM_COUNT);
    else
        llm_gguf_writer_put_array(w, "tokenizer.ggml.token_type", LLM_GGUF_I32, types, SPM_COUNT);
    if (plan->bos_is_text)
        llm_gguf_writer_put_text(w, "tokenizer.ggml.bos_token_id", "1");
    else
        llm_gguf_writer_put_u32(w, "tokenizer.ggml.bos_token_id",
                                plan->bos_is_none ? UINT32_MAX : 1);
    llm_gguf_writer_put_u32(w, "tokenizer.ggml.eos_token_id", plan->eos_is_far ? 9999 : 2);
    const int32_t suppressed[] = {SPM_ABC, -1, SPM_COUNT, SPM_A, SPM_ABC};
    if (plan->suppresses)
        llm_gguf_writer_put_array(w, "tokenizer.ggml.suppress_tokens", LLM_GGUF_I32, suppressed, 5);
    if (plan->suppressed_are_floats)
        llm_gguf_writer_put_array(w, "tokenizer.ggml.suppress_tokens", LLM_GGUF_F32, scores, 2);
    if (plan->add_bos_is_number) llm_gguf_writer_put_u32(w, "tokenizer.ggml.add_bos_token", 1);
    llm_gguf_writer_put_bool(w, "tokenizer.ggml.add_space_prefix", false);
    assert_int_equal(llm_gguf_writer_finish(w, err), TDM_OK);
    llm_gguf_writer_destroy(w);

    llm_gguf *gguf;
    if (llm_gguf_open(path, &gguf, err) != TDM_OK) fail_msg("%s", err->message);
    const tdm_status status = llm_vocab_from_gguf(gguf, vocab, err);
    llm_gguf_close(gguf);
    return status;
}

static void file_refuse(file_plan plan, tdm_status want, const char *named) {
    tdm_error err = {0};
    llm_vocab *vocab = (llm_vocab *)&err;
    const tdm_status status = file_try(&plan, &vocab, &err);
    if (status != want || vocab != NULL || strstr(err.message, named) == NULL ||
        strstr(err.message, path) == NULL)
        fail_msg("want '%s' naming '%s', have '%s': %s", tdm_status_text(want), named,
                 tdm_status_text(status), err.message);
}

static void test_files(void **state) {
    (void)state;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    tdm_error err = {0};
    llm_vocab *vocab;
    if (file_try(&(file_plan){.model = "llama"}, &vocab, &err) != TDM_OK)
        fail_msg("%s", err.message);
    int32_t *ids;
    size_t n;
    assert_int_equal(llm_tokenize(vocab, "abc", 3, LLM_TOKENIZE_ADD_SPECIAL, &ids, &n, &err),
                     TDM_OK);
    assert_int_equal(n, 2); /* add_bos by default, no space prefix by key */
    assert_int_equal(ids[0], SPM_BOS);
    assert_int_equal(ids[1], SPM_ABC);
    free(ids);
    assert_int_equal(llm_tokenize(vocab, "</s> a", 6, LLM_TOKENIZE_PARSE_SPECIAL, &ids, &n, &err),
                     TDM_OK);
    assert_int_equal(ids[1], SPM_SPACE_A);
    free(ids);
    llm_vocab_destroy(vocab);

    assert_int_equal(file_try(&(file_plan){.model = "llama", .name_is_phi3 = true}, &vocab, &err),
                     TDM_OK);
    assert_int_equal(llm_tokenize(vocab, "</s> a", 6, LLM_TOKENIZE_PARSE_SPECIAL, &ids, &n, &err),
                     TDM_OK);
    assert_int_equal(ids[1], SPM_A);
    free(ids);
    llm_vocab_destroy(vocab);

    assert_int_equal(file_try(&(file_plan){.model = "llama", .bos_is_none = true}, &vocab, &err),
                     TDM_OK);
    assert_int_equal(llm_vocab_bos(vocab), LLM_TOKEN_NONE);
    assert_false(llm_vocab_adds_bos(vocab));
    llm_vocab_destroy(vocab);

    int32_t n_suppressed = -1;
    assert_int_equal(file_try(&(file_plan){.model = "llama", .suppresses = true}, &vocab, &err),
                     TDM_OK);
    const int32_t *suppressed = llm_vocab_suppressed(vocab, &n_suppressed);
    assert_int_equal(n_suppressed, 2); /* each once, and none outside the vocabulary */
    assert_int_equal(suppressed[0], SPM_ABC);
    assert_int_equal(suppressed[1], SPM_A);
    llm_vocab_destroy(vocab);
    assert_int_equal(file_try(&(file_plan){.model = "llama"}, &vocab, &err), TDM_OK);
    assert_null(llm_vocab_suppressed(vocab, &n_suppressed));
    assert_int_equal(n_suppressed, 0);
    llm_vocab_destroy(vocab);
    file_refuse((file_plan){.model = "llama", .suppressed_are_floats = true}, TDM_DATA_LOSS,
                "suppress_tokens");

    file_refuse((file_plan){0}, TDM_NOT_FOUND, "tokenizer.ggml.model");
    file_refuse((file_plan){.model = "t6"}, TDM_UNSUPPORTED, "t6");
    file_refuse((file_plan){.model = "gpt2", .pre = "kimi-k9"}, TDM_UNSUPPORTED, "kimi-k9");
    file_refuse((file_plan){.model = "llama", .no_tokens = true}, TDM_NOT_FOUND,
                "tokenizer.ggml.tokens");
    file_refuse((file_plan){.model = "llama", .tokens_are_numbers = true}, TDM_DATA_LOSS,
                "tokenizer.ggml.tokens");
    file_refuse((file_plan){.model = "llama", .scores_too_short = true}, TDM_DATA_LOSS,
                "tokenizer.ggml.scores");
    file_refuse((file_plan){.model = "llama", .types_are_floats = true}, TDM_DATA_LOSS,
                "tokenizer.ggml.token_type");
    file_refuse((file_plan){.model = "llama", .bos_is_text = true}, TDM_DATA_LOSS,
                "tokenizer.ggml.bos_token_id");
    file_refuse((file_plan){.model = "llama", .eos_is_far = true}, TDM_DATA_LOSS, "9999");
    file_refuse((file_plan){.model = "llama", .add_bos_is_number = true}, TDM_DATA_LOSS,
                "tokenizer.ggml.add_bos_token");
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_letters),    cmocka_unit_test(test_questions),
        cmocka_unit_test(test_end_texts),  cmocka_unit_test(test_end_texts_of_families),
        cmocka_unit_test(test_odd_tokens), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
