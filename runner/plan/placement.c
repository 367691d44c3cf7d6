/* SPDX-License-Identifier: MIT
 *
 * placement.c: see placement.h. Patterns are PCRE2's and may match anywhere in a tensor's name, as
 * in llama.cpp's -ot.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "runner/plan/placement.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CPU_NAME    "cpu (host)" /* no section can have this name */
#define MATCH_LIMIT 100000       /* steps of one match: a bad pattern fails instead of hanging */

static bool is_cpu(const tdm_open_device *dev) {
    return strcmp(tdm_open_device_plugin(dev)->name, RUNNER_CPU_PLUGIN) == 0;
}

/* The index of a device in p->devs; appends it where it is not there. */
static tdm_status device_add(runner_placement *p, tdm_open_device *dev, int32_t *index_out,
                             tdm_error *err) {
    for (int32_t i = 0; i < p->n_dev; i++) {
        if (p->devs[i] != dev) continue;
        *index_out = i;
        return TDM_OK;
    }
    /* One place stays free for the session's fallback. */
    if (p->n_dev == TDM_MAX_STAGE_DEVICES - 1)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "more than %d devices", TDM_MAX_STAGE_DEVICES - 1);
    *index_out = p->n_dev;
    p->devs[p->n_dev++] = dev;
    return TDM_OK;
}

/* The CPU device: the model's device, one of p->devs, or a new one. */
static tdm_status cpu_add(runner_placement *p, runner_roster *roster, int32_t *index_out,
                          tdm_error *err) {
    for (int32_t i = 0; i < p->n_dev; i++) {
        if (!is_cpu(p->devs[i])) continue;
        *index_out = i;
        return TDM_OK;
    }
    tdm_open_device *dev = NULL;
    tdm_status status = runner_roster_declare_cpu(roster, CPU_NAME, err);
    if (status == TDM_OK) status = tdm_runtime_open(roster->rt, CPU_NAME, &dev, err);
    return status == TDM_OK ? device_add(p, dev, index_out, err) : status;
}

static tdm_status name_add(runner_placement *p, runner_roster *roster, const char *name,
                           int32_t *index_out, tdm_error *err) {
    runner_config *config = roster->app->config;
    tdm_open_device *dev = NULL;
    if (strcasecmp(name, "cpu") == 0 && runner_config_find_name(config, name) == NULL)
        return cpu_add(p, roster, index_out, err);
    tdm_status status = runner_roster_declare_for(roster, "override-tensor", name, err);
    if (status == TDM_OK) status = tdm_runtime_open(roster->rt, name, &dev, err);
    return status == TDM_OK ? device_add(p, dev, index_out, err) : status;
}

/* Whether the pattern of an override matches the name of a tensor. */
static tdm_status override_matches(runner_config *config, const runner_override *o,
                                   const char *tensor, bool *is_match_out, tdm_error *err) {
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    int result = PCRE2_ERROR_NOMEMORY;
    if (data != NULL && context != NULL) {
        pcre2_set_match_limit(context, MATCH_LIMIT);
        result =
            pcre2_match(o->code, (PCRE2_SPTR)tensor, PCRE2_ZERO_TERMINATED, 0, 0, data, context);
    }
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    *is_match_out = result >= 0;
    if (result >= 0 || result == PCRE2_ERROR_NOMATCH) return TDM_OK;
    PCRE2_UCHAR why[128] = "";
    pcre2_get_error_message(result, why, sizeof why);
    return runner_config_fail(
        config, o->key,
        result == PCRE2_ERROR_NOMEMORY ? TDM_RESOURCE_EXHAUSTED : TDM_INVALID_ARGUMENT, err,
        "'%.64s' cannot be matched with '%.64s': %s", o->pattern, tensor, (const char *)why);
}

static int by_tensor(const void *a, const void *b) {
    const runner_override_match *x = a, *y = b;
    return strcmp(x->tensor, y->tensor);
}

/* Fills in p->matches: for each tensor the first override that matches. */
static tdm_status matches_find(runner_placement *p, runner_config *config, const llm_model *model,
                               tdm_error *err) {
    if (p->n_override == 0) return TDM_OK;
    p->matches = calloc((size_t)model->n_weight + 1, sizeof *p->matches);
    if (p->matches == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "override-tensor: no memory");
    for (int32_t w = 0; w < model->n_weight; w++) {
        const char *tensor = llm_weight_base_name(model, &model->weights[w]);
        bool is_match = false;
        for (int32_t i = 0; i < p->n_override && !is_match; i++) {
            tdm_status status = override_matches(config, &p->overrides[i], tensor, &is_match, err);
            if (status != TDM_OK) return status;
            if (!is_match) continue;
            p->matches[p->n_match++] = (runner_override_match){tensor, i};
            p->overrides[i].n_tensor++;
        }
    }
    qsort(p->matches, (size_t)p->n_match, sizeof *p->matches, by_tensor);
    return TDM_OK;
}

/* Index of the override that applies to a tensor; -1 = none. */
static int32_t override_find(const runner_placement *p, const char *tensor) {
    if (p->n_match == 0) return -1;
    const runner_override_match key = {.tensor = tensor};
    const runner_override_match *found =
        bsearch(&key, p->matches, (size_t)p->n_match, sizeof key, by_tensor);
    return found != NULL ? found->override : -1;
}

/* Parses one REGEX=DEVICE at the last '=': names of devices have none. */
static tdm_status override_read(runner_placement *p, runner_roster *roster, const char *text,
                                tdm_error *err) {
    runner_config *config = roster->app->config;
    runner_override *o = &p->overrides[p->n_override];
    const char *equals = strrchr(text, '=');
    if (equals == NULL || equals == text || equals[1] == '\0')
        return runner_config_fail(config, "override-tensor", TDM_INVALID_ARGUMENT, err,
                                  "'%.64s' is not REGEX=DEVICE, such as ffn_.*_exps=cpu", text);
    if ((o->pattern = strndup(text, (size_t)(equals - text))) == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "override-tensor: no memory");
    o->key = "override-tensor";
    p->n_override++;
    int code;
    PCRE2_SIZE at;
    o->code = pcre2_compile((PCRE2_SPTR)o->pattern, PCRE2_ZERO_TERMINATED, 0, &code, &at, NULL);
    if (o->code == NULL) {
        PCRE2_UCHAR why[128] = "";
        pcre2_get_error_message(code, why, sizeof why);
        return runner_config_fail(config, "override-tensor", TDM_INVALID_ARGUMENT, err,
                                  "'%.64s' is not a regular expression: %s, at character %zu",
                                  o->pattern, (const char *)why, (size_t)at + 1);
    }
    tdm_error why = {0};
    tdm_status status = name_add(p, roster, equals + 1, &o->dev, &why);
    return status == TDM_OK ? status : tdm_fail(err, status, "%s", why.message);
}

/* The pattern of `cpu-moe` or `n-cpu-moe`, as llama.cpp's; *pattern_out is to be freed. */
static tdm_status expert_pattern(int64_t n_layer, char **pattern_out, tdm_error *err) {
    static const char experts[] = "\\.ffn_(up|down|gate|gate_up)_(ch|)exps";
    size_t size = sizeof experts + 32 + (size_t)n_layer * 8, at = 0;
    char *text = malloc(size);
    if (text == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "n-cpu-moe: no memory");
    if (n_layer > 0) at = (size_t)snprintf(text, size, "^blk\\.(");
    for (int64_t i = 0; i < n_layer; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%lld", i > 0 ? "|" : "", (long long)i);
    snprintf(text + at, size - at, "%s%s", n_layer > 0 ? ")" : "", experts);
    *pattern_out = text;
    return TDM_OK;
}

/* Adds the override of cpu-moe or n-cpu-moe behind those of override-tensor, which match first. */
static tdm_status experts_read(runner_placement *p, runner_roster *roster, const llm_model *model,
                               tdm_error *err) {
    runner_config *config = roster->app->config;
    bool has_all = runner_config_get_bool(config, "cpu-moe");
    int64_t n_layer = runner_config_get_int(config, "n-cpu-moe");
    if (n_layer >= model->hparams.n_layer) has_all = has_all || n_layer > 0;
    if (!has_all && n_layer == 0) return TDM_OK;
    runner_override *o = &p->overrides[p->n_override];
    tdm_status status = expert_pattern(has_all ? 0 : n_layer, &o->pattern, err);
    if (status != TDM_OK) return status;
    p->n_override++;
    o->key = runner_config_get_bool(config, "cpu-moe") ? "cpu-moe" : "n-cpu-moe";
    int code;
    PCRE2_SIZE at;
    o->code = pcre2_compile((PCRE2_SPTR)o->pattern, PCRE2_ZERO_TERMINATED, 0, &code, &at, NULL);
    if (o->code == NULL)
        return tdm_fail(err, TDM_INTERNAL, "%s: its pattern does not compile", o->key);
    return cpu_add(p, roster, &o->dev, err);
}

tdm_status runner_placement_read(runner_placement *p, runner_roster *roster, tdm_open_device *dev,
                                 const llm_model *model, tdm_error *err) {
    runner_config *config = roster->app->config;
    size_t n = runner_config_get_count(config, "override-tensor");
    bool is_offloaded = runner_config_get_bool(config, "kv-offload");
    memset(p, 0, sizeof *p);
    p->devs[p->n_dev++] = dev;
    tdm_status status = runner_config_check(config, err);
    if (status == TDM_OK && (p->overrides = calloc(n + 1, sizeof *p->overrides)) == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "override-tensor: no memory");
    for (size_t i = 0; i < n && status == TDM_OK; i++)
        status = override_read(p, roster, runner_config_get_string_at(config, "override-tensor", i),
                               err);
    if (status == TDM_OK) status = experts_read(p, roster, model, err);
    if (status == TDM_OK && !is_offloaded && !tdm_open_device_has_host_kv(dev))
        status = cpu_add(p, roster, &p->cache_dev, err);
    if (status == TDM_OK) status = matches_find(p, config, model, err);
    if (status != TDM_OK) {
        if (status == TDM_INVALID_ARGUMENT &&
            runner_config_get_origin(config, "override-tensor").level == RUNNER_LEVEL_FLAG)
            roster->app->is_usage = true;
        return status;
    }
    for (int32_t i = 0; i < p->n_override; i++)
        if (p->overrides[i].n_tensor == 0)
            runner_terminal_print(roster->app->terminal, RUNNER_MESSAGE_WARNING,
                                  "%s: '%.64s' applies to no tensor of %s", p->overrides[i].key,
                                  p->overrides[i].pattern, model->path);
    return TDM_OK;
}

int32_t runner_placement_find(const runner_placement *p, const char *tensor) {
    const int32_t i = override_find(p, tensor);
    return i >= 0 ? p->overrides[i].dev : 0;
}

/* An llm_placement.weight: index of the device, -1 = no override. An override may name the model's
 * own device, index 0, to exempt a tensor from a later override. */
static int32_t weight_wish(void *user, const char *name) {
    const runner_placement *p = user;
    const int32_t i = override_find(p, name);
    return i >= 0 ? p->overrides[i].dev : -1;
}

llm_placement runner_placement_wishes(runner_placement *p) {
    return (llm_placement){.weight = p->n_override > 0 ? weight_wish : NULL, .user = p};
}

void runner_placement_apply(runner_placement *p, llm_model *model) {
    llm_placement placement = runner_placement_wishes(p);
    llm_model_place(model, &placement);
}

void runner_placement_clear(runner_placement *p) {
    for (int32_t i = 0; i < p->n_override; i++) {
        free(p->overrides[i].pattern);
        pcre2_code_free(p->overrides[i].code);
    }
    free(p->overrides);
    free(p->matches);
    memset(p, 0, sizeof *p);
}
