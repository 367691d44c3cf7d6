/* SPDX-License-Identifier: MIT
 *
 * plan_text.c: see plan_text.h.
 */
#include "tests/gpu/plan_text.h"

#include <stdio.h>
#include <stdlib.h>

#include "plugins/gpu/plan/print.h"

static void numbers_print(FILE *out, const char *open, const int32_t *n, int count,
                          const char *close) {
    while (count > 0 && n[count - 1] == 0) count--;
    if (count == 0) return;
    fputs(open, out);
    for (int i = 0; i < count; i++) fprintf(out, "%s%d", i > 0 ? " " : "", (int)n[i]);
    fputs(close, out);
}

static void operand_print(FILE *out, const gpu_operand *o, const tdm_graph *graph,
                          const int32_t *values) {
    const char *name;
    switch (o->space) {
    case GPU_SPACE_SLOT:
        name = gpu_slot_name(graph, values, o->index);
        if (name[0] == '\0')
            fprintf(out, " slot%d", (int)o->index);
        else
            fprintf(out, " %s", name);
        break;
    case GPU_SPACE_CONSTANT: fputs(" constant", out); break;
    case GPU_SPACE_COUNTER: fputs(" counters", out); break;
    default: fprintf(out, " t%d", (int)o->index);
    }
    if (o->off != 0) fprintf(out, "@%llu", (unsigned long long)o->off);
    fprintf(out, ":%llu", (unsigned long long)o->size);
}

static void step_print(FILE *out, const gpu_step *s, const tdm_graph *graph, const int32_t *values,
                       bool has_words) {
    fputs(gpu_kernel_name(s->kernel), out);
    numbers_print(out, "(", s->spec, GPU_MAX_SPEC, ")");
    fprintf(out, " %dx%u", (int)s->group_size, s->grid[0]);
    for (int i = 1; i < 3 && (s->grid[1] > 1 || s->grid[2] > 1); i++)
        fprintf(out, ",%u", s->grid[i]);
    fputs(":", out);
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) fputs(" =", out);
        for (int k = 0; k < GPU_MAX_OPERAND; k++)
            if (s->operand[k].space != GPU_SPACE_NONE &&
                gpu_kernel_writes(s->kernel, k) == (pass == 0))
                operand_print(out, &s->operand[k], graph, values);
    }
    if (has_words) numbers_print(out, " {", s->word, GPU_MAX_WORD, "}");
    fputc('\n', out);
}

char *gpu_plan_text(const gpu_plan *plan, const tdm_graph *graph, bool has_words) {
    char *text = NULL;
    size_t size = 0;
    int n_barrier = 0;
    int32_t *values = gpu_slot_values(graph);
    FILE *out = values == NULL ? NULL : open_memstream(&text, &size);
    if (out != NULL) {
        for (int32_t i = 0; i < plan->n_step; i++) n_barrier += plan->steps[i].has_barrier;
        fprintf(out, "%d steps, %d barriers, %llu bytes of scratch, %llu of constants",
                (int)plan->n_step, n_barrier, (unsigned long long)plan->scratch_size,
                (unsigned long long)plan->constants_size);
        if (plan->counters_size > 0)
            fprintf(out, ", %llu of counters", (unsigned long long)plan->counters_size);
        fputc('\n', out);
        for (int32_t i = 0; i < plan->n_step; i++) {
            if (plan->steps[i].has_barrier) fputs("----\n", out);
            step_print(out, &plan->steps[i], graph, values, has_words);
        }
        if (fclose(out) != 0) {
            free(text);
            text = NULL;
        }
    }
    free(values);
    return text;
}
