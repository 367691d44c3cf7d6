// SPDX-License-Identifier: MIT
//
// args.glsl: what every shader begins with: the arguments (struct gpu_args of
// plugins/gpu/plan/kernel.h), the size of the workgroup, and typed pointers.
//
// Specialisation: constant 0 is the number of threads in a workgroup, constants 1 to 8 are the
// step's spec[0] to spec[7]: SPEC0 to SPEC7 below.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_control_flow_attributes : require

// Values before specialisation. A module must be valid with them too, so a shader whose types
// depend on such a number defines another value: SPEC4_DEFAULT, or SPEC5_DEFAULT and SPEC6_DEFAULT
// together.
#ifndef SPEC4_DEFAULT
#define SPEC4_DEFAULT 0
#endif
#ifndef SPEC5_DEFAULT
#define SPEC5_DEFAULT 0
#define SPEC6_DEFAULT 0
#endif

layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
layout(constant_id = 1) const int SPEC0 = 0;
layout(constant_id = 2) const int SPEC1 = 0;
layout(constant_id = 3) const int SPEC2 = 0;
layout(constant_id = 4) const int SPEC3 = 0;
layout(constant_id = 5) const int SPEC4 = SPEC4_DEFAULT;
layout(constant_id = 6) const int SPEC5 = SPEC5_DEFAULT;
layout(constant_id = 7) const int SPEC6 = SPEC6_DEFAULT;
layout(constant_id = 8) const int SPEC7 = 0;

layout(push_constant, scalar) uniform Args {
    uint64_t address[6];
    int word[20];
} args;

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer F32 { float at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer I32 { int at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer U32 { uint at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer U16 { uint16_t at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer U8 { uint8_t at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer F32x4 { vec4 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer U32x2 { uvec2 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer U32x4 { uvec4 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer U64 { uint64_t at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer U64x2 { u64vec2 at[]; };

// The number of this workgroup, and of this invocation, in a grid over x and y.
uint group_number() {
    return gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
}
uint invocation_number() {
    return group_number() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
}
