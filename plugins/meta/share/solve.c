/* SPDX-License-Identifier: MIT
 *
 * solve.c: share = auto. Members wait for each other, so that a token takes as long as the slowest
 * member needs. Weights are cut once, for prompts and answers alike. The shares give the shortest
 * time of a prompt and its answer together, by the measured rates and by what submissions and
 * exchanges cost a member besides. Each member's memory limits them.
 */
#include "plugins/meta/share/solve.h"

#include <string.h>

#include "plugins/meta/buffer.h"
#include "plugins/meta/layout/partition.h"
#include "plugins/meta/members.h"
#include "plugins/meta/rules/compile.h"
#include "plugins/meta/share/links.h"
#include "plugins/meta/share/measure.h"

/* The weight of a prompt token against a generated one: prompts are longer than answers. */
#define PROMPT_WEIGHT 4.0
/* A member with a smaller share would cost more in exchanges than it contributes. */
#define LEAST_SHARE 0.02
/* Shares whose sum differs from 1 by less are complete: the difference is rounding. */
#define SHARE_NOISE 1e-9

tdm_status meta_load_weigh(const meta_device *device, const tdm_graph *graph, meta_load *out,
                           tdm_error *err) {
    uint64_t by_type[TDM_TYPE_LIMIT_] = {0};
    const meta_member *owner = &device->members[device->owner];
    memset(out, 0, sizeof *out);
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        if (v->kind != TDM_VALUE_WEIGHT) continue;
        uint64_t size = tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
        by_type[v->type] += size;
        if (v->partition == 0) {
            out->whole_size += size;
            continue;
        }
        out->cut_size += size;
        if ((v->usage & (TDM_USAGE_MATMUL | TDM_USAGE_EXPERT)) == 0) continue;
        out->read_size += size;
        out->n_mac += (double)tdm_shape_count(v->ne);
    }
    for (int32_t type = 1; type < TDM_TYPE_LIMIT_; type++)
        if (by_type[type] > by_type[out->type]) out->type = (tdm_type)type;
    /* A description counts once for each STATE that has it. */
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        const tdm_kv_desc *desc = v->kind == TDM_VALUE_STATE ? meta_state_desc(graph, i) : NULL;
        uint64_t page_size = 0;
        if (desc == NULL) continue;
        tdm_status status = owner->acquired.plugin->buffer->kv_page_size(owner->acquired.device,
                                                                         desc, &page_size, err);
        if (status != TDM_OK) return status;
        page_size *= (uint64_t)v->ne[1];
        out->state_size += page_size;
        if ((desc->flags & TDM_KV_IN_HOST) != 0) out->host_size += page_size;
    }
    return TDM_OK;
}

void meta_share_balance(int32_t n, const double *seconds, const double *extra, double *part_out) {
    bool is_out[TDM_MAX_MEMBERS];
    for (int32_t d = 0; d < n; d++) is_out[d] = !(seconds[d] > 0);
    for (bool has_changed = true; has_changed;) {
        /* end = extra + part * seconds is the same for all, and the parts add up to 1. */
        double inverse = 0, offset = 0;
        has_changed = false;
        for (int32_t d = 0; d < n; d++) {
            if (is_out[d]) continue;
            inverse += 1 / seconds[d];
            offset += extra[d] / seconds[d];
        }
        double end = inverse > 0 ? (1 + offset) / inverse : 0;
        for (int32_t d = 0; d < n; d++) {
            part_out[d] = is_out[d] ? 0 : (end - extra[d]) / seconds[d];
            if (part_out[d] >= 0) continue;
            is_out[d] = has_changed = true;
        }
    }
}

/* The parts that members can do of both kinds of work, where an answer may take `answer` seconds
 * and its prompt `prompt`. Returns their sum. */
static double parts_within(int32_t n, const meta_pace *pace, double answer, double prompt,
                           double *part_out) {
    double sum = 0;
    for (int32_t d = 0; d < n; d++) {
        const meta_pace *m = &pace[d];
        double part = m->answer > 0 && answer > m->extra ? (answer - m->extra) / m->answer : 0;
        if (m->prompt > 0 && prompt / m->prompt < part) part = prompt / m->prompt;
        part_out[d] = part;
        sum += part;
    }
    return sum;
}

/* The shortest time of an answer whose prompt takes `prompt` seconds, with its parts. */
static double answer_find(int32_t n, const meta_pace *pace, double prompt, double most,
                          double *part_out) {
    double low = 0, high = most;
    for (int i = 0; i < 64; i++) {
        double middle = (low + high) / 2;
        if (parts_within(n, pace, middle, prompt, part_out) >= 1)
            high = middle;
        else
            low = middle;
    }
    (void)parts_within(n, pace, high, prompt, part_out);
    return high;
}

void meta_share_pace(int32_t n, const meta_pace *pace, double *part_out) {
    enum { STEPS = 64, ROUNDS = 5 };
    double seconds[TDM_MAX_MEMBERS] = {0}, extra[TDM_MAX_MEMBERS] = {0};
    double rates = 0, least = 0, most = 0, all = 0;
    for (int32_t d = 0; d < n; d++) {
        seconds[d] = pace[d].answer;
        extra[d] = pace[d].extra;
        if (!(pace[d].answer > 0)) continue;
        rates += pace[d].prompt > 0 ? 1 / pace[d].prompt : 0;
        if (all == 0 || extra[d] + seconds[d] > all) all = extra[d] + seconds[d];
    }
    /* Begins with the parts that are best for the answer alone, with which the prompt takes `most`
     * seconds. No parts give the prompt less than `least`: these are proportional to the members'
     * rates in it. */
    meta_share_balance(n, seconds, extra, part_out);
    for (int32_t d = 0; d < n; d++)
        if (part_out[d] * pace[d].prompt > most) most = part_out[d] * pace[d].prompt;
    if (!(rates > 0) || !(most > 0)) return;
    least = 1 / rates;
    for (int round = 0; round < ROUNDS && most > least; round++) {
        /* With exactly `least` seconds for the prompt, the parts may add up to less than 1 by
         * rounding, so it gets slightly more. */
        double step = (most - least) / STEPS, best = 0, at = most, parts[TDM_MAX_MEMBERS];
        for (int i = 0; i <= STEPS; i++) {
            double prompt = i == STEPS ? most : least + i * step;
            double total = prompt * (1 + 1e-9);
            total += answer_find(n, pace, total, all, parts);
            if (i > 0 && total >= best) continue;
            best = total;
            at = prompt;
            memcpy(part_out, parts, (size_t)n * sizeof *parts);
        }
        least = at - step > least ? at - step : least;
        most = at + step < most ? at + step : most;
    }
    double sum = 0;
    for (int32_t d = 0; d < n; d++) sum += part_out[d];
    for (int32_t d = 0; d < n && sum > 0; d++) part_out[d] /= sum;
}

/* Shares that are being divided: meta_share_divide. */
typedef struct division {
    int32_t n;
    const double *rate, *cap;
    double least;
    bool is_bound[TDM_MAX_MEMBERS]; /* the member's share is its cap */
    bool is_out[TDM_MAX_MEMBERS];   /* it gets nothing */
    double *share;                  /* [n] */
} division;

/* Divides what bound members leave between the others by their rates, without regard to limits. */
static void rest_divide(division *v) {
    double left = 1, rates = 0;
    for (int32_t d = 0; d < v->n; d++) {
        if (v->is_bound[d])
            left -= v->cap[d];
        else if (!v->is_out[d])
            rates += v->rate[d];
    }
    for (int32_t d = 0; d < v->n; d++)
        v->share[d] = v->is_out[d]     ? 0
                      : v->is_bound[d] ? v->cap[d]
                      : rates > 0      ? left * v->rate[d] / rates
                                       : 0;
}

/* Binds the members whose shares exceed their caps; false where there is none. */
static bool caps_bind(division *v) {
    bool has_bound = false;
    for (int32_t d = 0; d < v->n; d++)
        if (!v->is_bound[d] && !v->is_out[d] && v->share[d] > v->cap[d])
            v->is_bound[d] = has_bound = true;
    return has_bound;
}

/* Drops the member with the smallest share below `least`. False where there is none, or where the
 * others have no memory for its share: so one member always remains. */
static bool weakest_drop(division *v) {
    int32_t weakest = -1;
    double others = 0;
    for (int32_t d = 0; d < v->n; d++)
        if (!v->is_bound[d] && !v->is_out[d] && v->share[d] < v->least &&
            (weakest < 0 || v->share[d] < v->share[weakest]))
            weakest = d;
    if (weakest < 0) return false;
    for (int32_t d = 0; d < v->n; d++)
        if (d != weakest && !v->is_out[d]) others += v->cap[d];
    if (others < 1) return false;
    v->is_out[weakest] = true;
    return true;
}

/* Where memory limits all fast members, the rest goes to members with room. A rest that is only
 * rounding must not: it would make a member active that was dropped or cannot work. */
static void rest_place(division *v) {
    double sum = 0;
    for (int32_t d = 0; d < v->n; d++) sum += v->share[d];
    for (int32_t d = 0; d < v->n && sum < 1 - SHARE_NOISE; d++) {
        double room = v->cap[d] - v->share[d], more = room < 1 - sum ? room : 1 - sum;
        if (more <= 0) continue;
        v->share[d] += more;
        sum += more;
    }
}

tdm_status meta_share_divide(int32_t n, const double *rate, const double *cap, double least,
                             double *share_out, tdm_error *err) {
    division v = {.n = n, .rate = rate, .cap = cap, .least = least, .share = share_out};
    double room = 0;
    for (int32_t d = 0; d < n; d++) room += cap[d] < 0 ? 0 : cap[d];
    if (room < 1)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "the members have memory for %.0f %% of it together", room * 100);
    /* Members are dropped one at a time, because the others' shares then grow. */
    do {
        rest_divide(&v);
    } while (caps_bind(&v) || weakest_drop(&v));
    rest_place(&v);
    return TDM_OK;
}

/* Members in RAM with the rate 0 get at most what the others leave of it. */
static void idle_caps(int32_t n, const meta_room *room, const double *rate, double *cap) {
    double largest = 0, taken = 0;
    for (int32_t d = 0; d < n; d++) {
        if (!room[d].is_shared || room[d].free < 0) continue;
        if (room[d].free > largest) largest = room[d].free;
        if (rate[d] > 0) taken += room[d].whole + cap[d] * room[d].divisible;
    }
    for (int32_t d = 0; d < n; d++) {
        if (!room[d].is_shared || room[d].free < 0 || rate[d] > 0 || !(room[d].divisible > 0))
            continue;
        double rest = (largest - taken - room[d].whole) / room[d].divisible;
        if (rest < cap[d]) cap[d] = rest > 0 ? rest : 0;
        if (cap[d] > 0) taken += room[d].whole + cap[d] * room[d].divisible;
    }
}

/* The limits without regard to members in RAM with the rate 0. */
static void rated_caps(int32_t n, const meta_room *room, const double *rate, double *cap_out) {
    /* The member's own limit is at most its part of the RAM. */
    bool is_full[TDM_MAX_MEMBERS] = {false};
    double shared = -1, whole = 0;
    for (int32_t d = 0; d < n; d++) {
        double free = room[d].free - room[d].whole;
        cap_out[d] = room[d].free < 0 || !(room[d].divisible > 0) ? 1 : free / room[d].divisible;
        if (cap_out[d] < 0) cap_out[d] = 0;
        if (!room[d].is_shared || room[d].free < 0 || rate[d] <= 0) continue;
        if (room[d].free > shared) shared = room[d].free;
        whole += room[d].whole;
    }
    if (shared < 0) return;
    shared = shared > whole ? shared - whole : 0;
    /* The shared memory is divided by the rates, as the shares are. What a member cannot take
     * because of a limit of its own goes to the others. */
    for (bool has_changed = true; has_changed;) {
        double rates = 0, left = shared;
        has_changed = false;
        for (int32_t d = 0; d < n; d++) {
            if (!room[d].is_shared || room[d].free < 0 || rate[d] <= 0) continue;
            if (is_full[d])
                left -= cap_out[d] * room[d].divisible;
            else
                rates += rate[d];
        }
        for (int32_t d = 0; d < n && !has_changed; d++) {
            if (!room[d].is_shared || room[d].free < 0 || rate[d] <= 0 || is_full[d]) continue;
            double part = room[d].divisible > 0 ? left * rate[d] / rates / room[d].divisible : 1;
            if (part >= cap_out[d]) is_full[d] = has_changed = true;
        }
        for (int32_t d = 0; d < n && !has_changed; d++)
            if (room[d].is_shared && room[d].free >= 0 && rate[d] > 0 && !is_full[d] &&
                room[d].divisible > 0)
                cap_out[d] = left * rate[d] / rates / room[d].divisible;
    }
}

void meta_share_caps(int32_t n, const meta_room *room, const double *rate, double *cap_out) {
    rated_caps(n, room, rate, cap_out);
    idle_caps(n, room, rate, cap_out);
}

static bool is_in_ram(const meta_member *member) {
    return (member->info.flags & (TDM_DEVICE_IS_HOST | TDM_DEVICE_IS_INTEGRATED)) != 0;
}

/* What a member has memory for. Of members in RAM the largest of their reserves is kept free. */
static meta_room member_room(const meta_device *device, int32_t d, const meta_load *load) {
    tdm_device_info info = {.struct_size = sizeof info};
    const meta_member *member = &device->members[d];
    const tdm_kv_desc in_host = {.flags = TDM_KV_IN_HOST};
    bool is_host = (member->info.flags & TDM_DEVICE_IS_HOST) != 0;
    uint64_t divisible = load->cut_size + load->state_size, reserve = device->options.reserve[d];
    if (is_host || meta_is_cache_in_host(member, &in_host)) divisible -= load->host_size;
    meta_room room = {-1, (double)load->whole_size, (double)divisible, is_in_ram(member)};
    if (!TDM_HAS(member->acquired.plugin->device, get_info) ||
        member->acquired.plugin->device->get_info(member->acquired.device, &info, NULL) != TDM_OK ||
        info.memory_free == 0)
        return room;
    for (int32_t i = 0; i < device->n_member && room.is_shared; i++)
        if (is_in_ram(&device->members[i]) && device->options.reserve[i] > reserve)
            reserve = device->options.reserve[i];
    double memory = (double)info.memory_free - (double)reserve;
    if (is_host) memory -= (double)load->host_size; /* caches of all members lie in this memory */
    room.free = memory > 0 ? memory * 0.95 : 0;     /* the rest is for plans and temporaries */
    return room;
}

/* Exchanges of a step: each product over cut columns and each block of experts ends in a sum, and
 * so do the rows of an embedding that is cut. */
static int32_t exchanges_count(const tdm_graph *graph) {
    int32_t n = 0;
    for (int32_t i = 0; i < graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(graph, i);
        bool is_experts = node->op == TDM_OP_MOE_FFN;
        if (node->op != TDM_OP_MATMUL && node->op != TDM_OP_MOE_MATMUL &&
            node->op != TDM_OP_GET_ROWS && !is_experts)
            continue;
        const tdm_value *w = tdm_graph_value(graph, node->src[is_experts ? 3 : 0]);
        if (w->kind != TDM_VALUE_WEIGHT || w->partition == 0) continue;
        n += is_experts || node->op == TDM_OP_GET_ROWS || w->axis == 0;
    }
    return n;
}

/* The part of each member in a generated token and PROMPT_WEIGHT tokens of a prompt. */
static void rates_find(const meta_device *device, const tdm_graph *graph, const meta_load *load,
                       double *rate_out) {
    meta_pace pace[TDM_MAX_MEMBERS];
    int32_t n_exchange = exchanges_count(graph);
    for (int32_t d = 0; d < device->n_member; d++) {
        const meta_member *m = &device->members[d];
        pace[d] = (meta_pace){.extra = m->submit_seconds + n_exchange * meta_exchange_seconds(m)};
        if (!(m->bandwidth > 0) || !(m->arithmetic > 0)) continue;
        pace[d].answer = (double)load->read_size / m->bandwidth;
        pace[d].prompt = PROMPT_WEIGHT * load->n_mac / m->arithmetic;
    }
    meta_share_pace(device->n_member, pace, rate_out);
}

tdm_status meta_share_solve(meta_device *device, const tdm_graph *graph, tdm_error *err) {
    double rate[TDM_MAX_MEMBERS], cap[TDM_MAX_MEMBERS], share[TDM_MAX_MEMBERS];
    meta_load load;
    if (!device->options.is_share_auto || device->is_share_solved) return TDM_OK;
    tdm_status status = meta_load_weigh(device, graph, &load, err);
    if (status != TDM_OK || load.read_size == 0) return status;
    if (device->n_active > 1) {
        status = meta_measure(device, load.type, err);
        if (status != TDM_OK) return status;
        rates_find(device, graph, &load, rate);
        meta_room room[TDM_MAX_MEMBERS];
        for (int32_t d = 0; d < device->n_member; d++) room[d] = member_room(device, d, &load);
        meta_share_caps(device->n_member, room, rate, cap);
        status = meta_share_divide(device->n_member, rate, cap, LEAST_SHARE, share, err);
        if (status != TDM_OK)
            return tdm_fail(err, status,
                            "share = auto: %.300s; reserve less, or use a smaller "
                            "ctx-size or model",
                            err != NULL ? err->message : "");
        for (int32_t d = 0; d < device->n_member; d++) device->members[d].share = share[d];
        meta_roles_assign(device);
    }
    device->is_share_solved = true;
    return TDM_OK;
}
