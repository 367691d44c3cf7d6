#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what is missing, builds, shows what a configuration will take of its devices, and continues a
# story on them: on a GPU and the CPU where a GPU is found, else on two CPU devices.
#   ./run.sh [PROMPT]
set -eu
cd "$(dirname "$0")"
. scripts/packages.sh
# shellcheck disable=SC2086 # lists of words
packages_install $packages_build
# Drivers for the GPUs of AMD and Intel. NVIDIA's come with its own packages.
# shellcheck disable=SC2086
if [ -n "$(find /dev/dri -name 'renderD*' 2>/dev/null)" ]; then packages_install $packages_gpu; fi
meson_setup build-run -Dtests=false -Dbench=false
if ! ninja -C build-run >build-run/build.log 2>&1; then
    cat build-run/build.log >&2
    exit 1
fi
tandem=build-run/runner/tandem
# "vulkan0  vulkan  0  7.98 GiB of 8.00 GiB  NAME": the first GPU; "-" stands for none.
gpu=$("$tandem" devices | awk '$2 == "vulkan" && $3 ~ /^[0-9]+$/ { print $1; exit }')
if [ -n "$gpu" ]; then
    config=conf/cpu-and-vulkan.ini
    echo "GPU found: $("$tandem" devices | awk -v name="$gpu" '$1 == name')"
else
    config=conf/demo.ini
    echo "no GPU found: two CPU devices instead. $("$tandem" devices |
        awk '$2 == "vulkan" { sub(/^-  *vulkan  *-  *-  */, ""); print; exit }')"
fi
echo
"$tandem" plan --config "$config"
echo
exec "$tandem" run --config "$config" --prompt "${1:-Once upon a time}"
