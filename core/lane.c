/* SPDX-License-Identifier: MIT
 *
 * lane.c: queues for every device; the thread that serves those without one.
 */
#include "core/lane.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/counters.h"
#include "core/runtime_internal.h"

/* What a core thread needs to run one computation; it lives in the plan, so that submitting
 * allocates nothing. */
typedef struct lane_job {
    struct lane_job *next;
    tdm_binding *bindings; /* [graph->n_slot] */
    tdm_point waits[TDM_LANE_MAX_POINTS];
    tdm_point signals[TDM_LANE_MAX_POINTS];
    int32_t n_wait, n_signal;
    bool is_queued; /* under the lane's mutex: from submission until its signals are out */
} lane_job;

struct tdm_lane_plan {
    tdm_lane *lane;
    const tdm_graph *graph;
    tdm_plan *plan; /* NULL on a lane of the core's own */
    lane_job job;
};

struct tdm_lane {
    tdm_dev *dev;
    tdm_queue *queue; /* NULL: the members below are in use */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    lane_job *first, *last;
    bool is_stopping;
};

static tdm_lane_plan *plan_of(lane_job *job) {
    return (tdm_lane_plan *)(void *)((char *)job - offsetof(tdm_lane_plan, job));
}

static void job_run(tdm_lane *lane, lane_job *job) {
    tdm_error err = {0};
    tdm_status status = TDM_OK;
    const tdm_graph *graph = plan_of(job)->graph;
    for (int32_t i = 0; i < job->n_wait && status == TDM_OK; i++)
        status = tdm_semaphore_ops.wait(job->waits[i].semaphore, job->waits[i].value,
                                        TDM_WAIT_FOREVER, &err);
    if (status == TDM_OK) {
        pthread_mutex_lock(&lane->dev->sync_mutex);
        status = tdm_dev_plugin(lane->dev)->device->graph_compute_sync(
            tdm_dev_handle(lane->dev), graph, job->bindings, graph->n_slot, &err);
        pthread_mutex_unlock(&lane->dev->sync_mutex);
    }
    tdm_point signals[TDM_LANE_MAX_POINTS];
    int32_t n_signal = job->n_signal;
    memcpy(signals, job->signals, sizeof signals);
    /* The job is free before anyone can learn that it is done and submit the plan again. */
    pthread_mutex_lock(&lane->mutex);
    job->is_queued = false;
    pthread_cond_broadcast(&lane->changed);
    pthread_mutex_unlock(&lane->mutex);
    for (int32_t i = 0; i < n_signal; i++) {
        if (status == TDM_OK)
            tdm_semaphore_ops.signal(signals[i].semaphore, signals[i].value);
        else
            tdm_semaphore_ops.fail(signals[i].semaphore, status, &err);
    }
}

static void *lane_main(void *arg) {
    tdm_lane *lane = arg;
    for (;;) {
        pthread_mutex_lock(&lane->mutex);
        while (lane->first == NULL && !lane->is_stopping)
            pthread_cond_wait(&lane->changed, &lane->mutex);
        lane_job *job = lane->first;
        if (job != NULL) {
            lane->first = job->next;
            if (lane->first == NULL) lane->last = NULL;
        }
        pthread_mutex_unlock(&lane->mutex);
        if (job == NULL) return NULL;
        job_run(lane, job);
    }
}

static tdm_status thread_start(tdm_lane *lane, tdm_error *err) {
    pthread_mutex_init(&lane->mutex, NULL);
    pthread_cond_init(&lane->changed, NULL);
    int rc = pthread_create(&lane->thread, NULL, lane_main, lane);
    if (rc == 0) return TDM_OK;
    pthread_cond_destroy(&lane->changed);
    pthread_mutex_destroy(&lane->mutex);
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "device '%s': no thread for its queue: %s",
                    tdm_dev_name(lane->dev), strerror(rc));
}

tdm_status tdm_lane_create(tdm_dev *dev, tdm_lane **lane_out, tdm_error *err) {
    tdm_lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "queue: out of memory");
    lane->dev = dev;
    const tdm_plugin *plugin = tdm_dev_plugin(dev);
    tdm_status status = TDM_HAS(plugin, queue)
                            ? plugin->queue->create(tdm_dev_handle(dev), &lane->queue, err)
                            : thread_start(lane, err);
    if (status != TDM_OK) {
        free(lane);
        return status;
    }
    *lane_out = lane;
    return TDM_OK;
}

void tdm_lane_destroy(tdm_lane *lane) {
    if (lane == NULL) return;
    if (lane->queue != NULL) {
        tdm_dev_plugin(lane->dev)->queue->destroy(lane->queue);
    } else {
        pthread_mutex_lock(&lane->mutex);
        lane->is_stopping = true;
        pthread_cond_broadcast(&lane->changed);
        pthread_mutex_unlock(&lane->mutex);
        pthread_join(lane->thread, NULL);
        pthread_cond_destroy(&lane->changed);
        pthread_mutex_destroy(&lane->mutex);
    }
    free(lane);
}

tdm_status tdm_lane_prepare(tdm_lane *lane, const tdm_graph *graph, tdm_lane_plan **plan_out,
                            tdm_error *err) {
    tdm_lane_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "plan: out of memory");
    plan->lane = lane;
    plan->graph = graph;
    tdm_status status = TDM_OK;
    if (lane->queue != NULL) {
        tdm_plan_params params = {sizeof params, 0};
        status = tdm_dev_plugin(lane->dev)->queue->graph_prepare(tdm_dev_handle(lane->dev), graph,
                                                                 &params, &plan->plan, err);
    } else {
        plan->job.bindings = calloc((size_t)graph->n_slot + 1, sizeof(tdm_binding));
        if (plan->job.bindings == NULL)
            status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "plan: out of memory");
    }
    if (status != TDM_OK) {
        free(plan);
        return status;
    }
    tdm_counter_add(TDM_COUNTER_GRAPHS_PLANNED, 1);
    *plan_out = plan;
    return TDM_OK;
}

void tdm_lane_plan_destroy(tdm_lane_plan *plan) {
    if (plan == NULL) return;
    if (plan->plan != NULL) tdm_dev_plugin(plan->lane->dev)->queue->plan_destroy(plan->plan);
    free(plan->job.bindings);
    free(plan);
}

tdm_status tdm_lane_plan_get_info(const tdm_lane_plan *plan, tdm_plan_info *info_out,
                                  tdm_error *err) {
    memset(info_out, 0, sizeof *info_out);
    info_out->struct_size = sizeof *info_out;
    if (plan->plan == NULL) return TDM_OK;
    const tdm_queue_ops *ops = tdm_dev_plugin(plan->lane->dev)->queue;
    return TDM_HAS(ops, plan_get_info) ? ops->plan_get_info(plan->plan, info_out, err) : TDM_OK;
}

static tdm_status job_submit(tdm_lane *lane, tdm_lane_plan *plan, const tdm_binding *bindings,
                             const tdm_point *waits, int32_t n_wait, const tdm_point *signals,
                             int32_t n_signal) {
    lane_job *job = &plan->job;
    pthread_mutex_lock(&lane->mutex);
    while (job->is_queued) pthread_cond_wait(&lane->changed, &lane->mutex);
    if (plan->graph->n_slot > 0)
        memcpy(job->bindings, bindings, (size_t)plan->graph->n_slot * sizeof *bindings);
    if (n_wait > 0) memcpy(job->waits, waits, (size_t)n_wait * sizeof *waits);
    if (n_signal > 0) memcpy(job->signals, signals, (size_t)n_signal * sizeof *signals);
    job->n_wait = n_wait;
    job->n_signal = n_signal;
    job->is_queued = true;
    job->next = NULL;
    if (lane->last != NULL)
        lane->last->next = job;
    else
        lane->first = job;
    lane->last = job;
    pthread_cond_broadcast(&lane->changed);
    pthread_mutex_unlock(&lane->mutex);
    return TDM_OK;
}

tdm_status tdm_lane_compute(tdm_lane *lane, tdm_lane_plan *plan, const tdm_binding *bindings,
                            int32_t n_binding, const tdm_point *waits, int32_t n_wait,
                            const tdm_point *signals, int32_t n_signal, tdm_error *err) {
    if (n_binding != plan->graph->n_slot || n_wait < 0 || n_signal < 0 ||
        n_wait > TDM_LANE_MAX_POINTS || n_signal > TDM_LANE_MAX_POINTS)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "compute: %d bindings for %d slots, %d waits, %d signals (at most %d)",
                        n_binding, plan->graph->n_slot, n_wait, n_signal, TDM_LANE_MAX_POINTS);
    if (lane->queue == NULL)
        return job_submit(lane, plan, bindings, waits, n_wait, signals, n_signal);
    return tdm_dev_plugin(lane->dev)->queue->graph_compute(
        lane->queue, plan->plan, bindings, n_binding, waits, n_wait, signals, n_signal, err);
}
