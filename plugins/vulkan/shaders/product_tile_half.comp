// SPDX-License-Identifier: MIT
//
// product_tile_half.comp: product_matrix.glsl without matrix hardware, for tests. One module for
// each WEIGHT_TYPE with WEIGHT_HAS_HALVES.
#version 460
#extension GL_GOOGLE_include_directive : require
#define MATRIX_IS_PLAIN 1
#include "product_matrix.glsl"
