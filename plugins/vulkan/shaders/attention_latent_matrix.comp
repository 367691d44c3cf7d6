// SPDX-License-Identifier: MIT
//
// attention_latent_matrix.comp: attention_matrix.glsl for caches in which V is the first part of
// K's row, on cooperative matrices. Compiled by way of cooperative.py.
#version 460
#extension GL_GOOGLE_include_directive : require
#define MATRIX_IS_PLAIN 0
#define ATTENTION_IS_LATENT 1
#include "attention_matrix.glsl"
