#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""serve.py: times several requests at a time over HTTP: tokens a second of many streams beside those of one,
for `tandem serve` and, in the same run, for llama-server.

    bench/serve.py --model MODEL.gguf [--build build-test] [--peer LLAMA_SERVER] [--streams 16]
                   [--tokens 64] [--runs 3] [--threads N] [--ids 2000]
                   [--processor-time] [--option KEY=VALUE ...]

Each run starts one server after the other, ours first, and requests one stream, then all streams at a time. Each
prompt is 16 random ids of its own, so that no server reuses a prefix; answers have a fixed length and are greedy. The
speed is that of generation: from the first token of any stream to the last token of all. --processor-time counts the
processor time of all threads of the server instead of wall time, so that other work on the machine counts less; use it
with --threads 1, because threads that spin while they wait for others count, too. --option gives Tandem an option of
its configuration (activation-bits=8). Medians and ratios are printed last."""
import argparse
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import threading
import time

N_PROMPT, N_CTX = 16, 512  # tokens of a prompt; of a stream's context


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    """A server with llama-server's /completion and /health."""

    def __init__(self, name, command, port, takes_processor_time=False):
        self.name, self.port = name, port
        self.clock = self.processor_time if takes_processor_time else time.monotonic
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.errors = b""
        self.reader = threading.Thread(target=self.drain)
        self.reader.start()
        end = time.monotonic() + 300
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise SystemExit(f"{name} does not serve (status {self.process.returncode}): "
                                 f"{self.errors.decode(errors='replace')[-2000:]}")
            time.sleep(0.1)

    def processor_time(self):
        """Processor time of the process in seconds (proc(5): utime and stime)."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def drain(self):
        while data := os.read(self.process.stderr.fileno(), 65536):
            self.errors = (self.errors + data)[-65536:]

    def is_ready(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join()

    def stream(self, prompt, n, times):
        """Appends the times of the first and the last token to `times`, if the answer is whole: n tokens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("POST", "/completion", json.dumps({
            "prompt": prompt, "n_predict": n, "temperature": 0, "ignore_eos": True, "stream": True,
            "cache_prompt": False}), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        first = last = None
        n_got = 0
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            data = json.loads(line[6:])
            last = self.clock()
            first = last if first is None else first
            if data.get("stop"):
                n_got = data["tokens_predicted"]
        connection.close()
        if reply.status == 200 and n_got == n:
            times.append((first, last))

    def speed(self, prompts, n):
        """Tokens a second of all streams together; the first token of each is not counted."""
        times = []
        threads = [threading.Thread(target=self.stream, args=(prompt, n, times)) for prompt in prompts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(times) != len(prompts):
            raise SystemExit(f"{self.name}: {len(times)} of {len(prompts)} answers are whole")
        seconds = max(last for _, last in times) - min(first for first, _ in times)
        return len(prompts) * (n - 1) / seconds


def commands(args):
    """Name and command of each server; {port} stands for its port."""
    threads = ["--threads", str(args.threads)]
    ours = [os.path.join(args.build, "runner", "tandem"), "serve", "-m", args.model, "--port", "{port}",
            "--parallel", str(args.streams), "-c", str(args.streams * N_CTX), *threads]
    for option in args.option:
        key, _, value = option.partition("=")
        ours += ["--" + key, value]
    found = [("tandem", ours)]
    if args.peer:
        found.append(("llama-server", [args.peer, "-m", args.model, "--port", "{port}", "-np", str(args.streams),
                                       "-c", str(args.streams * N_CTX), *threads]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--build", default="build-test")
    parser.add_argument("--peer", help="llama-server")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ids", type=int, default=2000, help="ids of the prompts are below it")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--option", action="append", default=[])
    args = parser.parse_args()
    os.environ.setdefault("TANDEM_PLUGIN_PATH", os.path.join(os.path.abspath(args.build), "plugins", "cpu"))
    ids = random.Random(1)
    speeds = {}
    for run in range(args.runs):
        for name, command in commands(args):
            port = free_port()
            server = Server(name, [part.replace("{port}", str(port)) for part in command], port,
                            args.processor_time)
            try:
                prompts = [[ids.randrange(300, args.ids) for _ in range(N_PROMPT)]
                           for _ in range(args.streams + 2)]
                server.speed(prompts[:1], 8)  # plans are made, weights are read
                one = server.speed(prompts[1:2], args.tokens)
                many = server.speed(prompts[2:], args.tokens)
            finally:
                server.stop()
            speeds.setdefault(name, []).append((one, many))
            print(f"run {run + 1}, {name}: 1 stream {one:.1f} tokens/s, {args.streams} streams {many:.1f}, "
                  f"ratio {many / one:.2f}", flush=True)
    print(f"\n| | 1 stream, tokens/s | {args.streams} streams | ratio |\n|---|---|---|---|")
    median = {name: [statistics.median(values) for values in zip(*runs)] for name, runs in speeds.items()}
    for name, (one, many) in median.items():
        print(f"| {name} | {one:.1f} | {many:.1f} | {many / one:.2f} |")
    if args.peer:
        ratios = [ours / peer for ours, peer in zip(median["tandem"], median["llama-server"])]
        print(f"| tandem / llama-server | {ratios[0]:.2f} | {ratios[1]:.2f} | |")


main()
