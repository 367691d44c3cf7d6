#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""wiring.py: compares each list with all places that repeat it.

usage: wiring.py SOURCE_ROOT

A check reads the sources and yields a line for each thing that is missing. Then each row of MUTATIONS
changes one file in memory, and its check must yield a line with the text of the row. So each check is
shown to fail. Nothing is written.

To extend it, add a function with @check, and at least one row of MUTATIONS for it.
"""

import collections
import glob
import os
import re
import sys

sys.dont_write_bytecode = True  # nothing is written

from models import model_rows

CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


class Sources:
    """The files of the tree; `changed` replaces the text of some."""

    def __init__(self, root, changed=None):
        self.root = root
        self.changed = changed or {}

    def read(self, path):
        if path in self.changed:
            return self.changed[path]
        with open(os.path.join(self.root, path), encoding='utf-8') as file:
            return file.read()

    def read_all(self, *patterns):
        """The text of all files that match."""
        paths = set()
        for pattern in patterns:
            paths.update(glob.glob(os.path.join(self.root, pattern), recursive=True))
        return '\n'.join(self.read(os.path.relpath(path, self.root)) for path in sorted(paths))


def macro_rows(text, macro, row):
    """The arguments of each ROW(...) in the definition of a list macro."""
    match = re.search(r'#define %s\(%s\)(.*?[^\\])\n' % (macro, row), text, re.DOTALL)
    if match is None:
        raise SystemExit('no list %s' % macro)
    body = match.group(1).replace('\\\n', ' ')
    body = re.sub(r'/\*.*?\*/', ' ', body)
    return [[word.strip() for word in args.split(',')]
            for args in re.findall(r'\b%s\(([^()]*)\)' % row, body)]


def missing(names, text, pattern, what):
    """A line for each name whose pattern is not in the text. %s in the pattern is the name."""
    for name in names:
        if re.search(pattern % re.escape(name), text) is None:
            yield what % name


# ---- Ops ------------------------------------------------------------------------------------------

OP_H = 'core/include/tandem/op.h'


class Op:
    def __init__(self, row):
        self.id, self.name, self.number, self.kind = row[0], row[1], int(row[2]), row[3]


def ops(sources, *kinds):
    rows = [Op(row) for row in macro_rows(sources.read(OP_H), 'TDM_OP_LIST', 'OP')]
    return [op for op in rows if not kinds or op.kind in kinds]


def op_names(sources, *kinds):
    return [op.name for op in ops(sources, *kinds)]


@check
def op_rows(sources):
    """Numbers are 1, 2, 3 ..., names are the ids in small letters."""
    for number, op in enumerate(ops(sources), 1):
        if op.number != number:
            yield '%s: row %d has number %d' % (op.id, number, op.number)
        if op.name != op.id.lower():
            yield '%s: named %s' % (op.id, op.name)


@check
def op_contracts(sources):
    """The comment of op.h describes each op, and nothing else."""
    prose = sources.read(OP_H).split('#define TDM_OP_LIST')[0]
    told = re.findall(r'^ \*   ([A-Z][A-Z0-9_]+) ', prose, re.MULTILINE)
    ids = [op.id for op in ops(sources)]
    for op_id in ids:
        if told.count(op_id) != 1:
            yield 'op.h says %d times what %s computes' % (told.count(op_id), op_id)
    for op_id in told:
        if op_id not in ids:
            yield 'op.h describes %s, which is no op' % op_id


@check
def op_builder(sources):
    yield from missing(op_names(sources), sources.read('core/graph/builder_nodes.h'),
                       r'\btdm_build_%s\(', 'builder_nodes.h has no tdm_build_%s')


@check
def op_cpu(sources):
    text = sources.read_all('plugins/cpu/ops/*.c', 'plugins/cpu/kv/*.c')
    yield from missing(op_names(sources, 'VALUE', 'CACHE', 'GROUP'), text,
                       r'\bconst cpu_op_impl cpu_op_%s = ', 'plugins/cpu has no cpu_op_%s')


@check
def op_rules_of_groups(sources):
    """plugins/meta has a rule, and docs/split-states.md a row, for each op except EXCHANGE."""
    text = sources.read_all('plugins/meta/rules/*.c')
    yield from missing(op_names(sources, 'VIEW', 'VALUE', 'CACHE'), text,
                       r'\bconst meta_rule meta_rule_%s\b', 'plugins/meta has no meta_rule_%s')
    page = sources.read('docs/split-states.md')
    rows = re.findall(r'^\| ([A-Z][A-Z0-9_]+) \|', page, re.MULTILINE)
    ids = [op.id for op in ops(sources, 'VIEW', 'VALUE', 'CACHE')]
    for op_id in ids:
        if rows.count(op_id) != 1:
            yield 'docs/split-states.md has %d rows of %s' % (rows.count(op_id), op_id)
    for op_id in rows:
        if op_id not in ids:
            yield 'docs/split-states.md has a row of %s, which is no op' % op_id


@check
def op_certify(sources):
    """An op has cases and a reference; ops on caches and in groups have other checks."""
    text = sources.read_all('certify/case_*.c')
    for name in op_names(sources, 'VIEW', 'VALUE'):
        if re.search(r'CERTIFY_OP\(\s*%s,\s*"op\.%s",' % (name, name.replace('_', '-')), text) is None:
            yield 'certify has no case of %s' % name
    other = sources.read_all('certify/cache*.c', 'certify/kv.c', 'certify/exchange*.c')
    yield from missing(op_names(sources, 'CACHE', 'GROUP'), other, r'\btdm_build_%s\(',
                       'certify runs no %s')


@check
def op_tests(sources):
    """The tests of inference, of kernels and of groups have each op."""
    infer = sources.read_all('tests/unit/test_graph_infer*.c', 'tests/unit/test_graph_verify.c')
    for op in ops(sources):
        if re.search(r'\bTDM_OP_%s\b|\btdm_build_%s\(' % (op.id, op.name), infer) is None:
            yield 'tests of inference have no %s' % op.name
    kernels = sources.read_all('tests/kernels/*.c')
    for op in ops(sources, 'VALUE', 'CACHE'):
        if re.search(r'\bTDM_OP_%s\b|\btdm_build_%s\(' % (op.id, op.name), kernels) is None:
            yield 'tests/kernels has no %s' % op.name
    groups = sources.read_all('tests/split/random_*.c')
    yield from missing(op_names(sources, 'VIEW', 'VALUE', 'CACHE'), groups, r'\btdm_build_%s\(',
                       'tests/split/random_*.c have no %s')


@check
def activations(sources):
    """The comment of op.h, the CPU's two plain forms and certify's reference have each activation."""
    op_h = sources.read(OP_H)
    rows = macro_rows(op_h, 'TDM_ACT_LIST', 'ACT')
    arith, reference = sources.read('plugins/cpu/ops/arith.c'), sources.read('certify/case_arith.c')
    for number, row in enumerate(rows):
        act = row[0]
        if int(row[2]) != number:
            yield 'activation %s: row %d has number %s' % (act, number, row[2])
        if re.search(r'^ \*   %s ' % act, op_h, re.MULTILINE) is None:
            yield 'op.h does not say what the activation %s is' % act
        if act == 'NONE':
            continue
        if arith.count('case TDM_ACT_%s:' % act) != 2:
            yield 'plugins/cpu/ops/arith.c lacks the activation %s' % act
        if reference.count('case TDM_ACT_%s:' % act) != 1:
            yield 'certify/case_arith.c lacks the activation %s' % act


# ---- Types ----------------------------------------------------------------------------------------

TYPE_H = 'core/include/tandem/type.h'


class Type:
    def __init__(self, row):
        self.id, self.name, self.number, self.kind = row[0], row[1], int(row[2]), row[3]


def types(sources, *kinds):
    rows = [Type(row) for row in macro_rows(sources.read(TYPE_H), 'TDM_TYPE_LIST', 'TYPE')]
    return [row for row in rows if not kinds or row.kind in kinds]


def type_ids(sources, *kinds):
    return [row.id for row in types(sources, *kinds)]


@check
def type_rows(sources):
    """Numbers rise, and names are the ids but for the case of letters."""
    last = -1
    for row in types(sources):
        if row.number <= last or row.name.upper() != row.id:
            yield '%s: number %d after %d, named %s' % (row.id, row.number, last, row.name)
        last = row.number


@check
def type_blocks(sources):
    """block.h describes the bytes of each quantised type."""
    yield from missing([row.name for row in types(sources, 'BLOCK')],
                       sources.read('core/include/tandem/block.h'), r'\} tdm_block_%s;',
                       'block.h has no tdm_block_%s')


@check
def type_cpu(sources):
    """The CPU plugin keeps weights of each type in a layout, and unpacks each quantised one."""
    yield from missing(type_ids(sources, 'FLOAT', 'BLOCK'), sources.read('plugins/cpu/ops/weight.c'),
                       r'\[TDM_TYPE_%s\] =', 'plugins/cpu/ops/weight.c has no row of %s')
    unpacked = sources.read('plugins/cpu/ops/matmul_plain.c') + sources.read('quant/codes.c')
    yield from missing(type_ids(sources, 'BLOCK'), unpacked, r'\[TDM_TYPE_%s\] =',
                       'neither matmul_plain.c nor quant/codes.c unpacks %s')


@check
def type_gpu(sources):
    """GPU plugins have a layout and code for weights of each type, under the type's number."""
    rows = types(sources, 'FLOAT', 'BLOCK')
    yield from missing([row.id for row in rows], sources.read('plugins/gpu/layout/weight.c'),
                       r'\[TDM_TYPE_%s\] =', 'plugins/gpu/layout/weight.c has no row of %s')
    each = sources.read('plugins/gpu/kernels/each_type.h')
    for path, text in (('plugins/gpu/kernels/each_type.h', each),
                       ('plugins/vulkan/shaders/dequant.glsl',
                        sources.read('plugins/vulkan/shaders/dequant.glsl'))):
        for row in rows:
            if re.search(r'#define TYPE_%s +%d\n' % (row.id, row.number), text) is None:
                yield '%s has no TYPE_%s with the number %d' % (path, row.id, row.number)
    yield from missing([str(row.number) for row in rows], each, r'#define WEIGHT_TYPE %s\n',
                       'plugins/gpu/kernels/each_type.h has no part for type %s')


@check
def type_tests(sources):
    """Tests compare the bytes, the numbers and the error of each quantised type with llama.cpp's."""
    ids = type_ids(sources, 'BLOCK')
    layout = sources.read('tests/unit/test_block_layout.c')
    for type_id in ids:
        if len(re.findall(r'\{TDM_TYPE_%s, ' % type_id, layout)) < 2:
            yield 'test_block_layout.c has no probes and golden numbers of %s' % type_id
    yield from missing(ids, sources.read('tests/unit/test_quantize_error.c'), r'\{TDM_TYPE_%s, ',
                       'test_quantize_error.c has no row of %s')


@check
def type_pages(sources):
    """docs/accuracy.md has a row for each quantised type, and `tandem quantize` writes it."""
    names = [row.name for row in types(sources, 'BLOCK')]
    yield from missing(names, sources.read('docs/accuracy.md'), r'\n\| %s(?:_[SM])? \|',
                       'docs/accuracy.md has no row of %s')
    yield from missing(type_ids(sources, 'FLOAT', 'BLOCK'),
                       sources.read('llm/quantize/quantize_mix.c'),
                       r'\{"\w+", TDM_TYPE_%s, ', 'tandem quantize writes no %s')


@check
def type_lists(sources):
    """README lists the types of weights and those that `tandem quantize` writes; bench's random models
    have a file type for each type of weights."""
    readme = ' '.join(sources.read('README.md').split())
    yield from list_differences('README.md: models', types_between(readme, r'Weights are in ', ';'),
                                [row.name for row in types(sources, 'FLOAT', 'BLOCK')])
    kinds = re.findall(r'\n    \{"(\w+)", TDM_TYPE_', sources.read('llm/quantize/quantize_mix.c'))
    yield from list_differences('README.md: tandem quantize', types_between(readme, 'TYPE` knows ', ';'),
                                kinds)
    yield from missing([i for i in type_ids(sources, 'FLOAT', 'BLOCK') if i != 'F32'],
                       sources.read('bench/random_model.c'), r'case TDM_TYPE_%s: return',
                       'bench/random_model.c has no file type of %s')


# ---- Types of caches ------------------------------------------------------------------------------

KV_H = 'core/include/tandem/kv.h'


def types_between(text, before, after):
    """The names in a sentence of a page, or in a comment of a file."""
    match = re.search(before + r'(.*?)' + after, text, re.DOTALL)
    return [] if match is None else re.findall(r'\b[a-z]+\d\w*\b', match.group(1))


def list_differences(where, found, expected):
    for name in expected:
        if name not in found:
            yield '%s has no %s' % (where, name)
    for name in found:
        if name not in expected:
            yield '%s has %s, which is none' % (where, name)


def cache_rows(sources):
    text = sources.read(KV_H)
    return [(row[0], row[1], kind) for kind in ('FLOAT', 'BLOCK')
            for row in macro_rows(text, 'TDM_KV_%s_TYPE_LIST' % kind, 'TYPE')]


@check
def cache_types(sources):
    """The types of caches are types, and pages, bounds and tables of accuracy have each of them."""
    rows = cache_rows(sources)
    known = {(row.id, row.name, row.kind) for row in types(sources)}
    for row in rows:
        if row not in known:
            yield 'cache type %s: type.h has no %s %s with that name' % (row[1], row[2], row[0])
    names, ids = [row[1] for row in rows], [row[0] for row in rows]
    for path, before, after in (
            ('README.md', 'The cache holds K and V in ', ', a type for each'),
            ('docs/abi.md', 'K and V each have a type, any of ', ';'),
            ('conf/demo.ini', 'Types in which the cache keeps K and V: ', '\n')):
        yield from list_differences(path, types_between(sources.read(path), before, after), names)
    accuracy = sources.read('docs/accuracy.md')
    for header in re.findall(r'\n\| K \\ V \|(.*)', accuracy):
        yield from list_differences('docs/accuracy.md', re.findall(r'\w+', header), names)
    for path in ('tests/model/test_cache.c', 'tests/model/test_shift.c', 'tests/model/test_latent.c'):
        yield from missing(ids, sources.read(path), r'\{TDM_TYPE_%s, ', path + ' has no bound of %s')


# ---- Kernels of GPU plugins -----------------------------------------------------------------------

KERNEL_H = 'plugins/gpu/plan/kernel.h'


@check
def gpu_kernels(sources):
    """Each row of GPU_KERNEL_LIST that does not say RT_ONLY has a shader, and each is launched by an
    emitter or a plugin."""
    text = re.sub(r'/\*.*?\*/', ' ', sources.read(KERNEL_H), flags=re.DOTALL)
    rows = re.findall(r'\bKERNEL\((\w+), (\w+), \d, \w+, (\w+)', text)
    emitters = sources.read_all('plugins/gpu/ops/*.c', 'plugins/gpu/plan/*.c',
                                'plugins/vulkan/measure.c', 'plugins/gpu/rt/measure.c',
                                'plugins/gpu/rt/plan.c')
    folder = os.path.join(sources.root, 'plugins/vulkan/shaders')
    shaders = {os.path.splitext(os.path.basename(path))[0]
               for path in glob.glob(os.path.join(folder, '*.comp'))}
    for kernel, name, rt in rows:
        if name != kernel.lower():
            yield 'kernel %s: named %s' % (kernel, name)
        if name not in shaders and rt != 'RT_ONLY':
            yield 'there is no plugins/vulkan/shaders/%s.comp' % name
        if name in shaders and rt == 'RT_ONLY':
            yield 'kernel %s: RT_ONLY, but it has a shader' % name
        if re.search(r'\bGPU_KERNEL_%s\b' % kernel, emitters) is None:
            yield 'no emitter launches %s' % name
    for name in sorted(shaders - {name for _, name, _ in rows}):
        yield 'shaders/%s.comp is no row of GPU_KERNEL_LIST' % name


@check
def rt_kernels(sources):
    """The kernels of CUDA and HIP: the rows of GPU_KERNEL_LIST that say RT_SHARED or RT_ONLY, and the files."""
    text = re.sub(r'/\*.*?\*/', ' ', sources.read(KERNEL_H), flags=re.DOTALL)
    rows = set(re.findall(r'\bKERNEL\(\w+, (\w+), \d, \w+, RT_(?:SHARED|ONLY)\(', text))
    paths = glob.glob(os.path.join(sources.root, 'plugins/gpu/kernels/*.cu'))
    files = {os.path.splitext(os.path.basename(path))[0] for path in paths}
    for name in sorted(files - rows):
        yield 'GPU_KERNEL_LIST has no RT_SHARED for kernels/%s.cu' % name
    for name in sorted(rows - files):
        yield 'there is no plugins/gpu/kernels/%s.cu' % name


# ---- Folders --------------------------------------------------------------------------------------

def includes(sources):
    """The files that each file includes. X.c and X.h are one: what implements a header is part of it."""
    paths = [os.path.relpath(path, sources.root)
             for folder in ('core', 'quant', 'llm', 'certify', 'server', 'runner', 'plugins')
             for path in glob.glob(os.path.join(sources.root, folder, '**/*.[ch]'), recursive=True)]
    known = {os.path.splitext(path)[0] for path in paths}
    graph = {name: set() for name in known}
    for path in paths:
        name = os.path.splitext(path)[0]
        for other in re.findall(r'^\s*#\s*include "([^"]+)\.h"', sources.read(path), re.MULTILINE):
            if other in known and other != name:
                graph[name].add(other)
    return graph


def path_back(graph, start, first):
    """The shortest path of includes from start, through first, back to start; None without one."""
    before = {first: None}
    queue = [first]
    for name in queue:
        if name == start:
            way = []
            while name is not None:
                way.append(name)
                name = before[name]
            return [start] + way[::-1]
        for other in sorted(graph[name]):
            if other not in before:
                before[other] = name
                queue.append(other)
    return None


@check
def folder_circles(sources):
    """The includes of files of different folders form no circle."""
    graph = includes(sources)
    for name in sorted(graph):
        for other in sorted(graph[name]):
            if os.path.dirname(name) == os.path.dirname(other):
                continue
            way = path_back(graph, name, other)
            if way is not None:
                yield 'circle of folders: ' + ' -> '.join(way)


# ---- Functions ------------------------------------------------------------------------------------

@check
def functions_called(sources):
    """A function that a header of the product declares is called outside tests. The ABI is exempt."""
    text = {path: re.sub(r'/\*.*?\*/', ' ', sources.read(path), flags=re.DOTALL)
            for folder in ('core', 'quant', 'llm', 'certify', 'server', 'runner', 'plugins', 'bench')
            for path in (os.path.relpath(path, sources.root) for path in
                         glob.glob(os.path.join(sources.root, folder, '**/*.[ch]'), recursive=True))}
    n_word = collections.Counter(word for part in text.values() for word in re.findall(r'\w+', part))
    declaration = re.compile(r'^(?!static|typedef)\w[^;{}()#]*?\b(\w+)\s*\([^;{}]*\)\s*;', re.MULTILINE)
    for path in sorted(text):
        if not path.endswith('.h') or path.startswith(('core/include/', 'bench/')):
            continue
        for name in declaration.findall(text[path]):
            # Its declaration, its definition, a use. Macros make the names of kernels.
            if n_word[name] < 3 and not re.search(r'_(avx2|avx512|neon)$', name):
                yield '%s declares %s, which is not used outside tests' % (path, name)


# ---- The conformance suite ------------------------------------------------------------------------

def header_words(sources, name):
    """The text of a header of the ABI without the marks of comments, on one line."""
    text = re.sub(r'\n\s*\*(?!/)', ' ', sources.read_all('core/include/tandem/**/' + name))
    return ' '.join(re.sub(r'/\*|\*/', ' ', text).split())


@check
def certify_cites(sources):
    """Each sentence that a check of certify cites is in the header that is named before it. […] and
    words in brackets are ours."""
    string = r'"(?:[^"\\]|\\.)*"'
    text = sources.read_all('certify/*.c')
    rows = re.findall(r'\{"([a-z]+\.[a-z0-9-]+)",\s*\d,\s*((?:%s\s*)+),' % string, text)
    op_rows = re.findall(r'CERTIFY_OP\(\s*\w+,\s*"([a-z]+\.[a-z0-9-]+)",\s*\w+,\s*\w+,\s*((?:%s\s*)+)\)' % string, text)
    if len(rows) < 100 or len(op_rows) != len(ops(sources, 'VIEW', 'VALUE')):
        yield 'certify has only %d checks that cite, and %d of ops' % (len(rows), len(op_rows))
    headers = {}
    for name, strings in rows + op_rows:
        cites = ''.join(part[1:-1] for part in re.findall(string, strings)).replace('\\"', '"')
        header, words = None, ''
        for named, member, cited in re.findall(r'(\w+\.h)|(\w+)(?=:)|"([^"]*)"', cites):
            if named:
                if named not in headers:
                    headers[named] = header_words(sources, named)
                header, words = named, headers[named]
            elif member and member not in words:
                yield '%s cites %s, which %s does not have' % (name, member, header)
            for part in re.split(r'\[[^\]]*[ _…][^\]]*\]', cited):
                if part.strip().rstrip('.') not in words:
                    yield '%s cites what %s does not say: %s' % (name, header, part.strip())


# ---- The server -----------------------------------------------------------------------------------

SERVER_PAGE = 'docs/server.md'
ROUTES = 'server/api/api.c'


@check
def routes(sources):
    """The table of the server's page has the paths that it serves, and their methods."""
    table = sources.read(SERVER_PAGE).split('| method and path |')[1].split('\n\n')[0]
    listed, method = [], ''
    for span in re.findall(r'`([^`]+)`', table):
        method, path = span.split() if ' ' in span else (method, span)
        listed.append('%s %s' % (method, path))
    served = ['%s %s' % row for row in
              re.findall(r'\{(GET|POST), "([^"]+)", api_\w+,', sources.read(ROUTES))]
    if len(served) < 20:
        yield 'the routes of %s are not found' % ROUTES
    yield from list_differences('the table of ' + SERVER_PAGE, set(listed), set(served))
    for names in (listed, served):
        yield from ('%s is there twice' % name for name, n in collections.Counter(names).items() if n > 1)


@check
def request_fields(sources):
    """The server's page has the fields of requests that all of its APIs share."""
    text = sources.read('server/api/samplers.c') + sources.read('server/api/settings.c')
    names = re.findall(r'(?:FIELD\(|api_get(?:_\w+)?\((?:body|stream_options), )"(\w+)"', text)
    if len(names) < 40:
        yield 'the fields of server/api/samplers.c and settings.c are not found'
    page = sources.read(SERVER_PAGE)
    for name in sorted(set(names)):
        if not re.search(r'`(?:\w+\.)?%s`' % name, page):
            yield '%s does not have the field %s' % (SERVER_PAGE, name)


# ---- The page of models ---------------------------------------------------------------------------

@check
def models(s):
    """docs/models.md has the table that models.py prints."""
    page = [line for line in s.read('docs/models.md').splitlines() if line.startswith('|')]
    rows = model_rows(s.read_all)
    for row in rows:
        if row not in page:
            yield 'docs/models.md lacks: %s; run tests/wiring/models.py' % row
    for line in page:
        if line not in rows:
            yield 'docs/models.md: no table says: %s' % line


# ---- Proof that each check can fail ---------------------------------------------------------------

# check, file, what is replaced (a regular expression), by what, text of the line that it must yield
MUTATIONS = [
    ('models', 'llm/arch/gemma.c', r'"Gemma 2"', '"Gemma Two"', 'lacks: | `gemma2` | Gemma Two'),
    ('models', 'tests/model/archs.txt', r'\ngemma2-dense', '\n- gemma2-dense', 'not compared'),
    ('models', 'tests/model/archs.txt', r'\n(bloom-dense) vulkan cuda', r'\n\1 vulkan', 'compared | not compared'),
    ('models', 'docs/models.md', r'\| `gemma2`', '| `gemma9`', 'no table says: | `gemma9`'),
    ('op_rows', OP_H, r'OP\(MUL, mul, 9,', 'OP(MUL, mul, 10,', 'MUL: row 9 has number 10'),
    ('op_rows', OP_H, r'OP\(MUL, mul,', 'OP(MUL, times,', 'MUL: named times'),
    ('op_contracts', OP_H, r' \*   MUL  .*\n', '', 'op.h says 0 times what MUL computes'),
    ('op_contracts', OP_H, r' \*   MUL  ', ' *   MULT ', 'describes MULT, which is no op'),
    ('op_builder', OP_H, r'OP\(ADD, add,', 'OP(SUB, sub,', 'no tdm_build_sub'),
    ('op_cpu', 'plugins/cpu/ops/norm.c', r'cpu_op_rms_norm = ', 'cpu_op_other = ',
     'no cpu_op_rms_norm'),
    ('op_rules_of_groups', 'plugins/meta/rules/rules_row.c', r'meta_rule_rope\b', 'meta_rule_other',
     'no meta_rule_rope'),
    ('op_rules_of_groups', 'docs/split-states.md', r'\n\| ROPE \|.*', '', '0 rows of ROPE'),
    ('op_rules_of_groups', 'docs/split-states.md', r'\n\| ROPE \|', '\n| TURN |\n| ROPE |',
     'a row of TURN, which is no op'),
    ('op_certify', 'certify/case_arith.c', r'CERTIFY_OP\(mul,', 'CERTIFY_OP(other,',
     'no case of mul'),
    ('op_certify', OP_H, r'OP\(EXCHANGE, exchange,', 'OP(RELAY, relay,', 'certify runs no relay'),
    ('op_tests', OP_H, r'OP\(ADD, add,', 'OP(SUB, sub,', 'tests of inference have no sub'),
    ('op_tests', OP_H, r'OP\(ADD, add,', 'OP(SUB, sub,', 'tests/kernels has no sub'),
    ('op_tests', OP_H, r'OP\(ADD, add,', 'OP(SUB, sub,', 'random_*.c have no sub'),
    ('activations', 'plugins/cpu/ops/arith.c', r'case TDM_ACT_TANH:', 'default:',
     'lacks the activation TANH'),
    ('activations', 'certify/case_arith.c', r'case TDM_ACT_SILU:', 'default:',
     'lacks the activation SILU'),
    ('type_rows', TYPE_H, r'TYPE\(Q5_0, q5_0, 6,', 'TYPE(Q5_0, q5_0, 3,', 'Q5_0: number 3 after 3'),
    ('type_rows', TYPE_H, r'TYPE\(Q5_0, q5_0,', 'TYPE(Q5_0, q50,', 'named q50'),
    ('type_blocks', 'core/include/tandem/block.h', r'tdm_block_q6_K;', 'tdm_block_other;',
     'no tdm_block_q6_K'),
    ('type_cpu', 'plugins/cpu/ops/weight.c', r'\[TDM_TYPE_BF16\] =', '[0] =', 'no row of BF16'),
    ('type_cpu', 'quant/codes.c', r'\[TDM_TYPE_TQ1_0\] =', '[0] =', 'unpacks TQ1_0'),
    ('type_gpu', 'plugins/gpu/layout/weight.c', r'\[TDM_TYPE_MXFP4\] =', '[0] =', 'no row of MXFP4'),
    ('type_gpu', 'plugins/vulkan/shaders/dequant.glsl', r'#define TYPE_Q4_1 +3\n',
     '#define TYPE_Q4_1 4\n', 'dequant.glsl has no TYPE_Q4_1 with the number 3'),
    ('type_gpu', 'plugins/gpu/kernels/each_type.h', r'#define WEIGHT_TYPE 39\n', '', 'for type 39'),
    ('type_tests', 'tests/unit/test_quantize_error.c', r'\{TDM_TYPE_Q6_K, ', '{0, ', 'row of Q6_K'),
    ('type_tests', TYPE_H, r'TYPE\(Q6_K, q6_K,', 'TYPE(Q7_K, q7_K,', 'golden numbers of Q7_K'),
    ('type_pages', TYPE_H, r'TYPE\(Q6_K, q6_K,', 'TYPE(Q7_K, q7_K,', 'no row of q7_K'),
    ('type_pages', TYPE_H, r'TYPE\(Q6_K, q6_K,', 'TYPE(Q7_K, q7_K,', 'writes no Q7_K'),
    ('type_lists', 'README.md', r'iq3_s, iq2_s', 'iq2_s', 'README.md: models has no iq3_s'),
    ('type_lists', 'README.md', r', q5_K_S', ', q5_K_X', 'quantize has q5_K_X, which is none'),
    ('type_lists', 'bench/random_model.c', r'case TDM_TYPE_Q5_0: ', '', 'no file type of Q5_0'),
    ('cache_types', KV_H, r'TYPE\(Q5_0, q5_0\)', 'TYPE(Q5_0, q5)', 'has no BLOCK Q5_0'),
    ('cache_types', KV_H, r' TYPE\(BF16, bf16\)', '', 'README.md has bf16, which is none'),
    ('cache_types', KV_H, r'TYPE\(BF16, bf16\)', 'TYPE(Q6_K, q6_K)', 'conf/demo.ini has no q6_K'),
    ('cache_types', KV_H, r'TYPE\(BF16, bf16\)', 'TYPE(Q6_K, q6_K)', 'docs/abi.md has no q6_K'),
    ('cache_types', KV_H, r'TYPE\(BF16, bf16\)', 'TYPE(Q6_K, q6_K)', 'docs/accuracy.md has no q6_K'),
    ('cache_types', 'tests/model/test_shift.c', r'\{TDM_TYPE_Q4_1, ', '{0, ', 'no bound of Q4_1'),
    ('gpu_kernels', KERNEL_H, r'KERNEL\(PAIR, pair,', 'KERNEL(PAIR, couple,', 'named couple'),
    ('gpu_kernels', KERNEL_H, r'KERNEL\(PAIR, pair,', 'KERNEL(COUPLE, couple,',
     'no emitter launches couple'),
    ('gpu_kernels', KERNEL_H, r'KERNEL\(PAIR, pair,', 'KERNEL(COUPLE, couple,',
     'there is no plugins/vulkan/shaders/couple.comp'),
    ('gpu_kernels', KERNEL_H, r'KERNEL\(PAIR, pair,', 'KERNEL(COUPLE, couple,',
     'shaders/pair.comp is no row'),
    ('rt_kernels', KERNEL_H, r'KERNEL\(PAIR, pair, 3, 0x1, RT_SHARED\(0\)\)',
     'KERNEL(PAIR, pair, 3, 0x1, RT_ABSENT)', 'has no RT_SHARED for kernels/pair.cu'),
    ('rt_kernels', KERNEL_H, r'KERNEL\(PAIR, pair,', 'KERNEL(COUPLE, couple,',
     'there is no plugins/gpu/kernels/couple.cu'),
    ('folder_circles', 'core/device/runtime.c', r'\n#include "',
     '\n#include "core/stages/adapter.h"\n#include "',
     'core/device/runtime -> core/stages/adapter -> core/device/runtime'),
    ('folder_circles', 'plugins/meta/meta.h', r'\n#include "',
     '\n#include "plugins/meta/exec/plan.h"\n#include "',
     'plugins/meta/meta -> plugins/meta/exec/plan -> '),
    ('folder_circles', 'runner/session.c', r'\n#include "',
     '\n#include "runner/plan/choice.h"\n#include "',
     'runner/session -> runner/plan/choice -> runner/plan/plan -> runner/session'),
    ('functions_called', 'llm/cache/kv_cache.h', r'\nint64_t llm_kv_room\(',
     '\nint32_t llm_kv_free_pages(const llm_kv *kv);\nint64_t llm_kv_room(',
     'llm/cache/kv_cache.h declares llm_kv_free_pages, which is not used'),
    ('certify_cites', 'core/include/tandem/semaphore.h', r'0 only polls', '0 polls',
     'order.attach cites what semaphore.h does not say'),
    ('certify_cites', 'certify/graph.c', r'Pure: reads', 'Pure: looks at',
     'graph.supports-pure cites what device.h does not say'),
    ('certify_cites', OP_H, r'no bytes move;', 'no byte moves;', 'op.slice cites what op.h does not say'),
    ('certify_cites', 'certify/case_select.c', r'"op.h: MOE_FFN and', '"kv.h: MOE_FFN and',
     'op.moe-ffn cites what kv.h does not say'),
    ('certify_cites', 'certify/option.c', r'default_value: ', 'fallback: ',
     'option.default cites fallback, which option.h does not have'),
    ('routes', ROUTES, r'"/api/tags"', '"/api/models"', 'GET /api/models'),
    ('routes', ROUTES, r'GET, "/slots"', 'POST, "/slots"', 'POST /slots'),
    ('routes', SERVER_PAGE, r'`/tokenize`, ', '', 'POST /tokenize'),
    ('routes', SERVER_PAGE, r'`/tokenize`', '`/tokenize`, `/tokenise`', 'POST /tokenise'),
    ('request_fields', 'server/api/samplers.c', r'FIELD\("min_p"', 'FIELD("min_q"',
     'the field min_q'),
    ('request_fields', SERVER_PAGE, r'`n_probs`', '`probs`', 'the field n_probs'),
    ('activations', OP_H, r' \*   TANH  ', ' *   TAN   ', 'what the activation TANH is'),
]


def mutation_problem(root, name, path, pattern, text, expected):
    """None where the check reports the change."""
    before = Sources(root).read(path)
    after = re.sub(pattern, text, before, count=1)
    if after == before:
        return '%s: %s has nothing that matches %s' % (name, path, pattern)
    lines = list(CHECKS[name](Sources(root, {path: after})))
    if not any(expected in line for line in lines):
        return '%s does not report a changed %s (%s): %s' % (name, path, expected, lines)
    return None


def main(root):
    problems = []
    for name, function in CHECKS.items():
        problems += ['%s: %s' % (name, line) for line in function(Sources(root))]
        if not any(row[0] == name for row in MUTATIONS):
            problems.append('%s has no row of MUTATIONS' % name)
    if not problems:
        problems = [p for p in (mutation_problem(root, *row) for row in MUTATIONS) if p is not None]
    for problem in problems:
        print('FAIL', problem)
    print('%d checks, %d mutations, %d problems' % (len(CHECKS), len(MUTATIONS), len(problems)))
    return 1 if problems else 0


if __name__ == '__main__':
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
