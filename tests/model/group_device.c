/* SPDX-License-Identifier: MIT
 *
 * group_device.c: see group_device.h.
 */
#include "tests/model/group_device.h"

#define OR(word, fallback) ((word) != NULL ? (word) : (fallback))

static void member_name(const char *path, int i, char *name, size_t size) {
    snprintf(name, size, "member-%s-%d", path, i);
}

/* Declares a device of plugin "fault" that computes on device `behind` and says that it has memory
 * of its own, without host addresses. */
static void away_declare(const char *name, const char *behind, bool imports, bool has_host_kv) {
    const tdm_option options[] = {{"member", behind},
                                  {"memory", "1000000000000"},
                                  {"host-pointer", "no"},
                                  {"import", imports ? "yes" : "no"},
                                  {"host-kv", has_host_kv ? "yes" : "no"}};
    const tdm_device_spec spec = {name, "fault", 0, options, 5};
    tdm_runtime_declare(rig_runtime(), &spec, NULL); /* may be there already */
}

static void shares_fill(const group_config *c, char *text, size_t size) {
    char given[64];
    int values[GROUP_MAX_MEMBER] = {1}, n = 0, sum = 0;
    size_t at = 0;
    snprintf(given, sizeof given, "%s", OR(c->shares, "1"));
    for (char *p = strtok(given, ","); p != NULL && n < GROUP_MAX_MEMBER; p = strtok(NULL, ","))
        values[n++] = atoi(p);
    for (int i = 0; i < c->n_member; i++) sum += values[i % n];
    for (int i = 0; i < c->n_member; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%d", i > 0 ? "," : "",
                               sum > 0 ? values[i % n] : 1);
}

const char *group_words(const group_config *c) {
    static char text[256];
    char shares[64];
    shares_fill(c, shares, sizeof shares);
    snprintf(text, sizeof text,
             "%d members%s %s, %s%s%s path, split %s, attention %s, experts %s, %s%s", c->n_member,
             c->has_host_kv ? " away that read the host's caches"
             : c->is_away   ? " away"
                            : "",
             shares, OR(c->path, "fast"), c->odd_path != NULL ? " and " : "", OR(c->odd_path, ""),
             OR(c->split, "tensor"), OR(c->attention, "heads"), OR(c->experts, "hidden"),
             OR(c->reduce_type, "f32"), c->check != NULL ? c->check : "");
    return text;
}

tdm_open_device *group_single(const char *path) {
    return rig_device(NULL, path, 1);
}

tdm_open_device *group_away(void) {
    tdm_open_device *dev = NULL;
    tdm_error err = {0};
    const tdm_option options[] = {{"path", "fast"}, {"activation-bits", "15"}, {"threads", "1"}};
    const tdm_device_spec spec = {"behind", "cpu", 0, options, 3};
    tdm_runtime_declare(rig_runtime(), &spec, NULL);
    away_declare("away", "behind", true, false);
    RIG_OK(tdm_runtime_open(rig_runtime(), "away", &dev, &err));
    return dev;
}

tdm_open_device *group_device(const group_config *c) {
    char members[256], shares[64], name[64];
    const char *own = OR(c->name, group_words(c));
    size_t at = 0;
    tdm_open_device *dev = NULL;
    tdm_error err = {0};
    assert_true(c->n_member >= 1 && c->n_member <= GROUP_MAX_MEMBER);
    if (tdm_runtime_open(rig_runtime(), own, &dev, &err) == TDM_OK) return dev;
    for (int i = 0; i < c->n_member; i++) {
        const char *path = i % 2 == 1 && c->odd_path != NULL ? c->odd_path : OR(c->path, "fast");
        bool is_auto = strcmp(path, RIG_FAST_AUTO) == 0;
        const tdm_option options[] = {{"path", is_auto ? "fast" : path},
                                      {"activation-bits", is_auto ? "auto" : "15"},
                                      {"threads", "1"}};
        const tdm_device_spec spec = {name, "cpu", 0, options, 3};
        member_name(path, i, name, sizeof name);
        tdm_runtime_declare(rig_runtime(), &spec, NULL); /* may be there already */
        if (c->is_away) {
            char behind[64];
            memcpy(behind, name, sizeof behind);
            snprintf(name, sizeof name, "%s-%.50s", c->has_host_kv ? "reader" : "away", behind);
            away_declare(name, behind, i % 2 == 0, c->has_host_kv);
        }
        at += (size_t)snprintf(members + at, sizeof members - at, "%s%s", i > 0 ? "," : "", name);
    }
    shares_fill(c, shares, sizeof shares);
    const tdm_option options[] = {
        {"members", members},
        {"share", shares},
        {"split", OR(c->split, "tensor")},
        {"attention", OR(c->attention, "heads")},
        {"experts", OR(c->experts, "hidden")},
        {"reduce-type", OR(c->reduce_type, "f32")},
        {"check", OR(c->check, "off")},
    };
    const tdm_device_spec spec = {own, "meta", 0, options, 7};
    RIG_OK(tdm_runtime_declare(rig_runtime(), &spec, &err));
    RIG_OK(tdm_runtime_open(rig_runtime(), own, &dev, &err));
    return dev;
}
