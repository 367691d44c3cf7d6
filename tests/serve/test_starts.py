#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_starts.py TANDEM MODEL: servers that are started with other flags than that of test_serve.py:
with keys and limits, with adapters, with the template of each family."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import client
from client import check, error_of

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import make_lora  # pylint: disable=wrong-import-position

tandem, model = sys.argv[1:]
server = None
ONCE = "Once upon a time"


def keys(path):
    """Keys, names and limits, on a server with another address of this machine."""
    global server
    server = client.Server(tandem, model, "--host", "127.0.0.2", "--api-key-file", path, "--allow-origin",
                           "https://page.example", "--queue-size", "1", "--parallel", "1",
                           "--no-webui", "--no-metrics", "--alias", "tiny")
    error_of(*server.get("/v1/models"), 401)
    check(server.request("GET", "/v1/models")[1]["x-should-retry"] == "false")
    check(server.get("/health")[0] == 200)
    bearer = {"Authorization": "Bearer second key"}
    check(server.json("GET", "/v1/models", None, bearer)[1]["data"][0]["id"] == "tiny")
    check(server.json("GET", "/v1/models", None, {"X-Api-Key": "first"})[0] == 200)
    for wrong in ("first1", "firs", "", "second"):
        error_of(*server.json("GET", "/v1/models", None, {"Authorization": "Bearer " + wrong}), 401)
    # the reply to a request that is refused by its head comes, however much of the body is still on its way
    for _ in range(4):
        error_of(*server.json("POST", "/v1/completions", {"prompt": "x" * 4000000}), 401)
    error_of(*server.json("POST", "/v1/completions", {"prompt": "x" * 9000000}, bearer), 413)
    error_of(*server.json("GET", "/metrics", None, bearer), 404)
    error_of(*server.json("GET", "/", None, bearer), 404)
    status, headers, _ = server.request("OPTIONS", "/v1/models", None,
                                        {"Origin": "https://page.example"})
    check(status == 204 and headers["access-control-allow-origin"] == "https://page.example")
    check("content-length" not in headers, headers)
    # without a template there are no chats
    error_of(*server.json("POST", "/v1/chat/completions", {"messages": [{"role": "user"}]}, bearer), 400)
    error_of(*server.json("POST", "/v1/embeddings", {"input": "x"}, bearer), 400)
    # values that only this command reads
    for flag, value, words in (("--samplers", "top", "'top' is no step"),
                               ("--allow-origin", "page.example", "is no origin"),
                               ("--allow-origin", "*,https://page.example/", "is no origin"),
                               ("--allow-host", "http://page.example", "is no name of a host"),
                               ("--host", "127.example.com", "serves other machines")):
        ended = subprocess.run([tandem, "serve", "-m", model, "--port", "0", "--quiet", flag, value], timeout=60,
                               capture_output=True, text=True, check=False)
        check(ended.returncode == 2 and words in ended.stderr and not ended.stdout, ended)
    # a file of keys that is none, and a context that is too small for 16 requests
    for code, words, *more in ((1, "cannot be read: Is a directory", "--api-key-file", os.path.dirname(path)),
                               (1, "the smaller of ubatch-size and ctx-size", "-c", "8")):
        ended = subprocess.run([tandem, "serve", "-m", model, "--port", "0", "--quiet", *more], timeout=60,
                               capture_output=True, text=True, check=False)
        check(ended.returncode == code and words in ended.stderr and not ended.stdout, ended)
    # an address of no machine (TEST-NET-1 of RFC 5737), unless the machine binds to any address
    bind_any = "/proc/sys/net/ipv4/ip_nonlocal_bind"
    if not os.path.exists(bind_any) or pathlib.Path(bind_any).read_text().strip() == "0":
        ended = subprocess.run([tandem, "serve", "-m", model, "--port", "0", "--quiet", "--api-key-file", path,
                                "--host", "192.0.2.1"], timeout=60, capture_output=True, text=True, check=False)
        check(ended.returncode == 1 and "cannot serve on 192.0.2.1: " in ended.stderr and not ended.stdout, ended)
    # a full queue: of eight requests at once, one runs, one waits, and others are refused
    body = {"prompt": ONCE, "max_tokens": 1500, "ignore_eos": True}
    replies = []
    threads = [threading.Thread(target=lambda: replies.append(server.request(
        "POST", "/v1/completions", body, bearer))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    retries = [headers["retry-after"] for status, headers, _ in replies if status == 429]
    check(200 in [reply[0] for reply in replies] and retries and int(retries[0]) >= 1, replies)
    check(server.stop() == 0, server.errors)


def lora(folder):
    """Adapters: their scales of the server and of requests, against `tandem run` with the same."""
    global server
    paths = [os.path.join(folder, name) for name in ("one.gguf", "two.gguf")]
    matrices = [(f"blk.{i}.{name}.weight", k, n) for i in range(4)
                for name, k, n in (("attn_q", 256, 512), ("ffn_down", 512, 256))]
    make_lora.write(paths[0], 4, 8, 1, 1.0, matrices)
    make_lora.write(paths[1], 3, 0, 2, 2.0, matrices[:4])
    scaled = paths[1] + ":-0.5"
    server = client.Server(tandem, model, "--lora", paths[0], "--lora-scaled", scaled, "--parallel", "2")
    ones = [{"id": 0, "path": "one.gguf", "scale": 1.0}, {"id": 1, "path": "two.gguf", "scale": -0.5}]
    check(server.get("/lora-adapters") == (200, ones), server.get("/lora-adapters"))

    def text(**more):
        body = {"prompt": ONCE, "max_tokens": 16, "temperature": 0, "ignore_eos": True}
        status, reply = server.post("/v1/completions", body, **more)
        check(status == 200, reply)
        return reply["choices"][0]["text"], reply["usage"]["prompt_tokens_details"]["cached_tokens"]

    plain = client.run_text(tandem, model, ONCE, 16, "--temp", "0", "--ignore-eos")
    both = client.run_text(tandem, model, ONCE, 16, "--temp", "0", "--ignore-eos", "--lora", paths[0],
                           "--lora-scaled", scaled)
    twice = client.run_text(tandem, model, ONCE, 16, "--temp", "0", "--ignore-eos", "--lora-scaled", paths[0] + ":2")
    check(len({plain, both, twice}) == 3, plain, both, twice)
    # each for the first time finds no prefix of others
    check(text() == (both, 0), text(), both)
    check(text(lora=[]) == (plain, 0))
    check(text(lora=[{"id": 0, "scale": 2}]) == (twice, 0))
    check(text(lora=[{"id": 1, "scale": -0.5}, {"id": 0, "scale": 1}])[0] == both)
    check(text(lora=[{"id": 0, "scale": 2}])[1] > 0)
    check(server.json("POST", "/lora-adapters", [{"id": 0, "scale": 2}]) == (200, {"success": True}))
    check([entry["scale"] for entry in server.get("/lora-adapters")[1]] == [2.0, 0.0])
    check(text()[0] == twice)
    for wrong in ({}, [1], [{"scale": 1}], [{"id": 2, "scale": 1}], [{"id": -1}], [{"id": 0, "scale": "x"}],
                  [{"id": 0, "scale": 1e300}], [{"id": 0.5, "scale": 1}]):
        error_of(*server.json("POST", "/lora-adapters", wrong), 400)
        error_of(*server.post("/v1/completions", {"prompt": ONCE, "lora": wrong}), 400)
    check([entry["scale"] for entry in server.get("/lora-adapters")[1]] == [2.0, 0.0])
    status, headers, _ = server.request("PUT", "/lora-adapters", b"[]")
    check(status == 405 and headers["allow"] == "GET, HEAD, POST", status, headers)
    check(server.stop() == 0, server.errors)


def forms(folder):
    """A call that must come, in the form of each family: of the tool that is named, with its schema."""
    global server
    bar, block = "\uff5c", "\u2581"
    calls = f"<{bar}tool{block}calls{block}begin{bar}>"
    tool = {"type": "function", "function": {"name": "rain", "parameters": {
        "type": "object", "required": ["city", "days"], "additionalProperties": False, "properties": {
            "city": {"type": "string", "enum": ["Bonn", "Rome"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 5}}}}}
    bare = {"type": "function", "function": {"name": "now"}}
    for marks in ("[TOOL_CALLS][CALL_ID][ARGS]", calls, calls + "```json", "<arg_key>", "<function=", "<|channel|>"):
        path = os.path.join(folder, "template")
        lead = "x" * (1 << 20) if marks == "<function=" else ""  # a long template is searched to its end
        with open(path, "w", encoding="utf-8") as file:
            file.write("{#- " + lead + marks + " -#}{% for m in messages %}{{ m.role + ': ' + m.content }}{% endfor %}")
        server = client.Server(tandem, model, "--template", path, "--parallel", "2", "-c", "1024")
        for choice in ("required", {"type": "function", "function": {"name": "rain"}}):
            status, reply = server.post("/v1/chat/completions", {
                "messages": [{"role": "user", "content": "Rain?"}], "tools": [bare, tool], "tool_choice": choice,
                "max_tokens": 400})
            check(status == 200 and reply["choices"][0]["finish_reason"] == "tool_calls", marks, reply)
            call = reply["choices"][0]["message"]["tool_calls"][0]["function"]
            arguments = json.loads(call["arguments"])
            check(call["name"] == "rain" or (choice == "required" and call["name"] == "now"), marks, call)
            check(arguments == {} if call["name"] == "now" else
                  arguments["city"] in ("Bonn", "Rome") and arguments["days"] in range(1, 6), marks, call)
        check(server.stop() == 0, server.errors)


def main():
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "keys.txt")
            # as editors of Windows write it, and with white space that no client sends
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write("\ufefffirst\r\n# keys\r\n\r\n\t second key \r\n")
            keys(path)
            lora(folder)
            forms(folder)
    finally:
        if server is not None and server.process.poll() is None:
            server.stop(kills=True)


main()
