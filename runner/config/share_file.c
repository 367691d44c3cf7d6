/* SPDX-License-Identifier: MIT
 *
 * share_file.c: see share_file.h. config_file.c has read the file before, so its form is right.
 * Lines are read by the same rules as there: blanks at both ends mean nothing, and a value never
 * continues on the next line.
 */
#include "runner/config/share_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runner/output_file.h"

#define BLANKS          " \t\r"
#define BYTE_ORDER_MARK "\xEF\xBB\xBF" /* before the first line; copied, otherwise skipped */

static tdm_status fail(const char *path, const char *what, tdm_error *err) {
    return tdm_fail(err, TDM_IO, "%s: cannot be %s: %s", path, what, strerror(errno));
}

/* Whether a line is the heading of a section; then *is_ours = it is [group `name`]. */
static bool heading_is(const char *line, size_t len, const char *name, bool *is_ours) {
    size_t at = 0;
    while (at < len && strchr(BLANKS, line[at]) != NULL) at++;
    if (at == len || line[at] != '[') return false;
    const char *end = memchr(line + at, ']', len - at);
    char words[128], kind[16] = "", found[64] = "";
    snprintf(words, sizeof words, "%.*s", end != NULL ? (int)(end - line - (long)at - 1) : 0,
             line + at + 1);
    *is_ours = sscanf(words, " %15s %63s", kind, found) == 2 && strcmp(kind, "group") == 0 &&
               strcmp(found, name) == 0;
    return true;
}

/* Whether a line sets `share`, by its name or its alias; inih takes ':' as '='. */
static bool is_share(const char *line, size_t len) {
    static const char *const names[] = {"share", "tensor-split"};
    size_t at = 0;
    while (at < len && strchr(BLANKS, line[at]) != NULL) at++;
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(names[i]), end = at + n;
        if (len - at < n || memcmp(line + at, names[i], n) != 0) continue;
        while (end < len && strchr(BLANKS, line[end]) != NULL) end++;
        if (end < len && (line[end] == '=' || line[end] == ':')) return true;
    }
    return false;
}

static void share_print(FILE *out, const double *shares, size_t n) {
    fputs("share = ", out);
    for (size_t i = 0; i < n; i++) fprintf(out, "%s%.4g", i > 0 ? ", " : "", shares[i]);
}

/* Copies `in` to `out` line by line and sets the share in it; *is_set: whether it was set. It is
 * called twice: the first time, with out NULL, *is_set says whether the section has a share of its
 * own, which is has_share of the second time. */
static tdm_status lines_copy(FILE *in, FILE *out, const char *name, const double *shares, size_t n,
                             bool has_share, bool *is_set) {
    char *line = NULL;
    size_t capacity = 0;
    bool is_inside = false, is_ours = false, is_first = true;
    *is_set = false;
    errno = 0;
    for (ssize_t got; (got = getline(&line, &capacity, in)) > 0;) {
        size_t len = (size_t)got;
        bool has_end = line[len - 1] == '\n';
        if (has_end) len--;
        size_t mark = strlen(BYTE_ORDER_MARK);
        if (!is_first || len < mark || memcmp(line, BYTE_ORDER_MARK, mark) != 0) mark = 0;
        is_first = false;
        bool is_heading = heading_is(line + mark, len - mark, name, &is_ours);
        if (is_heading) is_inside = is_ours;
        bool is_replaced = is_inside && !is_heading && is_share(line, len);
        if (out == NULL) {
            *is_set = *is_set || is_replaced;
            continue;
        }
        if (is_replaced)
            share_print(out, shares, n);
        else
            fwrite(line, 1, len, out);
        bool is_added = is_heading && is_ours && !has_share;
        if (has_end || is_added) fputc('\n', out);
        if (is_added) {
            share_print(out, shares, n);
            fputc('\n', out);
        }
        *is_set = *is_set || is_replaced || is_added;
    }
    int reason = errno;
    free(line);
    errno = reason;
    /* Without memory for a line, getline ends before the end of the file and sets no error in it. */
    return feof(in) == 0 || ferror(in) != 0 || (out != NULL && ferror(out) != 0) ? TDM_IO : TDM_OK;
}

/* Writes the copy with the permissions of the file, then replaces the file by it. */
static tdm_status file_replace(const char *path, FILE *in, const char *name, const double *shares,
                               size_t n, bool has_share, tdm_error *err) {
    runner_output_file out;
    struct stat info;
    bool is_set = false;
    tdm_status status = runner_output_open(&out, path, err);
    if (status != TDM_OK) return status;
    status = lines_copy(in, out.stream, name, shares, n, has_share, &is_set);
    if (status == TDM_OK && fstat(fileno(in), &info) == 0 &&
        fchmod(fileno(out.stream), info.st_mode) != 0)
        status = TDM_IO;
    if (status != TDM_OK)
        runner_output_fail(&out, err);
    else if (!is_set)
        status = tdm_fail(err, TDM_NOT_FOUND, "%s: has no section [group %s]", path, name);
    return runner_output_close(&out, status, err);
}

tdm_status runner_share_file_write(const char *path, const char *name, const double *shares,
                                   size_t n, tdm_error *err) {
    char *real = realpath(path, NULL);
    if (real == NULL) return fail(path, "found", err);
    FILE *in = fopen(real, "rb");
    bool has_share = false;
    tdm_status status = TDM_OK;
    if (in == NULL || lines_copy(in, NULL, name, shares, n, false, &has_share) != TDM_OK)
        status = fail(real, "read", err);
    if (status == TDM_OK) {
        rewind(in);
        status = file_replace(real, in, name, shares, n, has_share, err);
    }
    if (in != NULL) fclose(in);
    free(real);
    return status;
}
