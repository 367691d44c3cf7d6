// SPDX-License-Identifier: MIT
//
// kv_import.comp: KV_IMPORT. See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "page.glsl"
const bool IS_IMPORT = true;
#include "kv_move.glsl"
