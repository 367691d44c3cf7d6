/* SPDX-License-Identifier: MIT
 *
 * float_mode.c: see float_mode.h.
 */
#include "plugins/vulkan/float_mode.h"

#include <stdlib.h>
#include <string.h>

enum {
    HEADER = 5,             /* words before the first instruction */
    VERSION_1_4 = 0x010400, /* where the capabilities need no extension */
    MAX_ADDED = 3 * 2 + 9 * 4,
    OP_ENTRY_POINT = 15,
    OP_EXECUTION_MODE = 16,
    OP_CAPABILITY = 17,
    CAPABILITY_DENORM_PRESERVE = 4464,
    CAPABILITY_INFINITIES = 4466, /* SignedZeroInfNanPreserve */
    CAPABILITY_ROUNDING_RTE = 4467,
    MODE_DENORM_PRESERVE = 4459,
    MODE_INFINITIES = 4461,
    MODE_ROUNDING_RTE = 4462
};

/* The widths that must get a mode so that 16 bits have it; 0 = 16 bits cannot have it. A driver may
 * demand that all widths that a module uses have the same mode
 * (VUID-RuntimeSpirv-denormBehaviorIndependence-06289 and those behind it). No module uses 64 bits,
 * which are left out where they have no such mode. */
static uint32_t widths_of(VkShaderFloatControlsIndependence independence, bool has_16, bool has_32,
                          bool has_64) {
    const uint32_t all = 16 | (has_64 ? 64 : 0);
    if (!has_16) return 0;
    if (independence == VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_ALL) return 16;
    if (independence == VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_32_BIT_ONLY) return all;
    return has_32 ? all | 32 : 0;
}

/* f32 is rounded to nearest too where a module can request it: sums of exchanges must be the same
 * bits on all members (wire_sum.comp). */
vk_float_mode vk_float_mode_of(const VkPhysicalDeviceFloatControlsProperties *p) {
    vk_float_mode mode;
    mode.keeps_denormals =
        widths_of(p->denormBehaviorIndependence, p->shaderDenormPreserveFloat16,
                  p->shaderDenormPreserveFloat32, p->shaderDenormPreserveFloat64);
    mode.rounds_to_nearest =
        widths_of(p->roundingModeIndependence, p->shaderRoundingModeRTEFloat16,
                  p->shaderRoundingModeRTEFloat32, p->shaderRoundingModeRTEFloat64);
    if (mode.rounds_to_nearest != 0 && p->shaderRoundingModeRTEFloat32)
        mode.rounds_to_nearest |= 32;
    /* The specification has no rule here that joins widths. */
    mode.keeps_infinities = (p->shaderSignedZeroInfNanPreserveFloat16 ? 16u : 0u) |
                            (p->shaderSignedZeroInfNanPreserveFloat32 ? 32u : 0u);
    return mode;
}

static size_t capability_add(uint32_t *to, uint32_t widths, uint32_t capability) {
    if (widths == 0) return 0;
    to[0] = 2u << 16 | OP_CAPABILITY;
    to[1] = capability;
    return 2;
}

static size_t modes_add(uint32_t *to, uint32_t widths, uint32_t entry, uint32_t mode) {
    size_t n = 0;
    for (uint32_t width = 16; width <= 64; width *= 2) {
        if ((widths & width) == 0) continue;
        to[n++] = 4u << 16 | OP_EXECUTION_MODE;
        to[n++] = entry;
        to[n++] = mode;
        to[n++] = width;
    }
    return n;
}

/* The word behind the entry point's instruction, and in *at_out the first of it. 0 = the module is
 * older than the capabilities, or cut off. */
static size_t entry_find(const uint32_t *code, size_t n_word, size_t *at_out) {
    size_t at = HEADER;
    if (n_word < HEADER || code[1] < VERSION_1_4) return 0;
    while (at < n_word && (code[at] & 0xffff) != OP_ENTRY_POINT && code[at] >> 16 != 0)
        at += code[at] >> 16;
    const size_t end = at + (at < n_word ? code[at] >> 16 : 0);
    *at_out = at;
    return end <= n_word && end >= at + 3 ? end : 0;
}

/* Capabilities come first in a module, execution modes directly behind the entry point. */
uint32_t *vk_float_mode_add(const uint32_t *code, size_t size, const vk_float_mode *mode,
                            size_t *size_out) {
    const size_t n_word = size / 4;
    size_t at = 0, n = HEADER;
    const size_t end = entry_find(code, n_word, &at);
    uint32_t *made = malloc((n_word + MAX_ADDED) * 4);
    if (made == NULL) return NULL;
    if (end == 0) {
        memcpy(made, code, size);
        *size_out = size;
        return made;
    }
    memcpy(made, code, HEADER * 4);
    n += capability_add(&made[n], mode->keeps_denormals, CAPABILITY_DENORM_PRESERVE);
    n += capability_add(&made[n], mode->rounds_to_nearest, CAPABILITY_ROUNDING_RTE);
    n += capability_add(&made[n], mode->keeps_infinities, CAPABILITY_INFINITIES);
    memcpy(&made[n], &code[HEADER], (end - HEADER) * 4);
    n += end - HEADER;
    n += modes_add(&made[n], mode->keeps_denormals, code[at + 2], MODE_DENORM_PRESERVE);
    n += modes_add(&made[n], mode->rounds_to_nearest, code[at + 2], MODE_ROUNDING_RTE);
    n += modes_add(&made[n], mode->keeps_infinities, code[at + 2], MODE_INFINITIES);
    memcpy(&made[n], &code[end], (n_word - end) * 4);
    *size_out = (n + n_word - end) * 4;
    return made;
}
