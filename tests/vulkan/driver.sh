# SPDX-License-Identifier: MIT
#
# driver.sh: the beginning of the shell tests of this folder, sourced after tally.sh.
#   $tandem is set

# Skips the test with a message where no Vulkan driver finds a device.
driver_need() {
    "$tandem" devices >"$work/devices" 2>&1
    grep -q '^[^-].* vulkan \|software driver' "$work/devices" && return
    echo "skipped: $(grep ' vulkan ' "$work/devices")"
    exit 77
}

# Limits of a device that computes products row by row, as cards do, or on integer dot products.
by_rows='test-limits = lanes=no'
by_dots='test-limits = dot=any'

# config NAME LINES...: a configuration with the devices cpu, v and w; v and w are Vulkan devices
# with the given lines.
config() {
    name=$1
    shift
    {
        printf '[device cpu]\nplugin = cpu\nthreads = 2\n'
        printf '[device reference]\nplugin = cpu\npath = reference\n'
        for section in v w; do
            printf '[device %s]\nplugin = vulkan\nallow-cpu = yes\n' "$section"
            for line in "$@"; do printf '%s\n' "$line"; done
        done
        printf '[group vc]\nmembers = v, cpu\nshare = 1, 3\n'
        printf '[group measured]\nmembers = v, cpu\nshare = auto\n'
        printf '[group vw]\nmembers = v, w\nshare = 2, 1\n'
        printf '[group vwc]\nmembers = v, w, cpu\nshare = 1, 1, 2\n'
    } >"$work/$name.ini"
}
