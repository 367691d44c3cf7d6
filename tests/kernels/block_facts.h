/* SPDX-License-Identifier: MIT
 *
 * block_facts.h: what random bytes of a quantised type need to be numbers of a known size.
 */
#ifndef TANDEM_TESTS_BLOCK_FACTS_H
#define TANDEM_TESTS_BLOCK_FACTS_H

#include "tandem/type.h"

/* Where a block has its f16 scales, -1 = none, and the root mean square of what it stands for where
 * they are 1 and its codes random: measured once. */
typedef struct made_block_facts {
    int scale_off[2];
    double size;
} made_block_facts;

static inline made_block_facts made_block_facts_of(tdm_type type) {
    switch ((int)type) {
    case TDM_TYPE_Q4_0: return (made_block_facts){{0, -1}, 4.6};
    case TDM_TYPE_Q5_0: return (made_block_facts){{0, -1}, 9.2};
    case TDM_TYPE_Q8_0: return (made_block_facts){{0, -1}, 74};
    case TDM_TYPE_IQ4_NL: return (made_block_facts){{0, -1}, 68};
    case TDM_TYPE_IQ4_XS: return (made_block_facts){{0, -1}, 1260};
    case TDM_TYPE_Q4_1: return (made_block_facts){{0, 2}, 4.6};
    case TDM_TYPE_Q5_1: return (made_block_facts){{0, 2}, 9.2};
    case TDM_TYPE_Q4_K: return (made_block_facts){{0, 2}, 290};
    case TDM_TYPE_Q5_K: return (made_block_facts){{0, 2}, 590};
    case TDM_TYPE_Q2_K: return (made_block_facts){{80, 82}, 16};
    case TDM_TYPE_Q3_K: return (made_block_facts){{108, -1}, 42};
    case TDM_TYPE_Q6_K: return (made_block_facts){{208, -1}, 1360};
    case TDM_TYPE_IQ2_XXS:
    case TDM_TYPE_IQ2_XS:
    case TDM_TYPE_IQ2_S: return (made_block_facts){{0, -1}, 50};
    case TDM_TYPE_IQ3_XXS: return (made_block_facts){{0, -1}, 130};
    case TDM_TYPE_IQ3_S: return (made_block_facts){{0, -1}, 140};
    case TDM_TYPE_IQ1_S: return (made_block_facts){{0, -1}, 7};
    case TDM_TYPE_TQ1_0: return (made_block_facts){{52, -1}, 0.8};
    case TDM_TYPE_TQ2_0: return (made_block_facts){{64, -1}, 1.2};
    default: return (made_block_facts){{-1, -1}, 1};
    }
}

#endif
