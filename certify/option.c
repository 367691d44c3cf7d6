/* SPDX-License-Identifier: MIT
 *
 * option.c: checks of the table of options that a plugin describes (tandem/option.h): its rows are
 * valid, it does not change, and devices open with the defaults in it.
 */
#include "certify/suite.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_SIZE = 31 };

static const char letters[] = "abcdefghijklmnopqrstuvwxyz";

static bool text_is_clean(const char *text) {
    for (; *text != 0; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) return false;
    return true;
}

static bool name_is_valid(const char *name) {
    size_t size = strlen(name);
    return size > 0 && size <= NAME_MAX_SIZE && strchr(letters, name[0]) != NULL &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == size;
}

static bool has_word(const tdm_option_desc *desc, const char *text) {
    size_t i = 0;
    while (desc->words[i] != NULL && strcmp(desc->words[i], text) != 0) i++;
    return desc->words[i] != NULL;
}

/* Whether a number is within the limits of the option. */
static bool is_within(const tdm_option_desc *desc, double value) {
    return (desc->min == 0 && desc->max == 0) || (value >= desc->min && value <= desc->max);
}

/* Whole numbers separated by ',' or, for a range, '-'; each within the limits. */
static bool list_is_valid(const tdm_option_desc *desc, const char *text) {
    while (*text != 0) {
        char *end;
        if (*text < '0' || *text > '9') return false;
        if (!is_within(desc, (double)strtoll(text, &end, 10))) return false;
        text = end;
        if (*text == 0) return true;
        if (*text != ',' && *text != '-') return false;
        text++;
    }
    return false;
}

/* Whether the default is a value that the table allows. */
static bool default_is_valid(const tdm_option_desc *desc) {
    const char *text = desc->default_value;
    char *end = NULL;
    if (text == NULL || text[0] == 0) return true;
    if ((desc->flags & TDM_OPTION_HAS_AUTO) != 0 && strcmp(text, "auto") == 0) return true;
    double value;
    switch (desc->kind) {
    case TDM_OPTION_BOOL: return strcmp(text, "yes") == 0 || strcmp(text, "no") == 0;
    case TDM_OPTION_WORD: return has_word(desc, text);
    case TDM_OPTION_INTS: return list_is_valid(desc, text);
    case TDM_OPTION_INT: value = (double)strtoll(text, &end, 10); break;
    case TDM_OPTION_REAL: value = strtod(text, &end); break;
    case TDM_OPTION_SIZE: {
        static const char units[] = "KMGT";
        value = (double)strtoull(text, &end, 10);
        const char *unit = *end != 0 ? strchr(units, *end) : NULL;
        for (const char *u = units; unit != NULL && u <= unit; u++) value *= 1024;
        if (unit != NULL) end++;
        break;
    }
    default: return text_is_clean(text);
    }
    return end != text && *end == 0 && is_within(desc, value);
}

/* The defect of a description; NULL = none. */
static const char *desc_fault(const tdm_option_desc *desc) {
    if (desc->name == NULL || !name_is_valid(desc->name)) return "its name is not a valid key";
    if (desc->kind < 0 || desc->kind >= TDM_OPTION_KIND_COUNT_) return "it has no known kind";
    if (desc->help == NULL || desc->help[0] == 0 || !text_is_clean(desc->help))
        return "it has no help text of one line";
    if ((desc->kind == TDM_OPTION_WORD) != (desc->words != NULL) ||
        (desc->words != NULL && desc->words[0] == NULL))
        return "words are given if and only if it is a WORD";
    if (!(desc->min <= desc->max)) return "min is above max";
    if (desc->short_flag != NULL &&
        (desc->short_flag[0] == 0 || strspn(desc->short_flag, letters) != strlen(desc->short_flag)))
        return "its short flag is not made of letters";
    return default_is_valid(desc) ? NULL : "its default is not a value that it allows";
}

static certify_verdict table_check(certify *c) {
    if (certify_load(c) != CERTIFY_PASSED) return CERTIFY_SKIPPED;
    if (!TDM_HAS(c->plugin, options)) return certify_skip(c, "its devices have no options");
    const tdm_option_table *table = c->plugin->options;
    if (!TDM_HAS(table, descs) || table->struct_size < sizeof *table || table->n_desc <= 0)
        return certify_fail(c, "the table is empty, or its struct_size is too small");
    if (table->desc_size < offsetof(tdm_option_desc, flags) || table->desc_size % 8 != 0)
        return certify_fail(c, "desc_size is %zu", table->desc_size);
    for (int32_t i = 0; i < table->n_desc; i++) {
        tdm_option_desc desc = tdm_option_desc_at(table, i);
        const char *fault = desc_fault(&desc);
        if (fault != NULL)
            return certify_fail(c, "option %d (%.40s): %s", (int)i,
                                desc.name != NULL ? desc.name : "NULL", fault);
        for (int32_t j = 0; j < i; j++) {
            tdm_option_desc other = tdm_option_desc_at(table, j);
            if (strcmp(desc.name, other.name) == 0 ||
                (desc.short_flag != NULL && other.short_flag != NULL &&
                 strcmp(desc.short_flag, other.short_flag) == 0))
                return certify_fail(c, "options %d and %d (%.40s) have one name or flag", (int)j,
                                    (int)i, desc.name);
        }
    }
    return CERTIFY_PASSED;
}

/* The table is read before init and after, while a device is open, and is the same bytes. */
static certify_verdict constant_check(certify *c) {
    tdm_plugin_entry_fn entry;
    const tdm_plugin *plugin = NULL;
    if (certify_object_open(c, &c->object, &entry) != CERTIFY_PASSED) return CERTIFY_SKIPPED;
    if (entry(&c->host.table, &plugin, NULL) != TDM_OK) return certify_skip(c, "its entry failed");
    if (!TDM_HAS(plugin, options) || plugin->options->n_desc <= 0)
        return certify_skip(c, "its devices have no options");
    const tdm_option_table before = *plugin->options;
    size_t size = (size_t)before.n_desc * before.desc_size;
    void *descs = malloc(size);
    if (descs == NULL) return certify_skip(c, "no memory");
    memcpy(descs, before.descs, size);
    c->plugin = plugin;
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = CERTIFY_PASSED;
    if (plugin->init != NULL && plugin->init(&c->host.table, &c->instance, &err) != TDM_OK)
        verdict = certify_skip(c, "init: %.300s", err.message);
    else if (certify_open_on(c, c->instance, &c->device) != CERTIFY_PASSED)
        verdict = CERTIFY_SKIPPED;
    else if (plugin->options->descs != before.descs || plugin->options->n_desc != before.n_desc ||
             memcmp(descs, plugin->options->descs, size) != 0)
        verdict = certify_fail(c, "the table is another while a device is open");
    free(descs);
    return verdict;
}

/* Whether the command line gives this option. */
static bool is_given(const certify *c, const char *key) {
    for (int32_t i = 0; i < c->params->n_option; i++)
        if (strcmp(c->params->options[i].key, key) == 0) return true;
    return false;
}

/* Opens the device with the options of the command line and one more. */
static tdm_status open_with(certify *c, const tdm_option *option, tdm_error *err) {
    size_t n = (size_t)c->params->n_option;
    tdm_option *options = calloc(n + 1, sizeof *options);
    if (options == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory");
    if (n > 0) memcpy(options, c->params->options, n * sizeof *options);
    options[n] = *option;
    tdm_device_params params = {.struct_size = sizeof params,
                                .index = c->params->device,
                                .n_option = (int32_t)n + 1,
                                .options = options};
    tdm_device *device = NULL;
    tdm_status status = c->plugin->device->open(c->instance, &params, &device, err);
    if (status == TDM_OK) c->plugin->device->close(device);
    free(options);
    return status;
}

/* A device opens with each default, given as the host would. Options of the command line keep their
 * values: which devices there are may depend on them. */
static certify_verdict default_check(certify *c) {
    certify_verdict verdict = certify_load(c);
    if (verdict != CERTIFY_PASSED) return CERTIFY_SKIPPED;
    if (!TDM_HAS(c->plugin, options)) return certify_skip(c, "its devices have no options");
    if (TDM_HAS(c->plugin, split) && TDM_HAS(c->plugin->split, split_set))
        return certify_skip(c, "a group opens with members only");
    tdm_device *device = NULL;
    verdict = certify_open_on(c, c->instance, &device);
    if (verdict != CERTIFY_PASSED) return verdict; /* it does not open without the default either */
    c->plugin->device->close(device);
    for (int32_t i = 0; i < c->plugin->options->n_desc; i++) {
        tdm_option_desc desc = tdm_option_desc_at(c->plugin->options, i);
        const char *text = desc.default_value != NULL ? desc.default_value : "";
        if (text[0] == 0 || strcmp(text, "auto") == 0 || desc.kind == TDM_OPTION_SIZE) continue;
        if (is_given(c, desc.name)) continue;
        const tdm_option option = {desc.name, text};
        tdm_error err = {.struct_size = sizeof err};
        if (open_with(c, &option, &err) != TDM_OK)
            return certify_fail(c, "%s = %.60s, its default, is refused: %.300s", desc.name, text,
                                err.message);
    }
    return CERTIFY_PASSED;
}

static const certify_check checks[] = {
    {"option.table", 0,
     "option.h: \"it accepts the keys in it, checks each value, prints the keys in help "
     "texts\"",
     table_check},
    {"option.constant", 0,
     "plugin.h: options: \"Constant for as long as the plugin is loaded, and readable right after "
     "entry, without init.\"",
     constant_check},
    {"option.default", 0,
     "option.h: default_value: \"the value when none is given, as a user would write it\"",
     default_check},
};
const certify_table certify_option_table = CERTIFY_TABLE(checks);
