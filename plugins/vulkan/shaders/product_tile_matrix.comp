// SPDX-License-Identifier: MIT
//
// product_tile_matrix.comp: product_matrix.glsl on cooperative matrices. One module for f16
// and for each WEIGHT_TYPE with blocks. Compiled by way of cooperative.py.
#version 460
#extension GL_GOOGLE_include_directive : require
#define WEIGHT_MODULES WEIGHT_HAS_HALVES // kernels.py
#define MATRIX_IS_PLAIN 0
#include "product_matrix.glsl"
