#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""names.py: prints the kernels of CUDA and HIP, one on a line.

usage: names.py KERNEL.h

They are the rows of GPU_KERNEL_LIST that say RT_SHARED.
"""

import re
import sys


def main(kernel_header):
    with open(kernel_header, encoding='utf-8') as file:
        text = re.sub(r'/\*.*?\*/', ' ', file.read(), flags=re.DOTALL)
    for name in re.findall(r'\bKERNEL\(\w+, (\w+), \d, \w+, RT_SHARED\(', text):
        print(name)


if __name__ == '__main__':
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
