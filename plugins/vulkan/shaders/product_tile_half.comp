// SPDX-License-Identifier: MIT
//
// product_tile_half.comp: product_matrix.glsl without matrix hardware, for tests. One module for
// f16 and for each WEIGHT_TYPE with blocks.
#version 460
#extension GL_GOOGLE_include_directive : require
#define WEIGHT_MODULES WEIGHT_HAS_HALVES // kernels.py
#define MATRIX_IS_PLAIN 1
#include "product_matrix.glsl"
