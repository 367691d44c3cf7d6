/* SPDX-License-Identifier: MIT
 *
 * peer.c: see peer.h.
 *
 * The code does not depend on the kind of device. It calls import_peer, and uses the memory only
 * after the probe has passed: a driver may report that a device reaches another's memory where the
 * machine's bus loses what it writes there.
 */
#include "plugins/meta/exchange/peer.h"

#include <stdio.h>
#include <stdlib.h>

#include "plugins/meta/exchange/arena.h"
#include "plugins/meta/share/links.h"

/* Bytes of the memory that is allocated, imported and freed to test which member can be the
 * home. */
enum { TRIAL_SIZE = 65536 };

/* ---- The memory ------------------------------------------------------------------------------ */

static tdm_status import_one(const meta_member *member, const meta_member *home,
                             tdm_buffer *home_buffer, tdm_buffer **out, tdm_error *err) {
    const tdm_buffer_ops *ops = meta_member_buffers(member);
    tdm_error inner = {0};
    tdm_status status = TDM_UNSUPPORTED;
    /* A buffer may be passed to the functions of the table that made it only. */
    if (ops != meta_member_buffers(home))
        tdm_fail(&inner, status, "it is of another kind");
    else if (!TDM_HAS(ops, import_peer))
        tdm_fail(&inner, status, "its plugin reaches no memory of other devices");
    else
        status = ops->import_peer(member->acquired.device, home_buffer, out, &inner);
    if (status == TDM_OK) return TDM_OK;
    *out = NULL;
    return tdm_fail(err, status, "member '%s' does not reach memory of '%s': %.300s", member->name,
                    home->name, inner.message);
}

tdm_status meta_peer_open(meta_device *device, int32_t home, uint64_t size, meta_peer *peer_out,
                          tdm_error *err) {
    const meta_member *owner = &device->members[home];
    const tdm_buffer_ops *ops = meta_member_buffers(owner);
    const tdm_buffer_params params = {
        .struct_size = sizeof params, .size = size, .purpose = TDM_BUFFER_ARENA};
    meta_peer peer = {.size = size, .home = home};
    tdm_error inner = {0};
    *peer_out = (meta_peer){0};
    tdm_status status = ops->alloc(owner->acquired.device, &params, &peer.buffers[home], &inner);
    if (status != TDM_OK) peer.buffers[home] = NULL;
    if (status == TDM_OK) status = ops->fill(peer.buffers[home], 0, size, 0, &inner);
    if (status != TDM_OK)
        tdm_fail(err, status, "member '%s': %llu bytes for exchanges: %.300s", owner->name,
                 (unsigned long long)size, inner.message);
    for (int32_t d = 0; d < device->n_member && status == TDM_OK; d++)
        if (d != home && meta_is_active(device, d))
            status =
                import_one(&device->members[d], owner, peer.buffers[home], &peer.buffers[d], err);
    if (status == TDM_OK)
        *peer_out = peer;
    else
        meta_peer_close(device, &peer);
    return status;
}

void meta_peer_close(meta_device *device, meta_peer *peer) {
    for (int32_t d = 0; d < device->n_member; d++)
        if (d != peer->home && peer->buffers[d] != NULL)
            meta_member_buffers(&device->members[d])->free(peer->buffers[d]);
    if (peer->buffers[peer->home] != NULL)
        meta_member_buffers(&device->members[peer->home])->free(peer->buffers[peer->home]);
    *peer = (meta_peer){0};
}

bool meta_uses_peer(const meta_device *device) {
    bool uses = device->home != NULL;
    for (int32_t d = 0; d < device->n_member && uses; d++)
        uses = !meta_is_active(device, d) || device->members[d].exchange == META_EXCHANGE_IN_PLAN;
    return uses;
}

/* ---- The choice ------------------------------------------------------------------------------ */

typedef struct choice {
    int32_t home;
    bool is_tested;    /* the devices have what is needed: a failure is that of a test */
    double host, peer; /* seconds of the exchanges that are timed; 0 = not measured */
} choice;

/* Fails where a member rules out peer memory: its plugin has no import_peer, or it does not
 * exchange in its plan. */
static tdm_status members_check(const meta_device *device, tdm_error *err) {
    for (int32_t d = 0; d < device->n_member; d++) {
        const meta_member *member = &device->members[d];
        if (!meta_is_active(device, d)) continue;
        if (!TDM_HAS(meta_member_buffers(member), import_peer))
            return tdm_fail(err, TDM_UNSUPPORTED,
                            "the plugin of member '%s' reaches no memory of other devices",
                            member->name);
        if (member->exchange != META_EXCHANGE_IN_PLAN)
            return tdm_fail(err, TDM_UNSUPPORTED, "member '%s' does not exchange in its plan: %s",
                            member->name,
                            member->exchange_why != NULL ? member->exchange_why : "unknown");
    }
    return TDM_OK;
}

/* The first member whose memory all others import. Where there is none, the failure is that of the
 * group's owner, or of the device that was lost. */
static tdm_status home_find(meta_device *device, int32_t *home_out, tdm_error *err) {
    tdm_status first = TDM_UNSUPPORTED;
    for (int32_t d = 0; d < device->n_member; d++) {
        meta_peer trial;
        tdm_error why = {0};
        if (!meta_is_active(device, d)) continue;
        tdm_status status = meta_peer_open(device, d, TRIAL_SIZE, &trial, &why);
        *home_out = d;
        if (status == TDM_OK) {
            meta_peer_close(device, &trial);
            return TDM_OK;
        }
        if (d == device->owner) first = tdm_fail(err, status, "%s", why.message);
        if (status == TDM_UNAVAILABLE) return tdm_fail(err, status, "%s", why.message);
    }
    return first;
}

static bool times_given(choice *c) {
    const char *text = getenv("TANDEM_TEST_EXCHANGE");
    return text != NULL && sscanf(text, "%lf,%lf", &c->host, &c->peer) == 2;
}

/* Tests give rates instead of measuring, and then no time either. */
static bool is_measuring_off(void) {
    const char *links = getenv("TANDEM_TEST_LINKS");
    if (getenv("TANDEM_TEST_EXCHANGE") != NULL) return false;
    if (links != NULL) return strcmp(links, "measure") != 0;
    return getenv("TANDEM_TEST_RATES") != NULL;
}

static tdm_status peer_try(meta_device *device, choice *c, tdm_error *err) {
    tdm_status status = members_check(device, err);
    if (status == TDM_OK) status = home_find(device, &c->home, err);
    if (status != TDM_OK) return status;
    c->is_tested = true;
    status = meta_probe_peer(device, c->home, err);
    if (status != TDM_OK || device->options.exchange_memory == META_EXCHANGE_MEMORY_PEER ||
        times_given(c))
        return status;
    status = meta_links_compare(device, c->home, &c->host, &c->peer, err);
    return status;
}

tdm_status meta_home_choose(meta_device *device, tdm_error *err) {
    const meta_exchange_memory wanted = device->options.exchange_memory;
    const bool is_demanded = wanted == META_EXCHANGE_MEMORY_PEER;
    const tdm_host *host = device->host;
    choice c = {0};
    tdm_error why = {0};
    device->home = NULL;
    if (device->n_active < 2 || wanted == META_EXCHANGE_MEMORY_HOST ||
        (!is_demanded && is_measuring_off()))
        return TDM_OK;
    tdm_status status = peer_try(device, &c, &why);
    if (status == TDM_UNAVAILABLE) return tdm_fail(err, status, "%s", why.message);
    if (status != TDM_OK && is_demanded)
        return tdm_fail(err, TDM_UNSUPPORTED, "exchange-memory = peer: %.400s; use auto or host",
                        why.message);
    if (status != TDM_OK) {
        host->log(host->context, c.is_tested ? TDM_LOG_WARN : TDM_LOG_INFO,
                  "group: exchanges go through host memory: %s", why.message);
        return TDM_OK;
    }
    const char *name = device->members[c.home].name;
    if (is_demanded) {
        device->home = &device->members[c.home];
        host->log(host->context, TDM_LOG_INFO,
                  "group: exchanges go through memory of member '%s', as exchange-memory says",
                  name);
        return TDM_OK;
    }
    if (c.peer < c.host) device->home = &device->members[c.home];
    host->log(
        host->context, TDM_LOG_INFO,
        "group: exchanges go through %s%s%s, the faster: timed ones take %.1f us in memory of "
        "member '%s', %.1f us in host memory",
        device->home != NULL ? "memory of member '" : "host memory",
        device->home != NULL ? name : "", device->home != NULL ? "'" : "", c.peer * 1e6, name,
        c.host * 1e6);
    return TDM_OK;
}
