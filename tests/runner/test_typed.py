#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_typed.py TANDEM MODEL TEMPLATE: `tandem chat` on a terminal: what is typed reaches the conversation as
it is, in any locale, also where lines are edited."""
import json
import os
import pty
import select
import sys
import tempfile
import time

tandem, model, template = sys.argv[1:]
LIMIT = 240  # seconds for an answer: with a sanitizer on a busy machine, more than a minute


def wait_for(terminal, word=None):
    """Reads until `word` has come; None: until the program has ended."""
    got, end = b"", time.monotonic() + LIMIT
    while word is None or word not in got:
        if time.monotonic() > end:
            raise SystemExit(f"no {word or 'end'!r} in {got!r}")
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # so Linux reports that the other side of a terminal is closed
            chunk = b""
        if not chunk:
            if word is not None:
                raise SystemExit(f"ended without {word!r}: {got!r}")
            return
        got += chunk


def typed(lines, environment):
    """Types lines, each at a prompt; returns the exit status."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(environment)
        os.execv(tandem, [tandem, "chat", "-m", model, "--template", template, "-n", "2", "--temp", "0"])
    for line in lines:
        wait_for(terminal, b"> ")
        os.write(terminal, line.encode() + b"\n")
    wait_for(terminal)
    status = os.waitpid(child, 0)[1]
    os.close(terminal)
    return status


def main():
    text = "Gr\u00fc\u00dfe, \u4e16\u754c \U0001f600 \u00e9!"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "saved.json")
        for environment in ({"LC_ALL": "C"}, {"LC_ALL": "C.UTF-8"}, {"LC_ALL": "", "LANG": "", "TERM": "dumb"}):
            status = typed([text, f"/save {path}", "/quit"], {"TERM": "xterm", **environment})
            with open(path, encoding="utf-8") as file:
                message = json.load(file)[0]
            if status != 0 or message != {"role": "user", "content": text}:
                raise SystemExit(f"{environment}: exit status {status}, {message}")
            os.remove(path)
    print("passed")


main()
