/* SPDX-License-Identifier: MIT
 *
 * status.c: the state of the server: /health, /v1/models, /props, /slots; and llama-server's routes
 * that load and unload models.
 */
#include <stdlib.h>
#include <string.h>

#include "server/api/state.h"

#define SLOTS_MAX 512 /* requests that /slots lists */

static server_stats stats_of(const server_model *model) {
    server_stats stats = {.struct_size = sizeof stats};
    server_engine_snapshot(model->engine, &stats, NULL, 0);
    return stats;
}

tdm_status api_health(api_context *c, tdm_error *err) {
    server_models *models = c->api->params.models;
    const char *failed = NULL;
    tdm_error failure = {0};
    bool is_draining = __atomic_load_n(&c->api->is_draining, __ATOMIC_RELAXED);
    (void)err;
    for (int32_t i = 0; i < server_models_n(models); i++) {
        const server_model *model = server_models_peek(models, i);
        if (model == NULL) continue;
        const server_stats stats = stats_of(model);
        if (stats.has_failed) {
            failed = server_models_name(models, i);
            failure = stats.failure;
        }
        is_draining = is_draining || stats.is_draining;
        server_models_release(models, model);
    }
    if (failed != NULL) {
        char message[sizeof failure.message + 200], of[100] = "";
        if (server_models_n(models) > 1) snprintf(of, sizeof of, " of model '%.80s'", failed);
        /* TDM_UNAVAILABLE: the device is lost, and its message says what to do; probes may not
         * help. */
        snprintf(message, sizeof message, "the device%s has failed: %s%s", of, failure.message,
                 failure.status == TDM_UNAVAILABLE ? "" : "; it is probed until it works again");
        api_error_reply(c->x, API_SHAPE_OPENAI, 503, message, 0);
    } else if (is_draining) {
        api_error_reply(c->x, API_SHAPE_OPENAI, 503, "the server is shutting down", 0);
    } else {
        api_json_reply(c->x, 200, json_pack("{s:s}", "status", "ok"));
    }
    return TDM_OK;
}

/* ---- /models ---- */

static json_t *meta_json(const server_model *model) {
    const llm_hparams *h = &model->model->hparams;
    const int32_t n_ctx = server_engine_n_ctx(model->engine);
    return json_pack("{s:i, s:i, s:i, s:I, s:I}", "n_ctx",
                     n_ctx > 0 ? n_ctx : server_engine_n_ctx_embedding(model->engine), "n_vocab",
                     (int)h->n_vocab, "n_embd", (int)h->n_embd, "n_params",
                     (json_int_t)model->model->n_param, "size",
                     (json_int_t)model->model->file_size);
}

/* The state of a model in the words of llama-server's router. */
static const char *state_word(server_model_state state) {
    switch (state) {
    case SERVER_MODEL_OPEN:
    case SERVER_MODEL_LEAVING: return "loaded";
    case SERVER_MODEL_WAITING:
    case SERVER_MODEL_OPENING: return "loading";
    default: return "unloaded";
    }
}

tdm_status api_models(api_context *c, tdm_error *err) {
    server_models *models = c->api->params.models;
    json_t *list = json_array();
    (void)err;
    for (int32_t i = 0; i < server_models_n(models); i++) {
        server_model_info info;
        server_models_info(models, i, &info);
        const server_model *model = server_models_peek(models, i);
        json_t *state = json_pack("{s:s}", "value", state_word(info.state));
        if (info.has_failed) json_object_set_new(state, "failed", json_true());
        json_t *one = json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", server_models_name(models, i),
                                "object", "model", "created", (json_int_t)c->api->started,
                                "owned_by", "tandem", "status", state);
        if (model != NULL) {
            json_object_set_new(one, "meta", meta_json(model));
            server_models_release(models, model);
        }
        json_array_append_new(list, one);
    }
    api_json_reply(c->x, 200, json_pack("{s:s, s:o}", "object", "list", "data", list));
    return TDM_OK;
}

/* The route needs an open model (MODEL_OPEN), so the model is open when this runs. */
tdm_status api_models_load(api_context *c, tdm_error *err) {
    (void)err;
    api_json_reply(c->x, 200, json_pack("{s:b}", "success", 1));
    return TDM_OK;
}

tdm_status api_models_unload(api_context *c, tdm_error *err) {
    server_models *models = c->api->params.models;
    if (!server_models_unload(models, c->model_index))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "the model '%.80s' is not loaded",
                        server_models_name(models, c->model_index));
    api_json_reply(c->x, 200, json_pack("{s:b}", "success", 1));
    return TDM_OK;
}

/* ---- /props and /slots ---- */

tdm_status api_props(api_context *c, tdm_error *err) {
    char description[96];
    (void)err;
    llm_model_describe(c->model->model, description, sizeof description);
    json_t *props = json_pack(
        "{s:{s:i, s:o}, s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b}",
        "default_generation_settings", "n_ctx", server_engine_n_ctx(c->model->engine), "params",
        api_samplers_json(&c->model->sampler), "total_slots", (int)c->model->n_running,
        "model_alias", c->model->name, "model_ftype", description, "chat_template",
        c->model->tpl_text, "bos_token", c->model->bos, "eos_token", c->model->eos, "device",
        c->model->device, "tool_format", reply_family_name(api_family(c->model)), "is_sleeping", 0);
    api_json_reply(c->x, 200, props);
    return TDM_OK;
}

tdm_status api_model_argument(const api_context *c, int32_t *index_out, tdm_error *err) {
    const char *name = server_exchange_argument(c->x, "model");
    *index_out = -1;
    if (name[0] == '\0' || server_models_n(c->api->params.models) == 1) return TDM_OK;
    return api_model_find(c->api, name, index_out, err);
}

static tdm_status slots_add(const server_model *model, bool is_named, json_t *slots,
                            tdm_error *err) {
    static const char *const names[SERVER_STATE_COUNT_] = {"queued", "reading", "generating",
                                                           "preempted", "paused"};
    server_stats stats = {.struct_size = sizeof stats};
    server_request_info *infos = calloc(SLOTS_MAX, sizeof *infos);
    if (infos == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the slots");
    int32_t n = server_engine_snapshot(model->engine, &stats, infos, SLOTS_MAX);
    if (n > SLOTS_MAX) n = SLOTS_MAX;
    for (int32_t i = 0; i < n; i++) {
        const server_request_info *info = &infos[i];
        const bool is_processing =
            info->state == SERVER_READING || info->state == SERVER_GENERATING;
        json_t *slot = json_pack(
            "{s:i, s:I, s:b, s:s, s:i, s:i, s:i, s:i, s:i, s:f}", "id", info->seq, "id_task",
            (json_int_t)info->id, "is_processing", is_processing, "state", names[info->state],
            "n_prompt_tokens", info->usage.n_prompt, "n_prompt_tokens_processed", info->n_done,
            "n_prompt_tokens_cache", info->usage.n_cached, "n_decoded", info->usage.n_generated,
            "n_remain", info->max_tokens > 0 ? info->max_tokens - info->usage.n_generated : -1,
            "age_ms", (double)info->age_ns / 1e6);
        if (is_named) json_object_set_new(slot, "model", json_string(model->name));
        json_array_append_new(slots, slot);
    }
    free(infos);
    return TDM_OK;
}

tdm_status api_slots(api_context *c, tdm_error *err) {
    server_models *models = c->api->params.models;
    int32_t only = -1;
    if (!c->api->params.has_slots) return tdm_fail(err, TDM_NOT_FOUND, "/slots is off (no-slots)");
    tdm_status status = api_model_argument(c, &only, err);
    json_t *slots = json_array();
    for (int32_t i = 0; i < server_models_n(models) && status == TDM_OK; i++) {
        const server_model *model = only < 0 || only == i ? server_models_peek(models, i) : NULL;
        if (model == NULL) continue;
        status = slots_add(model, server_models_n(models) > 1, slots, err);
        server_models_release(models, model);
    }
    if (status == TDM_OK)
        api_json_reply(c->x, 200, slots);
    else
        json_decref(slots);
    return status;
}
