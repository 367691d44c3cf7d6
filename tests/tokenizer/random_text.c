/* SPDX-License-Identifier: MIT
 *
 * random_text.c: see random_text.h.
 */
#include "tests/tokenizer/random_text.h"

#include <stdbool.h>
#include <string.h>
#include <utf8proc.h>

#include "tests/support/random.h"

static const struct {
    int32_t first, last;
    uint32_t weight;
} ranges[] = {
    {0x21, 0x2F, 14},      {0x30, 0x39, 20},      {0x3A, 0x40, 6},       {0x41, 0x5A, 20},
    {0x5B, 0x60, 4},       {0x61, 0x7A, 40},      {0x7B, 0x7E, 4},       {0x20, 0x20, 30},
    {0x09, 0x0D, 12},      {0x0A, 0x0A, 10},      {0x0D, 0x0D, 4},       {0x01, 0x08, 1},
    {0x1C, 0x1F, 2},       {0x7F, 0x7F, 1},       {0x80, 0x9F, 2},       {0xA0, 0xBF, 6},
    {0xC0, 0xFF, 12},      {0x100, 0x24F, 8},     {0x250, 0x2AF, 2},     {0x2B0, 0x2FF, 2},
    {0x300, 0x34E, 10},    {0x391, 0x3A1, 3},     {0x3B1, 0x3C9, 3},     {0x400, 0x45F, 6},
    {0x531, 0x556, 1},     {0x561, 0x586, 1},     {0x5D0, 0x5EA, 2},     {0x5B0, 0x5BD, 1},
    {0x620, 0x64A, 3},     {0x64B, 0x655, 2},     {0x660, 0x669, 3},     {0x6F0, 0x6F9, 1},
    {0x6D4, 0x6D4, 1},     {0x60C, 0x60C, 1},     {0x905, 0x939, 3},     {0x93E, 0x94D, 3},
    {0x964, 0x965, 2},     {0x966, 0x96F, 2},     {0xE01, 0xE3A, 3},     {0xE40, 0xE5B, 3},
    {0xE81, 0xE82, 1},     {0xEC0, 0xEC4, 1},     {0x1000, 0x103F, 1},   {0x10A0, 0x10C5, 1},
    {0x1100, 0x1159, 2},   {0x1780, 0x17B3, 1},   {0x1E00, 0x1EFF, 5},   {0x1F00, 0x1F15, 1},
    {0x2000, 0x200A, 5},   {0x200B, 0x200F, 3},   {0x2010, 0x2027, 6},   {0x2028, 0x202F, 3},
    {0x2030, 0x205E, 3},   {0x205F, 0x205F, 1},   {0x2070, 0x2071, 2},   {0x20A0, 0x20BF, 2},
    {0x2100, 0x214F, 3},   {0x2150, 0x2189, 4},   {0x2190, 0x21FF, 2},   {0x2460, 0x249B, 3},
    {0x2600, 0x26FF, 3},   {0x2F00, 0x2FD5, 1},   {0x3000, 0x303F, 6},   {0x3041, 0x3096, 5},
    {0x309B, 0x309F, 1},   {0x30A0, 0x30FF, 5},   {0x3105, 0x312F, 2},   {0x3131, 0x318E, 2},
    {0x3400, 0x4DB5, 2},   {0x4E00, 0x9FA5, 12},  {0xA640, 0xA66D, 1},   {0xA9E0, 0xA9FE, 1},
    {0xAA60, 0xAA7F, 1},   {0xAC00, 0xD7A3, 6},   {0xE000, 0xE010, 1},   {0xF900, 0xFA6D, 1},
    {0xFB00, 0xFB06, 2},   {0xFE30, 0xFE4F, 2},   {0xFEFF, 0xFEFF, 1},   {0xFF01, 0xFF5E, 6},
    {0xFF65, 0xFF9F, 2},   {0xFFFD, 0xFFFD, 1},   {0x10400, 0x1044F, 1}, {0x118A0, 0x118DF, 1},
    {0x1D400, 0x1D454, 1}, {0x1F600, 0x1F64F, 4}, {0x1F3FB, 0x1F3FF, 1}, {0x20000, 0x2A6D6, 2},
    {0x2F800, 0x2FA1D, 1}, {0x180E, 0x180E, 1},   {0x85, 0x85, 2},       {0x1680, 0x1680, 1},
};

/* Texts that regular expressions treat specially, and special tokens of the vocabularies. */
static const char *const fragments[] = {
    "'s",
    "'T",
    "'re",
    "'VE",
    "'m",
    "'ll",
    "'D",
    "\xE2\x80\x99s",
    "'\xC5\xBF",
    "  ",
    "    ",
    "\t\t",
    "\n\n",
    "\r\n",
    " \n ",
    "\n \n",
    "        ",
    "123",
    "1234567",
    "12",
    "1,234.5",
    "\xD9\xA1\xD9\xA2\xD9\xA3\xD9\xA4",
    "IMGIMGABCDZ",
    "IMGIMGZ",
    "<sentinel:12>",
    "<sentinel:>",
    "<|ctl|>",
    "<|usr|>",
    "<|us",
    "//",
    "/\n",
    "...",
    "!\n",
    "?!",
    " (",
    "Hello",
    " world",
    "WORLD",
    "helloWorld",
    " ABCdef",
    "\xC3\x89"
    "COLE",
    "\xC3\xA9t\xC3\xA9",
    "\xE4\xB8\xAD\xE6\x96\x87",
    "\xE6\x97\xA5\xE6\x9C\xAC\xE3\x81\xAE",
    "\xED\x95\x9C\xEA\xB5\xAD",
    "e\xCC\x81",
    "n\xCC\x83"
    "a",
    "\xE0\xA4\xA8\xE0\xA4\xAE\xE0\xA4\xB8\xE0\xA5\x8D\xE0\xA4\xA4\xE0\xA5\x87",
    "\xEF\xAC\x81",
    "\xE2\x96\x81",
    "_",
    "\xE2\x80\xA6",
    "\xE3\x80\x82",
    "\xEF\xBC\x8C",
};

size_t random_point(uint64_t *state, char *out) {
    static uint32_t total;
    if (total == 0) {
        for (size_t i = 0; i < sizeof ranges / sizeof *ranges; ++i) total += ranges[i].weight;
    }
    uint32_t at = random_u32_below(state, total);
    size_t r = 0;
    while (at >= ranges[r].weight) at -= ranges[r++].weight;
    const uint32_t n = (uint32_t)(ranges[r].last - ranges[r].first + 1);
    const int32_t point = ranges[r].first + (int32_t)random_u32_below(state, n);
    return (size_t)utf8proc_encode_char(point, (utf8proc_uint8_t *)out);
}

size_t random_text(uint32_t i, char *out) {
    uint64_t state = 1000003ull * i;
    const uint32_t n_item = i == 0 ? 0 : 1 + random_u32_below(&state, i % 8 == 0 ? 60 : 16);
    const bool has_stray = i % 16 == 15;
    size_t n = 0;
    for (uint32_t k = 0; k < n_item && n + 64 < RANDOM_TEXT_MAX; ++k) {
        const uint32_t choice = random_u32_below(&state, 16);
        if (choice < 4) {
            const char *fragment =
                fragments[random_u32_below(&state, sizeof fragments / sizeof *fragments)];
            memcpy(out + n, fragment, strlen(fragment));
            n += strlen(fragment);
        } else if (choice == 4) { /* one code point several times */
            char point[4];
            const size_t size = random_point(&state, point);
            for (uint32_t r = 1 + random_u32_below(&state, 9); r > 0; --r) {
                memcpy(out + n, point, size);
                n += size;
            }
        } else if (choice == 5 && has_stray) {
            /* Bytes that no well-formed UTF-8 contains. */
            out[n++] = "\x80\xBF\xFF\xFE\xF8"[random_u32_below(&state, 5)];
        } else {
            n += random_point(&state, out + n);
        }
    }
    return n;
}
