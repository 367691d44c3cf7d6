#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""embed.py PAGE.html OUT.c: makes C of the page: its bytes, and a Content-Security-Policy that allows
its inline script and style by their SHA-256, and nothing else but requests to the server itself."""
import base64
import hashlib
import re
import sys

source, out = sys.argv[1:]
with open(source, encoding="utf-8") as file:
    text = file.read()


def hashes(tag):
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    if len(found) != 1 or len(re.findall(rf"<{tag}\b", text)) != 1:
        sys.exit(f"{source}: expected one <{tag}> without attributes")
    digest = hashlib.sha256(found[0].encode()).digest()
    return "'sha256-" + base64.b64encode(digest).decode() + "'"


policy = ("default-src 'none'; script-src " + hashes("script") + "; style-src " + hashes("style") +
          "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
          "frame-ancestors 'none'")
data = text.encode()
with open(out, "w", encoding="ascii") as file:
    file.write('/* Made by server/page/embed.py. */\n#include "server/page/page.h"\n\n')
    file.write("const unsigned char server_page[] = {\n")
    for at in range(0, len(data), 20):
        file.write("    " + ", ".join(str(byte) for byte in data[at:at + 20]) + ",\n")
    file.write("};\nconst size_t server_page_len = sizeof server_page;\n")
    file.write(f'const char server_page_policy[] =\n    "{policy}";\n')
