/* SPDX-License-Identifier: MIT
 *
 * kv_scene.h: a cache with sequences, for the tests of the cache ops: the pages of each sequence,
 * the rows written to them, and the expected result of attention, computed from the stored rows in
 * double. The code shares nothing with the plugin's.
 */
#ifndef TANDEM_TESTS_KV_SCENE_H
#define TANDEM_TESTS_KV_SCENE_H

#include "core/graph/builder.h"
#include "tests/kernels/op_run.h"

enum { SCENE_MAX_SEQ = 4, SCENE_MAX_ENTRY = 1024 };

/* Sequences share no cells but those of whole or partial pages of a common prefix. */
typedef struct kv_scene {
    tdm_kv_desc desc;
    int32_t page_len;
    int32_t n_page;
    int32_t n_seq;
    int32_t len[SCENE_MAX_SEQ]; /* tokens: positions 0 .. len-1 */
    int32_t first_entry[SCENE_MAX_SEQ + 1];
    tdm_page_entry entries[SCENE_MAX_ENTRY];
    int32_t n_cell; /* n_page * page_len */
    float *k, *v;   /* [head_dim, n_head_kv, n_cell]: what is written to each cell */
    double *k_row,
        *v_row;    /* [head_dim, n_head_kv, n_cell]: what a cell then holds, rotation undone */
    bool *is_used; /* [n_cell] */
    bool hides_longest; /* step blocks say 0 for `longest` instead of the longest sequence */
} kv_scene;

/* Plans n_seq sequences of the given lengths, with random rows, over shuffled pages. Sequence s > 0
 * shares the first `shared` tokens with sequence 0 (at most both lengths). Its later tokens go to
 * pages of its own, from the slot at which the prefix ends inside its page: the slots before it are
 * where a copy of the shared rows would be. */
void kv_scene_init(kv_scene *scene, const tdm_kv_desc *desc, int32_t n_seq, const int32_t *len,
                   int32_t shared, uint64_t *seed);
/* The same, but the first page of a sequence that shares nothing begins at slot `behind`, less than
 * a page has: slot 0 then stands for a position before 0. */
void kv_scene_init_behind(kv_scene *scene, const tdm_kv_desc *desc, int32_t n_seq,
                          const int32_t *len, int32_t shared, int32_t behind, uint64_t *seed);
void kv_scene_free(kv_scene *scene);

/* What capacities a step over the scene needs. */
tdm_step_caps kv_scene_caps(const kv_scene *scene, int32_t n_tok, int32_t n_job);

/* A new step block for caps with the scene's page tables; n_tok and n_job count as used, all
 * tokens are padding and all jobs skipped until set. The caller frees it with free(). */
int32_t *kv_step_create(const kv_scene *scene, const tdm_step_caps *caps);
void kv_step_set_token(int32_t *step, int32_t token, int32_t pos, int32_t seq, int32_t cell);
void kv_step_set_job(int32_t *step, int32_t job, tdm_page_job value);

/* A new state on a rig with the scene's rows in it, written by KV_WRITE in batches of `batch`. */
op_state *kv_scene_write(const kv_scene *scene, op_rig *rig, int32_t batch);

/* Canonical rows [padded, n_head_kv, n_cell] of all cells of a state, by KV_EXPORT. The caller
 * frees them; *v_out is NULL where V is part of K. */
void kv_scene_export(const kv_scene *scene, op_rig *rig, op_state *state, uint8_t **k_out,
                     uint8_t **v_out);

/* Fills k_row and v_row from exported rows. */
void kv_scene_decode(kv_scene *scene, const uint8_t *k, const uint8_t *v);

/* Both: fills k_row and v_row from what a state holds. */
void kv_scene_learn(kv_scene *scene, op_rig *rig, op_state *state);

/* One query token. */
typedef struct kv_query {
    int32_t pos; /* -1: padding */
    int32_t seq;
} kv_query;

/* What attention adds to scores by distance and head; n_distance 0: nothing. */
typedef struct kv_bias {
    int32_t n_distance;  /* odd */
    const float *number; /* [n_distance, n_head] */
} kv_bias;

/* o [head_dim_v, n_head, n_tok], ml [2, n_head, n_tok]. sink NULL: none. */
void kv_scene_attend(const kv_scene *scene, const tdm_attention_params *params, int32_t n_head,
                     const float *q, const float *sink, const kv_query *queries, int32_t n_tok,
                     float *o, float *ml);
/* The same with a bias. */
void kv_scene_attend_biased(const kv_scene *scene, const tdm_attention_params *params,
                            int32_t n_head, const float *q, const float *sink, const kv_bias *bias,
                            const kv_query *queries, int32_t n_tok, float *o, float *ml);

/* Attention by the plugin; n_tok tokens. ml may be NULL. */
void kv_scene_run(const kv_scene *scene, op_rig *rig, op_state *state,
                  const tdm_attention_params *params, int32_t n_head, const float *q,
                  const float *sink, const kv_query *queries, int32_t n_tok, float *o, float *ml);
/* The same with a bias, whose numbers lie in memory with the heads of a distance side by side where
 * is_turned. */
void kv_scene_run_biased(const kv_scene *scene, op_rig *rig, op_state *state,
                         const tdm_attention_params *params, int32_t n_head, const float *q,
                         const float *sink, const kv_bias *bias, bool is_turned,
                         const kv_query *queries, int32_t n_tok, float *o, float *ml);

/* The nine types of a cache. */
extern const tdm_type kv_types[TDM_KV_TYPE_COUNT];

#endif
