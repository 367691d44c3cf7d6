/* SPDX-License-Identifier: MIT
 *
 * denormal.c: see denormal.h. The row is one block of q8_0 whose scale is the least denormal
 * number.
 */
#include "plugins/vulkan/denormal.h"

#include <stdlib.h>
#include <string.h>

#include "plugins/vulkan/plan.h"
#include "tandem/block.h"

enum {
    LEN = 32, /* elements of the row */
    ID_AT = 64,
    ROW_AT = 128,
    SIZE = ROW_AT + LEN * 4, /* of the buffer; the block lies at 0 */
    CODE = 127
};

static gpu_plan *steps_make(int32_t group_size) {
    gpu_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) return NULL;
    plan->steps = calloc(1, sizeof *plan->steps);
    plan->slot_sizes = calloc(1, sizeof *plan->slot_sizes);
    if (plan->steps == NULL || plan->slot_sizes == NULL) {
        gpu_plan_destroy(plan);
        return NULL;
    }
    plan->n_step = plan->n_slot = 1;
    plan->slot_sizes[0] = SIZE;
    *plan->steps = (gpu_step){.kernel = GPU_KERNEL_GET_ROWS,
                              .group_size = group_size,
                              .grid = {1, 1, 1},
                              .spec = {TDM_TYPE_Q8_0},
                              .word = {LEN, 1, 1, 0, 0, 1, 1, 1},
                              .operand = {{GPU_SPACE_SLOT, 0, ROW_AT, LEN * 4},
                                          {GPU_SPACE_SLOT, 0, 0, sizeof(tdm_block_q8_0)},
                                          {GPU_SPACE_SLOT, 0, ID_AT, 4}}};
    return plan;
}

/* The first element of the row as the device computes it. Uses no queue, since that would need the
 * host's semaphores while a device is opened. */
static tdm_status row_compute(vk_device *device, tdm_buffer *buffer, float *element_out,
                              tdm_error *err) {
    const tdm_binding binding = {buffer, 0, SIZE};
    /* Tests use a scale of 0: the result is that of a device that takes denormal numbers for 0. */
    tdm_block_q8_0 block = {.d = device->options.has_denormals ? 1 : 0};
    uint8_t bytes[SIZE];
    tdm_plan *plan = NULL;
    gpu_scratch_pool pool;
    memset(bytes, 0x5a, sizeof bytes);
    memset(block.qs, CODE, sizeof block.qs);
    memcpy(bytes, &block, sizeof block);
    memset(bytes + ID_AT, 0, 4);
    tdm_status status = vk_buffer_ops.upload(buffer, 0, bytes, SIZE, err);
    if (status != TDM_OK) return status;
    gpu_plan *steps = steps_make(device->target.subgroup_max);
    if (steps == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    gpu_scratch_pool_init(&pool, &vk_scratch_driver, device, device->name);
    status = vk_plan_of_steps(device, &pool, steps, &plan, err);
    if (status == TDM_OK) status = vk_plan_bind(plan, &binding, 1, err);
    for (int32_t i = 0; status == TDM_OK && i < plan->n_part; i++)
        status = vk_commands_run(device, plan->parts[i].commands, err);
    if (status == TDM_OK) status = vk_buffer_ops.download(buffer, ROW_AT, element_out, 4, err);
    vk_plan_destroy(plan);
    gpu_scratch_pool_destroy(&pool);
    return status;
}

tdm_status vk_denormals_check(vk_device *device, tdm_error *err) {
    const tdm_buffer_params params = {
        .struct_size = sizeof params, .size = SIZE, .purpose = TDM_BUFFER_COMPUTE};
    tdm_buffer *buffer = NULL;
    float element = 1;
    if ((device->facts->float_mode.keeps_denormals & 16) != 0 && device->options.has_denormals)
        return TDM_OK;
    tdm_status status = vk_buffer_ops.alloc(device, &params, &buffer, err);
    if (status == TDM_OK) status = row_compute(device, buffer, &element, err);
    vk_buffer_ops.free(buffer);
    if (status != TDM_OK || element != 0) return status;
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "%s (%s, %s): the device takes denormal f16 numbers for 0, which scales of "
                    "quantised weights are: it would compute zeros",
                    device->name, device->facts->properties.deviceName, device->facts->driver);
}
