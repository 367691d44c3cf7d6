#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""models.py: the table of docs/models.md from the tables of llm/arch and the lists of tests/model.

usage: models.py SOURCE_ROOT

Prints the table; test `wiring` compares it with the page.
"""

import re
import sys


def model_rows(read_all):
    """The lines of the table. read_all(pattern) gives the text of the files that match."""
    tables = dict()
    for body in re.findall(r'const llm_arch llm_arch_\w+ = \{(.*?)\};', read_all('llm/arch/*.c'), re.DOTALL):
        name, families = (re.search(r'\.%s = "([^"]*)"' % key, body).group(1) for key in ('name', 'families'))
        tables[name] = families
    compared = set(re.findall(r'^([^\s#-][^\s]*)-\w+$', read_all('tests/model/archs.txt'), re.MULTILINE))
    compared |= set(re.findall(r'^model tiny-(\w+) ', read_all('tests/model/tiny_models/models.txt'), re.MULTILINE))
    rows = ['| architecture | models | CPU | groups of CPUs |', '|---|---|---|---|']
    for name, families in sorted(tables.items()):
        state = 'compared' if name in compared else 'not compared'
        rows.append('| `%s` | %s | %s | %s |' % (name, families, state, state))
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
