#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""kernels.py: prints the modules of shaders to compile, one on a line.

usage: kernels.py KERNEL.h TYPE.h SHADERS

A row of GPU_KERNEL_LIST without RT_ONLY has one module, NAME. If its shader contains the word
WEIGHT_TYPE, it has one for each type of weights in TDM_TYPE_LIST instead: NAME.TYPE, where TYPE is
the type's number. With the word WEIGHT_HAS_BLOCKS there is none for types without blocks; with
WEIGHT_HAS_HALVES there is none for these but f16. The words count in comments too: shaders name
them there.
"""

import os
import re
import sys

TYPE_F16 = '1'


def comments_remove(path):
    with open(path, encoding='utf-8') as file:
        return re.sub(r'/\*.*?\*/', ' ', file.read(), flags=re.DOTALL)


def main(kernel_header, type_header, folder):
    types = re.findall(r'\bTYPE\(\w+, \w+, (\d+), (FLOAT|BLOCK),', comments_remove(type_header))
    for name, rt in re.findall(r'\bKERNEL\(\w+, (\w+), \d, \w+, (\w+)', comments_remove(kernel_header)):
        if rt == 'RT_ONLY':
            continue
        with open(os.path.join(folder, name + '.comp'), encoding='utf-8') as file:
            text = file.read()
        if 'WEIGHT_TYPE' not in text:
            print(name)
            continue
        for number, kind in types:
            is_float = kind == 'FLOAT'
            if is_float and 'WEIGHT_HAS_BLOCKS' in text:
                continue
            if is_float and 'WEIGHT_HAS_HALVES' in text and number != TYPE_F16:
                continue
            print('%s.%s' % (name, number))


if __name__ == '__main__':
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
