#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_recorded.py TANDEM: what programs in editors and terminals sent to `tandem serve`, sent again: the files of
recorded/, one for each program. The model is that of agents.py, whose answers are known.

A file has what all of its exchanges share (`headers`, `body`, and `begins`: the first messages), and the exchanges:
`body` has fields in place of shared ones, `without` names shared fields that it lacks, `tools_of` the exchange whose
tools it has. `pad` is how many letters make its last text too long for the context. `answer` is what must come."""
import glob
import json
import os
import sys
import tempfile

import agents
import client
from client import check

HERE = os.path.dirname(os.path.abspath(__file__))
tandem = sys.argv[1]
server = None


# ---- What clients read in answers: each is a dict of text, reasoning and calls ----

def empty():
    return {"text": "", "reasoning": "", "calls": []}


def events(data, has_names):
    """Server-sent events: (name, data)."""
    found = []
    for block in data.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if fields:
            check(("event" in fields) == has_names, block)
            text = fields["data"]
            found.append((fields.get("event"), text if text == "[DONE]" else json.loads(text)))
    return found


def chat_read(data, body):
    got, found = empty(), [event for _, event in events(data, False)]
    check(found.pop() == "[DONE]")
    if body.get("stream_options", {}).get("include_usage"):
        last = found.pop()
        check(last["choices"] == [] and last["usage"]["completion_tokens"] > 0, last)
        check(last["usage"]["prompt_tokens_details"]["cached_tokens"] >= 0, last)
    for i, event in enumerate(found):
        check(event["object"] == "chat.completion.chunk" and event["id"] == found[0]["id"] and event["model"], event)
        choice, = event["choices"]
        check((choice["finish_reason"] is not None) == (i == len(found) - 1) and choice["index"] == 0, event)
        delta = choice["delta"]
        check(i > 0 or delta["role"] == "assistant", delta)
        got["text"] += delta.get("content") or ""
        got["reasoning"] += delta.get("reasoning_content") or ""
        for one in delta.get("tool_calls", []):
            if one["index"] == len(got["calls"]):
                check(one["id"] and one["type"] == "function", one)
                got["calls"].append([one["function"]["name"], ""])
            got["calls"][one["index"]][1] += one["function"].get("arguments", "")
    check(found[-1]["choices"][0]["finish_reason"] == ("tool_calls" if got["calls"] else "stop"), found[-1])
    return got


def messages_read(data, _):
    got, found = empty(), events(data, True)
    check(all(name == event["type"] for name, event in found), found)
    check(found[0][0] == "message_start" and found[0][1]["message"]["usage"]["input_tokens"] > 0, found[0])
    check([name for name, _ in found[-2:]] == ["message_delta", "message_stop"], found[-2:])
    reason = found[-2][1]["delta"]["stop_reason"]
    check(found[-2][1]["usage"]["output_tokens"] > 0, found[-2])
    n_block, is_open = 0, False
    for name, event in found[1:-2]:
        check(event["index"] == n_block and is_open == (name != "content_block_start"), event)
        if name == "content_block_start":
            is_open, block = True, event["content_block"]
            if block["type"] == "tool_use":
                check(block["id"] and block["input"] == {}, block)
                got["calls"].append([block["name"], ""])
        elif name == "content_block_delta":
            delta = event["delta"]
            check((block["type"], delta["type"]) in (("text", "text_delta"), ("thinking", "thinking_delta"),
                                                     ("tool_use", "input_json_delta")), delta)
            got["text"] += delta.get("text", "")
            got["reasoning"] += delta.get("thinking", "")
            if block["type"] == "tool_use":
                got["calls"][-1][1] += delta["partial_json"]
        else:
            is_open, n_block = False, n_block + 1
    check(reason == ("tool_use" if got["calls"] else "end_turn"), reason)
    return got


def responses_read(data, _):
    got, found = empty(), events(data, True)
    check([e["sequence_number"] for _, e in found] == list(range(len(found))), found)
    check(all(name == event["type"] for name, event in found), found)
    check(found[0][0] == "response.created" and found[-1][0] == "response.completed", found[0], found[-1])
    done = [event["item"] for name, event in found if name == "response.output_item.done"]
    added = [event["item"] for name, event in found if name == "response.output_item.added"]
    last = found[-1][1]["response"]
    check(last["output"] == done and [i["id"] for i in added] == [i["id"] for i in done], last)
    check(last["status"] == "completed" and last["usage"]["output_tokens"] > 0, last)
    deltas = {"message": "", "reasoning": "", "function_call": ""}
    for name, event in found:
        if name.endswith(".delta"):
            deltas[{"response.output_text.delta": "message", "response.reasoning_text.delta": "reasoning",
                    "response.function_call_arguments.delta": "function_call"}[name]] += event["delta"]
    for item in done:
        if item["type"] == "message":
            got["text"] += item["content"][0]["text"]
        elif item["type"] == "reasoning":
            got["reasoning"] += item["content"][0]["text"]
        else:
            check(item["call_id"], item)
            got["calls"].append([item["name"], item["arguments"]])
            if "namespace" in item:
                got["namespace"] = item["namespace"]
    check(deltas["message"] == got["text"] and deltas["reasoning"] == got["reasoning"], deltas)
    check(deltas["function_call"] == "".join(text for _, text in got["calls"]), deltas)
    return got


def ollama_read(data, _):
    got, lines = empty(), [json.loads(line) for line in data.decode().splitlines()]
    check([line["done"] for line in lines] == [False] * (len(lines) - 1) + [True], lines)
    check(lines[-1]["done_reason"] == "stop" and lines[-1]["eval_count"] > 0, lines[-1])
    for line in lines:
        got["text"] += line["message"].get("content", "")
        got["reasoning"] += line["message"].get("thinking", "")
        for one in line["message"].get("tool_calls", []):
            got["calls"].append([one["function"]["name"], json.dumps(one["function"]["arguments"])])
    return got


READERS = {"/v1/chat/completions": chat_read, "/v1/messages": messages_read, "/v1/responses": responses_read,
           "/api/chat": ollama_read}


# ---- The exchanges ----

def body_make(file, exchange):
    if "body" not in exchange:
        return None
    body = {name: value for name, value in file["body"].items() if name not in exchange.get("without", [])}
    body.update(exchange["body"])
    if "tools_of" in exchange:
        body["tools"] = file["exchanges"][exchange["tools_of"]]["body"]["tools"]
    for name, first in file.get("begins", {}).items():
        body[name] = first + body[name]
    return body


def lengthen(body, n):
    """Makes the last text longer by n letters."""
    message = body["messages" if "messages" in body else "input"][-1]
    if isinstance(message["content"], str):
        message["content"] += "x" * n
    else:
        message["content"][-1]["text"] += "x" * n


def leave(path, body):
    """Leaves a stream once it has begun; its request must end."""
    def begin_and_leave():
        with server.open(path, body) as connection:
            check(connection.recv(200).startswith(b"HTTP/1.1 200"))
            connection.recv(200)

    check(server.cancelled(1, begin_and_leave), "no request is cancelled")


def exchange_test(file, exchange):
    expected, path = dict(exchange["answer"]), exchange["path"]
    body = body_make(file, exchange)
    if "pad" in exchange:
        lengthen(body, exchange["pad"])
    if expected.get("leaves"):
        leave(path, body)
        return
    status, headers, data = server.request(exchange["method"], path, body,
                                           {**file["headers"], **exchange.get("headers", {})})
    check(status == expected.get("status", 200), status, data)
    if status != 200:
        error = json.loads(data)["error"]
        check(expected["word"] in error["message"] and error["type"] == "invalid_request_error", error)
        return
    if "status" in expected:
        return
    path = path.partition("?")[0]
    kind = "application/x-ndjson" if path == "/api/chat" else "text/event-stream"
    check(headers["content-type"].startswith(kind), headers)
    got = READERS[path](data, body)
    got["calls"] = [[name, json.loads(text)] for name, text in got["calls"]]
    check(got == {**empty(), **expected}, got)


def note_test(path):
    """Claude Code begins the system's text with a note for its maker, which differs in each conversation. It is left out
    of the prompt, so that conversations share the tokens behind it."""
    with open(path, encoding="utf-8") as text:
        file = json.load(text)
    body = body_make(file, file["exchanges"][1])
    counted = server.post("/v1/messages/count_tokens", body)[1]["input_tokens"]
    check(body["system"][0]["text"].startswith("x-anthropic-billing-header: "), body["system"])
    check(server.post("/v1/messages/count_tokens", body, system=body["system"][1:])[1]["input_tokens"] == counted)
    check(server.post("/v1/messages/count_tokens", body, system=body["system"][1:2])[1]["input_tokens"] < counted)


def version_test():
    version = server.get("/api/version")[1]["version"]
    check(tuple(map(int, version.split("."))) >= (0, 13, 4), version)  # what Codex needs


def format_test():
    """The format of Anthropic's API, in whole replies, with tools and without."""
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"],
              "additionalProperties": False}
    body = {"messages": [{"role": "user", "content": "Read a.txt. Answer as JSON"}], "max_tokens": 100,
            "output_config": {"format": {"type": "json_schema", "schema": schema}}}
    tools = [{"name": "Read", "input_schema": {"type": "object", "properties": {"file_path": {"type": "string"}}}}]
    # without the tool, the model's words are not those of the format
    status, reply = server.post("/v1/messages", body, max_tokens=40)
    check(status == 200 and "".join(reply["content"][0]["text"].split()).startswith('{"answer":'), reply)
    status, reply = server.post("/v1/messages", body, tools=tools)
    check([block["type"] for block in reply["content"]] == ["tool_use"], reply)
    body["messages"] += [{"role": "assistant", "content": reply["content"]}, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": reply["content"][0]["id"], "content": "Tom had a cat."}]}]
    status, reply = server.post("/v1/messages", body, tools=tools)
    check(json.loads(reply["content"][0]["text"]) == {"answer": "four"}, reply)


def main():
    global server
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "t.gguf")
        agents.write(model, "/tmp/project")
        server = client.Server(tandem, model, "-c", "8192", "--parallel", "2")
        try:
            for path in sorted(glob.glob(os.path.join(HERE, "recorded", "*.json"))):
                with open(path, encoding="utf-8") as text:
                    file = json.load(text)
                for exchange in file["exchanges"]:
                    try:
                        exchange_test(file, exchange)
                    except (AssertionError, LookupError, ValueError) as error:
                        raise AssertionError(file["program"], exchange["what"]) from error
                print(f"passed {len(file['exchanges'])} of {file['program']}", flush=True)
            version_test()
            format_test()
            note_test(os.path.join(HERE, "recorded", "claude-code.json"))
        finally:
            status = server.stop()
        check(status == 0, server.errors)


main()
