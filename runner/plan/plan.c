/* SPDX-License-Identifier: MIT
 *
 * plan.c: gets the memory that a model needs from the device (llm/report.h), computes what is left
 * on each member, and decides whether it fits and whether a group is faster. plan_print.c prints
 * the plan.
 */
#include "runner/plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* ---- Reports ---- */

/* A report with room for the members of the largest group. */
typedef struct sheet {
    tdm_split_report report;
    tdm_split_member members[TDM_MAX_MEMBERS];
} sheet;

/* Gets the report of a step of n_tok tokens (0 = n_ubatch) with logits of n_out tokens on `dev`.
 * is_brief: sizes are enough, so that no member is measured. */
static tdm_status sheet_fill(const runner_session *session, tdm_open_device *dev,
                             const llm_context_params *params, int32_t n_tok, int32_t n_out,
                             bool is_brief, sheet *s, tdm_error *err) {
    memset(s, 0, sizeof *s);
    s->report.is_brief = is_brief;
    s->report.struct_size = sizeof s->report;
    s->report.member_size = sizeof s->members[0];
    s->report.members = s->members;
    s->report.capacity = TDM_MAX_MEMBERS;
    tdm_status status =
        llm_model_report(session->model, dev, params, n_tok, n_out, &s->report, err);
    s->report.members = NULL;
    if (s->report.n_member < 0) s->report.n_member = 0;
    if (s->report.n_member > TDM_MAX_MEMBERS) s->report.n_member = TDM_MAX_MEMBERS;
    /* Differences of the two sizes must not wrap, whatever a plugin reports. */
    for (int32_t i = 0; i < s->report.n_member; i++) {
        tdm_split_member *at = &s->members[i];
        if (at->host_state_size > at->state_size) at->host_state_size = at->state_size;
    }
    return status;
}

static double rate(int32_t n_tok, double seconds) {
    return seconds > 0 ? n_tok / seconds : 0;
}

/* The section of a member; NULL = it has none. */
static const runner_section *member_section(const runner_session *session, int32_t i) {
    runner_config *config = session->app->config;
    if (!runner_section_is_group(session->section)) return session->section;
    if ((size_t)i >= runner_section_get_count(config, session->section, "members")) return NULL;
    return runner_config_find_name(
        config, runner_section_get_string_at(config, session->section, "members", (size_t)i));
}

static tdm_status members_fill(const runner_session *session, const sheet *decode,
                               const sheet *prefill, runner_plan *plan, tdm_error *err) {
    runner_config *config = session->app->config;
    plan->n_member = prefill->report.n_member;
    plan->members = calloc((size_t)plan->n_member + 1, sizeof *plan->members);
    if (plan->members == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "plan: no memory");
    for (int32_t i = 0; i < plan->n_member; i++) {
        runner_plan_member *m = &plan->members[i];
        const runner_section *section = member_section(session, i);
        m->at = prefill->members[i];
        m->at.name[sizeof m->at.name - 1] = '\0';
        m->at.plugin[sizeof m->at.plugin - 1] = '\0';
        m->at.transport[sizeof m->at.transport - 1] = '\0';
        /* Steps of all sizes use the same memory, so the larger need counts. */
        if (decode->members[i].compute_size > m->at.compute_size)
            m->at.compute_size = decode->members[i].compute_size;
        m->at.state_size -= m->at.host_state_size;
        m->decode_seconds = decode->members[i].seconds;
        m->decode_crossing_size = decode->members[i].crossing_size;
        if (!runner_section_is_group(section))
            m->reserve = runner_section_get_size(config, section, "reserve");
    }
    return runner_config_check(config, err);
}

/* ---- Weights and caches on other devices ---- */

static void take_off(uint64_t *size, double less) {
    uint64_t n = less > 0 ? (uint64_t)less : 0;
    *size = n < *size ? *size - n : 0;
}

/* Moves the bytes of a weight from the members to device `dev` of the placement. What each member
 * of a group has of the weight is estimated from its share. */
static tdm_status weight_move(const runner_session *session, const llm_weight *w, int32_t dev,
                              runner_plan *plan, tdm_error *err) {
    tdm_tensor_desc desc = llm_weight_desc(w);
    runner_plan_member *extra = &plan->members[plan->n_member - plan->n_extra + dev - 1];
    uint64_t there = 0, here = w->file->size;
    tdm_status status =
        tdm_open_device_tensor_size(session->placement.devs[dev], &desc, &there, err);
    if (status == TDM_OK && !plan->is_group)
        status = tdm_open_device_tensor_size(session->dev, &desc, &here, err);
    extra->at.weight_size += there;
    for (int32_t i = 0; i < plan->n_member - plan->n_extra; i++) {
        tdm_split_member *at = &plan->members[i].at;
        bool is_cut = plan->is_group && w->partition.id != 0;
        if (at->share <= 0) continue;
        take_off(&at->weight_size, (double)here * (is_cut ? at->share : 1));
        if (plan->is_group && !is_cut) take_off(&at->replicated_size, (double)here);
    }
    return status;
}

/* Sets memory_total and memory_free to those of the host's memory, which all CPU devices share;
 * they stay 0 = unknown on failure. */
static void host_memory_find(const runner_session *session, tdm_split_member *at) {
    tdm_device_info info = {0};
    tdm_status status = tdm_runtime_load(session->rt, RUNNER_CPU_PLUGIN, NULL);
    for (int32_t i = 0; status == TDM_OK && i < tdm_runtime_plugin_count(session->rt); i++) {
        if (strcmp(tdm_runtime_plugin(session->rt, i)->name, RUNNER_CPU_PLUGIN) != 0) continue;
        if (tdm_runtime_device_describe(session->rt, i, 0, NULL, &info, NULL) != TDM_OK) return;
        at->memory_total = info.memory_total;
        at->memory_free = info.memory_free;
    }
}

/* Appends a row for the host's memory if members have their caches there. */
static tdm_status host_fill(const runner_session *session, runner_plan *plan, tdm_error *err) {
    uint64_t size = 0;
    for (int32_t i = 0; i < plan->n_member; i++)
        if (__builtin_add_overflow(size, plan->members[i].at.host_state_size, &size))
            return tdm_fail(err, TDM_OUT_OF_RANGE, "plan: a cache of more than 2^64 bytes");
    if (size == 0) return TDM_OK;
    plan->excludes_host_cache = true;
    runner_plan_member *grown =
        realloc(plan->members, (size_t)(plan->n_member + 1) * sizeof *grown);
    if (grown == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "plan: no memory");
    plan->members = grown;
    runner_plan_member *m = &plan->members[plan->n_member++];
    memset(m, 0, sizeof *m);
    plan->n_extra++;
    snprintf(m->at.name, sizeof m->at.name, "host memory"); /* no section can have this name */
    snprintf(m->at.plugin, sizeof m->at.plugin, "%s", RUNNER_CPU_PLUGIN);
    m->at.state_size = size;
    host_memory_find(session, &m->at);
    return TDM_OK;
}

/* Appends a row for each further device that holds weights or the cache. */
static tdm_status extras_fill(const runner_session *session, const llm_context_params *params,
                              sheet *scratch, runner_plan *plan, tdm_error *err) {
    const runner_placement *p = &session->placement;
    const llm_model *model = session->model;
    int32_t n_extra = p->n_dev > 1 ? p->n_dev - 1 : 0;
    if (n_extra == 0) return TDM_OK;
    runner_plan_member *grown =
        realloc(plan->members, (size_t)(plan->n_member + n_extra) * sizeof *grown);
    if (grown == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "plan: no memory");
    plan->members = grown;
    tdm_status status = TDM_OK;
    for (int32_t i = 1; i <= n_extra && status == TDM_OK; i++) {
        runner_plan_member *m = &plan->members[plan->n_member++];
        tdm_device_info info;
        memset(m, 0, sizeof *m);
        plan->n_extra++;
        status = tdm_open_device_get_info(p->devs[i], &info, err);
        /* A group can report sizes of tensors only after it got a report for this model. */
        if (status == TDM_OK && tdm_open_device_is_group(p->devs[i]))
            status = sheet_fill(session, p->devs[i], params, 1, 1, true, scratch, err);
        if (status != TDM_OK) return status;
        snprintf(m->at.name, sizeof m->at.name, "%s", tdm_open_device_name(p->devs[i]));
        snprintf(m->at.plugin, sizeof m->at.plugin, "%s", tdm_open_device_plugin(p->devs[i])->name);
        m->at.memory_total = info.memory_total;
        m->at.memory_free = info.memory_free;
        m->reserve = runner_section_get_size(
            session->app->config,
            runner_config_find_name(session->app->config, tdm_open_device_name(p->devs[i])),
            "reserve");
    }
    for (int32_t w = 0; w < model->n_weight && status == TDM_OK && p->n_override > 0; w++) {
        const char *name = llm_weight_base_name(model, &model->weights[w]);
        int32_t dev = runner_placement_find(p, name);
        if (dev > 0) status = weight_move(session, &model->weights[w], dev, plan, err);
    }
    if (status != TDM_OK || p->cache_dev == 0) return status;
    status = sheet_fill(session, p->devs[p->cache_dev], params, 1, 1, true, scratch, err);
    if (status != TDM_OK) return status;
    for (int32_t i = 0; i < plan->n_member - plan->n_extra; i++) plan->members[i].at.state_size = 0;
    plan->members[plan->n_member - plan->n_extra + p->cache_dev - 1].at.state_size =
        scratch->members[0].state_size;
    return TDM_OK;
}

/* ---- The drafter ---- */

/* Adds the memory of the model or layer that drafts to that of the members. Its cache lies where
 * that of the model does. */
static tdm_status draft_add(const runner_session *session, const runner_context_wish *wish,
                            runner_plan *plan, tdm_error *err) {
    if (wish == NULL || wish->drafter == NULL) return TDM_OK;
    const runner_context_wish own = {.n_ctx = plan->n_ctx,
                                     .n_ubatch = wish->n_ubatch,
                                     .n_seq = plan->n_seq,
                                     .type_k = wish->draft_type_k,
                                     .type_v = wish->draft_type_v};
    const int32_t n_own = plan->n_member - plan->n_extra, cache_dev = session->placement.cache_dev;
    runner_plan drafter;
    const tdm_status status = runner_plan_make(wish->drafter, &own, false, &drafter, err);
    if (status != TDM_OK) return status;
    plan->draft.model = wish->drafter->model;
    for (int32_t i = 0; i < drafter.n_member - drafter.n_extra && i < n_own; i++) {
        const tdm_split_member *from = &drafter.members[i].at;
        tdm_split_member *to = &plan->members[i].at;
        tdm_split_member *cache = cache_dev > 0 ? &plan->members[n_own + cache_dev - 1].at : to;
        to->weight_size += from->weight_size;
        to->replicated_size += from->replicated_size;
        cache->state_size += from->state_size;
        to->host_state_size += from->host_state_size;
        to->compute_size += from->compute_size;
        to->whole_size += from->whole_size;
        plan->draft.weight_size += from->weight_size;
        plan->draft.cache_size += from->state_size + from->host_state_size;
        plan->draft.compute_size += from->compute_size;
    }
    runner_plan_clear(&drafter);
    return TDM_OK;
}

static tdm_status needs_find(runner_plan *plan, tdm_error *err) {
    for (int32_t i = 0; i < plan->n_member; i++) {
        runner_plan_member *m = &plan->members[i];
        if (__builtin_add_overflow(m->at.weight_size, m->at.state_size, &m->need) ||
            __builtin_add_overflow(m->need, m->at.compute_size, &m->need))
            return tdm_fail(err, TDM_OUT_OF_RANGE, "plan: '%s' would need more than 2^64 bytes",
                            m->at.name);
    }
    return TDM_OK;
}

/* Members whose memory is the host's share it: their needs add up. */
static bool is_in_host(const runner_plan_member *m) {
    return strcmp(m->at.plugin, RUNNER_CPU_PLUGIN) == 0;
}

static int64_t signed_of(uint64_t n) {
    return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

/* Gives all devices in the host's memory the same free memory. They reported it at different times,
 * between which other processes allocate memory, so the smallest value is the safe one. */
static void host_memory_agree(runner_plan *plan) {
    uint64_t least = UINT64_MAX;
    for (int32_t i = 0; i < plan->n_member; i++) {
        const runner_plan_member *m = &plan->members[i];
        bool is_known = m->at.memory_free != 0;
        if (is_in_host(m) && is_known && m->at.memory_free < least) least = m->at.memory_free;
    }
    for (int32_t i = 0; i < plan->n_member && least != UINT64_MAX; i++)
        if (is_in_host(&plan->members[i])) plan->members[i].at.memory_free = least;
}

/* Bytes to leave free on a member. Of the host's memory it is the largest reserve of all members in
 * it. */
static uint64_t reserve_of(const runner_plan *plan, const runner_plan_member *m) {
    uint64_t most = m->reserve;
    for (int32_t i = 0; i < plan->n_member && is_in_host(m); i++)
        if (is_in_host(&plan->members[i]) && plan->members[i].reserve > most)
            most = plan->members[i].reserve;
    return most;
}

static void fit_find(runner_plan *plan) {
    uint64_t host_need = 0;
    host_memory_agree(plan);
    plan->fits = true;
    for (int32_t i = 0; i < plan->n_member; i++) {
        const runner_plan_member *m = &plan->members[i];
        if (!is_in_host(m)) continue;
        host_need = host_need > UINT64_MAX - m->need ? UINT64_MAX : host_need + m->need;
    }
    for (int32_t i = 0; i < plan->n_member; i++) {
        runner_plan_member *m = &plan->members[i];
        uint64_t need = is_in_host(m) ? host_need : m->need;
        m->after = signed_of(m->at.memory_free) - signed_of(need);
        m->fits =
            m->at.memory_free == 0 || m->need == 0 || m->after >= signed_of(reserve_of(plan, m));
        plan->fits = plan->fits && m->fits;
    }
}

/* ---- Members alone ---- */

/* Opens a group of that member alone, so that its speed is predicted in the same way as the
 * group's. */
static tdm_status alone_open(runner_session *session, const char *name, tdm_open_device **dev_out,
                             tdm_error *err) {
    runner_config *config = session->app->config;
    if (runner_section_is_group(runner_config_find_name(config, name)))
        return tdm_runtime_open(session->rt, name, dev_out, err);
    const runner_section *group;
    char *alone = malloc(strlen(name) + sizeof " alone");
    if (alone == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "plan: no memory");
    strcpy(alone, name);
    strcat(alone, " alone"); /* no section can be called so */
    tdm_status status = runner_config_make_group(config, alone, name, &group, err);
    if (status == TDM_OK)
        status = runner_roster_declare_section(&session->roster, group, false, err);
    if (status == TDM_OK) status = tdm_runtime_open(session->rt, alone, dev_out, err);
    free(alone);
    return status;
}

static tdm_status alone_fill(runner_session *session, const llm_context_params *params,
                             const char *name, const runner_plan *plan, runner_plan_member *m,
                             sheet *s, tdm_error *err) {
    tdm_open_device *dev = NULL;
    tdm_status status = alone_open(session, name, &dev, err);
    if (status == TDM_OK)
        status = sheet_fill(session, dev, params, plan->n_seq, plan->n_seq, false, s, err);
    if (status == TDM_OK) m->alone_decode_rate = rate(plan->n_seq, s->report.seconds);
    if (status == TDM_OK) status = sheet_fill(session, dev, params, 0, 1, false, s, err);
    if (status != TDM_OK) return status;
    m->alone_prefill_rate = rate(plan->n_ubatch, s->report.seconds);
    m->alone_fits = true;
    for (int32_t i = 0; i < s->report.n_member; i++) {
        const tdm_split_member *at = &s->members[i];
        uint64_t need = at->weight_size + at->state_size - at->host_state_size + at->compute_size +
                        plan->draft.weight_size + plan->draft.cache_size + plan->draft.compute_size;
        if (at->memory_free != 0 &&
            (at->memory_free < m->reserve || need > at->memory_free - m->reserve))
            m->alone_fits = false;
    }
    return TDM_OK;
}

/* Predicts the speed of each member alone, and the best of them. A speed that cannot be predicted
 * stays unknown, which is no failure of the plan. */
static void alone_find(runner_session *session, const llm_context_params *params, sheet *s,
                       runner_plan *plan) {
    runner_config *config = session->app->config;
    for (int32_t i = 0; i < plan->n_member - plan->n_extra; i++) {
        runner_plan_member *m = &plan->members[i];
        tdm_error why = {0};
        const char *name = tdm_open_device_name(session->dev);
        if (plan->is_group)
            name = runner_section_get_string_at(config, session->section, "members", (size_t)i);
        tdm_status status = runner_config_check(config, &why);
        if (status == TDM_OK) status = alone_fill(session, params, name, plan, m, s, &why);
        if (status != TDM_OK) {
            m->alone_fits = false;
            m->alone_decode_rate = m->alone_prefill_rate = 0;
            runner_terminal_print(session->app->terminal, RUNNER_MESSAGE_DEBUG,
                                  "no speed of '%s' alone: %s", name, why.message);
        }
        if (m->alone_fits && m->alone_decode_rate > 0 &&
            (plan->best < 0 || m->alone_decode_rate > plan->members[plan->best].alone_decode_rate))
            plan->best = i;
    }
    if (plan->is_group || plan->n_extra > 0 || plan->n_member != 1) return;
    plan->decode_rate = plan->members[0].alone_decode_rate;
    plan->prefill_rate = plan->members[0].alone_prefill_rate;
}

/* ---- Devices that take turns ---- */

/* Opens the group that predicts the speed of `dev`: the device itself, if it is a group, else a
 * group of it alone. *bandwidth_out, which is 0 before, gets the smallest bandwidth of its members
 * in bytes per second. */
static tdm_status clock_open(runner_session *session, tdm_open_device *dev,
                             const llm_context_params *params, const runner_plan *plan, sheet *s,
                             tdm_open_device **clock_out, double *bandwidth_out, tdm_error *err) {
    tdm_status status = TDM_OK;
    *clock_out = dev;
    if (!tdm_open_device_is_group(dev))
        status = alone_open(session, tdm_open_device_name(dev), clock_out, err);
    /* The report makes the group measure its members. */
    if (status == TDM_OK)
        status = sheet_fill(session, *clock_out, params, plan->n_seq, plan->n_seq, false, s, err);
    for (int32_t i = 0; status == TDM_OK && i < s->report.n_member; i++)
        if (s->members[i].share > 0 &&
            (*bandwidth_out == 0 || s->members[i].bandwidth < *bandwidth_out))
            *bandwidth_out = s->members[i].bandwidth;
    return status;
}

/* The devices of a step in their order, as runner_session_load gives them to the model. `wishes`
 * outlives *turns_out. */
static llm_turns turns_of(const runner_session *session, tdm_open_device **devs,
                          const llm_placement *wishes) {
    const runner_placement *p = &session->placement;
    llm_turns turns = {.rt = session->rt, .devs = devs, .n_dev = p->n_dev, .placement = wishes};
    memcpy(devs, p->devs, (size_t)p->n_dev * sizeof *devs);
    if (session->fallback != NULL) devs[turns.n_dev++] = session->fallback;
    return turns;
}

/* Where devices take turns, each needs compute memory for its own stages only: replaces
 * compute_size. Not where one of them is a group, whose report is of the whole step. */
static tdm_status turns_size(runner_session *session, const llm_context_params *params,
                             runner_plan *plan, tdm_error *err) {
    runner_placement *p = &session->placement;
    tdm_open_device *devs[TDM_MAX_STAGE_DEVICES];
    uint64_t decode[TDM_MAX_STAGE_DEVICES] = {0}, prefill[TDM_MAX_STAGE_DEVICES] = {0};
    const llm_placement wishes = runner_placement_wishes(p);
    const llm_turns turns = turns_of(session, devs, &wishes);
    const int32_t n_member = plan->n_member - plan->n_extra;
    if (p->n_dev < 2) return TDM_OK;
    for (int32_t i = 0; i < turns.n_dev; i++)
        if (tdm_open_device_is_group(devs[i])) return TDM_OK;
    tdm_status status =
        llm_model_turns_size(session->model, &turns, params, plan->n_seq, plan->n_seq, decode, err);
    if (status == TDM_OK)
        status = llm_model_turns_size(session->model, &turns, params, 0, 1, prefill, err);
    for (int32_t i = 0; i < p->n_dev && status == TDM_OK; i++) {
        tdm_split_member *at = &plan->members[i == 0 ? 0 : n_member + i - 1].at;
        at->compute_size = decode[i] > prefill[i] ? decode[i] : prefill[i];
    }
    return status;
}

/* Where weights or the cache are on further devices, the devices take turns in a step. Computes the
 * seconds of a step on all of them together, for one generated token of each sequence and for
 * n_ubatch tokens. */
static tdm_status turns_time(runner_session *session, const llm_context_params *params, sheet *s,
                             runner_plan *plan, double *decode, double *prefill, tdm_error *err) {
    tdm_open_device *devs[TDM_MAX_STAGE_DEVICES], *clocks[TDM_MAX_STAGE_DEVICES];
    double bandwidth[TDM_MAX_STAGE_DEVICES] = {0};
    const llm_placement wishes = runner_placement_wishes(&session->placement);
    llm_turns turns = turns_of(session, devs, &wishes);
    turns.estimators = clocks;
    turns.bandwidth = bandwidth;
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < turns.n_dev && status == TDM_OK; i++)
        status = clock_open(session, devs[i], params, plan, s, &clocks[i], &bandwidth[i], err);
    if (status == TDM_OK)
        status = llm_model_turns_time(session->model, &turns, params, plan->n_seq, plan->n_seq,
                                      decode, err);
    if (status == TDM_OK)
        status = llm_model_turns_time(session->model, &turns, params, 0, 1, prefill, err);
    return status;
}

/* Replaces the predicted speeds if devices take turns. A speed that cannot be predicted stays
 * unknown. */
static void turns_find(runner_session *session, const llm_context_params *params, sheet *s,
                       runner_plan *plan) {
    double decode = 0, prefill = 0;
    tdm_error why = {0};
    if (session->placement.n_dev < 2) return;
    tdm_status status = turns_time(session, params, s, plan, &decode, &prefill, &why);
    if (status != TDM_OK)
        runner_terminal_print(session->app->terminal, RUNNER_MESSAGE_DEBUG,
                              "no speed of '%s' with what is elsewhere: %s",
                              tdm_open_device_name(session->dev), why.message);
    plan->decode_rate = status == TDM_OK ? rate(plan->n_seq, decode) : 0;
    plan->prefill_rate = status == TDM_OK ? rate(plan->n_ubatch, prefill) : 0;
    plan->decode_layer_rate = plan->prefill_layer_rate = 0;
    /* The times of members were for all nodes of a step. */
    for (int32_t i = 0; i < plan->n_member; i++)
        plan->members[i].decode_seconds = plan->members[i].at.seconds = 0;
}

/* ---- The verdict ---- */

tdm_status runner_plan_check(const runner_plan *plan, tdm_error *err) {
    for (int32_t i = 0; i < plan->n_member; i++) {
        const runner_plan_member *m = &plan->members[i];
        if (m->fits) continue;
        char need[32], memory_free[32], reserve[32], kept[80] = "", others[64] = "";
        uint64_t all = (uint64_t)(signed_of(m->at.memory_free) - m->after);
        runner_bytes_format(all, need, sizeof need);
        runner_bytes_format(m->at.memory_free, memory_free, sizeof memory_free);
        runner_bytes_format(reserve_of(plan, m), reserve, sizeof reserve);
        if (reserve_of(plan, m) > 0)
            snprintf(kept, sizeof kept, ", of which `reserve` keeps %s", reserve);
        if (all > m->need) snprintf(others, sizeof others, " with the others in the host's memory");
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "it does not fit: '%s' would need %s%s and has %s free%s; use %sa smaller "
                        "ctx-size, ubatch-size, cache type or model",
                        m->at.name, need, others, memory_free, kept,
                        plan->is_group ? "another share or more members, "
                                       : "several devices, or ");
    }
    return TDM_OK;
}

static void verdict_write(runner_plan *plan) {
    tdm_error why = {0};
    char *text = plan->verdict;
    size_t size = sizeof plan->verdict, n = 0;
    if (runner_plan_check(plan, &why) != TDM_OK) {
        snprintf(text, size, "I%s.", why.message + 1); /* "it does not fit" with a capital letter */
        return;
    }
    n = (size_t)snprintf(text, size, "It fits.");
    if (plan->n_extra > (plan->excludes_host_cache ? 1 : 0))
        n += (size_t)snprintf(
            text + n, size - n,
            " Weights and caches that override-tensor and kv-offload move to other devices are "
            "computed there, and values cross between devices in every step; %s.",
            plan->is_group ? "the speeds of members alone do not include that"
                           : "the speeds above include that");
    if (plan->excludes_host_cache)
        snprintf(
            text + n, size - n,
            " The speeds above do not include the CPU's work on caches in the host's memory, nor "
            "the copies for it.");
    if (plan->n_extra > 0) return;
    if (!plan->is_group || plan->decode_rate <= 0) return;
    if (plan->n_member > 1 && plan->best < 0) {
        n += (size_t)snprintf(text + n, size - n, " No member could hold it alone.");
    } else if (plan->n_member > 1) {
        const runner_plan_member *best = &plan->members[plan->best];
        double gain = plan->decode_rate / best->alone_decode_rate;
        double prefill_gain =
            best->alone_prefill_rate > 0 ? plan->prefill_rate / best->alone_prefill_rate : 0;
        if (gain < 1)
            n += (size_t)snprintf(text + n, size - n,
                                  " The group is slower: '%s' alone is expected to generate %.1f "
                                  "tokens per second, the group %.1f; use --device %s.",
                                  best->at.name, best->alone_decode_rate, plan->decode_rate,
                                  best->at.name);
        else
            n += (size_t)snprintf(text + n, size - n,
                                  " The group is expected to generate %.2f times as fast as '%s' "
                                  "alone%s",
                                  gain, best->at.name, prefill_gain > 0 ? "" : ".");
        if (gain >= 1 && prefill_gain > 0 && n < size)
            n += (size_t)snprintf(text + n, size - n, " and to read a prompt %.2f times as fast.",
                                  prefill_gain);
    }
    if (n < size && plan->decode_layer_rate > plan->decode_rate * 1.02)
        snprintf(text + n, size - n,
                 " Whole layers (split = layer) are expected to be faster: %.1f tokens per second.",
                 plan->decode_layer_rate);
}

int32_t runner_plan_context_size(const runner_session *session, const llm_context_params *params) {
    return params->n_ctx != 0 ? params->n_ctx : llm_context_n_ctx_default(session->model);
}

tdm_status runner_plan_make(runner_session *session, const runner_context_wish *wish,
                            bool with_speed, runner_plan *plan, tdm_error *err) {
    runner_context_request request;
    memset(plan, 0, sizeof *plan);
    plan->best = -1;
    tdm_status status = runner_session_context(session, wish, &request, err);
    if (status != TDM_OK) return status;
    plan->n_ctx = runner_plan_context_size(session, &request.params);
    plan->n_ubatch = request.params.n_ubatch < plan->n_ctx ? request.params.n_ubatch : plan->n_ctx;
    plan->n_seq = request.params.n_seq > 0 ? request.params.n_seq : 1;
    plan->type_k = request.type_k;
    plan->type_v = request.type_v;
    plan->layers = request.params.layer_types;
    plan->is_group = tdm_open_device_is_group(session->dev);
    sheet *decode = malloc(2 * sizeof *decode);
    if (decode == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "plan: no memory");
    sheet *prefill = decode + 1;
    status = llm_model_window_report(session->model, &request.params, &plan->window, err);
    if (status == TDM_OK)
        status = sheet_fill(session, session->dev, &request.params, plan->n_seq, plan->n_seq,
                            !with_speed, decode, err);
    /* Rows of logits take memory of a group's members, which join their parts of a row there. A
     * single device writes them to the host's memory, so one row is enough. */
    const int32_t n_out = plan->is_group && request.params.has_all_logits ? plan->n_ubatch : 1;
    if (status == TDM_OK)
        status =
            sheet_fill(session, session->dev, &request.params, 0, n_out, !with_speed, prefill, err);
    if (status == TDM_OK) status = members_fill(session, decode, prefill, plan, err);
    if (status == TDM_OK) {
        plan->decode = decode->report;
        plan->prefill = prefill->report;
        status = extras_fill(session, &request.params, prefill, plan, err);
    }
    if (status == TDM_OK) status = turns_size(session, &request.params, plan, err);
    if (status == TDM_OK) status = draft_add(session, wish, plan, err);
    if (status == TDM_OK) status = host_fill(session, plan, err);
    if (status == TDM_OK) status = needs_find(plan, err);
    if (status == TDM_OK) {
        plan->decode_rate = rate(plan->n_seq, plan->decode.seconds);
        plan->prefill_rate = rate(plan->n_ubatch, plan->prefill.seconds);
        plan->decode_layer_rate = rate(plan->n_seq, plan->decode.layer_seconds);
        plan->prefill_layer_rate = rate(plan->n_ubatch, plan->prefill.layer_seconds);
        fit_find(plan);
        if (with_speed) alone_find(session, &request.params, decode, plan);
        if (with_speed) turns_find(session, &request.params, decode, plan);
        verdict_write(plan);
    }
    free(decode);
    if (status != TDM_OK) runner_plan_clear(plan);
    return status;
}

void runner_plan_clear(runner_plan *plan) {
    free(plan->members);
    memset(plan, 0, sizeof *plan);
}
