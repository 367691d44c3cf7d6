/* SPDX-License-Identifier: MIT
 *
 * test_group_memory.c: the memory that a plan predicts for the members of a group is what is
 * allocated there, within 1 %. Of a member's compute memory, only what the plan lists as fixed does
 * not shrink with its share.
 *
 * A ledger between the group and each of its members counts the bytes of every buffer and plan that
 * the group makes there. Host memory is read from the group's own structures: the arena, of which
 * each member counts an equal share, and what a plan stages for a member. Two things are not
 * counted, nor are they on a single device: the descriptions of graphs that host code keeps, and
 * the group's host buffers for inputs and logits, which lie on no member.
 */
#include "tests/model/rig.h"

#include "llm/context_internal.h"
#include "llm/report.h"
#include "plugins/meta/exchange/arena.h"
#include "plugins/meta/buffer.h"
#include "plugins/meta/layout/partition_table.h"
#include "plugins/meta/exec/plan.h"
#include "core/stages/schedule_internal.h"
#include "tests/model/arch_fixture.h"
#include "tests/model/group_device.h"
#include "tests/model/adapted_buffer.h"
#include "tests/model/preset.h"

/* ---- The ledger ------------------------------------------------------------------------------ */

enum { MAX_ENTRY = 256, N_PURPOSE = TDM_BUFFER_ARENA + 1 };

/* A buffer, plan or queue that is there. */
typedef struct entry {
    void *what; /* NULL = free for another */
    uint64_t *sum;
    uint64_t size;
    struct account *account; /* of a queue; NULL else */
} entry;

typedef struct account {
    tdm_device *device;
    uint64_t buffers[N_PURPOSE]; /* bytes, by tdm_buffer_purpose */
    uint64_t plans;
    uint64_t scratch; /* the most that a plan needed of its queue */
    int n_call;       /* of those that allocate */
} account;

static struct {
    const tdm_plugin *reals[GROUP_MAX_MEMBER]; /* of each member; their tables are the same */
    const tdm_plugin *real;
    tdm_plugin plugin;
    tdm_buffer_ops buffer;
    tdm_queue_ops queue;
    account accounts[GROUP_MAX_MEMBER];
    int n_account;
    entry entries[MAX_ENTRY];
} ledger;

static account *ledger_find(const tdm_device *device) {
    for (int i = 0; i < ledger.n_account; i++)
        if (ledger.accounts[i].device == device) return &ledger.accounts[i];
    fail_msg("a device that is no member");
    return NULL;
}

static void ledger_add(void *what, uint64_t size, uint64_t *sum) {
    for (int i = 0; i < MAX_ENTRY; i++) {
        if (ledger.entries[i].what != NULL) continue;
        ledger.entries[i] = (entry){.what = what, .sum = sum, .size = size};
        *sum += size;
        return;
    }
    fail_msg("more than %d buffers and plans", MAX_ENTRY);
}

static tdm_status ledger_queue(tdm_device *device, tdm_queue **queue_out, tdm_error *err) {
    account *a = ledger_find(device);
    static uint64_t none;
    a->n_call++;
    tdm_status status = ledger.real->queue->create(device, queue_out, err);
    for (int i = 0; i < MAX_ENTRY && status == TDM_OK; i++) {
        if (ledger.entries[i].what != NULL) continue;
        ledger.entries[i] = (entry){.what = *queue_out, .sum = &none, .account = a};
        return TDM_OK;
    }
    return status;
}

static account *ledger_find_queue(const tdm_queue *queue) {
    for (int i = 0; i < MAX_ENTRY; i++)
        if (ledger.entries[i].what == queue) return ledger.entries[i].account;
    fail_msg("a queue that no member made");
    return NULL;
}

/* What was made before the ledger was opened is not in it. */
static void ledger_remove(const void *what) {
    for (int i = 0; i < MAX_ENTRY && what != NULL; i++) {
        if (ledger.entries[i].what != what) continue;
        *ledger.entries[i].sum -= ledger.entries[i].size;
        ledger.entries[i].what = NULL;
    }
}

static tdm_status ledger_alloc(tdm_device *device, const tdm_buffer_params *params,
                               tdm_buffer **buffer_out, tdm_error *err) {
    account *a = ledger_find(device);
    assert_in_range(params->purpose, 0, N_PURPOSE - 1);
    a->n_call++;
    tdm_status status = ledger.real->buffer->alloc(device, params, buffer_out, err);
    if (status == TDM_OK) ledger_add(*buffer_out, params->size, &a->buffers[params->purpose]);
    return status;
}

static void ledger_free(tdm_buffer *buffer) {
    ledger_remove(buffer);
    ledger.real->buffer->free(buffer);
}

static tdm_status ledger_import(tdm_device *device, void *ptr, uint64_t size,
                                tdm_import_info *info_out, tdm_buffer **buffer_out,
                                tdm_error *err) {
    ledger_find(device)->n_call++;
    return ledger.real->buffer->import_host(device, ptr, size, info_out, buffer_out, err);
}

static tdm_status ledger_prepare(tdm_queue *queue, const tdm_graph *graph,
                                 const tdm_plan_params *params, tdm_plan **plan_out,
                                 tdm_error *err) {
    account *a = ledger_find_queue(queue);
    tdm_plan_info info = {.struct_size = sizeof info};
    a->n_call++;
    tdm_status status = ledger.real->queue->graph_prepare(queue, graph, params, plan_out, err);
    if (status == TDM_OK) status = ledger.real->queue->plan_get_info(*plan_out, &info, err);
    if (status == TDM_OK) ledger_add(*plan_out, info.device_size + info.host_size, &a->plans);
    if (status == TDM_OK && a->scratch < info.scratch_size) a->scratch = info.scratch_size;
    return status;
}

static void ledger_queue_destroy(tdm_queue *queue) {
    ledger_remove(queue);
    ledger.real->queue->destroy(queue);
}

static void ledger_destroy(tdm_plan *plan) {
    ledger_remove(plan);
    ledger.real->queue->plan_destroy(plan);
}

/* Stands before the members of a group that has not been used yet. */
static void ledger_open(meta_device *group) {
    memset(&ledger, 0, sizeof ledger);
    ledger.real = group->members[0].acquired.plugin;
    ledger.plugin = *ledger.real;
    ledger.buffer = *ledger.real->buffer;
    ledger.queue = *ledger.real->queue;
    ledger.plugin.buffer = &ledger.buffer;
    ledger.plugin.queue = &ledger.queue;
    ledger.buffer.alloc = ledger_alloc;
    ledger.buffer.free = ledger_free;
    ledger.buffer.import_host = ledger_import;
    ledger.queue.create = ledger_queue;
    ledger.queue.destroy = ledger_queue_destroy;
    ledger.queue.graph_prepare = ledger_prepare;
    ledger.queue.plan_destroy = ledger_destroy;
    for (int d = 0; d < group->n_member; d++) {
        ledger.reals[d] = group->members[d].acquired.plugin;
        assert_ptr_equal(ledger.reals[d]->buffer, ledger.real->buffer);
        assert_ptr_equal(ledger.reals[d]->queue, ledger.real->queue);
        assert_int_equal(group->members[d].memory_size[META_MEMORY_SCRATCH], 0);
        ledger.accounts[ledger.n_account++].device = group->members[d].acquired.device;
        group->members[d].acquired.plugin = &ledger.plugin;
    }
}

static void ledger_close(meta_device *group) {
    for (int d = 0; d < group->n_member; d++) group->members[d].acquired.plugin = ledger.reals[d];
}

/* ---- Cases ----------------------------------------------------------------------------------- */

static const struct {
    int n_member;
    const char *shares;
    bool is_by_host; /* exchanges are done by the host, as for devices that cannot */
    bool is_away;    /* members have memory of their own, and their caches lie in the host's */
} splits[] = {{2, "1", false, false},    {2, "3,1", false, false},   {2, "3,1", true, false},
              {2, "0,1", false, false},  {3, "1", false, false},     {3, "5,2,1", false, false},
              {3, "5,2,1", true, false}, {3, "3,0,1", false, false}, {2, "3,1", false, true},
              {3, "5,0,2", false, true}, {3, "5,2,1", true, true}};

static const char *const attentions[] = {"heads", "replicate", "sequence"};

static const tdm_type f16 = TDM_TYPE_F16, q8_0 = TDM_TYPE_Q8_0, q4_0 = TDM_TYPE_Q4_0;
static const struct {
    const tdm_type *k, *v;
    const char *name;
} caches[] = {{&f16, &f16, "f16"}, {&q8_0, &q4_0, "q8_0/q4_0"}, {&q8_0, &q8_0, "q8_0"}};

enum { N_SPLIT = sizeof splits / sizeof *splits, N_ATTENTION = 3 };

typedef struct sheet {
    tdm_split_report report;
    tdm_split_member members[GROUP_MAX_MEMBER];
} sheet;

static void sheet_fill(const llm_model *model, tdm_open_device *dev,
                       const llm_context_params *params, sheet *s) {
    tdm_error err = {0};
    *s = (sheet){.report = {.struct_size = sizeof s->report,
                            .member_size = sizeof s->members[0],
                            .capacity = GROUP_MAX_MEMBER,
                            .is_brief = 1}};
    s->report.members = s->members;
    const int32_t n_out = params->has_all_logits ? params->n_ubatch : 1;
    RIG_OK(llm_model_report(model, dev, params, 0, n_out, &s->report, &err));
}

static void near_check(const char *words, const char *member, const char *what, uint64_t said,
                       uint64_t is) {
    uint64_t apart = said > is ? said - is : is - said;
    if (apart * 100 > is)
        fail_msg("%s, member '%s': %s: the plan says %llu bytes, %llu are allocated", words, member,
                 what, (unsigned long long)said, (unsigned long long)is);
}

/* The largest part of a partition's units that member d has been assigned. Shares cannot be told
 * more closely than that: heads are few, and one layer gives a member more than the next. */
static double share_assigned(const meta_device *group, int d) {
    double most = 0;
    for (int32_t i = 0; i < group->partitions->n_entry; i++) {
        const meta_entry *e = &group->partitions->entries[i];
        const meta_assignment *assigned[] = {e->assigned, e->experts};
        for (int k = 0; k < 2; k++) {
            if (assigned[k] == NULL) continue;
            double n_part = (double)assigned[k]->n_unit * assigned[k]->n_sub;
            double share = (double)(assigned[k]->hi[d] - assigned[k]->lo[d]) / n_part;
            if (share > most) most = share;
        }
    }
    return most;
}

static void inactive_check(const meta_device *group, const llm_context *ctx, int d,
                           const tdm_split_member *said, const char *words) {
    const meta_member *member = &group->members[d];
    const meta_buffer *weights = ctx->model->store.mems[0].buffer,
                      *cache = ctx->store.mems[0].buffer;
    if (ledger.accounts[d].n_call != 0)
        fail_msg("%s: %d allocations on member '%s', which has no share", words,
                 ledger.accounts[d].n_call, member->name);
    for (int k = 0; k < META_N_MEMORY; k++) assert_null(member->memory[k]);
    assert_null(member->arena);
    assert_null(weights->members[d]);
    assert_null(cache->members[d]);
    assert_int_equal(said->weight_size + said->replicated_size + said->state_size, 0);
    assert_int_equal(said->compute_size + said->whole_size, 0);
}

/* Memory that the plan puts into the host's memory is there, and the rest is not. */
static void host_check(const meta_plan *plan, int d, const meta_buffer *cache,
                       const tdm_split_member *said, const char *words) {
    const meta_member *member = &plan->device->members[d];
    uint64_t own = 0, help = 0;
    if ((member->info.flags & TDM_DEVICE_IS_HOST) != 0) { /* no adapter, so no sizes of one */
        assert_int_equal(said->host_state_size + said->crossing_size, 0);
        return;
    }
    if (cache->members[d] != NULL) adapted_buffer_sizes(cache->members[d], &own, &help);
    near_check(words, member->name, "cache in the host's memory", said->host_state_size, help);
    assert_int_equal(own, 0);
}

static void member_check(const meta_device *group, const meta_plan *plan, const meta_buffer *cache,
                         int d, const tdm_split_member *said, const tdm_split_member *single,
                         const char *words) {
    const meta_member *member = &group->members[d];
    const account *a = &ledger.accounts[d];
    const uint64_t flags = meta_arena_data(group->n_active);
    const uint64_t arena = group->n_active > 1 ? group->arena->size - flags : 0;
    const uint64_t compute = a->buffers[TDM_BUFFER_COMPUTE] + a->buffers[TDM_BUFFER_INPUT] +
                             a->buffers[TDM_BUFFER_OUTPUT] + a->plans + a->scratch +
                             arena / (uint64_t)group->n_active + plan->members[d].staging_size;
    double share = share_assigned(group, d);
    assert_int_equal(member->memory_size[META_MEMORY_SCRATCH] +
                         member->memory_size[META_MEMORY_ZEROS],
                     a->buffers[TDM_BUFFER_COMPUTE]);
    assert_int_equal(member->memory_size[META_MEMORY_INPUT], a->buffers[TDM_BUFFER_INPUT]);
    assert_int_equal(member->memory_size[META_MEMORY_OUTPUT], a->buffers[TDM_BUFFER_OUTPUT]);
    near_check(words, member->name, "weights", said->weight_size, a->buffers[TDM_BUFFER_WEIGHT]);
    near_check(words, member->name, "cache", said->state_size, a->buffers[TDM_BUFFER_STATE]);
    host_check(plan, d, cache, said, words);
    near_check(words, member->name, "compute", said->compute_size, compute);
    /* What shrinks is at most the member's share of what a device alone takes. Temporaries are laid
     * out at multiples of the alignment and between others, so that a sum is not reached
     * exactly. */
    double room = share * (double)single->compute_size + (double)said->whole_size;
    if ((double)said->compute_size > 1.02 * room)
        fail_msg(
            "%s, member '%s': compute takes %llu bytes; %.3f of the %llu of a device alone and "
            "the %llu that are listed as whole are less",
            words, member->name, (unsigned long long)said->compute_size, share,
            (unsigned long long)single->compute_size, (unsigned long long)said->whole_size);
    /* Nor is more listed than there is. */
    assert_true(said->whole_size > 0 && said->whole_size <= said->compute_size);
}

static void case_check(const char *path, const group_config *config, bool is_by_host,
                       const llm_context_params *params, const char *cache) {
    static int n_case;
    char name[32], words[300];
    tdm_error err = {0};
    sheet alone, s;
    group_config own = *config;
    own.name = name;
    snprintf(name, sizeof name, "memory %d", n_case++);
    snprintf(words, sizeof words, "%s, cache %s%s", group_words(config), cache,
             is_by_host ? ", exchanges by the host" : "");
    tdm_open_device *dev = group_device(&own);
    meta_device *group = tdm_open_device_handle(dev);
    ledger_open(group);
    for (int d = 0; d < group->n_member && is_by_host; d++)
        group->members[d].exchange = META_EXCHANGE_BY_HOST;
    llm_model *model = NULL;
    RIG_OK(llm_model_open(path, &model, &err));
    sheet_fill(model, group_single("fast"), params, &alone);
    sheet_fill(model, dev, params, &s);
    /* Asking allocates nothing that stays. */
    for (int d = 0; d < group->n_member; d++) {
        const account *a = &ledger.accounts[d];
        for (int k = 0; k < N_PURPOSE; k++) assert_int_equal(a->buffers[k], 0);
        assert_int_equal(a->plans, 0);
        ledger.accounts[d].scratch = 0; /* asking had queues of its own */
    }
    RIG_OK(llm_model_load(model, rig_runtime(), &dev, 1, NULL, NULL, &err));
    llm_context *ctx = rig_context(model, params);
    account kept[GROUP_MAX_MEMBER];
    memcpy(kept, ledger.accounts, sizeof kept);
    tdm_plan *plan = NULL;
    tdm_plan_params plan_params = {.struct_size = sizeof plan_params};
    const tdm_queue_ops *queue = tdm_open_device_plugin(dev)->queue;
    tdm_queue *beside = NULL;
    RIG_OK(queue->create(group, &beside, &err));
    RIG_OK(queue->graph_prepare(beside, ctx->plans[0].schedule->graph, &plan_params, &plan, &err));
    memcpy(ledger.accounts, kept, sizeof kept);
    for (int d = 0; d < group->n_member; d++) {
        if (meta_is_active(group, d))
            member_check(group, plan, ctx->store.mems[0].buffer, d, &s.members[d],
                         &alone.members[0], words);
        else
            inactive_check(group, ctx, d, &s.members[d], words);
    }
    queue->plan_destroy(plan);
    queue->destroy(beside);
    llm_context_destroy(ctx);
    llm_model_close(model);
    ledger_close(group);
}

/* Of a model of three layers. */
static const llm_layer_types layered[] = {
    {TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, true, true},
    {TDM_TYPE_F16, TDM_TYPE_Q5_1, true, false},
    {TDM_TYPE_Q5_0, TDM_TYPE_Q8_0, false, true},
};

static void model_check(const random_model_spec *spec, const char *file,
                        const llm_context_params *params) {
    tdm_error err = {0};
    const char *path = rig_file(file);
    RIG_OK(random_model_write(spec, path, NULL, NULL, NULL, &err));
    for (int i = 0; i < N_SPLIT; i++)
        for (int a = 0; a < N_ATTENTION; a++)
            for (int c = 0; c < 3; c++) {
                bool is_latent = spec->latent.n_lora_kv > 0;
                const bool is_layered = c == 2;
                if (is_layered && (is_latent || a > 0)) continue;
                int at = c == 1 && is_latent ? 2 : c % 2; /* one row: K and V are of one type */
                llm_context_params p = *params;
                group_config config = {.n_member = splits[i].n_member,
                                       .shares = splits[i].shares,
                                       .attention = attentions[a],
                                       .is_away = splits[i].is_away};
                p.is_cache_in_host = splits[i].is_away;
                p.type_k = caches[at].k;
                p.type_v = caches[at].v;
                if (is_layered) p.layer_types = layered;
                case_check(path, &config, splits[i].is_by_host, &p,
                           is_layered ? "types of each layer" : caches[at].name);
            }
}

static void test_llama(void **state) {
    const llm_context_params params = {
        .struct_size = sizeof params, .n_ctx = 1024, .n_ubatch = 256, .n_seq = 2};
    random_model_spec spec = preset_find("100m");
    (void)state;
    spec.n_layer = 3;
    spec.n_vocab = 4096;
    spec.type = TDM_TYPE_Q8_0;
    model_check(&spec, "llama.gguf", &params);
}

static void test_latent(void **state) {
    const llm_context_params params = {
        .struct_size = sizeof params, .n_ctx = 2048, .n_ubatch = 256};
    random_model_spec spec = preset_find("tiny-deepseek2");
    (void)state;
    spec.type = TDM_TYPE_Q8_0;
    model_check(&spec, "latent.gguf", &params);
}

/* A context that may give the logits of all tokens has memory for them from the beginning; one that
 * gives embeddings has none for logits. */
static void test_logits(void **state) {
    llm_context_params params = {.struct_size = sizeof params,
                                 .n_ctx = 256,
                                 .n_ubatch = 256,
                                 .has_all_logits = true,
                                 .type_k = caches[0].k,
                                 .type_v = caches[0].v};
    const group_config config = {.n_member = 2, .shares = "3,1"};
    random_model_spec spec = preset_find("tiny-llama");
    tdm_error err = {0};
    const char *path = rig_file("logits.gguf");
    (void)state;
    spec.n_vocab = 4096;
    RIG_OK(random_model_write(&spec, path, NULL, NULL, NULL, &err));
    case_check(path, &config, false, &params, caches[0].name);
    params.has_all_logits = false;
    params.gives_embeddings = true;
    params.n_ubatch = 16; /* little memory besides that for logits */
    case_check(path, &config, false, &params, caches[0].name);
}

/* Weights that no step of this context reads are in memory all the same: in a context of at most as
 * many tokens as the index selects, those of the index. */
static void test_unread_weights(void **state) {
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 8,
                                       .n_ubatch = 8,
                                       .type_k = caches[0].k,
                                       .type_v = caches[0].v};
    const group_config config = {.n_member = 2, .shares = "1,1"};
    const char *path = rig_file("index.gguf");
    char *head = rig_source_file("tests/model/archs/glm-dsa-select.head");
    (void)state;
    assert_non_null(head);
    assert_true(arch_fixture_write(head, "glm-dsa-select", 1, path));
    free(head);
    case_check(path, &config, false, &params, caches[0].name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_latent),
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_unread_weights),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
