/* SPDX-License-Identifier: MIT
 *
 * infer_fixture.h: for tests of inference: a node that the builder takes with a shape, or refuses
 * with a message.
 */
#ifndef TANDEM_TEST_INFER_FIXTURE_H
#define TANDEM_TEST_INFER_FIXTURE_H

#include "graph_fixture.h"

static inline void must_give(const fixture *f, int32_t value, tdm_type type, const int64_t ne[4]) {
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    const int64_t *shape = tdm_build_shape(f->b, value);
    if (shape == NULL) { /* reports the reason */
        tdm_builder_finish(f->b, &graph, &err);
        fail_msg("%s", err.message);
        return;
    }
    assert_memory_equal(shape, ne, 4 * sizeof *ne);
    if (tdm_builder_finish(f->b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
    assert_int_equal(tdm_graph_value(graph, value)->type, type);
    tdm_graph_free(graph);
    tdm_builder_destroy(f->b);
}

static inline void must_fail(const fixture *f, const char *text) {
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    if (tdm_builder_finish(f->b, &graph, &err) == TDM_OK) fail_msg("no failure with '%s'", text);
    if (strstr(err.message, text) == NULL) fail_msg("'%s' is not in: %s", text, err.message);
    if (strchr(err.message, '\n') != NULL) fail_msg("more than a line: %s", err.message);
    tdm_builder_destroy(f->b);
}

/* GOOD: `result` evaluates to a value of that type and shape. BAD: the statement fails with `text`
 * in its message. `f` is a fresh fixture in both. */
#define GOOD(type, n0, n1, n2, n3, result)                                                         \
    do {                                                                                           \
        fixture f = fixture_make();                                                                \
        must_give(&f, result, type, NE(n0, n1, n2, n3));                                           \
    } while (0)
#define BAD(text, ...)                                                                             \
    do {                                                                                           \
        fixture f = fixture_make();                                                                \
        __VA_ARGS__;                                                                               \
        must_fail(&f, text);                                                                       \
    } while (0)

#define F32          TDM_TYPE_F32
#define I32          TDM_TYPE_I32
#define INPUT(...)   tdm_build_input(f.b, NULL, F32, NE(__VA_ARGS__))
#define INPUT_I(...) tdm_build_input(f.b, NULL, I32, NE(__VA_ARGS__))

#endif
