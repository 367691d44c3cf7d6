/* SPDX-License-Identifier: MIT
 *
 * random_data.c: see random_data.h.
 */
#include "tests/split/random_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quant/convert.h"
#include "tests/kernels/block_facts.h"

static double unit(uint64_t *random) {
    return (double)(int64_t)(random_u64(random) >> 11) * 0x1p-52 - 1;
}

/* The last bit of what is stored in 16 bits, relative to it. */
static const double f16_step = 1e-3, bf16_step = 8e-3;

/* Another pattern of noise for every strength. */
static uint64_t noise_seed(uint64_t random, double noise) {
    uint64_t bits;
    memcpy(&bits, &noise, sizeof bits);
    return random ^ bits * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t seed_of(const char *name, uint64_t seed) {
    for (; *name != '\0'; name++) seed = (seed ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return seed;
}

/* ---- Weights ---- */

/* The second scale, of the minimum, so that numbers lie on both sides of 0. */
static double minimum_of(tdm_type type, double scale) {
    switch ((int)type) {
    case TDM_TYPE_Q4_1: return -7.5 * scale;
    case TDM_TYPE_Q5_1: return -15.5 * scale;
    case TDM_TYPE_Q4_K: return 7.5 * scale;
    case TDM_TYPE_Q5_K: return 15.5 * scale;
    default: return 1.5 * scale;
    }
}

/* Noise for what is stored in 16 bits, `step` being its last bit relative to it. Larger noise
 * multiplies the number; of smaller noise that bit changes, as often as it is a part of a step. */
static double noise_factor(double noise, double step, uint64_t *random) {
    return noise > step ? 1 + noise * unit(random) : 1;
}

static void bit_flip(uint8_t *bytes, double noise, double step, uint64_t *random) {
    if (noise > 0 && noise <= step && 0.5 + 0.5 * unit(random) < noise / step) bytes[0] ^= 1;
}

static void blocks_fill(tdm_type type, uint8_t *bytes, size_t size, double wanted, double noise,
                        uint64_t *random) {
    uint64_t noise_random = noise_seed(*random, noise);
    tdm_type_info info = tdm_type_get_info(type);
    made_block_facts facts = made_block_facts_of(type);
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t word = random_u64(random);
        memcpy(bytes + i, &word, sizeof word);
    }
    for (size_t i = size / 8 * 8; i < size; i++) bytes[i] = (uint8_t)random_u64(random);
    for (size_t at = 0; at < size; at += (size_t)info.block_size) {
        double scale = wanted / facts.size * (1 + 0.3 * unit(random));
        if ((random_u64(random) >> 40 & 1) != 0 && facts.scale_off[1] < 0) scale = -scale;
        scale *= noise_factor(noise, f16_step, &noise_random);
        uint16_t half = tdm_f32_to_f16((float)scale);
        memcpy(bytes + at + facts.scale_off[0], &half, sizeof half);
        bit_flip(bytes + at + facts.scale_off[0], noise, f16_step, &noise_random);
        half = tdm_f32_to_f16((float)minimum_of(type, scale));
        if (facts.scale_off[1] >= 0) memcpy(bytes + at + facts.scale_off[1], &half, sizeof half);
    }
}

/* Numbers of a plain weight; the first letter of its name gives its purpose. */
static float plain_number(char kind, double wanted, uint64_t *random) {
    double u = unit(random);
    switch (kind) {
    case 'n': return (float)(1 + 0.5 * u);
    case 'b': return (float)(0.3 * u);
    case 's': return (float)(2 * u);
    case 'f': return (float)(2 + u);
    default: return (float)(1.7 * wanted * u);
    }
}

void *random_weight(const tdm_graph *graph, int32_t value, uint64_t seed, double noise) {
    const tdm_value *v = tdm_graph_value(graph, value);
    const char *name = tdm_graph_value_name(graph, value);
    const tdm_type type = (tdm_type)v->type;
    size_t size = (size_t)tdm_shape_rows(v->ne) * tdm_type_row_size(type, v->ne[0]);
    int64_t n = tdm_shape_count(v->ne);
    uint64_t random = seed_of(name, seed), noise_random = noise_seed(random, noise);
    double wanted = v->ne[0] > 0 ? 1 / sqrt((double)v->ne[0]) : 1;
    uint8_t *bytes = malloc(size + 8);
    if (bytes == NULL) return NULL;
    if (tdm_type_get_info(type).is_quantized) {
        blocks_fill(type, bytes, size, wanted, noise, &random);
        return bytes;
    }
    size_t each = tdm_type_row_size(type, 1);
    double step = type == TDM_TYPE_F32 ? 0 : type == TDM_TYPE_F16 ? f16_step : bf16_step;
    for (int64_t i = 0; i < n; i++) {
        float x = plain_number(name[0], wanted, &random);
        x *= (float)noise_factor(noise, step, &noise_random);
        tdm_row_quantize(type, &x, bytes + (size_t)i * each, 1, NULL);
        bit_flip(bytes + (size_t)i * each, noise, step, &noise_random);
    }
    return bytes;
}

void *random_input(const tdm_graph *graph, int32_t value, uint64_t seed, int32_t at,
                   int32_t n_row_max, double noise) {
    const tdm_value *v = tdm_graph_value(graph, value);
    int64_t n = tdm_shape_count(v->ne);
    uint64_t random = seed_of(tdm_graph_value_name(graph, value), seed + (uint64_t)at * 977);
    uint64_t noise_random = noise_seed(random, noise);
    void *bytes = malloc((size_t)n * 4 + 4);
    float *floats = bytes;
    int32_t *ids = bytes;
    if (bytes == NULL) return NULL;
    for (int64_t i = 0; i < n; i++) {
        if (v->type == TDM_TYPE_I32)
            ids[i] = (int32_t)(random_u64(&random) >> 33) % (n_row_max + 1) - 1;
        else
            floats[i] = (float)(1.7 * unit(&random) * (1 + noise * unit(&noise_random)));
    }
    return bytes;
}

/* ---- Caches ---- */

bool random_cache_begin(random_cache *cache, const random_case *facts) {
    memset(cache, 0, sizeof *cache);
    cache->facts = facts;
    cache->random = facts->data_seed ^ 0xcac4e;
    for (int c = 0; c < RANDOM_MAX_CLASS; c++) {
        int32_t n = (int32_t)facts->n_page[c];
        int32_t *order = cache->cls[c].order = malloc(((size_t)n + 1) * sizeof *order);
        if (order == NULL) {
            random_cache_end(cache);
            return false;
        }
        for (int32_t i = 0; i < n; i++) order[i] = i;
        for (int32_t i = n - 1; i > 0; i--) {
            int32_t j = (int32_t)(random_u64(&cache->random) % (uint64_t)(i + 1)), t = order[i];
            order[i] = order[j];
            order[j] = t;
        }
    }
    return true;
}

void random_cache_end(random_cache *cache) {
    for (int c = 0; c < RANDOM_MAX_CLASS; c++) free(cache->cls[c].order);
}

/* A cell for the next token of a sequence. */
static int32_t cell_take(random_cache *cache, int c, int32_t s) {
    struct random_class *cls = &cache->cls[c];
    int32_t page_len = cache->facts->page_len[c], n = cls->n_entry[s];
    tdm_page_entry *e = n > 0 ? &cls->entries[s][n - 1] : NULL;
    if (e == NULL || cls->is_shared[s][n - 1] || e->first + e->count == page_len) {
        e = &cls->entries[s][n];
        *e = (tdm_page_entry){cls->order[cls->n_taken++], 0, 0, cache->base + cache->n_tok[s]};
        cls->is_shared[s][n] = false;
        cls->n_entry[s]++;
    }
    return e->page * page_len + e->first + e->count++;
}

/* Gives an empty sequence the first tokens of sequence 0. */
static void fork_first(random_cache *cache, int32_t s) {
    int32_t n_tok = (int32_t)(random_u64(&cache->random) % (uint64_t)(cache->n_tok[0] + 1));
    for (int c = 0; c < RANDOM_MAX_CLASS; c++) {
        struct random_class *cls = &cache->cls[c];
        int32_t at = 0;
        for (int32_t i = 0; i < cls->n_entry[0] && at < n_tok; i++) {
            tdm_page_entry e = cls->entries[0][i];
            if (e.count > n_tok - at) e.count = n_tok - at;
            cls->entries[s][cls->n_entry[s]] = e;
            cls->is_shared[s][cls->n_entry[s]++] = true;
            at += e.count;
        }
    }
    cache->n_tok[s] = n_tok;
}

static int32_t *step_make(const tdm_step_caps *caps, tdm_step_header *header) {
    if (tdm_step_layout(caps, header, NULL) != TDM_OK) return NULL;
    int32_t *step = calloc((size_t)header->size + 1, sizeof *step);
    if (step != NULL) memcpy(step, header, sizeof *header);
    return step;
}

static void tables_write(const random_cache *cache, const tdm_step_header *header, int32_t *step) {
    for (int c = 0; c < RANDOM_MAX_CLASS; c++) {
        const struct random_class *cls = &cache->cls[c];
        int32_t *first = step + header->cls[c].first_entry_off, n = 0;
        for (int32_t s = 0; s < cache->facts->n_seq; s++) {
            first[s] = n;
            memcpy(step + header->cls[c].entry_off + 4 * n, cls->entries[s],
                   (size_t)cls->n_entry[s] * sizeof *cls->entries[s]);
            n += cls->n_entry[s];
        }
        for (int32_t s = cache->facts->n_seq; s <= cache->facts->caps.n_seq; s++) first[s] = n;
    }
}

/* Where each sequence's recurrent states come from and go to; its tokens are neighbours. */
static void slots_write(random_cache *cache, const tdm_step_header *header, int32_t n,
                        int32_t *step) {
    const random_case *f = cache->facts;
    int32_t at = 0;
    for (int32_t s = 0; s < f->caps.n_seq; s++) {
        step[header->first_tok_off + s] = at;
        step[header->rs_read_off + s] = -1;
        for (; at < n && step[header->seq_off + at] == s; at++)
            step[header->rs_write_off + at] = -1;
        if (at == step[header->first_tok_off + s]) continue;
        if (cache->slot[s] > 0) step[header->rs_read_off + s] = 2 * s + cache->slot[s] % 2;
        step[header->rs_write_off + at - 1] = 2 * s + ++cache->slot[s] % 2;
    }
    step[header->first_tok_off + f->caps.n_seq] = at;
    for (int32_t i = n; i < f->caps.n_tok; i++) step[header->rs_write_off + i] = -1;
}

int32_t *random_cache_step(random_cache *cache) {
    const random_case *f = cache->facts;
    tdm_step_header header;
    int32_t *step = step_make(&f->caps, &header);
    if (step == NULL) return NULL;
    int32_t cap = f->caps.n_tok, n = cap;
    if (random_u64(&cache->random) % 3 == 0)
        n = (int32_t)(random_u64(&cache->random) % (uint64_t)cap) + 1;
    for (int32_t s = 1; s < f->n_seq; s++)
        if (cache->n_tok[s] == 0 && random_u64(&cache->random) % 2 == 0) fork_first(cache, s);
    /* Tokens of a sequence stay together. */
    int32_t s = 0;
    for (int32_t i = 0; i < cap; i++) {
        bool is_used = i < n;
        if (is_used && i > 0 && s + 1 < f->n_seq && random_u64(&cache->random) % 3 == 0) s++;
        step[header.token_off + i] =
            is_used ? (int32_t)(random_u64(&cache->random) >> 40) % f->n_row_max : -1;
        step[header.pos_off + i] = is_used ? cache->base + cache->n_tok[s] : -1;
        step[header.seq_off + i] = is_used ? s : 0;
        for (int c = 0; c < RANDOM_MAX_CLASS; c++)
            step[header.cls[c].write_off + i] = is_used ? cell_take(cache, c, s) : -1;
        if (is_used) cache->n_tok[s]++;
    }
    for (int32_t i = 0; i < f->caps.n_out; i++)
        step[header.out_row_off + i] = (int32_t)(random_u64(&cache->random) >> 40) % n;
    tdm_step_header *h = (tdm_step_header *)(void *)step;
    h->n_tok = n;
    h->n_seq = f->n_seq;
    h->n_out = f->caps.n_out;
    tables_write(cache, &header, step);
    slots_write(cache, &header, n, step);
    return step;
}

/* Adds a job for each entry that is not shared. */
static int32_t jobs_of_entries(const random_cache *cache, int c, int32_t arg, tdm_page_job *jobs) {
    const struct random_class *cls = &cache->cls[c];
    int32_t n = 0;
    for (int32_t s = 0; s < cache->facts->n_seq; s++)
        for (int32_t i = 0; i < cls->n_entry[s]; i++) {
            const tdm_page_entry *e = &cls->entries[s][i];
            if (cls->is_shared[s][i]) continue;
            jobs[n++] = (tdm_page_job){e->page, e->first, e->count, arg};
        }
    return n;
}

/* Every page that is in use goes to a fresh one. */
static int32_t jobs_of_moves(random_cache *cache, int c, bool is_import, tdm_page_job *jobs) {
    struct random_class *cls = &cache->cls[c];
    int32_t page_len = cache->facts->page_len[c], n = 0, n_old = cls->n_taken;
    int32_t most = (int32_t)cache->facts->n_page[c] / 2; /* the rest is for tokens to come */
    for (int32_t i = 0; i < n_old && cls->n_taken < most; i++) {
        int32_t from = cls->order[i], to = cls->order[cls->n_taken], count = 0;
        for (int32_t s = 0; s < cache->facts->n_seq; s++)
            for (int32_t e = 0; e < cls->n_entry[s]; e++) {
                tdm_page_entry *entry = &cls->entries[s][e];
                if (entry->page != from) continue;
                if (entry->first + entry->count > count) count = entry->first + entry->count;
                entry->page = to;
            }
        if (count == 0) continue;
        cls->n_taken++;
        jobs[n++] = (tdm_page_job){to, 0, count, is_import ? from * page_len : from};
    }
    return n;
}

int32_t *random_cache_upkeep(random_cache *cache, random_upkeep kind, int32_t c) {
    const random_case *f = cache->facts;
    tdm_step_caps caps = {.n_job = (int32_t)f->n_page[c] * 2, .n_class = RANDOM_MAX_CLASS};
    tdm_step_header header;
    int32_t *step = step_make(&caps, &header), n = 0;
    if (step == NULL) return NULL;
    tdm_page_job *jobs = (tdm_page_job *)(void *)(step + header.job_off);
    if (kind == RANDOM_SHIFT) {
        n = jobs_of_entries(cache, c, f->shift, jobs);
        for (int32_t s = 0; s < f->n_seq; s++)
            for (int32_t e = 0; e < cache->cls[c].n_entry[s]; e++)
                cache->cls[c].entries[s][e].base_pos += f->shift;
        if (c == RANDOM_MAX_CLASS - 1) cache->base += f->shift;
    } else if (kind == RANDOM_EXPORT) {
        n = jobs_of_entries(cache, c, 0, jobs);
        for (int32_t i = 0; i < n; i++) jobs[i].arg = jobs[i].page * f->page_len[c] + jobs[i].first;
    } else {
        n = jobs_of_moves(cache, c, kind == RANDOM_IMPORT, jobs);
    }
    for (int32_t i = n; i < caps.n_job; i++) jobs[i] = (tdm_page_job){.page = -1};
    ((tdm_step_header *)(void *)step)->n_job = n;
    return step;
}
