/* SPDX-License-Identifier: MIT
 *
 * split.c: checks of the hooks of split.h that a single device has. The tests of groups check the
 * others.
 */
#include "certify/trial.h"

static certify_verdict unit_check(certify *c) {
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (!TDM_HAS(c->plugin, split) || !TDM_HAS(c->plugin->split, split_unit))
        return certify_skip(c, "no slot split_unit");
    for (size_t i = 0; i < n_certify_weight_types; i++) {
        tdm_type type = certify_weight_types[i];
        int32_t len = tdm_type_get_info(type).block_len;
        const int64_t ne[] = {4 * len, 24, 1, 1};
        tdm_builder *b;
        certify_rig rig;
        if (tdm_builder_create(&b, NULL) != TDM_OK) return certify_skip(c, "out of memory");
        int32_t w = tdm_build_weight(b, "w", type, ne, TDM_USAGE_MATMUL);
        int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, (const int64_t[]){ne[0], 3, 1, 1});
        tdm_build_output(b, tdm_build_matmul(b, w, x), "y");
        verdict = certify_rig_create(c, b, &rig);
        if (verdict != CERTIFY_PASSED) return verdict;
        for (int32_t value = 0; value < rig.graph->n_value; value++)
            for (int32_t axis = 0; axis < TDM_MAX_DIMS; axis++) {
                int64_t unit = 0;
                tdm_error err = {.struct_size = sizeof err};
                if (c->plugin->split->split_unit(c->device, rig.graph, value, axis, &unit, &err) !=
                    TDM_OK)
                    return certify_fail(c, "%s, axis %d: %.300s", tdm_type_name(type), (int)axis,
                                        err.message);
                if (unit < 1)
                    return certify_fail(c, "%s, axis %d: a unit of %lld", tdm_type_name(type),
                                        (int)axis, (long long)unit);
                if (axis == 0 && value == w && unit < len && len % unit != 0)
                    return certify_fail(c, "%s: a unit of %lld does not fit blocks of %d",
                                        tdm_type_name(type), (long long)unit, (int)len);
            }
        certify_rig_destroy(&rig);
    }
    return CERTIFY_PASSED;
}

static const certify_check checks[] = {
    {"split.unit", 5,
     "split.h: split_unit: \"the count of elements that every cut should be a multiple of. 1 where "
     "any cut is possible.\"",
     unit_check},
};
const certify_table certify_split_table = CERTIFY_TABLE(checks);
