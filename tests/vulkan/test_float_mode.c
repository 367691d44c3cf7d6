/* SPDX-License-Identifier: MIT
 *
 * test_float_mode.c: what shaders ask of a driver that lets them choose how floats are computed,
 * and where a module says so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/vulkan/float_mode.h"

static bool has_no_memory;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_malloc(size_t size) {
    return has_no_memory ? NULL : __real_malloc(size);
}

#define OP(op, n_word) ((uint32_t)(n_word) << 16 | (op))

enum { ENTRY = 7 };

/* A capability, a memory model, an entry point "main", and what follows it. */
static const uint32_t module[] = {
    0x07230203, 0x00010500, 0,     9,          0,    /* the header */
    OP(17, 2),  1,                                   /* OpCapability Shader */
    OP(14, 3),  5348,       1,                       /* OpMemoryModel */
    OP(15, 5),  5,          ENTRY, 0x6e69616d, 0,    /* OpEntryPoint */
    OP(16, 6),  ENTRY,      17,    1,          1, 1, /* OpExecutionMode LocalSize */
};
enum { MODULE_LEN = sizeof module / 4, ENTRY_END = 15 };

static VkPhysicalDeviceFloatControlsProperties properties_make(int independence, bool has_32,
                                                               bool has_64) {
    return (VkPhysicalDeviceFloatControlsProperties){
        .denormBehaviorIndependence = (VkShaderFloatControlsIndependence)independence,
        .roundingModeIndependence = (VkShaderFloatControlsIndependence)independence,
        .shaderDenormPreserveFloat16 = VK_TRUE,
        .shaderDenormPreserveFloat32 = has_32,
        .shaderDenormPreserveFloat64 = has_64,
        .shaderRoundingModeRTEFloat16 = VK_TRUE,
        .shaderRoundingModeRTEFloat32 = has_32,
        .shaderRoundingModeRTEFloat64 = has_64,
        .shaderSignedZeroInfNanPreserveFloat16 = VK_TRUE,
        .shaderSignedZeroInfNanPreserveFloat32 = has_32,
        .shaderSignedZeroInfNanPreserveFloat64 = has_64};
}

/* Widths that a driver wants to be the same are named with f16, or none is. Rounding of f32 is
 * named where there is a choice. */
static void test_widths(void **state) {
    static const struct {
        int independence;
        bool has_32, has_64;
        uint32_t widths;
    } rows[] = {
        {VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_ALL, true, true, 16},
        {VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_ALL, false, false, 16},
        {VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_32_BIT_ONLY, true, true, 16 | 64},
        {VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_32_BIT_ONLY, false, false, 16},
        {VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE, true, true, 16 | 32 | 64},
        {VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE, true, false, 16 | 32},
        {VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE, false, true, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        VkPhysicalDeviceFloatControlsProperties p =
            properties_make(rows[i].independence, rows[i].has_32, rows[i].has_64);
        vk_float_mode mode = vk_float_mode_of(&p);
        const uint32_t rounded = rows[i].widths | (rows[i].has_32 ? 32 : 0);
        assert_int_equal(mode.keeps_denormals, rows[i].widths);
        assert_int_equal(mode.rounds_to_nearest, rounded);
        assert_int_equal(mode.keeps_infinities, 16u | (rows[i].has_32 ? 32u : 0u));
        p.shaderSignedZeroInfNanPreserveFloat16 = VK_FALSE;
        p.shaderDenormPreserveFloat16 = VK_FALSE;
        mode = vk_float_mode_of(&p);
        assert_int_equal(mode.keeps_infinities, rows[i].has_32 ? 32 : 0);
        assert_int_equal(mode.keeps_denormals, 0);
        assert_int_equal(mode.rounds_to_nearest, rounded);
    }
}

static void test_module(void **state) {
    static const uint32_t capabilities[] = {OP(17, 2), 4464, OP(17, 2), 4467, OP(17, 2), 4466};
    static const uint32_t modes[] = {OP(16, 4), ENTRY, 4459, 16, OP(16, 4), ENTRY, 4462, 16,
                                     OP(16, 4), ENTRY, 4462, 64, OP(16, 4), ENTRY, 4461, 16,
                                     OP(16, 4), ENTRY, 4461, 32};
    const vk_float_mode mode = {
        .keeps_denormals = 16, .rounds_to_nearest = 16 | 64, .keeps_infinities = 16 | 32};
    size_t size = 0, n = 5;
    (void)state;
    uint32_t *made = vk_float_mode_add(module, sizeof module, &mode, &size);
    assert_non_null(made);
    assert_int_equal(size, sizeof module + sizeof capabilities + sizeof modes);
    assert_memory_equal(made, module, 5 * 4);
    assert_memory_equal(&made[n], capabilities, sizeof capabilities);
    n += sizeof capabilities / 4;
    assert_memory_equal(&made[n], &module[5], (ENTRY_END - 5) * 4);
    n += ENTRY_END - 5;
    assert_memory_equal(&made[n], modes, sizeof modes);
    n += sizeof modes / 4;
    assert_memory_equal(&made[n], &module[ENTRY_END], (MODULE_LEN - ENTRY_END) * 4);
    free(made);
}

static void check_kept(const uint32_t *code, size_t size, const vk_float_mode *mode) {
    size_t size_made = 0;
    uint32_t *made = vk_float_mode_add(code, size, mode, &size_made);
    assert_non_null(made);
    assert_int_equal(size_made, size);
    assert_memory_equal(made, code, size);
    free(made);
}

/* The module is not changed where no mode is requested, where its version is too old to have modes
 * without an extension, and where it is cut off. */
static void test_kept(void **state) {
    const vk_float_mode none = {0}, some = {.keeps_infinities = 32};
    uint32_t other[MODULE_LEN];
    (void)state;
    check_kept(module, sizeof module, &none);
    for (size_t n = 0; n < ENTRY_END; n++) {
        uint32_t *part = malloc(n * 4 + 1);
        assert_non_null(part);
        memcpy(part, module, n * 4);
        check_kept(part, n * 4, &some);
        free(part);
    }
    memcpy(other, module, sizeof module);
    other[1] = 0x00010300;
    check_kept(other, sizeof other, &some);
}

/* Without memory there is no module: one without the modes would compute something else. */
static void test_no_memory(void **state) {
    const vk_float_mode some = {.keeps_denormals = 16};
    size_t size = 0;
    (void)state;
    has_no_memory = true;
    uint32_t *made = vk_float_mode_add(module, sizeof module, &some, &size);
    has_no_memory = false;
    assert_null(made);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_widths), cmocka_unit_test(test_module),
                                       cmocka_unit_test(test_kept),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
