/* SPDX-License-Identifier: MIT
 *
 * plugin.c: the entry of the CPU plugin, its instances, and the table of its options. All state
 * belongs to an instance or a device, never to the plugin: several hosts may load the plugin at the
 * same time, and nothing remains when it is unloaded.
 */
#include <sched.h>

#include "plugins/cpu/buffer.h"
#include "plugins/cpu/device.h"
#include "plugins/cpu/exec/queue.h"
#include "plugins/cpu/machine/isa.h"

static tdm_status plugin_init(const tdm_host *host, tdm_instance **instance_out, tdm_error *err) {
    tdm_instance *instance = host->alloc(host->context, sizeof *instance, 0);
    if (instance == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "cpu: no memory");
    instance->host = host;
    *instance_out = instance;
    return TDM_OK;
}

static void plugin_deinit(tdm_instance *instance) {
    if (instance == NULL) return;
    const tdm_host *host = instance->host;
    host->free(host->context, instance, sizeof *instance);
}

/* ---- Options; device.c reads their values. It also accepts exchange-timeout, for tests ---- */

static const char *const path_words[] = {"fast", "reference", NULL};
static const char *const activation_words[] = {"auto", "15", "8", NULL};

static const tdm_option_desc options[] = {
    {.name = "threads",
     .short_flag = "t",
     .help = "threads of a CPU device; auto = one for each core that it may use",
     .default_value = "auto",
     .value_name = "N",
     .min = 1,
     .max = CPU_MAX_THREADS,
     .kind = TDM_OPTION_INT,
     .flags = TDM_OPTION_HAS_AUTO},
    {.name = "cores",
     .help = "cores that a CPU device runs on, such as 0-3,5; empty = any",
     .value_name = "LIST",
     .max = CPU_SETSIZE - 1,
     .kind = TDM_OPTION_INTS},
    {.name = "isa",
     .help = "instruction set of a CPU device's kernels; auto = the best available",
     .default_value = "auto",
     .words = cpu_isa_words,
     .kind = TDM_OPTION_WORD},
    {.name = "path",
     .help = "reference = plain f32 arithmetic, slow, the reference for the fast kernels",
     .default_value = "fast",
     .words = path_words,
     .kind = TDM_OPTION_WORD},
    {.name = "activation-bits",
     .help = "bits of activations in products with quantised weights, and of queries on quantised "
             "keys; auto = 8 for prompts, 15 for generated tokens",
     .default_value = "auto",
     .words = activation_words,
     .kind = TDM_OPTION_WORD},
};

static const tdm_option_table option_table = {
    .struct_size = sizeof(tdm_option_table),
    .desc_size = sizeof(tdm_option_desc),
    .descs = options,
    .n_desc = sizeof options / sizeof options[0],
};

static const tdm_plugin cpu_plugin = {
    .struct_size = sizeof(tdm_plugin),
    .name = "cpu",
    .version = "0.1.0",
    .licence = "MIT",
    .init = plugin_init,
    .deinit = plugin_deinit,
    .device = &cpu_device_ops,
    .buffer = &cpu_buffer_ops,
    .queue = &cpu_queue_ops,
    .split = &cpu_split_ops,
    .options = &option_table,
};

tdm_status tdm_plugin_entry_v0(const tdm_host *host, const tdm_plugin **plugin_out,
                               tdm_error *err) {
    if (host == NULL || !TDM_HAS(host, alloc) || !TDM_HAS(host, free))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "cpu: the host offers no memory (alloc, free)");
    *plugin_out = &cpu_plugin;
    return TDM_OK;
}
