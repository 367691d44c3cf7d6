#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""kernels.py: prints the modules of shaders to compile, one on a line.

usage: kernels.py KERNEL.h TYPE.h SHADERS

A row of GPU_KERNEL_LIST without RT_ONLY has one module, NAME. If its shader defines WEIGHT_MODULES,
it has one for some types of weights in TDM_TYPE_LIST instead: NAME.TYPE, where TYPE is the type's
number. The types are, by what WEIGHT_MODULES is defined as:

    WEIGHT_ANY         all
    WEIGHT_HAS_BLOCKS  types with blocks
    WEIGHT_HAS_HALVES  types with blocks, and f16
"""

import os
import re
import sys

TYPE_F16 = '1'

# By WEIGHT_MODULES: whether there is a module for a type without blocks, by its number.
HAS_MODULE = {
    'WEIGHT_ANY': lambda number: True,
    'WEIGHT_HAS_BLOCKS': lambda number: False,
    'WEIGHT_HAS_HALVES': lambda number: number == TYPE_F16,
}


def code_read(path):
    """The text of a file without its comments."""
    with open(path, encoding='utf-8') as file:
        return re.sub(r'/\*.*?\*/|//[^\n]*', ' ', file.read(), flags=re.DOTALL)


def main(kernel_header, type_header, folder):
    types = re.findall(r'\bTYPE\(\w+, \w+, (\d+), (FLOAT|BLOCK),', code_read(type_header))
    for name, rt in re.findall(r'\bKERNEL\(\w+, (\w+), \d, \w+, (\w+)', code_read(kernel_header)):
        if rt == 'RT_ONLY':
            continue
        path = os.path.join(folder, name + '.comp')
        modules = re.search(r'^#define WEIGHT_MODULES +(\w*)', code_read(path), re.MULTILINE)
        if modules is None:
            print(name)
            continue
        if modules[1] not in HAS_MODULE:
            sys.exit('%s: WEIGHT_MODULES is %s, expected one of %s' %
                     (path, modules[1], ', '.join(HAS_MODULE)))
        for number, kind in types:
            if kind == 'BLOCK' or HAS_MODULE[modules[1]](number):
                print('%s.%s' % (name, number))


if __name__ == '__main__':
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
