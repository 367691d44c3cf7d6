/* SPDX-License-Identifier: MIT
 *
 * cmd_config.c: `tandem config`: the effective configuration, written as an INI file that means
 * the same when it is read back, with the origin of each value behind it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runner/config.h"

#define COMMENT_COLUMN 36 /* where origins stand, unless a value is longer */

static void print_line(FILE *out, const char *key, const char *text, runner_origin origin) {
    char where[512];
    int n = fprintf(out, "%s = %s", key, text);
    runner_origin_format(origin, where, sizeof where);
    int blanks = n >= 0 && n < COMMENT_COLUMN - 1 ? COMMENT_COLUMN - n : 1;
    fprintf(out, "%*s# %s\n", blanks, "", where);
}

static tdm_status print_setting(runner_config *config, const runner_section *section,
                                const char *key, FILE *out, tdm_error *err) {
    char *text;
    tdm_status status = runner_config_format(config, section, key, &text, err);
    if (status != TDM_OK) return status;
    print_line(out, key, text, runner_section_get_origin(config, section, key));
    free(text);
    return TDM_OK;
}

/* Values from outside a group's section count for the group that commands run on; in another one they
 * would be read back as its own. */
static void print_group(runner_config *config, const runner_section *group, bool is_main,
                        FILE *out) {
    fprintf(out, "\n[group %s]\n", runner_section_name(group));
    for (size_t i = 0; i < n_runner_keys; i++) {
        const runner_key *key = &runner_keys[i];
        runner_origin origin;
        if ((key->sections & RUNNER_IN_GROUP) == 0) continue;
        const char *text =
            runner_section_get_group_text(config, group, key->name, is_main, &origin);
        print_line(out, key->name, text, origin);
    }
}

/* All keys of the table that may stand in `sections`, under their topics where those are wanted. */
static tdm_status print_settings(runner_config *config, const runner_section *section,
                                 unsigned sections, bool with_topics, FILE *out, tdm_error *err) {
    const char *topic = "";
    for (size_t i = 0; i < n_runner_keys; i++) {
        const runner_key *key = &runner_keys[i];
        if ((key->sections & sections) == 0) continue;
        if (with_topics && strcmp(topic, key->topic) != 0) {
            topic = key->topic;
            fprintf(out, "\n# %s\n", topic);
        }
        tdm_status status = print_setting(config, section, key->name, out, err);
        if (status != TDM_OK) return status;
    }
    return TDM_OK;
}

tdm_status runner_cmd_config(runner_config *config, FILE *out, tdm_error *err) {
    errno = 0;
    fputs("# Effective configuration: a flag beats a section, a section beats [*], and that beats\n"
          "# the built-in default.\n",
          out);
    if (runner_config_model(config) != NULL)
        fprintf(out, "# With the values of [model %s].\n",
                runner_section_name(runner_config_model(config)));
    tdm_status status = print_settings(config, NULL, RUNNER_IN_DEFAULTS, true, out, err);
    for (size_t i = 0; status == TDM_OK && i < runner_config_n_devices(config); i++) {
        const runner_section *device = runner_config_device(config, i);
        fprintf(out, "\n[device %s]\n", runner_section_name(device));
        status = print_settings(config, device, RUNNER_IN_DEVICE, false, out, err);
    }
    const runner_section *picked = NULL;
    if (status == TDM_OK && runner_config_pick_device(config, &picked, NULL) != TDM_OK)
        picked = NULL; /* the command that is to run on it will say what is wrong */
    for (size_t i = 0; status == TDM_OK && i < runner_config_n_groups(config); i++) {
        const runner_section *group = runner_config_group(config, i);
        if (runner_section_line(group) > 0) print_group(config, group, group == picked, out);
    }
    if (status == TDM_OK) status = runner_config_check(config, err);
    if (status == TDM_OK && (fflush(out) != 0 || ferror(out) != 0))
        status = tdm_fail(err, TDM_IO, "cannot write the configuration: %s",
                          errno != 0 ? strerror(errno) : "the output is closed");
    return status;
}
