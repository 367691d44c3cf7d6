/* SPDX-License-Identifier: MIT
 *
 * program.c: see program.h.
 */
#include "server/grammar/program.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "server/grammar/array.h"

#define NODE_MAX (1 << 24)

/* ---- Building ---- */

static uint64_t name_hash(const char *name, size_t len) {
    return tdm_hash_add(TDM_HASH_BEGIN, name, len);
}

static bool names_grow(grammar_program *p) {
    const int32_t capacity = p->name_capacity < 64 ? 64 : 2 * p->name_capacity;
    int32_t *names = malloc((size_t)capacity * sizeof *names);
    if (names == NULL) return false;
    for (int32_t i = 0; i < capacity; i++) names[i] = -1;
    for (int32_t r = 0; r < p->n_rule; r++) {
        const uint64_t hash = name_hash(p->rules[r].name, strlen(p->rules[r].name));
        int32_t at = (int32_t)(hash & (uint64_t)(capacity - 1));
        while (names[at] >= 0) at = (at + 1) & (capacity - 1);
        names[at] = r;
    }
    free(p->names);
    p->names = names;
    p->name_capacity = capacity;
    return true;
}

int32_t grammar_program_rule(grammar_program *p, const char *name, size_t len, int32_t line) {
    if (2 * (p->n_rule + 1) > p->name_capacity && !names_grow(p)) return -1;
    int32_t at = (int32_t)(name_hash(name, len) & (uint64_t)(p->name_capacity - 1));
    for (; p->names[at] >= 0; at = (at + 1) & (p->name_capacity - 1)) {
        const char *other = p->rules[p->names[at]].name;
        if (strncmp(other, name, len) == 0 && other[len] == '\0') return p->names[at];
    }
    if (!grammar_reserve((void **)&p->rules, &p->rule_capacity, (int64_t)p->n_rule + 1,
                         sizeof *p->rules))
        return -1;
    char *copy = strndup(name, len);
    if (copy == NULL) return -1;
    p->rules[p->n_rule] = (grammar_rule){.name = copy, .entry = -1, .line = line};
    p->names[at] = p->n_rule;
    return p->n_rule++;
}

int32_t grammar_program_node(grammar_program *p, grammar_node node) {
    if (p->n_node >= NODE_MAX || !grammar_reserve((void **)&p->nodes, &p->node_capacity,
                                                  (int64_t)p->n_node + 1, sizeof *p->nodes))
        return -1;
    p->nodes[p->n_node] = node;
    return p->n_node++;
}

int32_t grammar_program_targets(grammar_program *p, int32_t n) {
    if (!grammar_reserve((void **)&p->targets, &p->target_capacity, (int64_t)p->n_target + n,
                         sizeof *p->targets))
        return -1;
    p->n_target += n;
    return p->n_target - n;
}

int32_t grammar_program_bytes(grammar_program *p, const char *bytes, size_t n) {
    if (n > INT32_MAX || !grammar_reserve((void **)&p->bytes, &p->byte_capacity,
                                          (int64_t)p->n_byte + (int64_t)n, sizeof *p->bytes))
        return -1;
    if (n > 0) memcpy(p->bytes + p->n_byte, bytes, n);
    p->n_byte += (int32_t)n;
    return p->n_byte - (int32_t)n;
}

void grammar_program_free(grammar_program *p) {
    for (int32_t r = 0; r < p->n_rule; r++) free(p->rules[r].name);
    free(p->nodes);
    free(p->targets);
    free(p->bytes);
    free(p->rules);
    free(p->names);
    grammar_classes_free(&p->classes);
    *p = (grammar_program){0};
}

/* ---- Checking ---- */

static bool entry_is_nullable(const grammar_program *p, int32_t rule) {
    return p->nodes[p->rules[rule].entry].is_nullable;
}

/* Whether END can be reached from a node, by what is known so far: (is_free) without taking text,
 * or in any way. Of the targets of a SPLIT only `to` is read, the one that has just become known:
 * there may be very many, and this is called for each that does. */
static bool reaches_end(const grammar_program *p, const grammar_node *node, int32_t to,
                        bool is_free) {
#define REACHES(i) (is_free ? p->nodes[i].is_nullable : p->nodes[i].is_finite)
    switch ((grammar_op)node->op) {
    case GRAMMAR_END: return true;
    case GRAMMAR_LITERAL:
    case GRAMMAR_CLASS:
    case GRAMMAR_TOKEN: return !is_free && p->nodes[node->next].is_finite;
    case GRAMMAR_CALL: return REACHES(p->rules[node->first].entry) && REACHES(node->next);
    case GRAMMAR_LOOP: return (node->n_min == 0 || REACHES(node->first)) && REACHES(node->next);
    case GRAMMAR_SPLIT: return REACHES(to);
    }
#undef REACHES
    return false;
}

/* The edges of the program backwards: when END is known to be reachable from a node, only the nodes
 * that lead to it are read again. */
typedef struct ends_search {
    grammar_program *program;
    int32_t *first; /* [n_node + 1] from[first[i] .. first[i + 1]) are the nodes that lead to node
                       i */
    int32_t *from;  /* [n_edge] by the node that they lead to */
    int32_t *work;  /* [2 * n_node] nodes of which something new is known */
    int32_t n_work;
} ends_search;

/* Notes an edge from node `at` to node `to`. The first pass (`from` is NULL) counts the edges of
 * each `to`; the second one enters `at`. */
static void edge_note(ends_search *s, int32_t to, int32_t at) {
    if (s->from == NULL)
        s->first[to]++;
    else
        s->from[--s->first[to]] = at;
}

static void edges_note(ends_search *s) {
    const grammar_program *p = s->program;
    for (int32_t at = 0; at < p->n_node; at++) {
        const grammar_node *node = &p->nodes[at];
        if (node->op == GRAMMAR_CALL) edge_note(s, p->rules[node->first].entry, at);
        if (node->op == GRAMMAR_LOOP) edge_note(s, node->first, at);
        for (int32_t i = 0; node->op == GRAMMAR_SPLIT && i < node->n; i++)
            edge_note(s, p->targets[node->first + i], at);
        if (node->op != GRAMMAR_SPLIT && node->op != GRAMMAR_END) edge_note(s, node->next, at);
    }
}

/* Updates what is known of node `at`, after something became known of `to`, a node that it leads
 * to. For an END `to` is itself. */
static void end_note(ends_search *s, int32_t at, int32_t to) {
    grammar_node *node = &s->program->nodes[at];
    const bool is_nullable = node->is_nullable || reaches_end(s->program, node, to, true);
    const bool is_finite = node->is_finite || reaches_end(s->program, node, to, false);
    if (is_nullable == node->is_nullable && is_finite == node->is_finite) return;
    node->is_nullable = is_nullable;
    node->is_finite = is_finite;
    s->work[s->n_work++] = at; /* at most twice for a node: once for each of the two flags */
}

/* Fills is_nullable and is_finite, from the END nodes backwards. Each edge is followed at most
 * twice. False without memory. */
static bool ends_find(grammar_program *p) {
    ends_search s = {.program = p};
    const size_t n_node = (size_t)p->n_node;
    bool is_complete = false;
    s.first = calloc(n_node + 1, sizeof *s.first);
    s.work = malloc((2 * n_node + 1) * sizeof *s.work);
    if (s.first != NULL && s.work != NULL) {
        edges_note(&s);
        for (size_t i = 1; i <= n_node; i++) s.first[i] += s.first[i - 1];
        s.from = malloc(((size_t)s.first[n_node] + 1) * sizeof *s.from);
        is_complete = s.from != NULL;
    }
    if (is_complete) {
        edges_note(&s); /* first[i] is now the beginning of what leads to i */
        for (int32_t i = 0; i < p->n_node; i++)
            if (p->nodes[i].op == GRAMMAR_END) end_note(&s, i, i);
        while (s.n_work > 0) {
            const int32_t at = s.work[--s.n_work];
            for (int32_t k = s.first[at]; k < s.first[at + 1]; k++) end_note(&s, s.from[k], at);
        }
        for (int32_t i = 0; i < p->n_node; i++)
            if (p->nodes[i].op == GRAMMAR_LOOP && p->nodes[p->nodes[i].first].is_nullable)
                p->nodes[i].n_min = 0;
    }
    free(s.first);
    free(s.from);
    free(s.work);
    return is_complete;
}

/* A search for rules that begin with themselves, depth first over nodes. */
typedef struct left_search {
    const grammar_program *program;
    uint8_t *color; /* [n_rule] 0 = new, 1 = on the path, 2 = done */
    uint8_t *seen;  /* [n_node] */
    int32_t *path;  /* [n_path] rules, each of which begins with the next one */
    int32_t *work;  /* [n_work] a stack of nodes to visit; ~rule = the rule is done; ~rule - n_rule
                       = the rule begins */
    int32_t n_path, n_work;
} left_search;

static void left_push(left_search *s, int32_t node) {
    if (s->seen[node]) return;
    s->seen[node] = 1;
    s->work[s->n_work++] = node;
}

/* Visits what `rule` begins with. Returns a rule that begins with itself: the path from it to the
 * end of `path` is the cycle. -1 = none. */
static int32_t left_visit(left_search *s, int32_t rule) {
    const grammar_program *p = s->program;
    s->n_work = 0;
    s->work[s->n_work++] = ~rule - p->n_rule;
    while (s->n_work > 0) {
        int32_t at = s->work[--s->n_work];
        if (at < -p->n_rule) { /* a rule begins */
            const int32_t r = ~(at + p->n_rule);
            if (s->color[r] == 1) return r;
            if (s->color[r] == 2) continue;
            s->color[r] = 1;
            s->path[s->n_path++] = r;
            s->work[s->n_work++] = ~r;
            left_push(s, p->rules[r].entry);
            continue;
        }
        if (at < 0) { /* a rule is done */
            s->color[~at] = 2;
            s->n_path--;
            continue;
        }
        const grammar_node *node = &p->nodes[at];
        switch ((grammar_op)node->op) {
        case GRAMMAR_CALL:
            if (entry_is_nullable(p, node->first)) left_push(s, node->next);
            s->work[s->n_work++] = ~node->first - p->n_rule;
            break;
        case GRAMMAR_LOOP:
            if (node->n_min == 0) left_push(s, node->next);
            left_push(s, node->first);
            break;
        case GRAMMAR_SPLIT:
            for (int32_t i = 0; i < node->n; i++) left_push(s, p->targets[node->first + i]);
            break;
        case GRAMMAR_END:
        case GRAMMAR_LITERAL:
        case GRAMMAR_CLASS:
        case GRAMMAR_TOKEN: break;
        }
    }
    return -1;
}

static tdm_status left_fail(const left_search *s, int32_t rule, tdm_error *err) {
    const grammar_program *p = s->program;
    char cycle[256];
    size_t n = 0;
    int32_t at = s->n_path - 1;
    while (at > 0 && s->path[at] != rule) at--;
    for (; at < s->n_path && n < sizeof cycle - 1; at++)
        n += (size_t)snprintf(cycle + n, sizeof cycle - n, "%s -> ", p->rules[s->path[at]].name);
    return tdm_fail(err, TDM_INVALID_ARGUMENT,
                    "grammar, line %d: rule '%s' begins with itself (%s%s), which would never end; "
                    "write it with a repetition, as in: %s ::= first (operator next)*",
                    p->rules[rule].line, p->rules[rule].name, n < sizeof cycle ? cycle : "",
                    p->rules[rule].name, p->rules[rule].name);
}

static tdm_status left_check(const grammar_program *p, tdm_error *err) {
    left_search s = {.program = p};
    const size_t n_rule = (size_t)p->n_rule, n_node = (size_t)p->n_node;
    tdm_status status = TDM_OK;
    s.color = calloc(n_rule, 1);
    s.seen = calloc(n_node, 1);
    s.path = malloc(n_rule * sizeof *s.path);
    s.work = malloc((2 * n_node + 2 * n_rule + 2) * sizeof *s.work);
    if (s.color == NULL || s.seen == NULL || s.path == NULL || s.work == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "grammar: no memory");
    for (int32_t r = 0; r < p->n_rule && status == TDM_OK; r++) {
        const int32_t found = left_visit(&s, r);
        if (found >= 0) status = left_fail(&s, found, err);
    }
    free(s.color);
    free(s.seen);
    free(s.path);
    free(s.work);
    return status;
}

tdm_status grammar_program_finish(grammar_program *p, tdm_error *err) {
    for (int32_t r = 0; r < p->n_rule; r++)
        if (p->rules[r].entry < 0)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "grammar, line %d: rule '%s' is used and not defined; add '%s ::= ...'",
                            p->rules[r].line, p->rules[r].name, p->rules[r].name);
    p->root = -1;
    for (int32_t r = 0; r < p->n_rule; r++)
        if (strcmp(p->rules[r].name, "root") == 0) p->root = r;
    if (p->root < 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "grammar: there is no rule 'root', which says what the whole text is; add "
                        "'root ::= ...'");
    if (!ends_find(p)) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "grammar: no memory");
    if (!p->nodes[p->rules[p->root].entry].is_finite)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "grammar, line %d: no text of rule 'root' has an end, because its rules "
                        "always need each other; give one of them an alternative without that",
                        p->rules[p->root].line);
    return left_check(p, err);
}
