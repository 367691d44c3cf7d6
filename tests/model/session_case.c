/* SPDX-License-Identifier: MIT
 *
 * session_case.c: see session_case.h.
 */
#include "tests/model/session_case.h"

#include "tests/support/random.h"

#define COUNT_OF(a) ((int)(sizeof(a) / sizeof *(a)))

static const char *const presets[] = {"tiny-llama",          "tiny-mistral",   "tiny-mixtral",
                                      "tiny-one-kv-head",    "tiny-odd",       "tiny-deepseek2",
                                      "tiny-deepseek2-lite", "tiny-llama-bias"};
/* Fixtures that keep more than plain pages: windows, recurrent states, an index, runs of tokens. */
static const char *const special[] = {
    "gemma3-dense",   "gpt-oss-moe",       "qwen35-dense",      "lfm2-dense",
    "mamba-dense",    "kimi-linear-heads", "minimax-01-moe",    "rwkv7-dense",
    "deepseek4-long", "qwen4exp-heads",    "deepseek32-select", "minimax-m3-select",
    "cohere2-dense",  "plamo3-dense",      "granite_swa-moe",   "gemma3n-dense"};
static const tdm_type weight_types[] = {TDM_TYPE_F32,  TDM_TYPE_F16,  TDM_TYPE_Q8_0,
                                        TDM_TYPE_Q4_0, TDM_TYPE_Q4_K, TDM_TYPE_Q6_K};
static const char *const kinds[] = {"q8_0", "q4_0", "f16", "q5_1", "q4_K_M", "mxfp4_moe", "q2_K"};
static const tdm_type cache_types[] = {
#define KV_TYPE(ID, name) TDM_TYPE_##ID,
    TDM_KV_TYPE_LIST(KV_TYPE)
#undef KV_TYPE
};
static const char *const attentions[] = {"heads", "replicate", "sequence", "auto"};

/* How often an operation is chosen. */
static const struct {
    const char *name;
    int weight;
} ops[SESSION_N_OP] = {
    [SESSION_DECODE] = {"decode", 12},      [SESSION_TOGETHER] = {"decode together", 8},
    [SESSION_TRUNCATE] = {"truncate", 4},   [SESSION_TAKE_BACK] = {"take back", 4},
    [SESSION_EMPTY] = {"empty", 2},         [SESSION_FORK] = {"fork", 5},
    [SESSION_SHIFT] = {"shift", 4},         [SESSION_SAVE] = {"save", 2},
    [SESSION_LOAD] = {"load", 2},           [SESSION_LOAD_PREFIX] = {"load a prefix", 2},
    [SESSION_MOVE] = {"move", 2},           [SESSION_CANDIDATES] = {"candidates", 1},
    [SESSION_CANCEL] = {"cancel", 3},       [SESSION_WRONG] = {"wrong call", 2},
    [SESSION_OTHER] = {"other context", 2}, [SESSION_BESIDE] = {"beside", 3},
    [SESSION_SCALES] = {"scales", 2},       [SESSION_FAIL] = {"fail", 4},
    [SESSION_LOSE] = {"lose", 1},
};

const char *session_op_name(session_op_kind kind) {
    return ops[kind].name;
}

/* ---- Choosing -------------------------------------------------------------------------------- */

static uint32_t below(uint64_t *r, int n) {
    return random_u32_below(r, (uint32_t)n);
}

static bool chance(uint64_t *r, int percent) {
    return (int)below(r, 100) < percent;
}

static session_device device_choose(uint64_t *r, const session_choice *choice, bool is_first) {
    static const session_device usual[] = {
        SESSION_CPU,  SESSION_CPU,    SESSION_CPU,   SESSION_AWAY,   SESSION_READER, SESSION_CARD,
        SESSION_CARD, SESSION_PHASES, SESSION_PLAIN, SESSION_NESTED, SESSION_STACKED};
    const session_device any = usual[below(r, COUNT_OF(usual))];
    if (!choice->has_cuda && !choice->has_hip && !choice->has_vulkan) return any;
    session_device own[3];
    int n = 0;
    if (choice->has_cuda) own[n++] = SESSION_CUDA;
    if (choice->has_hip) own[n++] = SESSION_HIP;
    if (choice->has_vulkan) own[n++] = SESSION_VULKAN;
    if (is_first || chance(r, 30)) return own[below(r, n)];
    return chance(r, 70) ? SESSION_CPU : any;
}

/* Options of the plugins "discrete" and "fault". */
static tdm_option option_choose(uint64_t *r, session_device d, bool is_rough) {
    static const tdm_option card[] = {
        {"latency-us", "200"},   {"completion-us", "300"}, {"launch-bound", "1"},
        {"attach", "no"},        {"max-buffer", "400000"}, {"import-align", "64"},
        {"memory", "300000"},    {"memory", "3000000"},    {"refuse", "rope"},
        {"refuse", "kv_write"},  {"refuse", "attention"},  {"refuse", "moe_ffn"},
        {"refuse", "moe_route"}, {"refuse", "matmul"},     {"refuse", "get_rows"},
        {"refuse", "rms_norm"},  {"refuse", "add"},        {"refuse", "glu"},
        {"refuse", "copy"},      {"refuse", "conv1d"},     {"refuse", "linear_scan"},
        {"refuse", "kv_select"}, {"refuse", "block_pool"}, {"refuse", "top_k"}};
    static const tdm_option away[] = {
        {"exchange", "no"}, {"refuse", "17"}, {"refuse", "21"}, {"refuse", "22"}, {"refuse", "7"},
        {"refuse", "6"},    {"refuse", "30"}, {"refuse", "8"},  {"refuse", "9"},  {"refuse", "18"},
        {"refuse", "20"},   {"refuse", "37"}, {"refuse", "4"},  {"refuse", "12"}};
    const tdm_option of_card = card[below(r, COUNT_OF(card))];
    const tdm_option of_away = away[below(r, COUNT_OF(away))];
    const bool has_any = chance(r, is_rough ? 80 : 30);
    if (has_any && d >= SESSION_CARD && d <= SESSION_PLAIN) return of_card;
    if (has_any && (d == SESSION_AWAY || d == SESSION_READER || d == SESSION_STACKED))
        return of_away;
    return (tdm_option){0};
}

static void shares_choose(uint64_t *r, session_place *p) {
    static const char *const some[] = {"1", "2", "3", "5", "0", "0.5"};
    bool has_one = false;
    p->shares[0] = 0;
    for (int i = 0; i < p->n_member; i++) {
        const char *share = some[below(r, COUNT_OF(some))];
        has_one = has_one || strcmp(share, "0") != 0;
        if (i + 1 == p->n_member && !has_one) share = "1";
        strcat(p->shares, i > 0 ? "," : "");
        strcat(p->shares, share);
    }
    if (chance(r, 10)) strcpy(p->shares, "auto");
}

static void place_choose(uint64_t *r, const session_choice *choice, session_place *p) {
    p->is_group = !chance(r, 15);
    p->n_member = p->is_group ? 2 + (int)below(r, 3) : 1;
    if (p->is_group && chance(r, 5)) p->n_member = 1;
    for (int i = 0; i < p->n_member; i++) p->members[i] = device_choose(r, choice, i == 0);
    /* Any member may be the first. */
    const int at = (int)below(r, p->n_member);
    const session_device first = p->members[0];
    p->members[0] = p->members[at];
    p->members[at] = first;
    for (int i = 0; i < p->n_member; i++)
        p->options[i] = option_choose(r, p->members[i], choice->is_rough);
    p->has_cpu = chance(r, 60);
    p->imports = chance(r, 50);
    p->split = chance(r, choice->is_rough ? 40 : 15) ? "layer" : "tensor";
    p->attention = attentions[below(r, COUNT_OF(attentions))];
    p->experts = chance(r, 30) ? "whole" : "hidden";
    p->check = chance(r, 15) ? "replicas" : "off";
    p->exchange_memory = chance(r, 20) ? "host" : "auto";
    static const char *const reduce_types[] = {"f16", "bf16", "q8_0"};
    p->reduce_type = chance(r, 10) ? reduce_types[below(r, COUNT_OF(reduce_types))] : "f32";
    shares_choose(r, p);
    if (!choice->has_cuda || !chance(r, 20)) return;
    p->exchange_memory = "peer";
    p->has_own_cards = true;
    for (int i = 0; i < p->n_member; i++) p->members[i] = SESSION_CUDA;
    memset(p->options, 0, sizeof p->options);
}

static void op_choose(uint64_t *r, session_op *op) {
    int all = 0;
    for (int i = 0; i < SESSION_N_OP; i++) all += ops[i].weight;
    int at = (int)below(r, all), kind = 0;
    while (at >= ops[kind].weight) at -= ops[kind++].weight;
    *op = (session_op){(session_op_kind)kind, (uint32_t)random_u64(r), (uint32_t)random_u64(r),
                       (uint32_t)random_u64(r), (uint32_t)random_u64(r)};
}

static bool is_latent(const session_case *c) {
    return strstr(c->model, "deepseek") != NULL;
}

static bool has_window(const char *model) {
    static const char *const names[] = {
        "gemma",  "gpt-oss", "cohere2", "plamo3", "granite_swa", "laguna", "mimo2",
        "step35", "maple",   "exaone4", "olmo",   "mellum",      "afmoe",  "smallthinker"};
    for (int i = 0; i < COUNT_OF(names); i++)
        if (strstr(model, names[i]) != NULL) return true;
    return false;
}

/* A device that keeps caches of sparse or strided attention runs all ops on them (kv.h): it is not
 * asked before. */
static void options_restrict(session_case *c) {
    static const char *const models[] = {"deepseek4", "select", "qwen4exp", "minimax-m3"};
    static const char *const ops_of_caches[] = {"21", "22", "kv_write", "attention"};
    bool is_restricted = false;
    for (int i = 0; i < COUNT_OF(models); i++)
        is_restricted = is_restricted || strstr(c->model, models[i]) != NULL;
    for (int i = 0; i < 2 * SESSION_MAX_MEMBER && is_restricted; i++) {
        tdm_option *option = &c->places[i % 2].options[i / 2];
        for (int k = 0; k < COUNT_OF(ops_of_caches) && option->key != NULL; k++)
            if (strcmp(option->value, ops_of_caches[k]) == 0) *option = (tdm_option){0};
    }
}

/* A single device has no fallback: without TOP_K it gives no candidates. In the program it has a
 * CPU behind it. */
static void candidates_keep(session_place *p) {
    tdm_option *option = &p->options[0];
    if (p->is_group || p->has_cpu || option->key == NULL) return;
    if (strcmp(option->value, "top_k") == 0 || strcmp(option->value, "18") == 0)
        *option = (tdm_option){0};
}

void session_case_make(session_case *c, const arch_scene *scene, const session_choice *choice,
                       uint64_t seed) {
    uint64_t state = seed, *r = &state;
    memset(c, 0, sizeof *c);
    c->seed = seed;
    c->weights = TDM_TYPE_F32;
    c->is_preset = chance(r, 40);
    const char *preset = presets[below(r, COUNT_OF(presets))];
    const arch_fixture *f = &scene->fixtures[below(r, scene->n_fixture)];
    const char *fixture = f->name;
    const char *rare = special[below(r, COUNT_OF(special))];
    if (chance(r, 40)) fixture = rare;
    const tdm_type weights = weight_types[below(r, COUNT_OF(weight_types))];
    if (choice->model != NULL) {
        c->is_preset = strncmp(choice->model, "tiny-", 5) == 0;
        preset = fixture = choice->model;
    }
    snprintf(c->model, sizeof c->model, "%s", c->is_preset ? preset : fixture);
    c->is_form_refused = !c->is_preset && fixture == f->name && !f->is_listed;
    if (c->is_preset) c->weights = weights;
    const char *quantized = kinds[below(r, COUNT_OF(kinds))];
    if (!c->is_preset && chance(r, 30)) c->quantized = quantized;
    c->path = chance(r, 50) ? "reference" : "fast";
    for (int i = 0; i < 2; i++) place_choose(r, choice, &c->places[i]);
    options_restrict(c);
    for (int i = 0; i < 2; i++) candidates_keep(&c->places[i]);
    c->n_ctx = 12 + (int)below(r, 150);
    c->n_ubatch = 1 + (int)below(r, chance(r, 50) ? 8 : 48);
    c->n_seq = 1 + (int)below(r, SESSION_MAX_SEQ);
    for (int i = 0; i < 2; i++) c->page_len[i] = 1 << below(r, 6);
    if (chance(r, 60)) c->page_len[1] = c->page_len[0];
    /* Long enough for layers with a window to have pages of their own. */
    const bool is_long = chance(r, has_window(c->model) ? 60 : 5);
    for (int i = 0; i < 2 && is_long; i++)
        if (c->page_len[i] > 8) c->page_len[i] /= 8;
    if (is_long) c->n_ctx = 200 + (int)below(r, SESSION_MAX_CTX - 200);
    if (is_long && c->n_ubatch < 16) c->n_ubatch += 16;
    c->type_k = chance(r, 40) ? TDM_TYPE_F32 : cache_types[below(r, COUNT_OF(cache_types))];
    c->type_v = chance(r, 50) ? c->type_k : cache_types[below(r, COUNT_OF(cache_types))];
    if (is_latent(c)) c->type_v = c->type_k;
    c->is_unrotated = chance(r, 20);
    c->is_window_whole = chance(r, 25);
    c->is_cache_in_host = chance(r, choice->is_rough ? 50 : 20);
    c->has_all_logits = chance(r, 50);
    c->gives_hidden = chance(r, 15);
    c->has_layer_types = chance(r, 10);
    c->is_placed = chance(r, choice->is_rough ? 40 : 10);
    c->n_adapter = chance(r, 15) ? 1 + (int)below(r, SESSION_MAX_ADAPTER) : 0;
    c->n_op = 4 + (int)below(r, SESSION_MAX_OP - 4);
    if (choice->has_cuda || choice->has_hip || choice->has_vulkan) {
        /* Kernels on the CPU take long. With quantised weights cards round activations (to 8 bits
         * in prompts), and with f32 they do not. */
        c->weights = TDM_TYPE_F32;
        c->quantized = NULL;
        if (c->n_ctx > 64) c->n_ctx = 64 - c->n_ctx % 32;
        if (c->n_op > 16) c->n_op = 16;
    }
    for (int i = 0; i < c->n_op; i++) op_choose(r, &c->ops[i]);
}

llm_layer_types session_case_layer(const session_case *c, int layer) {
    uint64_t r = c->seed + (uint64_t)layer;
    const tdm_type k = cache_types[below(&r, COUNT_OF(cache_types))];
    const tdm_type v = is_latent(c) ? k : cache_types[below(&r, COUNT_OF(cache_types))];
    const bool rotates = chance(&r, 70);
    return (llm_layer_types){k, v, rotates, is_latent(c) ? rotates : chance(&r, 70)};
}

void session_case_keep(session_case *c, uint64_t mask) {
    int n = 0;
    for (int i = 0; i < c->n_op; i++)
        if ((mask >> i & 1) != 0) c->ops[n++] = c->ops[i];
    c->n_op = n;
}

/* ---- Printing -------------------------------------------------------------------------------- */

const char *session_place_words(const session_place *p) {
    static const char *const names[SESSION_N_DEVICE] = {"cpu",    "away",  "reader", "card",
                                                        "phases", "plain", "nested", "stacked",
                                                        "cuda",   "hip",   "vulkan"};
    static char text[400];
    size_t at = 0;
    for (int i = 0; i < p->n_member; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s%s%.20s%s%.20s", i > 0 ? "," : "",
                               names[p->members[i]], p->options[i].key != NULL ? " " : "",
                               p->options[i].key != NULL ? p->options[i].key : "",
                               p->options[i].key != NULL ? "=" : "",
                               p->options[i].key != NULL ? p->options[i].value : "");
    if (p->is_group)
        at += (size_t)snprintf(text + at, sizeof text - at,
                               " share %s split %s attention %s experts %s check %s memory %s "
                               "reduce %s",
                               p->shares, p->split, p->attention, p->experts, p->check,
                               p->exchange_memory, p->reduce_type);
    snprintf(text + at, sizeof text - at, "%s%s", p->has_cpu ? ", then cpu" : "",
             p->imports ? ", imports" : "");
    return text;
}

void session_case_print(const session_case *c) {
    printf("seed %llu: %s %s, %s path\n", (unsigned long long)c->seed, c->model,
           c->quantized != NULL ? c->quantized : tdm_type_name(c->weights), c->path);
    for (int i = 0; i < 2; i++) printf("  devices: %s\n", session_place_words(&c->places[i]));
    printf("  ctx %d, ubatch %d, sequences %d, pages %d and %d, K %s, V %s%s%s%s%s%s\n", c->n_ctx,
           c->n_ubatch, c->n_seq, c->page_len[0], c->page_len[1], tdm_type_name(c->type_k),
           tdm_type_name(c->type_v), c->is_unrotated ? ", unrotated" : "",
           c->is_window_whole ? ", whole windows" : "", c->is_cache_in_host ? ", in host" : "",
           c->has_all_logits ? ", all logits" : "", c->gives_hidden ? ", hidden" : "");
    printf("  %d adapters%s%s\n", c->n_adapter, c->has_layer_types ? ", types of layers" : "",
           c->is_placed ? ", layers placed" : "");
    for (int i = 0; i < c->n_op; i++)
        printf("  op %s %u %u %u %u\n", ops[c->ops[i].kind].name, c->ops[i].a, c->ops[i].b,
               c->ops[i].c, c->ops[i].d);
}
