"""Questions to an engine: sent as text to `python3 -` beside it. Standard library only.

It reads questions from its input, one JSON line each, and prints one JSON line for each answer. The
end of its input ends it at once. Redirects are not followed and no proxy is used, so that a key
goes nowhere but to the address asked. Python 3.7 or newer.
"""

from __future__ import annotations

import http.client
import json
import os
import queue
import socket
import ssl
import sys
import threading
import time
from typing import Any
from urllib.parse import urlsplit

_MOST_BYTES = 1 << 20


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Return what one request gave: its status and body, or the kind of its failure."""
    told: dict[str, Any] = {"answer": asked["ask"], "status": 0, "server": "", "body": ""}
    connection = None
    try:
        connection = connect(asked)
        body = asked.get("body")
        connection.request(
            "GET" if body is None else "POST",
            asked["path"],
            None if body is None else json.dumps(body).encode(),
            asked.get("headers") or {},
        )
        got = connection.getresponse()
        told["status"] = got.status
        told["server"] = got.getheader("Server") or ""
        told["body"] = _read(got, time.monotonic() + asked["seconds"])
    except (OSError, http.client.HTTPException, ValueError) as error:
        told.update(kind=_kind(error), said=str(error)[:300])
    finally:
        if connection is not None:
            connection.close()
    return told


def _kind(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "tls"
    if isinstance(error, socket.timeout):
        return "stalled"
    if isinstance(error, (ConnectionRefusedError, socket.gaierror)):
        return "unreachable"
    return "broken"


def _read(got: http.client.HTTPResponse, end: float) -> str:
    parts, size = [], 0
    while size < _MOST_BYTES and time.monotonic() < end:
        part = got.read1(65536)
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)[:_MOST_BYTES].decode("utf-8", "replace")


def connect(asked: dict[str, Any]) -> http.client.HTTPConnection:
    """Return a connection, not opened. Raises ValueError for an address that cannot be read."""
    where, seconds = urlsplit(asked["url"]), asked["seconds"]
    if where.scheme != "https":
        return http.client.HTTPConnection(where.netloc, timeout=seconds)
    context = ssl.create_default_context()
    if asked.get("unverified"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(where.netloc, timeout=seconds, context=context)


def emit(row: dict[str, Any]) -> None:
    """Print one line; where nobody reads it any more, end."""
    try:
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
    except OSError:
        os._exit(1)


def _listen(questions: queue.Queue[dict[str, Any]]) -> None:
    try:
        for line in sys.stdin:
            questions.put(json.loads(line))
    finally:
        os._exit(0)


if __name__ == "__main__":
    QUESTIONS: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(QUESTIONS,), daemon=True).start()
    emit({"ready": sys.version.split()[0]})
    while True:
        emit(answer(QUESTIONS.get()))
