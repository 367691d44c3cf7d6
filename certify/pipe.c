/* SPDX-License-Identifier: MIT
 *
 * pipe.c: a queue with a plan, memory and a semaphore.
 */
#include "certify/pipe.h"

#include "core/device/runtime.h"

certify_verdict certify_pipe_create(certify *c, certify_pipe *pipe_out) {
    certify_pipe p = {0};
    tdm_plan_params params = {sizeof params, 0};
    tdm_error err = {.struct_size = sizeof err};
    if (!TDM_HAS(c->plugin, queue)) return certify_skip(c, "no queues");
    certify_verdict verdict = certify_chain_create(c, 2, 50, 4, &p.chain);
    if (verdict == CERTIFY_PASSED) verdict = certify_rig_upload(&p.chain.rig);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_queue_ops *ops = c->plugin->queue;
    if (ops->create(c->device, &p.queue, &err) != TDM_OK)
        return certify_fail(c, "create: %.400s", err.message);
    if (ops->graph_prepare(p.queue, p.chain.rig.graph, &params, &p.plan, &err) != TDM_OK)
        return certify_fail(c, "graph_prepare of a supported graph: %.300s", err.message);
    if (p.queue == NULL || p.plan == NULL) return certify_fail(c, "returned TDM_OK and no object");
    if (ops->plan_bind(p.plan, p.chain.rig.bindings, p.chain.rig.graph->n_slot, &err) != TDM_OK)
        return certify_fail(c, "plan_bind: %.400s", err.message);
    if (tdm_semaphore_ops.create(0, &p.done, &err) != TDM_OK)
        return certify_skip(c, "%s", err.message);
    *pipe_out = p;
    return CERTIFY_PASSED;
}

certify_verdict certify_pipe_open(certify *c, certify_pipe *pipe_out) {
    certify_verdict verdict = certify_open(c);
    return verdict == CERTIFY_PASSED ? certify_pipe_create(c, pipe_out) : verdict;
}

certify_verdict certify_pipe_submit(certify_pipe *p, const tdm_point *waits, int32_t n_wait,
                                    uint64_t value) {
    certify *c = p->chain.rig.c;
    tdm_point done = {p->done, value};
    tdm_error err = {.struct_size = sizeof err};
    if (c->plugin->queue->graph_compute(p->queue, p->plan, waits, n_wait, &done, 1, &err) != TDM_OK)
        return certify_fail(c, "graph_compute: %.400s", err.message);
    return CERTIFY_PASSED;
}

certify_verdict certify_pipe_wait(certify_pipe *p, uint64_t value) {
    tdm_error err = {.struct_size = sizeof err};
    tdm_status status = tdm_semaphore_ops.wait(p->done, value, 30000000000u, &err);
    if (status == TDM_OK) return CERTIFY_PASSED;
    return certify_fail(p->chain.rig.c, "the computation returned '%s': %.300s",
                        tdm_status_text(status), err.message);
}

certify_verdict certify_pipe_judge(certify_pipe *p, const char *what) {
    certify_verdict verdict = certify_rig_download(&p->chain.rig);
    if (verdict != CERTIFY_PASSED) return verdict;
    return certify_rig_judge(&p->chain.rig, what, p->chain.nmse);
}

certify_verdict certify_pipe_judge_untouched(certify_pipe *p, const char *what) {
    certify_rig *rig = &p->chain.rig;
    certify_verdict verdict = certify_rig_download(rig);
    if (verdict != CERTIFY_PASSED) return verdict;
    for (size_t i = 0; i < rig->sizes[p->chain.y]; i++)
        if (rig->bytes[p->chain.y][i] != CERTIFY_RESULT_BYTE)
            return certify_fail(rig->c, "%s: the output was written", what);
    return CERTIFY_PASSED;
}
