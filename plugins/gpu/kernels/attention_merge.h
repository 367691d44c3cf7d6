/* SPDX-License-Identifier: MIT
 *
 * attention_merge.h: folds the records of query rows, adds the sink, divides by l, undoes the
 * rotation of V, and stores o, where asked as bytes too. For attention_merge.cu, and for the last
 * workgroup that has parts of some rows (last.h). A team of threads computes one row (a token and a
 * head). The order of sums does not depend on the size of a team.
 */
#ifndef TANDEM_GPU_ATTENTION_MERGE_H
#define TANDEM_GPU_ATTENTION_MERGE_H

#include "attention.h"
#include "bytes_store.h"
#include "last.h"
#include "math.h"

/* What is merged, and where it goes. */
struct MergeTask {
    u64 o, ml, bytes;  // o: f32 [dim, n_head, n_tok]; the others 0 where they are not stored
    u64 records, sink; // sink 0: none
    u64 role;          // of bytes; 0: all are generated
    int n_tok, n_head, n_record, n_used; // records of a row: in memory, and written
    int stored, dim, rotation; // elements of o in a record, of a head; block of the rotation
    int sink_stride;
    int role_stride, role_rows; // rows that share a role
};

// Its shared memory begins where the workgroup's does: it overwrites what the kernel had there.
// AHEAD: parts that are loaded before the first is added. A workgroup has n_team teams of team_size
// threads; threads beyond them take part only in barriers and in the rotation.
template <int AHEAD> struct AttentionMerging : Attention {
    const MergeTask &task;
    const uint team_size, n_team;

    static constexpr int PARTS_AT_ONCE = 64;
    // Of each part, for this team: m and l, the factor for o of the parts before, the factor for
    // its own o (-1: it has no o), and the greatest m so far.
    float *part_m, *part_l, *keep, *gain, *most;

    inline AttentionMerging(const Args &args_, const MergeTask &task_, uint team_size_,
                            uint n_team_)
        : Attention(args_, int(n_team_) * task_.stored), task(task_), team_size(team_size_),
          n_team(n_team_) {
        float *of_parts = shared_take<float>(int(n_team_) * 5 * PARTS_AT_ONCE);
        part_m = of_parts + min(team(), n_team - 1) * (5 * PARTS_AT_ONCE);
        part_l = part_m + PARTS_AT_ONCE;
        keep = part_l + PARTS_AT_ONCE;
        gain = keep + PARTS_AT_ONCE;
        most = gain + PARTS_AT_ONCE;
    }

    // Computed anew by each call (recomputed), so that no register holds them while the kernel
    // computes its part.
    inline uint team() { return recomputed(thread_id()) / team_size; }
    inline uint lane() { return recomputed(thread_id()) % team_size; }

    float m, l; // of the row, over the parts so far

    // Computes the factors of `count` parts, and updates m and l. record: floats of a record;
    // is_row: as of row_merge.
    inline void parts_begin(F32 parts, int record, int count, bool is_row) {
        barrier();
        for (int i = int(lane()); is_row && i < count; i += int(team_size)) {
            part_m[i] = parts.at[i * record];
            part_l[i] = parts.at[i * record + 1];
        }
        barrier();
        for (int i = int(lane()); is_row && i < count; i += int(team_size)) {
            float before = m, own = part_m[i];
            for (int k = 0; k < i; k++) before = max(before, part_m[k]);
            float larger = max(before, own);
            keep[i] = keep_of(before, larger);
            gain[i] = keep_of(own, larger);
            if (own == NEGATIVE_INFINITY) gain[i] = -1.0f;
            most[i] = larger;
        }
        barrier();
        if (!is_row) return;
        for (int i = 0; i < count; i++) {
            if (gain[i] < 0.0f) continue;
            float kept = l * keep[i];
            l = fma(part_l[i], gain[i], kept);
        }
        m = most[count - 1];
    }

    // Adds o of `count` parts to row; a thread has four elements at a time.
    inline void parts_add(u64 parts, int record, int count, float *row) {
        DONT_UNROLL for (int i = 4 * int(lane()); i < task.stored; i += 4 * int(team_size)) {
            vec4 sum = vec4(row[i], row[i + 1], row[i + 2], row[i + 3]);
            DONT_UNROLL for (int first = 0; first < count; first += AHEAD) {
                vec4 o[AHEAD];
                UNROLL for (int k = 0; k < AHEAD; k++) o[k] = bits_to_float(load_16(
                    parts + u64(uint(min(first + k, count - 1) * record + PART_HEAD + i)) * 4));
                UNROLL for (int k = 0; k < AHEAD; k++) {
                    if (first + k >= count) break;
                    const float by = keep[first + k], own = gain[first + k];
                    UNROLL for (int e = 0; e < 4; e++) {
                        float kept = sum[e] * by;
                        if (!(own < 0.0f)) sum[e] = fma(o[k][e], own, kept);
                    }
                }
            }
            UNROLL for (int e = 0; e < 4; e++) row[i + e] = sum[e];
        }
    }

    // Stores o of row `number` as bytes. The heads of a token together are one row of bytes.
    inline void bytes_add(uint number, const float *row) {
        uint n_head = uint(task.n_head), token = number / n_head, n_group = uint(task.dim) / 32;
        const uint of_token = token / uint(task.role_rows) * uint(task.role_stride);
        const bool prompt = task.role != 0 && role_is_prompt(task.role, of_token);
        DONT_UNROLL for (uint first = 0; first < 8 * n_group; first += team_size) {
            uint u = first + lane();
            vec4 v = vec4(0.0f);
            if (u < 8 * n_group && m != NEGATIVE_INFINITY)
                v = vec4(row[4 * u], row[4 * u + 1], row[4 * u + 2], row[4 * u + 3]);
            bytes_store(task.bytes, u64(uint(task.n_tok) * n_head) * n_group,
                        number * n_group + u / 8, u % 8, v, prompt, u < 8 * n_group, token,
                        number == token * n_head && u < 8);
        }
    }

    // Merges row `number` (head + n_head * token) where is_row says that this thread's team has
    // one. All threads of the workgroup call it together, each team with its own row.
    inline void row_merge(uint number, bool is_row) {
        const int record = PART_HEAD + task.stored;
        float *row = row_x + min(team(), n_team - 1) * uint(task.stored);
        const u64 parts = task.records + u64(number * uint(task.n_record)) * u64(uint(record * 4));
        m = NEGATIVE_INFINITY;
        l = 0.0f;
        barrier();
        for (int i = 4 * int(lane()); is_row && i < task.stored; i += 4 * int(team_size))
            UNROLL for (int e = 0; e < 4; e++) row[i + e] = 0.0f;
        DONT_UNROLL for (int first = 0; first < task.n_used; first += PARTS_AT_ONCE) {
            const u64 from = parts + u64(uint(first * record)) * 4;
            int count = min(task.n_used - first, PARTS_AT_ONCE);
            parts_begin(F32(from), record, count, is_row);
            if (is_row) parts_add(from, record, count, row);
        }
        float factor = 0.0f, total = l;
        if (is_row && m != NEGATIVE_INFINITY) {
            factor = 1.0f / l;
            if (task.sink != 0) {
                float sink =
                    F32(task.sink + i64(task.sink_stride) * int(number % uint(task.n_head)) * 4)
                        .at[0];
                // Both are taken relative to the larger of sink and m, so that nothing overflows.
                float extra = sink - m, by = exp_of_negative(-abs(extra));
                total = l + exp_of(extra);
                factor = extra > 0.0f ? by / (l * by + 1.0f) : 1.0f / (l + by);
            }
            for (int i = 4 * int(lane()); i < task.stored; i += 4 * int(team_size))
                UNROLL for (int e = 0; e < 4; e++) row[i + e] *= factor;
        }
        row_rotate(0, int(n_team) * task.stored, task.rotation);
        if (task.rotation <= 1) barrier();
        if (!is_row) return;
        F32 to = F32(task.o + u64(number) * u64(uint(task.dim * 4)));
        for (int i = int(lane()); i < task.dim; i += int(team_size))
            to.at[i] = m == NEGATIVE_INFINITY ? 0.0f : row[i];
        if (task.bytes != 0) bytes_add(number, row);
        if (task.ml == 0 || lane() != 0) return;
        F32 ml = F32(task.ml + u64(number) * 8);
        ml.at[0] = m;
        ml.at[1] = total;
    }
};

/* For kernels with GPU_ATTENTION_MERGES: merges the rows of a tile where this workgroup is the last
 * of the n_group workgroups that have parts of them. tile: number of the tile, which has a counter
 * of its own at operand 5. n_record: records of a row in memory, of which n_used are written. o
 * lies before the records, and its bytes after them (kernel.h). row(i): number of row i of the
 * tile; exists(i): whether there is one. All threads call it, as the last thing they do. */
template <class Row, class Exists>
static inline void parts_merge(const Args &args, uint tile, uint n_group, int n_record, int n_used,
                               int n_row, Row row, Exists exists) {
    constexpr uint MAX_TEAM = 4; // shared.c
    if (!group_is_last(args.address[5] + u64(4) * tile, n_group, (uint *)shared_memory())) return;
    const u64 n_all = u64(recomputed(uint(args.word[7])) * uint(args.word[8]));
    const int dim = int(recomputed(uint(args.spec[3]))),
              flags = int(recomputed(uint(args.spec[5])));
    MergeTask t;
    t.o = args.address[0];
    t.records = t.o + n_all * u64(uint(dim * 4));
    t.bytes = 0;
    if ((flags & 1024) != 0)
        t.bytes =
            t.records + n_all * u64(uint(n_record)) * u64(uint((Attention::PART_HEAD + dim) * 4));
    t.ml = t.sink = 0;
    t.role = args.address[4];
    t.n_tok = args.word[7];
    t.n_head = args.word[8];
    t.n_record = n_record;
    t.n_used = n_used;
    t.stored = t.dim = dim;
    t.rotation = 1 << (flags >> 11 & 15);
    t.sink_stride = 0;
    t.role_stride = t.role_rows = 1;
    const uint n_team = min(group_waves(), MAX_TEAM);
    AttentionMerging<8> merging(args, t, wave_size(), n_team);
    DONT_UNROLL for (int first = 0; first < n_row; first += int(n_team)) {
        const int i = min(first + int(wave_id()), n_row - 1);
        merging.row_merge(uint(row(i)),
                          wave_id() < n_team && first + int(wave_id()) < n_row && exists(i));
    }
}

#endif
