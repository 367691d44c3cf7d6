/* SPDX-License-Identifier: MIT
 *
 * families.h: the architectures, and what their tables have in common. For arch.c and the files of
 * families only.
 */
#ifndef LLM_FAMILIES_H
#define LLM_FAMILIES_H

#include "llm/arch/arch.h"
#include "llm/arch/key_reader.h"

/* The norms that most architectures have. */
#define LLM_PRE_NORMS .norm_mixer = LLM_ROLE_ATTN_NORM, .norm_channel = LLM_ROLE_FFN_NORM
/* A norm before each block and one behind it. */
#define LLM_SANDWICH_NORMS                                                                         \
    LLM_PRE_NORMS, .norm_mixer_post = LLM_ROLE_ATTN_POST_NORM,                                     \
                   .norm_channel_post = LLM_ROLE_FFN_POST_NORM
/* Norms of queries and keys, with one weight for all heads. */
#define LLM_HEAD_NORMS .norm_q = LLM_ROLE_ATTN_Q_NORM, .norm_k = LLM_ROLE_ATTN_K_NORM

/* What most mixtures of experts since DeepSeek-V3 honour. */
#define LLM_KEYS_EXPERTS                                                                           \
    (LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE | LLM_KEY_EXPERT_NORM | LLM_KEY_EXPERT_GATING |      \
     LLM_KEY_DENSE_FIRST)

/* Attention selects tokens by an index, all of them up to n_select. The file may have the tensors
 * of an index also for a layer that shares the index of another. */
#define LLM_SPARSE_LATENT                                                                          \
    .mixer = LLM_MIXER_LATENT,                                                                     \
    .harmless = " indexer.k_norm.weight indexer.k_norm.bias indexer.proj.weight "                  \
                "indexer.attn_k.weight indexer.attn_q_b.weight "

/* `read` of architectures with latent attention: deepseek.c. */
void llm_latent_read(llm_key_reader *r, llm_hparams *h);
/* The index of sparse attention: heads and their length, behind llm_latent_read. */
void llm_index_read(llm_key_reader *r, llm_hparams *h);

/* Limits of gated units, from a key with one number for all layers or one for each (kimi.c). Checks
 * the limits of the layers that do not draft. */
void llm_limits_check(llm_key_reader *r, const llm_hparams *h, const char *suffix);
/* The limit of a layer; 0 = none, also in a layer that drafts for which the key has no number. */
float llm_limit_of(const llm_gguf *gguf, const char *arch, const char *suffix, int32_t layer);

/* Every architecture, in the order of messages: llm_arch_NAME. */
#define LLM_ARCH_LIST(ARCH)                                                                        \
    ARCH(llama)                                                                                    \
    ARCH(mistral3)                                                                                 \
    ARCH(deci)                                                                                     \
    ARCH(nanbeige)                                                                                 \
    ARCH(internlm2)                                                                                \
    ARCH(xverse)                                                                                   \
    ARCH(baichuan)                                                                                 \
    ARCH(arcee)                                                                                    \
    ARCH(smollm3)                                                                                  \
    ARCH(maincoder)                                                                                \
    ARCH(pangu_embedded)                                                                           \
    ARCH(cogvlm)                                                                                   \
    ARCH(openelm)                                                                                  \
    ARCH(seed_oss)                                                                                 \
    ARCH(plamo)                                                                                    \
    ARCH(plamo3)                                                                                   \
    ARCH(qwen)                                                                                     \
    ARCH(qwen2)                                                                                    \
    ARCH(qwen2vl)                                                                                  \
    ARCH(qwen2moe)                                                                                 \
    ARCH(qwen3)                                                                                    \
    ARCH(qwen3vl)                                                                                  \
    ARCH(qwen3tts)                                                                                 \
    ARCH(qwen3moe)                                                                                 \
    ARCH(qwen3vlmoe)                                                                               \
    ARCH(gemma)                                                                                    \
    ARCH(gemma2)                                                                                   \
    ARCH(gemma3)                                                                                   \
    ARCH(gemma3n)                                                                                  \
    ARCH(apertus)                                                                                  \
    ARCH(step35)                                                                                   \
    ARCH(plm)                                                                                      \
    ARCH(bitnet)                                                                                   \
    ARCH(gemma4)                                                                                   \
    ARCH(chatglm)                                                                                  \
    ARCH(glm4)                                                                                     \
    ARCH(glm4moe)                                                                                  \
    ARCH(granite)                                                                                  \
    ARCH(granitemoe)                                                                               \
    ARCH(granite_swa)                                                                              \
    ARCH(minicpm)                                                                                  \
    ARCH(gpt2)                                                                                     \
    ARCH(starcoder)                                                                                \
    ARCH(starcoder2)                                                                               \
    ARCH(codeshell)                                                                                \
    ARCH(gptneox)                                                                                  \
    ARCH(falcon)                                                                                   \
    ARCH(phi2)                                                                                     \
    ARCH(nemotron)                                                                                 \
    ARCH(jais2)                                                                                    \
    ARCH(orion)                                                                                    \
    ARCH(stablelm)                                                                                 \
    ARCH(pockettts)                                                                                \
    ARCH(dbrx)                                                                                     \
    ARCH(phi3)                                                                                     \
    ARCH(phimoe)                                                                                   \
    ARCH(command_r)                                                                                \
    ARCH(cohere2)                                                                                  \
    ARCH(olmo)                                                                                     \
    ARCH(olmo2)                                                                                    \
    ARCH(olmoe)                                                                                    \
    ARCH(minimax_m2)                                                                               \
    ARCH(exaone)                                                                                   \
    ARCH(exaone4)                                                                                  \
    ARCH(exaone_moe)                                                                               \
    ARCH(deepseek)                                                                                 \
    ARCH(bailingmoe)                                                                               \
    ARCH(bailingmoe2)                                                                              \
    ARCH(dots1)                                                                                    \
    ARCH(ernie4_5)                                                                                 \
    ARCH(ernie4_5_moe)                                                                             \
    ARCH(paddleocr)                                                                                \
    ARCH(hunyuan_dense)                                                                            \
    ARCH(hunyuan_vl)                                                                               \
    ARCH(hunyuan_moe)                                                                              \
    ARCH(afmoe)                                                                                    \
    ARCH(muse_glimmer)                                                                             \
    ARCH(mellum)                                                                                   \
    ARCH(mimo2)                                                                                    \
    ARCH(spark2_5)                                                                                 \
    ARCH(laguna)                                                                                   \
    ARCH(deepseek2)                                                                                \
    ARCH(deepseek2_ocr)                                                                            \
    ARCH(smallthinker)                                                                             \
    ARCH(grok)                                                                                     \
    ARCH(arctic)                                                                                   \
    ARCH(talkie)                                                                                   \
    ARCH(dream)                                                                                    \
    ARCH(llada)                                                                                    \
    ARCH(llada_moe)                                                                                \
    ARCH(rnd1)                                                                                     \
    ARCH(mistral4)                                                                                 \
    ARCH(cohere2moe)                                                                               \
    ARCH(hy_v3)                                                                                    \
    ARCH(hy_v4)                                                                                    \
    ARCH(gpt_oss)                                                                                  \
    ARCH(llama4)                                                                                   \
    ARCH(minicpm3)                                                                                 \
    ARCH(maple)                                                                                    \
    ARCH(grovemoe)                                                                                 \
    ARCH(hrm_text)                                                                                 \
    ARCH(bloom)                                                                                    \
    ARCH(mpt)                                                                                      \
    ARCH(jais)                                                                                     \
    ARCH(refact)                                                                                   \
    ARCH(deepseek32)                                                                               \
    ARCH(deepseek4)                                                                                \
    ARCH(glm_dsa)                                                                                  \
    ARCH(dots3note)                                                                                \
    ARCH(minimax_m3)                                                                               \
    ARCH(qwen3next)                                                                                \
    ARCH(qwen35)                                                                                   \
    ARCH(qwen35moe)                                                                                \
    ARCH(qwen4exp)                                                                                 \
    ARCH(lfm2)                                                                                     \
    ARCH(lfm2moe)                                                                                  \
    ARCH(mamba)                                                                                    \
    ARCH(mamba2)                                                                                   \
    ARCH(jamba)                                                                                    \
    ARCH(falcon_h1)                                                                                \
    ARCH(nemotron_h)                                                                               \
    ARCH(nemotron_h_moe)                                                                           \
    ARCH(plamo2)                                                                                   \
    ARCH(kimi_linear)                                                                              \
    ARCH(kimi_k3)                                                                                  \
    ARCH(bailingmoe3)                                                                              \
    ARCH(minimax_01)                                                                               \
    ARCH(granitehybrid)                                                                            \
    ARCH(rwkv6)                                                                                    \
    ARCH(rwkv6qwen2)                                                                               \
    ARCH(rwkv7)                                                                                    \
    ARCH(arwkv7)                                                                                   \
    ARCH(bert)                                                                                     \
    ARCH(nomic_bert)                                                                               \
    ARCH(nomic_bert_moe)                                                                           \
    ARCH(jina_bert_v3)                                                                             \
    ARCH(eurobert)                                                                                 \
    ARCH(llama_embed)                                                                              \
    ARCH(neo_bert)                                                                                 \
    ARCH(jina_bert_v2)                                                                             \
    ARCH(gemma_embedding)                                                                          \
    ARCH(modern_bert)                                                                              \
    ARCH(t5)                                                                                       \
    ARCH(t5encoder)

#define LLM_ARCH_DECLARE_(name) extern const llm_arch llm_arch_##name;
LLM_ARCH_LIST(LLM_ARCH_DECLARE_)
#undef LLM_ARCH_DECLARE_

#endif
