#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_verdicts.sh: pipelines are checked against the CPU once for each driver. A kernel that leaves
# out its last workgroups (test-limits wrong=KERNEL) is found. A plainer kernel replaces it, or its
# op is refused by name and runs on the CPU from the next start on.
#   test_verdicts.sh TANDEM MODEL.gguf [MAKE_MODEL]
set -u
tandem=$1 model=$2 make=${3-}
. "$(dirname "$0")/../tally.sh"
. "$(dirname "$0")/driver.sh"
driver_need
# The driver's own cache is shared with other tests: compiling takes most of the time.
MESA_SHADER_CACHE_DIR=${MESA_SHADER_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}}
XDG_CACHE_HOME=$work/cache
export MESA_SHADER_CACHE_DIR XDG_CACHE_HOME
config plain
config lanes 'test-limits = wrong=product_lane'
config rows 'test-limits = wrong=row'
config dots 'test-limits = dot=any wrong=product_row_dot'
config bytes 'test-limits = dot=any wrong=bytes'
config alldots 'test-limits = dot=any'
config walk 'test-limits = wrong=attention_lane'
config tiles 'test-limits = matrix=plain wrong=attention_tile_half'
config latent 'test-limits = matrix=plain wrong=attention_latent_half'
config write 'test-limits = wrong=kv_write'
config wire 'test-limits = wrong=wire_sum'
config lost 'test-limits = lost=product_lane'

# text NAME DEVICE OUT [OPTION...]: writes a greedy text; messages are in $work/err.
text() {
    config=$1 device=$2 out=$3
    shift 3
    "$tandem" run --config "$work/$config.ini" --device "$device" -m "$model" -p "Once upon a time" -n 16 \
        --temp 0 --verbose "$@" >"$work/$out" 2>"$work/err"
}
says() { # WHAT PATTERN
    grep -q "$2" "$work/err" && ok || fail "$1: no '$2' in: $(grep -v 'plan of' "$work/err")"
}
silent() { # WHAT PATTERN
    ! grep -q "$2" "$work/err" && ok || fail "$1: $(grep "$2" "$work/err")"
}

text plain cpu text.cpu || fail "cpu: $(cat "$work/err")"
text plain v text.first || fail "first start: $(cat "$work/err")"
says "first start" 'pipelines checked against the CPU in .*: [1-9][0-9]* right, 0 wrong'
silent "first start" ' [1-9][0-9]* wrong\| [1-9][0-9]* without a check'
same "$work/text.cpu" "$work/text.first" "text of the first start"
text plain v text.second || fail "second start: $(cat "$work/err")"
silent "second start" 'pipelines checked'

# A wrong product that the device uses is replaced by another kernel.
text lanes v text.lanes || fail "a wrong product: $(cat "$work/err")"
same "$work/text.cpu" "$work/text.lanes" "text with plainer products"

# A wrong product of bytes: all products use floats again.
text dots v text.dots || fail "a wrong product of bytes: $(cat "$work/err")"
same "$work/text.cpu" "$work/text.dots" "text without products of bytes"
says "a wrong product of bytes" ', [1-9][0-9]* wrong'

# Kernels that store bytes of what they compute: where these are wrong, a step of its own makes
# them. No other pipeline is blamed, nor one of a wrong product that reads the bytes (above).
silent "a wrong product of bytes" 'with bytes gives'
if [ -n "$make" ]; then
    of_stories=$model model=$work/mixtral.gguf
    "$make" --preset tiny-mixtral --type q8_0 --quiet "$model" || fail "no model"
    text plain cpu text.cpu.bytes || fail "cpu, experts: $(cat "$work/err")"
    text alldots v text.alldots || fail "products of bytes: $(cat "$work/err")"
    silent "products of bytes" ' [1-9][0-9]* wrong\| [1-9][0-9]* without a check'
    same "$work/text.cpu.bytes" "$work/text.alldots" "text with products of bytes"
    text bytes v text.bytes || fail "wrong bytes: $(cat "$work/err")"
    for name in row add_norm attention_merge; do
        says "wrong bytes" "kernel $name with bytes gives wrong results with this driver"
    done
    silent "wrong bytes" 'kernel [a-z_]* gives\| [1-9][0-9]* without a check'
    same "$work/text.cpu.bytes" "$work/text.bytes" "text with wrong bytes"
    model=$of_stories
fi

# A wrong kernel of attention: the others are right, so that it alone is not used.
text plain cpu text.cpu.q -ctk q8_0 -ctv q4_0 || fail "cpu, quantised cache: $(cat "$work/err")"
text walk v text.walk -ctk q8_0 -ctv q4_0 || fail "a wrong attention: $(cat "$work/err")"
same "$work/text.cpu.q" "$work/text.walk" "text with another kernel of attention"
says "a wrong attention" 'kernel attention_lane gives wrong results with this driver'
says "a wrong attention" ' right, 1 wrong, 0 without a check'
silent "a wrong attention" 'kernel attention_[^l]\| kernel kv_'

# The one on matrices, which has another kernel for its tokens.
text tiles v text.tiles || fail "a wrong attention on matrices: $(cat "$work/err")"
says "a wrong attention on matrices" 'kernel attention_tile_half gives wrong results with this driver'
says "a wrong attention on matrices" ' right, 1 wrong'
silent "a wrong attention on matrices" 'kernel attention_[^t]\|kernel product_\|kernel halves'

# The one for caches in which V is part of K.
if [ -n "$make" ]; then
    of_stories=$model model=$work/latent.gguf
    "$make" --preset tiny-deepseek2 --type q8_0 --quiet "$model" || fail "no model"
    text latent v text.latent || fail "a wrong latent attention: $(cat "$work/err")"
    says "a wrong latent attention" 'kernel attention_latent_half gives wrong results with this driver'
    says "a wrong latent attention" ' right, 1 wrong'
    silent "a wrong latent attention" 'kernel attention_[^l]\|kernel product_\|kernel halves'
    model=$of_stories
fi

# A wrong kernel of the cache.
text write v text.write && fail "a wrong KV_WRITE was used: $(cat "$work/text.write")"
says "a wrong KV_WRITE" 'error: vulkan0: KV_WRITE (node [0-9]*): kernel kv_write gives wrong results'
text write v text.write || fail "a refused KV_WRITE: $(cat "$work/err")"
says "a refused KV_WRITE" 'v does not run kv_write .* it runs on cpu'
same "$work/text.cpu" "$work/text.write" "text with a refused KV_WRITE"

# A wrong kernel of exchanges: the group does them on the host.
text wire vc text.wire || fail "a wrong exchange: $(cat "$work/err")"
says "a wrong exchange" 'kernel wire_sum gives wrong results with this driver'
says "a wrong exchange" "member 'v' exchanges through the host"
same "$work/text.cpu" "$work/text.wire" "text of a group with exchanges through the host"

# An op that has no other kernel.
text rows v text.rows && fail "a wrong norm was used: $(cat "$work/text.rows")"
says "a wrong norm" 'kernel row gives wrong results with this driver'
says "a wrong norm" 'error: vulkan0: RMS_NORM (node [0-9]*): kernel row gives wrong results'
text rows v text.rows || fail "a refused norm: $(cat "$work/err")"
says "a refused norm" 'v does not run rms_norm .* it runs on cpu'
says "a refused norm, in the device's description" '^model .*, wrong: row,'
same "$work/text.cpu" "$work/text.rows" "text with a refused norm"

# A kernel with which the driver resets the device: the start fails, and the next one does without
# it.
rm -r "$work/cache"
text lost v text.lost && fail "the device was lost: $(cat "$work/text.lost")"
says "a reset" 'kernel product_lane was checked when the driver reset the device'
says "a reset" 'error: .*the device is lost'
text plain v text.after || fail "after a reset: $(cat "$work/err")"
says "after a reset, in the device's description" '^model .*, wrong: product_lane,'
same "$work/text.cpu" "$work/text.after" "text after a reset"
tally_end
