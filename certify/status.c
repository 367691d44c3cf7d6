/* SPDX-License-Identifier: MIT
 *
 * status.c: checks of statuses and errors, independent of the call that fails.
 */
#include <string.h>

#include "certify/chain.h"

/* ---- Calls that must fail ---- */

typedef struct bench {
    certify *c;
    tdm_buffer *buffer; /* of 64 bytes */
    tdm_graph graph;    /* of one node, of an op that does not exist */
    tdm_node node;
    bool has_graph;
} bench;

static tdm_status bad_describe(bench *b, tdm_error *err) {
    tdm_device_info info = {.struct_size = sizeof info};
    return b->c->plugin->device->describe(b->c->instance, INT32_MAX, certify_options(b->c), &info,
                                          err);
}

static tdm_status bad_open(bench *b, tdm_error *err) {
    const tdm_option option = {"certify-no-such-key", "1"};
    tdm_device_params params = {sizeof params, b->c->params->device, 1, &option};
    tdm_device *device = NULL;
    return b->c->plugin->device->open(b->c->instance, &params, &device, err);
}

static tdm_status bad_alloc(bench *b, tdm_error *err) {
    tdm_buffer_params params = {sizeof params, UINT64_MAX / 2, TDM_BUFFER_ANY};
    tdm_buffer *buffer = NULL;
    return b->c->plugin->buffer->alloc(b->c->device, &params, &buffer, err);
}

static tdm_status bad_upload(bench *b, tdm_error *err) {
    uint8_t bytes[65] = {0};
    return b->c->plugin->buffer->upload(b->buffer, 0, bytes, sizeof bytes, err);
}

static tdm_status bad_download(bench *b, tdm_error *err) {
    uint8_t bytes[65] = {0};
    return b->c->plugin->buffer->download(b->buffer, 0, bytes, sizeof bytes, err);
}

static tdm_status bad_supports(bench *b, tdm_error *err) {
    if (!b->has_graph) return bad_describe(b, err);
    return b->c->plugin->device->supports_op(b->c->device, &b->graph, 0, err);
}

static const struct {
    const char *name;
    tdm_status (*call)(bench *b, tdm_error *err);
} bad_calls[] = {
    {"describe", bad_describe}, {"open", bad_open},         {"alloc", bad_alloc},
    {"upload", bad_upload},     {"download", bad_download}, {"supports_op", bad_supports},
};
enum { N_BAD = sizeof bad_calls / sizeof bad_calls[0] };

static certify_verdict bench_open(certify *c, bench *b) {
    certify_chain chain;
    *b = (bench){.c = c};
    certify_verdict verdict = certify_open(c);
    if (verdict == CERTIFY_PASSED) verdict = certify_alloc(c, 64, &b->buffer);
    if (verdict != CERTIFY_PASSED) return verdict;
    b->has_graph = certify_chain_create(c, 1, 8, 1, &chain) == CERTIFY_PASSED;
    c->message[0] = 0;
    if (!b->has_graph) return CERTIFY_PASSED;
    b->graph = *chain.rig.graph;
    b->node = *tdm_graph_node(&b->graph, 0);
    b->node.op = 9999;
    b->graph.nodes = &b->node;
    b->graph.node_size = sizeof b->node;
    return CERTIFY_PASSED;
}

static certify_verdict message_check(certify *c) {
    bench b;
    certify_verdict verdict = bench_open(c, &b);
    for (int i = 0; verdict == CERTIFY_PASSED && i < N_BAD; i++) {
        tdm_error err = {.struct_size = sizeof err};
        tdm_status status = bad_calls[i].call(&b, &err);
        const char *name = bad_calls[i].name;
        if (status == TDM_OK) continue; /* another check tests that it fails */
        if (err.status != status)
            return certify_fail(c, "%s returned '%s' and an error with '%s'", name,
                                tdm_status_text(status), tdm_status_text(err.status));
        if (memchr(err.message, 0, sizeof err.message) == NULL)
            return certify_fail(c, "%s: the message is not terminated", name);
        if (err.message[0] == 0) return certify_fail(c, "%s: the message is empty", name);
        if (strchr(err.message, '\n') != NULL)
            return certify_fail(c, "%s: the message has a newline in it", name);
    }
    return verdict;
}

static certify_verdict null_check(certify *c) {
    bench b;
    certify_verdict verdict = bench_open(c, &b);
    for (int i = 0; verdict == CERTIFY_PASSED && i < N_BAD; i++) {
        tdm_error err = {.struct_size = sizeof err};
        tdm_status with = bad_calls[i].call(&b, &err), without = bad_calls[i].call(&b, NULL);
        if (with != without)
            return certify_fail(c, "%s returns '%s' with an error and '%s' without",
                                bad_calls[i].name, tdm_status_text(with), tdm_status_text(without));
    }
    return verdict;
}

/* Calls that succeed must not change the caller's error. */
static certify_verdict untouched_check(certify *c) {
    certify_chain chain;
    tdm_buffer *buffer = NULL;
    tdm_device *device = NULL;
    tdm_device_info info = {.struct_size = sizeof info};
    uint8_t bytes[32] = {0};
    tdm_error err, before;
    certify_verdict verdict = certify_chain_open(c, 1, 8, 2, &chain);
    if (verdict == CERTIFY_PASSED) verdict = certify_rig_upload(&chain.rig);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_plugin *p = c->plugin;
    tdm_device_params params = {sizeof params, c->params->device, c->params->n_option,
                                c->params->options};
    tdm_buffer_params wanted = {sizeof wanted, sizeof bytes, TDM_BUFFER_ANY};
    memset(&err, 0x5a, sizeof err);
    err.struct_size = sizeof err;
    before = err;
    for (int i = 0; i < 7; i++) {
        static const char *const names[] = {"describe", "open",        "alloc",  "upload",
                                            "download", "supports_op", "compute"};
        tdm_status status = TDM_INTERNAL;
        switch (i) {
        case 0:
            status = p->device->describe(c->instance, c->params->device, certify_options(c), &info,
                                         &err);
            break;
        case 1: status = p->device->open(c->instance, &params, &device, &err); break;
        case 2: status = p->buffer->alloc(c->device, &wanted, &buffer, &err); break;
        case 3: status = p->buffer->upload(buffer, 0, bytes, sizeof bytes, &err); break;
        case 4: status = p->buffer->download(buffer, 0, bytes, sizeof bytes, &err); break;
        case 5: status = p->device->supports_op(c->device, chain.rig.graph, 0, &err); break;
        default: status = certify_rig_compute(&chain.rig, &err); break;
        }
        if (status != TDM_OK) return certify_skip(c, "%s failed", names[i]);
        if (memcmp(&err, &before, sizeof err) != 0)
            return certify_fail(c, "%s succeeded and wrote to *err", names[i]);
    }
    return CERTIFY_PASSED;
}

/* Structs of the caller with struct_size 0. */
static certify_verdict zero_check(certify *c) {
    tdm_device_info told = {.struct_size = sizeof told}, info = {.struct_size = 0};
    tdm_buffer_params wanted = {.size = 100};
    tdm_buffer *buffer = NULL;
    tdm_device *device = NULL;
    uint8_t bytes[100] = {0};
    tdm_error err = {.struct_size = 0};
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_plugin *p = c->plugin;
    tdm_device_params params = {0, c->params->device, c->params->n_option, c->params->options};
    if (p->device->describe(c->instance, c->params->device, certify_options(c), &told, NULL) !=
            TDM_OK ||
        p->device->describe(c->instance, c->params->device, certify_options(c), &info, &err) !=
            TDM_OK)
        return certify_fail(c, "describe: %.300s", err.message);
    if (strcmp(told.name, info.name) != 0 || told.buffer_align != info.buffer_align)
        return certify_fail(c, "describe filled less than the whole struct");
    if (p->device->open(c->instance, &params, &device, &err) != TDM_OK)
        return certify_fail(c, "open: %.300s", err.message);
    p->device->close(device);
    if (p->buffer->alloc(c->device, &wanted, &buffer, &err) != TDM_OK ||
        p->buffer->upload(buffer, 0, bytes, sizeof bytes, &err) != TDM_OK)
        return certify_fail(c, "alloc of 100 bytes: %.300s", err.message);
    p->buffer->free(buffer);
    return CERTIFY_PASSED;
}

static const certify_check checks[] = {
    {"status.message", 0,
     "status.h: \"its message is one line, without a trailing newline, that names the thing that "
     "failed\"",
     message_check},
    {"status.null-error", 0, "status.h: \"The caller owns the error and may pass NULL.\"",
     null_check},
    {"status.size-zero", 0,
     "status.h: \"struct_size 0 means this version's size, as everywhere where the caller owns the "
     "storage.\"",
     zero_check},
    {"status.untouched", 0, "status.h: \"On TDM_OK the error is left untouched\"", untouched_check},
};
const certify_table certify_status_table = CERTIFY_TABLE(checks);
