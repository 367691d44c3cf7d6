/* SPDX-License-Identifier: MIT
 *
 * pretokenizer_table.c: the names of pre-tokenizers, and the expressions behind them, in the syntax
 * of PCRE2. The names and the words that result are llama.cpp's (ggml-org/llama.cpp,
 * src/llama-vocab.cpp). Its words differ from those of a model's own tokenizer.json in these rules:
 *
 * - Contractions fold case in ASCII only.
 * - A letter outside ASCII counts as upper and as lower case (tekken, gpt-4o and their relatives).
 * - The first digits of a number stay with the text before them, until a later expression cuts that
 *   text (afmoe, tiny_aya).
 *
 * White space is listed here (Unicode's White_Space), because PCRE2's \s also matches U+180E.
 * Cutting text: pretokenizer.c.
 */
#include "llm/tokenizer/pretokenizer_table.h"

#include <string.h>

#define SPACES                                                                                     \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define SPACE     "[" SPACES "]"
#define NOT_SPACE "[^" SPACES "]"

/* White space; if a word follows, without its last character. */
#define SPACE_BEFORE_WORD SPACE "+(?!" NOT_SPACE ")"

#define ANY_CASE_CONTRACTION "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"

#define GPT2                                                                                       \
    "'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+|" SPACE_BEFORE_WORD

/* cl100k and its relatives. `letters`: the characters of words. `not_word`: the characters that do
 * not count as signs. `digits`: how numbers are cut. */
#define CL100K(letters, not_word, digits)                                                          \
    ANY_CASE_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?" letters "+|" digits "| ?[^" SPACES not_word     \
                         "]+[\\r\\n]*|" SPACE "*[\\r\\n]+|" SPACE_BEFORE_WORD "|" SPACE "+"

#define LLAMA3 CL100K("\\p{L}", "\\p{L}\\p{N}", "\\p{N}{1,3}")
#define QWEN2  CL100K("\\p{L}", "\\p{L}\\p{N}", "\\p{N}")
#define QWEN35 CL100K("[\\p{L}\\p{M}]", "\\p{L}\\p{M}\\p{N}", "\\p{N}")

/* Runs of letters in which case changes at most once, from upper to lower. A letter outside ASCII
 * has both cases. `letter`: the characters of words. `suffix`: what may follow. `digits`: how
 * numbers are cut. */
#define UPPER(letter) "(?:(?=" letter ")[^a-z])"
#define LOWER(letter) "(?:(?=" letter ")[^A-Z])"
#define CASED(letter, suffix, digits)                                                              \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER(letter) "*" LOWER(                                              \
        letter) "+" suffix                                                                         \
                "|[^\\r\\n\\p{L}\\p{N}]?" UPPER(letter) "+" LOWER(                                 \
                    letter) "*" suffix "|" digits SIGNS_AND_SPACE

/* Signs with slashes and line ends behind them, and white space. */
#define SIGNS_AND_SPACE                                                                            \
    "| ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n/]*|" SPACE "*[\\r\\n]+|" SPACE_BEFORE_WORD "|" SPACE "+"

#define MAYBE_CONTRACTION "(?:" ANY_CASE_CONTRACTION ")?"
#define TEKKEN            CASED("\\p{L}", "", "\\p{N}")
#define GPT4O             CASED("\\p{L}", MAYBE_CONTRACTION, "\\p{N}{1,3}")
#define GRANITE_EMBED     CASED("[\\p{L}\\p{M}]", MAYBE_CONTRACTION, "\\p{N}{1,3}")

/* The same without a change of case: words of letters and marks. */
#define CASELESS(digits)                                                                           \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+" MAYBE_CONTRACTION "|" digits SIGNS_AND_SPACE

#define FALCON_SIGNS "[\\p{P}$+<=>^~|`]+"
#define BASIC_SIGNS  "[\\p{P}$+<=>^~|]+"
#define THREE_DIGITS "[0-9][0-9][0-9]"

/* Upper, lower and title case letters of an older Unicode version, as in DeepSeek's expression. */
#define DEEPSEEK_LETTERS                                                                           \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"                 \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}"         \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"                  \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}"                       \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"                 \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}"                 \
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}"        \
    "\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}"         \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}"                 \
    "\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"                  \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}"                   \
    "\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}"        \
    "\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}"         \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"                  \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"                 \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"               \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}"         \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
/* All from U+0800 on but white space and private use. */
#define DEEPSEEK_CJK                                                                               \
    "[\\x{800}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}"                 \
    "\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{9fa5}\\x{ac00}-\\x{d7ff}]+"
#define DEEPSEEK_SIGNS                                                                             \
    SPACE "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3001}\\x{3002}]+"
#define DEEPSEEK3                                                                                  \
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "                      \
    "?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACE "*[\\r\\n]+|" SPACE_BEFORE_WORD "|" SPACE "+"

/* Afmoe's: Han, kana, Hangul and scripts of South-East Asia. From U+4E00 to U+FAFF it has no
 * gaps. */
#define AFMOE_ASIAN                                                                                \
    "[\\x{4e00}-\\x{faff}\\x{3400}-\\x{4dbf}\\x{3040}-\\x{30ff}\\x{ff65}-\\x{ff9f}"                \
    "\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}"                   \
    "\\x{1100}-\\x{11ff}]+"

#define KANA_AND_HAN "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]+"
#define YOUTU_ASIAN                                                                                \
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|"                                                   \
    "[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}"  \
    "\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|" KANA_AND_HAN
#define SPARK                                                                                      \
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "                      \
    "?[\\p{P}\\p{S}]+|[\\r\\n]|" SPACE_BEFORE_WORD "|" SPACE "+"

/* Kimi-K2 cuts words before and after Han. */
#define HAN                                                                                        \
    "\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2ebef}"             \
    "\\x{f900}-\\x{faff}\\x{2f800}-\\x{2fa1f}"
#define KIMI_K2                                                                                    \
    "[" HAN "]+|[^\\r\\n\\p{L}\\p{N}]?(?:(?![" HAN "])\\p{L})+" MAYBE_CONTRACTION                  \
    "|\\p{N}{1,3}| ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n]*|" SPACE "*[\\r\\n]+|" SPACE_BEFORE_WORD    \
    "|" SPACE "+"

#define UNLESS_WORD(n) SPACE "{" n "}(?!" NOT_SPACE ")|"
#define JAIS2                                                                                      \
    ANY_CASE_CONTRACTION                                                                           \
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n]*|" SPACE      \
    "*[\\r\\n]+|" UNLESS_WORD("512") UNLESS_WORD("256") UNLESS_WORD("128") UNLESS_WORD("64")       \
        UNLESS_WORD("32") UNLESS_WORD("16") UNLESS_WORD("8") UNLESS_WORD("4") UNLESS_WORD("1,2")   \
            SPACE

#define WORD(letters) "[^\\r\\n\\p{L}\\p{N}]?" letters "+"
#define BAILING                                                                                    \
    ANY_CASE_CONTRACTION "|" WORD("\\p{L}") "|\\p{N}| ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n]*|" SPACE \
                                            "*[\\r\\n]|" SPACE_BEFORE_WORD "|" SPACE "+"
#define SEED_CODER                                                                                 \
    ANY_CASE_CONTRACTION "|" WORD("\\p{L}") "|\\p{N}| ?[^" SPACES "\\p{L}\\p{N}\\r\\n]+|" SPACE    \
                                            "*[\\r\\n]+|" SPACE_BEFORE_WORD "|" SPACE "+"
#define UFAKZEKA                                                                                   \
    WORD("\\p{L}")                                                                                 \
    "|\\p{N}| ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n]*|" SPACE "*[\\r\\n]+|" SPACE_BEFORE_WORD         \
    "|" SPACE "+"
#define EXAONE_MOE                                                                                 \
    ANY_CASE_CONTRACTION                                                                           \
    "|" WORD("(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)") "|\\p{N}| ?[^" SPACES                         \
                                                     "\\p{L}\\p{N}]+[\\r\\n/]?|" SPACE             \
                                                     "*[\\r\\n]|" SPACE_BEFORE_WORD "|" SPACE "+"

/* Bloom's signs, which end words; an ideographic full stop and the like among them. */
#define BLOOM " ?[^(" SPACES "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
#define LINES "[^\\n]+|\\n+"

static const llm_pre_kind kinds[] = {
    {.names = "default", .passes = {{BASIC_SIGNS}, {GPT2}, {"\\p{N}+"}, {THREE_DIGITS}}},
    {.names =
         "gpt-2 phi-2 mpt olmo jais jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum "
         "modern-bert jina-v1-en jina-v2-code roberta-bpe exaone4 trillion granite-docling",
     .passes = {{GPT2}}},
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     .ignores_merges = true,
     .adds_bos = true,
     .passes = {{LLAMA3}}},
    {.names = "dbrx smaug-bpe glm4 chatglm-bpe", .passes = {{LLAMA3}}},
    {.names = "qwen2 deepseek-r1-qwen stablelm2 kormo f2llmv2 megrez hunyuan solar-open grok-2",
     .passes = {{QWEN2}}},
    {.names = "qwen35", .passes = {{QWEN35}}},
    {.names = "deepseek-llm",
     .passes = {{"[\\r\\n]"},
                {SPACE "?[" DEEPSEEK_LETTERS "]+"},
                {DEEPSEEK_SIGNS},
                {SPACE "+$"},
                {DEEPSEEK_CJK},
                {"\\p{N}+"}}},
    {.names = "deepseek-coder",
     .passes = {{"[\\r\\n]"}, {SPACE "?\\p{L}+"}, {SPACE "?\\p{P}+"}, {DEEPSEEK_CJK}, {"\\p{N}"}}},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     .passes = {{"\\p{N}{1,3}"}, {KANA_AND_HAN}, {DEEPSEEK3}}},
    {.names = "spark2_5", .passes = {{"\\p{N}{1,3}"}, {KANA_AND_HAN}, {SPARK}, {"\\p{N}"}}},
    {.names = "falcon", .passes = {{FALCON_SIGNS}, {GPT2}, {THREE_DIGITS}}},
    {.names = "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
     .passes = {{"\\p{N}"}, {GPT2}}},
    {.names = "tekken", .ignores_merges = true, .adds_bos = true, .passes = {{TEKKEN}}},
    {.names = "gpt-4o llama4 kanana2 talkie minimax-m2", .passes = {{GPT4O}}},
    {.names = "granite-embed-multi-97m", .ignores_merges = true, .passes = {{GRANITE_EMBED}}},
    {.names = "tiny_aya cohere2moe",
     .passes = {{"\\p{N}+", LLM_PRE_THREES_JOINED}, {CASELESS("\\p{N}{1,3}")}}},
    {.names = "youtu", .ignores_merges = true, .passes = {{YOUTU_ASIAN}, {CASELESS("\\p{N}")}}},
    {.names = "afmoe", .passes = {{"\\p{N}+", LLM_PRE_THREES_JOINED}, {AFMOE_ASIAN}, {DEEPSEEK3}}},
    {.names = "kimi-k2", .passes = {{KIMI_K2}}},
    {.names = "superbpe", .passes = {{"\\p{N}+"}, {"[0-9]+", LLM_PRE_THREES_INSIDE}}},
    {.names = "bailingmoe bailingmoe2 llada-moe", .passes = {{BAILING}}},
    {.names = "seed-coder", .passes = {{SEED_CODER}}},
    {.names = "ufakzeka", .passes = {{UFAKZEKA}}},
    {.names = "exaone-moe", .passes = {{EXAONE_MOE}}},
    {.names = "jais-2", .passes = {{JAIS2}}},
    {.names = "minicpm5",
     .ignores_merges = true,
     .passes = {{"\\p{N}{1,3}"}, {CL100K("\\p{L}", "\\p{L}\\p{N}", "\\p{N}+")}}},
    {.names = "laguna", .passes = {{LINES}, {QWEN2}}},
    {.names = "bloom poro-chat gpt3-finnish", .passes = {{BLOOM}}},
    {.names = "viking", .passes = {{BLOOM}, {"\\p{N}"}}},
    {.names = "chameleon",
     .adds_bos = true,
     .passes = {{"<sentinel:[0-9]+>"},
                {"IMGIMG[A-I]{1,4}Z"},
                {"[\\t\\n]|    |  "},
                {"\\p{N}"},
                {"[\\p{P}!-/:-@\\[-`{-~]"},
                {GPT2}}},
    {.names = "gemma4 granite-embed-multi-311m",
     .adds_bos = true,
     .is_raw = true,
     .marks_space = true,
     .keeps_lines = true,
     .passes = {{LINES}}},
    {.names = "sarvam-moe", .is_raw = true, .marks_space = true, .passes = {{LINES}}},
    {.names = "whitespace", .is_raw = true, .passes = {{NOT_SPACE "+"}}},
};

static bool kind_has_name(const llm_pre_kind *kind, const char *name, size_t len) {
    if (len == 0 || memchr(name, ' ', len) != NULL) return false;
    for (const char *at = kind->names; (at = strstr(at, name)) != NULL; ++at) {
        const bool begins = at == kind->names || at[-1] == ' ';
        if (begins && (at[len] == ' ' || at[len] == '\0')) return true;
    }
    return false;
}

const llm_pre_kind *llm_pre_kind_find(const char *name) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
        if (kind_has_name(&kinds[i], name, strlen(name))) return &kinds[i];
    }
    return NULL;
}

const llm_pre_kind *llm_pre_kind_at(size_t i) {
    return i < sizeof kinds / sizeof *kinds ? &kinds[i] : NULL;
}
