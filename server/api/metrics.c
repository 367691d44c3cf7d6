/* SPDX-License-Identifier: MIT
 *
 * metrics.c: /metrics, in the text format of Prometheus 0.0.4
 * (https://prometheus.io/docs/instrumenting/exposition_formats/). Where the server has several
 * models, the metrics of each have the label `model`.
 */
#include <stdlib.h>
#include <string.h>

#include "server/api/state.h"

/* The present state of a model. */
typedef struct sample {
    const char *name;
    server_model_info info;
    bool is_open; /* the model is open, and the next two are set */
    server_stats stats;
    double bytes; /* of its file */
} sample;

typedef struct page {
    api_buffer text;
    const sample *samples; /* [n] the models that are shown */
    int32_t n;
    bool is_labelled; /* metrics have the label `model` */
    uint64_t now;     /* server_clock() */
} page;

static void head(page *p, const char *name, const char *type, const char *help) {
    char line[320];
    const int n = snprintf(line, sizeof line, "# HELP tandem_%s %s\n# TYPE tandem_%s %s\n", name,
                           help, name, type);
    api_buffer_add(&p->text, line, (size_t)n);
}

/* Adds a value, with the labels {model="NAME",LABEL}. s NULL: the value is of no model. label "" =
 * none. */
static void value_add(page *p, const char *name, const sample *s, const char *label, double value) {
    char line[160];
    const bool is_named = s != NULL && p->is_labelled;
    api_buffer_add(&p->text, "tandem_", 7);
    api_buffer_add(&p->text, name, strlen(name));
    if (is_named || label[0] != '\0') api_buffer_add(&p->text, "{", 1);
    if (is_named) {
        api_buffer_add(&p->text, "model=\"", 7);
        for (const char *at = s->name; *at != '\0'; at++) {
            if (*at == '"' || *at == '\\') api_buffer_add(&p->text, "\\", 1);
            api_buffer_add(&p->text, at, 1);
        }
        api_buffer_add(&p->text, "\",", label[0] != '\0' ? 2 : 1);
    }
    api_buffer_add(&p->text, label, strlen(label));
    if (is_named || label[0] != '\0') api_buffer_add(&p->text, "}", 1);
    const int n = snprintf(line, sizeof line, " %.17g\n", value);
    api_buffer_add(&p->text, line, (size_t)n);
}

typedef double (*reader)(const server_stats *s, uint64_t now);

/* Adds a metric of engines, with a value for each model that is open. */
static void metric(page *p, const char *name, const char *type, const char *help, reader read) {
    head(p, name, type, help);
    for (int32_t i = 0; i < p->n; i++)
        if (p->samples[i].is_open)
            value_add(p, name, &p->samples[i], "", read(&p->samples[i].stats, p->now));
}

#define READER(name, expression)                                                                   \
    static double name(const server_stats *s, uint64_t now) {                                      \
        (void)now;                                                                                 \
        return (double)(expression);                                                               \
    }
READER(running, s->n_running)
READER(queued, s->n_queued)
READER(paused, s->n_paused)
READER(pages, s->n_page)
READER(pages_free, s->n_page_free)
READER(held, s->n_held)
READER(submitted, s->n_submitted)
READER(refused, s->n_refused)
READER(failed, s->n_failed)
READER(steps, s->n_step)
READER(computed, s->n_prompt_computed)
READER(cached, s->n_prompt_cached)
READER(generated, s->n_generated)
READER(embedded, s->n_embedded)
READER(drafted, s->n_draft)
READER(drafts_accepted, s->n_draft_accepted)
READER(preempted, s->n_preempted)
READER(replayed, s->n_replayed)
READER(evicted, s->n_evicted)
READER(device_failed, s->has_failed)
READER(probes, s->n_probe)
READER(busy, (double)s->busy_ns / 1e9)
/* A step may have ended after the page's `now`. */
READER(step_age,
       s->last_step_ns > 0 && now > s->last_step_ns ? (double)(now - s->last_step_ns) / 1e9 : 0)

static void metric_ends(page *p) {
    head(p, "requests_ended_total", "counter", "requests that ended, by reason");
    for (int32_t k = 0; k < p->n; k++)
        for (int i = 0; i < SERVER_END_COUNT_ && p->samples[k].is_open; i++) {
            char label[64];
            snprintf(label, sizeof label, "reason=\"%s\"", server_end_name((server_end)i));
            value_add(p, "requests_ended_total", &p->samples[k], label,
                      (double)p->samples[k].stats.n_ended[i]);
        }
}

/* Adds the metrics that models have which are not open, too. */
static void models_add(page *p) {
    head(p, "model_open", "gauge", "1 = the model is open");
    for (int32_t i = 0; i < p->n; i++)
        value_add(p, "model_open", &p->samples[i], "", p->samples[i].is_open);
    head(p, "model_requests_waiting", "gauge", "requests that wait until the model is open");
    for (int32_t i = 0; i < p->n; i++)
        value_add(p, "model_requests_waiting", &p->samples[i], "", p->samples[i].info.n_wait);
    head(p, "model_bytes", "gauge", "size of the file of an open model");
    for (int32_t i = 0; i < p->n; i++)
        if (p->samples[i].is_open)
            value_add(p, "model_bytes", &p->samples[i], "", p->samples[i].bytes);
    head(p, "model_opened_total", "counter", "times that the model was opened");
    for (int32_t i = 0; i < p->n; i++)
        value_add(p, "model_opened_total", &p->samples[i], "", (double)p->samples[i].info.n_opened);
    head(p, "model_closed_total", "counter", "times that the model was closed");
    for (int32_t i = 0; i < p->n; i++)
        value_add(p, "model_closed_total", &p->samples[i], "", (double)p->samples[i].info.n_closed);
    head(p, "model_failed_total", "counter", "times that the model could not be opened");
    for (int32_t i = 0; i < p->n; i++)
        value_add(p, "model_failed_total", &p->samples[i], "", (double)p->samples[i].info.n_failed);
}

static void metrics_add(page *p, const server_api *api) {
    metric(p, "requests_running", "gauge", "requests that are computed now", running);
    metric(p, "requests_queued", "gauge", "requests that wait", queued);
    metric(p, "requests_paused", "gauge", "requests whose readers are slow", paused);
    head(p, "connections", "gauge", "connections that are open");
    value_add(p, "connections", NULL, "",
              api->http != NULL ? server_http_n_connection(api->http) : 0);
    metric(p, "cache_pages", "gauge", "pages of the cache", pages);
    metric(p, "cache_pages_free", "gauge", "pages that nothing uses", pages_free);
    metric(p, "cache_sequences_held", "gauge", "sequences kept for their prefixes", held);
    metric(p, "requests_submitted_total", "counter", "requests taken", submitted);
    metric(p, "requests_refused_total", "counter", "requests refused", refused);
    metric(p, "requests_failed_total", "counter", "requests failed", failed);
    metric_ends(p);
    metric(p, "steps_total", "counter", "steps computed", steps);
    metric(p, "prompt_tokens_total", "counter", "tokens of prompts computed", computed);
    metric(p, "prompt_tokens_cached_total", "counter", "tokens of prompts found in the cache",
           cached);
    metric(p, "generated_tokens_total", "counter", "tokens generated", generated);
    metric(p, "drafted_tokens_total", "counter", "tokens drafted and checked", drafted);
    metric(p, "drafted_tokens_accepted_total", "counter", "drafted tokens that were generated",
           drafts_accepted);
    metric(p, "embedded_tokens_total", "counter", "tokens of embeddings", embedded);
    metric(p, "preemptions_total", "counter", "requests that gave their pages back", preempted);
    metric(p, "replayed_tokens_total", "counter", "generated tokens computed again", replayed);
    metric(p, "evictions_total", "counter", "cached prefixes given up", evicted);
    metric(p, "device_failed", "gauge", "1 = the last step or probe has failed", device_failed);
    metric(p, "probes_total", "counter", "tokens computed to probe a failed device", probes);
    metric(p, "busy_seconds_total", "counter", "time in steps", busy);
    metric(p, "last_step_age_seconds", "gauge", "time since the last step", step_age);
    models_add(p);
}

tdm_status api_metrics(api_context *c, tdm_error *err) {
    server_models *models = c->api->params.models;
    const int32_t n = server_models_n(models);
    int32_t only = -1;
    if (!c->api->params.has_metrics)
        return tdm_fail(err, TDM_NOT_FOUND, "/metrics is off (no-metrics)");
    tdm_status status = api_model_argument(c, &only, err);
    if (status != TDM_OK) return status;
    sample *samples = calloc((size_t)n, sizeof *samples);
    if (samples == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the metrics");
    page p = {.samples = samples, .is_labelled = n > 1, .now = server_clock()};
    for (int32_t i = 0; i < n; i++) {
        if (only >= 0 && only != i) continue;
        sample *s = &samples[p.n++];
        s->name = server_models_name(models, i);
        server_models_info(models, i, &s->info);
        const server_model *model = server_models_peek(models, i);
        if (model == NULL) continue;
        s->is_open = true;
        s->stats.struct_size = sizeof s->stats;
        server_engine_snapshot(model->engine, &s->stats, NULL, 0);
        s->bytes = (double)model->model->file_size;
        server_models_release(models, model);
    }
    metrics_add(&p, c->api);
    free(samples);
    if (p.text.is_short)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the metrics");
    else
        server_exchange_reply(c->x, 200, "text/plain; version=0.0.4; charset=utf-8", p.text.data,
                              p.text.len);
    api_buffer_clear(&p.text);
    return status;
}
