#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what is missing, builds, prints the plan of a configuration, and continues a story: on a
# GPU and the CPU where a GPU is found, else on two CPU devices.
#   ./run.sh [PROMPT]
# MESON_OPTIONS in the environment (none) are more options of the build.
set -eu
cd "$(dirname "$0")"
. scripts/packages.sh
# shellcheck disable=SC2086 # lists of words
packages_install $packages_build
# Drivers for the GPUs of AMD and Intel. NVIDIA's come with its own packages.
# shellcheck disable=SC2086
if [ -n "$(find /dev/dri -name 'renderD*' 2>/dev/null)" ]; then packages_install $packages_gpu; fi
# Where NVIDIA's driver or that of HIP is found, kernels for its cards are built.
kernels=$(kernel_options)
# shellcheck disable=SC2086
case "$kernels" in
*enabled*) packages_install $packages_kernels || {
    echo "without clang-19 there are no kernels for CUDA and HIP; Vulkan needs none of it" >&2
    kernels=-Dgpu_kernels=disabled
} ;;
esac
# shellcheck disable=SC2086
meson_setup build-run -Dtests=false -Dbench=false $kernels ${MESON_OPTIONS:-}
if ! ninja -C build-run >build-run/build.log 2>&1; then
    cat build-run/build.log >&2
    exit 1
fi
tandem=build-run/runner/tandem
# "vulkan0  vulkan  0  7.98 GiB of 8.00 GiB  NAME": the first GPU; "-" stands for none.
first() { "$tandem" devices | awk -v plugin="$1" '$2 == plugin && $3 ~ /^[0-9]+$/ { print $1; exit }'; }
gpu= plugin=
for plugin in vulkan cuda hip; do
    gpu=$(first "$plugin")
    [ -z "$gpu" ] || break
done
if [ -n "$gpu" ]; then
    config=conf/cpu-and-vulkan.ini
    if [ "$plugin" != vulkan ]; then
        sed "s/^plugin = vulkan/plugin = $plugin/" "$config" >build-run/run.ini
        config=build-run/run.ini
    fi
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
