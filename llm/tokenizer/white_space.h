/* SPDX-License-Identifier: MIT
 *
 * white_space.h: Unicode's property White_Space (PropList.txt), which has not changed since Unicode
 * 6.3.
 */
#ifndef LLM_WHITE_SPACE_H
#define LLM_WHITE_SPACE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether a code point is white space. [any-thread] */
static inline bool llm_is_white_space(int32_t point) {
    return (point >= 0x9 && point <= 0xD) || point == 0x20 || point == 0x85 || point == 0xA0 ||
           point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 ||
           point == 0x2029 || point == 0x202F || point == 0x205F || point == 0x3000;
}

#endif
