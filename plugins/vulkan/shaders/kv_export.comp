// SPDX-License-Identifier: MIT
//
// kv_export.comp: KV_EXPORT. See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "page.glsl"
const bool IS_IMPORT = false;
#include "kv_move.glsl"
