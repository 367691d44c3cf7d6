/* SPDX-License-Identifier: MIT
 *
 * measure.c: measures the rates of members. A rate is the best of several short spans, because
 * other load on the machine can only slow a member down.
 */
#include "plugins/meta/share/measure.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/meta/exec/event.h"
#include "plugins/meta/exec/stall_timer.h"
#include "plugins/meta/exec/stuck.h"
#include "plugins/meta/rules/part.h"
#include "plugins/meta/share/links.h"

enum {
    WEIGHT_COLUMNS = 2048,
    MANY = 256, /* columns of x where arithmetic limits */
    N_SPAN = 4
};
#define WEIGHT_SIZE ((uint64_t)64 << 20)
#define SMALL_SIZE  ((uint64_t)2 << 20) /* of the weight for MANY columns */
#define SPAN_NS     UINT64_C(12000000)
/* In a shorter run, submitting and waiting take longer than reading, and the weight may lie in a
 * cache: fast GPUs have up to 256 MiB. */
#define RUN_NS     UINT64_C(1000000)
#define GROWTH     8
#define WEIGHT_MAX ((uint64_t)512 << 20)

/* One product on one member: y[n, m] = w[k, n] x[k, m]. Where m > 1 the columns are tokens of a
 * prompt, which a device may compute with fewer bits (tdm_role). */
typedef struct product {
    meta_device *device;
    meta_member *member;
    meta_part *part; /* allocated by itself, because the plan refers to its graph by address */
    tdm_plan *plan;
    tdm_buffer *weight, *values; /* of values: x, then y, then roles */
    tdm_binding bindings[4];     /* w, x, roles where m > 1, y */
    int32_t n_binding;
    tdm_semaphore *semaphore;
    tdm_queue *queue; /* the member's probe queue, once a stuck member keeps it */
    uint64_t value;
    uint64_t weight_size; /* canonical bytes read by a run */
    double n_mac;
    double seconds; /* of the best run; 0 = none */
    tdm_status status;
    tdm_error err;
    pthread_t thread;
    bool is_started;
    /* Where the product is kept if it does not end in time; allocated before it runs. */
    struct kept_product *kept;
} product;

typedef struct kept_product {
    product product;
    meta_pending_release later;
} kept_product;

static void product_free(const product *p) {
    const tdm_plugin *plugin = p->member->acquired.plugin;
    if (p->plan != NULL) plugin->queue->plan_destroy(p->plan);
    if (p->queue != NULL) plugin->queue->destroy(p->queue);
    if (p->weight != NULL) plugin->buffer->free(p->weight);
    if (p->values != NULL) plugin->buffer->free(p->values);
    p->device->host->semaphore->destroy(p->semaphore);
    if (p->part != NULL) meta_part_end(p->part);
    meta_free(p->device->host, p->part, sizeof *p->part);
    meta_free(p->device->host, p->kept, sizeof *p->kept);
}

static void left_release(meta_device *device, int32_t d, void *what) {
    const product left = ((kept_product *)what)->product; /* which product_free frees too */
    (void)device;
    (void)d;
    product_free(&left);
}

static void product_end(product *p) {
    if (p->member == NULL) return;
    if (p->status != TDM_DEADLINE_EXCEEDED) {
        product_free(p);
        return;
    }
    /* The product may still run: what it uses, the queue included, is released later. */
    p->queue = p->member->probe_queue;
    p->member->probe_queue = NULL;
    p->kept->product = *p;
    meta_release_later(p->device, (int32_t)(p->member - p->device->members), p->semaphore, p->value,
                       left_release, p->kept, &p->kept->later);
}

static bool product_graph(product *p, tdm_type type, int64_t k, int64_t n, int64_t m) {
    static const tdm_graph names = {.names = "", .names_size = 1};
    const tdm_value w = {
        .kind = TDM_VALUE_WEIGHT, .type = (int32_t)type, .usage = TDM_USAGE_MATMUL};
    const tdm_value x = {.kind = TDM_VALUE_INPUT, .type = TDM_TYPE_F32};
    const tdm_value role = {.kind = TDM_VALUE_INPUT, .type = TDM_TYPE_I32};
    const int64_t w_ne[] = {k, n, 1, 1}, x_ne[] = {k, m, 1, 1}, role_ne[] = {m, 1, 1, 1};
    meta_result y = {TDM_TYPE_F32, 0, {n, m, 1, 1}};
    int32_t src[3], dst;
    p->part = meta_alloc(p->device->host, sizeof *p->part);
    if (p->part == NULL) return false;
    meta_part_begin(p->device->host, &names, p->part);
    src[0] = meta_part_add_value(p->part, &w, w_ne, META_SLOT_WEIGHT, -1);
    src[1] = meta_part_add_value(p->part, &x, x_ne, META_SLOT_INPUT, -1);
    src[2] = m > 1 ? meta_part_add_value(p->part, &role, role_ne, META_SLOT_INPUT, -1) : -1;
    if (src[0] < 0 || src[1] < 0 || (m > 1 && src[2] < 0) ||
        !meta_part_add_node(p->part, TDM_OP_MATMUL, NULL, src, 3, &y, 1, &dst))
        return false;
    p->part->values[dst].kind = TDM_VALUE_OUTPUT;
    return true;
}

/* Fills the weight with zeros: its values do not affect the speed of reading. */
static tdm_status weight_fill(const product *p, const tdm_tensor_desc *desc, tdm_error *err) {
    enum { ROWS = 64 };
    const tdm_host *host = p->device->host;
    size_t pitch = tdm_type_row_size(desc->type, desc->ne[0]);
    void *zeros = meta_alloc(host, pitch * ROWS);
    tdm_status status =
        zeros != NULL ? TDM_OK : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no host memory");
    for (int64_t row = 0; row < desc->ne[1] && status == TDM_OK; row += ROWS) {
        int64_t n = desc->ne[1] - row < ROWS ? desc->ne[1] - row : ROWS;
        status = meta_member_buffers(p->member)->tensor_upload(p->weight, 0, desc, zeros, pitch,
                                                               row, n, 0, desc->ne[0], err);
    }
    meta_free(host, zeros, pitch * ROWS);
    return status;
}

/* Marks every column as a token of a prompt. */
static tdm_status roles_fill(const product *p, uint64_t off, int64_t m, tdm_error *err) {
    int32_t roles[MANY];
    for (int64_t i = 0; i < m; i++) roles[i] = TDM_ROLE_PROMPT;
    return meta_member_buffers(p->member)->upload(p->values, off, roles, (size_t)m * sizeof *roles,
                                                  err);
}

static tdm_status product_begin(product *p, tdm_type type, int64_t n, int64_t m, tdm_error *err) {
    const tdm_host *host = p->device->host;
    const tdm_plugin *plugin = p->member->acquired.plugin;
    const int64_t k = WEIGHT_COLUMNS;
    tdm_tensor_desc desc = {
        .struct_size = sizeof desc, .type = type, .usage = TDM_USAGE_MATMUL, .ne = {k, n, 1, 1}};
    uint64_t size = 0, x_size = meta_round_up((uint64_t)(k * m) * 4, p->member->align);
    uint64_t y_size = meta_round_up((uint64_t)(n * m) * 4, p->member->align);
    uint64_t role_size = m > 1 ? (uint64_t)m * 4 : 0, values_size = x_size + y_size + role_size;
    p->kept = meta_alloc(host, sizeof *p->kept);
    if (p->kept == NULL || !product_graph(p, type, k, n, m))
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no host memory");
    tdm_status status = host->graph->verify(&p->part->graph, err);
    if (status == TDM_OK)
        status = plugin->device->supports_op(p->member->acquired.device, &p->part->graph, 0, err);
    if (status == TDM_OK)
        status = plugin->buffer->tensor_size(p->member->acquired.device, &desc, &size, err);
    /* Where the member's device refuses the product, the weight is held by its fallback. */
    tdm_buffer_item item = {.size = size, .tensor = &desc};
    tdm_buffer_params weight = {.struct_size = sizeof weight,
                                .size = size,
                                .purpose = TDM_BUFFER_WEIGHT,
                                .n_item = 1,
                                .items = &item};
    tdm_buffer_params values = {
        .struct_size = sizeof values, .size = values_size, .purpose = TDM_BUFFER_COMPUTE};
    if (status == TDM_OK)
        status = plugin->buffer->alloc(p->member->acquired.device, &weight, &p->weight, err);
    if (status == TDM_OK)
        status = plugin->buffer->alloc(p->member->acquired.device, &values, &p->values, err);
    if (status == TDM_OK) status = weight_fill(p, &desc, err);
    if (status == TDM_OK) status = plugin->buffer->fill(p->values, 0, x_size + y_size, 0, err);
    if (status == TDM_OK && m > 1) status = roles_fill(p, x_size + y_size, m, err);
    if (status == TDM_OK) status = host->semaphore->create(0, &p->semaphore, err);
    tdm_plan_params params = {.struct_size = sizeof params};
    if (status == TDM_OK)
        status = plugin->queue->graph_prepare(p->member->probe_queue, &p->part->graph, &params,
                                              &p->plan, err);
    p->bindings[0] = (tdm_binding){p->weight, 0, size};
    p->bindings[1] = (tdm_binding){p->values, 0, x_size};
    p->n_binding = 2;
    if (m > 1) p->bindings[p->n_binding++] = (tdm_binding){p->values, x_size + y_size, role_size};
    p->bindings[p->n_binding++] = (tdm_binding){p->values, x_size, y_size};
    p->weight_size = tdm_tensor_canonical_size(type, desc.ne);
    p->n_mac = (double)k * (double)n * (double)m;
    if (status == TDM_OK)
        status = plugin->queue->plan_bind(p->plan, p->bindings, p->n_binding, err);
    return status;
}

static tdm_status product_run(product *p, tdm_error *err) {
    tdm_point done = {p->semaphore, ++p->value};
    tdm_status status = p->member->acquired.plugin->queue->graph_compute(
        p->member->probe_queue, p->plan, NULL, 0, &done, 1, err);
    if (status != TDM_OK) return status;
    meta_stall_timer stall_timer;
    meta_stall_timer_begin(&stall_timer, meta_clock_ns());
    return meta_stall_timer_wait(&stall_timer, p->device->host, done.semaphore, done.value,
                                 (uint64_t)(p->device->options.timeout * 1e9), err);
}

/* The reason of a failed run, for messages. */
static const char *product_why(const product *p) {
    return p->status == TDM_DEADLINE_EXCEEDED ? "no answer in the time that `timeout` gives"
                                              : p->err.message;
}

static tdm_status product_status(const product *p, tdm_error *err) {
    if (p->status == TDM_OK) return TDM_OK;
    return tdm_fail(err, p->status, "member '%s': measuring: %.300s", p->member->name,
                    product_why(p));
}

/* Whether a product with a weight GROWTH times as large may be tried on the member. */
static bool product_may_grow(const product *p) {
    const tdm_device_info *info = &p->member->info;
    uint64_t size = p->weight_size * GROWTH;
    return size <= WEIGHT_MAX && size <= info->memory_free / 8 &&
           (info->max_buffer == 0 || size <= info->max_buffer);
}

/* Begins a product whose weight has n rows, or GROWTH times as many, and so on, until a run is long
 * enough to be measured. *p has device and member, and nothing else. */
static tdm_status product_begin_long(product *p, tdm_type type, int64_t n, int64_t m,
                                     tdm_error *err) {
    const product empty = *p;
    tdm_status status = product_begin(p, type, n, m, err);
    while (status == TDM_OK && product_may_grow(p)) {
        uint64_t begin = 0;
        for (int run = 0; run < 2 && p->status == TDM_OK; run++) { /* the first is a warm-up */
            begin = meta_clock_ns();
            p->status = product_run(p, &p->err);
        }
        if (p->status != TDM_OK) return tdm_fail(err, p->status, "%.300s", product_why(p));
        if (meta_clock_ns() - begin >= RUN_NS) return TDM_OK;
        product_free(p);
        *p = empty;
        n *= GROWTH;
        status = product_begin(p, type, n, m, err);
        if (status == TDM_OK) continue;
        product_free(p); /* it did not fit: the size before is used */
        *p = empty;
        return product_begin(p, type, n / GROWTH, m, err);
    }
    return status;
}

/* Measures p->seconds, the time of a run in the fastest span. The first run is a warm-up; then come
 * N_SPAN spans of at least SPAN_NS. Where two spans have taken as long as all should together, they
 * are enough: short disturbances matter little to long runs. */
static void *product_time(void *arg) {
    product *p = arg;
    p->status = product_run(p, &p->err);
    uint64_t first = meta_clock_ns(), now = first;
    for (int span = 0; span < N_SPAN && p->status == TDM_OK; span++) {
        if (span >= 2 && now - first >= N_SPAN * SPAN_NS) break;
        uint64_t begin = now = meta_clock_ns();
        int n = 0;
        while (now - begin < SPAN_NS && p->status == TDM_OK) {
            p->status = product_run(p, &p->err);
            now = meta_clock_ns();
            n++;
        }
        double seconds = (double)(now - begin) * 1e-9 / n;
        if (p->seconds == 0 || seconds < p->seconds) p->seconds = seconds;
    }
    return NULL;
}

static void together(product *products, int32_t n) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int32_t d = 0; d < n; d++) {
        product *p = &products[d];
        p->seconds = 0;
        if (p->plan == NULL) continue;
        p->is_started = pthread_create(&p->thread, NULL, product_time, p) == 0;
        /* Without a thread the product is measured now, and not at the same time as the others. */
        if (!p->is_started) product_time(p);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (int32_t d = 0; d < n; d++)
        if (products[d].is_started) pthread_join(products[d].thread, NULL);
}

/* Measures one kind of product. rate_out[d] and alone_out[d] are runs per second. */
static tdm_status rates_find(meta_device *device, tdm_type type, int64_t n, int64_t m,
                             double *rate_out, double *alone_out, product *products,
                             tdm_error *err) {
    tdm_status status = TDM_OK;
    int32_t n_working = 0;
    for (int32_t d = 0; d < device->n_member && status == TDM_OK; d++) {
        product *p = &products[d];
        tdm_error why = {0};
        memset(p, 0, sizeof *p);
        if (device->members[d].probe_queue == NULL) continue;
        p->device = device;
        p->member = &device->members[d];
        status = product_begin_long(p, type, n, m, &why);
        if (status == TDM_UNSUPPORTED) status = TDM_OK; /* its rate is 0 */
        if (status != TDM_OK)
            tdm_fail(err, status, "member '%s': measuring: %.300s", p->member->name, why.message);
        n_working += p->plan != NULL;
    }
    for (int32_t d = 0; d < device->n_member && status == TDM_OK && n_working > 1; d++) {
        if (products[d].plan == NULL) continue;
        product_time(&products[d]);
        status = product_status(&products[d], err);
        alone_out[d] = products[d].seconds > 0 ? 1 / products[d].seconds : 0;
    }
    if (status == TDM_OK) together(products, device->n_member);
    for (int32_t d = 0; d < device->n_member && status == TDM_OK; d++) {
        product *p = &products[d];
        if (p->plan == NULL) continue;
        if ((status = product_status(p, err)) != TDM_OK) break;
        rate_out[d] = p->seconds > 0 ? 1 / p->seconds : 0;
        if (alone_out[d] < rate_out[d]) alone_out[d] = rate_out[d];
    }
    return status;
}

static void products_end(product *products, int32_t n) {
    for (int32_t d = 0; d < n; d++) product_end(&products[d]);
}

/* Takes the rates from TANDEM_TEST_RATES. The last pair is for all further members. False when the
 * variable is not set. */
static bool rates_given(meta_device *device, tdm_error *err, tdm_status *status_out) {
    const char *text = getenv("TANDEM_TEST_RATES");
    double read = 0, multiply = 0;
    int length = 0;
    *status_out = TDM_OK;
    if (text == NULL) return false;
    for (int32_t d = 0; d < device->n_member; d++) {
        meta_member *m = &device->members[d];
        if (sscanf(text, "%lf,%lf%n", &read, &multiply, &length) == 2) text += length;
        if (!(read > 0) || !(multiply > 0)) {
            *status_out =
                tdm_fail(err, TDM_INVALID_ARGUMENT,
                         "group: TANDEM_TEST_RATES: expected READ,MULTIPLY, got '%s'", text);
            return true;
        }
        m->bandwidth = m->bandwidth_alone = read;
        m->arithmetic = m->arithmetic_alone = multiply;
    }
    return true;
}

double meta_rate_without_submission(double rate, double work, double submit) {
    double seconds = rate > 0 ? work / rate : 0;
    if (!(seconds > 0) || !(submit > 0)) return rate;
    /* A run that is mostly submission says little about its work: at most half is left out. */
    double left = submit < seconds / 2 ? seconds - submit : seconds / 2;
    return work / left;
}

/* Bytes or multiply-adds of one run on each member. */
typedef struct run_work {
    double read[TDM_MAX_MEMBERS], multiply[TDM_MAX_MEMBERS];
} run_work;

/* Every run that was measured has a submission, which predictions count apart. */
static void submissions_leave_out(meta_device *device, const run_work *work) {
    for (int32_t d = 0; d < device->n_member; d++) {
        meta_member *m = &device->members[d];
        double *const read[2] = {&m->bandwidth, &m->bandwidth_alone};
        double *const multiply[2] = {&m->arithmetic, &m->arithmetic_alone};
        for (int i = 0; i < 2; i++) {
            *read[i] = meta_rate_without_submission(*read[i], work->read[d], m->submit_seconds);
            *multiply[i] =
                meta_rate_without_submission(*multiply[i], work->multiply[d], m->submit_seconds);
        }
    }
}

static tdm_status members_measure(meta_device *device, tdm_type type, run_work *work,
                                  tdm_error *err) {
    double rate[TDM_MAX_MEMBERS] = {0}, alone[TDM_MAX_MEMBERS] = {0};
    const uint64_t row = tdm_type_row_size(type, WEIGHT_COLUMNS);
    product *products = meta_alloc(device->host, TDM_MAX_MEMBERS * sizeof *products);
    if (products == NULL) return meta_no_memory("to measure members", err);
    int64_t n = (int64_t)(WEIGHT_SIZE / row);
    tdm_status status = rates_find(device, type, n, 1, rate, alone, products, err);
    for (int32_t d = 0; d < device->n_member && status == TDM_OK; d++) {
        work->read[d] = (double)products[d].weight_size;
        device->members[d].bandwidth = rate[d] * work->read[d];
        device->members[d].bandwidth_alone = alone[d] * work->read[d];
    }
    products_end(products, device->n_member);
    memset(rate, 0, sizeof rate);
    memset(alone, 0, sizeof alone);
    memset(products, 0, TDM_MAX_MEMBERS * sizeof *products);
    n = (int64_t)(SMALL_SIZE / row);
    if (status == TDM_OK) status = rates_find(device, type, n, MANY, rate, alone, products, err);
    for (int32_t d = 0; d < device->n_member && status == TDM_OK; d++) {
        work->multiply[d] = products[d].n_mac;
        device->members[d].arithmetic = rate[d] * work->multiply[d];
        device->members[d].arithmetic_alone = alone[d] * work->multiply[d];
    }
    products_end(products, device->n_member);
    meta_free(device->host, products, TDM_MAX_MEMBERS * sizeof *products);
    return status;
}

tdm_status meta_measure(meta_device *device, tdm_type type, tdm_error *err) {
    tdm_status given;
    run_work work = {{0}};
    if (device->is_measured && device->measured_type == type) return TDM_OK;
    if (rates_given(device, err, &given))
        return given == TDM_OK ? meta_links_find(device, err) : given;
    if (tdm_type_row_size(type, WEIGHT_COLUMNS) == 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "group: %s is no type of weights",
                        tdm_type_name(type));
    tdm_status status = members_measure(device, type, &work, err);
    if (status == TDM_OK) status = meta_links_find(device, err);
    if (status != TDM_OK) return status;
    submissions_leave_out(device, &work);
    device->is_measured = true;
    device->measured_type = type;
    return TDM_OK;
}
