/* SPDX-License-Identifier: MIT
 *
 * rules.c: the table of rules, one row for each op. A rule accepts its sources in every layout:
 * where it cannot compute on a layout, it converts the source first. So a graph never fails because
 * of a layout that a caller declared, except where the conversion itself is impossible
 * (relayout.c).
 */
#include "plugins/meta/rules/compile.h"

/* The group makes EXCHANGE nodes itself. */
#define ROW_VALUE(name)                   &meta_rule_##name
#define ROW_VIEW                          ROW_VALUE
#define ROW_CACHE                         ROW_VALUE
#define ROW_GROUP(name)                   NULL
#define ROW_(ID, name, number, kind, ...) [TDM_OP_##ID] = ROW_##kind(name),
static const meta_rule *const rules[TDM_OP_COUNT_] = {TDM_OP_LIST(ROW_)};

const char *meta_op_name(int32_t op) {
#define NAME_(ID, name, ...) [TDM_OP_##ID] = #name,
    static const char *const names[TDM_OP_COUNT_] = {"unknown op", TDM_OP_LIST(NAME_)};
#undef NAME_
    return names[op > TDM_OP_NONE && op < TDM_OP_COUNT_ ? op : TDM_OP_NONE];
}

const meta_rule *meta_rule_find(int32_t op) {
    return op > TDM_OP_NONE && op < TDM_OP_COUNT_ ? rules[op] : NULL;
}
