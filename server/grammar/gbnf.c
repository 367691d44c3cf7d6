/* SPDX-License-Identifier: MIT
 *
 * gbnf.c: see gbnf.h. A rule is read into a small tree, which then becomes nodes from its end to
 * its beginning, because a node holds the number of what follows it.
 */
#include "server/grammar/gbnf.h"

#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/utf8.h"
#include "server/grammar/array.h"
#include "server/grammar/token_trie.h"

#define TEXT_MAX   (16u << 20) /* bytes of a grammar */
#define DEPTH_MAX  200         /* parentheses in each other */
#define REPEAT_MAX 4           /* repetitions of one element, as in "a"{2}{3} */
#define COUNT_MAX  1000000000  /* times of a repetition */

typedef enum item_kind {
    ITEM_SEQUENCE, /* its children one after the other; without children the empty text */
    ITEM_CHOICE,   /* one of its children */
    ITEM_REPEAT,   /* its only child, lo to hi times */
    ITEM_LEAF,     /* `node`, whose `next` is not set yet */
    ITEM_NOTHING,  /* a literal without bytes: the empty text */
} item_kind;

typedef struct item {
    item_kind kind;
    int32_t child, last, sibling; /* -1 = none; children are in order */
    int32_t lo, hi;               /* REPEAT; hi -1 = without limit */
    grammar_node node;            /* LEAF */
} item;

typedef struct reader {
    const grammar_vocab *vocab;
    const char *text, *at, *end;
    grammar_program *program;
    item *items; /* [n_item] of the current rule */
    int32_t n_item, item_capacity;
    grammar_range *ranges; /* [n_range] of the current set */
    int32_t n_range, range_capacity;
    char *bytes; /* [n_byte] of the current literal */
    int32_t n_byte, byte_capacity;
    int depth;
    /* Of line_of: the place up to which lines are counted, the beginning of its line, the line's
     * number. */
    const char *counted, *line_begin;
    int32_t line;
    tdm_error *err;
    tdm_status status; /* of the first failure */
} reader;

/* ---- Failures ---- */

/* The line of a place in the text; *column_out, unless NULL, in code points. Lines are counted from
 * the place of the last call where that comes before, as it nearly always does. */
static int32_t line_of(reader *r, const char *at, int32_t *column_out) {
    if (r->counted == NULL || at < r->counted) {
        r->counted = r->line_begin = r->text;
        r->line = 1;
    }
    for (; r->counted < at; r->counted++)
        if (*r->counted == '\n') {
            r->line++;
            r->line_begin = r->counted + 1;
        }
    if (column_out != NULL) {
        *column_out = 1;
        for (const char *c = r->line_begin; c < at; c++) *column_out += (*c & 0xC0) != 0x80;
    }
    return r->line;
}

static bool fail_memory(reader *r) {
    r->status = tdm_fail(r->err, TDM_RESOURCE_EXHAUSTED, "grammar: no memory, or it is too large");
    return false;
}

/* Fails at a place of the text: "grammar, line 3, column 7: " and the message. Returns false. */
static bool TDM_PRINTF(3, 4) fail(reader *r, const char *at, const char *format, ...) {
    char message[TDM_ERROR_MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    int32_t column;
    const int32_t line = line_of(r, at, &column);
    r->status = tdm_fail(r->err, TDM_INVALID_ARGUMENT, "grammar, line %d, column %d: %s", line,
                         column, message);
    return false;
}

/* ---- Characters ---- */

static bool is_name(const reader *r) {
    const char c = *r->at;
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static bool at_char(const reader *r, char c) {
    return r->at < r->end && *r->at == c;
}

/* Skips white space and comments; with skips_lines line ends, too, where they do not end a rule. */
static void space_skip(reader *r, bool skips_lines) {
    while (r->at < r->end) {
        const char c = *r->at;
        if (c == '#')
            while (r->at < r->end && *r->at != '\n') r->at++;
        else if (c == ' ' || c == '\t' || c == '\r' || (skips_lines && c == '\n'))
            r->at++;
        else
            break;
    }
}

static bool hex_read(reader *r, int n, uint32_t *code) {
    *code = 0;
    const char *begin = r->at;
    for (int i = 0; i < n; i++, r->at++) {
        const char c = r->at < r->end ? *r->at : '\0';
        const char small = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            *code = *code << 4 | (uint32_t)(c - '0');
        else if (small >= 'a' && small <= 'f')
            *code = *code << 4 | (uint32_t)(small - 'a' + 10);
        else
            return fail(r, begin, "\\%c needs %d hexadecimal digits", begin[-1], n);
    }
    if (*code > 0x10FFFF || (*code >= 0xD800 && *code <= 0xDFFF))
        return fail(r, begin, "%X is no code point; they are 0 to D7FF and E000 to 10FFFF", *code);
    return true;
}

/* Reads one code point of a literal or set, which may be an escape. */
static bool char_read(reader *r, uint32_t *code) {
    if (*r->at != '\\') {
        size_t size;
        if (llm_utf8_begin(r->at, (size_t)(r->end - r->at), &size) != LLM_UTF8_WHOLE)
            return fail(r, r->at, "the text is not UTF-8 here");
        const uint8_t first = (uint8_t)*r->at;
        *code = size == 1 ? first : first & (0x7Fu >> size);
        for (size_t i = 1; i < size; i++) *code = *code << 6 | ((uint8_t)r->at[i] & 0x3Fu);
        r->at += size;
        return true;
    }
    const char *begin = r->at++;
    const char c = r->at < r->end ? *r->at++ : '\0';
    switch (c) {
    case 'n': *code = '\n'; return true;
    case 'r': *code = '\r'; return true;
    case 't': *code = '\t'; return true;
    case '\\':
    case '"':
    case '[':
    case ']':
    case '^':
    case '-': *code = (uint8_t)c; return true;
    case 'x': return hex_read(r, 2, code);
    case 'u': return hex_read(r, 4, code);
    case 'U': return hex_read(r, 8, code);
    default:
        return fail(r, begin,
                    "unknown escape; there are \\n \\r \\t \\\\ \\\" \\[ \\] \\^ \\- \\xHH \\uHHHH "
                    "\\UHHHHHHHH");
    }
}

/* ---- Items. Functions that return an item return -1 after a failure ---- */

static int32_t item_add(reader *r, item_kind kind) {
    if (!grammar_reserve((void **)&r->items, &r->item_capacity, (int64_t)r->n_item + 1,
                         sizeof *r->items)) {
        fail_memory(r);
        return -1;
    }
    r->items[r->n_item] = (item){.kind = kind, .child = -1, .last = -1, .sibling = -1};
    return r->n_item++;
}

static void child_add(reader *r, int32_t parent, int32_t child) {
    item *p = &r->items[parent];
    if (p->last >= 0)
        r->items[p->last].sibling = child;
    else
        p->child = child;
    p->last = child;
}

static int32_t leaf_add(reader *r, grammar_node node) {
    const int32_t leaf = item_add(r, ITEM_LEAF);
    if (leaf >= 0) r->items[leaf].node = node;
    return leaf;
}

static int32_t literal_read(reader *r) {
    const char *begin = r->at++;
    r->n_byte = 0;
    while (!at_char(r, '"')) {
        uint32_t code;
        if (r->at >= r->end || *r->at == '\n') {
            fail(r, begin, "the literal has no closing \"; a line end in it is \\n");
            return -1;
        }
        if (!char_read(r, &code)) return -1;
        if (!grammar_reserve((void **)&r->bytes, &r->byte_capacity, (int64_t)r->n_byte + 4, 1)) {
            fail_memory(r);
            return -1;
        }
        r->n_byte += grammar_code_point_write(code, r->bytes + r->n_byte);
    }
    r->at++;
    if (r->n_byte == 0) return item_add(r, ITEM_NOTHING);
    const int32_t first = grammar_program_bytes(r->program, r->bytes, (size_t)r->n_byte);
    if (first < 0) {
        fail_memory(r);
        return -1;
    }
    return leaf_add(r, (grammar_node){.op = GRAMMAR_LITERAL, .first = first, .n = r->n_byte});
}

static int32_t class_add(reader *r, bool is_negated) {
    const int32_t class =
        grammar_classes_add(&r->program->classes, r->ranges, r->n_range, is_negated);
    if (class < 0) {
        fail_memory(r);
        return -1;
    }
    return leaf_add(r, (grammar_node){.op = GRAMMAR_CLASS, .first = class});
}

static int32_t set_read(reader *r) {
    const char *begin = r->at++;
    const bool is_negated = at_char(r, '^');
    r->at += is_negated;
    r->n_range = 0;
    while (!at_char(r, ']')) {
        grammar_range range;
        const char *place = r->at;
        if (r->at >= r->end || *r->at == '\n') {
            fail(r, begin, "the set has no closing ]; a ] in it is \\]");
            return -1;
        }
        if (!char_read(r, &range.lo)) return -1;
        range.hi = range.lo;
        if (at_char(r, '-') && r->at + 1 < r->end && r->at[1] != ']') {
            r->at++;
            if (!char_read(r, &range.hi)) return -1;
            if (range.hi < range.lo) {
                fail(r, place, "the range ends before it begins; write the lower character first");
                return -1;
            }
        }
        if (!grammar_reserve((void **)&r->ranges, &r->range_capacity, (int64_t)r->n_range + 1,
                             sizeof *r->ranges)) {
            fail_memory(r);
            return -1;
        }
        r->ranges[r->n_range++] = range;
    }
    r->at++;
    if (r->n_range == 0 && !is_negated) {
        fail(r, begin, "the set [] is empty, so nothing matches it");
        return -1;
    }
    return class_add(r, is_negated);
}

/* Reads <[ID]>, or <text> where the text with its brackets is one token. */
static int32_t token_read(reader *r, bool is_negated) {
    const char *begin = r->at;
    const char *end = memchr(begin, '>', (size_t)(r->end - begin));
    int64_t id = -1;
    if (end == NULL) {
        fail(r, begin, "the token has no closing >");
        return -1;
    }
    if (begin[1] == '[') {
        const char *c = begin + 2;
        for (id = 0; *c >= '0' && *c <= '9' && id < INT32_MAX; c++) id = id * 10 + (*c - '0');
        if (c == begin + 2 || *c != ']' || c + 1 != end) {
            fail(r, begin, "a token by its number is <[NUMBER]>");
            return -1;
        }
    } else if (r->vocab != NULL) {
        id = llm_vocab_find(r->vocab->vocab, begin, (size_t)(end + 1 - begin));
    }
    if (r->vocab == NULL || id < 0 || id >= llm_vocab_n_token(r->vocab->vocab)) {
        const int shown = end + 1 - begin < 60 ? (int)(end + 1 - begin) : 60;
        fail(r, begin, "the vocabulary has no token %.*s", shown, begin);
        return -1;
    }
    r->at = end + 1;
    return leaf_add(
        r, (grammar_node){.op = GRAMMAR_TOKEN, .first = (int32_t)id, .is_negated = is_negated});
}

static int32_t choice_read(reader *r);

static int32_t group_read(reader *r) {
    const char *begin = r->at++;
    if (++r->depth > DEPTH_MAX) {
        fail(r, begin, "more than %d parentheses in each other; use rules", DEPTH_MAX);
        return -1;
    }
    space_skip(r, true);
    const int32_t choice = choice_read(r);
    if (choice < 0) return -1;
    if (!at_char(r, ')')) {
        fail(r, begin, "the ( has no closing )");
        return -1;
    }
    r->at++;
    r->depth--;
    return choice;
}

static int32_t name_read(reader *r) {
    const char *begin = r->at;
    while (r->at < r->end && is_name(r)) r->at++;
    const int32_t rule =
        grammar_program_rule(r->program, begin, (size_t)(r->at - begin), line_of(r, begin, NULL));
    if (rule < 0) {
        fail_memory(r);
        return -1;
    }
    return leaf_add(r, (grammar_node){.op = GRAMMAR_CALL, .first = rule});
}

static bool count_read(reader *r, int32_t *count) {
    const char *begin = r->at;
    int64_t value = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        if (value <= COUNT_MAX) value = value * 10 + (*r->at - '0');
    if (r->at == begin) return fail(r, begin, "a repetition is {m}, {m,}, {m,n} or {0,n}");
    if (value > COUNT_MAX) return fail(r, begin, "a repetition has at most %d times", COUNT_MAX);
    *count = (int32_t)value;
    return true;
}

/* Reads {m}, {m,}, {m,n} or {,n}. *hi -1 = without limit. */
static bool counts_read(reader *r, int32_t *lo, int32_t *hi) {
    const char *begin = r->at++;
    space_skip(r, false);
    *lo = 0;
    if (!at_char(r, ',') && !count_read(r, lo)) return false;
    *hi = *lo;
    space_skip(r, false);
    if (at_char(r, ',')) {
        r->at++;
        space_skip(r, false);
        *hi = -1;
        if (!at_char(r, '}') && !count_read(r, hi)) return false;
        space_skip(r, false);
    }
    if (!at_char(r, '}')) return fail(r, begin, "the { has no closing }");
    r->at++;
    if (*hi >= 0 && *hi < *lo)
        return fail(r, begin, "{%d,%d}: the larger number comes last", *lo, *hi);
    return true;
}

/* Reads the repetitions behind an element; returns the item of the outermost one, or `inner`. */
static int32_t repeats_read(reader *r, int32_t inner) {
    for (int n = 0; inner >= 0; n++) {
        const char *begin = r->at;
        int32_t lo = 0, hi = -1;
        if (at_char(r, '*') || at_char(r, '+') || at_char(r, '?')) {
            lo = *r->at == '+';
            hi = *r->at == '?' ? 1 : -1;
            r->at++;
        } else if (at_char(r, '{')) {
            if (!counts_read(r, &lo, &hi)) return -1;
        } else {
            break;
        }
        if (n == REPEAT_MAX) {
            fail(r, begin, "more than %d repetitions of repetitions", REPEAT_MAX);
            return -1;
        }
        const int32_t outer = item_add(r, ITEM_REPEAT);
        if (outer < 0) return -1;
        r->items[outer].lo = lo;
        r->items[outer].hi = hi;
        child_add(r, outer, inner);
        inner = outer;
        space_skip(r, r->depth > 0);
    }
    return inner;
}

static int32_t element_read(reader *r) {
    const char c = *r->at;
    if (c == '"') return literal_read(r);
    if (c == '[') return set_read(r);
    if (c == '(') return group_read(r);
    if (c == '<') return token_read(r, false);
    if (c == '!' && r->at + 1 < r->end && r->at[1] == '<') {
        r->at++;
        return token_read(r, true);
    }
    if (c == '.') {
        r->at++;
        r->n_range = 0;
        return class_add(r, true);
    }
    return name_read(r);
}

static bool at_element(const reader *r) {
    return r->at < r->end && (is_name(r) || strchr("\"[(<!.", *r->at) != NULL) && *r->at != '\0';
}

static int32_t sequence_read(reader *r) {
    const int32_t sequence = item_add(r, ITEM_SEQUENCE);
    if (sequence < 0) return -1;
    while (at_element(r)) {
        if (*r->at == '!' && (r->at + 1 >= r->end || r->at[1] != '<')) break;
        int32_t element = element_read(r);
        if (element < 0) return -1;
        space_skip(r, r->depth > 0);
        element = repeats_read(r, element);
        if (element < 0) return -1;
        child_add(r, sequence, element);
    }
    return sequence;
}

/* Whether a later line continues the rule with '|'; then r->at is moved there. */
static bool line_continues(reader *r) {
    const char *begin = r->at;
    space_skip(r, true);
    if (at_char(r, '|')) return true;
    r->at = begin;
    return false;
}

static int32_t choice_read(reader *r) {
    const int32_t choice = item_add(r, ITEM_CHOICE);
    if (choice < 0) return -1;
    for (;;) {
        const int32_t sequence = sequence_read(r);
        if (sequence < 0) return -1;
        child_add(r, choice, sequence);
        if (!at_char(r, '|') && !line_continues(r)) return choice;
        r->at++;
        space_skip(r, true);
    }
}

/* ---- Nodes. Functions that return a node return -1 after a failure ---- */

static int32_t emit(reader *r, int32_t at, int32_t next);

static int32_t node_add(reader *r, grammar_node node) {
    const int32_t number = grammar_program_node(r->program, node);
    if (number < 0) fail_memory(r);
    return number;
}

static int32_t split_add(reader *r, int32_t n) {
    const int32_t first = grammar_program_targets(r->program, n);
    if (first < 0) {
        fail_memory(r);
        return -1;
    }
    return node_add(r, (grammar_node){.op = GRAMMAR_SPLIT, .first = first, .n = n});
}

/* Emits the children from the last to the first: reverses their list, which is not used again,
 * since each item is emitted once. */
static int32_t sequence_emit(reader *r, int32_t sequence, int32_t next) {
    int32_t before = -1, at = r->items[sequence].child;
    while (at >= 0) {
        const int32_t following = r->items[at].sibling;
        r->items[at].sibling = before;
        before = at;
        at = following;
    }
    for (at = before; at >= 0 && next >= 0; at = r->items[at].sibling) next = emit(r, at, next);
    return next;
}

static int32_t choice_emit(reader *r, int32_t choice, int32_t next) {
    int32_t n = 0;
    for (int32_t c = r->items[choice].child; c >= 0; c = r->items[c].sibling) n++;
    if (n == 1) return emit(r, r->items[choice].child, next);
    const int32_t first = grammar_program_targets(r->program, n);
    if (first < 0) {
        fail_memory(r);
        return -1;
    }
    int32_t i = first;
    for (int32_t c = r->items[choice].child; c >= 0; c = r->items[c].sibling) {
        const int32_t entry = emit(r, c, next);
        if (entry < 0) return -1;
        r->program->targets[i++] = entry;
    }
    return node_add(r, (grammar_node){.op = GRAMMAR_SPLIT, .first = first, .n = n});
}

static int32_t repeat_emit(reader *r, int32_t repeat, int32_t next) {
    const item it = r->items[repeat];
    if (it.hi == 0) return next;
    if (it.lo == 1 && it.hi == 1) return emit(r, it.child, next);
    if (it.lo <= 1 && it.hi < 0) { /* a cycle: a SPLIT leads to the body, which leads back to it */
        const int32_t split = split_add(r, 2);
        const int32_t body = split < 0 ? -1 : emit(r, it.child, split);
        if (body < 0) return -1;
        int32_t *targets = r->program->targets + r->program->nodes[split].first;
        targets[0] = body;
        targets[1] = next;
        return it.lo == 0 ? split : body;
    }
    if (it.lo == 0 && it.hi == 1) {
        const int32_t body = emit(r, it.child, next);
        const int32_t split = body < 0 ? -1 : split_add(r, 2);
        if (split < 0) return -1;
        int32_t *targets = r->program->targets + r->program->nodes[split].first;
        targets[0] = body;
        targets[1] = next;
        return split;
    }
    const int32_t end = node_add(r, (grammar_node){.op = GRAMMAR_END});
    const int32_t body = end < 0 ? -1 : emit(r, it.child, end);
    if (body < 0) return -1;
    return node_add(
        r, (grammar_node){
               .op = GRAMMAR_LOOP, .first = body, .n_min = it.lo, .n_max = it.hi, .next = next});
}

/* Adds the nodes of an item that leads to `next`; returns its entry. */
static int32_t emit(reader *r, int32_t at, int32_t next) {
    switch (r->items[at].kind) {
    case ITEM_SEQUENCE: return sequence_emit(r, at, next);
    case ITEM_CHOICE: return choice_emit(r, at, next);
    case ITEM_REPEAT: return repeat_emit(r, at, next);
    case ITEM_NOTHING: return next;
    case ITEM_LEAF: {
        grammar_node node = r->items[at].node;
        node.next = next;
        return node_add(r, node);
    }
    }
    return -1;
}

/* ---- Rules ---- */

static bool rule_read(reader *r) {
    const char *begin = r->at;
    while (r->at < r->end && is_name(r)) r->at++;
    const size_t len = (size_t)(r->at - begin);
    if (len == 0)
        return fail(r, begin,
                    "expected the name of a rule (letters, digits and -), as in: root "
                    "::= \"text\"");
    const int32_t line = line_of(r, begin, NULL);
    const int32_t rule = grammar_program_rule(r->program, begin, len, line);
    if (rule < 0) return fail_memory(r);
    if (r->program->rules[rule].entry >= 0)
        return fail(r, begin, "rule '%s' is defined again; it was defined in line %d",
                    r->program->rules[rule].name, r->program->rules[rule].line);
    r->program->rules[rule].line = line;
    space_skip(r, false);
    if (r->end - r->at < 3 || memcmp(r->at, "::=", 3) != 0)
        return fail(r, r->at, "expected ::= behind the name of rule '%s'",
                    r->program->rules[rule].name);
    r->at += 3;
    space_skip(r, true);
    r->n_item = 0;
    r->depth = 0;
    const int32_t choice = choice_read(r);
    if (choice < 0) return false;
    if (r->at < r->end && *r->at != '\n') {
        if (strchr("*+?{", *r->at) != NULL && *r->at != '\0')
            return fail(r, r->at, "%c has nothing to repeat before it", *r->at);
        if (*r->at == ')') return fail(r, r->at, "the ) has no opening (");
        return fail(r, r->at,
                    "expected the end of rule '%s', or a literal \"...\", a set [...], a group "
                    "(...), a token <...> or the name of a rule",
                    r->program->rules[rule].name);
    }
    const int32_t end = node_add(r, (grammar_node){.op = GRAMMAR_END});
    const int32_t entry = end < 0 ? -1 : emit(r, choice, end);
    if (entry < 0) return false;
    r->program->rules[rule].entry = entry;
    space_skip(r, true);
    return true;
}

tdm_status grammar_gbnf_read(const grammar_vocab *vocab, const char *text, size_t len,
                             grammar_program *program, tdm_error *err) {
    if (len > TEXT_MAX)
        return tdm_fail(err, TDM_UNSUPPORTED, "grammar: %zu bytes; at most %u are read", len,
                        TEXT_MAX);
    reader r = {.vocab = vocab,
                .text = text,
                .at = text,
                .end = text + len,
                .program = program,
                .err = err};
    bool is_good = true;
    space_skip(&r, true);
    while (is_good && r.at < r.end) is_good = rule_read(&r);
    free(r.items);
    free(r.ranges);
    free(r.bytes);
    return is_good ? grammar_program_finish(program, err) : r.status;
}
