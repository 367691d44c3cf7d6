/* SPDX-License-Identifier: MIT
 *
 * route.cu: MOE_ROUTE (tdm_route_params of op.h): a workgroup chooses the experts of a token. See
 * GPU_KERNEL_ROUTE.
 */
#include "math.h"
#include "rank.h"

struct Route : Rank {
    inline explicit Route(const Args &args_) : Rank(args_) {}

    const int SCORE = SPEC0;
    const bool HAS_BIAS = SPEC1 != 0, NORMALIZES = SPEC2 != 0;
    const int N_GROUP = SPEC3; // 1: no groups
    const bool IS_GIVEN = SPEC4 != 0;
    enum { SOFTMAX = 0, SIGMOID = 1, TOP_SOFTMAX = 2, SQRT_SOFTPLUS = 3 }; // tdm_route_score

    float *score = shared_take<float>(LIST_LEN);
    uint *is_kept = shared_take<uint>(LIST_LEN / 32); // a bit for each group

    uint lid, size, n_expert, n_used, tok;

    inline float choice_of(uint e) {
        return HAS_BIAS ? score[e] + F32(args.address[3]).at[e * uint(args.word[4])] : score[e];
    }

    inline float score_of(float x) {
        return SCORE == SIGMOID         ? sigmoid_of(x)
               : SCORE == SQRT_SOFTPLUS ? sqrt_of(softplus_of(x))
                                        : x;
    }

    inline void scores_fill(uint logit_at) {
        float greatest = NEGATIVE_INFINITY, sum = 0.0f;
        for (uint e = lid; e < n_expert; e += size) {
            float x = F32(args.address[2]).at[logit_at + e * uint(args.word[2])];
            score[e] = score_of(x);
            if (!is_nan(x)) greatest = max(greatest, x);
        }
        if (SCORE != SOFTMAX) return;
        greatest = group_max(greatest);
        for (uint e = lid; e < n_expert; e += size) {
            score[e] = softmax_term(score[e], greatest);
            sum += score[e];
        }
        sum = group_sum(sum);
        for (uint e = lid; e < n_expert; e += size)
            if (sum != 0.0f) score[e] = score[e] / sum;
    }

    // Sets is_kept for the n_group_used best groups. A group's rank is its best choice; with scores
    // of SIGMOID and SQRT_SOFTPLUS it is the sum of its two best choices.
    inline void groups_choose() {
        uint len = n_expert / N_GROUP, padded = power_above(N_GROUP);
        for (uint g = lid; g < padded; g += size) {
            u64 best = u64(0), second = u64(0);
            for (uint e = g * len; g < uint(N_GROUP) && e < (g + 1) * len; e++) {
                u64 entry = entry_of(choice_of(e), e);
                second = max(second, min(best, entry));
                best = max(best, entry);
            }
            list[g] = u64(0);
            if (g >= N_GROUP) continue;
            float rank = choice_of(entry_index(best));
            if ((SCORE == SIGMOID || SCORE == SQRT_SOFTPLUS) && second != u64(0))
                rank += choice_of(entry_index(second));
            list[g] = entry_of(rank, g);
        }
        for (uint i = lid; i < LIST_LEN / 32; i += size) is_kept[i] = 0;
        list_sort(padded);
        for (uint i = lid; i < uint(args.word[6]); i += size) {
            uint g = entry_index(list[i]);
            shared_or(&is_kept[g / 32], 1u << (g & 31u));
        }
        barrier();
    }

    // The expert with rank u. 0xffffffff: the given one does not exist.
    inline uint expert_at(uint u) {
        if (!IS_GIVEN) return entry_index(list[u]);
        uint e = uint(I32(args.address[4]).at[u * uint(args.word[9]) + tok * uint(args.word[10])]);
        return e < n_expert ? e : 0xffffffffu;
    }

    // The score of what expert_at() returns. An expert that does not exist gets a score that gives
    // the weight 0 and does not change a softmax over the others.
    inline float expert_score(uint e) {
        if (!IS_GIVEN || e < n_expert) return score[e];
        return SCORE == TOP_SOFTMAX ? NEGATIVE_INFINITY : 0.0f;
    }

    // Sorts the experts by choice.
    inline void experts_choose() {
        if (N_GROUP > 1) groups_choose();
        uint padded = power_above(n_expert), len = n_expert / N_GROUP;
        for (uint e = lid; e < padded; e += size) {
            bool is_open = e < n_expert;
            if (N_GROUP > 1 && is_open) {
                uint g = e / len;
                is_open = (is_kept[g / 32] >> (g & 31u) & 1u) != 0u;
            }
            list[e] = is_open ? entry_of(choice_of(e), e) : u64(0);
        }
        list_sort(padded);
    }

    inline void run() {
        tok = group_number();
        if (tok >= uint(args.word[1])) return;
        lid = thread_id();
        size = group_size();
        n_expert = uint(args.word[0]);
        n_used = uint(args.word[5]);
        scores_fill(tok * uint(args.word[3]));
        barrier();
        if (!IS_GIVEN) experts_choose();
        float greatest = NEGATIVE_INFINITY, all = 0.0f, sum = 0.0f;
        for (uint u = lid; u < n_used; u += size) {
            float weight = expert_score(expert_at(u));
            if (!is_nan(weight)) greatest = max(greatest, weight);
        }
        if (SCORE == TOP_SOFTMAX) {
            greatest = group_max(greatest);
            for (uint u = lid; u < n_used; u += size)
                all += softmax_term(expert_score(expert_at(u)), greatest);
            all = group_sum(all);
        }
        // Where weights are normalised, pass 0 sums them and pass 1 computes them again, with the
        // same bits: they are not kept in between.
        for (uint pass = NORMALIZES ? 0 : 1; pass < 2; pass++) {
            float factor = bits_to_float(args.word[7]);
            if (NORMALIZES && pass == 1) {
                sum = group_sum(sum);
                if (sum != 0.0f) factor /= sum;
            }
            for (uint u = lid; u < n_used; u += size) {
                uint e = expert_at(u);
                float weight = expert_score(e);
                if (SCORE == TOP_SOFTMAX) {
                    weight = softmax_term(weight, greatest);
                    if (all != 0.0f) weight /= all;
                }
                if (pass == 0) {
                    sum += weight;
                    continue;
                }
                I32(args.address[0]).at[tok * n_used + u] = int(e) / args.word[8];
                F32(args.address[1]).at[tok * n_used + u] = weight * factor;
            }
        }
    }
};

GPU_KERNEL(route, Route)
