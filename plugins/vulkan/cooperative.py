#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""cooperative.py: makes a shader on GL_NV_cooperative_matrix one on VK_KHR_cooperative_matrix.

usage: cooperative.py INPUT.spv OUTPUT.spv
       cooperative.py --check FILE.spv

The shader compilers of Debian 12 have the first extension alone, drivers the second. The numbers of
their instructions differ, and these operands. In the second extension

  OpTypeCooperativeMatrix          has a sixth operand: what the matrix is used as
  OpCooperativeMatrixLoad, Store   have the layout as a number before the stride, instead of a bool
                                   behind it

The first extension has no product of two matrices element by element, which is OpFMul in the
second. A shader writes a quotient, OpFDiv, and this file makes a product of it.

The number of a matrix's elements that an invocation has is not used: in a module whose shapes are
specialised, glslc makes it an operation of a constant (OpSpecConstantOp), which Mesa's compiler
(25.0.7) does not know: it ends the process.

A matrix is used as A, B or the accumulator of OpCooperativeMatrixMulAdd. The second extension has
the use in the type, the first does not: so each type of the input must have one use only. --check
checks a module by the rules of SPV_KHR_cooperative_matrix for types and operands, which the
validators of Debian 12 do not know.
"""

import array
import sys

MAGIC = 0x07230203
CAPABILITY, EXTENSION, MEMORY_MODEL, ENTRY_POINT = 17, 10, 14, 15
SOURCE_EXTENSION = 4
TYPE_BOOL, TYPE_INT, TYPE_FLOAT, TYPE_POINTER, TYPE_FUNCTION = 20, 21, 22, 32, 33
CONSTANT_TRUE, CONSTANT_FALSE, CONSTANT = 41, 42, 43
SPEC_CONSTANT, SPEC_CONSTANT_OP, FUNCTION = 50, 52, 54
MULTIPLY, DIVIDE = 133, 136
NV_CAPABILITY, KHR_CAPABILITY, MEMORY_MODEL_CAPABILITY, FLOAT16 = 5357, 6022, 5345, 9
NV = {'type': 5358, 'load': 5359, 'store': 5360, 'mul_add': 5361, 'length': 5362}
KHR = {'type': 4456, 'load': 4457, 'store': 4458, 'mul_add': 4459, 'length': 4460}
NV_NAME, KHR_NAME = 'SPV_NV_cooperative_matrix', 'SPV_KHR_cooperative_matrix'
VULKAN_MEMORY_MODEL = 3
SCOPE_SUBGROUP = 3
ROW_MAJOR, COLUMN_MAJOR = 0, 1
USES = USE_A, USE_B, USE_SUM = 0, 1, 2


class Failure(Exception):
    pass


def module_read(path):
    words = array.array('I')
    with open(path, 'rb') as file:
        words.frombytes(file.read())
    if len(words) < 5 or words[0] != MAGIC:
        raise Failure('not SPIR-V in the byte order of this machine')
    instructions, at = [], 5
    while at < len(words):
        count = words[at] >> 16
        if count == 0 or at + count > len(words):
            raise Failure('an instruction that ends behind the module, at word %d' % at)
        instructions.append((words[at] & 0xffff, list(words[at + 1:at + count])))
        at += count
    return list(words[:5]), instructions


def module_write(path, header, instructions):
    words = array.array('I', header)
    for op, operands in instructions:
        words.append(len(operands) + 1 << 16 | op)
        words.extend(operands)
    with open(path, 'wb') as file:
        file.write(words.tobytes())


def text_of(words):
    return array.array('I', words).tobytes().split(b'\0')[0].decode()


def text_words(text):
    data = text.encode() + b'\0'
    return list(array.array('I', (data + b'\0' * (-len(data) % 4))))


def types_of_results(instructions):
    """The type of each result of an instruction that begins with a type and a result."""
    has_none = {CAPABILITY, EXTENSION, MEMORY_MODEL, ENTRY_POINT, NV['type'], KHR['type'], NV['store'],
                KHR['store']}
    types = {}
    for op, operands in instructions:
        if len(operands) >= 2 and op not in has_none:
            types.setdefault(operands[1], operands[0])
    return types


def uses_find(instructions, names):
    """The use of each type of matrices, found from the products that have it. names: NV or KHR."""
    kinds = {operands[0] for op, operands in instructions if op == names['type']}
    types, uses = types_of_results(instructions), {}
    for op, operands in instructions:
        if op != names['mul_add']:
            continue
        for kind, use in ((types.get(operands[2]), USE_A), (types.get(operands[3]), USE_B),
                          (types.get(operands[4]), USE_SUM), (operands[0], USE_SUM)):
            if kind not in kinds:
                raise Failure('an operand of a product that is no matrix')
            if uses.setdefault(kind, use) != use:
                raise Failure('a type of matrices with two uses')
    for kind in kinds - set(uses):
        raise Failure('matrices of type %%%d are in no product' % kind)
    return uses


def convert(header, instructions):
    uses = uses_find(instructions, NV)
    true = {operands[1] for op, operands in instructions if op == CONSTANT_TRUE}
    false = {operands[1] for op, operands in instructions if op == CONSTANT_FALSE}
    unsigned = next(operands[0] for op, operands in instructions
                    if op == TYPE_INT and operands[1:] == [32, 0])
    number = {n: header[3] + n for n in USES}  # ids of new constants of value n: uses and layouts
    header[3] += len(USES)
    result, has_numbers = [], False

    def layout_of(flag):
        if flag not in true | false:
            raise Failure('a layout that is no constant')
        return number[COLUMN_MAJOR if flag in true else ROW_MAJOR]

    for op, operands in instructions:
        if op == CAPABILITY and operands == [NV_CAPABILITY]:
            operands = [KHR_CAPABILITY]
        elif op in (EXTENSION, SOURCE_EXTENSION) and text_of(operands) in (NV_NAME, 'GL' + NV_NAME[3:]):
            if op == SOURCE_EXTENSION:
                continue
            operands = text_words(KHR_NAME)
        elif op == NV['type']:
            if not has_numbers:
                result += [(CONSTANT, [unsigned, number[n], n]) for n in USES]
                has_numbers = True
            op, operands = KHR['type'], operands + [number[uses[operands[0]]]]
        elif op == NV['load']:
            kind, value, pointer, stride, layout = operands[:5]
            op, operands = KHR['load'], [kind, value, pointer, layout_of(layout), stride] + operands[5:]
        elif op == NV['store']:
            pointer, value, stride, layout = operands[:4]
            op, operands = KHR['store'], [pointer, value, layout_of(layout), stride] + operands[4:]
        elif op == NV['mul_add']:
            op = KHR['mul_add']
        elif op == DIVIDE and operands[0] in uses:
            op = MULTIPLY
        result.append((op, operands))
    return header, result


def constants_of(instructions):
    """The number of each constant, None of one that is specialised."""
    values = {}
    for op, operands in instructions:
        if op == CONSTANT and len(operands) == 3:
            values[operands[1]] = operands[2]
        elif op in (SPEC_CONSTANT, SPEC_CONSTANT_OP):
            values[operands[1]] = None
    return values


def check(instructions):
    def need(what, is_right):
        if not is_right:
            raise Failure(what)

    ops = {op for op, _ in instructions}
    capabilities = {operands[0] for op, operands in instructions if op == CAPABILITY}
    extensions = {text_of(operands) for op, operands in instructions if op == EXTENSION}
    need('capability CooperativeMatrixKHR', KHR_CAPABILITY in capabilities)
    need('capability VulkanMemoryModel', MEMORY_MODEL_CAPABILITY in capabilities)
    need('capability Float16', FLOAT16 in capabilities)
    need('extension %s' % KHR_NAME, KHR_NAME in extensions)
    need('no instruction, capability or extension of NV',
         not ops & set(NV.values()) and NV_CAPABILITY not in capabilities and NV_NAME not in extensions)
    constant_ops = {operands[2] for op, operands in instructions if op == SPEC_CONSTANT_OP}
    need('no instruction of NV as an operation of a constant', not constant_ops & set(NV.values()))
    need('no number of elements of an invocation', KHR['length'] not in ops | constant_ops)
    need('the Vulkan memory model', any(op == MEMORY_MODEL and operands[1] == VULKAN_MEMORY_MODEL
                                        for op, operands in instructions))
    values, types, matrices, sizes, defined = constants_of(instructions), types_of_results(instructions), {}, {}, set()
    for op, operands in instructions:
        if op in (TYPE_INT, TYPE_FLOAT):
            sizes[operands[0]] = (op, operands[1])
        elif op == KHR['type']:
            need('six operands of a type', len(operands) == 6)
            result, component, scope, rows, columns, use = operands
            need('constants before a type', {scope, rows, columns, use} <= set(values) and use in defined)
            need('the scope of a subgroup', values[scope] == SCOPE_SUBGROUP)
            need('a known use', values[use] in USES)
            need('f16 for A and B, f32 for sums',
                 sizes.get(component) == (TYPE_FLOAT, 32 if values[use] == USE_SUM else 16))
            matrices[result] = (rows, columns, values[use])
        elif op == KHR['load']:
            need('a matrix to load', operands[0] in matrices and len(operands) >= 5)
            need('a constant layout', values.get(operands[3]) in (ROW_MAJOR, COLUMN_MAJOR))
        elif op == KHR['store']:
            need('a matrix to store', types.get(operands[1]) in matrices and len(operands) >= 4)
            need('a constant layout', values.get(operands[2]) in (ROW_MAJOR, COLUMN_MAJOR))
        elif op == KHR['mul_add']:
            need('five operands of a product', len(operands) == 5)
            a, b, c = (matrices.get(types.get(value)) for value in operands[2:])
            result = matrices.get(operands[0])
            need('matrices in a product', None not in (a, b, c, result))
            need('uses A, B and sum', (a[2], b[2], c[2], result[2]) == (USE_A, USE_B, USE_SUM, USE_SUM))
            need('shapes M x K, K x N, M x N',
                 a[1] == b[0] and c[:2] == (a[0], b[1]) and result[:2] == c[:2])
        if len(operands) >= 2 and op in (CONSTANT, SPEC_CONSTANT):
            defined.add(operands[1])
    need('a load, a product and a store', {KHR['load'], KHR['mul_add'], KHR['store']} <= ops)


def main(arguments):
    path = arguments[-2] if arguments[0] != '--check' else arguments[1]
    try:
        header, instructions = module_read(path)
        if arguments[0] != '--check':
            header, instructions = convert(header, instructions)
            check(instructions)
            module_write(arguments[1], header, instructions)
        else:
            check(instructions)
    except Failure as failure:
        sys.exit('cooperative.py: %s: %s' % (path, failure))


if __name__ == '__main__':
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1:])
