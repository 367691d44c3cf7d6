/* SPDX-License-Identifier: MIT
 *
 * chain.c: finds an op that the device supports and builds chains of it.
 */
#include "certify/chain.h"

#include "certify/trial.h"

enum { N_KIND = 8 };

static int32_t link_build(tdm_builder *b, int kind, int32_t x, int64_t n0, int64_t n1) {
    const int64_t like[] = {n0, n1, 1, 1}, square[] = {n0, n0, 1, 1};
    switch (kind) {
    case 0: return tdm_build_add(b, x, tdm_build_input(b, "b", TDM_TYPE_F32, like));
    case 1: return tdm_build_mul(b, x, tdm_build_input(b, "b", TDM_TYPE_F32, like));
    case 2: return tdm_build_scale(b, x, 0.75f, 0.5f);
    case 3: return tdm_build_act(b, x, TDM_ACT_TANH);
    case 4: return tdm_build_rms_norm(b, x, -1, 1e-5f);
    case 5: return tdm_build_softmax(b, x);
    case 6: return tdm_build_copy(b, x, TDM_TYPE_F32);
    default:
        return tdm_build_matmul(b, tdm_build_weight(b, "w", TDM_TYPE_F32, square, TDM_USAGE_MATMUL),
                                x);
    }
}

static certify_verdict kind_create(certify *c, int kind, int n, int64_t n0, int64_t n1,
                                   bool has_view, certify_chain *chain) {
    tdm_builder *b;
    *chain = (certify_chain){.nmse = kind == N_KIND - 1 ? CERTIFY_NMSE_MATMUL * n
                                                        : CERTIFY_NMSE_F32 * n};
    if (tdm_builder_create(&b, NULL) != TDM_OK) return certify_skip(c, "out of memory");
    chain->x = tdm_build_input(b, "x", TDM_TYPE_F32, (const int64_t[]){n0, n1, 1, 1});
    chain->y = chain->x;
    for (int i = 0; i < n; i++) {
        chain->y = link_build(b, kind, chain->y, n0, n1);
        if (has_view && i == 0) (void)tdm_build_reshape(b, chain->y, n0 * n1, 1, 1, 1);
    }
    tdm_build_output(b, chain->y, "y");
    return certify_rig_create(c, b, &chain->rig);
}

/* Whether supports_op takes every node that is not a view. */
static bool ops_are_supported(certify *c, const tdm_graph *graph) {
    for (int32_t i = 0; i < graph->n_node; i++) {
        c->failure = (tdm_error){.struct_size = sizeof(tdm_error)};
        if (!tdm_op_is_view(tdm_graph_node(graph, i)->op) &&
            c->plugin->device->supports_op(c->device, graph, i, &c->failure) != TDM_OK)
            return false;
    }
    return true;
}

static certify_verdict chain_create(certify *c, int n, int64_t n0, int64_t n1, bool has_view,
                                    certify_chain *chain_out) {
    for (int kind = 0; kind < N_KIND; kind++) {
        certify_verdict verdict = kind_create(c, kind, n, n0, n1, has_view, chain_out);
        if (verdict != CERTIFY_PASSED) return verdict;
        if (ops_are_supported(c, chain_out->rig.graph)) {
            for (int32_t i = 0; i < chain_out->rig.graph->n_value; i++)
                if (tdm_graph_value(chain_out->rig.graph, i)->kind == TDM_VALUE_INPUT ||
                    tdm_graph_value(chain_out->rig.graph, i)->kind == TDM_VALUE_WEIGHT)
                    certify_rig_fill(&chain_out->rig, i, 1);
            return CERTIFY_PASSED;
        }
        certify_rig_destroy(&chain_out->rig);
    }
    return certify_skip(c, "supports_op refuses all of the simple ops: %.200s", c->failure.message);
}

certify_verdict certify_chain_create(certify *c, int n, int64_t n0, int64_t n1,
                                     certify_chain *chain_out) {
    return chain_create(c, n, n0, n1, false, chain_out);
}

certify_verdict certify_chain_open_viewed(certify *c, int n, int64_t n0, int64_t n1,
                                          certify_chain *chain_out) {
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    return chain_create(c, n, n0, n1, true, chain_out);
}

certify_verdict certify_chain_open(certify *c, int n, int64_t n0, int64_t n1,
                                   certify_chain *chain_out) {
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    return certify_chain_create(c, n, n0, n1, chain_out);
}
