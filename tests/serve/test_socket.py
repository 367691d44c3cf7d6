#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_socket.py TANDEM MODEL: `tandem serve` over TLS and over IPv6."""
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import warnings

import client
from client import check

tandem, model = sys.argv[1:]
warnings.simplefilter("ignore", DeprecationWarning)  # of old versions of TLS, which are refused
ONCE = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}


def certificate_make(folder, name):
    """A self-signed certificate for this machine's own addresses, and its key."""
    cert, key = os.path.join(folder, name + ".pem"), os.path.join(folder, name + ".key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                    "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    return cert, key


def refused(server, context):
    """Why a client with this context gets no connection."""
    server.tls = context
    try:
        server.get("/health")
    except ssl.SSLError as error:
        return error.reason
    return None


def tls(folder):
    cert, key = certificate_make(folder, "own")
    other, other_key = certificate_make(folder, "other")
    trusting = ssl.create_default_context(cafile=cert)
    server = client.Server(tandem, model, "--ssl-cert-file", cert, "--ssl-key-file", key, tls=trusting)
    try:
        check(server.url.startswith("https://127.0.0.1:"), server.url)
        check(server.get("/health") == (200, {"status": "ok"}))
        expected = client.run_text(tandem, model, ONCE["prompt"], 8)
        check(server.post("/v1/completions", ONCE)[1]["choices"][0]["text"] == expected)
        events = server.stream("/v1/completions", ONCE)
        check("".join(e[1]["choices"][0]["text"] for e in events[:-1]) == expected, events)
        # a body that takes several records of TLS
        status, reply = server.post("/tokenize", {"content": "x y " * 20000})
        check(status == 200 and len(reply["tokens"]) >= 20000, status)
        with socket.create_connection((server.host, server.port)) as plain:
            with trusting.wrap_socket(plain, server_hostname="localhost") as connection:
                check(connection.version() in ("TLSv1.2", "TLSv1.3"), connection.version())
                check(connection.getpeercert()["subject"] == ((("commonName", "localhost"),),))
        # a client that trusts another certificate
        check(refused(server, ssl.create_default_context(cafile=other)) == "CERTIFICATE_VERIFY_FAILED")
        # TLS 1.1, which a client can offer only at the lowest level of security
        old = ssl.create_default_context(cafile=cert)
        old.set_ciphers("DEFAULT:@SECLEVEL=0")
        old.minimum_version = ssl.TLSVersion.TLSv1
        check(refused(server, old) is None)
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        reason = refused(server, old)
        check(reason is not None and "ALERT_PROTOCOL_VERSION" in reason, reason)
        # no TLS at all
        server.tls = trusting
        check(b"200" not in server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 1))
        check(server.get("/health")[0] == 200)
        # a client that leaves in a stream over TLS ends its request
        body = json.dumps({**ONCE, "max_tokens": 4000, "ignore_eos": True, "stream": True}).encode()

        def leave():
            with socket.create_connection((server.host, server.port)) as plain:
                with trusting.wrap_socket(plain, server_hostname="localhost") as connection:
                    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                                       b"Content-Length: %d\r\n\r\n" % len(body) + body)
                    check(connection.recv(4096).startswith(b"HTTP/1.1 200"))

        check(server.cancelled(1, leave), "no request is cancelled")
        check(server.stop() == 0, server.errors)
    finally:
        server.stop(kills=True)
    for args, word in [(["--ssl-cert-file", cert], "ssl-key-file"),
                       (["--ssl-cert-file", cert, "--ssl-key-file", other_key], "own.pem"),
                       (["--ssl-cert-file", folder + "/none.pem", "--ssl-key-file", key], "none.pem"),
                       (["--ssl-cert-file", key, "--ssl-key-file", key], "has no certificate"),
                       (["--ssl-cert-file", cert, "--ssl-key-file", cert], "has no private key")]:
        out = subprocess.run([tandem, "serve", "-m", model, "--port", "0", *args], capture_output=True,
                             text=True, timeout=60)
        check(out.returncode != 0 and word in out.stderr and out.stdout == "", args, out)


def ipv6():
    server = client.Server(tandem, model, "--host", "::1")
    try:
        check(server.url.startswith("http://[::1]:") and server.host == "::1", server.url)
        check(server.get("/health") == (200, {"status": "ok"}))
        expected = client.run_text(tandem, model, ONCE["prompt"], 8)
        events = server.stream("/v1/completions", ONCE)
        check("".join(e[1]["choices"][0]["text"] for e in events[:-1]) == expected, events)
        # what HTTP's client of Python sends as Host, and other names
        for host, status in [("[::1]:%d" % server.port, 200), ("[::1]", 200), ("localhost", 200),
                             ("[::2]", 403), ("[::1].evil.example", 403), ("evil.example", 403)]:
            got = server.request("GET", "/health", None, {"Host": host})[0]
            check(got == status, host, got)
        # the address of this family alone is served
        with socket.socket() as other:
            check(other.connect_ex(("127.0.0.1", server.port)) != 0, "IPv4 is served, too")
        check(server.stop() == 0, server.errors)
    finally:
        server.stop(kills=True)


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
        return True
    except OSError:
        return False


def main():
    start = time.monotonic()
    if shutil.which("openssl"):
        with tempfile.TemporaryDirectory() as folder:
            tls(folder)
        print(f"passed tls, {time.monotonic() - start:.1f} s")
    else:
        print("SKIPPED: TLS: no program openssl, which makes the certificate")
    if has_ipv6():
        ipv6()
        print(f"passed ipv6, {time.monotonic() - start:.1f} s")
    else:
        print("SKIPPED: IPv6: this machine has no address ::1")


main()
