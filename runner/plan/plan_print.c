/* SPDX-License-Identifier: MIT
 *
 * plan_print.c: prints a plan as tables or as JSON.
 */
#include <string.h>

#include "llm/arch/declare.h"
#include "llm/arch/forward_graph.h"
#include "llm/cache/cache_costs.h"
#include "runner/json.h"
#include "runner/plan/plan.h"

#define RULE_COLUMN 12 /* column of the values behind a word, as in "model       llama" */

/* ---- Kinds of tensor ---- */

/* "blk.*.attn_q.weight" for the tensor of any layer. */
static void kind_name_format(const llm_weight *w, char *text, size_t text_size) {
    char layer[24];
    const char *name = w->file->name, *at = NULL;
    snprintf(layer, sizeof layer, ".%d.", (int)w->layer);
    if (w->layer >= 0) at = strstr(name, layer);
    if (at == NULL)
        snprintf(text, text_size, "%s", name);
    else
        snprintf(text, text_size, "%.*s.*.%s", (int)(at - name), name, at + strlen(layer));
}

static bool kind_is_same(const llm_weight *a, const llm_weight *b) {
    return a->role == b->role && a->adapter == b->adapter && (a->layer < 0) == (b->layer < 0) &&
           a->file->type == b->file->type && a->axis == b->axis &&
           (a->partition.id == 0) == (b->partition.id == 0) &&
           memcmp(a->file->ne, b->file->ne, sizeof a->file->ne) == 0;
}

/* Number of weights in the row of weight i of the table of tensors; 0 = an earlier weight has begun
 * the row. */
static int32_t kind_count(const llm_model *model, int32_t i) {
    int32_t n = 1;
    for (int32_t j = 0; j < i; j++)
        if (kind_is_same(&model->weights[i], &model->weights[j])) return 0;
    for (int32_t j = i + 1; j < model->n_weight; j++)
        n += kind_is_same(&model->weights[i], &model->weights[j]);
    return n;
}

/* The layout of a tensor or cache over a group as text: "cut along axis 1: 4 units of 64". */
static void layout_format(const tdm_partition *p, int32_t axis, char *text, size_t text_size) {
    if (p->id == 0) {
        snprintf(text, text_size, "whole on every member");
        return;
    }
    size_t n = (size_t)snprintf(text, text_size, "cut along axis %d: %d units of %d", (int)axis,
                                (int)p->n_unit, (int)p->unit_len[0]);
    for (int32_t s = 1; s < p->n_segment && s < TDM_MAX_SEGMENTS && n < text_size; s++)
        n += (size_t)snprintf(text + n, text_size - n, " + %d", (int)p->unit_len[s]);
    if (n < text_size && p->n_sub > 1)
        snprintf(text + n, text_size - n,
                 p->whole_segments != 0 ? ", whole where a part is needed"
                                        : ", each divisible by %d",
                 (int)p->n_sub);
}

static void shape_format(const int64_t *ne, char *text, size_t text_size) {
    int n_dim = TDM_MAX_DIMS;
    size_t n = 0;
    while (n_dim > 1 && ne[n_dim - 1] == 1) n_dim--;
    for (int d = 0; d < n_dim && n < text_size; d++)
        n += (size_t)snprintf(text + n, text_size - n, "%s%lld", d > 0 ? " x " : "",
                              (long long)ne[d]);
}

/* ---- For people ---- */

static void line_begin(FILE *out, const char *word) {
    fprintf(out, "%-*s", RULE_COLUMN, word);
}

/* "3.10 GiB"; "-" where it is unknown. */
static void size_cell(uint64_t size, bool is_known, char *text, size_t text_size) {
    if (is_known)
        runner_bytes_format(size, text, text_size);
    else
        snprintf(text, text_size, "-");
}

static const char *rotation_word(tdm_type type, bool is_rotated) {
    return is_rotated || !tdm_type_get_info(type).is_quantized ? "" : " unrotated";
}

/* The types of each layer that has a cache. */
static void layers_print(const runner_session *session, const llm_layer_types *layers, FILE *out) {
    for (int32_t l = 0; l < session->model->hparams.n_layer; l++) {
        const llm_layer_types *t = &layers[l];
        char name[24];
        if (!llm_cache_has_side(session->model, l, LLM_CACHE_K)) continue;
        snprintf(name, sizeof name, "layer %d", (int)l);
        line_begin(out, name);
        fprintf(out, "K %s%s, V %s%s\n", tdm_type_name(t->k), rotation_word(t->k, t->rotates_k),
                tdm_type_name(t->v), rotation_word(t->v, t->rotates_v));
    }
}

/* Prints the drafter, whose sizes the table of members includes. */
static void draft_print(const runner_plan_draft *draft, FILE *out) {
    char model[96], sizes[3][32];
    if (draft->model == NULL) return;
    llm_model_describe(draft->model, model, sizeof model);
    runner_bytes_format(draft->weight_size, sizes[0], sizeof sizes[0]);
    runner_bytes_format(draft->cache_size, sizes[1], sizeof sizes[1]);
    runner_bytes_format(draft->compute_size, sizes[2], sizeof sizes[2]);
    line_begin(out, "draft");
    fprintf(out, "%s, %s; weights %s, cache %s, compute %s, which the sizes below include\n",
            draft->model->lender != NULL ? "a layer of the model" : model, draft->model->path,
            sizes[0], sizes[1], sizes[2]);
}

static void head_print(const runner_session *session, const runner_plan *plan, FILE *out) {
    char model[96], size[32];
    llm_model_describe(session->model, model, sizeof model);
    runner_bytes_format(session->model->file_size, size, sizeof size);
    line_begin(out, "model");
    fprintf(out, "%s, %s, %s\n", model, size, session->model->path);
    draft_print(&plan->draft, out);
    line_begin(out, plan->is_group ? "group" : "device");
    fprintf(out, "%s", tdm_open_device_name(session->dev));
    if (plan->is_group)
        fprintf(out, ", %d %s", (int)(plan->n_member - plan->n_extra),
                plan->n_member - plan->n_extra == 1 ? "member" : "members");
    else
        fprintf(out, ", %s", session->info.description);
    fputc('\n', out);
    line_begin(out, "context");
    fprintf(out, "%d tokens", (int)plan->n_ctx);
    if (plan->n_seq > 1) fprintf(out, " for %d sequences", (int)plan->n_seq);
    fprintf(out, ", up to %d in a step; ", (int)plan->n_ubatch);
    if (plan->layers == NULL) {
        fprintf(out, "K %s, V %s\n", tdm_type_get_info(plan->type_k).name,
                tdm_type_get_info(plan->type_v).name);
        return;
    }
    fprintf(out, "%.4g bits for an element of the cache\n",
            llm_layer_types_bits(session->model, plan->layers));
    layers_print(session, plan->layers, out);
}

static void members_print(const runner_plan *plan, FILE *out) {
    static const char format[] = "%-20s %-7s %6s %11s %11s %11s %11s %11s %11s %11s\n";
    fputc('\n', out);
    fprintf(out, format, "member", "plugin", "share", "weights", "replicated", "cache", "compute",
            "of it whole", "free", "after");
    uint64_t sums[5] = {0};
    for (int32_t i = 0; i < plan->n_member; i++) {
        const runner_plan_member *m = &plan->members[i];
        const uint64_t sizes[] = {m->at.weight_size, m->at.replicated_size, m->at.state_size,
                                  m->at.compute_size, m->at.whole_size};
        char cells[7][32], share[16];
        for (int k = 0; k < 5; k++) {
            sums[k] += sizes[k];
            size_cell(sizes[k], true, cells[k], sizeof cells[k]);
        }
        bool is_known = m->at.memory_free > 0;
        size_cell(m->at.memory_free, is_known, cells[5], sizeof cells[5]);
        if (is_known && m->after < 0) {
            char missing[31];
            runner_bytes_format((uint64_t)-m->after, missing, sizeof missing);
            snprintf(cells[6], sizeof cells[6], "-%s", missing);
        } else {
            size_cell((uint64_t)m->after, is_known, cells[6], sizeof cells[6]);
        }
        snprintf(share, sizeof share, "%.1f %%", m->at.share * 100);
        fprintf(out, format, m->at.name, m->at.plugin, share, cells[0], cells[1], cells[2],
                cells[3], cells[4], cells[5], cells[6]);
        if (m->reserve > 0) {
            char reserve[32];
            runner_bytes_format(m->reserve, reserve, sizeof reserve);
            fprintf(out, "  of which `reserve` keeps %s\n", reserve);
        }
    }
    if (plan->n_member < 2) return;
    char cells[5][32];
    for (int k = 0; k < 5; k++) size_cell(sums[k], true, cells[k], sizeof cells[k]);
    fprintf(out, format, "together", "", "", cells[0], cells[1], cells[2], cells[3], cells[4], "",
            "");
}

/* Whether the section of the group sets attention = sequence. */
static bool is_cut_by_tokens(const runner_session *session) {
    if (!runner_section_is_group(session->section)) return false;
    return runner_section_is_given(session->app->config, session->section, "attention") &&
           strcmp(runner_section_get_string(session->app->config, session->section, "attention"),
                  "sequence") == 0;
}

static bool is_cache_in_host(const runner_session *session) {
    return !runner_config_get_bool(session->app->config, "kv-offload");
}

static void tensors_print(const runner_session *session, const runner_plan *plan, FILE *out) {
    const llm_model *model = session->model;
    char name[128], shape[64], layout[128];
    fprintf(out, "\n%-28s %5s %-7s %-20s %s\n", "tensor", "count", "type", "shape", "layout");
    for (int32_t i = 0; i < model->n_weight; i++) {
        const llm_weight *w = &model->weights[i];
        int32_t n = kind_count(model, i);
        if (n == 0) continue;
        kind_name_format(w, name, sizeof name);
        shape_format(w->file->ne, shape, sizeof shape);
        layout_format(&w->partition, w->axis, layout, sizeof layout);
        fprintf(out, "%-28s %5d %-7s %-20s %s\n", name, (int)n,
                tdm_type_get_info((tdm_type)w->file->type).name, shape,
                plan->is_group ? layout : "whole");
    }
    const runner_placement *p = &session->placement;
    const char *place = is_cache_in_host(session) ? ", in the host's memory" : "";
    tdm_partition cache = {0}; /* of the first layer that has one */
    int32_t n_cache = 0, n_recurrent = 0;
    const char *recurrent = plan->is_group ? "whole on every member" : "whole";
    for (int32_t l = 0; l < model->hparams.n_layer; l++) {
        if (llm_layer_has_cache(&model->specs[l]) && n_cache++ == 0)
            cache = llm_cache_partition(model, l);
        if (model->specs[l].recurrent.kind == LLM_MIXER_ATTENTION) continue;
        n_recurrent++;
        if (plan->is_group && llm_recurrent_partition(model, l).id != 0)
            recurrent = "cut by heads or channels";
    }
    if (n_recurrent > 0)
        fprintf(out, "%-28s %5d %-7s %-20s %s\n", "recurrent state of a layer", (int)n_recurrent,
                "f32", "", recurrent);
    fprintf(out, "%-28s %5d %-7s %-20s ", "cache of a layer", (int)n_cache, "", "");
    bool is_whole = !plan->is_group || (cache.id == 0 && !is_cut_by_tokens(session));
    if (p->cache_dev > 0)
        fprintf(out, "whole on '%s'\n", tdm_open_device_name(p->devs[p->cache_dev]));
    else if (is_whole)
        fprintf(out, "%s%s\n", plan->is_group ? "whole on every member" : "whole", place);
    else if (is_cut_by_tokens(session))
        fprintf(out, "cut by tokens, page by page%s\n", place);
    else
        fprintf(out, "cut by KV heads: %d%s\n", (int)cache.n_unit, place);
    if (plan->window.n_layer > 0) {
        char size[32];
        runner_bytes_format(plan->window.size, size, sizeof size);
        fprintf(out, "%-28s %5d %-7s %-20s room for %lld tokens: %s in all\n",
                "  of them with a window", (int)plan->window.n_layer, "", "",
                (long long)plan->window.n_tok, size);
    }
    for (int32_t i = 0; i < p->n_override; i++)
        fprintf(out, "%s %s: %d tensors on '%s'\n", p->overrides[i].key, p->overrides[i].pattern,
                (int)p->overrides[i].n_tensor, tdm_open_device_name(p->devs[p->overrides[i].dev]));
}

static void exchange_print(const tdm_split_report *report, const char *word, const char *step,
                           FILE *out) {
    char size[32];
    runner_bytes_format(report->exchange_size, size, sizeof size);
    line_begin(out, word);
    fprintf(out, "%d in %s, %s", (int)report->n_exchange, step, size);
    if (report->n_relayout > 0) fprintf(out, ", %d of them re-layouts", (int)report->n_relayout);
    if (report->exchange_seconds > 0)
        fprintf(out, ", %.3f ms expected", report->exchange_seconds * 1e3);
    fputc('\n', out);
}

/* "a step that generates a token" */
static void decode_format(const runner_plan *plan, char *text, size_t text_size) {
    if (plan->n_seq == 1)
        snprintf(text, text_size, "a step that generates a token");
    else
        snprintf(text, text_size, "a step that generates %d tokens", (int)plan->n_seq);
}

/* Prints the caches of members in host memory, and the bytes that cross between a member and the
 * CPU in a step. */
static void crossings_print(const runner_plan *plan, FILE *out) {
    char step[64];
    bool is_first = true;
    decode_format(plan, step, sizeof step);
    for (int32_t i = 0; i < plan->n_member; i++) {
        const runner_plan_member *m = &plan->members[i];
        char sizes[3][32];
        if (m->at.host_state_size == 0 && m->at.crossing_size == 0) continue;
        runner_bytes_format(m->at.host_state_size, sizes[0], sizeof sizes[0]);
        runner_bytes_format(m->decode_crossing_size, sizes[1], sizeof sizes[1]);
        runner_bytes_format(m->at.crossing_size, sizes[2], sizeof sizes[2]);
        if (is_first) fputc('\n', out);
        line_begin(out, is_first ? "host" : "");
        is_first = false;
        fprintf(out, "%s: ", m->at.name);
        if (m->at.host_state_size > 0) fprintf(out, "%s of cache in the host's memory; ", sizes[0]);
        fprintf(out, "%s to the CPU and back in %s, %s in a step of %d tokens of a prompt\n",
                sizes[1], step, sizes[2], (int)plan->n_ubatch);
    }
}

static void exchanges_print(const runner_plan *plan, FILE *out) {
    char step[64];
    decode_format(plan, step, sizeof step);
    fputc('\n', out);
    exchange_print(&plan->decode, "exchanges", step, out);
    snprintf(step, sizeof step, "a step of %d tokens of a prompt", (int)plan->n_ubatch);
    exchange_print(&plan->prefill, "", step, out);
    for (int32_t i = 0; i < plan->n_member; i++) {
        if (plan->members[i].at.transport[0] == '\0') continue;
        line_begin(out, i == 0 ? "transport" : "");
        fprintf(out, "%s: %s\n", plan->members[i].at.name, plan->members[i].at.transport);
    }
}

static void rate_print(FILE *out, const char *word, double decode, double prefill) {
    char cells[2][32] = {"unknown", "unknown"};
    if (decode > 0) snprintf(cells[0], sizeof cells[0], "%.1f t/s", decode);
    if (prefill > 0) snprintf(cells[1], sizeof cells[1], "%.1f t/s", prefill);
    fprintf(out, "%-28s %14s %14s\n", word, cells[0], cells[1]);
}

static void rates_print(const runner_session *session, const runner_plan *plan, FILE *out) {
    fprintf(out, "\n%-28s %14s %14s\n",
            plan->excludes_host_cache ? "expected, without the host" : "expected", "generation",
            "prompt");
    char word[64];
    snprintf(word, sizeof word, "%s%s", tdm_open_device_name(session->dev),
             plan->is_group ? " as configured" : "");
    rate_print(out, word, plan->decode_rate, plan->prefill_rate);
    if (!plan->is_group) return;
    rate_print(out, "split = layer", plan->decode_layer_rate, plan->prefill_layer_rate);
    for (int32_t i = 0; i < plan->n_member - plan->n_extra; i++) {
        const runner_plan_member *m = &plan->members[i];
        snprintf(word, sizeof word, "%s alone%s", m->at.name,
                 m->alone_decode_rate > 0 && !m->alone_fits ? " (too small)" : "");
        rate_print(out, word, m->alone_decode_rate, m->alone_prefill_rate);
    }
}

void runner_plan_print(const runner_session *session, const runner_plan *plan, FILE *out) {
    head_print(session, plan, out);
    members_print(plan, out);
    tensors_print(session, plan, out);
    if (plan->is_group) exchanges_print(plan, out);
    crossings_print(plan, out);
    rates_print(session, plan, out);
    fprintf(out, "\n%s\n", plan->verdict);
}

/* ---- For programs ---- */

/* A number; null where it is 0, which means unknown. */
static void known_number(runner_json_writer *w, const char *key, double value) {
    if (value > 0)
        runner_json_number(w, key, value);
    else
        runner_json_null(w, key);
}

static void known_size(runner_json_writer *w, const char *key, uint64_t size) {
    if (size > 0)
        runner_json_uint(w, key, size);
    else
        runner_json_null(w, key);
}

static void rates_write(runner_json_writer *w, const char *key, double decode, double prefill) {
    runner_json_begin_object(w, key);
    known_number(w, "generation", decode);
    known_number(w, "prompt", prefill);
    runner_json_end_object(w);
}

static void members_write(runner_json_writer *w, const runner_plan *plan) {
    runner_json_begin_array(w, "members");
    for (int32_t i = 0; i < plan->n_member; i++) {
        const runner_plan_member *m = &plan->members[i];
        runner_json_begin_object(w, NULL);
        runner_json_string(w, "name", m->at.name);
        runner_json_string(w, "plugin", m->at.plugin);
        runner_json_number(w, "share", m->at.share);
        runner_json_uint(w, "weight_size", m->at.weight_size);
        runner_json_uint(w, "replicated_size", m->at.replicated_size);
        runner_json_uint(w, "cache_size", m->at.state_size);
        runner_json_uint(w, "host_cache_size", m->at.host_state_size);
        runner_json_uint(w, "compute_size", m->at.compute_size);
        runner_json_uint(w, "compute_whole_size", m->at.whole_size);
        runner_json_uint(w, "reserve", m->reserve);
        known_size(w, "memory_total", m->at.memory_total);
        if (m->at.memory_free > 0) {
            runner_json_uint(w, "memory_free", m->at.memory_free);
            runner_json_int(w, "memory_after", m->after);
        } else {
            runner_json_null(w, "memory_free");
            runner_json_null(w, "memory_after");
        }
        runner_json_bool(w, "fits", m->fits);
        known_number(w, "bandwidth", m->at.bandwidth);
        known_number(w, "arithmetic", m->at.arithmetic);
        known_number(w, "generation_seconds", m->decode_seconds);
        known_number(w, "prompt_seconds", m->at.seconds);
        runner_json_string(w, "transport", m->at.transport);
        runner_json_begin_object(w, "crossing_bytes");
        runner_json_uint(w, "generation", m->decode_crossing_size);
        runner_json_uint(w, "prompt", m->at.crossing_size);
        runner_json_end_object(w);
        rates_write(w, "alone", m->alone_decode_rate, m->alone_prefill_rate);
        runner_json_bool(w, "fits_alone", m->alone_fits);
        runner_json_end_object(w);
    }
    runner_json_end_array(w);
}

static void tensors_write(runner_json_writer *w, const llm_model *model) {
    char name[128], layout[128];
    runner_json_begin_array(w, "tensors");
    for (int32_t i = 0; i < model->n_weight; i++) {
        const llm_weight *t = &model->weights[i];
        int32_t n = kind_count(model, i);
        if (n == 0) continue;
        kind_name_format(t, name, sizeof name);
        layout_format(&t->partition, t->axis, layout, sizeof layout);
        runner_json_begin_object(w, NULL);
        runner_json_string(w, "name", name);
        runner_json_int(w, "count", n);
        runner_json_string(w, "type", tdm_type_get_info((tdm_type)t->file->type).name);
        runner_json_begin_array(w, "shape");
        for (int d = 0; d < TDM_MAX_DIMS; d++) runner_json_int(w, NULL, t->file->ne[d]);
        runner_json_end_array(w);
        runner_json_string(w, "layout", layout);
        if (t->partition.id == 0) {
            runner_json_null(w, "axis");
            runner_json_null(w, "units");
        } else {
            runner_json_int(w, "axis", t->axis);
            runner_json_int(w, "units", t->partition.n_unit);
        }
        runner_json_end_object(w);
    }
    runner_json_end_array(w);
}

static void overrides_write(runner_json_writer *w, const runner_placement *p) {
    runner_json_begin_array(w, "overrides");
    for (int32_t i = 0; i < p->n_override; i++) {
        runner_json_begin_object(w, NULL);
        runner_json_string(w, "pattern", p->overrides[i].pattern);
        runner_json_string(w, "device", tdm_open_device_name(p->devs[p->overrides[i].dev]));
        runner_json_int(w, "tensors", p->overrides[i].n_tensor);
        runner_json_end_object(w);
    }
    runner_json_end_array(w);
    if (p->cache_dev > 0)
        runner_json_string(w, "cache_device", tdm_open_device_name(p->devs[p->cache_dev]));
    else
        runner_json_null(w, "cache_device");
}

static void exchange_write(runner_json_writer *w, const char *key, const tdm_split_report *report) {
    runner_json_begin_object(w, key);
    runner_json_int(w, "count", report->n_exchange);
    runner_json_int(w, "relayouts", report->n_relayout);
    runner_json_uint(w, "bytes", report->exchange_size);
    known_number(w, "seconds", report->exchange_seconds);
    runner_json_end_object(w);
}

/* Bits of an element of the cache, and the types of each layer; null where a layer has no cache. */
static void layers_write(runner_json_writer *w, const runner_session *session,
                         const llm_layer_types *layers) {
    runner_json_number(w, "cache_bits", llm_layer_types_bits(session->model, layers));
    runner_json_begin_array(w, "layers");
    for (int32_t l = 0; l < session->model->hparams.n_layer; l++) {
        if (!llm_cache_has_side(session->model, l, LLM_CACHE_K)) {
            runner_json_null(w, NULL);
            continue;
        }
        runner_json_begin_object(w, NULL);
        runner_json_string(w, "type_k", tdm_type_name(layers[l].k));
        runner_json_string(w, "type_v", tdm_type_name(layers[l].v));
        runner_json_bool(w, "is_rotated_k", layers[l].rotates_k);
        runner_json_bool(w, "is_rotated_v", layers[l].rotates_v);
        runner_json_end_object(w);
    }
    runner_json_end_array(w);
}

/* Writes the drafter; null = none, or n-grams. */
static void draft_write(runner_json_writer *w, const runner_plan_draft *draft) {
    if (draft->model == NULL) {
        runner_json_null(w, "draft");
        return;
    }
    runner_json_begin_object(w, "draft");
    runner_json_string(w, "path", draft->model->path);
    runner_json_bool(w, "is_layer", draft->model->lender != NULL);
    runner_json_uint(w, "draft_weight_size", draft->weight_size);
    runner_json_uint(w, "draft_cache_size", draft->cache_size);
    runner_json_uint(w, "draft_compute_size", draft->compute_size);
    runner_json_end_object(w);
}

void runner_plan_print_json(const runner_session *session, const runner_plan *plan, FILE *out) {
    runner_json_writer writer = {.out = out}, *w = &writer;
    char model[96];
    llm_model_describe(session->model, model, sizeof model);
    runner_json_begin_object(w, NULL);
    runner_json_begin_object(w, "model");
    runner_json_string(w, "path", session->model->path);
    runner_json_string(w, "description", model);
    runner_json_uint(w, "file_size", session->model->file_size);
    runner_json_uint(w, "n_params", session->model->n_param);
    runner_json_end_object(w);
    draft_write(w, &plan->draft);
    runner_json_begin_object(w, "device");
    runner_json_string(w, "name", tdm_open_device_name(session->dev));
    runner_json_string(w, "plugin", tdm_open_device_plugin(session->dev)->name);
    runner_json_string(w, "description", session->info.description);
    runner_json_bool(w, "is_group", plan->is_group);
    runner_json_end_object(w);
    runner_json_begin_object(w, "context");
    runner_json_int(w, "n_ctx", plan->n_ctx);
    runner_json_int(w, "n_ubatch", plan->n_ubatch);
    runner_json_int(w, "n_seq", plan->n_seq);
    if (plan->layers == NULL) {
        runner_json_string(w, "type_k", tdm_type_get_info(plan->type_k).name);
        runner_json_string(w, "type_v", tdm_type_get_info(plan->type_v).name);
    } else {
        layers_write(w, session, plan->layers);
    }
    runner_json_int(w, "n_window_layer", plan->window.n_layer);
    runner_json_int(w, "n_window_tok", plan->window.n_tok);
    runner_json_uint(w, "window_size", plan->window.size);
    runner_json_end_object(w);
    members_write(w, plan);
    tensors_write(w, session->model);
    overrides_write(w, &session->placement);
    runner_json_bool(w, "cache_in_host", is_cache_in_host(session));
    runner_json_begin_object(w, "exchanges");
    exchange_write(w, "generation", &plan->decode);
    exchange_write(w, "prompt", &plan->prefill);
    runner_json_end_object(w);
    runner_json_begin_object(w, "tokens_per_second");
    rates_write(w, "configured", plan->decode_rate, plan->prefill_rate);
    rates_write(w, "layer", plan->decode_layer_rate, plan->prefill_layer_rate);
    runner_json_end_object(w);
    runner_json_bool(w, "speeds_exclude_host_cache", plan->excludes_host_cache);
    runner_json_bool(w, "fits", plan->fits);
    runner_json_string(w, "verdict", plan->verdict);
    runner_json_end_object(w);
}
