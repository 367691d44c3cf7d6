#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""models.py: the table of docs/models.md from the tables of llm/arch and the lists of tests/model.

usage: models.py SOURCE_ROOT

Prints the table; test `wiring` compares it with the page.
"""

import collections
import re
import sys


def model_rows(read_all):
    """The lines of the table. read_all(pattern) gives the text of the files that match."""
    tables = dict()
    for body in re.findall(r'const llm_arch llm_arch_\w+ = \{(.*?)\};', read_all('llm/arch/*.c'), re.DOTALL):
        name, families = (re.search(r'\.%s = "([^"]*)"' % key, body).group(1) for key in ('name', 'families'))
        tables[name] = families
    fixtures = collections.defaultdict(list)  # of an architecture: the words behind each name
    for arch, words in re.findall(r'^([^\s#-]\S*)-\w+([ a-z]*)$', read_all('tests/model/archs.txt'), re.MULTILINE):
        fixtures[arch].append(words.split())
    tiny = set(re.findall(r'^model tiny-(\w+) ', read_all('tests/model/tiny_models/models.txt'), re.MULTILINE))

    def state(arch, plugin=None):
        """Of an architecture: on the CPU, or on devices of a plugin, where all of its fixtures count."""
        if plugin is None:
            is_compared = arch in fixtures or arch in tiny
        else:
            is_compared = arch in fixtures and all(plugin in words for words in fixtures[arch])
        return 'compared' if is_compared else 'not compared'

    rows = ['| architecture | models | CPU | groups of CPUs | Vulkan | CUDA, HIP (emulated) |', '|---|---|---|---|---|---|']
    for name, families in sorted(tables.items()):
        columns = [state(name), state(name), state(name, 'vulkan'), state(name, 'cuda')]
        rows.append('| `%s` | %s | %s |' % (name, families, ' | '.join(columns)))
    return rows


if __name__ == '__main__':
    import glob
    import os
    if len(sys.argv) != 2:
        sys.exit(__doc__)

    def read(pattern):
        paths = sorted(glob.glob(os.path.join(sys.argv[1], pattern)))
        return '\n'.join(open(path, encoding='utf-8').read() for path in paths)
    print('\n'.join(model_rows(read)))
