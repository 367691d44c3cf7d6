#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_drafts.py TANDEM MODEL MAKE_VARIANT MAKE_MTP: `tandem serve` with drafts of a model (--model-draft) and of a
layer (--draft mtp), and with n-grams (--draft ngram). Every reply equals that of a server without drafts: greedy, with
seeds, grammars, schemas, probabilities, biases and stop strings, streamed, several at a time, after a client has left,
in a full context. The numbers of drafts in `timings` and /metrics show that there were some."""
import os
import subprocess
import sys
import tempfile
import threading

import client
from client import check

tandem, model, make_variant, make_mtp = sys.argv[1:]
SMALL = os.environ.get("TANDEM_SANITIZED") == "yes"
N = 24 if SMALL else 60
PROMPTS = ["Once upon a time", "The little dog ran to the", "Tom and Lily were in the garden. They saw a big"]
SCHEMA = {"type": "object", "required": ["name", "age"], "additionalProperties": False,
          "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}}}
CASES = {
    "greedy": {"temperature": 0},
    "greedy, on and on": {"temperature": 0, "ignore_eos": True, "n_predict": N},
    "seed": {"temperature": 0.8, "seed": 5},
    "all samplers": {"temperature": 1.1, "seed": 6, "repeat_penalty": 1.3, "top_k": 30, "typical_p": 0.9,
                     "dry_multiplier": 0.6, "xtc_probability": 0.4, "xtc_threshold": 0.05},
    "mirostat": {"temperature": 1, "seed": 7, "mirostat": 2},
    "adaptive": {"temperature": 1, "seed": 8, "samplers": ["top_k", "temperature", "adaptive_p"],
                 "adaptive_target": 0.3},
    "grammar": {"temperature": 0.9, "seed": 8, "grammar": 'root ::= ("yes" | "no" | " so")+ "."'},
    "schema": {"temperature": 0.9, "seed": 9, "json_schema": SCHEMA, "n_predict": 80},
    "probabilities": {"temperature": 0.5, "seed": 10, "n_probs": 3},
    "bias": {"temperature": 0, "logit_bias": [["the", -3], [".", False]]},
    "stop": {"temperature": 0, "stop": ["girl", "was", "and"]},
    "answers": {"temperature": 0.9, "seed": 11, "n": 3},
}


def complete(server, prompt, fields):
    status, reply = server.post("/completion", {"prompt": prompt, "n_predict": N, "return_tokens": True, **fields})
    check(status == 200, reply)
    return reply


def told(reply):
    """What must not depend on drafts, of one answer or several."""
    if isinstance(reply, list):
        return [told(one) for one in reply]
    return {name: reply.get(name) for name in ("content", "tokens", "stop_type", "stopping_word", "tokens_predicted",
                                               "completion_probabilities")}


def drafts(reply):
    """Drafted and accepted tokens of one answer or several."""
    if isinstance(reply, list):
        return tuple(map(sum, zip(*map(drafts, reply))))
    timings = reply["timings"]
    return timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)


def at_a_time(server, bodies):
    """Replies to requests that are sent together."""
    replies = [None] * len(bodies)

    def one(i):
        replies[i] = complete(server, *bodies[i])
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return replies


def replies_check(plain, server, least, names=tuple(CASES)):
    """Compares the replies of both servers in the cases of these names. Returns two dicts by name: (drafted, accepted)
    tokens of all replies, and of the first reply alone. That request has no others in its steps, whose number decides
    how its logits are rounded, so its numbers of drafts are always the same."""
    counts, alone = {}, {}
    for name in names:
        fields = CASES[name]
        expected = [complete(plain, prompt, fields) for prompt in PROMPTS]
        for replies in ([complete(server, PROMPTS[0], fields)],
                        at_a_time(server, [(prompt, fields) for prompt in PROMPTS])):
            check(told(replies) == told(expected[:len(replies)]), name, replies, expected)
            counts[name] = tuple(map(sum, zip(counts.get(name, (0, 0)), drafts(replies))))
            alone.setdefault(name, counts[name])
        check(drafts(expected) == (0, 0) and "draft_n" not in str(expected), name, expected)
    print(counts, "alone:", alone)
    n_draft, n_accepted = counts["greedy, on and on"]
    check(n_draft > 0 and n_accepted >= n_draft * least, counts)
    check(all(n_draft >= n_accepted >= 0 for n_draft, n_accepted in counts.values()), counts)
    return counts, alone


def metrics_check(server):
    before = [server.metric("tandem_drafted_tokens_total"), server.metric("tandem_drafted_tokens_accepted_total")]
    steps = server.metric("tandem_steps_total")
    reply = complete(server, "A new beginning", {"temperature": 0, "ignore_eos": True})
    n_draft, n_accepted = drafts(reply)
    check(server.metric("tandem_drafted_tokens_total") - before[0] == n_draft, reply["timings"])
    check(server.metric("tandem_drafted_tokens_accepted_total") - before[1] == n_accepted, reply["timings"])
    return n_accepted, server.metric("tandem_steps_total") - steps


def fields_check(server):
    """The draft is the model itself here: every proposal is accepted."""
    body = {"temperature": 0, "ignore_eos": True, "n_predict": 31}
    expected = None
    for fields, least, most in (({}, 24, 30), ({"speculative.n_max": 2}, 18, 21), ({"speculative.n_max": 0}, 0, 0),
                                ({"speculative.n_max": 999}, 24, 30), ({"speculative.n_max": None}, 24, 30),
                                ({"speculative.n_min": 5, "speculative.n_max": 4}, 0, 0),
                                ({"speculative.p_min": 1}, 0, 4), ({"speculative.p_min": 0.0001}, 24, 30)):
        reply = complete(server, PROMPTS[0], {**body, **fields})
        expected = expected or told(reply)
        check(told(reply) == expected, fields)
        check(least <= drafts(reply)[0] <= most, fields, reply["timings"])
    for path, more in (("/completion", {"prompt": "x"}), ("/v1/completions", {"prompt": "x"}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})):
        for name, value in (("n_max", -1), ("n_max", "4"), ("n_max", 2.5), ("n_min", -1), ("n_min", []),
                            ("p_min", -0.1), ("p_min", 1.1), ("p_min", "a"), ("p_min", True)):
            status, reply = server.post(path, {**more, f"speculative.{name}": value})
            if path == "/v1/chat/completions" and status == 400 and "template" in reply["error"]["message"]:
                continue  # the model has no template
            check(status == 400 and f"speculative.{name}" in reply["error"]["message"], name, value, status, reply)


def streams_check(plain, server):
    body = {"prompt": PROMPTS[1], "max_tokens": N, "temperature": 0, "logprobs": 2,
            "stream_options": {"include_usage": True}}

    def pieces(one):
        events = [data for _, data in one.stream("/v1/completions", body) if data != "[DONE]"]
        return [choice for event in events for choice in event["choices"]], events[-1]
    expected, _ = pieces(plain)
    found, last = pieces(server)
    check("".join(one["text"] for one in found) == "".join(one["text"] for one in expected), found)

    def tops(choices):
        return [top for one in choices if one.get("logprobs") for top in one["logprobs"].get("content", [])]
    check(tops(found) == tops(expected), found, expected)
    check(last["timings"]["draft_n"] > 0, last)


def leaving_check(server):
    """A client that leaves while its tokens are drafted, and others that go on."""
    expected = told(complete(server, PROMPTS[2], {"temperature": 0}))
    sockets = [server.open("/completion", {"prompt": PROMPTS[i % 2], "n_predict": 200, "ignore_eos": True,
                                           "stream": True}) for i in range(4)]
    for one in sockets:
        one.recv(1)
    for one in sockets[:3]:
        one.close()
    check(told(complete(server, PROMPTS[2], {"temperature": 0})) == expected)
    sockets[3].close()
    client.wait_for("requests have ended", lambda: server.metric("tandem_requests_running") == 0)
    check(told(complete(server, PROMPTS[2], {"temperature": 0})) == expected)


def full_check(draft):
    """A context that the answer fills, and more requests than it holds."""
    plain = client.Server(tandem, model, "-c", "64", "-t", "1")
    server = client.Server(tandem, model, "-c", "64", "-t", "1", "-md", draft, "--draft-max", "5", "-np", "3")
    fields = {"temperature": 0, "ignore_eos": True, "n_predict": -1}
    expected = [complete(plain, prompt, fields) for prompt in PROMPTS]
    for replies in ([complete(server, prompt, fields) for prompt in PROMPTS],
                    at_a_time(server, [(prompt, fields) for prompt in PROMPTS * 2])):
        check(told(replies) == told(expected * (len(replies) // 3)), replies)
        check(drafts(replies)[1] > 0, replies)
    check(all(reply["stop_type"] == "limit" for reply in expected), expected)
    check(server.stop() == 0 and plain.stop() == 0)


def repeats_check(plain, server):
    """An answer that repeats takes half of the steps at most."""
    body = {"temperature": 0.9, "seed": 3, "ignore_eos": True,
            "grammar": 'root ::= ([a-z] ": red, green, blue and yellow; ")+'}
    expected = complete(plain, PROMPTS[0], body)
    steps = server.metric("tandem_steps_total")
    reply = complete(server, PROMPTS[0], body)
    steps = server.metric("tandem_steps_total") - steps
    print("repeats:", drafts(reply), "in", steps, "steps")
    check(told(reply) == told(expected) and steps <= N / 2, reply, steps)


def refused(code, text, *args):
    done = subprocess.run([tandem, "serve", "-m", model, "--port", "0", "--quiet", *args], capture_output=True,
                          text=True, timeout=120)
    check(done.returncode == code and text in done.stderr and done.stderr.count("\n") == 1, done)


def main():
    with tempfile.TemporaryDirectory() as folder:
        coarse, layered = os.path.join(folder, "q4.gguf"), os.path.join(folder, "mtp.gguf")
        subprocess.run([make_variant, model, coarse, "q4_0"], check=True)
        subprocess.run([make_mtp, model, layered, "perfect"], check=True)
        plain = client.Server(tandem, model, "-t", "1")
        for draft, least in ((model, 0.9), (coarse, 0.2)):
            server = client.Server(tandem, model, "-t", "1", "-md", draft, "--draft-max", "6")
            counts, alone = replies_check(plain, server, least)
            if draft == model:
                check(counts["seed"][1] > 0, counts)
                for name in ("grammar", "schema"):  # drafts follow them; the last token of a reply ends it
                    n_draft, n_accepted = alone[name]
                    check(n_draft > 4 and n_accepted + 1 >= n_draft and counts[name][0] > 8, name, counts, alone)
                n_accepted, n_step = metrics_check(server)
                check(n_accepted + n_step >= N and n_step < N / 3, n_accepted, n_step)
                fields_check(server)
                streams_check(plain, server)
                leaving_check(server)
            check(server.stop() == 0, server.errors)
        check(plain.stop() == 0)
        full_check(coarse)
        plain = client.Server(tandem, layered, "-t", "1")
        server = client.Server(tandem, layered, "-t", "1", "--draft", "mtp", "--draft-max", "4", "-ctkd", "q8_0")
        replies_check(plain, server, 0.95, ("greedy", "greedy, on and on", "seed", "grammar", "stop", "answers"))
        check(server.stop() == 0 and plain.stop() == 0)
        plain = client.Server(tandem, model, "-t", "1")
        server = client.Server(tandem, model, "-t", "1", "--draft", "ngram", "--draft-ngram", "1")
        replies_check(plain, server, 0, ("greedy", "greedy, on and on", "seed", "schema", "bias", "stop", "answers"))
        repeats_check(plain, server)
        leaving_check(server)
        check(server.stop() == 0 and plain.stop() == 0)
        refused(2, "from 1 to 64", "--draft-max", "0")
        refused(2, "leave it out or model-draft", "--draft", "mtp", "-md", model)
        refused(2, "neither mtp nor ngram nor a whole number", "--draft", "mpt")
        refused(1, "has no layer that drafts tokens", "--draft", "mtp")


main()
