// SPDX-License-Identifier: MIT
//
// attention_tile_matrix.comp: attention_matrix.glsl on cooperative matrices. Compiled by way of
// cooperative.py.
#version 460
#extension GL_GOOGLE_include_directive : require
#define MATRIX_IS_PLAIN 0
#define ATTENTION_IS_LATENT 0
#include "attention_matrix.glsl"
