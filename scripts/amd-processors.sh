#!/bin/sh
# SPDX-License-Identifier: MIT
# Prints the AMD GPUs of this machine as compilers name them, one a line, each once; nothing if
# there is none. The kernel's driver has a folder for each processor, also for the CPU. In its
# properties gfx_target_version is 90010 for gfx90a, 110501 for gfx1151, and 0 for the CPU.
#   amd-processors.sh
# KFD_NODES in the environment names another folder with such folders, for tests.
cat "${KFD_NODES:-/sys/class/kfd/kfd/topology/nodes}"/*/properties 2>/dev/null |
    awk '$1 == "gfx_target_version" && $2 ~ /^[0-9]+$/ && $2 + 0 >= 10000 {
            name = sprintf("gfx%d%x%x", int($2 / 10000), int($2 / 100) % 100, $2 % 100)
            if (!seen[name]++) print name
        }'
