"""The benchmark's client: sent as text to `python3 -` beside the engine. Standard library only.

It reads jobs, one JSON line each, and prints a JSON line for each request as it ends, four times a
second how many pieces came so far, and one at the end of a job. The end of its input ends it at
once. Nothing but reading and a time stamp happens while a stream flows: it is parsed when its
request is over. Python 3.7 or newer.
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

_LIVE_SECONDS = 0.25
_MOST_SAID, _MOST_TEXT, _MOST_TIMES = 400, 4000, 20000
# A stream's bytes, and what keeping each piece of it costs.
_MOST_BYTES, _PIECE_BYTES = 4 << 20, 160
_AT_ONCE = (socket.IPPROTO_TCP, getattr(socket, "TCP_QUICKACK", socket.TCP_NODELAY), 1)
_print_lock = threading.Lock()


def emit(row: dict[str, Any]) -> None:
    """Print one line; where nobody reads it any more, end."""
    with _print_lock:
        try:
            print(json.dumps(row), flush=True)
        except OSError:
            os._exit(1)


class Failed(Exception):
    """A request that failed: a kind, an HTTP status (0 without one), and what was said."""

    def __init__(self, kind: str, status: int = 0, said: str = "") -> None:
        super().__init__(kind)
        self.row = {"kind": kind, "status": status, "said": said[:_MOST_SAID]}


class Stream:
    """One connection that is kept open, and the pieces that its request has read so far."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.pieces: list[tuple[float, bytes]] = []
        self.done = 0
        self._used = False
        self._connection: http.client.HTTPConnection | None = None

    def request(self, number: int) -> dict[str, Any]:
        """Return the row of one request; times are seconds since the job began."""
        row: dict[str, Any] = {"request": number}
        try:
            row["began"] = round(self._send(number), 6)
            self._read()
        except Failed as failed:
            row["error"] = failed.row
            self.drop()
        except (OSError, http.client.HTTPException) as error:
            row["error"] = Failed(_kind(error), 0, str(error)).row
            self.drop()
        read = told(self.pieces)
        self.done, self.pieces = self.done + len(self.pieces), []
        if read.pop("done") or read.get("error", {}).get("kind") == "event":
            row.pop("error", None)  # it had said all, or what went wrong, before the line broke
        return {**read, **row}

    def _send(self, number: int) -> float:
        body = json.dumps(self.job["bodies"][number]).encode()
        try:
            began = self._sent(body)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            if not self._used:
                raise
            self.drop()  # the server closed a kept connection: once more on a new one
            began = self._sent(body)
        self._used = True
        if self._answer.status != 200:
            said = self._answer.read1(4096).decode("utf-8", "replace")
            raise Failed("http", self._answer.status, said)
        return began

    def _sent(self, body: bytes) -> float:
        connection = self.open()
        began = time.perf_counter() - START
        self._set = connection.sock.setsockopt
        connection.request("POST", self.job["path"], body, self.job["headers"])
        self._answer = connection.getresponse()
        return began

    def _read(self) -> None:
        read, clock, pieces = self._answer.read1, time.perf_counter, self.pieces
        end, size = clock() + self.job["request_seconds"], 0
        while True:
            # At once: a server without TCP_NODELAY holds its tokens back until then.
            self._set(*_AT_ONCE)
            raw = read(65536)
            now = clock()
            if not raw:
                return
            pieces.append((now - START, raw))
            size += len(raw) + _PIECE_BYTES
            if now > end or size > _MOST_BYTES:
                raise Failed("slow" if now > end else "endless")

    def open(self) -> http.client.HTTPConnection:
        """Return the connection, made where there is none. Raises OSError."""
        if self._connection is None:
            where = urlsplit(self.job["url"])
            seconds = self.job["stall_seconds"]
            made = http.client.HTTPConnection(where.netloc, timeout=seconds)
            if where.scheme == "https":
                context = ssl.create_default_context()
                if self.job.get("unverified"):
                    context.check_hostname = False
                    context.verify_mode = ssl.CERT_NONE
                made = http.client.HTTPSConnection(where.netloc, timeout=seconds, context=context)
            self._connection = made
        if self._connection.sock is None:  # none yet, or closed with the last answer
            self._used = False
            self._connection.connect()
        return self._connection

    def drop(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def _kind(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "tls"
    if isinstance(error, socket.timeout):
        return "stalled"
    if isinstance(error, (ConnectionRefusedError, socket.gaierror)):
        return "unreachable"
    return "broken"


def told(pieces: list[tuple[float, bytes]]) -> dict[str, Any]:
    """Return what a stream's pieces tell: when text came, how many tokens, how it ended."""
    row: dict[str, Any] = {"times": [], "tokens": None, "finish": "", "done": False}
    text: list[str] = []
    found = events(pieces)
    for at, event in found:
        if event == b"[DONE]":
            row["done"] = True
            continue
        try:
            value = json.loads(event)
        except (ValueError, RecursionError):
            row["error"] = Failed("malformed", 0, repr(event[:80])).row
            continue
        said, finish = _of_event(value, row)
        if said or finish:
            if said:
                row["times"].append(round(at, 6))
                text.append(said)
            row["last"] = round(at, 6)
        row["finish"] = finish or row["finish"]
    row["text"] = "".join(text)[:_MOST_TEXT]
    del row["times"][_MOST_TIMES:]
    if "error" not in row and not row["done"] and not row["finish"]:
        raw = b"".join(piece for _, piece in pieces[:4]).decode("utf-8", "replace")
        row["error"] = (Failed("cut") if found else Failed("no-stream", 0, raw)).row
    return row


def _of_event(value: Any, row: dict[str, Any]) -> tuple[str, str]:
    """Return the text and the finish reason of one event; note usage, timings and errors."""
    if not isinstance(value, dict):
        return "", ""
    if value.get("error") or value.get("object") == "error":
        row["error"] = Failed("event", 0, str(value.get("error") or value.get("message"))).row
        return "", ""
    choices = value.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    choice = choice if isinstance(choice, dict) else {}
    said, finish = _text(choice), choice.get("finish_reason")
    if not (said or finish or row["times"]) and "" in _texts(choice):
        row["first_tokens"] = row.get("first_tokens", 1) + 1  # a token without text, before any
    usage = value.get("usage")
    if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
        row["tokens"], row["prompt_tokens"] = usage["completion_tokens"], usage.get("prompt_tokens")
        details = usage.get("prompt_tokens_details")
        row["cached"] = details.get("cached_tokens") if isinstance(details, dict) else None
        # A running count beside the first text: how many tokens that event brought.
        if said and not finish and not row["times"]:
            row["first_tokens"] = usage["completion_tokens"]
    timings = value.get("timings")
    if isinstance(timings, dict):
        row["server_ms"] = timings.get("predicted_per_token_ms")
    return said, finish if isinstance(finish, str) else ""


def _text(choice: dict[str, Any]) -> str:
    """Return what an event says: text, or a chat's content, reasoning or arguments."""
    return "".join(one for one in _texts(choice) if isinstance(one, str))


def _texts(choice: dict[str, Any]) -> list[Any]:
    if isinstance(choice.get("text"), str):
        return [choice["text"]]
    delta = choice.get("delta")
    if not isinstance(delta, dict) or "role" in delta and not delta.get("content"):
        delta = {}
    said = [delta.get(name) for name in ("content", "reasoning_content", "reasoning")]
    for call in delta.get("tool_calls") or []:
        if isinstance(call, dict) and isinstance(call.get("function"), dict):
            said.append(call["function"].get("arguments"))
    return said


def events(pieces: list[tuple[float, bytes]]) -> list[tuple[float, bytes]]:
    """Return the data of each server-sent event, with the time at which its end was read."""
    found: list[tuple[float, bytes]] = []
    data: list[bytes] = []
    rest = b""
    for at, piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            line = line.rstrip(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].strip())
            elif line.startswith(b"error:"):  # older llama.cpp
                data.append(b'{"error":' + line[6:] + b"}")
            elif not line and data:
                found.append((at, b"\n".join(data)))
                data = []
    data += [rest[5:].strip()] if rest.startswith(b"data:") else []
    if data:  # a last event without its empty line
        found.append((pieces[-1][0], b"\n".join(data)))
    return found


def _work(stream: Stream, numbers: range) -> None:
    for number in numbers:
        row = stream.request(number)
        emit(row)
        if "error" in row:  # what failed once mostly fails again: the sender decides
            return


def main(job: dict[str, Any]) -> None:
    """Run a job: `streams` requests at a time, each stream its share in order."""
    global START
    START = time.perf_counter()
    began = time.process_time()
    count = len(job["bodies"])
    streams = [Stream(job) for _ in range(min(job["streams"], count))]
    try:
        for stream in streams:
            stream.open()
    except OSError as error:
        emit({"request": 0, "error": Failed(_kind(error), 0, str(error)).row})
        return emit({"end": job["job"], "cpu": 0.0, "wall": 0.0})
    shares = [(one, range(at, count, len(streams))) for at, one in enumerate(streams)]
    threads = [threading.Thread(target=_work, args=share, daemon=True) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_LIVE_SECONDS)
            live = sum(one.done + len(one.pieces) for one in streams)
            emit({"at": round(time.perf_counter() - START, 3), "pieces": live})
    for stream in streams:
        stream.drop()
    cpu, wall = time.process_time() - began, time.perf_counter() - START
    emit({"end": job["job"], "cpu": round(cpu, 4), "wall": round(wall, 4)})


def _jobs(jobs: queue.Queue[dict[str, Any]]) -> None:
    try:
        for line in sys.stdin:
            jobs.put(json.loads(line))
    finally:
        os._exit(0)  # what still streams is cut off with us


START = time.perf_counter()
if __name__ == "__main__":
    JOBS: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_jobs, args=(JOBS,), daemon=True).start()
    sys.setswitchinterval(0.0002)  # one stream's parsing holds no other's time stamps back
    emit({"ready": sys.version.split()[0]})
    while True:
        main(JOBS.get())
