/* SPDX-License-Identifier: MIT
 *
 * cache_graph.h: one graph over a certify_cache with its step block. For certify_cache*.c.
 */
#ifndef TANDEM_CERTIFY_CACHE_GRAPH_H
#define TANDEM_CERTIFY_CACHE_GRAPH_H

#include "certify/cache.h"

typedef struct certify_cache_graph {
    certify_cache *cache;
    tdm_step_caps caps;
    tdm_builder *b; /* between begin and end */
    int32_t step;   /* values */
    int32_t state;
    int32_t kv;
    certify_rig rig;        /* after end; destroyed by the caller, also where end failed */
    tdm_step_header header; /* after end: filled, with all tokens and sequences of caps in use */
    int32_t *block; /* the step block in rig: cells to write -1, every token in sequence 0, no
                               page entries */
} certify_cache_graph;

/* Starts a graph with a step block and the cache's STATE. The caller adds nodes to b. */
certify_verdict certify_cache_graph_begin(certify_cache *cache, const tdm_step_caps *caps,
                                          certify_cache_graph *graph_out);
/* Finishes the graph, binds the STATE to the cache and fills header and block. SKIPPED where
 * supports_op refuses a node. */
certify_verdict certify_cache_graph_end(certify_cache_graph *graph, const tdm_page_job *jobs,
                                        int32_t n_job);
/* After end: the cells to write of all tokens; the page tables of all sequences, as in
 * certify_attention. They count for the class of the cache. Any other class gets another page of
 * the cache in the place of each. */
void certify_cache_cells_put(certify_cache_graph *graph, const int32_t *cells);
void certify_cache_pages_put(certify_cache_graph *graph, const int32_t *first_entry,
                             const tdm_page_entry *entries);
/* Writes the header to the block and runs. */
certify_verdict certify_cache_graph_run(certify_cache_graph *graph);

#endif
