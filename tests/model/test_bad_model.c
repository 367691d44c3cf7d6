/* SPDX-License-Identifier: MIT
 *
 * test_bad_model.c: valid GGUF files that are no valid models (missing, misshapen or superfluous
 * tensors, impossible keys), and headers with any bit inverted. Each gives one line of error that
 * names the file and the fault, or a model that runs; never a crash.
 * tests/unit/test_gguf_corrupt.c tests faults of the file's structure.
 */
#include "tests/model/rig.h"

#include <math.h>

#include "llm/arch/arch.h"
#include "llm/gguf/gguf_write.h"
#include "tests/model/arch_fixture.h"
#include "tests/model/preset.h"

static const char *good_path, *tied_path, *latent_path, *mixed_path, *recurrent_path, *fixture_path,
    *bad_path;

static void fixture_write(const char *name, const char *path) {
    char head_path[96];
    snprintf(head_path, sizeof head_path, "tests/model/archs/%s.head", name);
    char *head = rig_source_file(head_path);
    assert_non_null(head);
    assert_true(arch_fixture_write(head, name, 1, path));
    free(head);
}

static int begin(void **state) {
    tdm_error err = {0};
    if (rig_begin(state) != 0) return -1;
    random_model_spec spec = preset_find("tiny-mixtral");
    spec.n_layer = 2;
    spec.n_embd = 64;
    spec.n_ff = 64;
    spec.n_head = 2;
    spec.n_head_kv = 1;
    spec.head_dim = 32;
    spec.n_vocab = 300;
    spec.type = TDM_TYPE_Q8_0;
    good_path = rig_file("good.gguf");
    bad_path = rig_file("bad.gguf");
    RIG_OK(random_model_write(&spec, good_path, NULL, NULL, NULL, &err));
    tied_path = rig_file("tied.gguf");
    spec.is_tied = true;
    RIG_OK(random_model_write(&spec, tied_path, NULL, NULL, NULL, &err));
    latent_path = rig_file("latent.gguf");
    spec = preset_find("tiny-deepseek2");
    spec.n_layer = 2;
    spec.n_vocab = 300;
    spec.rope = RANDOM_MODEL_ROPE_YARN;
    RIG_OK(random_model_write(&spec, latent_path, NULL, NULL, NULL, &err));
    mixed_path = rig_file("mixed.gguf");
    fixture_write("afmoe-moe", mixed_path);
    recurrent_path = rig_file("recurrent.gguf");
    fixture_write("qwen35-dense", recurrent_path);
    fixture_path = rig_file("fixture.gguf");
    return 0;
}

/* ---- Trying a file ---- */

/* Opens, loads and decodes. With a failure, *err has its message and everything is released. */
static tdm_status model_try(const char *path, tdm_error *err) {
    int32_t tokens[2] = {1, 2};
    static const tdm_type f32 = TDM_TYPE_F32;
    llm_context_params params = {.struct_size = sizeof params,
                                 .n_ctx = 64,
                                 .type_k = &f32,
                                 .type_v = &f32,
                                 .begins_decoder = true};
    const llm_batch batch = {tokens, NULL, NULL, 2};
    llm_model *model = NULL;
    llm_context *ctx = NULL;
    tdm_open_device *dev = rig_device(NULL, "fast", 1);
    tdm_status status = llm_model_open(path, &model, err);
    if (status == TDM_OK) params.gives_embeddings = model->arch->is_encoder;
    if (status == TDM_OK && model->hparams.n_layer_encoder > 0)
        tokens[1] = model->hparams.decoder_start;
    if (status == TDM_OK) status = llm_model_load(model, rig_runtime(), &dev, 1, NULL, NULL, err);
    if (status == TDM_OK) status = llm_context_create(model, &params, &ctx, err);
    if (status == TDM_OK) status = llm_context_decode(ctx, &batch, err);
    llm_context_destroy(ctx);
    llm_model_close(model);
    return status;
}

/* ---- Files with one thing wrong ---- */

typedef enum edit_kind {
    KEEP,
    KEY_DROP,
    KEY_U32,
    KEY_F32,
    KEY_TEXT,
    TENSOR_DROP,
    TENSOR_NEW,   /* beside those there are */
    TENSOR_SHAPE, /* n x m in place of the tensor */
    TENSOR_NAME,  /* `text` in place of the tensor's */
    TENSOR_TYPE   /* n is a number that no type has */
} edit_kind;

typedef struct edit {
    edit_kind kind;
    const char *name; /* of the key or tensor */
    int64_t n, m;
    double number;
    const char *text;
    const char *words[2]; /* that the message must contain */
    bool is_tied;         /* of the file to begin with: has no head of its own */
    bool is_latent;       /* likewise: a DeepSeek-2 of two layers, one dense */
    bool is_mixed;        /* likewise: an AFMoE of two layers, one dense, one with a window */
    bool is_recurrent;    /* likewise: a Qwen 3.5 */
    const char *fixture;  /* likewise: a fixture of tests/model/archs, in fixture_path */
} edit;

static void tensor_write(llm_gguf_writer *w, int64_t n_float) {
    tdm_error err = {0};
    static const float zeros[1024];
    for (int64_t left = n_float; left > 0; left -= 1024)
        RIG_OK(llm_gguf_writer_write(w, zeros, (size_t)(left < 1024 ? left : 1024) * 4, &err));
}

static void edit_keys(const edit *e, const llm_gguf *in, llm_gguf_writer *out) {
    for (uint32_t i = 0; i < llm_gguf_key_count(in); i++) {
        const llm_gguf_key *key = llm_gguf_key_at(in, i);
        bool is_it = strcmp(key->name, e->name) == 0;
        if (!is_it || e->kind < KEY_DROP || e->kind > KEY_TEXT) llm_gguf_writer_put_key(out, key);
    }
    if (e->kind == KEY_U32) llm_gguf_writer_put_u32(out, e->name, (uint32_t)e->n);
    if (e->kind == KEY_F32) llm_gguf_writer_put_f32(out, e->name, (float)e->number);
    if (e->kind == KEY_TEXT) llm_gguf_writer_put_text(out, e->name, e->text);
}

/* Copies a file with one change. */
static void edit_copy(const edit *e, const char *from, const char *to) {
    tdm_error err = {0};
    llm_gguf *in = NULL;
    llm_gguf_writer *out = NULL;
    const int64_t ne[4] = {e->n, e->m, 1, 1};
    RIG_OK(llm_gguf_open(from, &in, &err));
    RIG_OK(llm_gguf_writer_create(to, &out, &err));
    edit_keys(e, in, out);
    for (int pass = 0; pass < 2; pass++) { /* descriptions, then data */
        for (uint32_t i = 0; i < llm_gguf_tensor_count(in); i++) {
            const llm_gguf_tensor *t = llm_gguf_tensor_at(in, i);
            bool is_it = strcmp(t->name, e->name) == 0;
            if (is_it && e->kind == TENSOR_DROP) continue;
            bool is_reshaped = is_it && e->kind == TENSOR_SHAPE;
            if (pass == 0 && is_reshaped)
                llm_gguf_writer_add_tensor(out, t->name, TDM_TYPE_F32, 2, ne);
            else if (pass == 0)
                llm_gguf_writer_add_tensor(out, is_it && e->kind == TENSOR_NAME ? e->text : t->name,
                                           t->type, t->n_dims, t->ne);
            else if (is_reshaped)
                tensor_write(out, e->n * e->m);
            else
                RIG_OK(llm_gguf_writer_write(out, t->data, t->size, &err));
        }
        if (e->kind != TENSOR_NEW) continue;
        if (pass == 0)
            llm_gguf_writer_add_tensor(out, e->name, TDM_TYPE_F32, 2, ne);
        else
            tensor_write(out, e->n * e->m);
    }
    RIG_OK(llm_gguf_writer_finish(out, &err));
    llm_gguf_writer_destroy(out);
    llm_gguf_close(in);
}

/* The bad file: the good one with one change. */
static void edit_write(const edit *e) {
    edit_copy(e,
              e->is_tied           ? tied_path
              : e->is_latent       ? latent_path
              : e->is_mixed        ? mixed_path
              : e->is_recurrent    ? recurrent_path
              : e->fixture != NULL ? fixture_path
                                   : good_path,
              bad_path);
}

static uint8_t *file_read(const char *path, size_t *size_out) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size_out = (size_t)ftell(f);
    uint8_t *data = malloc(*size_out);
    assert_non_null(data);
    rewind(f);
    assert_int_equal(fread(data, 1, *size_out, f), *size_out);
    fclose(f);
    return data;
}

/* Writes over bytes of the bad file. */
static void file_patch(size_t at, const void *bytes, size_t size) {
    FILE *f = fopen(bad_path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

/* The type of a tensor stands behind its name, its number of dimensions and those. */
static void type_patch(const char *name, uint32_t type) {
    size_t size, len = strlen(name);
    uint8_t *data = file_read(bad_path, &size);
    uint8_t *at = memmem(data, size, name, len);
    assert_non_null(at);
    size_t off = (size_t)(at - data) + len;
    file_patch(off + 4 + 8 * (size_t)data[off], &type, sizeof type);
    free(data);
}

static const edit edits[] = {
    {TENSOR_DROP, "output_norm.weight", .words = {"output_norm.weight", "missing"}},
    {TENSOR_DROP, "token_embd.weight", .words = {"token_embd.weight", "missing"}},
    {TENSOR_DROP, "blk.1.attn_q.weight", .words = {"blk.1.attn_q.weight", "missing"}},
    {TENSOR_DROP, "blk.0.ffn_gate_exps.weight", .words = {"blk.0.ffn_gate_exps.weight", "missing"}},
    {TENSOR_DROP, "blk.1.ffn_gate_inp.weight", .words = {"blk.1.ffn_gate_inp.weight", "missing"}},
    {TENSOR_SHAPE, "blk.0.attn_k.weight", 64, 33, .words = {"blk.0.attn_k.weight", "33"}},
    {TENSOR_SHAPE, "blk.1.attn_norm.weight", 32, 1, .words = {"blk.1.attn_norm.weight", "32"}},
    {TENSOR_SHAPE, "blk.0.ffn_down_exps.weight", 64, 64,
     .words = {"blk.0.ffn_down_exps.weight", "64"}},
    {TENSOR_SHAPE, "output.weight", 64, 299, .words = {"output.weight", "299"}},
    {TENSOR_SHAPE, "token_embd.weight", 64, 200, .words = {"output.weight", "200"}},
    {TENSOR_SHAPE, "token_embd.weight", 64, 200, .is_tied = true,
     .words = {"tokenizer has 300 tokens", "200"}},
    {TENSOR_SHAPE, "token_embd.weight", 32, 300, .words = {"token_embd.weight", "32"}},
    {TENSOR_NEW, "blk.0.attn_q_norm.weight", 32, 1, .words = {"blk.0.attn_q_norm.weight", "llama"}},
    {TENSOR_NEW, "blk.2.attn_q.weight", 64, 64, .words = {"blk.2.attn_q.weight", "llama"}},
    {TENSOR_NEW, "blk.99999999999.attn_q.weight", 64, 64,
     .words = {"blk.99999999999.attn_q.weight", "place"}},
    {TENSOR_NEW, "blk.0.ffn_up.bias", 64, 1, .words = {"blk.0.ffn_up.bias", "place"}},
    {TENSOR_NEW, "blk.0.attn_q.bias", 63, 1, .words = {"blk.0.attn_q.bias", "63"}},
    {TENSOR_TYPE, "blk.0.attn_v.weight", 99, .words = {"blk.0.attn_v.weight", "99"}},
    {KEY_TEXT, "general.architecture", .text = "gptj", .words = {"gptj", "llama"}},
    {KEY_TEXT, "general.architecture", .text = "", .words = {"architecture", ""}},
    {KEY_DROP, "general.architecture", .words = {"general.architecture", ""}},
    {KEY_DROP, "llama.block_count", .words = {"llama.block_count", ""}},
    {KEY_U32, "llama.block_count", 0, .words = {"llama.block_count", "0"}},
    {KEY_U32, "llama.block_count", 3, .words = {"blk.2", "missing"}},
    {KEY_U32, "llama.block_count", 1, .words = {"blk.1", ""}},
    {KEY_U32, "llama.block_count", 4000000000, .words = {"llama.block_count", "4000000000"}},
    {KEY_U32, "llama.attention.head_count", 0, .words = {"llama.attention.head_count", "0"}},
    {KEY_U32, "llama.attention.head_count", 3, .words = {"attn_q", ""}},
    {KEY_U32, "llama.attention.head_count_kv", 0, .words = {"llama.attention.head_count_kv", "0"}},
    {KEY_U32, "llama.attention.head_count_kv", 3, .words = {"head", "3"}},
    {KEY_U32, "llama.attention.key_length", 0, .words = {"llama.attention.key_length", "0"}},
    {KEY_U32, "llama.attention.key_length", 2000000000, .words = {"key_length", "2000000000"}},
    {KEY_U32, "llama.embedding_length", 0, .words = {"llama.embedding_length", "0"}},
    {KEY_U32, "llama.embedding_length", 128, .words = {"128", ""}},
    {KEY_U32, "llama.feed_forward_length", 65, .words = {"ffn", "65"}},
    {KEY_U32, "llama.expert_count", 5, .words = {"5", "blk.0"}},
    {KEY_U32, "llama.expert_count", 0, .words = {"blk.0", ""}},
    {KEY_U32, "llama.expert_used_count", 0, .words = {"llama.expert_used_count", "0"}},
    {KEY_U32, "llama.expert_used_count", 9, .words = {"llama.expert_used_count", "9"}},
    {KEY_U32, "llama.context_length", 0, .words = {"llama.context_length", "0"}},
    {KEY_U32, "llama.rope.dimension_count", 31, .words = {"llama.rope.dimension_count", "31"}},
    {KEY_U32, "llama.rope.dimension_count", 64, .words = {"llama.rope.dimension_count", "64"}},
    {KEY_F32, "llama.rope.freq_base", .number = 0, .words = {"llama.rope.freq_base", "0"}},
    {KEY_F32, "llama.rope.freq_base", .number = NAN, .words = {"llama.rope.freq_base", "nan"}},
    {KEY_F32, "llama.attention.layer_norm_rms_epsilon", .number = -1, .words = {"epsilon", "-1"}},
    {KEY_TEXT, "llama.rope.scaling.type", .text = "spiral", .words = {"spiral", "yarn"}},
    {KEY_TEXT, "llama.block_count", .text = "two", .words = {"llama.block_count", ""}},
};

/* The same of a model with latent attention. */
static const edit latent_edits[] = {
    {TENSOR_DROP, "blk.0.attn_kv_a_mqa.weight", .words = {"blk.0.attn_kv_a_mqa.weight", "missing"}},
    {TENSOR_DROP, "blk.1.attn_v_b.weight", .words = {"blk.1.attn_v_b.weight", "missing"}},
    {TENSOR_DROP, "blk.1.ffn_up_shexp.weight", .words = {"blk.1.ffn_up_shexp.weight", "missing"}},
    {TENSOR_NAME, "blk.0.attn_k_b.weight", .text = "blk.0.attn_kv_b.weight",
     .words = {"blk.0.attn_kv_b.weight", "old form"}},
    {TENSOR_NEW, "blk.0.attn_kv_b.weight", 64, 64, .words = {"blk.0.attn_kv_b.weight", "place"}},
    {TENSOR_NEW, "blk.0.ssm_conv1d.weight", 4, 64, .words = {"blk.0.ssm_conv1d.weight", "place"}},
    {TENSOR_SHAPE, "blk.1.attn_k_b.weight", 64, 256, .words = {"blk.1.attn_k_b.weight", "4"}},
    {KEY_DROP, "deepseek2.attention.kv_lora_rank", .words = {"kv_lora_rank", ""}},
    {KEY_DROP, "deepseek2.attention.key_length_mla", .words = {"key_length_mla", ""}},
    {KEY_DROP, "deepseek2.attention.value_length_mla", .words = {"value_length_mla", ""}},
    {KEY_DROP, "deepseek2.expert_feed_forward_length", .words = {"expert_feed_forward_length", ""}},
    {KEY_DROP, "deepseek2.expert_count", .words = {"expert_count", "missing"}},
    {KEY_U32, "deepseek2.attention.kv_lora_rank", 0, .words = {"kv_lora_rank", "0"}},
    {KEY_U32, "deepseek2.attention.kv_lora_rank", 192, .words = {"kv_lora_rank", "key_length"}},
    {KEY_U32, "deepseek2.attention.key_length", 96, .words = {"key_length", "kv_lora_rank"}},
    {KEY_U32, "deepseek2.attention.key_length_mla", 32, .words = {"dimension_count", "key_length"}},
    {KEY_U32, "deepseek2.attention.key_length_mla", 64, .words = {"attn_q_b", "384"}},
    {KEY_U32, "deepseek2.attention.head_count_kv", 4, .words = {"head_count_kv", "1"}},
    {KEY_U32, "deepseek2.attention.head_count", 8, .words = {"blk.0", ""}},
    {KEY_U32, "deepseek2.attention.q_lora_rank", 0, .words = {"attn_q.weight", "missing"}},
    {KEY_U32, "deepseek2.leading_dense_block_count", 3, .words = {"dense_block_count", "3"}},
    {KEY_U32, "deepseek2.leading_dense_block_count", 2, .words = {"blk.1.ffn_gate.weight", ""}},
    {KEY_U32, "deepseek2.expert_shared_count", 2, .words = {"shexp", "512"}},
    {KEY_U32, "deepseek2.expert_group_count", 3, .words = {"expert_group_count", "3"}},
    {KEY_U32, "deepseek2.expert_group_used_count", 1, .words = {"group", "1"}},
    {KEY_U32, "deepseek2.expert_gating_func", 5, .words = {"expert_gating_func", "5"}},
    {KEY_F32, "deepseek2.expert_weights_scale", .number = NAN, .words = {"weights_scale", "nan"}},
    {KEY_F32, "deepseek2.attention.temperature_scale", .number = -0.5,
     .words = {"temperature_scale", "-0.5"}},
    {TENSOR_NEW, "blk.0.attn_kv_a_mqa.bias", 288, 1,
     .words = {"blk.0.attn_kv_a_mqa.bias", "place"}},
    {KEY_F32, "deepseek2.rope.scaling.yarn_ext_factor", .number = -2,
     .words = {"yarn_ext_factor", "-2"}},
    {KEY_F32, "deepseek2.rope.scaling.yarn_log_multiplier", .number = -1,
     .words = {"yarn_log_multiplier", "-1"}},
};

/* Absurd values of keys that other architectures have. */
static const edit mixed_edits[] = {
    {KEY_U32, "afmoe.attention.sliding_window", 4000000000,
     .words = {"afmoe.attention.sliding_window", "4000000000"}},
    {KEY_U32, "afmoe.attention.sliding_window_pattern", 5000,
     .words = {"afmoe.attention.sliding_window_pattern", "5000"}},
    {KEY_TEXT, "afmoe.attention.sliding_window", .text = "all",
     .words = {"afmoe.attention.sliding_window", "string"}},
    {KEY_U32, "afmoe.expert_count", 100000, .words = {"afmoe.expert_count", "100000"}},
    {KEY_U32, "afmoe.expert_used_count", 0, .words = {"afmoe.expert_used_count", "0"}},
    {KEY_U32, "afmoe.expert_used_count", 3, .words = {"afmoe.expert_used_count", "3"}},
    {KEY_U32, "afmoe.expert_feed_forward_length", 2000000,
     .words = {"afmoe.expert_feed_forward_length", "2000000"}},
    {KEY_U32, "afmoe.expert_shared_count", 5000, .words = {"afmoe.expert_shared_count", "5000"}},
    {KEY_U32, "afmoe.expert_shared_feed_forward_length", 2000000,
     .words = {"afmoe.expert_shared_feed_forward_length", "2000000"}},
    {KEY_U32, "afmoe.expert_group_count", 3, .words = {"afmoe.expert_group_count", "3"}},
    {KEY_U32, "afmoe.expert_gating_func", 9, .words = {"afmoe.expert_gating_func", "9"}},
    {KEY_F32, "afmoe.expert_weights_scale", .number = NAN,
     .words = {"afmoe.expert_weights_scale", "nan"}},
    {KEY_U32, "afmoe.leading_dense_block_count", 3,
     .words = {"afmoe.leading_dense_block_count", "3"}},
    {KEY_U32, "afmoe.block_count", 2000, .words = {"afmoe.block_count", "2000"}},
    {KEY_U32, "afmoe.attention.head_count", 0, .words = {"afmoe.attention.head_count", "0"}},
    {KEY_U32, "afmoe.attention.head_count", 2000000,
     .words = {"afmoe.attention.head_count", "2000000"}},
    {KEY_U32, "afmoe.attention.head_count_kv", 0, .words = {"afmoe.attention.head_count_kv", "0"}},
    {KEY_U32, "afmoe.attention.key_length", 0, .words = {"afmoe.attention.key_length", "0"}},
    {KEY_U32, "afmoe.attention.key_length", 70000,
     .words = {"afmoe.attention.key_length", "70000"}},
    {KEY_U32, "afmoe.attention.value_length", 0, .words = {"afmoe.attention.value_length", "0"}},
    {KEY_U32, "afmoe.rope.dimension_count", 66, .words = {"afmoe.rope.dimension_count", "66"}},
    {KEY_U32, "afmoe.rope.dimension_count", 3, .words = {"afmoe.rope.dimension_count", "3"}},
    {KEY_U32, "afmoe.rope.dimension_count_swa", 32,
     .words = {"afmoe.rope.dimension_count_swa", "32"}},
    {KEY_U32, "afmoe.feed_forward_length", 0, .words = {"afmoe.feed_forward_length", "0"}},
    {KEY_U32, "afmoe.embedding_length", 0, .words = {"afmoe.embedding_length", "0"}},
    {KEY_F32, "afmoe.attention.layer_norm_rms_epsilon", .number = -1,
     .words = {"afmoe.attention.layer_norm_rms_epsilon", "-1"}},
    {KEY_DROP, "afmoe.attention.layer_norm_rms_epsilon",
     .words = {"afmoe.attention.layer_norm_rms_epsilon", "missing"}},
    {TENSOR_DROP, "blk.1.attn_gate.weight", .words = {"blk.1.attn_gate.weight", "missing"}},
    {TENSOR_SHAPE, "blk.1.attn_q_norm.weight", 32, 1, .words = {"blk.1.attn_q_norm.weight", "32"}},
    {TENSOR_SHAPE, "blk.1.ffn_up_shexp.weight", 256, 383,
     .words = {"blk.1.ffn_up_shexp.weight", "383"}},
};

/* Absurd sizes of recurrent states. */
static const edit recurrent_edits[] = {
    {KEY_U32, "qwen35.ssm.conv_kernel", 1, .words = {"qwen35.ssm.conv_kernel", "at least 2"}},
    {KEY_U32, "qwen35.ssm.conv_kernel", 65, .words = {"qwen35.ssm.conv_kernel", "65"}},
    {KEY_U32, "qwen35.ssm.inner_size", 2000000, .words = {"qwen35.ssm.inner_size", "2000000"}},
    {KEY_U32, "qwen35.ssm.state_size", 70000, .words = {"qwen35.ssm.state_size", "70000"}},
    {KEY_U32, "qwen35.ssm.state_size", 65536, .words = {"qwen35.ssm.*", "states of 65536"}},
    {KEY_U32, "qwen35.ssm.time_step_rank", 70000, .words = {"qwen35.ssm.time_step_rank", "70000"}},
    {KEY_U32, "qwen35.ssm.time_step_rank", 0, .words = {"qwen35.ssm.*", " 0 heads"}},
    {KEY_U32, "qwen35.ssm.group_count", 0, .words = {"qwen35.ssm.*", " 0 groups"}},
    {KEY_U32, "qwen35.ssm.group_count", 65536, .words = {"qwen35.ssm.*", "65536 groups"}},
    {KEY_U32, "qwen35.nextn_predict_layers", 4000000000,
     .words = {"qwen35.nextn_predict_layers", "4000000000"}},
    {KEY_U32, "qwen35.attention.head_count", 2000000,
     .words = {"qwen35.attention.head_count", "2000000"}},
    {TENSOR_DROP, "blk.0.ssm_out.weight", .words = {"blk.0.ssm_out.weight", "missing"}},
};

/* Keys and tensors that few architectures have. */
static const edit rare_edits[] = {
    {KEY_U32, "t5encoder.attention.relative_buckets_count", 3, .fixture = "t5encoder-plain",
     .words = {"t5encoder.attention.relative_buckets_count", " 3"}},
    {KEY_U32, "t5encoder.attention.relative_buckets_count", 14, .fixture = "t5encoder-plain",
     .words = {"enc.blk.0.attn_rel_b.weight", "[4, 14]"}},
    {KEY_DROP, "t5encoder.attention.relative_buckets_count", .fixture = "t5encoder-plain",
     .words = {"t5encoder.attention.relative_buckets_count", "missing"}},
    {TENSOR_SHAPE, "enc.blk.1.attn_rel_b.weight", 12, 4, .fixture = "t5encoder-plain",
     .words = {"enc.blk.1.attn_rel_b.weight", "[4, 12]"}},
    {TENSOR_DROP, "enc.blk.0.attn_rel_b.weight", .fixture = "t5encoder-dense",
     .words = {"enc.blk.0.attn_rel_b.weight", "missing"}},
    {TENSOR_DROP, "enc.blk.2.attn_o.weight", .fixture = "t5encoder-dense",
     .words = {"enc.blk.2.attn_o.weight", "missing"}},
    {KEY_DROP, "t5.decoder_start_token_id", .fixture = "t5-plain",
     .words = {"t5.decoder_start_token_id", "missing"}},
    {KEY_U32, "t5.decoder_start_token_id", 128, .fixture = "t5-plain",
     .words = {"t5.decoder_start_token_id", "128"}},
    {KEY_U32, "t5.decoder_start_token_id", 4000000000, .fixture = "t5-plain",
     .words = {"t5.decoder_start_token_id", "4000000000"}},
    {KEY_U32, "t5.decoder_block_count", 0, .fixture = "t5-dense",
     .words = {"t5.decoder_block_count", "0"}},
    {KEY_U32, "t5.decoder_block_count", 3, .fixture = "t5-dense",
     .words = {"dec.blk.2.", "missing"}},
    {KEY_U32, "t5.decoder_block_count", 1, .fixture = "t5-dense", .words = {"dec.blk.1.", ""}},
    {KEY_U32, "t5.decoder_block_count", 1022, .fixture = "t5-dense",
     .words = {"t5.decoder_block_count", "1022"}},
    {KEY_U32, "t5.block_count", 1000, .fixture = "t5-plain", .words = {"t5.block_count", "1000"}},
    {TENSOR_DROP, "dec.blk.0.attn_rel_b.weight", .fixture = "t5-dense",
     .words = {"dec.blk.0.attn_rel_b.weight", "missing"}},
    {TENSOR_DROP, "dec.blk.1.cross_attn_k.weight", .fixture = "t5-dense",
     .words = {"dec.blk.1.cross_attn_k.weight", "missing"}},
    {TENSOR_DROP, "dec.blk.1.cross_attn_norm.weight", .fixture = "t5-dense",
     .words = {"dec.blk.1.cross_attn_norm.weight", "missing"}},
    {TENSOR_DROP, "enc.blk.0.attn_norm.weight", .fixture = "t5-dense",
     .words = {"enc.blk.0.attn_norm.weight", "missing"}},
    {TENSOR_DROP, "enc.output_norm.weight", .fixture = "t5-plain",
     .words = {"enc.output_norm.weight", "missing"}},
    {TENSOR_DROP, "dec.output_norm.weight", .fixture = "t5-plain",
     .words = {"dec.output_norm.weight", "missing"}},
    {TENSOR_SHAPE, "dec.blk.2.cross_attn_o.weight", 64, 40, .fixture = "t5-plain",
     .words = {"dec.blk.2.cross_attn_o.weight", "40"}},
    {KEY_TEXT, "modern-bert.hidden_activation", .text = "relu", .fixture = "modern-bert-silu",
     .words = {"modern-bert.hidden_activation", "relu"}},
    {TENSOR_DROP, "blk.1.attn_norm.weight", .fixture = "modern-bert-silu",
     .words = {"blk.1.attn_norm.weight", "missing"}},
    {TENSOR_NEW, "dense_3.bias", 64, 1, .fixture = "gemma-embedding-dense",
     .words = {"dense_3.bias", "no place"}},
    {KEY_U32, "glm-dsa.attention.indexer.types", 0, .fixture = "glm-dsa-select",
     .words = {"glm-dsa.attention.indexer.types", "layer 0 shares"}},
    {KEY_U32, "glm-dsa.attention.indexer.head_count", 0, .fixture = "glm-dsa-select",
     .words = {"glm-dsa.attention.indexer.head_count", " 0"}},
    {KEY_U32, "glm-dsa.attention.indexer.key_length", 62, .fixture = "glm-dsa-select",
     .words = {"attention.indexer.key_length", "rope.dimension_count"}},
    {TENSOR_DROP, "blk.2.indexer.k_norm.bias", .fixture = "glm-dsa-select",
     .words = {"blk.2.indexer.k_norm.bias", "missing"}},
    {KEY_U32, "minimax-m3.attention.indexer.block_size", 0, .fixture = "minimax-m3-select",
     .words = {"minimax-m3.attention.indexer.block_size", " 0"}},
    {KEY_U32, "minimax-m3.attention.indexer.local_blocks", 4, .fixture = "minimax-m3-select",
     .words = {"minimax-m3.attention.indexer.local_blocks", "0 to 3"}},
    {KEY_U32, "minimax-m3.attention.indexer.head_count", 3, .fixture = "minimax-m3-select",
     .words = {"minimax-m3.attention.indexer.head_count", "3"}},
    {KEY_U32, "minimax-m3.attention.indexer.key_length", 14, .fixture = "minimax-m3-select",
     .words = {"minimax-m3.attention.indexer.key_length", "14"}},
    {TENSOR_DROP, "blk.2.indexer.q_norm.weight", .fixture = "minimax-m3-select",
     .words = {"blk.2.indexer.q_norm.weight", "missing"}},
    {KEY_U32, "kimi-k3.attn_res.block_size", 0, .fixture = "kimi-k3-heads",
     .words = {"kimi-k3.attn_res.block_size", " 0"}},
    {KEY_F32, "kimi-k3.activation.situ_beta", .number = 0, .fixture = "kimi-k3-heads",
     .words = {"kimi-k3.activation.situ_beta", " 0"}},
    {TENSOR_DROP, "blk.2.ffn_routed_up.weight", .fixture = "kimi-k3-heads",
     .words = {"blk.2.ffn_routed_up.weight", "missing"}},
    {TENSOR_DROP, "output_res_score.weight", .fixture = "kimi-k3-heads",
     .words = {"output_res_score.weight", "missing"}},
    {KEY_U32, "qwen4exp.ple.ngram_size", 9, .fixture = "qwen4exp-heads",
     .words = {"qwen4exp.ple.ngram_size", "9"}},
    {KEY_U32, "qwen4exp.ple.heads_per_ngram", 33, .fixture = "qwen4exp-heads",
     .words = {"qwen4exp.ple.heads_per_ngram", "33"}},
    {KEY_U32, "qwen4exp.ple.layers", 2, .fixture = "qwen4exp-heads", .words = {"ple_", "no place"}},
    {TENSOR_DROP, "per_layer_token_embd.weight", .fixture = "qwen4exp-heads",
     .words = {"per_layer_token_embd.weight", "missing"}},
    {TENSOR_SHAPE, "per_layer_token_embd.weight", 31, 512, .fixture = "qwen4exp-heads",
     .words = {"per_layer_token_embd.weight", "rows of 32"}},
    {KEY_DROP, "qwen4exp.ple.layer_multipliers", .fixture = "qwen4exp-heads",
     .words = {"qwen4exp.ple.layer_multipliers", "element 0"}},
    {KEY_DROP, "qwen4exp.ple.head_offsets", .fixture = "qwen4exp-heads",
     .words = {"qwen4exp.ple.head_offsets", "row 0"}},
    {TENSOR_SHAPE, "per_layer_token_embd.weight", 32, 510, .fixture = "qwen4exp-heads",
     .words = {"ple.head_vocab_sizes", "row 7"}},
    {KEY_U32, "qwen4exp.embedding_length_per_layer_input", 16, .fixture = "qwen4exp-heads",
     .words = {"qwen4exp.ple.*", "8 rows of 16"}},
    {TENSOR_DROP, "per_layer_token_embd.weight", .fixture = "gemma3n-dense",
     .words = {"per_layer_token_embd.weight", "missing"}},
    {TENSOR_SHAPE, "per_layer_token_embd.weight", 6400, 127, .fixture = "gemma3n-dense",
     .words = {"per_layer_token_embd.weight", "127"}},
    {TENSOR_DROP, "blk.2.ple_conv1d.weight", .fixture = "qwen4exp-heads",
     .words = {"blk.2.ple_conv1d.weight", "missing"}},
    {TENSOR_SHAPE, "blk.2.ple_conv1d.weight", 4, 1024, .fixture = "qwen4exp-heads",
     .words = {"blk.2.ple_conv1d.weight", "[3, 1024]"}},
    {KEY_U32, "qwen4exp.attention.compress_ratios", 1, .fixture = "qwen4exp-select",
     .words = {"qwen4exp.attention.compress_ratios", " 1 "}},
    {KEY_U32, "qwen4exp.attention.compress_ratios", 129, .fixture = "qwen4exp-select",
     .words = {"qwen4exp.attention.compress_ratios", " 129 "}},
    {KEY_TEXT, "qwen4exp.attention.compress_ratios", .text = "4", .fixture = "qwen4exp-select",
     .words = {"qwen4exp.attention.compress_ratios", " -1 "}},
    {KEY_U32, "qwen4exp.attention.indexer.top_k", 3, .fixture = "qwen4exp-select",
     .words = {"qwen4exp.attention.compress_ratios", "top_k = 3"}},
    {KEY_DROP, "qwen4exp.attention.indexer.head_count", .fixture = "qwen4exp-select",
     .words = {"qwen4exp.attention.indexer.head_count", ""}},
    {KEY_U32, "qwen4exp.attention.indexer.key_length", 64, .fixture = "qwen4exp-select",
     .words = {"qwen4exp.attention.indexer.key_length", "64"}},
    {TENSOR_DROP, "blk.1.indexer.k_proj.weight", .fixture = "qwen4exp-select",
     .words = {"blk.1.indexer.k_proj.weight", "missing"}},
    {KEY_U32, "qwen4exp.hyper_connection.low_rank", 0, .fixture = "qwen4exp-heads",
     .words = {"qwen4exp.hyper_connection.low_rank", " 0"}},
};

/* Whether the file with one thing wrong is refused with a message that names the thing. */
static bool edit_is_refused(const edit *e) {
    tdm_error err = {0};
    edit_write(e);
    if (e->kind == TENSOR_TYPE) type_patch(e->name, (uint32_t)e->n);
    if (model_try(bad_path, &err) == TDM_OK) {
        printf("%s (%d): the file was accepted\n", e->name, (int)e->kind);
        return false;
    }
    rig_line_check(e->name, err.message);
    if (strstr(err.message, "bad.gguf") != NULL && strstr(err.message, e->words[0]) != NULL &&
        strstr(err.message, e->words[1]) != NULL)
        return true;
    printf("%s (%d): the message should name the file, '%s' and '%s': %s\n", e->name, (int)e->kind,
           e->words[0], e->words[1], err.message);
    return false;
}

static void test_edits(void **state) {
    (void)state;
    edit none = {KEEP, "", .words = {"", ""}};
    tdm_error err = {0};
    int n_bad = 0;
    edit_write(&none);
    RIG_OK(model_try(bad_path, &err)); /* the copy itself is good */
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) n_bad += !edit_is_refused(&edits[i]);
    none.is_latent = true;
    edit_write(&none);
    RIG_OK(model_try(bad_path, &err));
    for (size_t i = 0; i < sizeof latent_edits / sizeof *latent_edits; i++) {
        edit e = latent_edits[i];
        e.is_latent = true;
        n_bad += !edit_is_refused(&e);
    }
    none.is_latent = false;
    none.is_mixed = true;
    edit_write(&none);
    RIG_OK(model_try(bad_path, &err));
    for (size_t i = 0; i < sizeof mixed_edits / sizeof *mixed_edits; i++) {
        edit e = mixed_edits[i];
        e.is_mixed = true;
        n_bad += !edit_is_refused(&e);
    }
    none.is_mixed = false;
    none.is_recurrent = true;
    edit_write(&none);
    RIG_OK(model_try(bad_path, &err));
    for (size_t i = 0; i < sizeof recurrent_edits / sizeof *recurrent_edits; i++) {
        edit e = recurrent_edits[i];
        e.is_recurrent = true;
        n_bad += !edit_is_refused(&e);
    }
    none.is_recurrent = false;
    for (size_t i = 0; i < sizeof rare_edits / sizeof *rare_edits; i++) {
        const edit *e = &rare_edits[i];
        if (none.fixture == NULL || strcmp(none.fixture, e->fixture) != 0) {
            none.fixture = e->fixture;
            fixture_write(e->fixture, fixture_path);
            edit_write(&none);
            RIG_OK(model_try(bad_path, &err));
        }
        n_bad += !edit_is_refused(e);
    }
    assert_int_equal(n_bad, 0);
}

/* Files that lack all tensors of one layer's channel block: of a model with several streams, of one
 * whose blocks read earlier streams, and of a mixture of experts whose file gives no width of dense
 * blocks. The file is refused when it is opened. */
static void test_no_channel(void **state) {
    (void)state;
    static const struct {
        const char *fixture, *layer;
        const char *names[8]; /* keys and tensors to drop */
    } cases[] = {
        {"qwen4exp-heads",
         "layer 1 ",
         {"blk.1.ffn_gate_inp.weight", "blk.1.ffn_down_exps.weight",
          "blk.1.ffn_gate_up_exps.weight", "blk.1.ffn_gate_inp_shexp.weight",
          "blk.1.ffn_gate_shexp.weight", "blk.1.ffn_down_shexp.weight",
          "blk.1.ffn_up_shexp.weight"}},
        {"kimi-k3-heads",
         "layer 0 ",
         {"blk.0.ffn_norm.weight", "blk.0.ffn_gate.weight", "blk.0.ffn_down.weight",
          "blk.0.ffn_up.weight"}},
        {"llada-moe-moe",
         "layer 1 ",
         {"llada-moe.feed_forward_length", "blk.1.ffn_norm.weight", "blk.1.ffn_gate_inp.weight",
          "blk.1.ffn_gate_exps.weight", "blk.1.ffn_down_exps.weight", "blk.1.ffn_up_exps.weight"}},
    };
    const char *paths[2] = {bad_path, rig_file("other.gguf")};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tdm_error err = {0};
        llm_model *model = NULL;
        int turn = 0;
        fixture_write(cases[i].fixture, paths[0]);
        for (; cases[i].names[turn] != NULL; turn++) {
            const bool is_tensor = strncmp(cases[i].names[turn], "blk.", 4) == 0;
            const edit drop = {is_tensor ? TENSOR_DROP : KEY_DROP, cases[i].names[turn]};
            edit_copy(&drop, paths[turn % 2], paths[(turn + 1) % 2]);
        }
        if (llm_model_open(paths[turn % 2], &model, &err) != TDM_NOT_FOUND ||
            strstr(err.message, cases[i].layer) == NULL || strstr(err.message, ".gguf: ") == NULL)
            fail_msg("%s: '%s'", cases[i].fixture, err.message);
        rig_line_check(cases[i].fixture, err.message);
    }
}

/* A negative factor is how some converters write that it is not set: it has its default then. */
static void test_yarn_ext_factor(void **state) {
    (void)state;
    static const double given[] = {-1, 0, 0.5}, expected[] = {1, 0, 0.5};
    for (size_t i = 0; i < 3; i++) {
        const edit e = {KEY_F32, "deepseek2.rope.scaling.yarn_ext_factor", .number = given[i],
                        .is_latent = true};
        llm_model *model = NULL;
        tdm_error err = {0};
        edit_write(&e);
        RIG_OK(llm_model_open(bad_path, &model, &err));
        assert_true((double)model->hparams.rope.ext_factor == expected[i]);
        llm_model_close(model);
    }
}

/* Files of cohere2moe name the kind of their norms by the key of its epsilon. */
static void test_norm_by_key(void **state) {
    (void)state;
    static const char layer_key[] = "cohere2moe.attention.layer_norm_epsilon",
                      rms_key[] = "cohere2moe.attention.layer_norm_rms_epsilon";
    const edit rms_drop = {KEY_DROP, rms_key}, layer_drop = {KEY_DROP, layer_key},
               rms_new = {KEY_F32, rms_key, .number = 0.25},
               layer_new = {KEY_F32, layer_key, .number = 0.5};
    const char *neither = rig_file("neither.gguf"), *one = rig_file("one.gguf");
    llm_model *model = NULL;
    tdm_error err = {0};
    fixture_write("cohere2moe-moe", bad_path);
    edit_copy(&rms_drop, bad_path, one);
    edit_copy(&layer_drop, one, neither);
    assert_int_equal(llm_model_open(neither, &model, &err), TDM_NOT_FOUND);
    assert_non_null(strstr(err.message, layer_key));
    edit_copy(&layer_new, neither, bad_path);
    RIG_OK(llm_model_open(bad_path, &model, &err));
    assert_true(model->hparams.norm == LLM_NORM_LAYER && model->hparams.norm_eps == 0.5f);
    llm_model_close(model);
    edit_copy(&rms_new, neither, one);
    RIG_OK(llm_model_open(one, &model, &err));
    assert_true(model->hparams.norm == LLM_NORM_RMS && model->hparams.norm_eps == 0.25f);
    llm_model_close(model);
    edit_copy(&rms_new, bad_path, one); /* with both keys */
    RIG_OK(llm_model_open(one, &model, &err));
    assert_true(model->hparams.norm == LLM_NORM_RMS && model->hparams.norm_eps == 0.25f);
    llm_model_close(model);
}

/* A tensor whose name lacks ".weight" decides as much about its layer as one that has it. */
static void test_bare_name(void **state) {
    (void)state;
    static const char name[] = "blk.1.layer_output_norm.weight";
    const edit rename = {TENSOR_NAME, name, .text = "blk.1.layer_output_norm"},
               drop = {TENSOR_DROP, name};
    const char *grok = rig_file("grok.gguf");
    llm_model *model = NULL;
    llm_layer_spec specs[2];
    tdm_error err = {0};
    fixture_write("grok-moe", grok);
    edit_copy(&rename, grok, bad_path);
    for (int i = 0; i < 2; i++) {
        RIG_OK(llm_model_open(i == 0 ? grok : bad_path, &model, &err));
        specs[i] = model->specs[1];
        llm_model_close(model);
    }
    assert_memory_equal(&specs[0], &specs[1], sizeof specs[0]);
    edit_copy(&drop, grok, bad_path); /* without it, another norm is looked for */
    assert_int_equal(llm_model_open(bad_path, &model, &err), TDM_NOT_FOUND);
    assert_non_null(strstr(err.message, "blk.1.post_ffw_norm.weight"));
}

/* Whichever bit of the header is turned, the model is refused or runs. */
static void test_header_bits(void **state) {
    (void)state;
    size_t size, n_tried = 0, n_good = 0;
    uint8_t *good = file_read(good_path, &size);
    tdm_error err = {0};
    llm_gguf *gguf = NULL;
    RIG_OK(llm_gguf_open(good_path, &gguf, &err));
    size_t n_data = 0;
    for (uint32_t i = 0; i < llm_gguf_tensor_count(gguf); i++)
        n_data += llm_gguf_tensor_at(gguf, i)->size;
    llm_gguf_close(gguf);
    size_t header_size = size - n_data;
    FILE *f = fopen(bad_path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(good, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    for (size_t at = 0; at < header_size; at += 2, n_tried++) {
        uint8_t changed = good[at] ^ (uint8_t)(1u << (at / 2 * 3) % 8);
        memset(&err, 0, sizeof err);
        file_patch(at, &changed, 1);
        if (model_try(bad_path, &err) == TDM_OK)
            n_good++;
        else
            rig_line_check("a turned bit", err.message);
        file_patch(at, &good[at], 1);
    }
    printf("%zu turned bits in a header of %zu bytes: %zu files are refused, %zu run\n", n_tried,
           header_size, n_tried - n_good, n_good);
    assert_true(n_good > 0 && n_good < n_tried);
    free(good);
}

/* A file that becomes shorter after its model was loaded: a step that reads rows in it
 * (context_rows.c) fails, and changes nothing. */
static void test_shortened(void **state) {
    (void)state;
    static const int32_t tokens[2] = {1, 2};
    static const llm_context_params params = {.struct_size = sizeof params, .n_ctx = 64};
    const llm_batch batch = {.tokens = tokens, .n_tok = 2};
    tdm_error err = {0};
    fixture_write("gemma3n-dense", fixture_path);
    llm_model *model = rig_model(fixture_path, rig_device(NULL, "fast", 1));
    llm_context *ctx = rig_context(model, &params);
    assert_non_null(model->hparams.per_layer_table);
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    assert_int_equal(truncate(fixture_path, 1), 0);
    assert_int_equal(llm_context_decode(ctx, &batch, &err), TDM_DATA_LOSS);
    rig_line_check("a shortened file", err.message);
    assert_non_null(strstr(err.message, "fixture.gguf: tensor 'per_layer_token_embd.weight'"));
    assert_non_null(strstr(err.message, "has become shorter"));
    assert_int_equal(llm_context_length(ctx, 0), 2);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edits),      cmocka_unit_test(test_yarn_ext_factor),
        cmocka_unit_test(test_no_channel), cmocka_unit_test(test_norm_by_key),
        cmocka_unit_test(test_bare_name),  cmocka_unit_test(test_header_bits),
        cmocka_unit_test(test_shortened),
    };
    return cmocka_run_group_tests(tests, begin, rig_end);
}
