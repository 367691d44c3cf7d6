/* SPDX-License-Identifier: MIT
 *
 * models.c: see models.h.
 *
 * The thread closes a model that server_models_unload named once it has no references, and else
 * opens the model whose first request has waited longest. Where there is no room for that, it
 * closes the least recently used idle model. Where none is idle, the least recently used model
 * leaves: it is closed once its requests have ended, and new requests for it wait until it is
 * opened again. So a busy model cannot keep others out for ever.
 */
#include "server/models.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_WAIT_MAX 256        /* without n_wait_max */
#define CHECK_NS   200000000u /* how often requests that have stopped waiting are looked for */

typedef struct entry {
    char *name;
    const server_model *model; /* NULL = closed */
    bool is_opening, is_closing;
    bool is_leaving; /* to be closed once it has no references */
    bool is_asked;   /* with is_leaving: by server_models_unload, so it is closed even where no
                        other model needs its room */
    bool lacks_room; /* the last try to open it failed for memory: another one has to leave */
    bool has_failed; /* the last try to open it failed */
    int32_t n_ref, n_wait;
    server_model_wait *first_wait, **last_wait;
    uint64_t since; /* serial number (n_use) of its first wait */
    uint64_t used;  /* serial number of its last use */
    uint64_t n_opened, n_closed, n_failed;
} entry;

struct server_models {
    server_models_params params;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, is_draining, ends; /* ends: the thread returns */
    bool is_stopped;                    /* the engines are stopped; of the owner's thread */
    uint64_t n_use;                     /* the last serial number given to a use or a wait */
    int32_t n_wait;                     /* of all entries */
    entry *entries; /* [params.n_name] */
};

/* ---- Waits. The lock is held, except in waits_call ---- */

static void wait_add(server_models *m, entry *e, server_model_wait *wait) {
    if (e->first_wait == NULL) e->since = ++m->n_use;
    wait->next = NULL;
    *e->last_wait = wait;
    e->last_wait = &wait->next;
    e->n_wait++;
    m->n_wait++;
}

/* Takes out all waits of an entry; returns them as a list. */
static server_model_wait *waits_detach(server_models *m, entry *e) {
    server_model_wait *list = e->first_wait;
    m->n_wait -= e->n_wait;
    e->n_wait = 0;
    e->first_wait = NULL;
    e->last_wait = &e->first_wait;
    return list;
}

/* Takes out the waits of an entry that no longer wait, and puts them in front of `list`, which it
 * returns. */
static server_model_wait *waits_prune(server_models *m, entry *e, server_model_wait *list) {
    server_model_wait *at = waits_detach(m, e);
    const uint64_t since = e->since;
    while (at != NULL) {
        server_model_wait *next = at->next;
        if (at->is_wanted == NULL || at->is_wanted(at)) {
            wait_add(m, e, at);
        } else {
            at->next = list;
            list = at;
        }
        at = next;
    }
    e->since = since; /* it keeps its place */
    return list;
}

/* Calls `ready` of a list of waits, each with a reference that the caller has counted, or with NULL
 * and a failure. The lock is not held. */
static void waits_call(server_model_wait *list, const server_model *model, tdm_status status,
                       const char *message) {
    while (list != NULL) {
        server_model_wait *next = list->next; /* `ready` may free the wait */
        list->ready(list, model, status, message);
        list = next;
    }
}

static void cancelled_call(server_model_wait *list) {
    waits_call(list, NULL, TDM_CANCELLED, "the request did not wait for its model any longer");
}

/* Fails all that wait for an entry. Releases the lock for a moment. */
static void waits_fail(server_models *m, entry *e, tdm_status status, const char *message) {
    server_model_wait *list = waits_detach(m, e);
    pthread_mutex_unlock(&m->lock);
    waits_call(list, NULL, status, message);
    pthread_mutex_lock(&m->lock);
}

/* Gives the open model to all that wait for it. Releases the lock for a moment. */
static void waits_serve(server_models *m, entry *e) {
    const server_model *model = e->model;
    e->n_ref += e->n_wait;
    e->used = ++m->n_use;
    server_model_wait *list = waits_detach(m, e);
    pthread_mutex_unlock(&m->lock);
    waits_call(list, model, TDM_OK, "");
    pthread_mutex_lock(&m->lock);
}

/* ---- The thread. The lock is held, except within `open` and `close` ---- */

/* Whether a model is open, and neither `open` nor `close` is in progress. */
static bool is_stable(const entry *e) {
    return e->model != NULL && !e->is_opening && !e->is_closing;
}

static int32_t n_open(const server_models *m) {
    int32_t n = 0;
    for (int32_t i = 0; i < m->params.n_name; i++) n += m->entries[i].model != NULL;
    return n;
}

static void entry_close(server_models *m, entry *e) {
    const server_model *model = e->model;
    e->is_closing = true;
    pthread_mutex_unlock(&m->lock);
    server_engine_destroy(model->engine);
    m->params.close(m->params.user, (int32_t)(e - m->entries), model);
    pthread_mutex_lock(&m->lock);
    e->model = NULL;
    e->is_closing = e->is_leaving = e->is_asked = false;
    e->n_closed++;
}

static void entry_open(server_models *m, entry *e) {
    const server_model *model = NULL;
    tdm_error reason = {0};
    const int32_t i = (int32_t)(e - m->entries);
    e->is_opening = true;
    e->lacks_room = false;
    pthread_mutex_unlock(&m->lock);
    tdm_status status = m->params.open(m->params.user, i, &model, &reason);
    pthread_mutex_lock(&m->lock);
    e->is_opening = false;
    e->has_failed = status != TDM_OK;
    if (status == TDM_OK) {
        e->model = model;
        e->n_opened++;
        /* server_models_drain may have been called meanwhile: it did not reach this engine */
        if (m->is_draining && model->engine != NULL) server_engine_drain(model->engine, 0);
        waits_serve(m, e);
    } else if (status == TDM_RESOURCE_EXHAUSTED && n_open(m) > 0) {
        e->lacks_room = true;
    } else {
        char message[TDM_ERROR_MESSAGE_SIZE + 128];
        if (m->params.n_name > 1)
            snprintf(message, sizeof message, "model '%.80s' cannot be opened: %s", e->name,
                     reason.message);
        else
            snprintf(message, sizeof message, "%s", reason.message);
        e->n_failed++;
        waits_fail(m, e, status, message);
    }
}

/* The least recently used open model, with is_idle among those without references; NULL = none. */
static entry *least_used(server_models *m, bool is_idle) {
    entry *found = NULL;
    for (int32_t i = 0; i < m->params.n_name; i++) {
        entry *e = &m->entries[i];
        if (!is_stable(e) || (is_idle && e->n_ref > 0)) continue;
        if (found == NULL || e->used < found->used) found = e;
    }
    return found;
}

/* Closes an idle model, or marks the one that leaves next. Returns whether one was closed. */
static bool room_make(server_models *m) {
    entry *idle = least_used(m, true);
    if (idle != NULL) {
        entry_close(m, idle);
        return true;
    }
    for (int32_t i = 0; i < m->params.n_name; i++)
        if (is_stable(&m->entries[i]) && m->entries[i].is_leaving) return false;
    entry *next = least_used(m, false);
    if (next != NULL) next->is_leaving = true;
    return false;
}

/* Lets a model stay that was to leave only because another one lacked room, which no longer waits;
 * returns whether there was one. */
static bool leaving_undo(server_models *m) {
    for (int32_t i = 0; i < m->params.n_name; i++) {
        entry *e = &m->entries[i];
        if (!is_stable(e) || !e->is_leaving || e->is_asked) continue;
        e->is_leaving = false;
        waits_serve(m, e);
        return true;
    }
    return false;
}

/* Fails the requests that no longer wait; returns whether there were some. */
static bool prune(server_models *m) {
    server_model_wait *list = NULL;
    for (int32_t i = 0; i < m->params.n_name; i++) list = waits_prune(m, &m->entries[i], list);
    if (list == NULL) return false;
    pthread_mutex_unlock(&m->lock);
    cancelled_call(list);
    pthread_mutex_lock(&m->lock);
    return true;
}

/* Does one thing; false where there is nothing to do now. */
static bool work(server_models *m) {
    entry *wanted = NULL;
    if (prune(m)) return true;
    for (int32_t i = 0; i < m->params.n_name; i++) {
        entry *e = &m->entries[i];
        if (is_stable(e) && e->is_asked && e->n_ref == 0) {
            entry_close(m, e);
            return true;
        }
        if (e->model == NULL && e->first_wait != NULL &&
            (wanted == NULL || e->since < wanted->since))
            wanted = e;
    }
    if (m->is_draining) return false;
    if (wanted == NULL) return leaving_undo(m);
    const int32_t most = m->params.n_open_max, n = n_open(m);
    const bool is_full = (most > 0 && n >= most) || (wanted->lacks_room && n > 0);
    if (!is_full) {
        entry_open(m, wanted);
        return true;
    }
    if (!room_make(m)) return false;
    wanted->lacks_room = false;
    return true;
}

static void *run(void *user) {
    server_models *m = user;
    pthread_mutex_lock(&m->lock);
    while (!m->ends) {
        if (work(m)) continue;
        if (m->n_wait == 0) {
            pthread_cond_wait(&m->changed, &m->lock);
            continue;
        }
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += CHECK_NS;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&m->changed, &m->lock, &until);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* ---- Setup ---- */

static tdm_status names_copy(server_models *m, const server_models_params *params) {
    m->entries = calloc((size_t)params->n_name, sizeof *m->entries);
    if (m->entries == NULL) return TDM_RESOURCE_EXHAUSTED;
    for (int32_t i = 0; i < params->n_name; i++) {
        m->entries[i].last_wait = &m->entries[i].first_wait;
        m->entries[i].name = strdup(params->names[i]);
        if (m->entries[i].name == NULL) return TDM_RESOURCE_EXHAUSTED;
    }
    m->params.names = NULL; /* not kept */
    return TDM_OK;
}

static tdm_status thread_start(server_models *m) {
    pthread_condattr_t attr;
    sigset_t all, before;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&m->changed, &attr);
    pthread_condattr_destroy(&attr);
    /* signals are for the main thread */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    m->has_thread = pthread_create(&m->thread, NULL, run, m) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return m->has_thread ? TDM_OK : TDM_RESOURCE_EXHAUSTED;
}

tdm_status server_models_create(const server_models_params *params, server_models **out,
                                tdm_error *err) {
    *out = NULL;
    server_models *m = calloc(1, sizeof *m);
    if (m == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a table of models");
    m->params = *params;
    if (m->params.n_wait_max < 1) m->params.n_wait_max = N_WAIT_MAX;
    pthread_mutex_init(&m->lock, NULL);
    tdm_status status = names_copy(m, params);
    if (status == TDM_OK) {
        status = thread_start(m);
    } else {
        pthread_cond_init(&m->changed, NULL);
    }
    if (status != TDM_OK) {
        server_models_destroy(m);
        return tdm_fail(err, status, "no memory or no thread for a table of models");
    }
    *out = m;
    return TDM_OK;
}

void server_models_settle(server_models *m) {
    if (m == NULL || !m->has_thread) return;
    server_models_drain(m, 0);
    pthread_mutex_lock(&m->lock);
    m->ends = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    m->has_thread = false;
}

void server_models_stop(server_models *m) {
    server_models_settle(m);
    if (m == NULL || m->is_stopped || m->entries == NULL) return;
    m->is_stopped = true;
    /* without the lock: other threads release models while an engine ends its requests */
    for (int32_t i = 0; i < m->params.n_name; i++)
        if (m->entries[i].model != NULL) server_engine_stop(m->entries[i].model->engine);
}

void server_models_destroy(server_models *m) {
    if (m == NULL) return;
    server_models_stop(m);
    for (int32_t i = 0; i < m->params.n_name && m->entries != NULL; i++) {
        if (m->entries[i].model != NULL) {
            server_engine_destroy(m->entries[i].model->engine);
            m->params.close(m->params.user, i, m->entries[i].model);
        }
        free(m->entries[i].name);
    }
    free(m->entries);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* ---- What it has ---- */

int32_t server_models_n(const server_models *m) {
    return m->params.n_name;
}

const char *server_models_name(const server_models *m, int32_t i) {
    return m->entries[i].name;
}

int32_t server_models_first(const server_models *m) {
    return m->params.first;
}

int32_t server_models_find(const server_models *m, const char *name) {
    static const char latest[] = ":latest"; /* ollama's clients may add it */
    const size_t len = strlen(name), end = sizeof latest - 1;
    for (int32_t i = 0; i < m->params.n_name; i++)
        if (strcmp(m->entries[i].name, name) == 0) return i;
    if (len <= end || strcmp(name + len - end, latest) != 0) return -1;
    for (int32_t i = 0; i < m->params.n_name; i++)
        if (strlen(m->entries[i].name) == len - end &&
            strncmp(m->entries[i].name, name, len - end) == 0)
            return i;
    return -1;
}

void server_models_info(server_models *m, int32_t i, server_model_info *info) {
    pthread_mutex_lock(&m->lock);
    const entry *e = &m->entries[i];
    *info = (server_model_info){
        .state = e->is_opening           ? SERVER_MODEL_OPENING
                 : e->is_closing         ? SERVER_MODEL_CLOSING
                 : e->is_leaving         ? SERVER_MODEL_LEAVING
                 : e->model != NULL      ? SERVER_MODEL_OPEN
                 : e->first_wait != NULL ? SERVER_MODEL_WAITING
                                         : SERVER_MODEL_CLOSED,
        .has_failed = e->has_failed,
        .n_ref = e->n_ref,
        .n_wait = e->n_wait,
        .n_opened = e->n_opened,
        .n_closed = e->n_closed,
        .n_failed = e->n_failed,
    };
    pthread_mutex_unlock(&m->lock);
}

/* ---- References ---- */

/* The lock is held. */
static entry *entry_of(server_models *m, const server_model *model) {
    for (int32_t i = 0; i < m->params.n_name; i++)
        if (m->entries[i].model == model) return &m->entries[i];
    return NULL;
}

const server_model *server_models_peek(server_models *m, int32_t i) {
    pthread_mutex_lock(&m->lock);
    entry *e = &m->entries[i];
    const server_model *model = is_stable(e) ? e->model : NULL;
    if (model != NULL) e->n_ref++;
    pthread_mutex_unlock(&m->lock);
    return model;
}

tdm_status server_models_take(server_models *m, int32_t i, server_model_wait *wait,
                              const server_model **model_out, tdm_error *err) {
    server_model_wait *unwanted = NULL;
    tdm_status status = TDM_OK;
    entry *e = &m->entries[i];
    *model_out = NULL;
    pthread_mutex_lock(&m->lock);
    if (m->n_wait >= m->params.n_wait_max)
        for (int32_t k = 0; k < m->params.n_name; k++)
            unwanted = waits_prune(m, &m->entries[k], unwanted);
    if (m->is_draining) {
        status = tdm_fail(err, TDM_UNAVAILABLE, "the server is shutting down");
    } else if (is_stable(e) && !e->is_leaving) {
        *model_out = e->model;
        e->n_ref++;
        e->used = ++m->n_use;
    } else if (m->n_wait >= m->params.n_wait_max) {
        status =
            tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%d requests wait for models", (int)m->n_wait);
    } else {
        if (e->first_wait == NULL) e->lacks_room = false; /* there may be room by now */
        wait_add(m, e, wait);
        pthread_cond_signal(&m->changed);
    }
    pthread_mutex_unlock(&m->lock);
    cancelled_call(unwanted);
    return status;
}

void server_models_hold(server_models *m, const server_model *model) {
    pthread_mutex_lock(&m->lock);
    entry_of(m, model)->n_ref++;
    pthread_mutex_unlock(&m->lock);
}

void server_models_release(server_models *m, const server_model *model) {
    pthread_mutex_lock(&m->lock);
    entry *e = entry_of(m, model);
    e->used = ++m->n_use;
    if (--e->n_ref == 0) pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

/* ---- Loading and unloading ---- */

typedef struct load_wait {
    server_model_wait wait;
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done;
    const server_model *model;
    tdm_status status;
    tdm_error *err;
} load_wait;

static void load_ready(server_model_wait *wait, const server_model *model, tdm_status status,
                       const char *message) {
    load_wait *load = (load_wait *)wait; /* its first member */
    pthread_mutex_lock(&load->lock);
    load->model = model;
    load->status = status != TDM_OK ? tdm_fail(load->err, status, "%s", message) : TDM_OK;
    load->is_done = true;
    pthread_cond_signal(&load->done);
    pthread_mutex_unlock(&load->lock);
}

tdm_status server_models_load(server_models *m, int32_t i, tdm_error *err) {
    load_wait load = {.wait.ready = load_ready, .err = err};
    pthread_mutex_init(&load.lock, NULL);
    pthread_cond_init(&load.done, NULL);
    const server_model *model = NULL;
    tdm_status status = server_models_take(m, i, &load.wait, &model, err);
    if (status == TDM_OK && model == NULL) {
        pthread_mutex_lock(&load.lock);
        while (!load.is_done) pthread_cond_wait(&load.done, &load.lock);
        model = load.model;
        status = load.status;
        pthread_mutex_unlock(&load.lock);
    }
    if (model != NULL) server_models_release(m, model);
    pthread_cond_destroy(&load.done);
    pthread_mutex_destroy(&load.lock);
    return status;
}

bool server_models_unload(server_models *m, int32_t i) {
    pthread_mutex_lock(&m->lock);
    entry *e = &m->entries[i];
    const bool is_open = is_stable(e);
    if (is_open) {
        e->is_leaving = e->is_asked = true;
        pthread_cond_signal(&m->changed);
    }
    pthread_mutex_unlock(&m->lock);
    return is_open;
}

/* ---- The end ---- */

void server_models_drain(server_models *m, uint64_t limit_ns) {
    pthread_mutex_lock(&m->lock);
    const bool is_first = !m->is_draining;
    m->is_draining = true;
    for (int32_t i = 0; i < m->params.n_name; i++) {
        entry *e = &m->entries[i];
        if (is_first && is_stable(e) && e->model->engine != NULL)
            server_engine_drain(e->model->engine, limit_ns);
        waits_fail(m, e, TDM_UNAVAILABLE, "the server is shutting down");
    }
    pthread_mutex_unlock(&m->lock);
}

bool server_models_is_idle(server_models *m) {
    bool is_idle = true;
    pthread_mutex_lock(&m->lock);
    for (int32_t i = 0; i < m->params.n_name; i++) {
        const entry *e = &m->entries[i];
        if (is_stable(e) && e->model->engine != NULL)
            is_idle = is_idle && server_engine_wait_idle(e->model->engine, 0);
    }
    pthread_mutex_unlock(&m->lock);
    return is_idle;
}
