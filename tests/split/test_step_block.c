/* SPDX-License-Identifier: MIT
 *
 * test_step_block.c: the step block of members whose caches are cut by sequence. Together, the
 * members' blocks have the contents of the caller's block, each entry once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "plugins/meta/exec/step_block.h"
#include "tests/support/random.h"

enum { N_MEMBER = 3, N_PAGE = 20, PAGE_LEN = 16, N_SEQ = 3, N_ENTRY = 24, N_TOK = 12, N_JOB = 10 };

static uint64_t seed;

static int32_t draw(int32_t below) {
    return (int32_t)random_u32_below(&seed, (uint32_t)below);
}

typedef struct scene {
    tdm_graph graph;
    tdm_kv_desc kv[2];
    tdm_node node;
    tdm_step_header layout;
    meta_page pages[N_PAGE];
    int32_t whole_of[N_MEMBER][N_PAGE]; /* a member's page -> the caller's */
    int32_t *block, *out[N_MEMBER];
    uint64_t size;
} scene;

/* Pages assigned at random; two classes, of which only the first has a cache of the group. */
static void scene_make(scene *s, int32_t op) {
    int32_t n_local[N_MEMBER] = {0};
    memset(s, 0, sizeof *s);
    s->kv[0] = (tdm_kv_desc){.struct_size = sizeof s->kv[0], .page_len = PAGE_LEN, .cls = 0};
    s->kv[1] = (tdm_kv_desc){.struct_size = sizeof s->kv[1], .page_len = PAGE_LEN, .cls = 1};
    s->node.op = op;
    s->graph = (tdm_graph){.struct_size = sizeof s->graph,
                           .node_size = sizeof s->node,
                           .kv_size = sizeof s->kv[0],
                           .nodes = &s->node,
                           .kv = s->kv,
                           .n_node = 1,
                           .n_kv = 1 + draw(2)};
    s->graph.step_caps = (tdm_step_caps){N_TOK, N_SEQ, 2, N_ENTRY, N_JOB, 2};
    assert_int_equal(tdm_step_layout(&s->graph.step_caps, &s->layout, NULL), TDM_OK);
    for (int32_t p = 0; p < N_PAGE; p++) {
        int32_t d = draw(N_MEMBER);
        s->whole_of[d][n_local[d]] = p;
        s->pages[p] = (meta_page){d, n_local[d]++};
    }
    s->size = (uint64_t)s->layout.size * sizeof(int32_t);
    s->block = calloc(1, s->size);
    assert_non_null(s->block);
    for (int d = 0; d < N_MEMBER; d++) {
        s->out[d] = malloc(s->size);
        assert_non_null(s->out[d]);
        memset(s->out[d], 0x5a, s->size);
    }
    for (int32_t i = 0; i < s->layout.size; i++) s->block[i] = draw(1000);
    tdm_step_header header = s->layout;
    header.n_tok = N_TOK - 2;
    header.n_seq = N_SEQ - draw(2);
    header.n_job = draw(N_JOB + 1);
    memcpy(s->block, &header, sizeof header);
    for (int32_t c = 0; c < 2; c++) {
        const tdm_step_class *at = &s->layout.cls[c];
        int32_t n = 0;
        for (int32_t t = 0; t < N_TOK; t++)
            s->block[at->write_off + t] = t < header.n_tok ? draw(N_PAGE * PAGE_LEN) : -1;
        for (int32_t q = 0; q <= header.n_seq; q++) {
            s->block[at->first_entry_off + q] = n;
            if (q < header.n_seq) n += draw(N_ENTRY / N_SEQ + 1);
        }
        for (int32_t e = 0; e < N_ENTRY; e++) {
            tdm_page_entry entry = {draw(N_PAGE), draw(4), 1 + draw(12), draw(500)};
            memcpy(&s->block[at->entry_off + 4 * e], &entry, sizeof entry);
        }
    }
    for (int32_t j = 0; j < N_JOB; j++) {
        tdm_page_job job = {draw(5) == 0 ? -1 : draw(N_PAGE), draw(4), draw(12), draw(N_PAGE)};
        memcpy(&s->block[s->layout.job_off + 4 * j], &job, sizeof job);
    }
}

static void scene_free(scene *s) {
    free(s->block);
    for (int d = 0; d < N_MEMBER; d++) free(s->out[d]);
}

static tdm_status rewrite(scene *s, int32_t d, tdm_error *err) {
    return meta_step_rewrite(&s->graph, s->pages, N_PAGE, d, s->block, s->size, s->out[d], err);
}

static tdm_page_entry entry_at(const scene *s, const int32_t *block, int32_t cls, int32_t e) {
    tdm_page_entry entry;
    memcpy(&entry, &block[s->layout.cls[cls].entry_off + 4 * e], sizeof entry);
    return entry;
}

static void cells_check(const scene *s, int32_t cls) {
    for (int32_t t = 0; t < N_TOK; t++) {
        int32_t cell = s->block[s->layout.cls[cls].write_off + t], n_owner = 0;
        for (int32_t d = 0; d < N_MEMBER; d++) {
            int32_t own = s->out[d][s->layout.cls[cls].write_off + t];
            if (own < 0) continue;
            n_owner++;
            assert_int_equal(s->whole_of[d][own / PAGE_LEN] * PAGE_LEN + own % PAGE_LEN, cell);
        }
        assert_int_equal(n_owner, cell >= 0);
    }
}

/* The members' entries of each sequence, taken in turn, are the caller's in their order. */
static void entries_check(const scene *s, int32_t cls) {
    const tdm_step_class *at = &s->layout.cls[cls];
    int32_t n_seq = ((const tdm_step_header *)(const void *)s->block)->n_seq;
    for (int32_t q = 0; q < n_seq; q++) {
        int32_t next[N_MEMBER];
        for (int32_t d = 0; d < N_MEMBER; d++) next[d] = s->out[d][at->first_entry_off + q];
        for (int32_t e = s->block[at->first_entry_off + q];
             e < s->block[at->first_entry_off + q + 1]; e++) {
            tdm_page_entry want = entry_at(s, s->block, cls, e);
            int32_t d = s->pages[want.page].owner;
            tdm_page_entry got = entry_at(s, s->out[d], cls, next[d]++);
            got.page = s->whole_of[d][got.page];
            assert_memory_equal(&got, &want, sizeof got);
        }
        for (int32_t d = 0; d < N_MEMBER; d++)
            assert_int_equal(next[d], s->out[d][at->first_entry_off + q + 1]);
    }
    for (int32_t q = n_seq; q < N_SEQ; q++) /* what is past those in use is empty */
        for (int32_t d = 0; d < N_MEMBER; d++)
            assert_int_equal(s->out[d][at->first_entry_off + q],
                             s->out[d][at->first_entry_off + q + 1]);
}

static void jobs_check(const scene *s, bool is_copy) {
    int32_t n_job = ((const tdm_step_header *)(const void *)s->block)->n_job;
    for (int32_t j = 0; j < n_job; j++) {
        tdm_page_job want, got;
        memcpy(&want, &s->block[s->layout.job_off + 4 * j], sizeof want);
        for (int32_t d = 0; d < N_MEMBER; d++) {
            memcpy(&got, &s->out[d][s->layout.job_off + 4 * j], sizeof got);
            if (want.page < 0 || s->pages[want.page].owner != d) {
                assert_int_equal(got.page, -1);
                continue;
            }
            assert_int_equal(s->whole_of[d][got.page], want.page);
            assert_int_equal(got.first, want.first);
            assert_int_equal(got.count, want.count);
            assert_int_equal(is_copy ? s->whole_of[d][got.arg] : got.arg, want.arg);
        }
    }
}

static void test_parts_make_the_whole(void **state) {
    (void)state;
    for (int round = 0; round < 400; round++) {
        scene s;
        scene_make(&s, TDM_OP_KV_SHIFT);
        for (int32_t d = 0; d < N_MEMBER; d++) {
            tdm_error err = {0};
            if (rewrite(&s, d, &err) != TDM_OK) fail_msg("%s", err.message);
            /* Tokens, positions, rows: as they were. */
            assert_memory_equal(&s.out[d][s.layout.token_off], &s.block[s.layout.token_off],
                                (size_t)(s.layout.job_off - s.layout.token_off) * 4);
        }
        for (int32_t c = 0; c < s.graph.n_kv; c++) {
            cells_check(&s, c);
            entries_check(&s, c);
        }
        jobs_check(&s, false);
        scene_free(&s);
    }
}

/* A copy stays on its member, or is refused for everybody. */
static void test_copies(void **state) {
    int n_refused = 0, n_done = 0;
    (void)state;
    for (int round = 0; round < 400; round++) {
        scene s;
        bool crosses = false;
        scene_make(&s, TDM_OP_KV_COPY);
        int32_t n_job = ((tdm_step_header *)(void *)s.block)->n_job;
        for (int32_t j = 0; j < n_job; j++) {
            tdm_page_job job;
            memcpy(&job, &s.block[s.layout.job_off + 4 * j], sizeof job);
            if (job.page >= 0 && draw(10) != 0) { /* mostly to a page of the same member */
                while (s.pages[job.arg].owner != s.pages[job.page].owner) job.arg = draw(N_PAGE);
                memcpy(&s.block[s.layout.job_off + 4 * j], &job, sizeof job);
            }
            if (job.page >= 0)
                crosses = crosses || s.pages[job.arg].owner != s.pages[job.page].owner;
        }
        for (int32_t d = 0; d < N_MEMBER; d++) {
            tdm_error err = {0};
            tdm_status status = rewrite(&s, d, &err);
            assert_int_equal(status, crosses ? TDM_UNSUPPORTED : TDM_OK);
            if (crosses) assert_non_null(strstr(err.message, "another member"));
        }
        if (!crosses) jobs_check(&s, true);
        n_refused += crosses;
        n_done += !crosses;
        scene_free(&s);
    }
    assert_true(n_refused > 10 && n_done > 10);
}

/* Blocks that no caller should make are refused, whatever they hold, without a wild access. */
static void test_bad_blocks(void **state) {
    int n_refused = 0;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        scene s;
        scene_make(&s, draw(2) == 0 ? TDM_OP_KV_COPY : TDM_OP_KV_EXPORT);
        static const int32_t odd[] = {INT32_MIN, -2, -1, 0, 1000, 1 << 30, INT32_MAX};
        for (int i = 0; i < 4; i++) s.block[draw(s.layout.size)] = odd[draw(7)];
        for (int32_t d = 0; d < N_MEMBER; d++) n_refused += rewrite(&s, d, NULL) != TDM_OK;
        scene_free(&s);
    }
    assert_true(n_refused > 100);
    scene s;
    scene_make(&s, TDM_OP_KV_SHIFT);
    assert_int_equal(
        meta_step_rewrite(&s.graph, s.pages, N_PAGE, 0, s.block, s.size - 4, s.out[0], NULL),
        TDM_INVALID_ARGUMENT);
    scene_free(&s);
}

int main(void) {
    seed = test_seed("step_block", (uint64_t)time(NULL));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_make_the_whole),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_bad_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
