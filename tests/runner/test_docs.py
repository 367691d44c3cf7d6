# SPDX-License-Identifier: MIT
"""test_docs.py: what README.md, docs/ and conf/ name is there: files, links, headings, tests, commands
with their flags, configurations, and the program's own lists. The keys of docs/config.md are
test_options.c's, the rules of docs/split-states.md test_split_doc.c's.

    test_docs.py TANDEM SOURCE BUILD"""
import glob
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

tandem, source, build = (os.path.abspath(path) for path in sys.argv[1:4])
failures = []


def fail(page, what):
    failures.append(f"{os.path.relpath(page, source)}: {what}")


def run(*args, cwd=source):
    done = subprocess.run([tandem, *args], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def blocks(text):
    """The code of a page: what stands between fences, and what is indented by four."""
    found = [m.group(1) for m in re.finditer(r"^```[a-z]*\n(.*?)^```$", text, re.M | re.S)]
    rest = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    found += re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", rest, re.M)
    return found


pages = [os.path.join(source, "README.md")] + sorted(glob.glob(os.path.join(source, "docs", "*.md")))
configurations = sorted(glob.glob(os.path.join(source, "conf", "*.ini")))
text_of = {page: open(page, encoding="utf-8").read() for page in pages + configurations}

# Files by their path from the top, and links.
folders = "core|plugins|llm|runner|tests|bench|conf|docs|examples|scripts|models"
for page, text in text_of.items():
    for path in re.findall(rf"(?<![\w./-])((?:{folders})/[\w./-]*[\w/])", text):
        if not os.path.exists(os.path.join(source, path)):
            fail(page, f"no file {path}")
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        if not os.path.exists(os.path.join(os.path.dirname(page), link)):
            fail(page, f"a link to {link}, which is not there")
    # "(see *Matrix products*)"
    flat = " ".join(text.split())
    for name in re.findall(r"see \*([^*]+)\*", flat):
        if not re.search(rf"^#+ {re.escape(name)}$", text, re.M):
            fail(page, f"no heading '{name}'")

# Tests by name.
with open(os.path.join(build, "meson-info", "intro-tests.json"), encoding="utf-8") as f:
    tests = {test["name"] for test in json.load(f)}
for page, text in text_of.items():
    for line in re.findall(r"meson test -C BUILD (.*)", text):
        for name in line.split(" --")[0].split("#")[0].split():
            if name not in tests:
                fail(page, f"no test '{name}'")

# Commands: their flags are read before --help is, which ends the reading.
n_command = 0
for page, text in text_of.items():
    lines = re.findall(r"`(tandem [^`]+)`", " ".join(text.split())) + re.findall(r"^#   (tandem .*)", text, re.M)
    for block in blocks(text) if page.endswith(".md") else []:
        lines += re.findall(r"^ *(?:\w+=\S+ )?(tandem .*)", block.replace("\\\n", " "), re.M)
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        if words[0] in ("COMMAND", "help"):
            continue
        n_command += 1
        code, _, err = run(*words, "--help")
        if code != 0:
            fail(page, f"`{line}`: {err.strip()}")
if n_command < 30:
    failures.append(f"only {n_command} commands were found")

# Configurations, and what config.md says `tandem config` prints.
n_ini = 0
with tempfile.TemporaryDirectory() as work:
    for page in pages:
        for block in blocks(text_of[page]):
            if not re.search(r"^ *[a-z-]+ *= ", block, re.M) or re.search(r"^ *(tandem|meson) ", block, re.M):
                continue
            if re.search(r"[{;]$", block, re.M):  # C
                continue
            n_ini += 1
            with open(os.path.join(work, "x.ini"), "w", encoding="utf-8") as f:
                f.write(block)
            code, _, err = run("config", "--config", os.path.join(work, "x.ini"))
            if code != 0:
                fail(page, err.strip())
if n_ini < 5:
    failures.append(f"only {n_ini} configurations were found")
page = os.path.join(source, "docs", "config.md")
_, printed, _ = run("config", "--config", "conf/demo.ini", "--temp", "0")
for line in re.search(r"^```ini\n(.*?)^```$", text_of[page], re.M | re.S).group(1).splitlines():
    if line not in printed.splitlines():
        fail(page, f"`tandem config --config conf/demo.ini --temp 0` does not print: {line}")

# The program's own lists in README.md.
page = pages[0]
_, printed, _ = run("--help")
commands = re.findall(r"^  ([a-z-]+)", printed.split("Commands\n")[1].split("\n\n")[0], re.M)
rows = re.findall(r"^\| `tandem ([a-z-]+)`", text_of[page], re.M)
if sorted(commands) != sorted(rows):
    fail(page, f"commands {sorted(set(commands) ^ set(rows))}")
_, printed, _ = run("quantize", "--help")
types = re.findall(r"^  (\w+) +[\d.]+ bits", printed, re.M)
said = re.search(r"`tandem quantize IN.gguf OUT.gguf TYPE` knows (.*?);", " ".join(text_of[page].split())).group(1)
if types != re.split(r", | and ", said):
    fail(page, f"types of quantize: {said}; there are {types}")

print("\n".join(failures) or f"{n_command} commands, {n_ini} configurations")
sys.exit(1 if failures else 0)
