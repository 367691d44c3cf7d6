/* SPDX-License-Identifier: MIT
 *
 * test_models.c: the table of models, with models that are nothing but a name: on demand, which one
 * leaves, models in use, failures, waits that end, and many threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "server/models.h"

enum { N = 4 };

static const char *const names[N] = {"a", "b", "c", "d"};

/* The owner of the models. Memory holds `memory` of them. */
typedef struct scene {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    server_models *models;
    server_model items[N];
    bool is_open[N];
    int n_open, n_most, memory;
    bool is_broken[N];
    bool is_held;  /* `open` waits */
    int n_waiting; /* calls of `open` that wait */
    char log[256]; /* "+a" opened, "-a" closed, "!a" failed */
} scene;

static void note(scene *s, char what, int32_t i) {
    const size_t n = strlen(s->log);
    if (n + 3 < sizeof s->log) snprintf(s->log + n, sizeof s->log - n, "%c%s", what, names[i]);
}

static tdm_status scene_open(void *user, int32_t i, const server_model **model_out,
                             tdm_error *err) {
    scene *s = user;
    tdm_status status = TDM_OK;
    pthread_mutex_lock(&s->lock);
    s->n_waiting++;
    pthread_cond_broadcast(&s->changed);
    while (s->is_held) pthread_cond_wait(&s->changed, &s->lock);
    s->n_waiting--;
    if (s->is_open[i]) abort(); /* opened twice */
    if (s->is_broken[i]) {
        status = tdm_fail(err, TDM_DATA_LOSS, "%s.gguf is damaged", names[i]);
    } else if (s->n_open >= s->memory) {
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for %s", names[i]);
    } else {
        s->is_open[i] = true;
        if (++s->n_open > s->n_most) s->n_most = s->n_open;
        s->items[i].name = names[i];
        *model_out = &s->items[i];
    }
    note(s, status == TDM_OK ? '+' : '!', i);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static void scene_close(void *user, int32_t i, const server_model *model) {
    scene *s = user;
    pthread_mutex_lock(&s->lock);
    if (!s->is_open[i] || model != &s->items[i]) abort();
    s->is_open[i] = false;
    s->n_open--;
    s->items[i].name = "closed";
    note(s, '-', i);
    pthread_mutex_unlock(&s->lock);
}

static void scene_begin(scene *s, int32_t n_open_max, int memory, int32_t n_wait_max) {
    *s = (scene){.memory = memory};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    const server_models_params params = {
        .struct_size = sizeof params,
        .names = names,
        .n_name = N,
        .first = 1,
        .n_open_max = n_open_max,
        .n_wait_max = n_wait_max,
        .open = scene_open,
        .close = scene_close,
        .user = s,
    };
    tdm_error err;
    assert_int_equal(server_models_create(&params, &s->models, &err), TDM_OK);
}

static void scene_end(scene *s) {
    server_models_destroy(s->models);
    assert_int_equal(s->n_open, 0);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
}

/* Lets `open` go on, or holds it. */
static void hold(scene *s, bool is_held) {
    pthread_mutex_lock(&s->lock);
    s->is_held = is_held;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void opening_wait(scene *s) {
    pthread_mutex_lock(&s->lock);
    while (s->n_waiting == 0) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static void log_is(scene *s, const char *expected) {
    pthread_mutex_lock(&s->lock);
    assert_string_equal(s->log, expected);
    pthread_mutex_unlock(&s->lock);
}

static server_model_info info_of(scene *s, int32_t i) {
    server_model_info info;
    server_models_info(s->models, i, &info);
    return info;
}

/* Waits for a state that the table's thread brings about. */
static void state_wait(scene *s, int32_t i, server_model_state state) {
    for (int k = 0; k < 10000; k++) {
        if (info_of(s, i).state == state) return;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    fail_msg("model %s never has state %d", names[i], (int)state);
}

/* ---- A request ---- */

typedef struct request {
    server_model_wait wait;
    scene *s;
    int32_t i;
    bool is_done; /* guarded by the scene's lock, as all below */
    bool is_wanted;
    const server_model *model;
    tdm_status status;
    char message[600];
} request;

static void request_ready(server_model_wait *wait, const server_model *model, tdm_status status,
                          const char *message) {
    request *r = (request *)wait;
    pthread_mutex_lock(&r->s->lock);
    if (r->is_done) abort(); /* called twice */
    r->is_done = true;
    r->model = model;
    r->status = status;
    snprintf(r->message, sizeof r->message, "%s", message);
    pthread_cond_broadcast(&r->s->changed);
    pthread_mutex_unlock(&r->s->lock);
}

static bool request_is_wanted(const server_model_wait *wait) {
    const request *r = (const request *)wait;
    pthread_mutex_lock(&r->s->lock);
    const bool is_wanted = r->is_wanted;
    pthread_mutex_unlock(&r->s->lock);
    return is_wanted;
}

static tdm_status request_begin(request *r, scene *s, int32_t i) {
    tdm_error err = {0};
    *r = (request){
        .wait = {.ready = request_ready, .is_wanted = request_is_wanted},
        .s = s,
        .i = i,
        .is_wanted = true,
    };
    const server_model *model = NULL;
    const tdm_status status = server_models_take(s->models, i, &r->wait, &model, &err);
    if (model == NULL && status == TDM_OK) return TDM_OK; /* `ready` may have come */
    r->is_done = true;
    r->model = model;
    r->status = status;
    return status;
}

static bool is_done(request *r) {
    pthread_mutex_lock(&r->s->lock);
    const bool done = r->is_done;
    pthread_mutex_unlock(&r->s->lock);
    return done;
}

static void request_wait(request *r) {
    pthread_mutex_lock(&r->s->lock);
    while (!r->is_done) pthread_cond_wait(&r->s->changed, &r->s->lock);
    pthread_mutex_unlock(&r->s->lock);
}

static void request_end(request *r) {
    request_wait(r);
    assert_int_equal(r->status, TDM_OK);
    assert_string_equal(r->model->name, names[r->i]);
    server_models_release(r->s->models, r->model);
}

static void use(scene *s, int32_t i) {
    request r;
    assert_int_equal(request_begin(&r, s, i), TDM_OK);
    request_end(&r);
}

/* ---- Tests ---- */

static void test_names(void **state) {
    scene s;
    (void)state;
    scene_begin(&s, 0, N, 0);
    assert_int_equal(server_models_n(s.models), N);
    assert_int_equal(server_models_first(s.models), 1);
    assert_int_equal(server_models_find(s.models, "c"), 2);
    assert_int_equal(server_models_find(s.models, "c:latest"), 2);
    assert_int_equal(server_models_find(s.models, "c:later"), -1);
    assert_int_equal(server_models_find(s.models, ":latest"), -1);
    assert_int_equal(server_models_find(s.models, ""), -1);
    assert_null(server_models_peek(s.models, 0));
    log_is(&s, "");
    scene_end(&s);
}

static void test_on_demand(void **state) {
    scene s;
    (void)state;
    scene_begin(&s, 0, N, 0);
    assert_int_equal(info_of(&s, 0).state, SERVER_MODEL_CLOSED);
    use(&s, 0);
    use(&s, 0);
    use(&s, 2);
    log_is(&s, "+a+c");
    assert_int_equal(info_of(&s, 0).state, SERVER_MODEL_OPEN);
    const server_model *model = server_models_peek(s.models, 0);
    assert_ptr_equal(model, &s.items[0]);
    assert_int_equal(info_of(&s, 0).n_ref, 1);
    server_models_hold(s.models, model);
    assert_int_equal(info_of(&s, 0).n_ref, 2);
    server_models_release(s.models, model);
    server_models_release(s.models, model);
    scene_end(&s);
}

static void test_least_recently_used(void **state) {
    scene s;
    (void)state;
    scene_begin(&s, 2, N, 0);
    use(&s, 0);
    use(&s, 1);
    use(&s, 0);
    use(&s, 2); /* b is the least recently used */
    log_is(&s, "+a+b-b+c");
    use(&s, 3);
    log_is(&s, "+a+b-b+c-a+d");
    assert_int_equal(s.n_most, 2);
    scene_end(&s);
}

static void test_short_memory(void **state) {
    scene s;
    tdm_error err;
    (void)state;
    scene_begin(&s, 0, 2, 0);
    use(&s, 0);
    use(&s, 1);
    use(&s, 2);
    log_is(&s, "+a+b!c-a+c");
    /* nothing is left that could leave */
    pthread_mutex_lock(&s.lock);
    s.memory = 0;
    s.log[0] = '\0';
    pthread_mutex_unlock(&s.lock);
    assert_int_equal(server_models_load(s.models, 3, &err), TDM_RESOURCE_EXHAUSTED);
    assert_string_equal(err.message, "model 'd' cannot be opened: no memory for d");
    log_is(&s, "!d-b!d-c!d");
    scene_end(&s);
}

static void test_in_use(void **state) {
    scene s;
    request busy, wanted, late;
    (void)state;
    scene_begin(&s, 1, N, 0);
    request_begin(&busy, &s, 0);
    request_wait(&busy);
    request_begin(&wanted, &s, 1);
    state_wait(&s, 0, SERVER_MODEL_LEAVING);
    /* so that a model that is always busy keeps no other out */
    request_begin(&late, &s, 0);
    assert_false(is_done(&wanted));
    assert_false(is_done(&late));
    log_is(&s, "+a");
    assert_string_equal(busy.model->name, "a");
    request_end(&busy);
    request_wait(&wanted);
    log_is(&s, "+a-a+b");
    assert_false(is_done(&late));
    request_end(&wanted);
    request_end(&late);
    log_is(&s, "+a-a+b-b+a");
    scene_end(&s);
}

/* The model that was to leave stays, where the request that lacked room has gone. */
static void test_leaving_undone(void **state) {
    scene s;
    request busy, gone, late;
    (void)state;
    scene_begin(&s, 1, N, 0);
    request_begin(&busy, &s, 0);
    request_wait(&busy);
    request_begin(&gone, &s, 1);
    state_wait(&s, 0, SERVER_MODEL_LEAVING);
    request_begin(&late, &s, 0);
    pthread_mutex_lock(&s.lock);
    gone.is_wanted = false;
    pthread_mutex_unlock(&s.lock);
    request_wait(&gone);
    assert_int_equal(gone.status, TDM_CANCELLED);
    request_end(&late);
    request_end(&busy);
    assert_int_equal(info_of(&s, 0).state, SERVER_MODEL_OPEN);
    log_is(&s, "+a");
    scene_end(&s);
}

static void test_failure(void **state) {
    scene s;
    request first, second;
    (void)state;
    scene_begin(&s, 0, N, 0);
    s.is_broken[1] = true;
    hold(&s, true);
    request_begin(&first, &s, 1);
    request_begin(&second, &s, 1);
    opening_wait(&s);
    assert_int_equal(info_of(&s, 1).state, SERVER_MODEL_OPENING);
    assert_int_equal(info_of(&s, 1).n_wait, 2);
    hold(&s, false);
    request_wait(&first);
    request_wait(&second);
    assert_int_equal(first.status, TDM_DATA_LOSS);
    assert_int_equal(second.status, TDM_DATA_LOSS);
    assert_null(first.model);
    assert_string_equal(first.message, "model 'b' cannot be opened: b.gguf is damaged");
    assert_true(info_of(&s, 1).has_failed);
    assert_int_equal(info_of(&s, 1).state, SERVER_MODEL_CLOSED);
    /* another one works, and so does this one when it was mended */
    use(&s, 0);
    pthread_mutex_lock(&s.lock);
    s.is_broken[1] = false;
    pthread_mutex_unlock(&s.lock);
    use(&s, 1);
    assert_false(info_of(&s, 1).has_failed);
    assert_int_equal(info_of(&s, 1).n_failed, 1);
    log_is(&s, "!b+a+b");
    scene_end(&s);
}

/* While a model is opened, requests for others go on, and new ones are bounded. */
static void test_queue(void **state) {
    scene s;
    request open, waits[3];
    (void)state;
    scene_begin(&s, 0, N, 2);
    use(&s, 0);
    hold(&s, true);
    assert_int_equal(request_begin(&waits[0], &s, 1), TDM_OK);
    opening_wait(&s);
    assert_int_equal(request_begin(&waits[1], &s, 2), TDM_OK);
    assert_int_equal(info_of(&s, 2).state, SERVER_MODEL_WAITING);
    request_begin(&open, &s, 0);
    assert_true(is_done(&open));
    request_end(&open);
    assert_int_equal(request_begin(&waits[2], &s, 3), TDM_RESOURCE_EXHAUSTED);
    /* one that is not wanted any more makes room */
    pthread_mutex_lock(&s.lock);
    waits[1].is_wanted = false;
    pthread_mutex_unlock(&s.lock);
    assert_int_equal(request_begin(&waits[2], &s, 3), TDM_OK);
    assert_true(is_done(&waits[1]));
    assert_int_equal(waits[1].status, TDM_CANCELLED);
    hold(&s, false);
    request_end(&waits[0]);
    request_end(&waits[2]);
    log_is(&s, "+a+b+d"); /* c was never opened */
    scene_end(&s);
}

static void test_unload(void **state) {
    scene s;
    request r;
    (void)state;
    scene_begin(&s, 0, N, 0);
    assert_false(server_models_unload(s.models, 0));
    request_begin(&r, &s, 0);
    request_wait(&r);
    assert_true(server_models_unload(s.models, 0));
    assert_int_equal(info_of(&s, 0).state, SERVER_MODEL_LEAVING);
    assert_string_equal(r.model->name, "a");
    request_end(&r);
    state_wait(&s, 0, SERVER_MODEL_CLOSED);
    use(&s, 0);
    log_is(&s, "+a-a+a");
    scene_end(&s);
}

static void test_drain(void **state) {
    scene s;
    request opening, queued, after, used;
    (void)state;
    scene_begin(&s, 0, N, 0);
    request_begin(&used, &s, 0);
    request_wait(&used);
    hold(&s, true);
    request_begin(&opening, &s, 1);
    opening_wait(&s);
    request_begin(&queued, &s, 2);
    server_models_drain(s.models, 0); /* does not wait for the model */
    assert_true(is_done(&opening));
    assert_true(is_done(&queued));
    assert_int_equal(opening.status, TDM_UNAVAILABLE);
    assert_int_equal(queued.status, TDM_UNAVAILABLE);
    assert_int_equal(request_begin(&after, &s, 0), TDM_UNAVAILABLE);
    assert_true(server_models_is_idle(s.models));
    hold(&s, false);
    server_models_stop(s.models);
    /* a reference may be held until the table is destroyed */
    request_end(&used);
    log_is(&s, "+a+b");
    scene_end(&s);
}

/* ---- Many threads ---- */

typedef struct crowd {
    scene *s;
    unsigned seed;
    int n_served, n_failed;
} crowd;

static void *crowd_run(void *user) {
    crowd *c = user;
    for (int k = 0; k < 300; k++) {
        c->seed = c->seed * 1664525u + 1013904223u;
        const int32_t i = (int32_t)(c->seed >> 16) % N;
        request r;
        if ((c->seed >> 8) % 16 == 0) server_models_unload(c->s->models, i);
        if ((c->seed >> 8) % 16 == 1) (void)info_of(c->s, i);
        request_begin(&r, c->s, i);
        if ((c->seed >> 8) % 16 == 2) {
            pthread_mutex_lock(&c->s->lock);
            r.is_wanted = false;
            pthread_mutex_unlock(&c->s->lock);
        }
        request_wait(&r);
        if (r.status != TDM_OK) {
            c->n_failed++;
            continue;
        }
        if (strcmp(r.model->name, names[i]) != 0) abort(); /* closed while it was used */
        if ((c->seed >> 8) % 4 == 0) {
            server_models_hold(c->s->models, r.model);
            server_models_release(c->s->models, r.model);
        }
        server_models_release(c->s->models, r.model);
        c->n_served++;
    }
    return NULL;
}

static void test_crowd(void **state) {
    enum { N_THREAD = 6 };
    scene s;
    crowd crowds[N_THREAD];
    pthread_t threads[N_THREAD];
    int n_served = 0, n_failed = 0;
    (void)state;
    scene_begin(&s, 3, 2, 0); /* the limit is looser than memory: both are met */
    s.is_broken[3] = true;
    for (int t = 0; t < N_THREAD; t++) {
        crowds[t] = (crowd){.s = &s, .seed = (unsigned)t + 1};
        assert_int_equal(pthread_create(&threads[t], NULL, crowd_run, &crowds[t]), 0);
    }
    for (int t = 0; t < N_THREAD; t++) {
        pthread_join(threads[t], NULL);
        n_served += crowds[t].n_served;
        n_failed += crowds[t].n_failed;
    }
    assert_int_equal(n_served + n_failed, N_THREAD * 300);
    assert_true(n_served > N_THREAD * 100 && n_failed > 0);
    assert_true(s.n_most <= 2);
    for (int32_t i = 0; i < N; i++) {
        assert_int_equal(info_of(&s, i).n_ref, 0);
        assert_int_equal(info_of(&s, i).n_wait, 0);
    }
    scene_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_on_demand),
        cmocka_unit_test(test_least_recently_used),
        cmocka_unit_test(test_short_memory),
        cmocka_unit_test(test_in_use),
        cmocka_unit_test(test_leaving_undone),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_unload),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
