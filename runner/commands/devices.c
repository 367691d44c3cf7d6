/* SPDX-License-Identifier: MIT
 *
 * devices.c: `tandem devices`: prints the plugins and their devices, and the reason for each plugin
 * that cannot be loaded (a warning) or has no device. Plugins enumerate their devices with the
 * options that are given, such as --allow-cpu. The [device NAME] sections of a file follow, each
 * with its own keys. Opens no device.
 */
#include <string.h>

#include "runner/roster.h"
#include "runner/session.h"

enum { OPTIONS_MAX = 32 };

#define ROW "%-12s %-10s %-6s %-24s %s\n"

/* "3.10 GiB of 7.75 GiB", "7.75 GiB", "unknown" */
static void memory_format(const tdm_device_info *info, char *text, size_t text_size) {
    char memory_free[32], total[32];
    runner_bytes_format(info->memory_free, memory_free, sizeof memory_free);
    runner_bytes_format(info->memory_total, total, sizeof total);
    if (info->memory_total == 0)
        snprintf(text, text_size, "unknown");
    else if (info->memory_free == 0)
        snprintf(text, text_size, "%s", total);
    else
        snprintf(text, text_size, "%s of %s", memory_free, total);
}

/* The rest of the device's properties, printed behind its description: ", 8 threads, 40.1 GB/s". */
static void extras_format(const tdm_device_info *info, bool is_verbose, char *text,
                          size_t text_size) {
    size_t n = 0;
    text[0] = '\0';
    if (info->vendor[0] != '\0' && strstr(info->description, info->vendor) == NULL)
        n += (size_t)snprintf(text + n, text_size - n, ", %s", info->vendor);
    if (info->pci_address[0] != '\0')
        n += (size_t)snprintf(text + n, text_size - n, ", PCI %s", info->pci_address);
    if (is_verbose && info->has_uuid != 0) {
        char uuid[TDM_UUID_TEXT_SIZE];
        tdm_uuid_format(info->uuid, uuid);
        n += (size_t)snprintf(text + n, text_size - n, ", UUID %s", uuid);
    }
    if (info->n_thread > 0)
        n += (size_t)snprintf(text + n, text_size - n, ", %d threads", (int)info->n_thread);
    if (info->bandwidth > 0)
        n +=
            (size_t)snprintf(text + n, text_size - n, ", %.1f GB/s", (double)info->bandwidth / 1e9);
    if (info->max_buffer > 0) {
        char size[32];
        runner_bytes_format(info->max_buffer, size, sizeof size);
        n += (size_t)snprintf(text + n, text_size - n, ", buffers up to %s", size);
    }
    if ((info->flags & TDM_DEVICE_IS_GROUP) != 0)
        n += (size_t)snprintf(text + n, text_size - n, ", group");
    if ((info->flags & TDM_DEVICE_IS_INTEGRATED) != 0)
        snprintf(text + n, text_size - n, ", integrated");
}

static void device_print(const runner_app *app, const char *name, const char *plugin,
                         int32_t device_index, const tdm_device_info *info) {
    char index[16], memory[80], extras[256], text[sizeof info->description + sizeof extras];
    snprintf(index, sizeof index, "%d", (int)device_index);
    memory_format(info, memory, sizeof memory);
    extras_format(info, runner_config_is_verbose(app->config), extras, sizeof extras);
    snprintf(text, sizeof text, "%s%s", info->description, extras);
    fprintf(app->out, ROW, name, plugin, index, memory, text);
}

/* Prints the devices of a plugin, enumerated with the options that flags and [*] give. */
static tdm_status plugin_print(runner_app *app, tdm_runtime *rt, int32_t plugin, tdm_error *err) {
    const char *name = tdm_runtime_plugin(rt, plugin)->name;
    tdm_option options[OPTIONS_MAX];
    size_t n_option =
        runner_section_get_options(app->config, NULL, name, false, options, OPTIONS_MAX);
    int32_t n_device = 0;
    tdm_error reason = {0};
    if (n_option > OPTIONS_MAX)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "%s: more than %d options", name, OPTIONS_MAX);
    const tdm_device_params params = {
        .struct_size = sizeof params, .n_option = (int32_t)n_option, .options = options};
    if (tdm_runtime_device_count(rt, plugin, &params, &n_device, &reason) != TDM_OK) n_device = 0;
    if (n_device == 0)
        fprintf(app->out, ROW, "-", name, "-", "-",
                reason.message[0] != '\0' ? reason.message
                                          : "no devices; the plugin gives no reason");
    for (int32_t i = 0; i < n_device; i++) {
        tdm_device_info info;
        tdm_status status = tdm_runtime_device_describe(rt, plugin, i, &params, &info, err);
        if (status != TDM_OK) return status;
        device_print(app, info.name, name, i, &info);
    }
    return TDM_OK;
}

/* Prints the [device NAME] sections of the file, found by their own keys, as by a command that
 * opens them. */
static tdm_status sections_print(runner_app *app, tdm_runtime *rt, tdm_error *err) {
    runner_roster roster = {.app = app, .rt = rt};
    tdm_status status = TDM_OK;
    const size_t n = runner_config_n_devices(app->config);
    if (n > 0)
        fprintf(app->out, "\n" ROW, "section", "plugin", "index", "memory free", "description");
    for (size_t i = 0; i < n && status == TDM_OK; i++) {
        const runner_section *section = runner_config_device(app->config, i);
        const char *name = runner_section_name(section);
        const char *plugin = runner_section_get_string(app->config, section, "plugin");
        int32_t index = 0;
        tdm_device_info info;
        tdm_error why = {0};
        status = runner_roster_declare_section(&roster, section, false, err);
        if (status != TDM_OK) break;
        if (tdm_runtime_describe(rt, name, &index, &info, &why) == TDM_OK)
            device_print(app, name, plugin, index, &info);
        else
            fprintf(app->out, ROW, name, plugin, "-", "-", why.message);
    }
    runner_roster_clear(&roster);
    return status;
}

static tdm_status devices_command(runner_app *app, tdm_error *err) {
    tdm_runtime *rt = NULL;
    int32_t n_plugin = 0;
    tdm_status status = runner_runtime_create(app, &rt, err);
    if (status == TDM_OK) status = runner_config_check(app->config, err);
    if (status == TDM_OK) status = tdm_runtime_load_all(rt, &n_plugin, err);
    if (status == TDM_OK && n_plugin == 0)
        status = tdm_fail(err, TDM_NOT_FOUND,
                          "no plugin was found: set plugin-path or TANDEM_PLUGIN_PATH to a folder "
                          "that has some, such as lib/tandem/plugins of an installation");
    if (status == TDM_OK)
        fprintf(app->out, ROW, "device", "plugin", "index", "memory free", "description");
    for (int32_t i = 0; i < n_plugin && status == TDM_OK; i++)
        status = plugin_print(app, rt, i, err);
    if (status == TDM_OK) status = sections_print(app, rt, err);
    for (int32_t i = 0; i < n_plugin && status == TDM_OK; i++)
        fprintf(app->out, "%splugin %s %s (%s)\n", i == 0 ? "\n" : "",
                tdm_runtime_plugin(rt, i)->name,
                TDM_HAS(tdm_runtime_plugin(rt, i), version) ? tdm_runtime_plugin(rt, i)->version
                                                            : "of unknown version",
                tdm_runtime_plugin_file(rt, i));
    tdm_runtime_destroy(rt);
    return status;
}

const runner_command runner_command_devices = {
    .name = "devices",
    .summary = "list plugins and the devices they found",
    .run = devices_command,
    .opens_devices = true,
    .keys = RUNNER_KEYS_EVERY " plugin-path",
};
