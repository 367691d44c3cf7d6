/* SPDX-License-Identifier: MIT
 *
 * options.c: reads the options of a group and checks whatever can be checked without the members.
 * The runner finds them in a configuration. Their effect is implemented in layout/ and rules/.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/meta/meta.h"

#define KEYS                                                                                       \
    "members, share, split, reduce-type, attention, experts, check, "                              \
    "allow-duplicate, exchange-memory, timeout and reserve"

const char *const meta_attention_words[] = {[META_ATTENTION_HEADS] = "heads",
                                            [META_ATTENTION_REPLICATE] = "replicate",
                                            [META_ATTENTION_SEQUENCE] = "sequence",
                                            [META_ATTENTION_AUTO] = "auto",
                                            NULL};
const char *const meta_experts_words[] = {
    [META_EXPERTS_HIDDEN] = "hidden", [META_EXPERTS_WHOLE] = "whole", NULL};
const char *const meta_exchange_memory_words[] = {[META_EXCHANGE_MEMORY_AUTO] = "auto",
                                                  [META_EXCHANGE_MEMORY_HOST] = "host",
                                                  [META_EXCHANGE_MEMORY_PEER] = "peer",
                                                  NULL};
const char *const meta_reduce_words[] = {"f32", "f16", "bf16", "q8_0", NULL};
static const tdm_type reduce_types[] = {TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_BF16, TDM_TYPE_Q8_0};
const char *const meta_check_words[] = {"off", "replicas", NULL};

/* The next element of the list at *at, without the blanks around it. *at moves behind it, to NULL
 * after the last. An empty list has one empty element. False where *at is NULL. */
static bool piece_next(const char **at, char sep, const char **piece, size_t *len) {
    if (*at == NULL) return false;
    const char *end = strchr(*at, sep);
    const char *p = *at;
    size_t n = end != NULL ? (size_t)(end - p) : strlen(p);
    while (n > 0 && (*p == ' ' || *p == '\t')) p++, n--;
    while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t')) n--;
    *piece = p;
    *len = n;
    *at = end != NULL ? end + 1 : NULL;
    return true;
}

static tdm_status members_read(const char *value, meta_options *o, tdm_error *err) {
    const char *piece;
    size_t len;
    o->n_member = 0;
    while (piece_next(&value, ',', &piece, &len)) {
        if (len == 0)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "members: an empty name; a group lists devices, such as a, b");
        if (o->n_member == TDM_MAX_MEMBERS)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "members: more than %d; make a group of groups", TDM_MAX_MEMBERS);
        char *name = o->names[o->n_member];
        if (len >= sizeof o->names[0])
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "members: the name '%.*s' is longer than %zu bytes",
                            (int)(len < 100 ? len : 100), piece, sizeof o->names[0] - 1);
        memcpy(name, piece, len);
        name[len] = 0;
        for (int32_t i = 0; i < o->n_member; i++)
            if (strcmp(o->names[i], name) == 0)
                return tdm_fail(err, TDM_INVALID_ARGUMENT,
                                "members: '%s' is listed twice; declare the device under a second "
                                "name to have it twice",
                                name);
        o->n_member++;
    }
    return TDM_OK;
}

/* A finite decimal number >= 0, optionally with '+' and an exponent. Other forms that strtod
 * accepts (hex, inf, nan) are refused. */
static bool number_read(const char *piece, size_t len, double *out) {
    char text[64], *end;
    if (len == 0 || len >= sizeof text || strspn(piece, "0123456789.eE+-") < len) return false;
    memcpy(text, piece, len);
    text[len] = 0;
    *out = strtod(text, &end);
    return *end == 0 && isfinite(*out) && *out >= 0 && text[0] != '-';
}

static tdm_status share_read(const char *value, meta_options *o, int32_t *n_share, tdm_error *err) {
    const char *piece, *at = value;
    size_t len;
    double sum = 0;
    *n_share = 0;
    o->is_share_auto = strcmp(value, "auto") == 0;
    if (o->is_share_auto) return TDM_OK;
    while (piece_next(&at, ',', &piece, &len)) {
        double share;
        if (!number_read(piece, len, &share))
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "share = %.200s: '%.*s' is no share; use numbers from 0 on, one for "
                            "each member, or auto",
                            value, (int)(len < 60 ? len : 60), piece);
        if (*n_share == TDM_MAX_MEMBERS)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "share: more than %d numbers; use one for each member",
                            TDM_MAX_MEMBERS);
        o->shares[(*n_share)++] = share;
        sum += share;
    }
    if (sum <= 0 || !isfinite(sum))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "share = %.200s: %s; at least one member needs a share of some size", value,
                        sum <= 0 ? "all are 0" : "the sum is infinite");
    return TDM_OK;
}

static tdm_status reserve_read(const char *value, meta_options *o, int32_t *n_reserve,
                               tdm_error *err) {
    const char *piece, *at = value;
    size_t len;
    *n_reserve = 0;
    while (piece_next(&at, ',', &piece, &len)) {
        char text[32], *end = text;
        bool is_number = len > 0 && len < sizeof text && strspn(piece, "0123456789") >= len;
        errno = 0;
        if (is_number) {
            memcpy(text, piece, len);
            text[len] = 0;
            if (*n_reserve < TDM_MAX_MEMBERS)
                o->reserve[*n_reserve] = strtoull(text, &end, 10);
            else
                return tdm_fail(err, TDM_INVALID_ARGUMENT,
                                "reserve: more than %d numbers; use one, or one for each member",
                                TDM_MAX_MEMBERS);
        }
        if (!is_number || *end != 0 || errno != 0)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "reserve = %.200s: '%.*s' is no number of bytes; use one number for "
                            "all members, or one for each",
                            value, (int)(len < 60 ? len : 60), piece);
        (*n_reserve)++;
    }
    return TDM_OK;
}

/* Finds a word in a list that ends with NULL; *out receives its index. */
static tdm_status word_read(const char *key, const char *value, const char *const *words,
                            int32_t *out, tdm_error *err) {
    char known[128] = "";
    size_t used = 0;
    for (int32_t i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], value) == 0) {
            *out = i;
            return TDM_OK;
        }
        int n = snprintf(known + used, sizeof known - used, "%s%s",
                         i == 0                 ? ""
                         : words[i + 1] == NULL ? " or "
                                                : ", ",
                         words[i]);
        if (n > 0 && (size_t)n < sizeof known - used) used += (size_t)n;
    }
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s = %.200s: unknown; use %s", key, value, known);
}

typedef struct option_counts {
    int32_t n_share, n_reserve;
} option_counts;

static tdm_status option_read(const char *key, const char *value, meta_options *o,
                              option_counts *counts, tdm_error *err) {
    static const char *const splits[] = {"tensor", "layer", NULL};
    static const char *const no_yes[] = {"no", "yes", NULL};
    int32_t word = 0;
    tdm_status status = TDM_OK;
    if (strcmp(key, "members") == 0) return members_read(value, o, err);
    if (strcmp(key, "share") == 0) return share_read(value, o, &counts->n_share, err);
    if (strcmp(key, "reserve") == 0) return reserve_read(value, o, &counts->n_reserve, err);
    if (strcmp(key, "split") == 0) {
        status = word_read(key, value, splits, &word, err);
        o->split = (meta_split)word;
    } else if (strcmp(key, "attention") == 0) {
        status = word_read(key, value, meta_attention_words, &word, err);
        o->attention = (meta_attention)word;
    } else if (strcmp(key, "experts") == 0) {
        status = word_read(key, value, meta_experts_words, &word, err);
        o->experts = (meta_experts)word;
    } else if (strcmp(key, "reduce-type") == 0) {
        status = word_read(key, value, meta_reduce_words, &word, err);
        o->reduce_type = reduce_types[word];
    } else if (strcmp(key, "check") == 0) {
        status = word_read(key, value, meta_check_words, &word, err);
        o->checks_replicas = word == 1;
    } else if (strcmp(key, "allow-duplicate") == 0) {
        status = word_read(key, value, no_yes, &word, err);
        o->allows_duplicate = word == 1;
    } else if (strcmp(key, "exchange-memory") == 0) {
        status = word_read(key, value, meta_exchange_memory_words, &word, err);
        o->exchange_memory = (meta_exchange_memory)word;
    } else if (strcmp(key, "timeout") == 0) {
        if (!number_read(value, strlen(value), &o->timeout) || o->timeout <= 0 ||
            o->timeout > META_MAX_TIMEOUT)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "timeout = %.200s: use seconds, more than 0 and at most %d", value,
                            (int)META_MAX_TIMEOUT);
    } else {
        status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                          "%.100s: not an option of a group; it has " KEYS, key);
    }
    return status;
}

tdm_status meta_options_read(const tdm_option *options, int32_t n_option, meta_options *out,
                             tdm_error *err) {
    option_counts counts = {0};
    memset(out, 0, sizeof *out);
    out->is_share_auto = true;
    out->reduce_type = TDM_TYPE_F32;
    out->timeout = strtod(META_DEFAULT_TIMEOUT, NULL);
    for (int32_t i = 0; i < n_option; i++) {
        const char *value = options[i].value != NULL ? options[i].value : "";
        tdm_status status = option_read(options[i].key, value, out, &counts, err);
        if (status != TDM_OK) return status;
    }
    if (out->n_member == 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "members: missing; a group lists its devices, such as a, b");
    if (!out->is_share_auto && counts.n_share != out->n_member)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "share: %d numbers for %d members; use one for each, or auto",
                        (int)counts.n_share, (int)out->n_member);
    if (counts.n_reserve > 1 && counts.n_reserve != out->n_member)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "reserve: %d numbers for %d members; use one for all, or one for each",
                        (int)counts.n_reserve, (int)out->n_member);
    for (int32_t d = 1; counts.n_reserve == 1 && d < out->n_member; d++)
        out->reserve[d] = out->reserve[0];
    /* With split = layer a member holds the whole cache of its layers, so that no cache is cut. */
    if (out->split == META_SPLIT_LAYER) out->attention = META_ATTENTION_HEADS;
    return TDM_OK;
}
