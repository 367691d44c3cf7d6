#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_chat.sh: `tandem chat`, with input through a pipe and a model that was not trained to chat.
#   test_chat.sh TANDEM MODEL.gguf TEMPLATE.jinja
set -u
tandem=$1 model=$2 template=$3
. "$(dirname "$0")/../tally.sh"

# says TEXT: standard error contains it
says() { if grep -qF -e "$1" "$work/err"; then ok; else fail "no '$1' in: $(cat "$work/err")"; fi; }

# chat_exit CODE FLAGS...: runs chat on standard input; its output is in out and err
chat_exit() {
    wanted=$1
    shift
    timeout 200 "$tandem" chat -m "$model" --template "$template" -t 1 --temp 0 -c 256 "$@" \
        >"$work/out" 2>"$work/err"
    found=$?
    [ "$found" = "$wanted" ] || fail "chat $*: exit code $found: $(cat "$work/err")"
}
chat() { chat_exit 0 "$@"; }

# --- Without a template there is no conversation
"$tandem" chat -m "$model" >"$work/out" 2>"$work/err" </dev/null
[ $? = 1 ] && [ ! -s "$work/out" ] && ok || fail "no template: not refused"
says "--template FILE"
"$tandem" chat -m "$model" --template "$work/none" >"$work/out" 2>"$work/err" </dev/null
[ $? = 1 ] && ok || fail "a template that is not there"
printf '{%% if %%}' >"$work/bad.jinja"
"$tandem" chat -m "$model" --template "$work/bad.jinja" >"$work/out" 2>"$work/err" </dev/null
[ $? = 1 ] && ok || fail "a template that is wrong"
says "bad.jinja, line 1: an expression is expected"

# --- An answer is the continuation of the rendered template
printf 'Where is the dog?\n' | chat -n 20 -sys "A story."
cp "$work/out" "$work/first"
printf 'A story.\n\nChild: Where is the dog?\nMother:' >"$work/prompt"
"$tandem" run -m "$model" -t 1 --temp 0 -c 256 -n 20 -f "$work/prompt" --no-display-prompt --quiet \
    >"$work/plain" 2>"$work/err"
same "$work/first" "$work/plain" "the template's text"

# --- Conversations: the second answer follows both questions, whatever was computed before
printf 'Where is the dog?\nAnd the cat?\n/stats\n' | chat -n 20 -sys "A story."
says "were there already"
grep -q " 0 were there already" "$work/err" && fail "nothing was kept" || ok
cp "$work/out" "$work/two"
printf 'Where is the dog?\n/save %s\n' "$work/saved.json" | chat -n 20 -sys "A story."
says "3 messages saved"
printf '/load %s\nAnd the cat?\n' "$work/saved.json" | chat -n 20
cat "$work/first" "$work/out" >"$work/joined"
same "$work/two" "$work/joined" "saved and loaded"
printf 'Where is the dog?\n/regen\n' | chat -n 20 -sys "A story."
cat "$work/first" "$work/first" >"$work/twice"
same "$work/out" "$work/twice" "/regen at temperature 0"
printf 'Who?\nWhere is the dog?\n/clear\nWhere is the dog?\n' | chat -n 20 -sys "A story."
tail -n "$(wc -l <"$work/first")" "$work/out" >"$work/cleared"
same "$work/cleared" "$work/first" "/clear"

# --- Several lines
printf 'Where is\\\nthe dog?\n' | chat -n 12
cp "$work/out" "$work/lines"
printf '"""\nWhere is\nthe dog?\n"""\n' | chat -n 12
same "$work/out" "$work/lines" "a block of lines"
printf 'Where is the dog?\n' | chat -n 12
cmp -s "$work/out" "$work/lines" && fail "the newline is lost" || ok

# --- End of an answer: the mark of the template, also where the vocabulary has no token for it
sed 's/^# end$/e/' "$template" >"$work/e.jinja"
template="$work/e.jinja" && printf 'Where is the dog?\n' | chat -n 40
grep -q e "$work/out" && fail "goes on behind what ends a turn: $(cat "$work/out")" || ok
template=$3

# --- Mistakes are reported, and the conversation continues; at its end the exit code tells a script
printf '/frob\n/save\n/quit now\n/regen\n/load %s\n/save %s/no/where\n/help\nWhere is the dog?\n' \
    "$work/none" "$work" | chat_exit 1 -n 20 -sys "A story."
says "no command '/frob'"
says "it is /save FILE"
says "there is no answer yet"
says "none: cannot be read"
says "where: cannot be written"
says "Ctrl-C stops an answer"
says "6 of the messages and commands failed"
same "$work/out" "$work/first" "after mistakes"
cp "$work/saved.json" "$work/kept.json"
(
    ulimit -f 0 2>/dev/null || exit 3
    printf '/load %s\n/save %s\n' "$work/kept.json" "$work/saved.json" | "$tandem" chat -m "$model" -t 1 \
        -c 256 --template "$template" 2>&1 >/dev/null | grep -q "saved.json: cannot be written"
)
case $? in 0) ok ;; 3) echo "skipped: no limit on the size of files" ;; *) fail "a full disk is not told" ;; esac
same "$work/saved.json" "$work/kept.json" "the older conversation where there is no room for the new"
ls "$work"/*.tmp >/dev/null 2>&1 && fail "left behind: $(ls "$work"/*.tmp)"
printf '[{"role": "pirate", "content": "x"}]' >"$work/pirate.json"
printf '/load %s\nWho?\n' "$work/pirate.json" | chat_exit 1 -n 4
says "line 11: nobody called pirate is here"
for text in '{}' '[1]' '[{"role": 1, "content": "x"}]' '[{"role": "user"}]' '[' ''; do
    printf '%s' "$text" >"$work/bad.json"
    printf '/load %s\n' "$work/bad.json" | chat_exit 1 -n 4
    says "bad.json"
done

# --- A full context: old turns are dropped; an answer that is too long loses its own beginning
for i in 1 2 3 4 5 6; do printf 'Number %s: tell me of the dog and the cat and the bird.\n' "$i"; done |
    chat -n 30 -c 128 -sys "A story."
says "messages are forgotten"
printf 'Tell me a long story.\n/stats\n' | chat -n 150 -c 64
says "shifted"
grep -q "shifted 0 times" "$work/err" && fail "not shifted" || ok
says "generation  150 tokens"
printf 'Tell me a long story.\n' | chat -n 150 -c 64 --no-context-shift
says "the context is full"
printf 'One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen\n' |
    chat_exit 1 -n 5 -c 16
says "the conversation has"
says "1 of the messages and commands failed"
# A message that does not fit is left out, and no turn before it.
long=$(for i in 1 2 3 4 5 6 7 8; do printf 'one two three four five six seven eight nine ten '; done)
printf 'Who?\n%s\nAnd the cat?\n' "$long" | chat_exit 1 -n 5 -c 64
says "the conversation has"
cp "$work/out" "$work/without"
printf 'Who?\nAnd the cat?\n' | chat -n 5 -c 64
same "$work/out" "$work/without" "a message that does not fit"
# The present answer stays where there is no other one.
printf '[{"role": "user", "content": "%s"}, {"role": "assistant", "content": "Yes."}]' "$long" >"$work/long.json"
printf '/load %s\n/regen\n/save %s\n' "$work/long.json" "$work/after.json" | chat_exit 1 -n 5 -c 64
says "the conversation has"
says "2 messages saved"

# --- Ctrl-C stops the answer, not the program
mkfifo "$work/typed"
"$tandem" chat -m "$model" --template "$template" -t 1 --temp 0 -c 64 -n 100000000 \
    <"$work/typed" >"$work/out" 2>"$work/err" &
pid=$!
exec 3>"$work/typed"
printf 'Tell me a long story.\n' >&3
tries=0
while [ "$(wc -c <"$work/out")" -lt 200 ] && [ "$tries" -lt 300 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -INT "$pid"
printf '/stats\n/quit\n' >&3
exec 3>&-
wait "$pid"
found=$?
[ "$found" = 0 ] && ok || fail "after Ctrl-C: exit code $found"
says "stopped"
says "generation"

# --- Ctrl-C stops the reading of a long message between two steps; the conversation continues
# without it
"$tandem" chat -m "$model" --template "$template" -t 1 --temp 0 -c 65536 -b 65536 -ub 1 -n 4 \
    <"$work/typed" >"$work/out" 2>"$work/err" &
pid=$!
exec 3>"$work/typed"
awk 'BEGIN { for (i = 0; i < 12000; i++) printf "the dog and the "; print "cat." }' >&3
await_work "$pid"
kill -INT "$pid"
began=$(date +%s)
printf 'Hello.\n/stats\n/quit\n' >&3
exec 3>&-
wait "$pid"
found=$?
[ "$found" = 0 ] && [ $(($(date +%s) - began)) -lt 60 ] && ok || # the whole message takes several minutes
    fail "Ctrl-C in a prompt: exit code $found, $(($(date +%s) - began)) s later"
says "stopped"
says "generation  4 tokens"
says "; 0 were there already"

tally_end
