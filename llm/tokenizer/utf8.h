/* SPDX-License-Identifier: MIT
 *
 * utf8.h: recognises well-formed UTF-8 by table 3-7 of The Unicode Standard (no overlong forms, no
 * surrogates, no code points above U+10FFFF).
 */
#ifndef LLM_UTF8_H
#define LLM_UTF8_H

#include <stddef.h>

typedef enum llm_utf8_class {
    LLM_UTF8_WHOLE, /* a well-formed code point */
    LLM_UTF8_PART,  /* all bytes are a prefix of a code point */
    LLM_UTF8_BAD,   /* ill-formed, whatever follows */
} llm_utf8_class;

/* Classifies the beginning of s[0..n), n > 0. *size receives the bytes of the code point, or those
 * of the longest prefix of one (at least 1), for which one U+FFFD is shown. [any-thread] */
static inline llm_utf8_class llm_utf8_begin(const char *s, size_t n, size_t *size) {
    const unsigned char *b = (const unsigned char *)s;
    size_t want;
    unsigned char lo = 0x80, hi = 0xBF; /* the second byte's range; the others have the full one */
    *size = 1;
    if (b[0] < 0x80) return LLM_UTF8_WHOLE;
    if (b[0] < 0xC2) return LLM_UTF8_BAD;
    if (b[0] < 0xE0) {
        want = 2;
    } else if (b[0] < 0xF0) {
        want = 3;
        if (b[0] == 0xE0) lo = 0xA0;
        if (b[0] == 0xED) hi = 0x9F;
    } else if (b[0] < 0xF5) {
        want = 4;
        if (b[0] == 0xF0) lo = 0x90;
        if (b[0] == 0xF4) hi = 0x8F;
    } else {
        return LLM_UTF8_BAD;
    }
    while (*size < want) {
        if (*size == n) return LLM_UTF8_PART;
        if (b[*size] < lo || b[*size] > hi) return LLM_UTF8_BAD;
        lo = 0x80;
        hi = 0xBF;
        ++*size;
    }
    return LLM_UTF8_WHOLE;
}

#endif
