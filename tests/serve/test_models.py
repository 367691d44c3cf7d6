#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_models.py TANDEM MODEL TEMPLATE: `tandem serve` with several models: on demand, by name in each API, which one
leaves, models that cannot be opened, clients that leave while theirs is opened, and the end of the server meanwhile."""
import errno
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

import client
from client import check, error_of

tandem, model, template = map(os.path.abspath, sys.argv[1:])
ONCE = "Once upon a time"
GREEDY = {"prompt": ONCE, "max_tokens": 30, "temperature": 0}


class Folder:
    """The configuration: two models of unlike files, two that cannot be opened, and one whose template is a pipe, so
    that its opening lasts until the test writes to it."""

    def __init__(self, path):
        self.path = path
        self.other = os.path.join(path, "other.gguf")
        self.pipe = os.path.join(path, "pipe.jinja")
        subprocess.run([tandem, "quantize", "--quiet", "--pure", model, self.other, "q4_0"], check=True,
                       stderr=subprocess.DEVNULL)
        with open(os.path.join(path, "broken.gguf"), "wb") as file:
            file.write(b"GGUF is not all that it takes")
        self.config = os.path.join(path, "models.ini")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(f"""ctx-size = 512
parallel = 2
models-max = 2
template = {template}
[model small]
model = {model}
[model other]
model = other.gguf
predict = 3
[model broken]
model = broken.gguf
[model huge]
model = {model}
ctx-size = 268435456
[model slow]
model = other.gguf
template = pipe.jinja
""")
        self.pipe_make()

    def pipe_make(self):
        if os.path.exists(self.pipe):
            os.remove(self.pipe)
        os.mkfifo(self.pipe)

    def opening_wait(self):
        """Waits until the server opens the model `slow`; what this returns is for opening_end."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if error.errno != errno.ENXIO or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def opening_end(self, pipe):
        """The server reads the template twice: the second time it is a file."""
        with open(template, "rb") as file:
            text = file.read()
        plain = self.pipe + ".plain"
        with open(plain, "wb") as file:
            file.write(text)
        os.replace(plain, self.pipe)
        os.write(pipe, text)
        os.close(pipe)


def states(server):
    return {one["id"]: one["status"]["value"] for one in server.get("/v1/models")[1]["data"]}


def loaded(server):
    return sorted(name for name, state in states(server).items() if state == "loaded")


def count(server, name, of):
    """A metric of a model."""
    for line in server.request("GET", "/metrics")[2].decode().splitlines():
        if line.startswith(f'tandem_{name}{{model="{of}"}} '):
            return float(line.split()[-1])
    raise KeyError((name, of))


def text_of(server, **more):
    status, reply = server.post("/v1/completions", {**GREEDY, **more})
    check(status == 200, status, reply)
    return reply["choices"][0]["text"]


def on_demand(server, folder):
    names = ["small", "other", "broken", "huge", "slow"]
    check(states(server) == {name: "unloaded" for name in names}, states(server))
    check([one["name"] for one in server.get("/api/tags")[1]["models"]] == names)
    check(server.get("/api/ps")[1]["models"] == [] and server.get("/slots") == (200, []))
    check(server.get("/health") == (200, {"status": "ok"}))
    expected = {"small": client.run_text(tandem, model, ONCE, 30), "other": client.run_text(tandem, folder.other, ONCE, 30)}
    check(expected["small"] != expected["other"], expected)
    check(text_of(server) == expected["small"])  # the first, where none is named
    check(loaded(server) == ["small"], states(server))
    check(text_of(server, model="other") == expected["other"])
    check(text_of(server, model="small") == text_of(server, model="") == expected["small"])
    check(loaded(server) == ["other", "small"], states(server))
    check(count(server, "model_opened_total", "small") == 1)
    # a key of a section: 3 tokens, where a request does not say how many
    reply = server.post("/v1/completions", {"prompt": ONCE, "model": "other"})[1]
    check(reply["usage"]["completion_tokens"] == 3 and reply["model"] == "other", reply)


def names_in_apis(server):
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    for name in ("small", "other"):
        for path, body in (("/v1/chat/completions", chat), ("/v1/messages", chat), ("/completion", {"prompt": ONCE, "n_predict": 2}),
                           ("/v1/responses", {"input": "Hi", "max_output_tokens": 2}),
                           ("/api/chat", {"messages": chat["messages"], "stream": False, "options": {"num_predict": 2}}),
                           ("/api/generate", {"prompt": "Hi", "stream": False, "options": {"num_predict": 2}})):
            status, reply = server.post(path, body, model=name)
            check(status == 200 and reply["model"] == name, path, status, reply)
        check(server.post(f"/tokenize?model={name}", {"content": "Hi"})[0] == 200)
        check(server.get(f"/props?model={name}")[1]["model_alias"] == name)
        check(server.get(f"/lora-adapters?model={name}") == (200, []))
        status, _, text = server.request("GET", f"/metrics?model={name}")
        check(status == 200 and f'tandem_steps_total{{model="{name}"}}'.encode() in text, text)
        other = "other" if name == "small" else "small"
        check(f'"{other}"'.encode() not in text, text)
    check(server.post("/api/show", {"model": "small:latest"})[1]["model_info"]["general.architecture"] == "llama")
    check(server.post("/api/show", {"name": "slow"})[1]["model_info"] == {})  # it is not opened for that
    check(server.get("/props?model=o%74her")[1]["model_alias"] == "other")
    check(server.get("/props")[1]["model_alias"] == "small")
    check(sorted(one["name"] for one in server.get("/api/ps")[1]["models"]) == ["other", "small"])


def unknown_names(server):
    body = {"model": "nowhere", "prompt": ONCE, "messages": []}
    message = "there is no model 'nowhere'; there are 'small', 'other', 'broken', 'huge', 'slow'"
    for path in ("/v1/completions", "/v1/chat/completions", "/completion", "/tokenize", "/models/load", "/models/unload"):
        status, reply = server.post(path, body)
        check(status == 404 and reply["error"]["message"] == message and reply["error"]["type"] == "not_found_error", reply)
    status, reply = server.post("/v1/messages", body)
    check(status == 404 and reply["type"] == "error" and reply["error"]["message"] == message, reply)
    for path in ("/api/chat", "/api/generate", "/api/show", "/api/embed"):
        check(server.post(path, body) == (404, {"error": message}), path)
    for path in ("/props", "/slots", "/metrics", "/lora-adapters"):
        status, reply = server.get(path + "?model=nowhere")
        check(status == 404 and reply["error"]["message"] == message, path, reply)
    status, reply = server.post("/v1/completions", {"model": 7, "prompt": ONCE})
    check(status == 400 and "'model'" in reply["error"]["message"], reply)


def broken(server, folder):
    for path in ("/v1/completions", "/models/load"):
        status, reply = server.post(path, {"model": "broken", "prompt": ONCE})
        check(status == 500 and "model 'broken' cannot be opened" in reply["error"]["message"] and
              "broken.gguf" in reply["error"]["message"] and folder.path not in reply["error"]["message"], reply)
    check(server.post("/v1/messages", {"model": "broken", "messages": []})[1]["type"] == "error")
    failed = [one["id"] for one in server.get("/models")[1]["data"] if one["status"].get("failed")]
    check(failed == ["broken"], failed)
    check(count(server, "model_failed_total", "broken") == 3)
    check(text_of(server, model="other") and server.get("/health")[0] == 200)


def eviction(server):
    """models-max is 2: the least recently used one leaves. A broken one made room, too."""
    text_of(server, model="other")
    text_of(server, model="small")
    check(loaded(server) == ["other", "small"], states(server))
    # one that is in use stays until its request has ended, and the new one waits for that
    with server.open("/v1/completions", {**GREEDY, "model": "other", "max_tokens": 300, "ignore_eos": True, "stream": True}) as busy:
        busy.recv(1)
        with server.open("/v1/completions", {**GREEDY, "model": "small", "max_tokens": 300, "ignore_eos": True, "stream": True}) as more:
            more.recv(1)
            check(server.post("/models/load", {"model": "broken"})[0] == 500)
            texts = [read_all(one) for one in (busy, more)]
    check(all(b"[DONE]" in text for text in texts), texts)
    # memory is short for `huge`: all others leave, and then it fails
    text_of(server, model="small")
    status, reply = server.post("/v1/completions", GREEDY, model="huge")
    check(status == 503 and "model 'huge' cannot be opened" in reply["error"]["message"], status, reply)
    check(loaded(server) == [], states(server))
    check(text_of(server, model="small"))


def read_all(connection):
    text = b""
    while chunk := connection.recv(65536):
        text += chunk
    return text


def load_and_unload(server):
    check(server.post("/models/load", {"model": "other"}) == (200, {"success": True}))
    check("other" in loaded(server), states(server))
    check(server.post("/models/unload", {"model": "other"}) == (200, {"success": True}))
    client.wait_for("the model is closed", lambda: states(server)["other"] == "unloaded")
    status, reply = server.post("/models/unload", {"model": "other"})
    check(status == 400 and "not loaded" in reply["error"]["message"], reply)
    body = {"model": "other", "stream": False, "keep_alive": 0}
    check(server.post("/api/generate", body)[1]["done_reason"] == "unload")
    client.wait_for("the model is closed", lambda: states(server)["other"] == "unloaded")
    reply = server.post("/api/generate", {**body, "prompt": ONCE, "options": {"num_predict": 2}})[1]
    check(reply["eval_count"] == 2, reply)
    client.wait_for("the model is closed", lambda: states(server)["other"] == "unloaded")
    check(server.post("/api/generate", {"model": "other", "stream": False})[1]["done_reason"] == "load")


def leaving(server, folder):
    """Others are served while a model is opened, and no model is opened for a client that has left."""
    check(text_of(server, model="small"))
    server.post("/models/unload", {"model": "other"})
    client.wait_for("the model is closed", lambda: states(server)["other"] == "unloaded")
    n_opened = count(server, "model_opened_total", "other")
    replies = []
    asking = threading.Thread(target=lambda: replies.append(server.post("/v1/completions", GREEDY, model="slow")))
    asking.start()
    pipe = folder.opening_wait()
    gone = server.open("/v1/completions", {**GREEDY, "model": "slow"})
    queued = server.open("/v1/completions", {**GREEDY, "model": "other"})
    client.wait_for("both wait", lambda: count(server, "model_requests_waiting", "slow") == 2 and
                    count(server, "model_requests_waiting", "other") == 1)
    check(states(server)["slow"] == states(server)["other"] == "loading", states(server))
    check(text_of(server, model="small") and server.get("/health")[0] == 200)
    gone.close()
    queued.close()
    client.wait_for("the server sees that they left", lambda: server.metric("tandem_connections") == 2)
    folder.opening_end(pipe)
    asking.join()
    check(replies[0][0] == 200 and replies[0][1]["choices"][0]["text"], replies)
    client.wait_for("no one waits", lambda: count(server, "model_requests_waiting", "other") == 0)
    check(count(server, "model_opened_total", "other") == n_opened, "a model was opened for a client that left")
    check(states(server)["slow"] == "loaded", states(server))


def shutdown(server, folder):
    """The requests that wait for a model get an error at once; the server ends once the model's opening does."""
    server.post("/models/unload", {"model": "slow"})
    client.wait_for("the model is closed", lambda: states(server)["slow"] == "unloaded")
    folder.pipe_make()
    with server.open("/v1/completions", {**GREEDY, "model": "slow"}) as waiting:
        pipe = folder.opening_wait()
        client.wait_for("it waits", lambda: count(server, "model_requests_waiting", "slow") == 1)
        server.process.terminate()
        reply = read_all(waiting)
        check(b" 503 " in reply.split(b"\r\n")[0] and b"shutting down" in reply, reply)
    folder.opening_end(pipe)
    server.process.wait(60)  # a second signal would end it at once
    check(server.stop() == 0, server.errors)
    # the command's own messages have the folders
    check(f"{folder.path}/broken.gguf" in server.errors, server.errors)


def chosen(folder):
    """The model of -m is open from the start, and the one of requests that name none."""
    server = client.Server(tandem, "other", "--config", folder.config)
    try:
        check(loaded(server) == ["other"], states(server))
        check(server.get("/props")[1]["model_alias"] == "other")
        check(server.stop() == 0, server.errors)
    finally:
        server.stop(kills=True)
    # a file that is named itself is the only model; then the name in requests is not read
    server = client.Server(tandem, model, "--config", folder.config)
    try:
        check(loaded(server) == list(states(server)) == [os.path.basename(model).removesuffix(".gguf")], states(server))
        check(text_of(server, model="any"))
        check(server.stop() == 0, server.errors)
    finally:
        server.stop(kills=True)
    # the chosen one must work
    process = subprocess.run([tandem, "serve", "-m", "broken", "--config", folder.config, "--port", "0"],
                             capture_output=True, text=True, timeout=60)
    check(process.returncode == 1 and "broken.gguf" in process.stderr, process)


def relative(folder):
    """Clients get no folders, either where the paths of the configuration are relative."""
    server = client.Server(tandem, None, "--config", os.path.relpath(folder.config))
    try:
        message = error_of(*server.post("/v1/completions", {"model": "broken", "prompt": ONCE}), 500)
        check("broken.gguf" in message and "/" not in message, message)
    finally:
        server.stop(kills=True)


def main():
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        server = client.Server(tandem, None, "--config", folder.config)
        try:
            for step in (lambda: on_demand(server, folder), lambda: names_in_apis(server), lambda: unknown_names(server),
                         lambda: broken(server, folder), lambda: eviction(server), lambda: load_and_unload(server),
                         lambda: leaving(server, folder), lambda: shutdown(server, folder)):
                step()
                print("passed", step.__code__.co_names[0], flush=True)
        finally:
            server.stop(kills=True)
        chosen(folder)
        print("passed chosen")
        relative(folder)
        print("passed relative")


main()
