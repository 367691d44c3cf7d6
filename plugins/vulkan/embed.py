#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""embed.py: writes compiled shaders as a C file.

usage: embed.py OUTPUT.c NAME.spv... NAME.TYPE.spv...

NAME is the kernel's name in GPU_KERNEL_LIST (plugins/gpu/plan/kernel.h), TYPE the number of a type
of weights (kernels.py). The C file makes the assembler include the shaders: they are megabytes, and
as arrays of numbers they would take the C compiler long.
"""

import os
import struct
import sys

SPIRV_MAGIC = 0x07230203


ROW = ('''__asm__(".section .rodata\\n.balign 4\\ncode_%(name)s:\\n"
        ".incbin \\"%(path)s\\"\\n.previous\\n");
extern const uint32_t code_%(name)s[%(n_word)d] __attribute__((visibility("hidden")));
''')


def count_words(path):
    with open(path, 'rb') as file:
        magic = file.read(4)
    n_byte = os.path.getsize(path)
    if n_byte < 20 or n_byte % 4 != 0 or struct.unpack('I', magic)[0] != SPIRV_MAGIC:
        sys.exit('%s: not SPIR-V in the byte order of this machine' % path)
    return n_byte // 4


def main(output, paths):
    modules = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    lines = ['/* Written by embed.py; do not edit. */', '#include "plugins/vulkan/shaders.h"', '']
    for module, path in zip(modules, paths):
        lines.append(ROW % {'name': module.replace('.', '_'), 'path': os.path.abspath(path),
                            'n_word': count_words(path)})
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
