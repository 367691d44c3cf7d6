#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""names.py: prints the kernels of CUDA and HIP, one on a line.

usage: names.py KERNEL.h           the names
       names.py KERNEL.h FOLDER    the modules: NAME, or NAME:TYPE for each type of weights

Kernels are the rows of GPU_KERNEL_LIST that say RT_SHARED or RT_ONLY. FOLDER has their sources.
Those that include each_type.h are compiled to a module for each tdm_type, so that a driver
translates only the modules for the types that a model has.
"""

import os
import re
import sys


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def types_of(folder, name):
    """Numbers of the types of weights that a kernel is compiled for; [] where it reads none."""
    source = read(os.path.join(folder, name + '.cu'))
    if 'each_type.h' not in source:
        return []
    asked = re.search(r'#define WEIGHT_TYPES WEIGHT_TYPES_(\w+)', source)
    asked = asked.group(1) if asked else 'ALL'
    types = []
    for condition, part in re.findall(r'#if (WEIGHT_TYPES != .*?)\n(.*?)#endif // WEIGHT_TYPES',
                                      read(os.path.join(folder, 'each_type.h')), re.DOTALL):
        if asked not in re.findall(r'WEIGHT_TYPES_(\w+)', condition):
            types += re.findall(r'#define WEIGHT_TYPE (\d+)', part)
    return types


def main(kernel_header, folder=None):
    text = re.sub(r'/\*.*?\*/', ' ', read(kernel_header), flags=re.DOTALL)
    for name in re.findall(r'\bKERNEL\(\w+, (\w+), \d, \w+, RT_(?:SHARED|ONLY)\(', text):
        types = types_of(folder, name) if folder else []
        for module in ['%s:%s' % (name, number) for number in types] or [name]:
            print(module)


if __name__ == '__main__':
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
