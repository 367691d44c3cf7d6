/* SPDX-License-Identifier: MIT
 *
 * retrieval.c: see retrieval.h.
 */
#include "bench/retrieval.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bench/random_row.h"

enum { N_SPECIAL = 3 };
/* Standard deviation of the weights that are not constructed. */
#define NOISE 0.003f
/* How much higher, in nats, the previous token scores in the first layer than the token itself. */
#define PREVIOUS_GAP 17.0
/* Factor of the recalled code in a model whose output head is the embedding. There it is added to
 * the token's own code, and must outweigh it. */
#define TIED_GAIN 4.0f

/* Where the constructed parts are, in heads and in the stream. */
typedef struct plan {
    int64_t n_code;       /* elements of a code */
    int64_t n_pair;       /* rotated pairs of a head that hold phases */
    int64_t pair_at;      /* first element of these pairs in a query head */
    int64_t code_at;      /* first element of the code in a query head */
    int64_t n_rot;        /* rotated elements of a head, which fix the frequencies of its pairs */
    int64_t first_head;   /* the head of the first layer that reads the previous token */
    int64_t last_head;    /* the induction head */
    int64_t last_head_kv; /* its K and V head */
    float first, last;    /* factors of the norms of the first and the last layer */
    bool is_latent, is_windowed;
} plan;

static plan plan_make(const random_model_spec *s) {
    const random_model_latent *t = &s->latent;
    plan p = {.is_latent = t->n_lora_kv > 0, .is_windowed = s->n_window > 0};
    p.n_code = p.is_latent ? s->head_dim - t->n_rot : s->head_dim / 2;
    p.n_pair = p.is_latent ? t->n_rot / 2 : p.is_windowed ? s->head_dim / 2 : s->head_dim / 4;
    p.pair_at = p.is_latent ? p.n_code : 0;
    p.code_at = p.is_latent ? 0 : s->head_dim / 2;
    p.n_rot = p.is_latent ? t->n_rot : s->head_dim;
    p.last_head_kv = s->n_head_kv - 1;
    p.last_head = p.is_latent ? s->n_head - 1 : p.last_head_kv * (s->n_head / s->n_head_kv);
    /* Squared length of the stream: the constant (two of them where a layer norm subtracts the
     * mean), and one code in the first layer, two in the last. */
    const float squares = p.is_windowed ? 3 : 2;
    p.first = sqrtf((float)s->n_embd / squares);
    p.last = sqrtf((float)s->n_embd / (squares + 1));
    return p;
}

int64_t retrieval_class_size(const random_model_spec *s) {
    return (s->n_vocab - N_SPECIAL) / 3;
}

tdm_status retrieval_check(const random_model_spec *s, tdm_error *err) {
    const plan p = plan_make(s);
    const int64_t n_layer_min = p.is_windowed ? 4 : 2, width_min = 2 + 3 * p.n_code;
    if (s->n_layer < n_layer_min || (p.is_windowed && s->n_layer % 4 != 0))
        return tdm_fail(
            err, TDM_INVALID_ARGUMENT, "layers is %" PRId64 ", but retrieval needs %s", s->n_layer,
            p.is_windowed ? "a multiple of 4, of which the last sees all tokens" : "at least 2");
    if (s->n_embd < width_min)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "width is %" PRId64 ", but retrieval with codes of %" PRId64
                        " needs at least %" PRId64,
                        s->n_embd, p.n_code, width_min);
    if (s->head_dim < 16 || s->head_dim % 4 != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "head-dim is %" PRId64
                        ", but retrieval needs a multiple of 4 that is at least 16",
                        s->head_dim);
    if (p.is_latent && (s->latent.n_lora_q != 0 || s->latent.n_lora_kv < 2 * p.n_code ||
                        s->latent.head_dim_v < p.n_code))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "retrieval with latent attention needs plain queries, a latent row of two "
                        "codes and a V of one; a code has %" PRId64,
                        p.n_code);
    if (!(s->sharpness > 0 && s->sharpness < 1000))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "sharpness is %g, but must be from 0 to 1000",
                        s->sharpness);
    if (s->n_expert > 0 && s->latent.n_layer_dense < s->n_layer)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "experts is %" PRId64 ", but retrieval has none",
                        s->n_expert);
    return TDM_OK;
}

/* Makes the code of a token, of unit length. Its sum is 0, so that a layer norm subtracts
 * nothing. */
static void code_make(const random_model_spec *s, const plan *p, int64_t token, float *dst) {
    const uint64_t key = random_hash_text((uint64_t)s->seed, "code");
    double sum = 0, squares = 0;
    random_row_fill(dst, p->n_code, random_hash_mix(key + (uint64_t)token), 0.0f, 1.0f);
    for (int64_t j = 0; j < p->n_code; ++j) sum += (double)dst[j];
    for (int64_t j = 0; j < p->n_code; ++j) dst[j] -= (float)(sum / (double)p->n_code);
    for (int64_t j = 0; j < p->n_code; ++j) squares += (double)dst[j] * (double)dst[j];
    for (int64_t j = 0; j < p->n_code; ++j) dst[j] *= (float)(1 / sqrt(squares));
}

/* Angle in radians by which pair i of a head rotates from one position to the next. */
static double frequency(const random_model_spec *s, const plan *p, int64_t i) {
    return pow((double)s->rope_base, -2.0 * (double)i / (double)p->n_rot);
}

/* Length of each pair in queries of the first layer. In keys it is 1, about the size of the codes
 * in a latent row: both share quantised blocks there, and larger values would cost the others
 * precision. */
static float phase_length(const random_model_spec *s, const plan *p) {
    double gap = 0;
    for (int64_t i = 0; i < p->n_pair; ++i) gap += 1 - cos(frequency(s, p, i));
    return (float)(PREVIOUS_GAP * sqrt((double)s->head_dim) / gap);
}

/* Parts of the stream, of n_code elements each. */
static int64_t part_own(void) {
    return 1;
}
static int64_t part_before(const plan *p) {
    return 1 + p->n_code;
}
static int64_t part_recalled(const plan *p) {
    return p->is_windowed ? part_own() : 1 + 2 * p->n_code;
}

/* Length of the codes in queries and keys of the induction head: equal codes then score
 * `sharpness`. */
static float code_length(const random_model_spec *s) {
    return sqrtf(s->sharpness * sqrtf((float)s->head_dim));
}

/* Makes the row of element i of a query head. */
static void query_row(const random_model_spec *s, const plan *p, bool is_first, int64_t i,
                      float *dst) {
    const int64_t pair = i - p->pair_at, code = i - p->code_at;
    if (is_first && pair >= 0 && pair < 2 * p->n_pair) {
        const double angle = frequency(s, p, pair / 2);
        /* The phase of the previous position. */
        dst[0] = phase_length(s, p) / p->first * (float)(pair % 2 == 0 ? cos(angle) : -sin(angle));
    } else if (!is_first && code >= 0 && code < p->n_code) {
        dst[part_own() + code] = code_length(s) / p->last;
    }
}

static void key_row(const random_model_spec *s, const plan *p, bool is_first, int64_t i,
                    float *dst) {
    const int64_t pair = i - p->pair_at, code = i - p->code_at;
    if (is_first && pair >= 0 && pair < 2 * p->n_pair && pair % 2 == 0)
        dst[0] = 1 / p->first;
    else if (!is_first && code >= 0 && code < p->n_code)
        dst[part_before(p) + code] = code_length(s) / p->last;
}

static void value_row(const plan *p, bool is_first, int64_t i, float *dst) {
    if (i < p->n_code) dst[part_own() + i] = 1 / (is_first ? p->first : p->last);
}

/* The latent row is [code of the token before | own code | rotating keys]. The norm behind it makes
 * the mean square 1, which gives each code this length. */
static float latent_length(const random_model_spec *s, bool is_first) {
    return sqrtf((float)s->latent.n_lora_kv / (is_first ? 1.0f : 2.0f));
}

static void latent_row(const random_model_spec *s, const plan *p, bool is_first, int64_t i,
                       float *dst) {
    const int64_t rot = i - s->latent.n_lora_kv;
    if (rot >= 0) {
        if (is_first && rot % 2 == 0) dst[0] = 1 / p->first;
    } else if (i < p->n_code) {
        if (!is_first) dst[part_before(p) + i] = 1;
    } else if (i < 2 * p->n_code) {
        dst[part_own() + i - p->n_code] = 1;
    }
}

/* Makes the part of the output matrix by which a head adds to element `row` of the stream; dst has
 * the elements of that head. */
static void output_row(const plan *p, bool is_first, int64_t row, float *dst) {
    const int64_t j = row - (is_first ? part_before(p) : part_recalled(p));
    if (j >= 0 && j < p->n_code) dst[j] = is_first || !p->is_windowed ? 1.0f : TIED_GAIN;
}

static void zero(float *dst, int64_t n) {
    memset(dst, 0, (size_t)n * sizeof *dst);
}

/* Makes the row of a token in token_embd or output. */
static void token_row(const random_model_spec *s, const plan *p, bool is_output, int64_t token,
                      float *dst, int64_t n) {
    zero(dst, n);
    if (is_output) {
        code_make(s, p, token, dst + part_recalled(p));
        /* Gives logits of some tens, so that the softmax does not put all on one token. */
        for (int64_t j = 0; j < p->n_code; ++j) dst[part_recalled(p) + j] *= 2;
        return;
    }
    dst[0] = 1;
    if (p->is_windowed) dst[n - 1] = -1;
    code_make(s, p, token, dst + part_own());
}

void retrieval_row_make(const random_model_spec *s, const char *name, int64_t layer, int64_t row,
                        float *dst, int64_t n) {
    const plan p = plan_make(s);
    const bool is_first = layer == 0, is_last = layer == s->n_layer - 1;
    const int64_t head = is_first ? p.first_head : p.last_head;
    const int64_t head_kv = is_first ? 0 : p.last_head_kv;
    const int64_t v_dim = p.is_latent ? s->latent.head_dim_v : s->head_dim;
    for (int64_t i = 0; i < n; ++i) dst[i] *= NOISE;
    if (strcmp(name, "token_embd.weight") == 0) token_row(s, &p, false, row, dst, n);
    if (strcmp(name, "output.weight") == 0) token_row(s, &p, true, row, dst, n);
    if (!is_first && !is_last) return;
    if (strcmp(name, "attn_q.weight") == 0 && row / s->head_dim == head) {
        zero(dst, n);
        query_row(s, &p, is_first, row % s->head_dim, dst);
    } else if (strcmp(name, "attn_k.weight") == 0 && row / s->head_dim == head_kv) {
        zero(dst, n);
        key_row(s, &p, is_first, row % s->head_dim, dst);
    } else if (strcmp(name, "attn_v.weight") == 0 && row / s->head_dim == head_kv) {
        zero(dst, n);
        value_row(&p, is_first, row % s->head_dim, dst);
    } else if (strcmp(name, "attn_kv_a_mqa.weight") == 0) {
        zero(dst, n);
        latent_row(s, &p, is_first, row, dst);
    } else if (strcmp(name, "attn_k_b.weight") == 0 && row / s->latent.n_lora_kv == head) {
        const int64_t j = row % s->latent.n_lora_kv;
        zero(dst, n);
        if (!is_first && j < p.n_code) dst[j] = code_length(s) / latent_length(s, is_first);
    } else if (strcmp(name, "attn_v_b.weight") == 0 && row / v_dim == head) {
        const int64_t j = row % v_dim;
        zero(dst, n);
        if (j < p.n_code) dst[p.n_code + j] = 1 / latent_length(s, is_first);
    } else if (strcmp(name, "attn_output.weight") == 0) {
        /* The other heads add a tenth of the noise to the stream. */
        for (int64_t i = 0; i < n; ++i) dst[i] *= 0.1f;
        zero(dst + head * v_dim, v_dim);
        output_row(&p, is_first, row, dst + head * v_dim);
    }
}
