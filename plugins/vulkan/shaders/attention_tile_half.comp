// SPDX-License-Identifier: MIT
//
// attention_tile_half.comp: attention_matrix.glsl without matrix hardware, for tests.
#version 460
#extension GL_GOOGLE_include_directive : require
#define MATRIX_IS_PLAIN 1
#define ATTENTION_IS_LATENT 0
#include "attention_matrix.glsl"
