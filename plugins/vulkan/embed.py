#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""embed.py: writes compiled shaders as a C file.

usage: embed.py OUTPUT.c NAME.spv... NAME.TYPE.spv...

NAME is the kernel's name in GPU_KERNEL_LIST (plugins/gpu/plan/kernel.h), TYPE the number of a type of
weights (kernels.py).
"""

import array
import os
import sys

SPIRV_MAGIC = 0x07230203


def words_read(path):
    words = array.array('I')
    with open(path, 'rb') as file:
        words.frombytes(file.read())
    if len(words) < 5 or words[0] != SPIRV_MAGIC:
        sys.exit('%s: not SPIR-V in the byte order of this machine' % path)
    return words


def main(output, paths):
    modules = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    lines = ['/* Written by embed.py; do not edit. */', '#include "plugins/vulkan/shaders.h"', '']
    for module, path in zip(modules, paths):
        words = words_read(path)
        name = module.replace('.', '_')
        lines.append('static const uint32_t code_%s[%d] = {' % (name, len(words)))
        for at in range(0, len(words), 8):
            lines.append('    ' + ' '.join('0x%08x,' % word for word in words[at:at + 8]))
        lines.append('};')
    lines += ['', 'const vk_shader vk_shaders[] = {']
    for module in modules:
        kernel, _, number = module.partition('.')
        name = module.replace('.', '_')
        lines.append('    {GPU_KERNEL_%s, %s, code_%s, sizeof code_%s},' %
                     (kernel.upper(), number or '-1', name, name))
    lines += ['};', 'const int32_t vk_n_shader = %d;' % len(modules), '']
    with open(output, 'w', encoding='utf-8') as file:
        file.write('\n'.join(lines))


if __name__ == '__main__':
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
