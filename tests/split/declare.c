/* SPDX-License-Identifier: MIT
 *
 * declare.c: see declare.h.
 */
#include "tests/split/declare.h"

#include <string.h>

#include "tests/split/choices.h"

static int64_t below(uint64_t *random, int64_t n) {
    return (int64_t)(random_u64(random) % (uint64_t)n);
}

/* Ranges of the active members over n units. */
static void segment_draw(uint64_t *random, int64_t n, int32_t n_member, const bool *is_active,
                         tdm_layout_segment *out) {
    int32_t members[TDM_MAX_MEMBERS], n_active = 0;
    int64_t at = 0;
    bool overlaps = below(random, 3) == 0;
    memset(out, 0, sizeof *out);
    out->n_unit = n;
    for (int32_t d = 0; d < n_member; d++)
        if (is_active[d]) members[n_active++] = d;
    if (!overlaps && below(random, 3) == 0)
        for (int32_t i = n_active - 1; i > 0; i--) {
            int32_t k = (int32_t)below(random, i + 1), d = members[i];
            members[i] = members[k];
            members[k] = d;
        }
    for (int32_t i = 0; i < n_active; i++) {
        int64_t end = i + 1 < n_active ? at + below(random, n - at + 1) : n;
        int64_t hi = overlaps ? end + below(random, n - end + 1) : end;
        if (overlaps && i > 0 && hi < out->hi[members[i - 1]]) hi = out->hi[members[i - 1]];
        if (at < hi) {
            out->lo[members[i]] = at;
            out->hi[members[i]] = hi;
        }
        at = end;
    }
}

void declare_draw(uint64_t *random, const int64_t ne[TDM_MAX_DIMS], int32_t n_member,
                  const bool *is_active, tdm_layout *out) {
    int32_t axis = (int32_t)below(random, TDM_MAX_DIMS);
    int64_t repeat = 1, left;
    while (axis > 0 && ne[axis] == 1) axis--;
    memset(out, 0, sizeof *out);
    out->struct_size = sizeof *out;
    out->kind = TDM_LAYOUT_SPLIT;
    out->n_member = n_member;
    out->inner = out->outer = 1;
    for (int32_t i = 0; i < axis; i++) out->inner *= ne[i];
    for (int32_t i = axis + 1; i < TDM_MAX_DIMS; i++) out->outer *= ne[i];
    for (int64_t k = 2; k <= 4; k++)
        if (ne[axis] % k == 0 && ne[axis] > 0 && below(random, 4) == 0) repeat = k;
    out->outer *= repeat;
    left = ne[axis] / repeat;
    out->n_segment = 1 + (int32_t)(below(random, 3) == 0) * (int32_t)below(random, 3);
    for (int32_t s = 0; s < out->n_segment; s++) {
        int64_t n = s + 1 < out->n_segment ? below(random, left + 1) : left;
        segment_draw(random, n, n_member, is_active, &out->segments[s]);
        left -= n;
    }
}

tdm_status declare_some(tdm_open_device *group, const tdm_graph *graph, uint64_t seed, int32_t n,
                        int32_t n_member, const bool *is_active, int32_t *n_out, tdm_error *err) {
    const tdm_split_ops *ops = tdm_open_device_plugin(group)->split;
    uint64_t random = seed;
    *n_out = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t value = (int32_t)below(&random, graph->n_value);
        tdm_layout layout;
        tdm_error why = {0};
        const tdm_value *v = tdm_graph_value(graph, value);
        declare_draw(&random, v->ne, n_member, is_active, &layout);
        if (below(&random, 8) == 0)
            layout = (tdm_layout){.struct_size = sizeof layout,
                                  .kind = TDM_LAYOUT_REPLICATED,
                                  .replica = (int32_t)below(&random, 2),
                                  .n_member = n_member};
        if (v->kind == TDM_VALUE_STATE) continue;
        tdm_status status =
            ops->split_set(tdm_open_device_handle(group), graph, value, &layout, &why);
        if (status == TDM_OK) ++*n_out;
        if (status != TDM_OK && status != TDM_UNSUPPORTED)
            return tdm_fail(err, status, "declaring '%s': %.400s",
                            tdm_graph_value_name(graph, value), why.message);
    }
    return TDM_OK;
}
