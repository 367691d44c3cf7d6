// SPDX-License-Identifier: MIT
//
// route.comp: MOE_ROUTE (tdm_route_params of op.h): a workgroup chooses the experts of a token. See
// GPU_KERNEL_ROUTE.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "math.glsl"
#include "reduce.glsl"
#include "rank.glsl"

const int SCORE = SPEC0;
const bool HAS_BIAS = SPEC1 != 0, NORMALIZES = SPEC2 != 0;
const int N_GROUP = SPEC3; // 1: no groups
const bool IS_GIVEN = SPEC4 != 0;
const int SOFTMAX = 0, SIGMOID = 1, TOP_SOFTMAX = 2, SQRT_SOFTPLUS = 3; // tdm_route_score

shared float score[LIST_LEN];
shared uint is_kept[LIST_LEN / 32]; // a bit for each group

uint lid, size, n_expert, n_used, tok;

float choice_of(uint e) {
    return HAS_BIAS ? score[e] + F32(args.address[3]).at[e * uint(args.word[4])] : score[e];
}

float score_of(float x) {
    return SCORE == SIGMOID ? sigmoid_of(x) : SCORE == SQRT_SOFTPLUS ? sqrt_of(softplus_of(x)) : x;
}

void scores_fill(uint logit_at) {
    float greatest = NEGATIVE_INFINITY, sum = 0.0;
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
        if (sum != 0.0) score[e] = score[e] / sum;
}

// Keeps the best groups: those whose best choice, or sum of the two best where scores are no
// softmax, is greatest.
void groups_choose() {
    uint len = n_expert / N_GROUP, padded = power_above(N_GROUP);
    for (uint g = lid; g < padded; g += size) {
        uint64_t best = 0ul, second = 0ul;
        for (uint e = g * len; g < N_GROUP && e < (g + 1) * len; e++) {
            uint64_t entry = entry_of(choice_of(e), e);
            second = max(second, min(best, entry));
            best = max(best, entry);
        }
        list[g] = 0ul;
        if (g >= N_GROUP) continue;
        float rank = choice_of(entry_index(best));
        if ((SCORE == SIGMOID || SCORE == SQRT_SOFTPLUS) && second != 0ul)
            rank += choice_of(entry_index(second));
        list[g] = entry_of(rank, g);
    }
    for (uint i = lid; i < LIST_LEN / 32; i += size) is_kept[i] = 0;
    list_sort(padded);
    for (uint i = lid; i < uint(args.word[6]); i += size) {
        uint g = entry_index(list[i]);
        atomicOr(is_kept[g / 32], 1u << (g & 31u));
    }
    barrier();
}

// The expert of place u; 0xffffffff where one is given that does not exist.
uint expert_at(uint u) {
    if (!IS_GIVEN) return entry_index(list[u]);
    uint e = uint(I32(args.address[4]).at[u * uint(args.word[9]) + tok * uint(args.word[10])]);
    return e < n_expert ? e : 0xffffffffu;
}

// The score of an expert of expert_at. One that does not exist gets weight 0: a softmax is over the
// others.
float expert_score(uint e) {
    if (!IS_GIVEN || e < n_expert) return score[e];
    return SCORE == TOP_SOFTMAX ? NEGATIVE_INFINITY : 0.0;
}

// Sorts the experts by choice.
void experts_choose() {
    if (N_GROUP > 1) groups_choose();
    uint padded = power_above(n_expert), len = n_expert / N_GROUP;
    for (uint e = lid; e < padded; e += size) {
        bool is_open = e < n_expert;
        if (N_GROUP > 1 && is_open) {
            uint g = e / len;
            is_open = (is_kept[g / 32] >> (g & 31u) & 1u) != 0u;
        }
        list[e] = is_open ? entry_of(choice_of(e), e) : 0ul;
    }
    list_sort(padded);
}

void main() {
    tok = group_number();
    if (tok >= uint(args.word[1])) return;
    lid = gl_LocalInvocationID.x;
    size = gl_WorkGroupSize.x;
    n_expert = uint(args.word[0]);
    n_used = uint(args.word[5]);
    scores_fill(tok * uint(args.word[3]));
    barrier();
    if (!IS_GIVEN) experts_choose();
    float greatest = NEGATIVE_INFINITY, all = 0.0, sum = 0.0;
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
    // The first pass sums the weights that the second one normalises. It does not store them: both
    // passes compute the same bits.
    for (uint pass = NORMALIZES ? 0 : 1; pass < 2; pass++) {
        float factor = intBitsToFloat(args.word[7]);
        if (NORMALIZES && pass == 1) {
            sum = group_sum(sum);
            if (sum != 0.0) factor /= sum;
        }
        for (uint u = lid; u < n_used; u += size) {
            uint e = expert_at(u);
            float weight = expert_score(e);
            if (SCORE == TOP_SOFTMAX) {
                weight = softmax_term(weight, greatest);
                if (all != 0.0) weight /= all;
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
