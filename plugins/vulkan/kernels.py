#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""kernels.py: prints the names of the rows of GPU_KERNEL_LIST, one on a line.

usage: kernels.py KERNEL.h
"""

import re
import sys


def main(path):
    with open(path, encoding='utf-8') as file:
        text = re.sub(r'/\*.*?\*/', ' ', file.read(), flags=re.DOTALL)
    for name in re.findall(r'\bKERNEL\(\w+, (\w+), \d', text):
        print(name)


if __name__ == '__main__':
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
