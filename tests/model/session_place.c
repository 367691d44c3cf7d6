/* SPDX-License-Identifier: MIT
 *
 * session_place.c: see session_place.h.
 */
#include "tests/model/session_place.h"

#include <dlfcn.h>

const char *session_cuda_driver, *session_hip_driver;

/* Functions of the plugins "fault" and "discrete"; NULL before the plugin is loaded. */
static void (*fault_set)(const char *member, const char *key, int64_t n);
static void (*card_set)(const char *member, const char *key, int64_t n);
static int64_t (*card_get)(const char *member, const char *key);
static int64_t (*card_live)(void);

static void log_take(void *context, int32_t level, const char *line) {
    (void)context, (void)level;
    if (getenv("SESSION_LOG") != NULL) printf("log: %s\n", line);
}

/* ---- Declaring ------------------------------------------------------------------------------- */

static tdm_status cpu_declare(tdm_runtime *rt, const char *name, const char *path, tdm_error *err) {
    const tdm_option options[] = {{"path", path}, {"activation-bits", "15"}, {"threads", "1"}};
    const tdm_device_spec spec = {name, "cpu", 0, options, 3};
    return tdm_runtime_declare(rt, &spec, err);
}

static bool is_fault(session_device d) {
    return d == SESSION_AWAY || d == SESSION_READER;
}

static bool can_fail(session_device d) {
    return is_fault(d) || d == SESSION_STACKED;
}

static bool is_card(session_device d) {
    return d == SESSION_CARD || d == SESSION_PHASES || d == SESSION_PLAIN;
}

/* Declares member i as "m<i>", and what lies behind it as "b<i>". */
static tdm_status member_declare(const session_place *p, int i, const char *path, tdm_runtime *rt,
                                 tdm_error *err) {
    const session_device d = p->members[i];
    char name[16], behind[16], front[16], other[16], both[40];
    snprintf(name, sizeof name, "m%d", i);
    snprintf(behind, sizeof behind, "b%d", i);
    snprintf(other, sizeof other, "o%d", i);
    snprintf(front, sizeof front, "f%d", i);
    snprintf(both, sizeof both, "%s,%s", d == SESSION_STACKED ? front : behind, other);
    const tdm_option away[] = {{"member", behind},
                               {"memory", "1000000000000"},
                               {"host-pointer", "no"},
                               {"import", p->imports ? "yes" : "no"},
                               {"host-kv", d == SESSION_READER ? "yes" : "no"},
                               p->options[i]};
    const tdm_option card[] = {{"member", behind},
                               {"import", p->imports ? "yes" : "no"},
                               {"exchange", d == SESSION_PHASES ? "phases"
                                            : d == SESSION_CARD ? "yes"
                                                                : "no"},
                               p->options[i]};
    const int n_more = p->options[i].key != NULL;
    const tdm_option nested[] = {{"members", both}, {"share", "2,1"}};
    const tdm_option cuda[] = {{"driver", session_cuda_driver}};
    const tdm_option hip[] = {{"driver", session_hip_driver}};
    const tdm_option vulkan[] = {{"allow-cpu", "yes"}};
    const tdm_device_spec stacked = {front, "fault", 0, away, 5 + n_more};
    const bool is_nested = d == SESSION_NESTED || d == SESSION_STACKED;
    const tdm_device_spec spec =
        is_fault(d)           ? (tdm_device_spec){name, "fault", 0, away, 5 + n_more}
        : is_card(d)          ? (tdm_device_spec){name, "discrete", 0, card, 3 + n_more}
        : is_nested           ? (tdm_device_spec){name, "meta", 0, nested, 2}
        : d == SESSION_CUDA   ? (tdm_device_spec){name, "cuda", p->has_own_cards ? i : 0, cuda, 1}
        : d == SESSION_HIP    ? (tdm_device_spec){name, "hip", 0, hip, 1}
        : d == SESSION_VULKAN ? (tdm_device_spec){name, "vulkan", 0, vulkan, 1}
                              : (tdm_device_spec){0};
    if (d == SESSION_CPU) return cpu_declare(rt, name, path, err);
    tdm_status status = TDM_OK;
    if (d < SESSION_CUDA) status = cpu_declare(rt, behind, path, err);
    if (status == TDM_OK && is_nested) status = cpu_declare(rt, other, path, err);
    if (status == TDM_OK && d == SESSION_STACKED) status = tdm_runtime_declare(rt, &stacked, err);
    return status == TDM_OK ? tdm_runtime_declare(rt, &spec, err) : status;
}

static tdm_status group_declare(const session_place *p, tdm_runtime *rt, tdm_error *err) {
    static const char *const all = "m0,m1,m2,m3";
    char members[16];
    snprintf(members, sizeof members, "%.*s", 3 * p->n_member - 1, all);
    const tdm_option options[] = {{"members", members},
                                  {"share", p->shares},
                                  {"split", p->split},
                                  {"attention", p->attention},
                                  {"experts", p->experts},
                                  {"check", p->check},
                                  {"exchange-memory", p->exchange_memory},
                                  {"reduce-type", p->reduce_type},
                                  {"allow-duplicate", "yes"}};
    const tdm_device_spec spec = {"group", "meta", 0, options, 9};
    return tdm_runtime_declare(rt, &spec, err);
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* The functions stay valid: the plugins are kept loaded. */
static void functions_find(tdm_runtime *rt) {
    for (int i = 0; i < tdm_runtime_plugin_count(rt); i++) {
        void *object = dlopen(tdm_runtime_plugin_file(rt, i), RTLD_NOW | RTLD_NOLOAD);
        bool is_kept = false;
        if (object == NULL) continue;
        if (fault_set == NULL && dlsym(object, "fault_set") != NULL) {
            *(void **)&fault_set = dlsym(object, "fault_set");
            is_kept = true;
        }
        if (card_live == NULL && dlsym(object, "discrete_live") != NULL) {
            *(void **)&card_set = dlsym(object, "discrete_set");
            *(void **)&card_get = dlsym(object, "discrete_get");
            *(void **)&card_live = dlsym(object, "discrete_live");
            is_kept = true;
        }
        if (!is_kept) dlclose(object);
    }
}

tdm_status session_open(const session_place *place, const char *path, session_rig *rig,
                        tdm_error *err) {
    const tdm_runtime_params params = {
        .struct_size = sizeof params, .log = log_take, .log_level = TDM_LOG_WARN};
    const tdm_option fallback[] = {{"path", path}, {"activation-bits", "15"}, {"threads", "1"}};
    *rig = (session_rig){.place = place};
    tdm_status status = tdm_runtime_create(&params, &rig->rt, err);
    if (status == TDM_OK) status = tdm_runtime_set_fallback(rig->rt, fallback, 3, err);
    for (int i = 0; i < place->n_member && status == TDM_OK; i++)
        status = member_declare(place, i, path, rig->rt, err);
    if (status == TDM_OK && place->is_group) status = group_declare(place, rig->rt, err);
    if (status == TDM_OK) status = cpu_declare(rig->rt, "cpu", path, err);
    if (status == TDM_OK)
        status = tdm_runtime_open(rig->rt, place->is_group ? "group" : "m0", &rig->devs[0], err);
    rig->n_dev = 1;
    if (status == TDM_OK && place->has_cpu) {
        status = tdm_runtime_open(rig->rt, "cpu", &rig->devs[1], err);
        rig->n_dev = 2;
    }
    if (status != TDM_OK) {
        session_close(rig);
        return status;
    }
    functions_find(rig->rt);
    for (int i = 0; i < place->n_member; i++) {
        char behind[16];
        snprintf(behind, sizeof behind, "b%d", i);
        if (is_card(place->members[i])) rig->memory[i] = card_get(behind, "memory");
    }
    return TDM_OK;
}

void session_close(session_rig *rig) {
    tdm_runtime_destroy(rig->rt);
    rig->rt = NULL;
    if (card_live != NULL && card_live() != 0)
        fail_msg("%lld things of closed cards are there", (long long)card_live());
}

void session_memory_check(const session_rig *rig) {
    for (int i = 0; i < rig->place->n_member; i++) {
        char behind[16];
        snprintf(behind, sizeof behind, "b%d", i);
        if (is_card(rig->place->members[i]) && card_get(behind, "memory") != rig->memory[i])
            fail_msg("card %d has %lld bytes in use without a model, it had %lld before", i,
                     (long long)card_get(behind, "memory"), (long long)rig->memory[i]);
    }
}

/* ---- Failures -------------------------------------------------------------------------------- */

/* The name behind one of the members of a kind; false where there is none. */
static bool member_choose(const session_rig *rig, bool (*is_kind)(session_device), uint32_t which,
                          char behind[16]) {
    int able[SESSION_MAX_MEMBER], n_able = 0;
    for (int i = 0; i < rig->place->n_member; i++)
        if (is_kind(rig->place->members[i])) able[n_able++] = i;
    if (n_able > 0) snprintf(behind, 16, "b%d", able[which % (uint32_t)n_able]);
    return n_able > 0;
}

/* What can be armed, and the messages of these failures. */
static const struct {
    const char *key, *message;
} failures[] = {{"fail-in", "fell off the bus"},
                {"fail-call", "has no memory left"},
                {"prepare-in", "cannot make this plan"},
                {"refuse-in", "does not take this computation"}};
enum { N_FAILURE = sizeof failures / sizeof *failures };

bool session_fail(const session_rig *rig, uint32_t which, uint32_t failure, int64_t n) {
    char behind[16];
    if (!member_choose(rig, can_fail, which, behind)) return false;
    fault_set(behind, failures[failure % N_FAILURE].key, n);
    return true;
}

bool session_lose(const session_rig *rig, uint32_t which, int64_t n) {
    char behind[16];
    if (!member_choose(rig, is_card, which, behind)) return false;
    card_set(behind, "lose-in", n);
    return true;
}

bool session_is_loss(const tdm_error *err) {
    return strstr(err->message, "is lost") != NULL;
}

bool session_is_limit(const tdm_error *err) {
    return err->status == TDM_RESOURCE_EXHAUSTED &&
           (strstr(err->message, "bytes asked for") != NULL ||
            strstr(err->message, "it has buffers of up to") != NULL);
}

bool session_is_failure(const tdm_error *err) {
    for (int i = 0; i < N_FAILURE; i++)
        if (strstr(err->message, failures[i].message) != NULL) return true;
    return false;
}

void session_heal(const session_rig *rig) {
    for (int i = 0; i < rig->place->n_member; i++) {
        char behind[16];
        if (!can_fail(rig->place->members[i])) continue;
        snprintf(behind, sizeof behind, "b%d", i);
        for (int k = 0; k < N_FAILURE; k++) fault_set(behind, failures[k].key, 0);
    }
}
