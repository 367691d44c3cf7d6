#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""code_objects.py: checks that AMD's kernels need no newer driver than
plugins/hip/meson.build says.

usage: code_objects.py IMAGE ...

A code object has version 4, or 6 for a generic target, and its kernels take no argument but their own:
a driver that does not know a hidden argument starts the kernel with wrong ones.
"""

import os
import sys

# e_ident[EI_ABIVERSION] of LLVM's User Guide for AMDGPU: 2 is code object version 4, 4 is version 6.
ABI_VERSION = 8
ABI_V4, ABI_V6 = 2, 4


def image_check(path):
    with open(path, 'rb') as file:
        image = file.read()
    is_generic = os.path.basename(path).split('.')[1].endswith('-generic')
    if image[:4] != b'\x7fELF':
        return 'is no ELF file'
    if image[ABI_VERSION] != (ABI_V6 if is_generic else ABI_V4):
        return f'has ABI version {image[ABI_VERSION]}'
    if not is_generic and b'hidden_' in image:
        return 'has a kernel with hidden arguments'
    return None


def main(paths):
    faults = 0
    for path in paths:
        fault = image_check(path)
        if fault is not None:
            print(f'{path}: {fault}')
            faults += 1
    print(f'{len(paths)} code objects, {faults} faults')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
