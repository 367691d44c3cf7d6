/* SPDX-License-Identifier: MIT
 *
 * certify.c: runs the checks in child processes, and reports. The checks are in the tables of the
 * other files.
 */
#include "certify/certify.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "certify/suite.h"

static const certify_table *const tables[] = {
    &certify_plugin_table, &certify_device_table,    &certify_status_table,
    &certify_buffer_table, &certify_graph_table,     &certify_op_table,
    &certify_memory_table, &certify_tensor_table,    &certify_queue_table,
    &certify_order_table,  &certify_attach_table,    &certify_cache_table,
    &certify_split_table,  &certify_exchange_table,  &certify_exchange_phase_table,
    &certify_option_table, &certify_recurrent_table, &certify_sparse_table,
    &certify_pool_table,   &certify_strided_table,
};
enum { N_TABLE = sizeof tables / sizeof tables[0], LIMIT_DEFAULT = 120, MAX_CHECK = 64 };

static size_t table_size(const certify_table *table) {
    return table->n_check + table->n_more;
}

/* Row i of a table; NULL where it is empty. */
static const certify_check *table_row(const certify_table *table, size_t i) {
    return i < table->n_check ? &table->checks[i] : table->more[i - table->n_check];
}

/* If this check fails, only the checks of the first table run; the others would fail for the same
 * reason. */
static const char load_id[] = "plugin.load";

/* Decided here, from what the children wrote to standard output and standard error. */
static const certify_check quiet_check = {
    "plugin.quiet", 0,
    "plugin.h: \"A function that fails returns a status and fills *err; nothing aborts, exits or "
    "prints.\"",
    NULL};

/* The message of a child through its pipe; small enough to be written in one piece. */
typedef struct report {
    int32_t verdict;
    int64_t printed; /* bytes that the process has printed so far */
    char message[TDM_ERROR_MESSAGE_SIZE];
} report;

typedef struct suite {
    const certify_params *params;
    FILE *out;
    certify_result result;
    bool is_claimed[CERTIFY_LEVEL_MAX + 1]; /* a check of the level was not skipped */
    bool has_failed[CERTIFY_LEVEL_MAX + 1];
    bool is_unloadable;                 /* load_id has failed */
    int32_t n_not_run;                  /* checks that were therefore not run */
    char noise[TDM_ERROR_MESSAGE_SIZE]; /* for quiet_check; "" = nothing was printed */
} suite;

/* ---- One check ---- */

static void *thread_main(void *arg) {
    return arg;
}

/* A sanitizer may start a thread of its own when the process starts its first one. That must happen
 * before a check counts threads. */
static void threads_warm_up(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_main, NULL) == 0) pthread_join(thread, NULL);
}

/* Runs checks in turn, up to the first that fails: what it used may be in any state. */
static void child_run(const certify_params *params, const certify_check *const *checks, size_t n,
                      int pipe_fd, int capture_fd) {
    static certify c;
    bool is_written = true;
    c.params = params;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    dup2(capture_fd, STDOUT_FILENO);
    dup2(capture_fd, STDERR_FILENO);
    certify_host_init(&c.host);
    threads_warm_up();
    for (size_t i = 0; i < n && is_written; i++) {
        report answer = {0};
        struct stat capture = {0};
        c.random = (params->seed != 0 ? params->seed : 1) * 0x9e3779b97f4a7c15u;
        if (c.random == 0) c.random = 1;
        memset(c.message, 0, sizeof c.message);
        memset(&c.failure, 0, sizeof c.failure);
        answer.verdict = checks[i]->run(&c);
        memcpy(answer.message, c.message, sizeof answer.message);
        /* _exit would drop buffered output, and the check for printed text would miss it. */
        fflush(NULL);
        if (fstat(capture_fd, &capture) == 0) answer.printed = capture.st_size;
        is_written = write(pipe_fd, &answer, sizeof answer) == (ssize_t)sizeof answer;
        if (answer.verdict == CERTIFY_FAILED) break;
    }
    _exit(is_written ? 0 : 1);
}

static double seconds_between(const struct timespec *from, const struct timespec *to) {
    return (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_nsec - from->tv_nsec) * 1e-9;
}

/* How long a process has worked: its processor time, and the time in which it used none because it
 * waited. Time in which a busy machine ran other processes does not count. */
typedef struct watch {
    clockid_t clock; /* of the process */
    bool has_clock;
    struct timespec wall, used; /* at the last reading */
    double seconds;
} watch;

static void watch_begin(watch *w, pid_t pid) {
    *w = (watch){0};
    w->has_clock =
        clock_getcpuclockid(pid, &w->clock) == 0 && clock_gettime(w->clock, &w->used) == 0;
    clock_gettime(CLOCK_MONOTONIC, &w->wall);
}

static void watch_read(watch *w) {
    struct timespec wall, used;
    clock_gettime(CLOCK_MONOTONIC, &wall);
    double passed = seconds_between(&w->wall, &wall), busy = passed;
    if (w->has_clock && clock_gettime(w->clock, &used) == 0) {
        busy = seconds_between(&w->used, &used);
        w->used = used;
    }
    /* A process that used less than a hundredth of the time has waited, and one that used more than
     * all of it has several threads: the time that passed counts. */
    w->seconds += busy < passed / 100 || busy > passed ? passed : busy;
    w->wall = wall;
}

/* Reads the child's report; false where the child ended or ran out of time without one. */
static bool answer_read(int fd, pid_t pid, int limit_s, report *answer, bool *has_hung_out) {
    watch w;
    size_t have = 0;
    watch_begin(&w, pid);
    *has_hung_out = false;
    while (have < sizeof *answer) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int n = poll(&p, 1, 1000);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        if (n == 0) {
            watch_read(&w);
            *has_hung_out = w.seconds >= (double)limit_s;
            if (*has_hung_out) return false;
            continue;
        }
        ssize_t got = read(fd, (char *)answer + have, sizeof *answer - have);
        if (got <= 0) return false;
        have += (size_t)got;
    }
    answer->message[sizeof answer->message - 1] = 0;
    return true;
}

/* The first line of what the child printed from byte `at` on, without controls; "" where it printed
 * nothing. */
static void capture_read(int fd, int64_t at, char *line, size_t line_size) {
    ssize_t n = pread(fd, line, line_size - 1, (off_t)at);
    line[n > 0 ? n : 0] = 0;
    for (char *c = line; *c != 0; c++)
        if ((unsigned char)*c < ' ') {
            *c = c[1] != 0 && c == line ? ' ' : 0;
            if (*c == 0) break;
        }
    if (n > 0 && line[0] == 0) snprintf(line, line_size, "(an empty line)");
}

static void end_describe(int wait_status, bool has_hung, int limit_s, const char *line,
                         report *answer) {
    answer->verdict = CERTIFY_FAILED;
    if (has_hung)
        snprintf(answer->message, sizeof answer->message, "did not end within %d seconds", limit_s);
    else if (WIFSIGNALED(wait_status))
        snprintf(answer->message, sizeof answer->message, "crashed: %s%s%.200s",
                 strsignal(WTERMSIG(wait_status)), line[0] != 0 ? ": " : "", line);
    else
        snprintf(answer->message, sizeof answer->message, "ended the process with code %d%s%.200s",
                 WEXITSTATUS(wait_status), line[0] != 0 ? ": " : "", line);
}

/* ---- Reporting ---- */

static void answer_print(suite *s, const certify_check *check, const report *answer) {
    switch (answer->verdict) {
    case CERTIFY_PASSED:
        fprintf(s->out, "ok    %s\n", check->id);
        s->result.n_passed++;
        break;
    case CERTIFY_SKIPPED:
        fprintf(s->out, "skip  %s: %s\n", check->id, answer->message);
        s->result.n_skipped++;
        return;
    default:
        fprintf(s->out, "FAIL  %s: %s\n      %s\n", check->id, answer->message, check->cites);
        s->result.n_failed++;
        s->has_failed[check->level] = true;
        s->is_unloadable = s->is_unloadable || strcmp(check->id, load_id) == 0;
        break;
    }
    s->is_claimed[check->level] = true;
}

/* ---- Running ---- */

/* A process that runs checks. */
typedef struct child {
    pid_t pid;
    int fd; /* its reports */
    FILE *capture;
} child;

static tdm_status child_start(const suite *s, const certify_check *const *checks, size_t n,
                              child *out, tdm_error *err) {
    int ends[2];
    FILE *capture = tmpfile();
    if (capture == NULL || pipe(ends) != 0) {
        int cause = errno;
        if (capture != NULL) fclose(capture);
        return tdm_fail(err, TDM_IO, "certify: cannot capture a check's output: %s",
                        strerror(cause));
    }
    fflush(NULL); /* or the child would print what this process has not yet printed */
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        child_run(s->params, checks, n, ends[1], fileno(capture));
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        fclose(capture);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "certify: cannot start a process: %s",
                        strerror(errno));
    }
    *out = (child){pid, ends[0], capture};
    return TDM_OK;
}

/* Runs checks in one process and prints the answers, up to the first check that fails or ends the
 * process. *n_done_out = how many have an answer, at least one. */
static tdm_status checks_run(suite *s, const certify_check *const *checks, size_t n,
                             size_t *n_done_out, tdm_error *err) {
    const int limit_s = s->params->limit_s > 0 ? s->params->limit_s : LIMIT_DEFAULT;
    child child = {0};
    int64_t printed = 0;
    int wait_status = 0;
    size_t done = 0;
    bool has_answer = true, has_hung = false;
    report answer = {0};
    char line[256];
    tdm_status status = child_start(s, checks, n, &child, err);
    if (status != TDM_OK) return status;
    while (done < n) {
        has_answer = answer_read(child.fd, child.pid, limit_s, &answer, &has_hung);
        if (!has_answer) break;
        if (answer.printed > printed && s->noise[0] == 0) {
            capture_read(fileno(child.capture), printed, line, sizeof line);
            snprintf(s->noise, sizeof s->noise, "printed during %s: \"%.200s\"", checks[done]->id,
                     line);
        }
        printed = answer.printed;
        answer_print(s, checks[done++], &answer);
        if (answer.verdict == CERTIFY_FAILED) break;
    }
    if (!has_answer && has_hung) kill(child.pid, SIGKILL);
    while (waitpid(child.pid, &wait_status, 0) < 0 && errno == EINTR) continue;
    bool is_cancelled = WIFSIGNALED(wait_status) &&
                        (WTERMSIG(wait_status) == SIGINT || WTERMSIG(wait_status) == SIGTERM);
    if (!has_answer && !is_cancelled) {
        capture_read(fileno(child.capture), printed, line, sizeof line);
        end_describe(wait_status, has_hung, limit_s, line, &answer);
        answer_print(s, checks[done++], &answer);
    }
    close(child.fd);
    fclose(child.capture);
    *n_done_out = done;
    if (!is_cancelled) return TDM_OK;
    /* The process may have been stopped after its last answer. */
    return tdm_fail(err, TDM_CANCELLED, "certify: stopped in %s",
                    checks[done < n ? done : n - 1]->id);
}

static bool check_is_wanted(const suite *s, const certify_check *check) {
    const char *only = s->params->only;
    if (s->params->level >= 0 && check->level > s->params->level) return false;
    return only == NULL || strncmp(check->id, only, strlen(only)) == 0;
}

static void quiet_judge(suite *s) {
    report answer = {.verdict = CERTIFY_PASSED};
    if (!check_is_wanted(s, &quiet_check)) return;
    if (s->result.n_passed + s->result.n_failed == 0)
        return; /* no check ran, so nothing is known about printing */
    if (s->noise[0] != 0) {
        answer.verdict = CERTIFY_FAILED;
        memcpy(answer.message, s->noise, sizeof answer.message);
    }
    answer_print(s, &quiet_check, &answer);
}

static void summary_print(suite *s) {
    bool is_whole = s->params->only == NULL || s->params->only[0] == 0;
    s->result.level = -1;
    for (int level = 0; is_whole && level <= CERTIFY_LEVEL_MAX; level++) {
        if (!s->is_claimed[level] || s->has_failed[level]) break;
        s->result.level = level;
    }
    if (is_whole) {
        fprintf(s->out, "levels claimed:");
        for (int level = 0; level <= CERTIFY_LEVEL_MAX; level++)
            if (s->is_claimed[level])
                fprintf(s->out, " %d%s", level, s->has_failed[level] ? " (failed)" : "");
        if (s->result.level >= 0)
            fprintf(s->out, "; reaches level %d\n", (int)s->result.level);
        else
            fprintf(s->out, "; reaches no level\n");
    }
    fprintf(s->out, "%d passed, %d failed, %d skipped\n", (int)s->result.n_passed,
            (int)s->result.n_failed, (int)s->result.n_skipped);
}

/* Runs the wanted checks of a table: each in a process of its own, or in one while none fails. */
static tdm_status table_run(suite *s, const certify_table *table, bool is_first, tdm_error *err) {
    const certify_check *wanted[MAX_CHECK];
    size_t n = 0;
    tdm_status status = TDM_OK;
    for (size_t i = 0; i < table_size(table); i++) {
        const certify_check *check = table_row(table, i);
        if (check == NULL || !check_is_wanted(s, check)) continue;
        if (n == MAX_CHECK)
            return tdm_fail(err, TDM_INTERNAL, "certify: a table has more than %d checks",
                            MAX_CHECK);
        wanted[n++] = check;
    }
    const bool is_shared = s->params->is_batch && table->shares;
    for (size_t i = 0, done = 0; i < n && status == TDM_OK; i += done) {
        if (!is_first && s->is_unloadable) {
            s->n_not_run += (int32_t)(n - i);
            break;
        }
        status = checks_run(s, &wanted[i], is_shared ? n - i : 1, &done, err);
    }
    return status;
}

tdm_status certify_run(const certify_params *params, FILE *out, certify_result *result_out,
                       tdm_error *err) {
    suite s = {.params = params, .out = out};
    tdm_status status = TDM_OK;
    errno = 0;
    fprintf(out, "certify %s (seed %llu)\n", params->file,
            (unsigned long long)(params->seed != 0 ? params->seed : 1));
    for (size_t t = 0; t < N_TABLE && status == TDM_OK; t++)
        status = table_run(&s, tables[t], t == 0, err);
    if (status != TDM_OK) return status;
    if (s.n_not_run > 0)
        fprintf(out, "skip  %d more checks: the plugin cannot be loaded\n", (int)s.n_not_run);
    s.result.n_skipped += s.n_not_run;
    if (s.result.n_passed + s.result.n_failed + s.result.n_skipped == 0)
        return tdm_fail(err, TDM_NOT_FOUND, "certify: no check's id begins with '%s'; see --list",
                        params->only != NULL ? params->only : "");
    quiet_judge(&s);
    summary_print(&s);
    if (fflush(out) != 0 || ferror(out) != 0)
        return tdm_fail(err, TDM_IO, "certify: cannot write the report: %s",
                        errno != 0 ? strerror(errno) : "the output is closed");
    *result_out = s.result;
    return TDM_OK;
}

tdm_status certify_list(FILE *out, tdm_error *err) {
    errno = 0;
    for (size_t t = 0; t < N_TABLE; t++)
        for (size_t i = 0; i < table_size(tables[t]); i++) {
            const certify_check *check = table_row(tables[t], i);
            if (check != NULL)
                fprintf(out, "%d  %s\n   %s\n", check->level, check->id, check->cites);
        }
    fprintf(out, "%d  %s\n   %s\n", quiet_check.level, quiet_check.id, quiet_check.cites);
    if (fflush(out) != 0 || ferror(out) != 0)
        return tdm_fail(err, TDM_IO, "certify: cannot write the list: %s",
                        errno != 0 ? strerror(errno) : "the output is closed");
    return TDM_OK;
}
