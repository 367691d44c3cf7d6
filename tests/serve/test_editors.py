#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_editors.py TANDEM MODEL TEMPLATE: the exchanges of plugins of editors with `tandem serve`: llama.vim,
llama.vscode (completions between two texts with llama-server's /infill, chats with its samplers), Continue
(/completion, chats with tools, completions between two texts in OpenAI's and Mistral's form), Cline and Roo
(chats with usage). Requests have the fields and headers that the plugins send; of replies the fields are
checked that the plugins read."""
import json
import os
import sys
import tempfile

import client
from client import check

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import gguf_keys  # pylint: disable=wrong-import-position

tandem, model, template = sys.argv[1:]
server = None
IDS = {"pre": 4, "suf": 5, "mid": 6, "rep": 7, "sep": 8}
BEFORE, LINE, BEHIND = "Once upon a time there was a girl.\n", "Her name", "She was happy.\n"
FILES = [{"text": "Tom had a cat.\n", "time": 1700000000, "filename": "a.txt"}, {"text": "The cat was big.\n"}]
TOOLS = [{"type": "function", "function": {
    "name": "read_file", "description": "Reads a file.",
    "parameters": {"type": "object", "required": ["path"], "additionalProperties": False,
                   "properties": {"path": {"type": "string", "maxLength": 8}}}}}]


def key(name):
    return f"tokenizer.ggml.fim_{name}_token_id"


def post(path, body, headers):
    status, _, data = server.request("POST", path, body, headers)
    check(status == 200, path, status, data)
    return json.loads(data)


def ids(text):
    return server.post("/tokenize", {"content": text, "parse_special": False})[1]["tokens"]


def continued(prompt, n):
    """The greedy text behind a prompt of ids."""
    return server.post("/completion", {"prompt": prompt, "n_predict": n, "temperature": 0})[1]["content"]


def bos():
    return server.post("/tokenize", {"content": "", "add_special": True})[1]["tokens"]


def expected_prompt(before, line, behind, files=None, has_files=True):
    """The prompt for the text between `before` `line` and `behind`, as ids."""
    prompt = bos()
    if has_files:
        prompt += [IDS["rep"], *ids("myproject\n")]
    for file in files or []:
        start = [IDS["sep"]] if has_files else ids("\n\n")
        prompt += [*start, *ids(file.get("filename", "tmp") + "\n"), *ids(file["text"])]
    if has_files:
        prompt += [IDS["sep"], *ids("filename\n")]
    return [*prompt, IDS["pre"], *ids(before), *ids(line), IDS["suf"], *ids(behind), IDS["mid"]]


# ---- llama.vim: curl sends what Vim encodes ----

CURL = {"User-Agent": "curl/7.88.1", "Accept": "*/*", "Content-Type": "application/json",
        "Authorization": "Bearer "}
TIMINGS = [f"timings/{when}_{what}" for when in ("prompt", "predicted") for what in ("n", "ms", "per_second")]


def vim_body(**more):
    return {"input_prefix": BEFORE, "input_suffix": BEHIND, "input_extra": FILES, "prompt": LINE, "n_predict": 12,
            "stop": [], "n_indent": 0, "top_k": 40, "top_p": 0.99, "stream": False,
            "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True, "t_max_prompt_ms": 500,
            "t_max_predict_ms": 1000, "id_slot": 0,
            "response_fields": ["content", "timings/prompt_n", "timings/prompt_ms", "timings/prompt_per_token_ms",
                                "timings/prompt_per_second", "timings/predicted_n", "timings/predicted_ms",
                                "timings/predicted_per_token_ms", "timings/predicted_per_second", "truncated",
                                "tokens_cached"], **more}


def test_vim():
    reply = post("/infill", vim_body(), CURL)
    check(set(reply) >= {"content", "truncated", "tokens_cached", *TIMINGS}, reply)
    check(isinstance(reply["content"], str) and reply["timings/predicted_n"] == 12, reply)
    check(not set(reply) & {"tokens", "timings", "stop_type"}, reply)
    # the answer is that to the prompt that the plugin means
    prompt = expected_prompt(BEFORE, LINE, BEHIND, FILES)
    greedy = post("/infill", vim_body(top_k=1), CURL)
    check(greedy["content"] == continued(prompt, 12), greedy)
    check(greedy["tokens_cached"] == len(prompt) + 12, greedy, len(prompt))
    # chunks of other files are read ahead of time, without an answer
    other = [{"text": f"Story {i}: a dog ran to the park and saw a bird in a tree.\n", "filename": "b.txt"}
             for i in range(12)]
    reply = post("/infill", vim_body(input_prefix="", input_suffix="", prompt="", input_extra=other, n_predict=0,
                                     samplers=[], temperature=0.0, t_max_predict_ms=1, response_fields=[""]), CURL)
    check(reply == {}, reply)
    reply = post("/infill", vim_body(input_extra=other), CURL)
    n_prompt = len(expected_prompt(BEFORE, LINE, BEHIND, other))
    check(reply["timings/prompt_n"] < n_prompt / 4, reply, n_prompt)
    # a text that names a control token is not one
    literal = post("/infill", vim_body(prompt="<|endoftext|>", n_predict=1, top_k=1), CURL)
    check(literal["tokens_cached"] == len(expected_prompt(BEFORE, "<|endoftext|>", BEHIND, FILES)) + 1, literal)


def test_vim_time():
    """An answer ends with its time, once it has a line end, so that a slow machine still gives one."""
    line = str(ids("\n")[-1])
    body = vim_body(t_max_predict_ms=1, n_predict=300, ignore_eos=True, response_fields=[])
    reply = post("/infill", {**body, "logit_bias": {line: 100}}, CURL)
    check(reply["stop_type"] == "limit" and 1 <= reply["tokens_predicted"] < 300, reply)
    check(reply["content"].strip("\n") == "" and reply["content"], reply)
    reply = post("/infill", {**body, "logit_bias": {line: -100}}, CURL)
    check("\n" not in reply["content"] and reply["tokens_predicted"] == 300, reply)


def test_vim_large():
    """What does not fit is left out: other files first, then what is far from the line."""
    body = vim_body(input_prefix="far " * 2000 + BEFORE, input_suffix=BEHIND + "far " * 2000, top_k=1)
    reply = post("/infill", body, CURL)
    check(950 < reply["tokens_cached"] <= 1024, reply)
    first = post("/infill", vim_body(input_extra=FILES * 200, top_k=1), CURL)
    check(950 < first["tokens_cached"] <= 1024, first)


# ---- llama.vscode: axios ----

AXIOS = {"Accept": "application/json, text/plain, */*", "Content-Type": "application/json",
         "User-Agent": "axios/1.8.4", "Accept-Encoding": "gzip, compress, deflate, br"}


def test_vscode():
    body = {"input_prefix": BEFORE, "input_suffix": BEHIND, "input_extra": [], "prompt": LINE, "n_predict": 12,
            "top_k": 40, "top_p": 0.99, "stream": False, "samplers": ["top_k", "top_p", "infill"],
            "cache_prompt": True, "n_indent": 4, "t_max_prompt_ms": 500, "t_max_predict_ms": 2500}
    reply = post("/infill", {**body, "top_k": 1}, AXIOS)
    check(reply["content"] == continued(expected_prompt(BEFORE, LINE, BEHIND), 12), reply)
    check(reply["timings"]["predicted_n"] == 12 and reply["truncated"] is False, reply)
    prepare = {"input_prefix": "", "input_suffix": "", "input_extra": FILES, "prompt": "", "n_predict": 0,
               "samplers": [], "cache_prompt": True, "t_max_prompt_ms": 500, "t_max_predict_ms": 1}
    reply = post("/infill", prepare, AXIOS)
    check(reply["content"] == "" and reply["tokens_predicted"] == 0 and reply["stop_type"] == "limit", reply)
    messages = [{"role": "system", "content": "You are an expert coder."}, {"role": "user", "content": "Name a cat."}]
    reply = post("/v1/chat/completions", {
        "messages": messages, "stream": False, "cache_prompt": True, "samplers": "edkypmxt", "temperature": 0.8,
        "dynatemp_range": 0, "dynatemp_exponent": 1, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical_p": 1,
        "xtc_probability": 0, "xtc_threshold": 0.1, "repeat_last_n": 64, "repeat_penalty": 1, "presence_penalty": 0,
        "frequency_penalty": 0, "dry_multiplier": 0, "dry_base": 1.75, "dry_allowed_length": 2,
        "dry_penalty_last_n": -1, "max_tokens": 16, "timings_per_token": False}, AXIOS)
    check(reply["choices"][0]["message"]["content"], reply)
    reply = post("/v1/chat/completions", {"messages": messages, "n_predict": 0, "samplers": [], "cache_prompt": True,
                                          "t_max_prompt_ms": 500, "t_max_predict_ms": 1}, AXIOS)
    check(reply["choices"][0]["message"]["content"] == "" and reply["usage"]["completion_tokens"] == 0, reply)
    reply = post("/v1/chat/completions", {"messages": messages, "stream": False, "temperature": 0.8, "top_p": 0.95,
                                          "tools": TOOLS, "tool_choice": "auto", "max_tokens": 16}, AXIOS)
    check(reply["choices"][0]["finish_reason"] in ("stop", "length", "tool_calls"), reply)
    reply = post("/v1/embeddings", {"input": "a cat", "model": "GPT-4", "encoding_format": "float"}, AXIOS)
    check(len(reply["data"][0]["embedding"]) > 8, reply)


# ---- Continue: node's fetch ----

def events(path, body, headers):
    status, found, data = server.request("POST", path, body, headers)
    check(status == 200 and found["content-type"].startswith("text/event-stream"), path, status, data)
    lines = [line for line in data.decode().split("\n") if line.startswith("data: ")]
    return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


FETCH = {"Content-Type": "application/json", "Accept": "application/json", "Authorization": "Bearer undefined",
         "x-api-key": "", "User-Agent": "node"}


def test_continue():
    # provider llama.cpp
    found = events("/completion", {"prompt": BEFORE + LINE, "stream": True, "n_predict": 12, "temperature": 0,
                                   "stop": ["\n\n"], "top_k": 40, "top_p": 0.9}, FETCH)
    prompt = server.post("/tokenize", {"content": BEFORE + LINE, "add_special": True})[1]["tokens"]
    check("".join(event["content"] for event in found) == continued(prompt, 12), found)
    check(found[-1]["stop"] is True, found)
    # provider openai: a chat with tools
    chat = {"model": "m", "messages": [{"role": "system", "content": "You are in agent mode."},
                                       {"role": "user", "content": [{"type": "text", "text": "Read a.txt."}]}],
            "max_tokens": 200, "stream": True, "stream_options": {"include_usage": True}, "tools": TOOLS,
            "parallel_tool_calls": False}
    found = events("/v1/chat/completions", {**chat, "tool_choice": {"type": "function", "function": {
        "name": "read_file"}}}, FETCH)
    check(found[-1] == "[DONE]" and found[-2]["choices"] == [] and found[-2]["usage"]["completion_tokens"] > 0, found)
    deltas = [event["choices"][0]["delta"] for event in found[:-2]]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    check(calls[0]["id"] and calls[0]["index"] == 0 and calls[0]["function"]["name"] == "read_file", calls)
    arguments = "".join(call["function"].get("arguments", "") for call in calls)
    check(set(json.loads(arguments)) == {"path"}, arguments)
    check(found[-3]["choices"][0]["finish_reason"] == "tool_calls", found[-3])
    # the result goes back, as it is in the history from then on
    chat["messages"] += [{"role": "assistant", "content": "", "tool_calls": [
        {"id": calls[0]["id"], "type": "function", "function": {"name": "read_file", "arguments": arguments}}]},
                         {"role": "tool", "tool_call_id": calls[0]["id"], "content": "Tom had a cat."}]
    found = events("/v1/chat/completions", {**chat, "max_tokens": 8}, FETCH)
    check(found[-2]["usage"]["completion_tokens"] == 8, found)
    # completions between two texts: OpenAI's form, and that of Mistral
    body = {"model": "m", "prompt": BEFORE + LINE, "suffix": BEHIND, "max_tokens": 12, "temperature": 0, "top_p": 0.9,
            "frequency_penalty": 0, "presence_penalty": 0, "stop": ["\n\n"], "stream": True}
    expected = continued(expected_prompt(BEFORE + LINE, "", BEHIND), 12)
    found = events("/v1/completions", body, FETCH)
    check("".join(event["choices"][0]["text"] for event in found[:-1]) == expected, found, expected)
    found = events("/v1/fim/completions", body, FETCH)
    check("".join(e["choices"][0]["delta"].get("content", "") for e in found[:-1]) == expected, found, expected)
    whole = post("/v1/completions", {**body, "stream": False}, FETCH)
    check(whole["choices"][0]["text"] == expected, whole)


# ---- Cline and Roo: OpenAI's client for JavaScript ----

STAINLESS = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "OpenAI/JS 4.96.0",
             "Authorization": "Bearer noop", "X-Stainless-Lang": "js", "X-Stainless-Retry-Count": "0",
             "X-Stainless-Runtime": "node", "HTTP-Referer": "https://cline.bot", "X-Title": "Cline"}


def test_cline():
    status, reply = server.json("GET", "/v1/models", headers=STAINLESS)
    check(status == 200 and reply["data"][0]["id"], reply)
    body = {"model": reply["data"][0]["id"], "messages": [
        {"role": "system", "content": "You are Cline."},
        {"role": "user", "content": [{"type": "text", "text": "<task>\nName a cat.\n</task>"},
                                     {"type": "text", "text": "<environment_details>\n# Time\n</environment_details>"}]}],
            "temperature": 0, "max_tokens": 16, "stream": True, "stream_options": {"include_usage": True}}
    for _ in range(2):
        found = events("/v1/chat/completions", body, STAINLESS)
        check(found[-1] == "[DONE]", found)
        usage = found[-2]["usage"]
        check(usage["completion_tokens"] == 16 and usage["prompt_tokens"] > 16, usage)
        check("".join(e["choices"][0]["delta"].get("content") or "" for e in found[:-2]), found)
    check(usage["prompt_tokens_details"]["cached_tokens"] > 0, usage)
    # the turn goes on
    body["messages"] += [{"role": "assistant", "content": "Tom"}, {"role": "user", "content": "Another one."}]
    check(events("/v1/chat/completions", body, STAINLESS)[-1] == "[DONE]")


# ---- Errors ----

def test_errors():
    for body, word in (({}, "input_prefix"), ({"input_prefix": "a"}, "input_suffix"),
                       (vim_body(prompt=3), "prompt"), (vim_body(input_extra={}), "input_extra"),
                       (vim_body(input_extra=[3]), "input_extra"), (vim_body(input_extra=[{}]), "text"),
                       (vim_body(input_extra=[{"text": 3}]), "text"), (vim_body(response_fields=[3]), "response_fields"),
                       (vim_body(samplers=["fill"]), "fill")):
        status, reply = server.post("/infill", body)
        check(status == 400 and word in reply["error"]["message"], status, reply)
    status, reply = server.post("/v1/completions", {"prompt": ["a", "b"], "suffix": "c"})
    check(status == 400 and "suffix" in reply["error"]["message"], reply)
    check(server.post("/v1/completions", {"prompt": "a", "max_tokens": 0})[0] == 400)
    check(server.post("/v1/fim/completions", {"suffix": "a"})[0] == 400)


def missing(names):
    """A model without some of the tokens says so, and still completes."""
    for path, body in (("/infill", vim_body()), ("/v1/completions", {"prompt": "a", "suffix": "b"}),
                       ("/v1/fim/completions", {"prompt": "a"})):
        status, reply = server.post(path, body)
        check(status == 400, status, reply)
        for name in ("prefix", "suffix", "middle"):
            check((f"the {name}" in reply["error"]["message"]) == (name in names), reply)
        check(", ".join(f"the {name}" for name in names) + " (" in reply["error"]["message"], reply)
    check(server.post("/completion", {"prompt": "a", "n_predict": 2})[0] == 200)


def with_server(path, test, *args):
    global server
    server = client.Server(tandem, path, "--template", template, "--parallel", "2", "-c", "1024", "--embeddings",
                           "--activation-bits", "15", *args)
    try:
        test()
        print("passed", getattr(test, "__name__", "test"), flush=True)
    finally:
        status = server.stop()
    check(status == 0, server.errors)


def all_tests():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("passed", name, flush=True)


def without_files():
    """A model without tokens for files: their texts come before the prefix."""
    greedy = post("/infill", vim_body(top_k=1), CURL)
    prompt = expected_prompt(BEFORE, LINE, BEHIND, FILES, has_files=False)
    check(greedy["content"] == continued(prompt, 12), greedy)
    check(greedy["tokens_cached"] == len(prompt) + 12, greedy, len(prompt))


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "fill.gguf")
        gguf_keys.add(model, path, {key(name): number for name, number in IDS.items()})
        with_server(path, all_tests)
        # the older keys, and no tokens for files
        gguf_keys.add(model, path, {"tokenizer.ggml.prefix_token_id": 4, key("suf"): 5,
                                    "tokenizer.ggml.middle_token_id": 6})
        with_server(path, without_files)
        gguf_keys.add(model, path, {key("suf"): 5, key("mid"): 10 ** 6})
        with_server(path, lambda: missing(("prefix", "middle")))
    with_server(model, lambda: missing(("prefix", "suffix", "middle")))


main()
