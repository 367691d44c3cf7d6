#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""load.py TANDEM MODEL [--streams N] [--seconds S] ...: many streams at a time against one server.

Each of N clients sends one request after the other and reads its stream. Some of them read slowly; some
leave at a random moment: before their request is whole, in the queue, or within the answer. It prints
times of the other clients, and fails where

  - an answer is not the one that the server gave alone, or breaks off,
  - a client waits longer than --stall seconds for the next bytes,
  - resident memory of the server grows in the second half of the time, or exceeds --memory,
  - requests or connections are left when all clients are gone, or some were lost or failed,
  - the server does not end in order, with streams at work that it finishes.

The long run, of ten minutes:

    tests/serve/load.py build-test/runner/tandem models/stories-3m-q8_0.gguf --seconds 600
"""
import argparse
import json
import os
import random
import resource
import select
import socket
import struct
import time

import client

PROMPTS = ["Once upon a time", "The dog", "One day, a girl", "Tom and Lily", "There was a big tree",
           "A little bird", "The old man", "In the garden", "Mom said", "The red ball"]
QUICK, SLOW, LEAVING = "quick", "slow", "leaving"
SLOW_PAUSE = 0.25  # seconds between two reads of SLOW_BYTES
SLOW_BYTES = 4096


class Failure(Exception):
    pass


class Stream:
    """A client: its present request, and what has come of the reply."""

    def __init__(self, load, kind):
        self.load, self.kind = load, kind
        self.begin()

    def begin(self):
        """Sends the next request."""
        load = self.load
        self.prompt = load.random.choice(PROMPTS)
        self.n = load.args.slow_tokens if self.kind == SLOW else load.random.randint(4, load.args.tokens)
        body = {"prompt": self.prompt, "max_tokens": self.n, "temperature": 0, "ignore_eos": True,
                "stream": True, "stream_options": {"include_usage": True}}
        if self.kind == SLOW:
            body["logprobs"] = 20
        data = json.dumps(body).encode()
        data = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                % len(data)) + data
        self.leaves = None
        if self.kind == LEAVING:
            # after that many events; -1 in the queue, -2 in the middle of the request
            self.leaves = load.random.randint(-2, 12)
            if self.leaves == -2:
                data = data[:load.random.randint(1, len(data) - 1)]
        self.socket = socket.socket()
        if self.kind == SLOW:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BYTES)
        self.socket.setblocking(False)
        try:
            self.socket.connect((load.server.host, load.server.port))
        except BlockingIOError:
            pass
        load.streams[self.socket.fileno()] = self
        load.epoll.register(self.socket.fileno(), select.EPOLLOUT)
        self.unsent, self.rest, self.head = data, b"", None
        self.lines, self.text, self.n_event, self.n_used = b"", "", 0, None
        self.is_done = False
        self.sent = self.last = time.monotonic()
        self.first = None
        self.due = 0.0  # a slow reader reads no sooner
        self.leave_at = self.sent + load.random.random() * 0.5 if self.leaves in (-1, -2) else None

    def close(self, resets=False):
        self.load.waiting_forget(self)
        if resets:  # RST instead of FIN
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.load.streams.pop(self.socket.fileno())
        self.load.epoll.unregister(self.socket.fileno())
        self.socket.close()

    def writable(self):
        try:
            self.unsent = self.unsent[self.socket.send(self.unsent):]
        except OSError as error:
            raise Failure(f"a {self.kind} client cannot send: {error}") from None
        if not self.unsent:
            self.load.epoll.modify(self.socket.fileno(), select.EPOLLIN)

    def readable(self, now):
        """Reads; returns whether the request is over."""
        if self.kind == SLOW and not self.load.is_ending:
            if now < self.due:
                return False
            self.due = now + SLOW_PAUSE
            self.load.wait_for_due(self)
        try:
            data = self.socket.recv(SLOW_BYTES if self.kind == SLOW else 65536)
        except OSError as error:
            raise Failure(f"a {self.kind} client, after {self.n_event} events: {error}") from None
        if not data:
            raise Failure(f"the stream of a {self.kind} client broke off after {self.n_event} events")
        if self.first is not None and self.kind == QUICK:
            self.load.gaps.append(now - self.last)
        self.last = now
        self.rest += data
        if self.head is None:
            end = self.rest.find(b"\r\n\r\n")
            if end < 0:
                return False
            self.head, self.rest = self.rest[:end], self.rest[end + 4:]
            if b" 200 " not in self.head.split(b"\r\n")[0] + b" ":
                raise Failure(f"a {self.kind} client got {self.head[:80]} {self.rest[:200]}")
        self.dechunk(now)
        if self.leaves is not None and self.n_event >= max(self.leaves, 1):
            return True
        if self.is_done:
            self.check()
        return self.is_done

    def dechunk(self, now):
        while True:
            end = self.rest.find(b"\r\n")
            if end < 0:
                return
            size = int(self.rest[:end], 16)
            if len(self.rest) < end + 2 + size + 2:
                return
            chunk, self.rest = self.rest[end + 2:end + 2 + size], self.rest[end + 4 + size:]
            if size == 0:
                self.is_done = True
                return
            self.lines += chunk
            *events, self.lines = self.lines.split(b"\n\n")
            for event in events:
                if event.startswith(b"data: {"):
                    self.event(json.loads(event[6:]), now)

    def event(self, data, now):
        if "error" in data:
            raise Failure(f"a {self.kind} client got {data['error']}")
        self.n_event += 1
        if self.first is None:
            self.first = now
            if self.kind == QUICK:
                self.load.firsts.append(now - self.sent)
        if data["choices"]:
            self.text += data["choices"][0]["text"]
        if data.get("usage"):
            self.n_used = data["usage"]["completion_tokens"]

    def check(self):
        """The answer is whole, and the one that the server gave before."""
        load = self.load
        expected = load.expected[self.prompt]
        is_equal = self.text.startswith(expected) if self.kind == SLOW else expected.startswith(self.text)
        if self.n_used != self.n or not is_equal or self.rest:
            raise Failure(f"{self.kind} client, {self.prompt!r}: {self.n_used} of {self.n} tokens, "
                          f"{self.text!r}, expected {expected!r}")
        load.n_token += self.n
        if self.kind == QUICK:
            load.wholes.append(self.last - self.sent)


class Load:
    def __init__(self, args):
        self.args = args
        self.random = random.Random(args.seed)
        self.streams, self.epoll = {}, select.epoll()
        self.waiting = []  # slow readers, in the order in which they read next
        self.is_ending = False
        self.firsts, self.gaps, self.wholes, self.memory = [], [], [], []
        self.n_over = {QUICK: 0, SLOW: 0, LEAVING: 0}
        self.n_token = 0
        self.server = client.Server(args.tandem, args.model, "-c", str(args.ctx), "--parallel",
                                    str(args.parallel), "--queue-size", str(args.streams + 16),
                                    "--connections", str(2 * args.streams))  # some are being closed
        body = {"max_tokens": args.tokens, "temperature": 0, "ignore_eos": True}
        self.expected = {prompt: self.server.post("/v1/completions", body, prompt=prompt)[1]["choices"][0]["text"]
                         for prompt in PROMPTS}

    def wait_for_due(self, stream):
        self.epoll.modify(stream.socket.fileno(), 0)
        self.waiting.append(stream)

    def waiting_forget(self, stream):
        if stream in self.waiting:
            self.waiting.remove(stream)

    def due_take(self, now):
        while self.waiting and (self.is_ending or self.waiting[0].due <= now):
            stream = self.waiting.pop(0)
            self.epoll.modify(stream.socket.fileno(), select.EPOLLIN)

    def resident(self):
        with open(f"/proc/{self.server.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2 ** 20

    def over(self, stream, resets=False):
        """The request is over: the next one."""
        self.n_over[stream.kind] += 1
        stream.close(resets)
        if not self.is_ending:
            stream.begin()

    def sweep(self, now):
        """Once in a while: clients that leave in the queue, and stalls."""
        for stream in list(self.streams.values()):
            if stream.leave_at is not None and now > stream.leave_at:
                self.over(stream, resets=self.random.random() < 0.5)
            elif now - stream.last > self.args.stall and stream not in self.waiting:
                raise Failure(f"a {stream.kind} client got nothing for {self.args.stall} s, after "
                              f"{stream.n_event} events")

    def run(self):
        args = self.args
        kinds = [SLOW] * args.slow + [LEAVING] * args.leaving
        kinds += [QUICK] * (args.streams - len(kinds))
        self.random.shuffle(kinds)
        for kind in kinds:
            Stream(self, kind)
        start = time.monotonic()
        end, sampled, reported = start + args.seconds, start, start
        while self.streams:
            events = self.epoll.poll(0.05)
            now = time.monotonic()
            if now > end and not self.is_ending:
                self.is_ending = True
            self.due_take(now)
            for fd, mask in events:
                stream = self.streams.get(fd)
                if stream is None or mask == 0:
                    continue
                if mask & select.EPOLLOUT:
                    stream.writable()
                elif stream.readable(now):
                    self.over(stream)
            if now - sampled > min(1.0, args.seconds / 40):
                sampled = now
                self.sweep(now)
                self.memory.append(self.resident())
                if self.memory[-1] > args.memory:
                    raise Failure(f"the server takes {self.memory[-1]:.0f} MiB, more than {args.memory}")
            if now - reported > 30:
                reported = now
                print(f"{now - start:.0f} s: {self.n_over}, {self.memory[-1]:.1f} MiB", flush=True)
        return time.monotonic() - start

    def idle_check(self):
        """Nothing is left: not in the engine, not in the HTTP server."""
        for name in ("requests_running", "requests_queued", "requests_paused"):
            client.wait_for(name + " is 0", lambda name=name: self.server.metric("tandem_" + name) == 0)
        client.wait_for("one connection is open", lambda: self.server.metric("tandem_connections") == 1)
        text = self.server.request("GET", "/metrics")[2].decode()
        ended = sum(float(line.split()[-1]) for line in text.splitlines()
                    if line.startswith("tandem_requests_ended_total{"))
        submitted, failed, refused = (self.server.metric(f"tandem_requests_{name}_total")
                                      for name in ("submitted", "failed", "refused"))
        if failed or refused or submitted != ended:
            raise Failure(f"{submitted} requests were taken, {refused} refused, {ended} ended, {failed} failed")
        return text

    def end_check(self):
        """Streams that are at work when the signal comes are finished; then the server ends."""
        body = {"prompt": PROMPTS[0], "max_tokens": 80, "ignore_eos": True, "stream": True}
        sockets = [self.server.open("/v1/completions", body) for _ in range(4)]
        for one in sockets:
            one.settimeout(self.args.stall)
        got = [one.recv(65536) for one in sockets]
        self.server.process.terminate()
        for i, one in enumerate(sockets):
            while data := one.recv(65536):
                got[i] += data
            if not got[i].endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
                raise Failure(f"a stream broke off at the end: {got[i][-200:]}")
        self.server.process.wait(self.args.stall)  # a second signal would end it at once
        status = self.server.stop()
        if status != 0:
            raise Failure(f"the server ended with status {status}: {self.server.errors[-2000:]}")


def percentiles(what, values, unit=1000.0):
    values = sorted(values)
    at = [values[min(len(values) - 1, int(part * len(values)))] * unit for part in (0.5, 0.9, 0.99)]
    print(f"{what}: half within {at[0]:.0f} ms, 90 % {at[1]:.0f}, 99 % {at[2]:.0f}, "
          f"longest {values[-1] * unit:.0f} ms ({len(values)})")


def main():
    parser = argparse.ArgumentParser(description="Many streams at a time against one server.")
    parser.add_argument("tandem")
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--slow", type=int, help="of them, readers that are slow (a tenth)")
    parser.add_argument("--tokens", type=int, default=48, help="of an answer at most")
    parser.add_argument("--slow-tokens", type=int, default=600,
                        help="of their answers; with probabilities, more bytes than the sockets hold")
    parser.add_argument("--leaving", type=int, help="of them, clients that leave (a tenth)")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--parallel", type=int, default=32)
    parser.add_argument("--ctx", type=int, default=16384)
    parser.add_argument("--stall", type=float, default=120, help="seconds without bytes that are a stall")
    parser.add_argument("--memory", type=float, default=512, help="MiB that the server may take")
    parser.add_argument("--steady", type=float, default=60,
                        help="seconds from which on memory must not grow")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.slow = args.streams // 10 if args.slow is None else args.slow
    args.leaving = args.streams // 10 if args.leaving is None else args.leaving
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, args.streams + 64), hard), hard))
    load = Load(args)
    try:
        seconds = load.run()
        text = load.idle_check()
        percentiles("first token", load.firsts)
        percentiles("between two reads", load.gaps)
        percentiles("whole answer", load.wholes)
        rest = load.memory[len(load.memory) // 2:]  # until then the cache fills
        n = max(1, len(rest) // 4)
        before, after = sorted(rest[:n])[n // 2], sorted(rest[-n:])[n // 2]
        print(f"{args.streams} clients, {args.slow} slow, {args.leaving} leaving, {seconds:.0f} s: "
              f"{load.n_over} requests, {load.n_token / seconds:.0f} tokens/s; resident {before:.1f} MiB, "
              f"later {after:.1f}, at most {max(load.memory):.1f}")
        for line in text.splitlines():
            if line.startswith(("tandem_requests_ended", "tandem_preemptions", "tandem_evictions")):
                print(line)
        # what the allocator keeps varies a little
        if args.seconds >= args.steady and after > before * 1.05 + 4:
            raise Failure(f"resident memory grew from {before:.1f} to {after:.1f} MiB")
        load.end_check()
    except Failure as failure:
        raise SystemExit(f"load.py --seed {args.seed}: {failure}") from None
    finally:
        load.server.stop(kills=True)


main()
