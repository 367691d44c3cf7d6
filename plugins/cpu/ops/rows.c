/* SPDX-License-Identifier: MIT
 *
 * rows.c: GET_ROWS: y[:, i] = table[:, id[i] - first_row] as f32, or zeros where the table does not
 * have that row. Tables in private layout are read through weight.c.
 */
#include "quant/convert.h"
#include "plugins/cpu/ops/strided.h"
#include "plugins/cpu/ops/ops.h"
#include "plugins/cpu/ops/weight.h"

static tdm_status rows_supports(const cpu_device *device, const tdm_graph *graph,
                                const tdm_node *node, tdm_error *err) {
    (void)device;
    tdm_type type = (tdm_type)tdm_graph_value(graph, node->src[0])->type;
    if (tdm_row_codec_get(type).dequantize != NULL) return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED, "get_rows: no rows of numbers in a table of %s",
                    tdm_type_name(type));
}

static void row_get(const cpu_node *n, int64_t row, float *out) {
    const cpu_view *table = &n->src[0];
    if (table->usage != 0) {
        cpu_weight_get_row(n->device, table, row, out);
        return;
    }
    const uint8_t *src = table->data + row * table->nb[1];
    tdm_row_dequantize_fn dequantize = tdm_row_codec_get(table->type).dequantize;
    int64_t len = tdm_type_get_info(table->type).block_len;
    if (cpu_view_has_dense_rows(table)) {
        dequantize(src, out, table->ne[0]);
    } else {
        for (int64_t i = 0; i < table->ne[0] / len; i++)
            dequantize(src + i * table->nb[0], out + i * len, len);
    }
}

static void rows_run(const cpu_node *n, cpu_worker *w) {
    const cpu_view *table = &n->src[0], *id = &n->src[1], *y = &n->dst[0];
    int64_t first_row = n->node->params.rows.first_row;
    int64_t first, last;
    cpu_worker_share(w, y->ne[1], 1, &first, &last);
    for (int64_t i = first; i < last; i++) {
        float *out = (void *)(y->data + i * y->nb[1]);
        int64_t row = cpu_i32_at(id->data, i, id->nb[0]) - first_row;
        if (row >= 0 && row < table->ne[1])
            row_get(n, row, out);
        else
            memset(out, 0, (size_t)y->ne[0] * sizeof(float));
    }
}

const cpu_op_impl cpu_op_get_rows = {.supports = rows_supports, .run = rows_run};
