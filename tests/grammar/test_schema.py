#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Texts that the grammars of random JSON Schemas allow are valid.

Usage: test_schema.py SCHEMA_TEXTS [COUNT [SEED]]

Makes COUNT schemas (default 60), lets SCHEMA_TEXTS write texts for them and for fixed schemas that
must be accepted, and checks each with the validator below. Where the Python package jsonschema is
installed, it checks them, too. Most random schemas must be accepted; the others may combine what is
refused. Then fixed schemas are tried that must be refused, with a part of the message.
"""
import datetime
import ipaddress
import json
import random
import re
import subprocess
import sys
import urllib.parse

try:
    import jsonschema
except ImportError:
    jsonschema = None


# ---- A validator of what this test uses ----

def is_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, {"object": dict, "array": list, "string": str, "boolean": bool,
                              "null": type(None)}[name])


def same(a, b):
    return type(a) is type(b) and a == b


def format_is_good(value, name):
    try:
        if name == "date":
            datetime.date.fromisoformat(value)
        elif name == "date-time":
            datetime.datetime.fromisoformat(re.sub(r"\.\d+", "", value).replace("Z", "+00:00"))
        elif name == "time":
            datetime.time.fromisoformat(re.sub(r"\.\d+", "", value).replace("Z", "+00:00"))
        elif name == "ipv4":
            ipaddress.IPv4Address(value)
        elif name == "ipv6":
            ipaddress.IPv6Address(value)
        elif name == "uuid":
            return re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", value)
        elif name == "email":
            return re.fullmatch(r"[^@\s.]+(\.[^@\s.]+)*@[^@\s]+\.[^@\s]+", value)
        elif name == "uri":
            return re.fullmatch(r"[a-z]+://[^\s/?#]+[^\s]*", value)
        elif name == "hostname":
            return all(re.fullmatch(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)", label)
                       for label in value.split("."))
        elif name == "duration":
            return re.fullmatch(r"P(\d+W|(?=[T\d])(\d+Y)?(\d+M)?(\d+D)?"
                                r"(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?)", value)
    except ValueError:
        return False
    return True


def is_valid(value, schema, root):
    if isinstance(schema, bool):
        return schema
    s = schema.get
    if "$ref" in schema:
        at = root
        for part in schema["$ref"].split("/")[1:]:
            at = at[urllib.parse.unquote(part).replace("~1", "/").replace("~0", "~")]
        if not is_valid(value, at, root):
            return False
    names = s("type", [])
    names = names if isinstance(names, list) else [names]
    if s("nullable"):
        names = names + ["null"]
    if names and not any(is_type(value, n) for n in names):
        return False
    if "enum" in schema and not any(same(value, v) for v in schema["enum"]):
        return False
    if "const" in schema and not same(value, schema["const"]):
        return False
    if not all(is_valid(value, one, root) for one in s("allOf", [])):
        return False
    if "anyOf" in schema and not any(is_valid(value, one, root) for one in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(is_valid(value, one, root) for one in schema["oneOf"]) != 1:
        return False
    if is_type(value, "number"):
        if not (s("minimum", value) <= value <= s("maximum", value)):
            return False
        if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
            return False
        if "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
            return False
    if isinstance(value, str):
        if not s("minLength", 0) <= len(value) <= s("maxLength", len(value)):
            return False
        if "pattern" in schema and not re.search(schema["pattern"], value):
            return False
        if "format" in schema and not format_is_good(value, schema["format"]):
            return False
    if isinstance(value, list):
        if not s("minItems", 0) <= len(value) <= s("maxItems", len(value)):
            return False
        prefix = s("prefixItems", [])
        if not all(is_valid(v, p, root) for v, p in zip(value, prefix)):
            return False
        if not all(is_valid(v, s("items", True), root) for v in value[len(prefix):]):
            return False
    if isinstance(value, dict):
        listed = s("properties", {})
        if not all(name in value for name in s("required", [])):
            return False
        if not s("minProperties", 0) <= len(value) <= s("maxProperties", len(value)):
            return False
        for name, v in value.items():
            if not is_valid(v, listed.get(name, s("additionalProperties", True)
                                          if name not in listed else True), root):
                return False
    return True


# ---- Random schemas ----

NAMES = ["name", "id", "age", "a", "ab", "abc", "x y", "é", "type", "na", "n\"q", "b]"]
PATTERNS = [r"^[a-z]{2,5}$", r"^\d{3}-\d{4}$", r"[A-Z]+", r"^(foo|bar)\.\w+$", r"a.c$", r"^[^a-c]{1,4}$",
            r"^\S+ \S+$", r"^(a|b(c|d)*)+$", "^\"\\\\?$", r"^x{0,3}y|z$", r"^(?:[0-9]+,)*[0-9]+$"]
FORMATS = ["date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "uri", "hostname", "duration"]


def pick_number(r):
    return r.choice([0, 1, -1, 7, 10, 99, 100, 130, -27, 1234, -100, 5000, r.randint(-10**6, 10**6)])


def scalar(r):
    kind = r.randrange(9)
    if kind == 0:
        low = pick_number(r)
        schema = {"type": "integer"}
        if r.random() < 0.7:
            schema["minimum"] = low
        if r.random() < 0.6:
            schema["maximum"] = low + r.choice([0, 1, 5, 90, 1000, 123456])
        if r.random() < 0.2:
            schema["exclusiveMinimum"] = low - 1
        return schema
    if kind == 1:
        low = pick_number(r)
        return {"type": "number", r.choice(["minimum", "exclusiveMinimum"]): low,
                r.choice(["maximum", "exclusiveMaximum"]): low + r.choice([1, 2, 30.5, 4000])}
    if kind == 2:
        schema = {"type": "string"}
        if r.random() < 0.5:
            schema["minLength"] = r.randrange(6)
        if r.random() < 0.6:
            schema["maxLength"] = 5 + r.randrange(40)
        return schema
    if kind == 3:
        return {"type": "string", "pattern": r.choice(PATTERNS)}
    if kind == 4:
        return {"type": "string", "format": r.choice(FORMATS)}
    if kind == 5:
        return {"enum": r.sample(["red", "gr\"een", 1, 2.5, None, True, "é", [1, "x"], {"k": []}], 3)}
    if kind == 6:
        return {"const": r.choice(["one", 17, False, None, {"a": [1]}])}
    if kind == 7:
        return {"type": r.sample(["string", "integer", "null", "boolean", "number"], 2)}
    return {"type": r.choice(["boolean", "null", "number", "integer", "string"]),
            "nullable": r.random() < 0.2}


def obj(r, depth, refs):
    names = r.sample(NAMES, r.randrange(6))
    schema = {"type": "object", "properties": {n: make(r, depth - 1, refs) for n in names}}
    if names and r.random() < 0.8:
        schema["required"] = [n for n in names if r.random() < 0.5]
    if r.random() < 0.4:
        schema["additionalProperties"] = r.choice([False, True, {"type": "integer"}])
    return schema


def array(r, depth, refs):
    schema = {"type": "array"}
    if r.random() < 0.3:
        schema["prefixItems"] = [make(r, depth - 1, refs) for _ in range(1 + r.randrange(3))]
        if r.random() < 0.5:
            schema["items"] = False
        elif r.random() < 0.5:
            schema["items"] = scalar(r)
    else:
        schema["items"] = make(r, depth - 1, refs)
    if schema.get("items", True) is not False:
        if r.random() < 0.4:
            schema["minItems"] = r.randrange(4)
        if r.random() < 0.5:
            schema["maxItems"] = 3 + r.randrange(4)
    return schema


def make(r, depth, refs):
    kind = r.randrange(10)
    if depth <= 0 or kind < 3:
        return scalar(r)
    if kind < 6:
        return obj(r, depth, refs)
    if kind == 6:
        return array(r, depth, refs)
    if kind == 7:
        return {"anyOf": [make(r, depth - 1, refs) for _ in range(2 + r.randrange(2))],
                "description": "a note"}
    if kind == 8:
        one = r.randrange(3)
        if one == 0:
            return {"oneOf": [{"type": "string", "maxLength": 4}, {"type": "integer"},
                              obj(r, depth - 1, refs)]}
        if one == 1:
            return {"oneOf": [{"type": "object", "properties": {"k": {"const": k},
                                                                "v": make(r, depth - 1, refs)},
                               "required": ["k"] if r.random() < 0.7 else []} for k in "pqr"]}
        return {"allOf": [obj(r, depth, refs) if r.random() < 0.3 else
                          {"type": "object", "properties": {"m": {"type": "integer", "minimum": 3}},
                           "required": ["m"]},
                          {"properties": {"m": {"maximum": 9}, "z": make(r, depth - 2, refs)}}]}
    return {"$ref": "#/$defs/" + r.choice(refs), "title": "a reference"}


def schema_make(r):
    refs = ["leaf", "tree", "list"]
    schema = make(r, 3, refs)
    schema["$defs"] = {
        "leaf": scalar(r),
        "tree": {"type": "object", "properties": {"v": {"$ref": "#/$defs/leaf"},
                                                  "l": {"$ref": "#/$defs/tree"},
                                                  "r": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}},
                 "required": ["v"], "additionalProperties": False},
        "list": {"type": "array", "items": {"$ref": "#/$defs/list"}, "maxItems": 3},
    }
    return schema


# ---- Fixed schemas ----

REFUSED = [
    # 30 to the power of 5 alternatives
    ({"allOf": [{"anyOf": [{"type": "string", "minLength": 30 * i + k} for k in range(30)]} for i in range(5)]},
     "the grammar would be too large"),
    ({"oneOf": [{"enum": list(range(5000 * i, 5000 * i + 5000))} for i in range(2)]},
     "the grammar would be too large"),
    ({"not": {"type": "string"}}, "'not' is not supported"),
    ({"if": {}, "then": {}}, "'if' is not supported"),
    ({"type": "object", "patternProperties": {"^a": {}}}, "'patternProperties' is not supported"),
    ({"type": "object", "dependentRequired": {"a": ["b"]}}, "'dependentRequired'"),
    ({"type": "object", "propertyNames": {"pattern": "^a"}}, "'propertyNames' is not supported"),
    ({"type": "object", "propertyNames": {"type": "string", "maxLength": 3}}, "'propertyNames' is not supported"),
    ({"type": "object", "propertyNames": {"type": "integer"}}, "'propertyNames' is not supported"),
    ({"type": "object", "minProperties": 3}, "'minProperties'"),
    ({"type": "array", "uniqueItems": True}, "'uniqueItems' is not supported"),
    ({"type": "array", "contains": {}}, "'contains' is not supported"),
    ({"type": "array", "items": [{}]}, "'items' as a list is of older drafts"),
    ({"type": "array", "minItems": 3, "maxItems": 2}, "'minItems' is above"),
    ({"type": "array", "minItems": -1}, "'minItems' must be a whole number"),
    ({"type": "integer", "multipleOf": 5}, "'multipleOf' is not supported"),
    ({"type": "integer", "minimum": 3.2, "maximum": 3.8}, "no whole number is within the limits"),
    ({"type": "number", "minimum": 3.2, "maximum": 3.8}, "no whole number between them"),
    ({"type": "integer", "minimum": "3"}, "'minimum' must be a number"),
    ({"type": "integer", "minimum": 3, "exclusiveMinimum": True}, "is of older drafts"),
    ({"type": "string", "format": "iri"}, "format 'iri' is not supported"),
    ({"type": "string", "pattern": "(?=a)b"}, "a group that begins with (? is not supported"),
    ({"type": "string", "pattern": "\\bword"}, "\\b is not supported"),
    ({"type": "string", "pattern": "(a)\\1"}, "a reference to a group"),
    ({"type": "string", "pattern": "a^b"}, "^ or $ in the middle"),
    ({"type": "string", "pattern": "(a"}, "a group without )"),
    ({"type": "string", "pattern": "a)"}, ") without ("),
    ({"type": "string", "pattern": "[a"}, "a set without ]"),
    ({"type": "string", "pattern": "a**"}, "a repetition of a repetition"),
    ({"type": "string", "pattern": "^a", "minLength": 2}, "more than one of"),
    ({"type": "strin"}, "'type' must be object"),
    ({"type": []}, "'type' is empty"),
    ({"enum": []}, "no value is allowed by 'enum'"),
    ({"enum": ["a"], "minLength": 3}, "'minLength' beside 'enum'"),
    ({"type": "integer", "enum": ["a"]}, "no value is allowed by 'enum'"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "alternatives 1 and 2 may both match"),
    ({"anyOf": []}, "'anyOf' must be a list"),
    ({"oneOf": [{"type": "object", "properties": {"k": {"const": 1}}, "required": "j"},
                {"type": "object", "properties": {"k": {"const": 2}}}]}, "'required' must be a list of names"),
    ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "allows no value"),
    ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, "different 'pattern'"),
    ({"$ref": "https://example.com/x"}, "only places in the same schema"),
    ({"$ref": "#/$defs/none"}, "there is no such place"),
    ({"$ref": "#"}, "no text of rule 'root' has an end"),
    ({"$ref": "#", "type": "object"}, "need each other more than"),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "no text of rule 'root' has an end"),
    ({"type": "object", "properties": 3}, "'properties' must be an object"),
    ({"type": "object", "properties": {"a": {"properties": {"b": {"type": 3}}}}},
     "at #/properties/a/properties/b: 'type' must be"),
    (3, "a schema must be an object"),
    (False, "allows no value"),
]

ACCEPTED = [
    {}, True, {"type": "object"}, {"type": "array"}, {"items": {"type": "integer"}},
    {"properties": {"a": {}}}, {"required": ["q"]}, {"format": "date"}, {"minimum": 3},
    {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 2},
    {"type": "object", "properties": {"": {}}, "additionalProperties": True},
    {"type": "object", "properties": {"a": False, "b": True}},
    {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "integer"}},
    {"type": "array", "prefixItems": [{}, {}], "items": False, "minItems": 2},
    {"type": "array", "maxItems": 0}, {"type": "array", "minItems": 1, "maxItems": 1},
    {"type": "integer", "exclusiveMinimum": -1, "exclusiveMaximum": 1},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"type": "integer", "minimum": -999999999999999, "maximum": 999999999999999},
    {"type": "string", "maxLength": 0}, {"type": "string", "minLength": 3, "maxLength": 3},
    {"$ref": "#/definitions/a~1b%20c", "definitions": {"a/b c": {"const": 1}}},
    {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "null"}}},
    {"allOf": [{"anyOf": [{"type": "string"}, {"type": "integer"}]},
               {"anyOf": [{"type": "integer"}, {"type": "null"}]}]},
    {"type": ["integer", "null"], "enum": [1, None, "x"]},
    {"oneOf": [{"type": "object", "required": ["a"], "properties": {"a": {}}},
               {"type": "object", "properties": {"b": {}}, "additionalProperties": False}]},
]


def texts_read(data):
    """The answers for the schemas: a list of texts, or a message."""
    at = 0
    answers = []
    while at < len(data):
        end = data.index(b"\n", at)
        word, _, rest = data[at:end].partition(b" ")
        at = end + 1
        if word == b"error":
            answers.append(rest.decode())
        else:
            answers.append(data[at:at + int(rest)])
            at += int(rest) + 1
    return answers


def run(program, schemas, count, seed):
    lines = "".join(json.dumps(s, ensure_ascii=False) + "\n" for s in schemas).encode()
    answers = texts_read(subprocess.run([program, str(seed), str(count)], input=lines, check=True,
                                        stdout=subprocess.PIPE).stdout)
    result = []
    for _ in schemas:
        if isinstance(answers[0], str):
            result.append(answers.pop(0))
        else:
            result.append(answers[:count])
            bad = [a for a in result[-1] if isinstance(a, str)]
            if bad:
                sys.exit("%s for %s" % (bad[0], json.dumps(schemas[len(result) - 1])))
            del answers[:count]
    return result


def text_check(schema, text):
    try:
        value = json.loads(text.decode())
    except ValueError as problem:
        return "%s" % problem
    if not is_valid(value, schema, schema):
        return "not valid"
    # It has no `nullable`, which is OpenAPI's.
    if jsonschema and "nullable" not in json.dumps(schema):
        checker = jsonschema.Draft202012Validator
        errors = list(checker(schema, format_checker=jsonschema.FormatChecker(
            ["date", "ipv4", "ipv6", "email", "uuid"])).iter_errors(value))
        if errors:
            return "jsonschema: %s" % errors[0].message
    return None


def main():
    program = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 16
    r = random.Random(seed)
    # The validator itself can fail.
    assert not is_valid({"a": "x"}, {"properties": {"a": {"type": "integer"}}}, {})
    assert not is_valid("abc", {"pattern": "^[0-9]"}, {})
    assert is_valid("a-b.c", {"format": "hostname"}, {})
    assert not is_valid("a-.c", {"format": "hostname"}, {})
    assert is_valid("P1DT2H", {"format": "duration"}, {})
    for text in ("P", "PT", "P1DT", "P1H"):
        assert not is_valid(text, {"format": "duration"}, {})
    schemas = [schema_make(r) for _ in range(count)] + ACCEPTED
    n_text = n_accepted = failed = 0
    for i, (schema, texts) in enumerate(zip(schemas, run(program, schemas, 5, seed))):
        if isinstance(texts, str):
            # Random schemas may need what is refused.
            known = ("alternatives", "cannot be joined", "allows no value", "no value", "no alternative")
            if i >= count or not any(k in texts for k in known):
                print("refused: %s\n    %s" % (json.dumps(schema), texts))
                failed += 1
            continue
        n_accepted += i < count
        for text in texts:
            n_text += 1
            problem = text_check(schema, text)
            if problem:
                print("%s\n    %r\n    %s" % (json.dumps(schema), text, problem))
                failed += 1
    for (schema, message), answer in zip(REFUSED, run(program, [s for s, _ in REFUSED], 1, seed)):
        if not isinstance(answer, str) or message not in answer:
            print("%s\n    expected: %s\n    got: %s" % (json.dumps(schema), message, answer))
            failed += 1
    print("%d schemas (seed %d), %d of %d random ones accepted, %d texts, %d refused schemas, "
          "%d failures%s" % (len(schemas), seed, n_accepted, count, n_text, len(REFUSED), failed,
                             "" if jsonschema else "; without the package jsonschema"))
    return failed > 0 or n_accepted <= count // 2


if __name__ == "__main__":
    sys.exit(main())
