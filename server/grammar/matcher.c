/* SPDX-License-Identifier: MIT
 *
 * matcher.c: see matcher.h.
 *
 * A step moves each place over the byte, and then visits all nodes that can be reached without
 * taking more text. Two rules keep the sets small:
 *  - A call at the end of a rule pushes no frame, so right recursion needs no stack.
 *  - Places that differ only in the count of the innermost repetition: once all counts have reached
 *    the repetition's minimum, only the place with the lowest count is kept. It allows whatever the
 *    others allow.
 */
#include "server/grammar/matcher.h"

#include <stdlib.h>
#include <string.h>

#include "server/grammar/array.h"
#include "server/grammar/token_trie.h"

#define PLACE_MAX   1024      /* places of a state: with more, the step fails */
#define WORK_MAX    (1 << 15) /* nodes visited in one step */
#define EFFORT_MAX  (1 << 24) /* places and nodes visited in one call: less than a second */
#define SET_MAX     (1 << 21) /* states at a time, also while one mask is computed */
#define ROW_MAX     (1 << 26) /* steps of all states: 256 MiB */
#define FRAME_MAX   (1 << 24)
/* Above these, grammar_matcher_is_large. */
#define SET_LARGE   (1 << 15)
#define FRAME_LARGE (1 << 18)
#define PLACE_LARGE (1 << 20)

/* ---- Tables ---- */

static uint32_t hash_of(uint32_t seed, int32_t value) {
    uint32_t h = (seed ^ (uint32_t)value) * 0x9E3779B1u;
    return h ^ h >> 15;
}

static uint32_t frame_hash(const grammar_frame *f) {
    return hash_of(hash_of(hash_of(1, f->node), f->count), f->parent);
}

static uint32_t places_hash(const grammar_place *places, int32_t n, bool can_end) {
    uint32_t h = can_end ? 7 : 3;
    for (int32_t i = 0; i < n; i++)
        h = hash_of(hash_of(hash_of(h, places[i].node), places[i].at), places[i].frame);
    return h;
}

static uint32_t set_hash(const grammar_matcher *m, int32_t set) {
    const grammar_set *s = &m->sets[set];
    return places_hash(m->places + s->first, s->n, s->can_end);
}

/* Makes room for one more number in the table of states (has_sets) or of frames. */
static bool table_reserve(const grammar_matcher *m, grammar_table *t, bool has_sets) {
    if (2 * (t->n + 1) <= t->capacity) return true;
    const int32_t capacity = t->capacity < 256 ? 256 : 2 * t->capacity;
    int32_t *slots = calloc((size_t)capacity, sizeof *slots);
    if (slots == NULL) return false;
    for (int32_t i = 0; i < t->capacity; i++) {
        if (t->slots[i] == 0) continue;
        const uint32_t h =
            has_sets ? set_hash(m, t->slots[i]) : frame_hash(&m->frames[t->slots[i]]);
        uint32_t at = h & (uint32_t)(capacity - 1);
        while (slots[at] != 0) at = (at + 1) & (uint32_t)(capacity - 1);
        slots[at] = t->slots[i];
    }
    free(t->slots);
    t->slots = slots;
    t->capacity = capacity;
    return true;
}

/* The number of a frame, which is added where there is no equal one; -1 without memory. */
static int32_t frame_intern(grammar_matcher *m, grammar_frame frame) {
    if (m->n_frame >= FRAME_MAX || !table_reserve(m, &m->frame_table, false) ||
        !grammar_reserve((void **)&m->frames, &m->frame_capacity, (int64_t)m->n_frame + 1,
                         sizeof *m->frames))
        return -1;
    grammar_table *t = &m->frame_table;
    uint32_t at = frame_hash(&frame) & (uint32_t)(t->capacity - 1);
    for (; t->slots[at] != 0; at = (at + 1) & (uint32_t)(t->capacity - 1)) {
        const grammar_frame *f = &m->frames[t->slots[at]];
        if (f->node == frame.node && f->count == frame.count && f->parent == frame.parent)
            return t->slots[at];
    }
    m->frames[m->n_frame] = frame;
    t->slots[at] = m->n_frame;
    t->n++;
    return m->n_frame++;
}

/* Adds a state, without a search for an equal one; GRAMMAR_FAILED without memory or with too
 * many. */
static int32_t set_add(grammar_matcher *m, const grammar_place *places, int32_t n, bool can_end) {
    if (m->n_set >= SET_MAX || (m->n_set + 1) > ROW_MAX / m->n_class ||
        !grammar_reserve((void **)&m->sets, &m->set_capacity, (int64_t)m->n_set + 1,
                         sizeof *m->sets) ||
        !grammar_reserve((void **)&m->rows, &m->row_capacity, ((int64_t)m->n_set + 1) * m->n_class,
                         sizeof *m->rows) ||
        !grammar_reserve((void **)&m->places, &m->place_capacity, (int64_t)m->n_place + n,
                         sizeof *m->places))
        return GRAMMAR_FAILED;
    m->sets[m->n_set] =
        (grammar_set){.first = m->n_place, .n = n, .can_end = can_end, .plain = GRAMMAR_UNKNOWN};
    if (n > 0) memcpy(m->places + m->n_place, places, (size_t)n * sizeof *places);
    m->n_place += n;
    int32_t *row = m->rows + (size_t)m->n_set * (size_t)m->n_class;
    for (int32_t c = 0; c < m->n_class; c++) row[c] = n > 0 ? GRAMMAR_UNKNOWN : GRAMMAR_DEAD;
    return m->n_set++;
}

static int place_order(const void *a, const void *b) {
    const grammar_place *x = a, *y = b;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->frame < y->frame ? -1 : x->frame > y->frame;
}

/* The state of the found places, which is added where there is no equal one; or GRAMMAR_FAILED. */
static int32_t found_intern(grammar_matcher *m) {
    if (m->is_failed) return GRAMMAR_FAILED;
    if (m->n_found == 0 && !m->can_end) return GRAMMAR_DEAD;
    if (m->n_found > 1) qsort(m->found, (size_t)m->n_found, sizeof *m->found, place_order);
    if (!table_reserve(m, &m->set_table, true)) return GRAMMAR_FAILED;
    grammar_table *t = &m->set_table;
    const uint32_t mask = (uint32_t)(t->capacity - 1);
    const size_t size = (size_t)m->n_found * sizeof *m->found;
    uint32_t at = places_hash(m->found, m->n_found, m->can_end) & mask;
    for (; t->slots[at] != 0; at = (at + 1) & mask) {
        const grammar_set *s = &m->sets[t->slots[at]];
        if (s->n == m->n_found && s->can_end == m->can_end &&
            (size == 0 || memcmp(m->places + s->first, m->found, size) == 0))
            return t->slots[at];
    }
    const int32_t set = set_add(m, m->found, m->n_found, m->can_end);
    if (set < 0) return set;
    t->slots[at] = set;
    t->n++;
    return set;
}

/* ---- Visiting nodes ---- */

/* Begins a step. */
static void visits_begin(grammar_matcher *m) {
    m->n_found = m->n_work = m->n_pushed = m->n_visit = 0;
    m->can_end = false;
    m->is_failed = m->effort > EFFORT_MAX;
    if (++m->step == 0) {
        for (int32_t i = 0; i < m->visit_capacity; i++) m->visits[i].step = 0;
        m->step = 1;
    }
}

static bool visits_grow(grammar_matcher *m) {
    const int32_t capacity = m->visit_capacity < 128 ? 128 : 2 * m->visit_capacity;
    grammar_visit *visits = calloc((size_t)capacity, sizeof *visits);
    if (visits == NULL) return false;
    for (int32_t i = 0; i < m->visit_capacity; i++) {
        const grammar_visit *v = &m->visits[i];
        if (v->step != m->step) continue;
        uint32_t at = hash_of(hash_of(hash_of(5, v->a), v->b), v->c) & (uint32_t)(capacity - 1);
        while (visits[at].step == m->step) at = (at + 1) & (uint32_t)(capacity - 1);
        visits[at] = *v;
    }
    free(m->visits);
    m->visits = visits;
    m->visit_capacity = capacity;
    return true;
}

/* Where the value of a key of this step is kept, until the next call; that of a new key is -1. NULL
 * without memory, which fails the step. */
static int32_t *visit(grammar_matcher *m, int32_t a, int32_t b, int32_t c) {
    if (2 * (m->n_visit + 1) > m->visit_capacity && !visits_grow(m)) {
        m->is_failed = true;
        return NULL;
    }
    const uint32_t mask = (uint32_t)(m->visit_capacity - 1);
    uint32_t at = hash_of(hash_of(hash_of(5, a), b), c) & mask;
    for (; m->visits[at].step == m->step; at = (at + 1) & mask)
        if (m->visits[at].a == a && m->visits[at].b == b && m->visits[at].c == c)
            return &m->visits[at].value;
    m->visits[at] = (grammar_visit){a, b, c, -1, m->step};
    m->n_visit++;
    return &m->visits[at].value;
}

/* First numbers of keys. Keys of different kinds must differ: nodes, which are >= 0, are the first
 * numbers of some; negative numbers are used for the others. */
enum { KEY_LOOP = -1, KEY_COUNTED = -2 };

/* Adds a place, unless there is one that allows at least as much; replaces one that allows less. */
static void place_add(grammar_matcher *m, int32_t node, int32_t at, int32_t frame) {
    const grammar_frame *f = &m->frames[frame];
    const grammar_node *loop = frame > 0 && f->count >= 0 ? &m->program->nodes[f->node] : NULL;
    const bool is_counted = loop != NULL && loop->n_max >= 0 && f->count + 1 >= loop->n_min;
    int32_t *seen;
    if (is_counted) {
        /* The key has four numbers: node, at, the loop's node and the parent. The last two get a
         * number of their own, so that three are left. */
        int32_t *pair = visit(m, KEY_COUNTED, f->node, f->parent);
        if (pair == NULL) return;
        if (*pair < 0) *pair = m->n_visit;
        const int32_t number = *pair;
        seen = visit(m, ~number - 2, node, at);
    } else {
        seen = visit(m, node, at, frame);
    }
    if (seen == NULL) return;
    if (*seen >= 0) {
        if (is_counted && m->frames[m->found[*seen].frame].count > f->count)
            m->found[*seen].frame = frame;
        return;
    }
    if (m->n_found >= PLACE_MAX || !grammar_reserve((void **)&m->found, &m->found_capacity,
                                                    (int64_t)m->n_found + 1, sizeof *m->found)) {
        m->is_failed = true;
        return;
    }
    *seen = m->n_found;
    m->found[m->n_found++] = (grammar_place){node, at, frame};
}

static void node_push(grammar_matcher *m, int32_t node, int32_t frame) {
    if (++m->n_pushed > WORK_MAX || !grammar_reserve((void **)&m->work, &m->work_capacity,
                                                     (int64_t)m->n_work + 1, sizeof *m->work)) {
        m->is_failed = true;
        return;
    }
    m->work[m->n_work++] = (grammar_place){node, 0, frame};
}

static int32_t frame_push(grammar_matcher *m, int32_t node, int32_t count, int32_t parent) {
    const int32_t frame = frame_intern(m, (grammar_frame){node, count, parent});
    if (frame < 0) m->is_failed = true;
    return frame;
}

/* Visits a LOOP of which `count` repetitions are complete: what follows it, and its body again. */
static void loop_enter(grammar_matcher *m, int32_t at, int32_t count, int32_t parent) {
    const grammar_node *loop = &m->program->nodes[at];
    if (loop->n_max < 0 && count > loop->n_min) count = loop->n_min;
    if (count >= loop->n_min) {
        /* Not again with the same or a higher count, which allows no more. This also ends the
         * recursion where the body may be empty. */
        int32_t *lowest = visit(m, KEY_LOOP, at, parent);
        if (lowest == NULL || (*lowest >= 0 && *lowest <= count)) return;
        *lowest = count;
        node_push(m, loop->next, parent);
    }
    if (loop->n_max >= 0 && count >= loop->n_max) return;
    const int32_t frame = frame_push(m, at, count, parent);
    if (frame >= 0) node_push(m, loop->first, frame);
}

static void node_visit(grammar_matcher *m, int32_t at, int32_t frame) {
    const grammar_program *p = m->program;
    const grammar_node *node = &p->nodes[at];
    switch ((grammar_op)node->op) {
    case GRAMMAR_LITERAL:
    case GRAMMAR_CLASS:
    case GRAMMAR_TOKEN: place_add(m, at, 0, frame); return;
    case GRAMMAR_LOOP: loop_enter(m, at, 0, frame); return;
    case GRAMMAR_END: {
        if (frame == 0) {
            m->can_end = true;
            return;
        }
        const grammar_frame f = m->frames[frame];
        if (f.count >= 0)
            loop_enter(m, f.node, f.count + 1, f.parent);
        else
            node_push(m, f.node, f.parent);
        return;
    }
    case GRAMMAR_CALL: {
        const bool is_last = p->nodes[node->next].op == GRAMMAR_END;
        const int32_t inner = is_last ? frame : frame_push(m, node->next, -1, frame);
        if (inner >= 0) node_push(m, p->rules[node->first].entry, inner);
        return;
    }
    case GRAMMAR_SPLIT: {
        int32_t *seen = visit(m, at, -1, frame);
        if (seen == NULL || *seen >= 0) return;
        *seen = 0;
        for (int32_t i = node->n; i-- > 0;) node_push(m, p->targets[node->first + i], frame);
        return;
    }
    }
}

/* Visits all nodes that can be reached from the pushed ones without taking text. */
static void work_do(grammar_matcher *m) {
    while (m->n_work > 0 && !m->is_failed) {
        const grammar_place next = m->work[--m->n_work];
        node_visit(m, next.node, next.frame);
    }
    m->effort += m->n_pushed + m->n_found;
}

/* The same, and returns the state of the found places, or GRAMMAR_FAILED. */
static int32_t found_close(grammar_matcher *m) {
    work_do(m);
    return found_intern(m);
}

/* ---- Steps ---- */

int32_t grammar_matcher_compute(grammar_matcher *m, int32_t state, uint8_t byte) {
    const grammar_program *p = m->program;
    const int32_t first = m->sets[state].first, n = m->sets[state].n;
    visits_begin(m);
    m->effort += n;
    for (int32_t i = 0; i < n; i++) {
        const grammar_place place = m->places[first + i];
        const grammar_node *node = &p->nodes[place.node];
        int32_t at = GRAMMAR_BYTE_BAD;
        if (node->op == GRAMMAR_LITERAL && (uint8_t)p->bytes[node->first + place.at] == byte)
            at = place.at + 1 < node->n ? place.at + 1 : GRAMMAR_BYTE_LAST;
        if (node->op == GRAMMAR_CLASS)
            at = grammar_class_step(&p->classes, node->first, place.at, byte);
        if (at == GRAMMAR_BYTE_LAST)
            node_push(m, node->next, place.frame);
        else if (at != GRAMMAR_BYTE_BAD)
            place_add(m, place.node, at, place.frame);
    }
    const int32_t next = found_close(m);
    if (next >= 0) m->rows[(size_t)state * (size_t)m->n_class + m->byte_class[byte]] = next;
    return next;
}

int32_t grammar_matcher_token(grammar_matcher *m, int32_t state, int32_t token, bool by_name) {
    const int32_t first = m->sets[state].first, n = m->sets[state].n;
    visits_begin(m);
    for (int32_t i = 0; i < n; i++) {
        const grammar_place place = m->places[first + i];
        const grammar_node *node = &m->program->nodes[place.node];
        if (node->op == GRAMMAR_TOKEN && (node->first == token) != node->is_negated &&
            !(by_name && node->is_negated))
            node_push(m, node->next, place.frame);
    }
    return found_close(m);
}

int32_t grammar_matcher_join(grammar_matcher *m, int32_t a, int32_t b) {
    if (a == GRAMMAR_DEAD || a == b || b < 0) return b;
    if (b == GRAMMAR_DEAD || a < 0) return a;
    visits_begin(m);
    const int32_t both[2] = {a, b};
    for (int k = 0; k < 2; k++) {
        const int32_t first = m->sets[both[k]].first, n = m->sets[both[k]].n;
        m->can_end = m->can_end || m->sets[both[k]].can_end;
        for (int32_t i = 0; i < n; i++) {
            const grammar_place place = m->places[first + i];
            place_add(m, place.node, place.at, place.frame);
        }
    }
    return found_close(m);
}

/* Which plain code points a place takes: none, any one, or some. */
typedef enum plain_kind { PLAIN_NONE, PLAIN_ALL, PLAIN_SOME } plain_kind;

static plain_kind place_plain(const grammar_program *p, const grammar_place *place) {
    const grammar_node *node = &p->nodes[place->node];
    if (node->op == GRAMMAR_TOKEN) return PLAIN_NONE;
    if (node->op == GRAMMAR_LITERAL) {
        const uint8_t byte = (uint8_t)p->bytes[node->first + place->at];
        return grammar_is_plain(byte) ? PLAIN_SOME : PLAIN_NONE;
    }
    const grammar_class *c = &p->classes.classes[node->first];
    if (place->at != 0) return PLAIN_SOME;
    return c->has_plain ? PLAIN_ALL : c->no_plain ? PLAIN_NONE : PLAIN_SOME;
}

int32_t grammar_matcher_plain(grammar_matcher *m, int32_t state, bool *is_mixed_out) {
    const int32_t first = m->sets[state].first, n = m->sets[state].n;
    if (m->sets[state].plain == GRAMMAR_UNKNOWN) {
        bool is_mixed = false;
        visits_begin(m);
        for (int32_t i = 0; i < n; i++) {
            const grammar_place place = m->places[first + i];
            const plain_kind kind = place_plain(m->program, &place);
            is_mixed = is_mixed || kind == PLAIN_SOME;
            if (kind == PLAIN_ALL) node_push(m, m->program->nodes[place.node].next, place.frame);
        }
        const int32_t plain = is_mixed ? GRAMMAR_DEAD : found_close(m);
        if (plain < 0) return plain;
        m->sets[state].plain = plain;
        m->sets[state].is_mixed = is_mixed;
    }
    *is_mixed_out = m->sets[state].is_mixed;
    return m->sets[state].plain;
}

/* ---- Beginning and end ---- */

/* Splits classes of bytes, so that all bytes of a class have the same value in `next`. */
static void classes_split(grammar_matcher *m, const int32_t next[256]) {
    /* The new class i has the bytes of the old class old[i] whose value is value[i]. */
    int32_t value[256];
    uint8_t old[256], number[256];
    int32_t n = 0;
    for (int b = 0; b < 256; b++) {
        int32_t i = 0;
        while (i < n && (old[i] != m->byte_class[b] || value[i] != next[b])) i++;
        if (i == n) {
            old[n] = m->byte_class[b];
            value[n] = next[b];
            n++;
        }
        number[b] = (uint8_t)i;
    }
    memcpy(m->byte_class, number, sizeof number);
    m->n_class = n;
}

static void classes_find(grammar_matcher *m) {
    const grammar_program *p = m->program;
    int32_t next[256] = {0};
    m->n_class = 1;
    for (int32_t i = 0; i < p->n_byte; i++) next[(uint8_t)p->bytes[i]] = 1 + (uint8_t)p->bytes[i];
    classes_split(m, next);
    for (int32_t i = 0; i < p->classes.n && m->n_class < 256; i++)
        classes_split(m, p->classes.classes[i].lead);
    for (int32_t i = 1; i < p->classes.n_state && m->n_class < 256; i++) {
        for (int b = 0; b < 256; b++) next[b] = GRAMMAR_BYTE_BAD;
        memcpy(next + 0x80, p->classes.states[i].next, sizeof p->classes.states[i].next);
        classes_split(m, next);
    }
    for (int b = 256; b-- > 0;) m->class_byte[m->byte_class[b]] = (uint8_t)b;
}

/* Adds the states GRAMMAR_DEAD and GRAMMAR_OVER and frame 0. */
static bool tables_begin(grammar_matcher *m) {
    if (!grammar_reserve((void **)&m->frames, &m->frame_capacity, 1, sizeof *m->frames))
        return false;
    m->frames[0] = (grammar_frame){0, -1, 0};
    m->n_frame = 1;
    return set_add(m, NULL, 0, false) == GRAMMAR_DEAD && set_add(m, NULL, 0, true) == GRAMMAR_OVER;
}

static bool start_add(grammar_matcher *m) {
    visits_begin(m);
    node_push(m, m->program->rules[m->program->root].entry, 0);
    /* Added without a search for an equal state, so that its number is GRAMMAR_START: the start of
     * a grammar of the empty text equals GRAMMAR_OVER. */
    work_do(m);
    if (m->n_found > 1) qsort(m->found, (size_t)m->n_found, sizeof *m->found, place_order);
    return !m->is_failed && set_add(m, m->found, m->n_found, m->can_end) == GRAMMAR_START;
}

bool grammar_matcher_begin(grammar_matcher *m, const grammar_program *program) {
    m->program = program;
    classes_find(m);
    return tables_begin(m) && start_add(m);
}

static void tables_free(grammar_matcher *m) {
    for (int32_t i = 0; i < m->n_set; i++) free(m->sets[i].mask);
    free(m->sets);
    free(m->rows);
    free(m->places);
    free(m->frames);
    free(m->set_table.slots);
    free(m->frame_table.slots);
}

void grammar_matcher_free(grammar_matcher *m) {
    tables_free(m);
    free(m->found);
    free(m->work);
    free(m->visits);
    *m = (grammar_matcher){0};
}

/* ---- Forgetting ---- */

bool grammar_matcher_is_large(const grammar_matcher *m) {
    return m->n_set > SET_LARGE || m->n_frame > FRAME_LARGE || m->n_place > PLACE_LARGE;
}

/* The new number of an old frame, which is added with its parents. `map` [old->n_frame] has the new
 * numbers that are known, -1 = not known; `path` [old->n_frame] is scratch. -1 without memory. */
static int32_t frame_move(grammar_matcher *m, const grammar_matcher *old, int32_t *map,
                          int32_t *path, int32_t frame) {
    int32_t n = 0;
    for (; map[frame] < 0; frame = old->frames[frame].parent) path[n++] = frame;
    int32_t moved = map[frame];
    while (n > 0 && moved >= 0) {
        const grammar_frame *f = &old->frames[path[--n]];
        moved = map[path[n]] = frame_intern(m, (grammar_frame){f->node, f->count, moved});
    }
    return moved;
}

bool grammar_matcher_shrink(grammar_matcher *m, int32_t **states, int32_t n) {
    const grammar_matcher old = *m;
    int32_t *map = malloc((size_t)old.n_frame * sizeof *map);
    int32_t *path = malloc((size_t)old.n_frame * sizeof *path);
    int32_t *moved = malloc(((size_t)n + 1) * sizeof *moved);
    m->sets = NULL;
    m->rows = NULL;
    m->places = NULL;
    m->frames = NULL;
    m->n_set = m->n_place = m->n_frame = 0;
    m->set_capacity = m->row_capacity = m->place_capacity = m->frame_capacity = 0;
    m->set_table = m->frame_table = (grammar_table){0};
    bool is_good = map != NULL && path != NULL && moved != NULL && tables_begin(m) && start_add(m);
    if (is_good) {
        for (int32_t i = 0; i < old.n_frame; i++) map[i] = -1;
        map[0] = 0;
    }
    for (int32_t i = 0; i < n && is_good; i++) {
        const int32_t state = *states[i];
        moved[i] = state;
        if (state <= GRAMMAR_START) continue;
        const grammar_set *set = &old.sets[state];
        visits_begin(m);
        m->can_end = set->can_end;
        for (int32_t k = 0; k < set->n && is_good; k++) {
            const grammar_place place = old.places[set->first + k];
            const int32_t frame = frame_move(m, &old, map, path, place.frame);
            is_good = frame >= 0;
            if (is_good) place_add(m, place.node, place.at, frame);
        }
        if (is_good) moved[i] = found_intern(m);
        is_good = is_good && moved[i] >= 0;
    }
    grammar_matcher gone = is_good ? old : *m;
    if (is_good) {
        for (int32_t i = 0; i < n; i++) *states[i] = moved[i];
    } else {
        grammar_matcher scratch = *m; /* its arrays of steps may have moved: `old` gets them */
        *m = old;
        m->found = scratch.found;
        m->work = scratch.work;
        m->visits = scratch.visits;
        m->found_capacity = scratch.found_capacity;
        m->work_capacity = scratch.work_capacity;
        m->visit_capacity = scratch.visit_capacity;
        m->step = scratch.step;
    }
    tables_free(&gone);
    free(map);
    free(path);
    free(moved);
    return is_good;
}
