/* SPDX-License-Identifier: MIT
 *
 * matrix.c: see matrix.h.
 */
#include "plugins/vulkan/matrix.h"

enum {
    COMPONENT_F16 = 0, /* VK_COMPONENT_TYPE_FLOAT16_KHR */
    COMPONENT_F32 = 1,
    SCOPE_SUBGROUP = 3, /* VK_SCOPE_SUBGROUP_KHR */
    DEPTH = 16,         /* products of a sum: matrix.glsl */
    MAX_SHAPE = 256
};

/* VkCooperativeMatrixPropertiesKHR */
typedef struct shape {
    VkStructureType sType;
    void *pNext;
    uint32_t MSize, NSize, KSize;
    int32_t AType, BType, CType, ResultType; /* VkComponentTypeKHR */
    VkBool32 saturatingAccumulation;
    int32_t scope; /* VkScopeKHR */
} shape;

typedef VkResult(VKAPI_PTR *shapes_fn)(VkPhysicalDevice device, uint32_t *n, shape *shapes);

/* Whether the kernels can use matrices of this shape: tiles of 32 rows and 16 or 32 columns must be
 * whole matrices. Matrices of 8 rows and 8 columns are left out: the sums of a tile take 4 KiB of a
 * subgroup's registers, and devices whose largest matrices are so small (Intel before Xe2) have no
 * more than that. */
static bool is_usable(const shape *s) {
    bool has_rows = s->MSize == 8 || s->MSize == 16 || s->MSize == 32;
    bool has_columns = s->NSize == 8 || s->NSize == 16;
    uint32_t n_sum = s->MSize * s->NSize;
    return has_rows && has_columns && n_sum >= 128 && n_sum <= 256 && s->KSize == DEPTH &&
           s->AType == COMPONENT_F16 && s->BType == COMPONENT_F16 && s->CType == COMPONENT_F32 &&
           s->ResultType == COMPONENT_F32 && s->scope == SCOPE_SUBGROUP;
}

/* Chooses the largest shape: an operand that is read once is used in the most products. */
void vk_matrix_shape_read(const vk_driver *driver, vk_facts *facts) {
    shape shapes[MAX_SHAPE];
    uint32_t n = MAX_SHAPE;
    shapes_fn read = (shapes_fn)driver->GetInstanceProcAddr(
        driver->instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    if (read == NULL) return;
    for (int i = 0; i < MAX_SHAPE; i++) shapes[i] = (shape){.sType = VK_MATRIX_SHAPE_TYPE};
    VkResult result = read(facts->physical, &n, shapes);
    if (result != VK_SUCCESS && result != VK_INCOMPLETE) return;
    for (uint32_t i = 0; i < n && i < MAX_SHAPE; i++) {
        int32_t rows = (int32_t)shapes[i].MSize, columns = (int32_t)shapes[i].NSize;
        if (!is_usable(&shapes[i]) || rows * columns <= facts->matrix_rows * facts->matrix_columns)
            continue;
        facts->matrix_rows = rows;
        facts->matrix_columns = columns;
    }
}
