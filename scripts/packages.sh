# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2034 # the lists are for those who source this
# Sourced by run.sh, test.sh and .ci/run: the lists of the Debian packages that are needed, and
# functions that install missing packages and configure a build.

packages_build="gcc libc6-dev meson ninja-build pkg-config libinih-dev libpcre2-dev libutf8proc-dev libedit-dev libjansson-dev libwebsockets-dev libssl-dev libvulkan-dev glslc"
packages_gpu="mesa-vulkan-drivers"
packages_test="libcmocka-dev binutils make python3-jinja2 $packages_gpu vulkan-validationlayers"
# The emulated drivers of CUDA and HIP run kernels that are compiled as C++.
packages_test="$packages_test g++"
# With ccache, run.sh compiles nothing again that the tests have compiled.
packages_ci="clang libclang-rt-dev ccache"
# The compiler of kernels of CUDA and HIP.
packages_kernels="clang-19 lld-19"

# packages_install NAME...: prints which packages are missing, then installs them.
packages_install() {
    missing=""
    for name in "$@"; do
        case "$(dpkg-query -W -f '${Status}' "$name" 2>/dev/null)" in
        *"install ok installed"*) ;;
        *) missing="$missing $name" ;;
        esac
    done
    [ -z "$missing" ] && return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "needed, and this is no Debian to install them on by itself:$missing" >&2
        return 1
    fi
    as_root=""
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null 2>&1; then
            echo "needed:$missing; install them as root: apt-get install$missing" >&2
            return 1
        fi
        as_root="sudo"
    fi
    echo "installing Debian packages:$missing" >&2
    $as_root apt-get update -q >&2 || return 1
    # shellcheck disable=SC2086 # a list of words
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
        $missing >&2
}

# has_library NAME: true where programs can load it. On Debian, ldconfig is in a folder that only
# root has in PATH.
has_library() {
    (PATH="$PATH:/usr/sbin:/sbin" && ldconfig -p) 2>/dev/null | grep -q "^[[:space:]]*$1"
}

# kernel_options: prints the options of meson that build kernels for the cards whose drivers (CUDA's
# or HIP's) are on this machine. No others, because a target takes one to two minutes of one
# processor.
kernel_options() {
    ptx='' amd=''
    if has_library libcuda.so.1; then ptx=sm_90a,sm_80,sm_75; fi
    if has_library libamdhip64.so || [ -e /opt/rocm/lib/libamdhip64.so ]; then
        amd=$(scripts/amd-processors.sh | paste -s -d , -)
    fi
    if [ -n "$ptx$amd" ]; then
        echo "-Dgpu_kernels=enabled -Dptx_targets=$ptx -Damdgpu_targets=$amd"
    else
        echo "-Dgpu_kernels=disabled"
    fi
}

# kernel_warnings FOLDER: prints the cards for which a configured build makes no kernels, and why.
kernel_warnings() {
    sed -n 's/^.*WARNING: \(no [A-Z]* kernels for .*\)/\1/p' "$1/meson-logs/meson-log.txt" >&2
}

# meson_setup FOLDER OPTION...: configures a build folder. One that is configured is kept if Meson
# can configure it again; otherwise (it was moved or copied) it is removed and made anew. A folder
# with other files is left alone: then it fails.
meson_setup() {
    build_dir="$1"
    shift
    if [ -f "$build_dir/meson-private/coredata.dat" ] && meson setup --reconfigure "$build_dir" "$@" \
        >"$build_dir/setup.log" 2>&1; then
        kernel_warnings "$build_dir"
        return 0
    fi
    if [ ! -d "$build_dir/meson-private" ] && [ -n "$(ls -A "$build_dir" 2>/dev/null)" ]; then
        echo "$build_dir: is no build folder of Meson's, so it is left alone; move it away" >&2
        return 1
    fi
    rm -rf "$build_dir"
    mkdir -p "$build_dir"
    if ! meson setup "$build_dir" "$@" >"$build_dir.log" 2>&1; then
        cat "$build_dir.log" >&2
        return 1
    fi
    rm -f "$build_dir.log"
    kernel_warnings "$build_dir"
}
