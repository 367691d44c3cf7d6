/* SPDX-License-Identifier: MIT
 *
 * test_metrics.c: the age of the last step in /metrics (server/api/metrics.c), for an engine whose
 * last step ended before or after the page's time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/api/state.h"

#define SECOND UINT64_C(1000000000)

static const llm_model model = {.file_size = 1};
static const server_model open_model = {.name = "m", .model = &model};
static uint64_t last_step_ns;
static char page[16384];

/* ---- The linker sends the page's calls here (--wrap): one model, which is open ---- */

tdm_status __wrap_api_model_argument(const api_context *c, int32_t *index_out, tdm_error *err);
int32_t __wrap_server_models_n(const server_models *models);
const char *__wrap_server_models_name(const server_models *models, int32_t i);
void __wrap_server_models_info(server_models *models, int32_t i, server_model_info *info);
const server_model *__wrap_server_models_peek(server_models *models, int32_t i);
void __wrap_server_models_release(server_models *models, const server_model *released);
int32_t __wrap_server_engine_snapshot(server_engine *engine, server_stats *stats,
                                      server_request_info *infos, int32_t max_info);
void __wrap_server_exchange_reply(server_exchange *x, int status, const char *type,
                                  const void *body, size_t len);

tdm_status __wrap_api_model_argument(const api_context *c, int32_t *index_out, tdm_error *err) {
    (void)c, (void)err;
    *index_out = -1;
    return TDM_OK;
}
int32_t __wrap_server_models_n(const server_models *models) {
    (void)models;
    return 1;
}
const char *__wrap_server_models_name(const server_models *models, int32_t i) {
    (void)models, (void)i;
    return "m";
}
void __wrap_server_models_info(server_models *models, int32_t i, server_model_info *info) {
    (void)models, (void)i;
    *info = (server_model_info){0};
}
const server_model *__wrap_server_models_peek(server_models *models, int32_t i) {
    (void)models, (void)i;
    return &open_model;
}
void __wrap_server_models_release(server_models *models, const server_model *released) {
    (void)models;
    assert_ptr_equal(released, &open_model);
}
int32_t __wrap_server_engine_snapshot(server_engine *engine, server_stats *stats,
                                      server_request_info *infos, int32_t max_info) {
    (void)engine, (void)infos, (void)max_info;
    *stats = (server_stats){.struct_size = sizeof *stats, .last_step_ns = last_step_ns};
    return 0;
}
void __wrap_server_exchange_reply(server_exchange *x, int status, const char *type,
                                  const void *body, size_t len) {
    (void)x, (void)type;
    assert_int_equal(status, 200);
    assert_true(len < sizeof page);
    memcpy(page, body, len);
    page[len] = '\0';
}

/* ---- The age ---- */

static double age_of(uint64_t step_end) {
    static const char name[] = "\ntandem_last_step_age_seconds ";
    server_api api = {.params = {.has_metrics = true}};
    api_context context = {.api = &api};
    tdm_error err = {0};
    last_step_ns = step_end;
    assert_int_equal(api_metrics(&context, &err), TDM_OK);
    const char *found = strstr(page, name);
    assert_non_null(found);
    return strtod(found + strlen(name), NULL);
}

static void test_step_age(void **state) {
    (void)state;
    assert_true(age_of(0) == 0); /* no step yet */
    const double age = age_of(server_clock() - 5 * SECOND);
    assert_true(age >= 5 && age < 300);
    /* The page takes its time first: a step may end before the totals are read. */
    assert_true(age_of(server_clock() + 300 * SECOND) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_step_age)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
