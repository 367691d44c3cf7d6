/* SPDX-License-Identifier: MIT
 *
 * prefix.c: see prefix.h.
 *
 * Each node but the root has an edge: the ids between its parent and itself. A path begins with the
 * two halves of the scope, as if they were ids; so different scopes share no tokens. Every node but
 * the root has a sequence that ends there, or at least two children, unless memory was short
 * (node_join). Children of a node differ in the first id of their edges. They are a list: there are
 * at most as many as sequences.
 */
#include "server/prefix/prefix.h"

#include <stdlib.h>
#include <string.h>

enum { N_SCOPE = 2 }; /* ids of the scope at the beginning of a path */

typedef struct node {
    int32_t parent; /* -1 = the root */
    int32_t child;  /* the first of its children; -1 = none */
    int32_t next;   /* the next child of its parent; of a free node: the next free one */
    int32_t seq;    /* the first sequence that ends here; -1 = none */
    int32_t n_edge;
    int32_t end;   /* ids from the root to the end of its edge, those of the scope too */
    int32_t *edge; /* [n_edge] at least 1; NULL = the root, or a free node */
} node;

typedef struct holder {
    int32_t node; /* where the sequence ends; -1 = it holds nothing */
    int32_t next; /* the next sequence that ends there */
    bool is_pinned;
    uint64_t used; /* serial number of its last use */
} holder;

struct server_prefix {
    int32_t n_seq, n_node;
    int32_t free_node;   /* the first free one; -1 = none */
    int32_t n_used_node; /* without the root */
    uint64_t clock;      /* serial number of the last use of a sequence */
    node *nodes;     /* [n_node] 0 = the root */
    holder *holders; /* [n_seq] */
};

static tdm_status no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the cache of prefixes");
}

tdm_status server_prefix_create(int32_t n_seq, server_prefix **out, tdm_error *err) {
    *out = NULL;
    server_prefix *t = calloc(1, sizeof *t);
    if (t == NULL) return no_memory(err);
    t->n_seq = n_seq;
    /* Two for each sequence (its end, and a branch to it), the root, and one to spare: node_make
     * splits a node before it takes one for the leaf. */
    t->n_node = 2 * n_seq + 2;
    t->nodes = calloc((size_t)t->n_node, sizeof *t->nodes);
    t->holders = calloc((size_t)n_seq, sizeof *t->holders);
    if (t->nodes == NULL || t->holders == NULL) {
        server_prefix_destroy(t);
        return no_memory(err);
    }
    for (int32_t s = 0; s < n_seq; s++) t->holders[s].node = -1;
    t->nodes[0] = (node){.parent = -1, .child = -1, .next = -1, .seq = -1};
    for (int32_t i = 1; i < t->n_node; i++) t->nodes[i].next = i + 1 < t->n_node ? i + 1 : -1;
    t->free_node = 1;
    *out = t;
    return TDM_OK;
}

void server_prefix_destroy(server_prefix *t) {
    if (t == NULL) return;
    for (int32_t i = 0; t->nodes != NULL && i < t->n_node; i++) free(t->nodes[i].edge);
    free(t->nodes);
    free(t->holders);
    free(t);
}

/* ---- Paths ---- */

/* A path: the scope, then tokens. */
typedef struct path {
    int32_t scope[N_SCOPE];
    const int32_t *tokens;
    int32_t n; /* of both */
} path;

static path path_make(uint64_t scope, const int32_t *tokens, int32_t n_tok) {
    path p = {.tokens = tokens, .n = n_tok + N_SCOPE};
    memcpy(p.scope, &scope, sizeof p.scope);
    return p;
}

static int32_t path_id(const path *p, int32_t at) {
    return at < N_SCOPE ? p->scope[at] : p->tokens[at - N_SCOPE];
}

static int32_t child_find(const server_prefix *t, int32_t parent, int32_t id) {
    int32_t c = t->nodes[parent].child;
    while (c >= 0 && t->nodes[c].edge[0] != id) c = t->nodes[c].next;
    return c;
}

/* Ids that the edge of node c, whose first is at `at` of the path, shares with the path. */
static int32_t edge_common(const server_prefix *t, int32_t c, const path *p, int32_t at) {
    const node *n = &t->nodes[c];
    int32_t k = 0;
    while (k < n->n_edge && at + k < p->n && n->edge[k] == path_id(p, at + k)) k++;
    return k;
}

/* ---- Nodes ---- */

static int32_t node_take(server_prefix *t) {
    const int32_t i = t->free_node;
    if (i < 0) return -1;
    t->free_node = t->nodes[i].next;
    t->nodes[i] = (node){.parent = -1, .child = -1, .next = -1, .seq = -1};
    t->n_used_node++;
    return i;
}

static void node_give(server_prefix *t, int32_t i) {
    free(t->nodes[i].edge);
    t->nodes[i].edge = NULL;
    t->nodes[i].next = t->free_node;
    t->free_node = i;
    t->n_used_node--;
}

/* Replaces child `old` of a parent by `new`; -1 = removes it. */
static void child_replace(server_prefix *t, int32_t parent, int32_t old, int32_t new) {
    int32_t *link = &t->nodes[parent].child;
    while (*link != old) link = &t->nodes[*link].next;
    if (new >= 0) t->nodes[new].next = t->nodes[old].next;
    *link = new >= 0 ? new : t->nodes[old].next;
}

/* Divides the edge of node c behind its first k ids by a new node, which becomes the parent of c.
 * Returns the new node; -1 = no memory. */
static int32_t node_split(server_prefix *t, int32_t c, int32_t k) {
    const int32_t middle = node_take(t);
    if (middle < 0) return -1;
    node *m = &t->nodes[middle], *n = &t->nodes[c];
    m->edge = malloc((size_t)k * sizeof *m->edge);
    if (m->edge == NULL) {
        node_give(t, middle);
        return -1;
    }
    memcpy(m->edge, n->edge, (size_t)k * sizeof *m->edge);
    m->n_edge = k;
    m->parent = n->parent;
    m->end = n->end - n->n_edge + k;
    child_replace(t, n->parent, c, middle);
    m->child = c;
    n->parent = middle;
    n->next = -1;
    n->n_edge -= k;
    memmove(n->edge, n->edge + k, (size_t)n->n_edge * sizeof *n->edge);
    return middle;
}

/* Joins a node with its child where it has only one and no sequence ends at the node. Without
 * memory both stay. */
static void node_join(server_prefix *t, int32_t i) {
    node *n = &t->nodes[i];
    const int32_t c = n->child;
    if (i == 0 || n->seq >= 0 || c < 0 || t->nodes[c].next >= 0) return;
    node *child = &t->nodes[c];
    int32_t *edge = realloc(child->edge, (size_t)(n->n_edge + child->n_edge) * sizeof *edge);
    if (edge == NULL) return;
    memmove(edge + n->n_edge, edge, (size_t)child->n_edge * sizeof *edge);
    memcpy(edge, n->edge, (size_t)n->n_edge * sizeof *edge);
    child->edge = edge;
    child->n_edge += n->n_edge;
    child->parent = n->parent;
    child_replace(t, n->parent, i, c);
    node_give(t, i);
}

/* When nodes run out: joins the nodes that node_join could not join before. */
static void nodes_sweep(server_prefix *t) {
    if (t->n_used_node + 2 < t->n_node) return;
    for (int32_t i = 1; i < t->n_node; i++)
        if (t->nodes[i].edge != NULL) node_join(t, i);
}

/* The node at which a path ends; makes it where there is none. -1 = no memory. */
static int32_t node_make(server_prefix *t, const path *p) {
    int32_t i = 0, at = 0;
    while (at < p->n) {
        const int32_t c = child_find(t, i, path_id(p, at));
        if (c < 0) break;
        const int32_t k = edge_common(t, c, p, at);
        at += k;
        i = k < t->nodes[c].n_edge ? node_split(t, c, k) : c;
        if (i < 0) return -1;
    }
    if (at == p->n) return i;
    const int32_t leaf = node_take(t);
    int32_t *edge = malloc((size_t)(p->n - at) * sizeof *edge);
    if (leaf < 0 || edge == NULL) {
        if (leaf >= 0) node_give(t, leaf);
        free(edge);
        node_join(t, i); /* undoes a split */
        return -1;
    }
    for (int32_t k = at; k < p->n; k++) edge[k - at] = path_id(p, k);
    t->nodes[leaf] = (node){.parent = i,
                            .child = -1,
                            .next = t->nodes[i].child,
                            .seq = -1,
                            .n_edge = p->n - at,
                            .end = p->n,
                            .edge = edge};
    t->nodes[i].child = leaf;
    return leaf;
}

/* ---- Sequences ---- */

tdm_status server_prefix_set(server_prefix *t, int32_t seq, uint64_t scope, const int32_t *tokens,
                             int32_t n_tok, tdm_error *err) {
    holder *h = &t->holders[seq];
    const bool is_pinned = h->is_pinned;
    server_prefix_remove(t, seq);
    h->is_pinned = is_pinned;
    if (n_tok == 0) return TDM_OK;
    const path p = path_make(scope, tokens, n_tok);
    nodes_sweep(t);
    const int32_t i = node_make(t, &p);
    if (i < 0) return no_memory(err);
    h->node = i;
    h->next = t->nodes[i].seq;
    t->nodes[i].seq = seq;
    server_prefix_use(t, seq);
    return TDM_OK;
}

void server_prefix_remove(server_prefix *t, int32_t seq) {
    holder *h = &t->holders[seq];
    int32_t i = h->node;
    h->is_pinned = false;
    if (i < 0) return;
    int32_t *link = &t->nodes[i].seq;
    while (*link != seq) link = &t->holders[*link].next;
    *link = h->next;
    h->node = -1;
    while (i != 0 && t->nodes[i].seq < 0 && t->nodes[i].child < 0) {
        const int32_t parent = t->nodes[i].parent;
        child_replace(t, parent, i, -1);
        node_give(t, i);
        i = parent;
    }
    node_join(t, i);
}

int32_t server_prefix_length(const server_prefix *t, int32_t seq) {
    const int32_t i = t->holders[seq].node;
    return i < 0 ? 0 : t->nodes[i].end - N_SCOPE;
}

/* Calls `found` for the sequences that end at node i, until it returns false; returns whether it
 * never did. */
static bool node_report(const server_prefix *t, int32_t i, int32_t n_common, server_prefix_fn found,
                        void *user) {
    for (int32_t s = t->nodes[i].seq; s >= 0; s = t->holders[s].next)
        if (!found(user, s, n_common)) return false;
    return true;
}

/* The same for all nodes below node i, without its child `but` (-1 = none) and those below it. */
static bool below_report(const server_prefix *t, int32_t i, int32_t but, int32_t n_common,
                         server_prefix_fn found, void *user) {
    int32_t at = t->nodes[i].child;
    if (at == but && at >= 0) at = t->nodes[at].next;
    while (at >= 0) {
        if (!node_report(t, at, n_common, found, user)) return false;
        if (t->nodes[at].child >= 0) {
            at = t->nodes[at].child;
            continue;
        }
        while (at != i && t->nodes[at].next < 0) at = t->nodes[at].parent;
        if (at == i) break;
        at = t->nodes[at].next;
        if (at == but) at = t->nodes[at].next; /* -1 = it is the last child of i: the loop ends */
    }
    return true;
}

void server_prefix_find(const server_prefix *t, uint64_t scope, const int32_t *tokens,
                        int32_t n_tok, server_prefix_fn found, void *user) {
    const path p = path_make(scope, tokens, n_tok);
    int32_t i = 0, at = 0;
    while (at < p.n) {
        const int32_t c = child_find(t, i, path_id(&p, at));
        if (c < 0) break;
        const int32_t k = edge_common(t, c, &p, at);
        at += k;
        i = c;
        if (k < t->nodes[c].n_edge) break;
    }
    /* Sequences at and below node i share the first `at` ids with the path; those that branch off
     * at its parent share the ids to the parent's end, and so on up to the root. */
    for (int32_t but = -1; at > N_SCOPE; but = i, i = t->nodes[i].parent, at = t->nodes[i].end) {
        if (!node_report(t, i, at - N_SCOPE, found, user) ||
            !below_report(t, i, but, at - N_SCOPE, found, user))
            return;
    }
}

/* ---- Age ---- */

void server_prefix_pin(server_prefix *t, int32_t seq, bool is_pinned) {
    t->holders[seq].is_pinned = is_pinned;
}

void server_prefix_use(server_prefix *t, int32_t seq) {
    t->holders[seq].used = ++t->clock;
}

int32_t server_prefix_oldest(const server_prefix *t, int32_t but) {
    int32_t oldest = -1;
    for (int32_t s = 0; s < t->n_seq; s++) {
        const holder *h = &t->holders[s];
        if (h->node < 0 || h->is_pinned || s == but) continue;
        if (oldest < 0 || h->used < t->holders[oldest].used) oldest = s;
    }
    return oldest;
}

int32_t server_prefix_held(const server_prefix *t) {
    int32_t n = 0;
    for (int32_t s = 0; s < t->n_seq; s++) n += t->holders[s].node >= 0 && !t->holders[s].is_pinned;
    return n;
}
