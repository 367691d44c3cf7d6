#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# reference.py: renders templates with Jinja, set up as chat templates expect (the sandbox, trimmed
# blocks, tojson without HTML escapes). Arguments and output are render_template.c's:
#   reference.py TEMPLATE CONTEXTS.json
#   reference.py SNIPPETS.json
#   reference.py --compare TOOL DIRECTORY [GGUF...]   run both on everything there, and compare
#   reference.py --compare-peer TOOL DIRECTORY        the same with the templates of llama.cpp's source,
#                                                     in $TANDEM_PEER/src/models/templates
# Debian's package is python3-jinja2. Without it the exit code is 77, which Meson reports as a skip.
import datetime
import json
import os
import struct
import subprocess
import sys

try:
    import jinja2.ext
    import jinja2.nodes
    import jinja2.sandbox
except ImportError:
    print("SKIP: python3-jinja2 is not installed", file=sys.stderr)
    sys.exit(77)

NOW = datetime.datetime.fromtimestamp(1753920000, datetime.timezone.utc)


class Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox. Templates may append to lists and remove from them."""

    def is_safe_attribute(self, obj, attr, value):
        if isinstance(obj, list) and attr in ("append", "pop"):
            return True
        return super().is_safe_attribute(obj, attr, value)


class Generation(jinja2.ext.Extension):
    """A tag that marks the text that a model is trained on. It prints its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("inside"), [], [], body).set_lineno(line)

    def inside(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def render(text, context):
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = tojson
    environment.filters["from_json"] = json.loads
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = NOW.strftime
    try:
        return environment.from_string(text).render(**context)
    except Exception as error:  # a template may fail in any way that Python can
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return None


def gguf_template(path):
    """The value of tokenizer.chat_template."""
    with open(path, "rb") as file:
        data = file.read()
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    at = 24

    def string():
        nonlocal at
        (n,) = struct.unpack_from("<Q", data, at)
        at += 8 + n
        return data[at - n:at]

    def value(kind):
        nonlocal at
        if kind == 8:
            return string()
        if kind == 9:
            item, n = struct.unpack_from("<IQ", data, at)
            at += 12
            for _ in range(n):
                value(item)
            return None
        at += sizes[kind]
        return None

    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        key = string()
        (kind,) = struct.unpack_from("<I", data, at)
        at += 4
        found = value(kind)
        if key == b"tokenizer.chat_template":
            return found.decode()
    return ""


def read(path):
    if path.endswith(".gguf"):
        return gguf_template(path)
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def results(arguments):
    items = json.loads(read(arguments[-1]))
    if len(arguments) == 1:
        return [render(text, context) for text, context in items]
    text = read(arguments[0])
    return [render(text, context) for context in items]


def answer(arguments):
    return json.dumps(results(arguments), ensure_ascii=False, indent=1) + "\n"


def templates(folder):
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))
            if name.endswith(".jinja")]


def compare(tool, directory, files):
    contexts = os.path.join(directory, "conversations.json")
    return runs_compare(tool, [[os.path.join(directory, "snippets.json")]] +
                        [[name, contexts] for name in templates(directory) + files
                         if os.path.exists(name)])


def compare_peer(tool, directory):
    folder = os.path.join(os.environ.get("TANDEM_PEER", ""), "src/models/templates")
    if not os.path.isdir(folder):
        print(f"SKIP: {folder} is not there (TANDEM_PEER names a folder with llama.cpp's source)",
              file=sys.stderr)
        return 77
    contexts = [os.path.join(directory, name)
                for name in ("conversations.json", "tool_conversations.json")]
    return runs_compare(tool, [[name, c] for name in templates(folder) for c in contexts])


def runs_compare(tool, runs):
    n_bad = n = 0
    for run in runs:
        done = subprocess.run([tool] + run, capture_output=True, text=True, check=False,
                              env=dict(os.environ, TZ="UTC"))
        wanted = results(run)
        found = json.loads(done.stdout) if done.returncode == 0 else []
        n += len(wanted)
        if len(found) != len(wanted):
            print(f"{run}: {len(found)} results, not {len(wanted)}: {done.stderr}")
            n_bad += 1
            continue
        for i, (a, b) in enumerate(zip(found, wanted)):
            if a != b:
                n_bad += 1
                print(f"{run[0]}, {i}:\n  tandem {a!r}\n  jinja2 {b!r}\n  {done.stderr[:2000]}")
    print(f"{n} texts of {len(runs)} files compared with jinja2 {jinja2.__version__}, "
          f"{n_bad} differ")
    return 1 if n_bad > 0 or n == 0 else 0


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--compare-peer":
        sys.exit(compare_peer(sys.argv[2], sys.argv[3]))
    if len(sys.argv) > 3 and sys.argv[1] == "--compare":
        sys.exit(compare(sys.argv[2], sys.argv[3], sys.argv[4:]))
    sys.stdout.write(answer(sys.argv[1:]))
