// SPDX-License-Identifier: MIT
//
// reduce.glsl: sums and maxima over a workgroup. Every invocation calls them, and gets the result.
// A workgroup has up to 256 subgroups.
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

shared float reduce_part[256];

float group_sum(float x) {
    x = subgroupAdd(x);
    if (gl_NumSubgroups == 1) return x;
    barrier(); // the parts of an earlier call have been read
    if (gl_SubgroupInvocationID == 0) reduce_part[gl_SubgroupID] = x;
    barrier();
    float sum = 0.0;
    for (uint i = 0; i < gl_NumSubgroups; i++) sum += reduce_part[i];
    return sum;
}

// The maximum; x is not NaN.
float group_max(float x) {
    x = subgroupMax(x);
    if (gl_NumSubgroups == 1) return x;
    barrier();
    if (gl_SubgroupInvocationID == 0) reduce_part[gl_SubgroupID] = x;
    barrier();
    float greatest = reduce_part[0];
    for (uint i = 1; i < gl_NumSubgroups; i++) greatest = max(greatest, reduce_part[i]);
    return greatest;
}
