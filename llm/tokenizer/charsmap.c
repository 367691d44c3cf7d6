/* SPDX-License-Identifier: MIT
 *
 * charsmap.c: see charsmap.h.
 */
#include "llm/tokenizer/charsmap.h"

#include <stdlib.h>
#include <string.h>

static uint32_t u32_read(const char *bytes) {
    const unsigned char *b = (const unsigned char *)bytes;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

tdm_status llm_charsmap_make(llm_charsmap *map, const char *bytes, size_t size, tdm_error *err) {
    *map = (llm_charsmap){0};
    if (size == 0) return TDM_OK;
    const size_t array_size = size >= 4 ? u32_read(bytes) : 0;
    if (size < 4 || array_size % 4 != 0 || array_size == 0 || array_size >= size - 4)
        return tdm_fail(err, TDM_DATA_LOSS,
                        "vocabulary: tokenizer.ggml.precompiled_charsmap of %zu bytes names a "
                        "double array of %zu bytes; the file is damaged",
                        size, array_size);
    if (bytes[size - 1] != '\0')
        return tdm_fail(err, TDM_DATA_LOSS,
                        "vocabulary: the last replacement in tokenizer.ggml.precompiled_charsmap "
                        "has no end; the file is damaged");
    map->n_node = array_size / 4;
    map->replacement_size = size - 4 - array_size;
    map->nodes = malloc(array_size);
    map->replacements = malloc(map->replacement_size);
    if (map->nodes == NULL || map->replacements == NULL) {
        llm_charsmap_free(map);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "vocabulary: no memory for %zu bytes of rules",
                        size);
    }
    for (size_t i = 0; i < map->n_node; ++i) map->nodes[i] = u32_read(bytes + 4 + 4 * i);
    memcpy(map->replacements, bytes + 4 + array_size, map->replacement_size);
    return TDM_OK;
}

void llm_charsmap_free(llm_charsmap *map) {
    free(map->nodes);
    free(map->replacements);
    *map = (llm_charsmap){0};
}

/* The offset to the next entries; bit 9 says that it is in units of 256. */
static uint32_t node_offset(uint32_t node) {
    return (node >> 10) << ((node & (1u << 9)) >> 6);
}

const char *llm_charsmap_find(const llm_charsmap *map, const char *text, size_t len, size_t *size) {
    *size = 0;
    if (map->n_node == 0) return NULL;
    const char *best = NULL;
    uint32_t at = node_offset(map->nodes[0]);
    for (size_t i = 0; i < len && text[i] != '\0'; ++i) {
        const unsigned char byte = (unsigned char)text[i];
        at ^= byte;
        if (at >= map->n_node) break;
        const uint32_t node = map->nodes[at];
        if ((node & (1u << 31 | 0xFF)) != byte) break;
        at ^= node_offset(node);
        if ((node >> 8 & 1) == 0) continue;
        if (at >= map->n_node) break;
        const uint32_t value = map->nodes[at] & ~(1u << 31);
        if (value >= map->replacement_size) break;
        best = map->replacements + value;
        *size = i + 1;
    }
    return best;
}
