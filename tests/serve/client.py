# SPDX-License-Identifier: MIT
"""client.py: starts `tandem serve` and talks HTTP with it, with Python's standard library alone."""
import http.client
import json
import os
import select
import socket
import subprocess
import time
import urllib.parse


# Seconds that a reply may take: with a sanitizer on a busy machine, more than a minute.
LIMIT = 240


def check(condition, *what):
    if not condition:
        raise AssertionError(what)


def error_of(status, reply, expected):
    """The message of a reply that is an error of the status `expected`."""
    check(status == expected, status, reply)
    check(isinstance(reply["error"]["message"], str) and reply["error"]["type"], reply)
    return reply["error"]["message"]


class Server:
    """As a context, the server is killed where the block has not stopped it."""

    def __init__(self, tandem, model, *args, tls=None):
        """model: a file, or None where the arguments say which there are. tls: the client's SSLContext, for a
        server that is given a certificate."""
        self.tls = tls
        self.process = subprocess.Popen([tandem, "serve", *(["-m", model] if model else []), "--port", "0", *args],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        ready, _, _ = select.select([self.process.stdout], [], [], 120)
        line = self.process.stdout.readline() if ready else ""
        if not line.startswith("http"):
            self.process.kill()
            raise SystemExit(f"the server did not start: {line!r} {self.process.stderr.read()}")
        self.url = line.strip()
        parts = urllib.parse.urlsplit(self.url)
        self.host, self.port = parts.hostname, parts.port

    def __enter__(self):
        return self

    def __exit__(self, *what):
        if self.process.poll() is None:
            self.stop(kills=True)

    def stop(self, kills=False):
        """Ends the server as a user would, and returns its exit status."""
        if self.process.poll() is None:
            self.process.kill() if kills else self.process.terminate()
        try:
            _, self.errors = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise SystemExit("the server does not end")
        return self.process.returncode

    def request(self, method, path, body=None, headers=None):
        """Status, headers and bytes of a reply."""
        connection = (http.client.HTTPConnection(self.host, self.port, timeout=LIMIT) if self.tls is None else
                      http.client.HTTPSConnection(self.host, self.port, timeout=LIMIT, context=self.tls))
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request(method, path, data, headers or {})
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        return reply.status, reply.headers, text

    def get(self, path):
        return self.json("GET", path)

    def post(self, path, body, **more):
        return self.json("POST", path, {**body, **more})

    def json(self, method, path, body=None, headers=None):
        status, _, text = self.request(method, path, body, headers)
        return status, json.loads(text)

    def stream(self, path, body, **more):
        """Events of a stream as (name, data); the last is ("", "[DONE]") where the API has it."""
        status, headers, text = self.request("POST", path, {**body, **more, "stream": True})
        assert status == 200, (status, text)
        assert headers["content-type"].startswith("text/event-stream"), headers
        events = []
        for block in text.decode().split("\n\n"):
            lines = [line for line in block.split("\n") if line and not line.startswith(":")]
            if not lines:
                continue
            fields = dict(line.split(": ", 1) for line in lines)
            data = fields["data"]
            events.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
        return events

    def raw(self, data, wait=5.0):
        """What the server sends for these bytes until it closes, or until `wait` seconds passed."""
        with socket.create_connection((self.host, self.port)) as connection:
            connection.settimeout(wait)
            connection.sendall(data)
            got = b""
            try:
                while chunk := connection.recv(65536):
                    got += chunk
            except (TimeoutError, socket.timeout, ConnectionResetError):
                pass
            return got

    def open(self, path, body):
        """A socket on which a request has been sent."""
        data = json.dumps(body).encode()
        connection = socket.create_connection((self.host, self.port))
        connection.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                           % (path.encode(), len(data)) + data)
        return connection

    def metric(self, name):
        for line in self.request("GET", "/metrics")[2].decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        raise KeyError(name)

    def ended(self):
        """How many requests have ended, for any reason."""
        return sum(float(line.split()[-1]) for line in self.request("GET", "/metrics")[2].decode().splitlines()
                   if line.startswith("tandem_requests_ended_total{"))

    def cancelled(self, n, leave):
        """Whether `n` requests, of which a client leaves all by leave(), end as cancelled. On a busy
        machine they may reach the end of their context before the client has left; so it leaves
        again, up to 20 times."""
        name = 'tandem_requests_ended_total{reason="cancelled"}'
        for _ in range(20):
            cancelled, ended = self.metric(name), self.ended()
            leave()
            wait_for(f"{n} requests have ended", lambda: self.ended() >= ended + n)
            if self.metric(name) == cancelled + n:
                return True
        return False


def wait_for(what, condition, limit=30.0):
    """Polls, since the server sends no events of its state; fails after `limit` seconds."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"waited {limit} s: {what}")
        time.sleep(0.02)


def run_text(tandem, model, prompt, n, *flags):
    """What `tandem run` writes behind a prompt, greedily, or as the flags say."""
    out = subprocess.run([tandem, "run", "-m", model, "-p", prompt, "-n", str(n), "--quiet",
                          *(flags or ("--temp", "0"))],
                         capture_output=True, check=True, env=os.environ).stdout.decode()
    assert out.startswith(prompt), out
    return out[len(prompt):].removesuffix("\n")  # `run` ends its output with a line end
