/* SPDX-License-Identifier: MIT
 *
 * config_group.c: groups of devices: checks of [group NAME], groups made from several names, and
 * the options of the plugin that runs them. Members are names here; roster.c declares them.
 */
#include <stdlib.h>
#include <string.h>

#include "runner/config/config_state.h"
#include "tandem/split.h"

#define HEIGHT_MAX 8 /* groups inside one another; no limit of the ABI, but it bounds recursion */

/* The program's key of groups called `name`: members, share or split. */
static const runner_key *group_key(const runner_config *config, const char *name) {
    return runner_key_find_in(&config->keys, name, RUNNER_IN_GROUP);
}

static const runner_value *members_of(const runner_section *group) {
    static const runner_value none;
    const runner_setting *at = group->settings;
    while (at != NULL && strcmp(at->key->name, "members") != 0) at = at->next;
    return at != NULL ? &at->value : &none;
}

bool runner_section_has_member(const runner_section *group, const char *name) {
    const runner_value *members = members_of(group);
    for (size_t i = 0; i < members->n; i++)
        if (strcmp(members->items[i].s, name) == 0) return true;
    return false;
}

/* Sets group->height, and fails for a group that contains itself: -1 marks the groups that are
 * being visited. `depth`: groups around this one. */
static tdm_status height_find(const runner_config *config, runner_section *group, int depth,
                              tdm_error *err) {
    const runner_setting *members =
        runner_settings_find(group->settings, group_key(config, "members"));
    group->height = -1;
    int height = 1;
    for (size_t i = 0; i < members->value.n; i++) {
        const char *name = members->value.items[i].s;
        runner_section *inner = runner_config_find_section(config, RUNNER_SECTION_GROUP, name);
        if (inner == NULL) continue;
        if (inner->height < 0)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "%s:%d: [group %s] has [group %s] for a member, which has it for a "
                            "member too, directly or through others; take it out of one of them",
                            config->file, members->origin.line, group->name, name);
        if (inner->height == 0 && depth + 1 >= HEIGHT_MAX)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "%s:%d: [group %s]: groups inside one another, more than %d deep",
                            config->file, members->origin.line, group->name, HEIGHT_MAX);
        tdm_status status =
            inner->height == 0 ? height_find(config, inner, depth + 1, err) : TDM_OK;
        if (status != TDM_OK) return status;
        if (inner->height + 1 > height) height = inner->height + 1;
    }
    if (height > HEIGHT_MAX)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s:%d: [group %s]: groups inside one another, more than %d deep",
                        config->file, members->origin.line, group->name, HEIGHT_MAX);
    group->height = height;
    return TDM_OK;
}

tdm_status runner_group_check(const runner_config *config, runner_section *group, tdm_error *err) {
    const runner_setting *members =
        runner_settings_find(group->settings, group_key(config, "members"));
    const runner_setting *share = runner_settings_find(group->settings, group_key(config, "share"));
    if (members->value.n > TDM_MAX_MEMBERS)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s:%d: [group %s] has %zu members; the most is %d; make groups of groups",
                        config->file, members->origin.line, group->name, members->value.n,
                        TDM_MAX_MEMBERS);
    for (size_t i = 0; i < members->value.n; i++)
        if (strcmp(members->value.items[i].s, "auto") == 0)
            return tdm_fail(
                err, TDM_INVALID_ARGUMENT,
                "%s:%d: members of [group %s]: 'auto' is not a device; name the members",
                config->file, members->origin.line, group->name);
    if (share != NULL && !share->value.is_auto && share->value.n != members->value.n)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s:%d: 'share' has %zu number%s for the %zu member%s of [group %s]; "
                        "give one for each, or auto",
                        config->file, share->origin.line, share->value.n,
                        share->value.n == 1 ? "" : "s", members->value.n,
                        members->value.n == 1 ? "" : "s", group->name);
    return group->height == 0 ? height_find(config, group, 0, err) : TDM_OK;
}

/* ---- Groups that are not in the file ---- */

/* The members with '+' between them, which no section's name contains. */
static char *name_join(const runner_value *members) {
    size_t size = 1;
    for (size_t i = 0; i < members->n; i++) size += strlen(members->items[i].s) + 1;
    char *name = calloc(1, size);
    for (size_t i = 0; name != NULL && i < members->n; i++) {
        if (i > 0) strcat(name, "+");
        strcat(name, members->items[i].s);
    }
    return name;
}

tdm_status runner_config_make_group(runner_config *config, const char *name, const char *members,
                                    const runner_section **group_out, tdm_error *err) {
    runner_setting *setting = NULL;
    runner_section *group = NULL;
    char *text = strdup(members), *joined = NULL;
    if (text == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a group");
    for (char *at = text; *at != '\0'; at++)
        if (*at == '/') *at = ',';
    runner_origin origin = runner_config_get_origin(config, "device");
    /* A message names the key that the user wrote. */
    runner_key written = *group_key(config, "members");
    written.name = "device";
    runner_value checked = {0};
    tdm_status status = runner_value_parse(&written, text, true, &checked, err);
    runner_value_clear(&checked);
    if (status == TDM_OK)
        status =
            runner_setting_make(group_key(config, "members"), text, true, origin, &setting, err);
    free(text);
    if (status != TDM_OK) return status;
    const runner_value *value = &setting->value;
    if (value->n > TDM_MAX_MEMBERS)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "%zu devices; a group has at most %d",
                          value->n, TDM_MAX_MEMBERS);
    for (size_t i = 0; status == TDM_OK && i < value->n; i++)
        if (strcmp(value->items[i].s, "auto") == 0)
            status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                              "'auto' stands alone, or names the devices itself");
    if (status == TDM_OK && name == NULL && (name = joined = name_join(value)) == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a group");
    if (status == TDM_OK) {
        group = runner_config_find_section(config, RUNNER_SECTION_GROUP, name);
        bool is_new = group == NULL;
        if (is_new)
            status = runner_config_add_section(config, RUNNER_SECTION_GROUP, name, 0, &group, err);
        if (status == TDM_OK && is_new) {
            runner_settings_put(&group->settings, setting);
            setting = NULL;
        }
    }
    free(joined);
    runner_setting_destroy(setting);
    if (status == TDM_OK) *group_out = group;
    return status;
}

/* ---- Options for the plugin ---- */

bool runner_section_is_undivided(runner_config *config, const runner_section *group, bool is_main) {
    return strcmp(runner_group_setting(config, group, group_key(config, "split"), is_main)->text,
                  "none") == 0;
}

typedef struct option_writer {
    runner_group_options *options;
    size_t at; /* next byte of the text */
    bool is_full;
} option_writer;

static void option_begin(option_writer *w, const char *key) {
    runner_group_options *o = w->options;
    if ((size_t)o->n == sizeof o->items / sizeof o->items[0]) {
        w->is_full = true;
        return;
    }
    o->items[o->n++] = (tdm_option){key, o->text + w->at};
}

TDM_PRINTF(2, 3) static void option_print(option_writer *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    size_t room = sizeof w->options->text - w->at;
    int n = vsnprintf(w->options->text + w->at, room, format, args);
    va_end(args);
    if (n < 0 || (size_t)n + 1 >= room) /* option_end adds a NUL */
        w->is_full = true;
    else
        w->at += (size_t)n;
}

static void option_end(option_writer *w) {
    w->options->text[w->at] = '\0';
    if (w->at + 1 < sizeof w->options->text) w->at++;
}

static tdm_status share_write(runner_config *config, const runner_section *group, bool is_main,
                              option_writer *w, tdm_error *err) {
    const runner_setting *share =
        runner_group_setting(config, group, group_key(config, "share"), is_main);
    size_t n_member = members_of(group)->n;
    option_begin(w, "share");
    if (share->value.is_auto) {
        option_print(w, "auto");
    } else if (share->value.n != n_member) {
        return runner_config_fail(config, "share", TDM_INVALID_ARGUMENT, err,
                                  "%zu number%s for the %zu member%s of the group '%.64s'; give "
                                  "one for each, or auto",
                                  share->value.n, share->value.n == 1 ? "" : "s", n_member,
                                  n_member == 1 ? "" : "s", group->name);
    } else {
        for (size_t i = 0; i < n_member; i++)
            option_print(w, "%s%.9g", i > 0 ? "," : "", share->value.items[i].f);
    }
    option_end(w);
    return TDM_OK;
}

/* Writes the reserve of each member, if any has one. A group has none of its own; its members
 * have. */
static void reserve_write(runner_config *config, const runner_section *group, option_writer *w) {
    const runner_value *members = members_of(group);
    uint64_t reserves[TDM_MAX_MEMBERS] = {0};
    bool is_any = false;
    for (size_t i = 0; i < members->n && i < TDM_MAX_MEMBERS; i++) {
        const runner_section *member = runner_config_find_name(config, members->items[i].s);
        if (runner_section_is_group(member)) continue;
        reserves[i] = runner_section_get_size(config, member, "reserve");
        is_any = is_any || reserves[i] > 0;
    }
    if (!is_any) return;
    option_begin(w, "reserve");
    for (size_t i = 0; i < members->n && i < TDM_MAX_MEMBERS; i++)
        option_print(w, "%s%llu", i > 0 ? "," : "", (unsigned long long)reserves[i]);
    option_end(w);
}

tdm_status runner_section_get_group_options(runner_config *config, const runner_section *group,
                                            bool is_main, runner_group_options *options,
                                            tdm_error *err) {
    option_writer w = {.options = options};
    const runner_value *members = members_of(group);
    options->n = 0;
    option_begin(&w, "members");
    for (size_t i = 0; i < members->n; i++)
        option_print(&w, "%s%s", i > 0 ? "," : "", members->items[i].s);
    option_end(&w);
    if (runner_section_is_undivided(config, group, is_main))
        return tdm_fail(
            err, TDM_INVALID_ARGUMENT,
            "[group %.64s]: `split = none` is for the group that a command runs on, not "
            "for one inside another; name its first member instead",
            group->name);
    tdm_status status = share_write(config, group, is_main, &w, err);
    if (status != TDM_OK) return status;
    option_begin(&w, "split");
    option_print(&w, "%s",
                 runner_group_setting(config, group, group_key(config, "split"), is_main)->text);
    option_end(&w);
    reserve_write(config, group, &w);
    size_t capacity = sizeof options->items / sizeof options->items[0] - (size_t)options->n;
    size_t n = runner_section_get_options(config, group, RUNNER_GROUP_PLUGIN, is_main,
                                          options->items + options->n, capacity);
    if (n > capacity)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "[group %.64s]: more than %zu options", group->name,
                        capacity);
    options->n += (int32_t)n;
    if (w.is_full)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "[group %.64s]: the names of its members are too long", group->name);
    return TDM_OK;
}
