/* SPDX-License-Identifier: MIT
 *
 * status.c: what the server says of itself: /health, /v1/models, /props, /slots, /metrics.
 */
#include <stdlib.h>
#include <string.h>

#include "server/api/state.h"

#define SLOTS_MAX 512 /* requests that /slots lists */

static server_stats stats_of(const api_context *c) {
    server_stats stats = {.struct_size = sizeof stats};
    server_engine_snapshot(c->model->engine, &stats, NULL, 0);
    return stats;
}

tdm_status api_health(api_context *c, tdm_error *err) {
    const server_stats stats = stats_of(c);
    (void)err;
    if (stats.has_failed)
        api_error_reply(c->x, API_SHAPE_OPENAI, 503,
                        "the device has failed; it is probed until it works again", 0);
    else if (stats.is_draining || __atomic_load_n(&c->api->is_draining, __ATOMIC_RELAXED))
        api_error_reply(c->x, API_SHAPE_OPENAI, 503, "the server is shutting down", 0);
    else
        api_json_reply(c->x, 200, json_pack("{s:s}", "status", "ok"));
    return TDM_OK;
}

static json_t *meta_json(const api_context *c) {
    const llm_hparams *h = &c->model->model->hparams;
    const int32_t n_ctx = server_engine_n_ctx(c->model->engine);
    return json_pack("{s:i, s:i, s:i, s:I, s:I}", "n_ctx",
                     n_ctx > 0 ? n_ctx : server_engine_n_ctx_embedding(c->model->engine), "n_vocab",
                     (int)h->n_vocab, "n_embd", (int)h->n_embd, "n_params",
                     (json_int_t)c->model->model->n_param, "size",
                     (json_int_t)c->model->model->file_size);
}

tdm_status api_models(api_context *c, tdm_error *err) {
    (void)err;
    json_t *one =
        json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", c->model->name, "object", "model", "created",
                  (json_int_t)c->api->started, "owned_by", "tandem", "meta", meta_json(c));
    api_json_reply(c->x, 200, json_pack("{s:s, s:[o]}", "object", "list", "data", one));
    return TDM_OK;
}

tdm_status api_props(api_context *c, tdm_error *err) {
    char description[96];
    (void)err;
    llm_model_describe(c->model->model, description, sizeof description);
    json_t *props = json_pack(
        "{s:{s:i, s:o}, s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b}",
        "default_generation_settings", "n_ctx", server_engine_n_ctx(c->model->engine), "params",
        api_samplers_json(&c->api->params.sampler), "total_slots", c->api->params.n_choice_max,
        "model_alias", c->model->name, "model_ftype", description, "chat_template",
        c->model->tpl_text, "bos_token", c->model->bos, "eos_token", c->model->eos, "device",
        c->model->device, "tool_format", reply_family_name(c->api->family), "is_sleeping", 0);
    api_json_reply(c->x, 200, props);
    return TDM_OK;
}

tdm_status api_slots(api_context *c, tdm_error *err) {
    static const char *const names[SERVER_STATE_COUNT_] = {"queued", "reading", "generating",
                                                           "preempted", "paused"};
    if (!c->api->params.has_slots) return tdm_fail(err, TDM_NOT_FOUND, "/slots is off (no-slots)");
    server_stats stats = {.struct_size = sizeof stats};
    server_request_info *infos = calloc(SLOTS_MAX, sizeof *infos);
    if (infos == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the slots");
    int32_t n = server_engine_snapshot(c->model->engine, &stats, infos, SLOTS_MAX);
    if (n > SLOTS_MAX) n = SLOTS_MAX;
    json_t *slots = json_array();
    for (int32_t i = 0; i < n; i++) {
        const server_request_info *info = &infos[i];
        const bool is_processing =
            info->state == SERVER_READING || info->state == SERVER_GENERATING;
        json_array_append_new(
            slots, json_pack("{s:i, s:I, s:b, s:s, s:i, s:i, s:i, s:i, s:i, s:f}", "id", info->seq,
                             "id_task", (json_int_t)info->id, "is_processing", is_processing,
                             "state", names[info->state], "n_prompt_tokens", info->usage.n_prompt,
                             "n_prompt_tokens_processed", info->n_done, "n_prompt_tokens_cache",
                             info->usage.n_cached, "n_decoded", info->usage.n_generated, "n_remain",
                             info->max_tokens > 0 ? info->max_tokens - info->usage.n_generated : -1,
                             "age_ms", (double)info->age_ns / 1e6));
    }
    free(infos);
    api_json_reply(c->x, 200, slots);
    return TDM_OK;
}

/* ---- Metrics, in the text format of Prometheus 0.0.4 ---- */

static void metric(api_buffer *text, const char *name, const char *type, const char *help,
                   double value) {
    char line[400];
    const int n =
        snprintf(line, sizeof line, "# HELP tandem_%s %s\n# TYPE tandem_%s %s\ntandem_%s %.17g\n",
                 name, help, name, type, name, value);
    api_buffer_add(text, line, (size_t)n);
}

static void metric_ends(api_buffer *text, const server_stats *s) {
    static const char head[] = "# HELP tandem_requests_ended_total requests that ended, by reason\n"
                               "# TYPE tandem_requests_ended_total counter\n";
    api_buffer_add(text, head, sizeof head - 1);
    for (int i = 0; i < SERVER_END_COUNT_; i++) {
        char line[128];
        const int n =
            snprintf(line, sizeof line, "tandem_requests_ended_total{reason=\"%s\"} %llu\n",
                     server_end_name((server_end)i), (unsigned long long)s->n_ended[i]);
        api_buffer_add(text, line, (size_t)n);
    }
}

tdm_status api_metrics(api_context *c, tdm_error *err) {
    if (!c->api->params.has_metrics)
        return tdm_fail(err, TDM_NOT_FOUND, "/metrics is off (no-metrics)");
    const server_stats s = stats_of(c);
    const uint64_t now = server_clock();
    api_buffer t = {0};
    metric(&t, "requests_running", "gauge", "requests that are computed now", s.n_running);
    metric(&t, "requests_queued", "gauge", "requests that wait", s.n_queued);
    metric(&t, "requests_paused", "gauge", "requests whose readers are slow", s.n_paused);
    metric(&t, "connections", "gauge", "connections that are open",
           c->api->http != NULL ? server_http_n_connection(c->api->http) : 0);
    metric(&t, "cache_pages", "gauge", "pages of the cache", s.n_page);
    metric(&t, "cache_pages_free", "gauge", "pages that nothing uses", s.n_page_free);
    metric(&t, "cache_sequences_held", "gauge", "sequences kept for their prefixes", s.n_held);
    metric(&t, "requests_submitted_total", "counter", "requests taken", (double)s.n_submitted);
    metric(&t, "requests_refused_total", "counter", "requests refused", (double)s.n_refused);
    metric(&t, "requests_failed_total", "counter", "requests failed", (double)s.n_failed);
    metric_ends(&t, &s);
    metric(&t, "steps_total", "counter", "steps computed", (double)s.n_step);
    metric(&t, "prompt_tokens_total", "counter", "tokens of prompts computed",
           (double)s.n_prompt_computed);
    metric(&t, "prompt_tokens_cached_total", "counter", "tokens of prompts found in the cache",
           (double)s.n_prompt_cached);
    metric(&t, "generated_tokens_total", "counter", "tokens generated", (double)s.n_generated);
    metric(&t, "embedded_tokens_total", "counter", "tokens of embeddings", (double)s.n_embedded);
    metric(&t, "preemptions_total", "counter", "requests that gave their pages back",
           (double)s.n_preempted);
    metric(&t, "replayed_tokens_total", "counter", "generated tokens computed again",
           (double)s.n_replayed);
    metric(&t, "evictions_total", "counter", "cached prefixes given up", (double)s.n_evicted);
    metric(&t, "device_failed", "gauge", "1 = the last step or probe has failed", s.has_failed);
    metric(&t, "probes_total", "counter", "tokens computed to probe a failed device",
           (double)s.n_probe);
    metric(&t, "busy_seconds_total", "counter", "time in steps", (double)s.busy_ns / 1e9);
    metric(&t, "last_step_age_seconds", "gauge", "time since the last step",
           s.last_step_ns > 0 ? (double)(now - s.last_step_ns) / 1e9 : 0);
    if (t.is_short) {
        api_buffer_clear(&t);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the metrics");
    }
    server_exchange_reply(c->x, 200, "text/plain; version=0.0.4; charset=utf-8", t.data, t.len);
    api_buffer_clear(&t);
    return TDM_OK;
}
