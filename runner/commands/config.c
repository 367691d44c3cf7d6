/* SPDX-License-Identifier: MIT
 *
 * config.c: `tandem config`: prints the effective configuration as an INI file, with the origin
 * of each value as a comment. Reading that file gives the same values.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runner/app.h"

#define COMMENT_COLUMN 36 /* of the origins, unless the value reaches beyond it */

/* Prints "key = text   # origin". `mark` is "", or "#" for a line that is a comment. */
static void print_line(FILE *out, const char *mark, const char *key, const char *text,
                       runner_origin origin) {
    char where[512];
    int n = fprintf(out, "%s%s = %s", mark, key, text);
    runner_origin_format(origin, where, sizeof where);
    for (char *at = where; *at != '\0'; at++)
        if ((unsigned char)*at < ' ') *at = '?'; /* the name of a file may contain a newline */
    int blanks = n >= 0 && n < COMMENT_COLUMN - 1 ? COMMENT_COLUMN - n : 1;
    fprintf(out, "%*s# %s\n", blanks, "", where);
}

/* Whether an earlier key of a plugin has the same name: outside of sections both are one key. */
static bool is_repeated(const runner_key_list *keys, size_t i) {
    for (size_t j = 0; j < i; j++)
        if (keys->items[i]->plugin != NULL && keys->items[j]->plugin != NULL &&
            strcmp(keys->items[i]->name, keys->items[j]->name) == 0)
            return true;
    return false;
}

/* Prints the keys that stand before any section, under their topics. */
static tdm_status print_defaults(runner_config *config, FILE *out, tdm_error *err) {
    const char *topic = "";
    const runner_key_list *keys = runner_config_keys(config);
    for (size_t i = 0; i < keys->n; i++) {
        const runner_key *key = keys->items[i];
        if ((key->sections & RUNNER_IN_DEFAULTS) == 0 || is_repeated(keys, i)) continue;
        if (strcmp(topic, key->topic) != 0) {
            topic = key->topic;
            fprintf(out, "\n# %s\n", topic);
        }
        char *text;
        tdm_status status = runner_config_format(config, NULL, key->name, &text, err);
        if (status != TDM_OK) return status;
        print_line(out, "", key->name, text, runner_config_get_origin(config, key->name));
        free(text);
    }
    return TDM_OK;
}

/* Prints the section of a device or group. A value that applies to it but is set elsewhere is
 * printed as a comment, because setting it in the section would change the meaning: a plugin takes
 * no key of another plugin, the shares in a section must be one for each member, and a group inside
 * another one takes values from its own section only. */
static tdm_status print_section(runner_config *config, const runner_section *section, bool is_main,
                                FILE *out, tdm_error *err) {
    bool is_group = runner_section_is_group(section);
    const runner_key_list *keys = runner_config_keys(config);
    const char *plugin =
        is_group ? RUNNER_GROUP_PLUGIN : runner_section_get_string(config, section, "plugin");
    fprintf(out, "\n[%s %s]\n", is_group ? "group" : "device", runner_section_name(section));
    for (size_t i = 0; i < keys->n; i++) {
        const runner_key *key = keys->items[i];
        runner_effective effective;
        if (key->plugin != NULL && strcmp(key->plugin, plugin) != 0) continue;
        if ((key->sections & (is_group ? RUNNER_IN_GROUP : RUNNER_IN_DEVICE)) == 0) continue;
        tdm_status status =
            runner_section_get_effective(config, section, key->name, is_main, &effective, err);
        if (status != TDM_OK) return status;
        print_line(out, effective.is_own ? "" : "#", key->name, effective.text, effective.origin);
        free(effective.text);
    }
    return TDM_OK;
}

tdm_status runner_cmd_config(runner_config *config, FILE *out, tdm_error *err) {
    errno = 0;
    runner_config_load_plugins(config, false);
    fputs("# Effective configuration: a flag beats a section, a section beats [*], and that beats\n"
          "# the built-in default. A line of a section with '#' before it counts there and comes "
          "from\n"
          "# elsewhere.\n",
          out);
    if (runner_config_model(config) != NULL)
        fprintf(out, "# With the values of [model %s].\n",
                runner_section_name(runner_config_model(config)));
    const char *name, *failure;
    for (size_t i = 0; (failure = runner_config_plugin_failure(config, i, &name)) != NULL; i++)
        fprintf(out, "# Without the options of the plugin '%s': %s\n", name, failure);
    tdm_status status = print_defaults(config, out, err);
    for (size_t i = 0; status == TDM_OK && i < runner_config_n_devices(config); i++)
        status = print_section(config, runner_config_device(config, i), false, out, err);
    const runner_section *picked = NULL;
    if (status == TDM_OK && runner_config_pick_device(config, &picked, NULL) != TDM_OK)
        picked = NULL; /* a command that needs the device reports the failure */
    for (size_t i = 0; status == TDM_OK && i < runner_config_n_groups(config); i++) {
        const runner_section *group = runner_config_group(config, i);
        if (runner_section_line(group) > 0)
            status = print_section(config, group, group == picked, out, err);
    }
    if (status == TDM_OK) status = runner_config_check(config, err);
    if (status == TDM_OK && (fflush(out) != 0 || ferror(out) != 0))
        status = tdm_fail(err, TDM_IO, "cannot write the configuration: %s",
                          errno != 0 ? strerror(errno) : "the output is closed");
    return status;
}

static tdm_status config_command(runner_app *app, tdm_error *err) {
    return runner_cmd_config(app->config, app->out, err);
}

const runner_command runner_command_config = {
    .name = "config",
    .summary = "print the effective configuration and where it came from",
    .run = config_command,
    .keys = RUNNER_KEYS_EVERY " *",
    .opens_devices = true,
};
