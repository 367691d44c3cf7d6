#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""agents.py OUT FOLDER: the model of test_recorded.py and programs.sh: it answers as agents need it, with text,
reasoning or calls of their own tools that read FOLDER/a.txt. Its template is as strict as templates get: a system's
message must be the first, and two of the user's may not follow each other."""
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import scripted_model  # pylint: disable=wrong-import-position


def call(tool, parameter, value):
    return [f'<tool_call>\n{{"name": "{tool}', f'", "arguments": {{"{parameter}', f'": "{value}', '"}}\n</tool_call>']


def scripts(folder):
    """Texts, and calls that read the file a.txt of a folder with the tools of each program."""
    file = folder + "/a.txt"
    return {
        "hello": ["Hello", ", how can", " I help?"],
        "endless": ["one ", "two ", "three ", "four ", ...],
        "json": ['{"answer"', ': "fo', 'ur"}'],
        "riddle": ["<think>\n", "Let me", " see.", "\n</think>\n\n", "It is four."],
        "done": ["The file", " says that", " Tom had", " a cat."],
        "two": ['<tool_call>\n{"name":"Read","arguments":{"file_path":', f'"{folder}/b.txt"}}}}\n</tool_call>',
                '\n<tool_call>\n{"name": "Read', *call("Read", "file_path", file)[1:]],
        "Read file_path": call("Read", "file_path", file),
        # the marks of the call and of its end, and pieces within a text
        "Read filepath": ["<tool_call>\n", '{"name": "Read", "arguments"', f': {{"filepath": "{folder}', '/a.txt"}}',
                          "\n</tool_call>"],
        "read filePath": call("read", "filePath", file),
        "read path": ["<tool_", 'call>\n{"name": "read", "arguments": {"path', '": "a.txt"}}\n</tool_call>'],
        "read_file file_path": call("read_file", "file_path", file),
        "read_files files": ['<tool_call>\n{"name": "read_files', '", "arguments": {"files": [{"path',
                             f'": "{file}"}}]}}}}\n</tool_call>'],
        "exec_command cmd": call("exec_command", "cmd", "cat a.txt"),
        "close_agent": call("multi_agent_v1__close_agent", "target", "agent-7"),
        "StructuredOutput": call("StructuredOutput", "answer", "four"),
    }


TEMPLATE = """{%- set s = namespace(tool=false, text="", say="hello", json=false, last="") %}
{%- for m in messages %}
{%- if m.role == "system" and not loop.first %}{{ raise_exception("a system's message must be the first") }}{% endif %}
{%- if m.role == "user" and s.last == "user" %}{{ raise_exception("roles must alternate") }}{% endif %}
{%- set s.last = m.role %}
{%- if m.role == "tool" %}{% set s.tool = true %}{% set s.text = "" %}
{%- elif m.role == "assistant" %}{% set s.tool = false %}
{%- elif m.role == "user" %}{% set s.text = s.text ~ m.content %}
{%- if "as JSON" in m.content %}{% set s.json = true %}{% endif %}{% endif %}
{{- "<|turn|>" ~ m.role ~ "\\n" ~ m.content ~ "\\n" }}
{%- for c in m.tool_calls or [] %}{{ "<tool_call>\\n" ~ (c.function | tojson) ~ "\\n</tool_call>\\n" }}{% endfor %}
{%- endfor %}
{%- if s.tool %}{% set s.say = "json" if s.json else "done" %}
{%- elif "for ever" in s.text %}{% set s.say = "endless" %}
{%- elif "riddle" in s.text %}{% set s.say = "riddle" %}
{%- elif "both files" in s.text %}{% set s.say = "two" %}
{%- elif "close agent" in s.text %}{% set s.say = "close_agent" %}
{%- endif %}
{%- for t in tools or [] %}{{ t.function.name ~ " " }}
{%- if t.function.name == "StructuredOutput" and not s.tool %}{% set s.say = "StructuredOutput" %}{% endif %}
{%- if t.function.name in ["Read", "read", "read_file", "read_files", "exec_command"] and "a.txt" in s.text
       and not s.tool %}
{%- for p in t.function.parameters.properties %}
{%- if p in ["file_path", "filepath", "filePath", "path", "files", "cmd"] %}
{%- set s.say = t.function.name ~ " " ~ p %}{% endif %}
{%- endfor %}{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|turn|>assistant
<|say {{ s.say }}|>{% endif %}{# <think> #}"""


def write(path, folder):
    scripted_model.write(path, scripts(folder), TEMPLATE, n_ctx=262144)


if __name__ == "__main__":
    write(*sys.argv[1:])
