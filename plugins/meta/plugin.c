/* SPDX-License-Identifier: MIT
 *
 * plugin.c: the entry of the meta plugin, its instances, and the table of its options. An instance
 * holds the host's table and the registry of the devices that are members of groups
 * (exec/claims.h). The state of a group is in its device (device.c).
 */
#include "plugins/meta/buffer.h"
#include "plugins/meta/device.h"
#include "plugins/meta/exec/queue.h"
#include "plugins/meta/split.h"

static tdm_status plugin_init(const tdm_host *host, tdm_instance **instance_out, tdm_error *err) {
    tdm_instance *instance = meta_alloc(host, sizeof *instance);
    if (instance == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "meta: no memory");
    instance->host = host;
    tdm_status status = meta_registry_create(host, &instance->registry, err);
    if (status != TDM_OK) {
        meta_free(host, instance, sizeof *instance);
        return status;
    }
    *instance_out = instance;
    return TDM_OK;
}

static void plugin_deinit(tdm_instance *instance) {
    if (instance == NULL) return;
    meta_registry_destroy(&instance->registry);
    meta_free(instance->host, instance, sizeof *instance);
}

/* ---- Options ----
 * A host reads `members`, `share`, `split` and `reserve` itself, because it opens the members; so
 * they are not in the table. options.c reads the values that open receives. */

static const tdm_option_desc options[] = {
    {.name = "reduce-type",
     .help = "type in which partial sums travel between members",
     .default_value = "f32",
     .words = meta_reduce_words,
     .kind = TDM_OPTION_WORD},
    {.name = "attention",
     .help = "how the cache and attention are cut: by KV heads (heads; members beyond their number "
             "get none), with heads held by all that need a part of them (replicate), or by tokens "
             "(sequence); auto = chosen by the number of heads and the size of the cache",
     .default_value = "heads",
     .words = meta_attention_words,
     .kind = TDM_OPTION_WORD},
    {.name = "experts",
     .help = "cut every expert along its hidden dimension, or assign whole experts to members",
     .default_value = "hidden",
     .words = meta_experts_words,
     .kind = TDM_OPTION_WORD},
    {.name = "check",
     .help = "replicas = compare the copies that members hold while running; slow",
     .default_value = "off",
     .words = meta_check_words,
     .kind = TDM_OPTION_WORD},
    {.name = "allow-duplicate",
     .help = "yes = one card may be two members, seen by two plugins or opened twice; its plans "
             "are then cut at exchanges",
     .default_value = "no",
     .kind = TDM_OPTION_BOOL},
    {.name = "exchange-memory",
     .help = "where members exchange: in host memory, or in memory of one of them that all others "
             "reach (peer); auto = peer where a test at open shows that it works and is faster",
     .default_value = "auto",
     .words = meta_exchange_memory_words,
     .kind = TDM_OPTION_WORD},
    {.name = "timeout",
     .help = "seconds after which a member that does not respond counts as failed",
     .default_value = META_DEFAULT_TIMEOUT,
     .value_name = "SECONDS",
     .min = 1,
     .max = META_MAX_TIMEOUT,
     .kind = TDM_OPTION_INT},
};

static const tdm_option_table option_table = {
    .struct_size = sizeof(tdm_option_table),
    .desc_size = sizeof(tdm_option_desc),
    .descs = options,
    .n_desc = sizeof options / sizeof options[0],
};

static const tdm_plugin meta_plugin = {
    .struct_size = sizeof(tdm_plugin),
    .name = "meta",
    .version = "0.1.0",
    .licence = "MIT",
    .init = plugin_init,
    .deinit = plugin_deinit,
    .device = &meta_device_ops,
    .buffer = &meta_buffer_ops,
    .queue = &meta_queue_ops,
    .split = &meta_split_ops,
    .options = &option_table,
};

tdm_status tdm_plugin_entry_v0(const tdm_host *host, const tdm_plugin **plugin_out,
                               tdm_error *err) {
    if (host == NULL || !TDM_HAS(host, alloc) || !TDM_HAS(host, free) || !TDM_HAS(host, log))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "meta: the host offers no memory or log (alloc, free, log)");
    *plugin_out = &meta_plugin;
    return TDM_OK;
}
