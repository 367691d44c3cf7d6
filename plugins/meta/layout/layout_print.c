/* SPDX-License-Identifier: MIT
 *
 * layout_print.c: a layout as one line of text.
 */
#include <stdarg.h>
#include <stdio.h>

#include "plugins/meta/layout/layout.h"

typedef struct line {
    char *text;
    size_t size, used; /* bytes; used without the NUL, below size */
} line;

TDM_PRINTF(2, 3)
static void line_add(line *out, const char *format, ...) {
    va_list args;
    int n;
    va_start(args, format);
    n = vsnprintf(out->text + out->used, out->size - out->used, format, args);
    va_end(args);
    if (n > 0) out->used += (size_t)n;
    if (out->used >= out->size) out->used = out->size - 1;
}

static void line_add_split(line *out, const tdm_layout *layout) {
    line_add(out, "split %lldx[", (long long)layout->outer);
    for (int32_t s = 0; s < layout->n_segment; s++)
        line_add(out, s > 0 ? "|%lld" : "%lld", (long long)layout->segments[s].n_unit);
    line_add(out, "]x%lld", (long long)layout->inner);
    for (int32_t d = 0; d < layout->n_member; d++) {
        line_add(out, " %d:", (int)d);
        for (int32_t s = 0; s < layout->n_segment; s++) {
            const tdm_layout_segment *segment = &layout->segments[s];
            if (s > 0) line_add(out, "|");
            if (segment->lo[d] < segment->hi[d])
                line_add(out, "%lld-%lld", (long long)segment->lo[d], (long long)segment->hi[d]);
            else
                line_add(out, "-");
        }
    }
}

const char *meta_layout_print(const tdm_layout *layout, char *text, size_t text_size) {
    line out = {text, text_size, 0};
    text[0] = 0;
    switch (layout->kind) {
    case TDM_LAYOUT_REPLICATED:
        line_add(&out, layout->replica == TDM_REPLICA_EXACT ? "replicated exactly" : "replicated");
        break;
    case TDM_LAYOUT_PARTIAL_SUM: line_add(&out, "partial sum"); break;
    case TDM_LAYOUT_PARTIAL_LSE: line_add(&out, "partial attention"); break;
    case TDM_LAYOUT_SPLIT: line_add_split(&out, layout); break;
    default: line_add(&out, "not laid out"); break;
    }
    return text;
}
