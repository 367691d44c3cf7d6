#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_serve.py TANDEM MODEL TEMPLATE [TEST ...]: the APIs of `tandem serve` over HTTP: answers,
streams, errors, limits, clients that leave or read slowly, and the end of the server."""
import base64
import json
import select
import socket
import struct
import sys
import threading
import traceback

import client
from client import check, error_of

tandem, model, template, *chosen = sys.argv[1:]
server = None
ONCE = "Once upon a time"


def test_status():
    check(server.get("/health") == (200, {"status": "ok"}))
    status, reply = server.get("/v1/models")
    check(status == 200 and reply["data"][0]["id"] == "stories-3m-q8_0", reply)
    check(server.get("/props")[1]["total_slots"] == 4)
    check(server.get("/slots") == (200, []))
    check(b"# TYPE tandem_requests_running gauge" in server.request("GET", "/metrics")[2])
    client.wait_for("only the asking connection is open", lambda: server.metric("tandem_connections") == 1)
    status, headers, _ = server.request("HEAD", "/health")
    check(status == 200 and int(headers["content-length"]) > 0)


def test_tokens():
    status, reply = server.post("/tokenize", {"content": ONCE})
    check(status == 200 and len(reply["tokens"]) >= 4, reply)
    check(server.post("/detokenize", reply)[1]["content"].strip() == ONCE, reply)
    pieces = server.post("/tokenize", {"content": ONCE, "with_pieces": True})[1]["tokens"]
    check([piece["id"] for piece in pieces] == reply["tokens"])
    error_of(*server.post("/detokenize", {"tokens": [10 ** 9]}), 400)
    status, reply = server.post("/apply-template", {"messages": [{"role": "user", "content": "Hi"}]})
    check(reply["prompt"] == "user: Hi\nassistant:", reply)


def test_completions():
    expected = client.run_text(tandem, model, ONCE, 24)
    body = {"prompt": ONCE, "max_tokens": 24, "temperature": 0}
    status, reply = server.post("/v1/completions", body)
    check(status == 200 and reply["choices"][0]["text"] == expected, reply, expected)
    check(reply["choices"][0]["finish_reason"] == "length")
    check(reply["usage"]["completion_tokens"] == 24, reply["usage"])
    events = server.stream("/v1/completions", body, stream_options={"include_usage": True})
    check(events[-1] == ("", "[DONE]"))
    check("".join(e[1]["choices"][0]["text"] for e in events[:-2]) == expected, events)
    check(events[-2][1]["choices"] == [] and events[-2][1]["usage"] == reply["usage"] | {
        "prompt_tokens_details": events[-2][1]["usage"]["prompt_tokens_details"]}, events[-2])
    status, reply = server.post("/completion", {"prompt": ONCE, "n_predict": 24, "temperature": 0})
    check(reply["content"] == expected and reply["stop_type"] == "limit", reply)
    parts = server.stream("/completion", {"prompt": ONCE, "n_predict": 24, "temperature": 0})
    check("".join(part["content"] for _, part in parts) == expected and parts[-1][1]["stop"])
    # the same from tokens, and several prompts with several answers each
    tokens = server.post("/tokenize", {"content": ONCE, "add_special": True})[1]["tokens"]
    check(server.post("/v1/completions", body, prompt=tokens)[1]["choices"][0]["text"] == expected)
    reply = server.post("/v1/completions", body, prompt=[ONCE, "The dog"], n=2)[1]
    texts = [choice["text"] for choice in reply["choices"]]
    check(texts[0] == texts[1] == expected and texts[2] == texts[3] != expected, texts)
    check(reply["usage"]["completion_tokens"] == 96, reply["usage"])
    check(server.post("/v1/completions", body, echo=True)[1]["choices"][0]["text"] == ONCE + expected)


def test_chat():
    body = {"messages": [{"role": "system", "content": "Tell a story."},
                         {"role": "user", "content": [{"type": "text", "text": ONCE}]}],
            "max_tokens": 16, "temperature": 0}
    expected = client.run_text(tandem, model, f"system: Tell a story.\nuser: {ONCE}\nassistant:", 16)
    status, reply = server.post("/v1/chat/completions", body)
    check(status == 200 and reply["choices"][0]["message"] == {"role": "assistant", "content": expected},
          reply, expected)
    events = server.stream("/v1/chat/completions", body)
    check(events[0][1]["choices"][0]["delta"]["role"] == "assistant")
    check("".join(e[1]["choices"][0]["delta"].get("content", "") for e in events[:-1]) == expected)
    check(events[-2][1]["choices"][0]["finish_reason"] == "length", events[-2])
    # developer is the newer name of system
    body["messages"][0]["role"] = "developer"
    check(server.post("/v1/chat/completions", body)[1]["choices"][0]["message"]["content"] == expected)
    error_of(*server.post("/v1/chat/completions", {"messages": [{"role": "bad", "content": ""}]}), 400)


def test_settings():
    body = {"prompt": ONCE, "max_tokens": 16, "temperature": 0}
    text = server.post("/v1/completions", body)[1]["choices"][0]["text"]
    word = text.split()[4]
    reply = server.post("/v1/completions", body, stop=["nowhere", word])[1]["choices"][0]
    check(reply["text"] == text[:text.index(word)] and reply["finish_reason"] == "stop", reply, text)
    events = server.stream("/v1/completions", body, stop=word)
    check("".join(e[1]["choices"][0]["text"] for e in events[:-1]) == text[:text.index(word)])
    reply = server.post("/completion", body, stop=[word], n_predict=16)[1]
    check(reply["stop_type"] == "word" and reply["stopping_word"] == word, reply)
    # the same seed gives the same text
    random = {**body, "temperature": 1.5, "seed": 7}
    texts = [server.post("/v1/completions", random)[1]["choices"][0]["text"] for _ in range(2)]
    check(texts[0] == texts[1], texts)
    check(server.post("/v1/completions", random, seed=8)[1]["choices"][0]["text"] != texts[0])
    # probabilities
    reply = server.post("/v1/completions", body, logprobs=3)[1]["choices"][0]["logprobs"]
    check(len(reply["tokens"]) == 16 and "".join(reply["tokens"]) == text, reply, text)
    for i, logprob in enumerate(reply["token_logprobs"]):
        check(logprob <= 0 and max(reply["top_logprobs"][i].values()) == logprob, reply)
    chat = {"messages": [{"role": "user", "content": ONCE}], "max_tokens": 4, "temperature": 0}
    reply = server.post("/v1/chat/completions", chat, logprobs=True, top_logprobs=2)[1]
    content = reply["choices"][0]["logprobs"]["content"]
    check(len(content) == 4 and all(len(token["top_logprobs"]) == 2 for token in content), content)
    # a bias forces a token, or bars one
    token = server.post("/tokenize", {"content": " dog"})[1]["tokens"][-1]
    reply = server.post("/v1/completions", body, max_tokens=3, logit_bias={str(token): 1000})[1]
    check(reply["choices"][0]["text"].split() == ["dog"] * 3, reply)
    first = server.post("/completion", body, n_predict=1, return_tokens=True)[1]["tokens"]
    barred = server.post("/completion", body, n_predict=1, return_tokens=True,
                         logit_bias=[[first[0], False]])[1]["tokens"]
    check(first != barred, first, barred)


# Fields of the sampler, and the flags of `tandem run` that mean the same.
SAMPLERS = [
    ({"temperature": 1.5, "top_k": 0, "top_p": 0.9, "min_p": 0.01},
     ["--temp", "1.5", "--top-k", "0", "--top-p", "0.9", "--min-p", "0.01"]),
    ({"temperature": 0, "repeat_penalty": 1.3, "repeat_last_n": -1},
     ["--temp", "0", "--repeat-penalty", "1.3", "--repeat-last-n", "-1"]),
    ({"temperature": 0, "presence_penalty": 1.5, "frequency_penalty": 0.7},
     ["--temp", "0", "--presence-penalty", "1.5", "--frequency-penalty", "0.7"]),
    ({"temperature": 1, "dynatemp_range": 0.8, "dynatemp_exponent": 2, "typical_p": 0.6},
     ["--temp", "1", "--dynatemp-range", "0.8", "--dynatemp-exp", "2", "--typical", "0.6"]),
    ({"temperature": 2, "top_n_sigma": 0.7, "xtc_probability": 0.9, "xtc_threshold": 0.05},
     ["--temp", "2", "--top-n-sigma", "0.7", "--xtc-probability", "0.9", "--xtc-threshold", "0.05"]),
    ({"temperature": 3, "top_k": 0, "min_p": 0.9, "min_keep": 6},
     ["--temp", "3", "--top-k", "0", "--min-p", "0.9", "--min-keep", "6"]),
    ({"temperature": 0, "dry_multiplier": 3, "dry_base": 2, "dry_allowed_length": 1,
      "dry_penalty_last_n": -1},
     ["--temp", "0", "--dry-multiplier", "3", "--dry-base", "2", "--dry-allowed-length", "1",
      "--dry-penalty-last-n", "-1"]),
    ({"temperature": 0, "dry_multiplier": 3, "dry_allowed_length": 0, "dry_sequence_breakers": ["a", "e"]},
     ["--temp", "0", "--dry-multiplier", "3", "--dry-allowed-length", "0", "--dry-sequence-breaker", "a,e"]),
    ({"temperature": 1.5, "mirostat": 1, "mirostat_tau": 3, "mirostat_eta": 0.3},
     ["--temp", "1.5", "--mirostat", "1", "--mirostat-ent", "3", "--mirostat-lr", "0.3"]),
    ({"temperature": 1, "mirostat": 2, "mirostat_tau": 2, "mirostat_eta": 0.3},
     ["--temp", "1", "--mirostat", "2", "--mirostat-ent", "2", "--mirostat-lr", "0.3"]),
    ({"adaptive_target": 0, "adaptive_decay": 0.5, "samplers": ["adaptive_p", "min_p"]},
     ["--adaptive-target", "0", "--adaptive-decay", "0.5", "--samplers", "min_p;adaptive_p"]),
    ({"temperature": 3, "samplers": ["temperature", "top_k"], "top_k": 5},
     ["--temp", "3", "--samplers", "temperature;top_k", "--top-k", "5"]),
    ({"temperature": 3, "samplers": "tk", "top_k": 5},
     ["--temp", "3", "--samplers", "temperature;top_k", "--top-k", "5"]),
]

# Wrong values of them.
BAD_SAMPLERS = [
    ("temperature", -1), ("temperature", "hot"), ("dynatemp_range", -0.1), ("dynatemp_exponent", 101),
    ("top_k", 1.5), ("top_k", -2), ("top_p", 1.1), ("min_p", -0.1), ("min_keep", -1),
    ("min_keep", 1.5), ("typical_p", 2), ("top_n_sigma", -2),
    ("xtc_probability", 1.5), ("xtc_threshold", "x"), ("repeat_penalty", 0), ("repeat_last_n", -2),
    ("presence_penalty", 1e9), ("frequency_penalty", [1]), ("dry_multiplier", -1), ("dry_base", 0.5),
    ("dry_allowed_length", -1), ("dry_penalty_last_n", -2), ("dry_sequence_breakers", "x"),
    ("dry_sequence_breakers", [1]), ("dry_sequence_breakers", ["x" * 300]),
    ("dry_sequence_breakers", ["x"] * 65), ("adaptive_target", -2), ("adaptive_decay", 1),
    ("mirostat", -1), ("mirostat", 3), ("mirostat_tau", -1),
    ("mirostat_eta", 1e30), ("samplers", 3), ("samplers", [3]), ("samplers", ["nothing"]),
    ("samplers", "tz"), ("samplers", ["top_k"] * 17), ("seed", "x"),
]


def test_samplers():
    """Each field does what the flag of `tandem run` does, and a wrong value is refused by its name."""
    prompt = "The cat sat on the mat. The cat sat on the mat. The cat"  # DRY acts on repetitions
    body = {"prompt": prompt, "n_predict": 24, "seed": 7}
    plain = server.post("/completion", body)[1]["content"]
    greedy = server.post("/completion", body, temperature=0)[1]["content"]
    for fields, flags in SAMPLERS:
        expected = client.run_text(tandem, model, prompt, 24, "--seed", "7", *flags)
        check(expected not in (plain, greedy), "the flags change nothing", flags)
        got = server.post("/completion", body, **fields)[1]
        check(got.get("content") == expected, fields, got, expected)
    for field, value in BAD_SAMPLERS:
        message = error_of(*server.post("/completion", body, **{field: value}), 400)
        check(f"'{field}'" in message, field, value, message)
    # a breaker from within the token " cat" to within " sat": behind it the repetition begins anew
    dry = {**body, "prompt": prompt + " sat", "temperature": 0, "dry_multiplier": 3}
    flags = ["--temp", "0", "--dry-multiplier", "3", "--dry-sequence-breaker"]
    texts = [server.post("/completion", dry, dry_sequence_breakers=[text])[1]["content"] for text in ("cat s", "cats")]
    check(texts[0] == client.run_text(tandem, model, dry["prompt"], 24, *flags, "cat s"), texts)
    check(texts[1] == client.run_text(tandem, model, dry["prompt"], 24, *flags, "none") != texts[0], texts)
    # the other APIs have the same fields, ollama's in its options
    fields, flags = SAMPLERS[2]
    expected = client.run_text(tandem, model, prompt, 24, *flags)
    reply = server.post("/v1/completions", body, max_tokens=24, **fields)[1]
    check(reply["choices"][0]["text"] == expected, reply)
    reply = server.post("/api/generate", {"prompt": prompt, "raw": True, "stream": False,
                                          "options": {"num_predict": 24, **fields}})[1]
    check(reply["response"] == expected, reply)
    status, reply = server.post("/api/generate", {"prompt": ONCE, "options": {"mirostat": 7}})
    check(status == 400 and "'mirostat'" in reply["error"], reply)
    chat = {"messages": [{"role": "user", "content": ONCE}], "max_tokens": 24}
    expected = client.run_text(tandem, model, f"user: {ONCE}\nassistant:", 24, *flags)
    reply = server.post("/v1/chat/completions", chat, **fields)[1]
    check(reply["choices"][0]["message"]["content"] == expected, reply, expected)
    messages = {"max_tokens": 24, "messages": chat["messages"]}
    reply = server.post("/v1/messages", messages, **fields)[1]
    check(reply["content"][0]["text"] == expected, reply, expected)
    reply = server.post("/v1/responses", {"input": ONCE, "max_output_tokens": 24}, **fields)[1]
    check(reply["output"][0]["content"][0]["text"] == expected, reply, expected)
    # what counts where a request has none of them
    params = server.get("/props")[1]["default_generation_settings"]["params"]
    check(params["typical_p"] == 1 and params["min_keep"] == 0 and params["adaptive_target"] == -1, params)
    check(params["dry_allowed_length"] == 2 and params["mirostat"] == 0, params)
    check(params["samplers"][0] == "penalties" and len(params["samplers"]) == 9, params)


def test_formats():
    schema = {"type": "object", "properties": {"name": {"enum": ["Tom", "Lily"]},
                                               "age": {"type": "integer", "minimum": 1, "maximum": 9}},
              "required": ["name", "age"], "additionalProperties": False}
    body = {"messages": [{"role": "user", "content": "Who?"}], "max_tokens": 60, "temperature": 0}
    reply = server.post("/v1/chat/completions", body, response_format={
        "type": "json_schema", "json_schema": {"name": "child", "schema": schema}})
    check(reply[0] == 200, reply)
    answer = json.loads(reply[1]["choices"][0]["message"]["content"])
    check(answer["name"] in ("Tom", "Lily") and 1 <= answer["age"] <= 9, answer)
    reply = server.post("/completion", {"prompt": ONCE, "n_predict": 8, "grammar": 'root ::= " x" "y"+'})
    check(reply[1]["content"].startswith(" xy"), reply)
    error_of(*server.post("/completion", {"prompt": "x", "grammar": "root ::= ("}), 400)
    error_of(*server.post("/v1/chat/completions", body, response_format={"type": "xml"}), 400)


def test_slow_grammars():
    """Schemas that take long to compile hold up neither streams, nor other requests, nor small schemas."""
    # 1 MB each; in the end they are refused as too large
    slow = {"prompt": ONCE, "n_predict": 1, "json_schema": {"enum": [f"{i}-{'x' * 40}" for i in range(20000)]}}
    stream = server.open("/completion", {"prompt": ONCE, "n_predict": 50, "ignore_eos": True, "stream": True})
    connections = [server.open("/completion", slow) for _ in range(16)]
    for more in ({}, {"json_schema": {"enum": ["a", "b"]}}, {"grammar": 'root ::= " x"'}):
        check(server.post("/completion", {"prompt": ONCE, "n_predict": 2, **more})[0] == 200)
    data = b""
    while not data.endswith(b"0\r\n\r\n"):
        data += stream.recv(1 << 16)
    check(b'"tokens_predicted":50' in data, data)
    n_done = len(select.select(connections, [], [], 0)[0])
    check(n_done <= len(connections) // 2, "of 16 large schemas before the small ones:", n_done)
    reply = b""
    while part := connections[0].recv(1 << 16):  # the server closes after an error
        reply += part
    check(b" 400 " in reply and b"grammar" in reply, reply)
    for connection in connections:  # schemas that still wait need not be compiled
        connection.close()


TOOLS = [{"type": "function", "function": {"name": name, "description": None, "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Bonn", "Rome"]}}, "required": ["city"],
    "additionalProperties": False}}} for name in ("weather", "time")]


def test_tools():
    body = {"messages": [{"role": "user", "content": "Rain?"}], "tools": TOOLS, "temperature": 0,
            "max_tokens": 300, "tool_choice": {"type": "function", "function": {"name": "time"}}}
    reply = server.post("/v1/chat/completions", body)
    check(reply[0] == 200, reply)
    choice = reply[1]["choices"][0]
    check(choice["finish_reason"] == "tool_calls", choice)
    call = choice["message"]["tool_calls"][0]
    check(call["function"]["name"] == "time", call)
    check(json.loads(call["function"]["arguments"])["city"] in ("Bonn", "Rome"), call)
    deltas = [call for _, data in server.stream("/v1/chat/completions", body)[:-1]
              for call in data["choices"][0]["delta"].get("tool_calls", [])]
    check(deltas[0]["function"]["name"] == "time" and deltas[0]["id"], deltas)
    check("".join(d["function"]["arguments"] for d in deltas) == call["function"]["arguments"], deltas)
    reply = server.post("/v1/chat/completions", body, tool_choice="required")[1]
    check(reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"] in ("weather", "time"))
    error_of(*server.post("/v1/chat/completions", body,
                          tool_choice={"type": "function", "function": {"name": "no"}}), 400)
    # a call that a limit cuts: its arguments are not whole, so no API says that it can be made
    schema = {"type": "object", "properties": {"city": {"type": "string", "minLength": 400}}, "required": ["city"]}
    tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    asked = {"messages": body["messages"], "tools": [tool], "tool_choice": "required", "temperature": 0}
    choice = server.post("/v1/chat/completions", asked, max_tokens=60)[1]["choices"][0]
    check(choice["finish_reason"] == "length" and choice["message"]["tool_calls"], choice)
    ends = [data["choices"][0]["finish_reason"]
            for _, data in server.stream("/v1/chat/completions", {**asked, "max_tokens": 60})[:-1]]
    check(ends[-1] == "length", ends)
    reply = server.post("/v1/messages", {**asked, "max_tokens": 60, "tool_choice": {"type": "any"}, "tools": [
        {"name": "weather", "input_schema": schema}]})[1]
    check(reply["stop_reason"] == "max_tokens" and reply["content"][0]["type"] == "tool_use", reply)
    reply = server.post("/v1/responses", {"input": "Rain?", "temperature": 0, "max_output_tokens": 60, "tools": [
        {"type": "function", **tool["function"]}], "tool_choice": "required"})[1]
    check(reply["status"] == "incomplete" and reply["output"][-1]["status"] == "incomplete", reply)
    for stream in (False, True):
        text = server.request("POST", "/api/chat", {**asked, "stream": stream, "options": {
            "temperature": 0, "num_predict": 60}})[2].decode()
        check("tool_calls" not in text and '"done_reason":"length"' in text, text)
    # a conversation with a call and its result
    prompt = server.post("/apply-template", {"messages": [
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function",
             "function": {"name": "time", "arguments": '{"city": "Bonn"}'}}]},
        {"role": "tool", "tool_call_id": "c", "content": "noon"}]})[1]["prompt"]
    check("<tool_call>time Bonn</tool_call>\ntool: noon" in prompt, prompt)


def test_offered_tools():
    """With tool_choice auto, a call follows its tool's schema from the text on that opens it."""
    # Biases make the model write <tool_call>, which it would not: each token of it has one, the
    # next a smaller one, and the penalty of repetitions takes it away for the time of the others.
    opens = server.post("/tokenize", {"content": "<tool_call>"})[1]["tokens"]
    check(len(set(opens)) == len(opens), opens)
    bias = {str(token): 100 * (len(opens) - i) + 200 for i, token in enumerate(opens)}
    body = {"messages": [{"role": "user", "content": "Rain?"}], "temperature": 0, "max_tokens": 160,
            "logit_bias": bias, "repeat_penalty": 100, "repeat_last_n": len(opens)}
    text = server.post("/v1/chat/completions", body)[1]["choices"][0]["message"]["content"]
    check(text.startswith("<tool_call>") and "arguments" not in text, text)
    # a schema with references to its own root; a tool without arguments; one whose schema is not
    # supported, which takes any object and does not make the others fail
    city = {"type": "object", "properties": {"city": {"$ref": "#/$defs/name"}}, "required": ["city"],
            "additionalProperties": False, "$defs": {"name": {"enum": ["Bonn", "Rome"]}}}
    rain = {"type": "function", "function": {"name": "rain", "parameters": city}}
    bare = {"type": "function", "function": {"name": "now"}}
    bad = {"type": "function", "function": {"name": "odd", "parameters": {
        "type": "object", "patternProperties": {"x": {}}}}}
    for tools, names in [([rain], {"rain"}), ([bare], {"now"}), ([rain, bare], {"rain", "now"})]:
        for more in ({}, {"tool_choice": "auto"}):
            choice = server.post("/v1/chat/completions", body, tools=tools, **more)[1]["choices"][0]
            calls = choice["message"].get("tool_calls", [])
            # one call after the other; the last one may be cut off
            try:
                json.loads(calls[-1]["function"]["arguments"])
                reason = "tool_calls"
            except json.JSONDecodeError:
                reason = "length"
            check(len(calls) >= 2 and choice["finish_reason"] == reason, choice)
            for call in calls[:-1]:
                name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
                check(name in names and isinstance(arguments, dict), choice)
                check(name != "rain" or arguments in ({"city": "Bonn"}, {"city": "Rome"}), choice)
                check(name != "now" or arguments == {}, choice)
    choice = server.post("/v1/chat/completions", body, tools=[bad])[1]["choices"][0]
    call = choice["message"]["tool_calls"][0]["function"]
    check(call["name"] == "odd" and call["arguments"].startswith("{"), choice)
    # where a call must come, the same schemas count, but one that is not supported is an error
    reply = server.post("/v1/chat/completions", body, tools=[rain], tool_choice="required", logit_bias={})[1]
    call = reply["choices"][0]["message"]["tool_calls"][0]["function"]
    check(json.loads(call["arguments"])["city"] in ("Bonn", "Rome"), call)
    message = error_of(*server.post("/v1/chat/completions", body, tools=[bad], tool_choice="required"), 400)
    check("patternProperties" in message, message)


def test_responses():
    body = {"input": ONCE, "max_output_tokens": 12, "temperature": 0}
    expected = client.run_text(tandem, model, f"user: {ONCE}\nassistant:", 12)
    status, reply = server.post("/v1/responses", body)
    check(status == 200 and reply["status"] == "incomplete", reply)
    check(reply["output"][0]["content"][0]["text"] == expected, reply, expected)
    events = server.stream("/v1/responses", body)
    check([data["sequence_number"] for _, data in events] == list(range(len(events))))
    check(events[0][0] == "response.created" and events[-1][0] == "response.incomplete", events)
    deltas = [data["delta"] for name, data in events if name == "response.output_text.delta"]
    check("".join(deltas) == expected)
    check(events[-1][1]["response"]["output"][0]["content"][0]["text"] == expected)
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    more = {"tools": tools, "tool_choice": {"type": "function", "name": "time"},
            "max_output_tokens": 300}
    events = server.stream("/v1/responses", body, **more)
    done = [data for name, data in events if name == "response.function_call_arguments.done"]
    check(json.loads(done[0]["arguments"])["city"] in ("Bonn", "Rome"), events)
    check(events[-1][1]["response"]["output"][0]["type"] == "function_call", events[-1])
    error_of(*server.post("/v1/responses", body, previous_response_id="resp_1"), 400)


def test_anthropic():
    body = {"model": "x", "max_tokens": 12, "system": [{"type": "text", "text": "Tell a story."}],
            "messages": [{"role": "user", "content": ONCE}], "temperature": 0}
    expected = client.run_text(tandem, model, f"system: Tell a story.\nuser: {ONCE}\nassistant:", 12)
    status, reply = server.post("/v1/messages", body)
    check(status == 200 and reply["content"] == [{"type": "text", "text": expected}], reply)
    check(reply["stop_reason"] == "max_tokens" and reply["usage"]["output_tokens"] == 12, reply)
    events = server.stream("/v1/messages", body)
    names = [name for name, _ in events]
    check(names[:2] == ["message_start", "content_block_start"] and names[-3:] == [
        "content_block_stop", "message_delta", "message_stop"], names)
    check("".join(data["delta"]["text"] for name, data in events
                  if name == "content_block_delta") == expected)
    word = expected.split()[2]
    reply = server.post("/v1/messages", body, stop_sequences=[word])[1]
    check(reply["stop_reason"] == "stop_sequence" and reply["stop_sequence"] == word, reply)
    tools = [{"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]}
             for tool in TOOLS]
    more = {"tools": tools, "tool_choice": {"type": "tool", "name": "weather"}, "max_tokens": 300}
    reply = server.post("/v1/messages", body, **more)[1]
    block = reply["content"][0]
    check(reply["stop_reason"] == "tool_use" and block["name"] == "weather", reply)
    check(block["input"]["city"] in ("Bonn", "Rome"), reply)
    pieces = [data["delta"]["partial_json"] for name, data in server.stream(
        "/v1/messages", body, **more) if name == "content_block_delta"]
    check(json.loads("".join(pieces)) == block["input"], pieces)
    check(server.post("/v1/messages/count_tokens", body)[1]["input_tokens"] > 4)
    status, reply = server.post("/v1/messages", {"messages": []})
    check(status == 400 and reply["type"] == "error" and reply["error"]["message"], reply)


def test_ollama():
    expected = client.run_text(tandem, model, f"user: {ONCE}\nassistant:", 12)
    body = {"model": "x", "messages": [{"role": "user", "content": ONCE}],
            "options": {"temperature": 0, "num_predict": 12}}
    status, headers, text = server.request("POST", "/api/chat", body)
    lines = [json.loads(line) for line in text.splitlines()]
    check(status == 200 and "ndjson" in headers["content-type"], headers)
    check("".join(line["message"]["content"] for line in lines) == expected, lines)
    check(lines[-1]["done"] and lines[-1]["done_reason"] == "length", lines[-1])
    check(lines[-1]["eval_count"] == 12, lines[-1])
    check(server.post("/api/chat", body, stream=False)[1]["message"]["content"] == expected)
    reply = server.post("/api/generate", {"prompt": ONCE, "raw": True, "stream": False,
                                          "options": body["options"]})[1]
    check(reply["response"] == client.run_text(tandem, model, ONCE, 12), reply)
    for n, count in ((12.0, 12), (3, 3)):
        options = {**body["options"], "num_predict": n}
        check(server.post("/api/chat", body, options=options, stream=False)[1]["eval_count"] == count, n)
    for n in ("12", 1.5, [12]):
        options = {**body["options"], "num_predict": n}
        message = server.post("/api/chat", body, options=options, stream=False)
        check(message == (400, {"error": "'num_predict' must be a whole number"}), n, message)
    check(server.get("/api/tags")[1]["models"][0]["name"] == "stories-3m-q8_0")
    check("tools" in server.post("/api/show", {"model": "x"})[1]["capabilities"])
    check(server.get("/api/version")[0] == 200)
    check(server.post("/api/chat", body, format="yaml") == (400, {
        "error": "'format' must be \"json\" or a JSON Schema"}))


def test_embeddings():
    check("no reranker" in error_of(*server.post("/v1/rerank", {"query": "a", "documents": ["b"]}), 400))
    texts = ["The cat sleeps.", "A dog barks."]
    status, reply = server.post("/v1/embeddings", {"input": texts})
    check(status == 200, reply)
    vectors = [item["embedding"] for item in reply["data"]]
    check(len(vectors) == 2 and vectors[0] != vectors[1], vectors)
    check(abs(sum(x * x for x in vectors[0]) - 1) < 1e-3, vectors[0])
    reply = server.post("/v1/embeddings", {"input": texts[0], "encoding_format": "base64"})[1]
    data = base64.b64decode(reply["data"][0]["embedding"])
    values = struct.unpack("<%df" % (len(data) // 4), data)
    check(max(abs(a - b) for a, b in zip(values, vectors[0])) < 1e-5)
    # ollama's two forms
    status, reply = server.post("/api/embed", {"model": "x", "input": texts})
    check(status == 200 and reply["embeddings"] == vectors and reply["total_duration"] > 0, reply)
    check(reply["prompt_eval_count"] == server.post("/v1/embeddings", {"input": texts})[1]["usage"][
        "prompt_tokens"], reply)
    check(server.post("/api/embed", {"model": "x", "input": texts[0]})[1]["embeddings"] == vectors[:1])
    check(server.post("/api/embed", {"model": "x"})[1]["embeddings"] == [])
    raw = server.post("/api/embeddings", {"model": "x", "prompt": texts[0]})[1]["embedding"]
    length = sum(x * x for x in raw) ** 0.5
    check(abs(length - 1) > 0.01, "it is scaled", length)
    check(max(abs(a / length - b) for a, b in zip(raw, vectors[0])) < 1e-5, raw)
    # a text that is too long is cut, or refused where that is not wanted
    check(len(server.post("/api/embed", {"input": "a dog " * 5000})[1]["embeddings"]) == 1)
    for path, body in [("/api/embed", {"input": "a dog " * 5000, "truncate": False}),
                       ("/api/embed", {"input": [1, 2]}), ("/api/embed", {"input": ["x", 3]}),
                       ("/api/embed", {"input": "x", "dimensions": 3}),
                       ("/api/embeddings", {"prompt": ["x"]})]:
        status, reply = server.post(path, body)
        check(status == 400 and reply["error"], path, body, status, reply)
    for wrong in ([], {}, 3):
        status, reply = server.post("/v1/embeddings", {"input": wrong})
        check(status == 400 and "'input'" in reply["error"]["message"], wrong, status, reply)
    many = server.post("/v1/embeddings", {"input": [texts[0]] * 40})[1]["data"]
    check(len(many) == 40 and [item["index"] for item in many] == list(range(40)))


def test_bad():
    path = "/v1/completions"
    for body, status in [(b"", 400), (b"{", 400), (b"[]", 400), (b"nul", 400), (b"\xff", 400),
                         (b'{"prompt":' + b"[" * 100 + b"]" * 100 + b"}", 400)]:
        got, _, text = server.request("POST", path, body if body else None)
        check(got == status, body[:20], got, text)
    bad = [{}, {"prompt": 3}, {"prompt": [3, "x", []]}, {"prompt": [10 ** 9]}, {"prompt": "x", "n": 0},
           {"prompt": "x", "temperature": "hot"}, {"prompt": "x", "temperature": -1},
           {"prompt": "x", "max_tokens": 0}, {"prompt": "x", "max_tokens": 1.5},
           {"prompt": "x", "stop": 3}, {"prompt": "x", "stop": ["x" * 300]},
           {"prompt": "x", "logit_bias": {"0": "x"}}, {"prompt": "x", "logit_bias": [[-1, 1]]},
           {"prompt": "x", "logprobs": 99}, {"prompt": "x", "stream": 1}, {"prompt": "y " * 5000}]
    for body in bad:
        error_of(*server.post(path, body), 400)
    for body in [{}, {"messages": []}, {"messages": "x"}, {"messages": [3]},
                 {"messages": [{"role": "user"}], "tools": [3]},
                 {"messages": [{"content": "x"}]},
                 {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}]:
        error_of(*server.post("/v1/chat/completions", body), 400)
    # what an error quotes may be no UTF-8, or be cut within a character
    error_of(*server.get("/%ff%fe"), 404)
    for role in ("\u00e9" * 400, "x" + "\u00e9" * 400):
        error_of(*server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": [
            {"type": role}]}]}), 400)
    # messages name what is wrong
    for body, words in (({"prompt": "x", "logit_bias": {"300": 1e300}}, "'logit_bias'"), ({"prompt": [[]]}, "is empty")):
        check(words in error_of(*server.post(path, body), 400), body)
    for body, words in (({"content": [{"type": "text"}]}, "'text' must be a string"),
                        ({"content": [{"type": "text", "text": None}]}, "'text' must be a string"),
                        ({"content": [{"type": "refusal"}]}, "type 'refusal' is not supported"),
                        ({"role": "bad", "content": "x"}, "role bad is not served")):
        message = error_of(*server.post("/v1/chat/completions", {"messages": [{"role": "user", **body}]}), 400)
        # the file of the template has a name for clients, but no folder
        check(words in message and "/" not in message, message)
    error_of(*server.get("/nothing"), 404)
    error_of(*server.get(path), 405)
    check(server.request("GET", path)[1]["allow"] == "POST")
    error_of(*server.json("PUT", path, {}), 405)
    host = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    check(b" 413 " in server.raw(host + b"Content-Length: 99999999\r\n\r\n"))
    check(b" 400 " in server.raw(host + b"Content-Length: 1x\r\n\r\n"))
    check(b" 400 " in server.raw(host + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x"))
    check(b" 411 " in server.raw(host + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"))
    # too long a head, and no HTTP at all: the connection ends
    server.raw(b"GET / HTTP/1.1\r\nX: " + b"y" * 20000 + b"\r\n\r\n")
    server.raw(b"\x00\x01\x02\r\n\r\n")
    # a connection carries one request, whatever comes behind it, early or late
    get = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    bodies = [json.dumps({"prompt": ONCE, "max_tokens": n, "ignore_eos": True}).encode() for n in (30, 3900)]
    post, long_post = (host + b"Content-Length: %d\r\n\r\n" % len(body) + body for body in bodies)
    check(b"\r\nconnection: close\r\n" in server.raw(post, client.LIMIT))
    for both in (get + get, get + post, post + get, post + post, post + b"\r\n"):
        check(server.raw(both).count(b"HTTP/1.1 ") <= 1, both)
        check(server.get("/health")[0] == 200)
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(long_post)
        client.wait_for("the request runs", lambda: server.metric("tandem_requests_running") == 1)
        connection.sendall(post)
        check(server.get("/health")[0] == 200)
    # the Host of a page of another site is refused, also where its address (with a line end in it) or a second
    # header names this machine
    for head in (b"/health%0aHost:localhost: HTTP/1.1\r\n", b"/health?x=%0aHost:localhost: HTTP/1.1\r\n",
                 b"/health HTTP/1.1\r\nHost: localhost:\r\n", b"/health%0a HTTP/1.1\r\n"):
        check(b" 400 " in server.raw(b"GET " + head + b"Host: evil.example\r\n\r\n"), head)
    check(b" 403 " in server.raw(b"GET /health HTTP/1.1\r\nHost: localhost:x\r\n\r\n"))
    # a client may send its body only when it is invited to, as curl does with a large one
    with socket.create_connection((server.host, server.port)) as connection:
        connection.settimeout(client.LIMIT)
        connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\n"
                           b"Expect: 100-continue\r\n\r\n")
        check(connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.sendall(b'{"content":"a"}')
        check(connection.recv(1000).startswith(b"HTTP/1.1 200 "))
    check(server.raw(b"POST /tokenize HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 15\r\n"
                     b"Expect: 100-continue\r\n\r\n").startswith(b"HTTP/1.1 403 "))
    # offers of HTTP/2, as of Java's HttpClient, are ignored
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    got = server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + offer + b"\r\n")
    check(got.startswith(b"HTTP/1.1 200 ") and got.endswith(b'{"status":"ok"}'), got)
    got = server.raw(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\n" + offer +
                     b'\r\n{"content":"a"}')
    check(got.startswith(b"HTTP/1.1 200 "), got)
    check(b" 200 " not in server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
                                     b"Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                                     b"Sec-WebSocket-Version: 13\r\n\r\n"))
    for headers in ({"Host": "evil.example"}, {"Host": "localhost", "Origin": "https://evil.example"}):
        check(server.request("GET", "/health", None, headers)[0] == 403, headers)
    check(server.get("/health")[0] == 200)


def test_leaving():
    """A client that leaves ends its request; so does one in the queue."""
    body = {"prompt": ONCE, "max_tokens": 4000, "ignore_eos": True, "stream": True}
    # a request of an earlier test may still be in a step that takes long with a sanitizer
    client.wait_for("no request is left", lambda: server.metric("tandem_requests_running") == 0 and
                    server.metric("tandem_requests_queued") == 0)

    def leave():
        ended = server.ended()
        connections = [server.open("/v1/completions", body) for _ in range(6)]
        # a request whose client leaves before it was read is not counted
        client.wait_for("four requests run, two wait", lambda: server.ended() - ended + server.metric(
            "tandem_requests_running") + server.metric("tandem_requests_queued") == 6)
        for connection in connections:
            connection.close()

    check(server.cancelled(6, leave), "not all requests are cancelled")

    def leave_texts():
        submitted = server.metric("tandem_requests_submitted_total")
        connection = server.open("/v1/embeddings", {"input": ["word " * 1500] * 40})
        # a request for vectors submits 16 texts, and more when those are done
        client.wait_for("texts are submitted",
                        lambda: server.metric("tandem_requests_submitted_total") >= submitted + 16)
        connection.close()

    check(server.cancelled(16, leave_texts), "not all texts are cancelled")
    check(server.get("/slots") == (200, []))


def test_slow():
    """Slow readers do not hold others up, and get all of their text."""
    body = {"prompt": ONCE, "max_tokens": 900, "temperature": 0, "ignore_eos": True}
    whole = server.post("/v1/completions", body)[1]["choices"][0]["text"]
    # probabilities make the stream longer than what the sockets hold
    slow = [server.open("/v1/completions", {**body, "stream": True, "logprobs": 20}) for _ in range(2)]
    quick = server.post("/v1/completions", {"prompt": ONCE, "max_tokens": 4})
    check(quick[0] == 200)
    for connection in slow:
        connection.settimeout(30)
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            chunk = connection.recv(4096)
            check(chunk, "the stream broke off", data[-200:])
            data += chunk
        connection.close()
        text = "".join(json.loads(line[6:])["choices"][0]["text"]
                       for line in dechunk(data).split("\n")
                       if line.startswith("data: {"))
        check(text == whole, len(text), len(whole))


def dechunk(data):
    head, rest = data.split(b"\r\n\r\n", 1)
    out = b""
    while True:
        size, rest = rest.split(b"\r\n", 1)
        n = int(size, 16)
        if n == 0:
            return out.decode()
        out += rest[:n]
        rest = rest[n + 2:]


def test_many():
    """Greedy answers do not depend on what else is computed."""
    prompts = [ONCE, "The dog", "One day, a girl", "Tom and Lily", "There was a big tree"]
    expected = {prompt: client.run_text(tandem, model, prompt, 20) for prompt in prompts}
    failures = []

    def ask(i):
        prompt = prompts[i % len(prompts)]
        status, reply = server.post("/v1/completions",
                                    {"prompt": prompt, "max_tokens": 20, "temperature": 0})
        if status != 200 or reply["choices"][0]["text"] != expected[prompt]:
            failures.append((prompt, reply))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not failures, failures[:1])


def test_page():
    status, headers, text = server.request("GET", "/")
    check(status == 200 and headers["content-type"].startswith("text/html"))
    check("default-src 'none'" in headers["content-security-policy"])
    check(headers["x-content-type-options"] == "nosniff" and b"<script>" in text)


def test_shutdown():
    """A request that is running may finish."""
    connection = server.open("/v1/completions", {"prompt": ONCE, "max_tokens": 1500, "ignore_eos": True})
    client.wait_for("the request runs", lambda: server.metric("tandem_requests_running") == 1)
    status = server.stop()
    connection.settimeout(30)
    data = b""
    while chunk := connection.recv(65536):
        data += chunk
    check(b" 200 " in data and b'"finish_reason"' in data, data)
    check(status == 0, status, server.errors)
    check("shutting down: 1 request may finish" in server.errors, server.errors)


def passes(name, test):
    try:
        test()
    except (Exception, SystemExit):  # pylint: disable=broad-except
        traceback.print_exc()
        return False
    print("passed", name, flush=True)
    return True


def main():
    global server
    names = chosen or [name for name in globals() if name.startswith("test_")]
    server = client.Server(tandem, model, "--template", template, "--parallel", "4", "-c", "4096",
                           "--embeddings")
    try:
        failed = [name for name in names if not passes(name, globals()[name])]
    finally:
        if server.process.poll() is None:
            server.stop(kills=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


main()
