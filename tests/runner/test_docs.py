# SPDX-License-Identifier: MIT
"""test_docs.py: what README.md, docs/, conf/ and the fuzzers' page name exists: files, links,
headings, tests, commands with their flags, configurations, lists that the program prints, meanings
and ranges of keys. test_options.c checks that docs/config.md has all keys, test_split_doc.c the
rules of docs/split-states.md.

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


pages = [os.path.join(source, "README.md"), os.path.join(source, "CONTRIBUTING.md")] + sorted(glob.glob(os.path.join(source, "docs", "*.md")))
pages.append(os.path.join(source, "tests", "fuzz", "README.md"))
configurations = sorted(glob.glob(os.path.join(source, "conf", "*.ini")))
text_of = {page: open(page, encoding="utf-8").read() for page in pages + configurations}

# Files by their path from the top (* and NAME stand for any name), and links.
folders = "core|quant|certify|plugins|llm|server|runner|tests|bench|conf|docs|examples|scripts|models"
for page, text in text_of.items():
    for path in re.findall(rf"(?<![\w./-])((?:{folders})/[\w./*-]*[\w/*])", text):
        if not glob.glob(os.path.join(source, path.replace("NAME", "*"))):
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

# Commands. Flags before --help are read; --help ends the reading.
_, printed, _ = run("--help")
commands = re.findall(r"^  ([a-z-]+)", printed.split("Commands\n")[1].split("\n\n")[0], re.M)
if "serve" not in commands:  # a build without libwebsockets, jansson or OpenSSL
    print("SKIPPED: tandem serve: not in this build")
n_command = 0
for page, text in text_of.items():
    lines = re.findall(r"`(tandem [^`]+)`", " ".join(text.split())) + re.findall(r"^#   (tandem .*)", text, re.M)
    for block in blocks(text) if page.endswith(".md") else []:
        lines += re.findall(r"^ *(?:\w+=\S+ )?(tandem .*)", block.replace("\\\n", " "), re.M)
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        if words[0] in ("COMMAND", "help") or (words[0] == "serve" and "serve" not in commands):
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

# What each key of config.md means, as --help has it, and its range, as an error has it.


def help_of(command):
    """{(topic, key): meaning} as `tandem COMMAND --help` has it."""
    found, topic, entry = {}, "", None
    for line in run(command, "--help")[1].splitlines():
        flag = re.match(r"  (?:-\w+, |    )--(?:\[no-\])?([\w-]+)(?: \S+)? *(.*)", line)
        if flag:
            entry = (topic, flag.group(1))
            found[entry] = flag.group(2)
        elif entry and line.startswith(" " * 30):
            found[entry] += " " + line.strip()
        else:
            topic, entry = line, None
    for entry, text in found.items():
        for end in (r" \(default [^)]*\)", r"; also --[\w-]+", r"; a list gives every combination", r"; one of [\w, -]+"):
            text = re.sub(end + "$", "", text)
        found[entry] = text.strip()
    return found


def number(text):
    power = re.fullmatch("2([⁰¹²³⁴-⁹]+)(−1)?", text)
    if not power:
        return float(text)
    return 2.0 ** int(power.group(1).translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789"))) - (power.group(2) is not None)


helps = {}
takes = {}
for command in commands:
    for entry, text in help_of(command).items():
        helps.setdefault(entry, text)
        takes.setdefault(entry, command)
topic, n_key = "", 0
for line in text_of[page].split("## All keys")[1].splitlines():
    topic = line[4:] if line.startswith("### ") else topic
    if not line.startswith("| `"):
        continue
    name, _, value, _, meaning = (cell.strip() for cell in line.strip("| ").split(" | "))
    entry = (topic, name.strip("`"))
    if entry not in helps:  # a key of files only
        continue
    n_key += 1
    meaning = re.sub(r"\[([\w.]+)\]\(\1\)", r"docs/\1", meaning)
    if meaning.replace("`", "") != helps[entry].replace("`", ""):
        fail(page, f"'{name}' means: {meaning}\n  --help has: {helps[entry]}")
    said = re.match(r"(\S+) to ([^ ,]+)", value)
    if said:
        err = run(takes[entry], f"--{entry[1]}", "?")[2]
        real = re.search(r"from (\S+) to ([\d.]+)", err)
        if not real or [float(n) for n in real.groups()] != [number(n) for n in said.groups()]:
            fail(page, f"'{name}' is {value}; {err.strip()}")
if n_key < 60:
    failures.append(f"only {n_key} keys were found")

# Lists in README.md that the program prints.
page = pages[0]
rows = re.findall(r"^\| `tandem ([a-z-]+)`", text_of[page], re.M)
if "serve" not in commands:
    rows.remove("serve")
if sorted(commands) != sorted(rows):
    fail(page, f"commands {sorted(set(commands) ^ set(rows))}")
_, printed, _ = run("quantize", "--help")
types = re.findall(r"^  (\w+) +[\d.]+ bits", printed, re.M)
said = re.search(r"`tandem quantize IN.gguf OUT.gguf TYPE` knows (.*?);", " ".join(text_of[page].split())).group(1)
if types != re.split(r", | and ", said):
    fail(page, f"types of quantize: {said}; there are {types}")

# The number of architectures in README.md is that of the rows in docs/models.md.
rows = re.findall(r"^\| `", text_of[os.path.join(source, "docs", "models.md")], re.M)
said = re.search(r"(\d+)\s+architectures", text_of[page]).group(1)
if int(said) != len(rows):
    fail(page, f"{said} architectures; docs/models.md has {len(rows)}")

# What README.md says `tandem plan` prints of a group, with emulated cards and a software driver. Of a
# member's memory only the bytes of weights and cache are compared: the rest depends on the machine.
simt = {name: os.path.join(build, "tests", "simt", f"lib{library}_simt.so") for name, library in (("cuda", "cuda"), ("hip", "amdhip64"))}
plugins = {name: os.path.join(build, "plugins", name) for name in ("cpu", "meta", "cuda", "hip", "vulkan")}
shown = re.search(r"^    model +llama.*?(?=^\S)", text_of[page], re.M | re.S).group(0)
with open(os.path.join(source, "conf", "nvidia-amd-cpu.ini"), encoding="utf-8") as f:
    text = f.read().replace("../models", os.path.join(source, "models"))
for name, library in simt.items():
    text = text.replace(f"plugin = {name}\n", f"plugin = {name}\ndriver = {library}\n")
text = re.sub(r"^plugin = vulkan$", "plugin = vulkan\nallow-cpu = yes", text, flags=re.M).replace("index = 2", "index = 0")
text = re.sub(r"^reserve = .*\n", "", text, flags=re.M)
os.environ["TANDEM_PLUGIN_PATH"] = ":".join(plugins.values())
os.environ["TANDEM_SIMT_MEMORY"] = str(16 << 30)
os.environ["TANDEM_TEST_RATES"] = "4e11,4e12 3e11,3e12 2e11,2e12 1e11,1e12"
os.environ["TANDEM_TEST_LINKS"] = "1e-5,1e-5"
if all(os.path.exists(path) for path in [*simt.values(), *(os.path.join(path, name + ".so") for name, path in plugins.items())]):
    with tempfile.TemporaryDirectory() as work:
        with open(os.path.join(work, "x.ini"), "w", encoding="utf-8") as f:
            f.write(text)
        code, printed, err = run("plan", "--config", os.path.join(work, "x.ini"))
    if code != 0 and "integrated" in err and "no device" in err:
        print("SKIPPED: the plan in README.md:", err.strip())
    elif code != 0:
        fail(page, err.strip())
    else:
        def fixed(line):
            words = line.split()
            # A CPU's weights and what it computes in: their bytes go by the instruction set.
            if words[1:2] == ["cpu"]:
                return words[:4] + words[6:10]
            return words[:10] if "%" in words[:4] else words[:7] if words[:1] == ["together"] else words

        there = [fixed(line) for line in printed.splitlines()]
        for line in shown.splitlines():
            if line.strip() and not line.startswith("    model ") and fixed(line) not in there:
                fail(page, f"`tandem plan` does not print: {line.strip()}")
else:
    print("SKIPPED: the plan in README.md: without emulated drivers or the Vulkan plugin")

print("\n".join(failures) or f"{n_command} commands, {n_ini} configurations, {n_key} keys")
sys.exit(1 if failures else 0)
