/* SPDX-License-Identifier: MIT
 *
 * step_block.c: rewrites a step block for one member. The block comes from the caller and is
 * checked as a device checks it: offsets follow from the capacities, and no number in the block is
 * used as an index before it was checked.
 */
#include "plugins/meta/exec/step_block.h"

#include <string.h>

typedef struct rewrite {
    const tdm_graph *graph;
    const meta_page *pages;
    int64_t n_page;
    int32_t d;
    const int32_t *in;
    int32_t *out;
    tdm_step_header layout;
} rewrite;

/* Tokens per page of a class; 0 where the graph has no cache of this class. */
static int32_t class_page_len(const tdm_graph *graph, int32_t cls) {
    for (int32_t i = 0; i < graph->n_kv; i++) {
        const tdm_kv_desc *kv = tdm_graph_kv(graph, i);
        if ((kv->flags & TDM_KV_RECURRENT) != 0) continue; /* slots have no page table */
        if (kv->cls == cls) return kv->page_len != 0 ? kv->page_len : TDM_KV_PAGE_LEN_DEFAULT;
    }
    return 0;
}

static bool has_op(const tdm_graph *graph, int32_t op) {
    for (int32_t i = 0; i < graph->n_node; i++)
        if (tdm_graph_node(graph, i)->op == op) return true;
    return false;
}

static tdm_status page_check(const rewrite *r, const char *what, int64_t page, tdm_error *err) {
    if (page >= 0 && page < r->n_page) return TDM_OK;
    return tdm_fail(err, TDM_OUT_OF_RANGE, "step block: %s of page %lld; the cache has %lld", what,
                    (long long)page, (long long)r->n_page);
}

static tdm_status cells_rewrite(const rewrite *r, int32_t cls, int32_t page_len, tdm_error *err) {
    const int32_t *in = &r->in[r->layout.cls[cls].write_off];
    int32_t *out = &r->out[r->layout.cls[cls].write_off];
    for (int32_t t = 0; t < r->graph->step_caps.n_tok; t++) {
        out[t] = -1;
        if (in[t] < 0) continue;
        tdm_status status = page_check(r, "a cell", in[t] / page_len, err);
        if (status != TDM_OK) return status;
        const meta_page *page = &r->pages[in[t] / page_len];
        if (page->owner == r->d) out[t] = page->local * page_len + in[t] % page_len;
    }
    return TDM_OK;
}

/* Each sequence keeps the entries of the member's pages, moved together to the front. Unused
 * sequences have none. */
static tdm_status entries_rewrite(const rewrite *r, int32_t cls, tdm_error *err) {
    const tdm_step_class *at = &r->layout.cls[cls];
    const int32_t *first = &r->in[at->first_entry_off];
    int32_t n_seq = ((const tdm_step_header *)(const void *)r->in)->n_seq, n = 0;
    if (n_seq < 0 || n_seq > r->graph->step_caps.n_seq)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "step block: %d sequences of %d", (int)n_seq,
                        (int)r->graph->step_caps.n_seq);
    for (int32_t s = 0; s < n_seq; s++) {
        int32_t from = first[s], to = first[s + 1];
        if (from < 0 || from > to || to > r->graph->step_caps.n_entry)
            return tdm_fail(err, TDM_OUT_OF_RANGE,
                            "step block: entries %d .. %d of sequence %d; there are %d", (int)from,
                            (int)to, (int)s, (int)r->graph->step_caps.n_entry);
        r->out[at->first_entry_off + s] = n;
        for (int32_t e = from; e < to; e++) {
            tdm_page_entry entry;
            memcpy(&entry, &r->in[at->entry_off + 4 * e], sizeof entry);
            if (entry.page == -1) continue;
            tdm_status status = page_check(r, "an entry", entry.page, err);
            if (status != TDM_OK) return status;
            if (r->pages[entry.page].owner != r->d) continue;
            entry.page = r->pages[entry.page].local;
            memcpy(&r->out[at->entry_off + 4 * n], &entry, sizeof entry);
            n++;
        }
    }
    for (int32_t s = n_seq; s <= r->graph->step_caps.n_seq; s++)
        r->out[at->first_entry_off + s] = n;
    return TDM_OK;
}

static tdm_status jobs_rewrite(const rewrite *r, tdm_error *err) {
    bool is_copy = has_op(r->graph, TDM_OP_KV_COPY);
    int32_t n_job = ((const tdm_step_header *)(const void *)r->in)->n_job;
    if (n_job < 0 || n_job > r->graph->step_caps.n_job)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "step block: %d jobs of %d", (int)n_job,
                        (int)r->graph->step_caps.n_job);
    for (int32_t i = 0; i < n_job; i++) {
        tdm_page_job job;
        memcpy(&job, &r->in[r->layout.job_off + 4 * i], sizeof job);
        if (job.page == -1) continue;
        tdm_status status = page_check(r, "a job", job.page, err);
        if (status == TDM_OK && is_copy) status = page_check(r, "a copy", job.arg, err);
        if (status != TDM_OK) return status;
        const meta_page *page = &r->pages[job.page];
        if (is_copy && r->pages[job.arg].owner != page->owner)
            return tdm_fail(err, TDM_UNSUPPORTED,
                            "page %d is to become a copy of page %d, which another member holds; "
                            "attention = heads or replicate can do that",
                            (int)job.page, (int)job.arg);
        if (is_copy) job.arg = r->pages[job.arg].local;
        job.page = page->owner == r->d ? page->local : -1;
        memcpy(&r->out[r->layout.job_off + 4 * i], &job, sizeof job);
    }
    return TDM_OK;
}

tdm_status meta_step_rewrite(const tdm_graph *graph, const meta_page *pages, int64_t n_page,
                             int32_t d, const int32_t *block, uint64_t size, int32_t *out,
                             tdm_error *err) {
    rewrite r = {.graph = graph, .pages = pages, .n_page = n_page, .d = d, .in = block, .out = out};
    tdm_status status = tdm_step_layout(&graph->step_caps, &r.layout, err);
    if (status != TDM_OK) return status;
    if (size != (uint64_t)r.layout.size * sizeof *block)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "step block: %llu bytes, not %llu",
                        (unsigned long long)size,
                        (unsigned long long)r.layout.size * sizeof *block);
    memcpy(out, block, (size_t)size);
    for (int32_t c = 0; c < graph->step_caps.n_class && status == TDM_OK; c++) {
        int32_t page_len = class_page_len(graph, c);
        if (page_len == 0) continue;
        status = cells_rewrite(&r, c, page_len, err);
        if (status == TDM_OK) status = entries_rewrite(&r, c, err);
    }
    if (status == TDM_OK) status = jobs_rewrite(&r, err);
    return status;
}
