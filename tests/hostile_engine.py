"""A small engine that streams well, or misbehaves in one named manner."""

import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOKENS = 16


@dataclass
class Hostile:
    """A running engine: `answers` are bodies by GET path, `owner` who owns its model."""

    manner: str
    well: int = 0
    answers: Mapping[str, tuple[int, object]] = field(default_factory=dict)
    refuses: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    url: str = ""
    hostname: str = socket.gethostname()
    keys: list[str] = field(default_factory=list)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    open: int = 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: Hostile
    plain = False

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer what was given for the path."""
        self.engine.keys.append(self.headers.get("Authorization", ""))
        status, body = self.engine.answers.get(self.path, (404, {"detail": "Not Found"}))
        self._say(status, body)

    def do_POST(self) -> None:
        """Stream in the engine's manner; the first `well` requests well."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.engine.asked.append((self.path, body))
        self.engine.keys.append(self.headers.get("Authorization", ""))
        manner = "well" if self.engine.well >= len(self.engine.asked) else self.engine.manner
        if self.path in self.engine.missing:
            return self._say(404, {"detail": "Not Found"})
        if refused := [name for name in self.engine.refuses if name in body]:
            return self._say(400, {"error": f"{refused[0]}: extra fields not permitted"})
        if manner.isdigit():
            said = f"no: {self.headers.get('Authorization')}\n\x1b[31mred"
            return self._say(int(manner), {"error": said})
        if manner == "no-stream":
            return self._say(200, {"choices": [{"message": {"content": "Hello"}}]})
        self.engine.open += 1
        try:
            self._stream(manner, body["max_tokens"])
        finally:
            self.engine.open -= 1

    def _say(self, status: int, body: object) -> None:
        raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _stream(self, manner: str, tokens: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        if manner.startswith("old"):  # the end of the connection is the end of the answer
            self.close_connection = True
            self.send_header("Connection", "close")
        else:
            self.close_connection = manner == "reaps"  # without a word
            self.send_header("Transfer-Encoding", "chunked")
        self.plain = manner.startswith("old")
        self.end_headers()
        with suppress(OSError):
            MANNERS[manner](self, tokens)

    def event(self, data: str) -> None:
        """Send one event as a chunk."""
        self.chunk(f"data: {data}\n\n".encode())

    def chunk(self, raw: bytes) -> None:
        """Send one chunk; an empty one ends the answer."""
        self.wfile.write(raw if self.plain else b"%x\r\n%b\r\n" % (len(raw), raw))

    def token(self, finish: str = "null") -> None:
        """Send one token."""
        self.event(f'{{"choices":[{{"text":" word","finish_reason":{finish}}}]}}')

    def end(self, count: int) -> None:
        """Send the last token's usage, and end."""
        usage = {"prompt_tokens": 9, "completion_tokens": count}
        self.event(json.dumps({"choices": [], "usage": usage}))
        self.event("[DONE]")
        self.chunk(b"")


def _tokens(handler: _Handler, count: int, seconds: float = 0.005) -> None:
    for number in range(count):
        time.sleep(seconds)
        handler.token('"length"' if number == count - 1 else "null")
    handler.end(count)


def _dies(handler: _Handler, tokens: int) -> None:
    for _ in range(5):
        time.sleep(0.005)
        handler.token()
    handler.connection.shutdown(socket.SHUT_RDWR)


def _stalls(handler: _Handler, tokens: int) -> None:
    handler.token()
    _until_gone(handler)


def _until_gone(handler: _Handler) -> None:
    """Wait until the client closes its end."""
    with suppress(OSError):
        handler.connection.recv(1)


def _malformed(handler: _Handler, tokens: int) -> None:
    handler.token()
    handler.event('{"choices": [{"te')
    handler.event("\x00\xff")
    handler.end(1)


def _endless(handler: _Handler, tokens: int) -> None:
    while True:
        handler.token()


def _buffers(handler: _Handler, tokens: int) -> None:
    time.sleep(tokens * 0.01)
    handler.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
    event = b'data: {"choices":[{"text":" word","finish_reason":null}]}\n\n'
    handler.chunk(event * tokens)
    handler.end(tokens)


def _slow(handler: _Handler, tokens: int) -> None:
    while True:
        handler.token()
        time.sleep(0.5)


MANNERS: dict[str, Callable[[_Handler, int], None]] = {
    "well": _tokens,
    "old": _tokens,
    "reaps": _tokens,
    "old and dies": _dies,
    "ignores": lambda handler, tokens: _tokens(handler, 9),
    "dies": _dies,
    "stalls": _stalls,
    "minute": _stalls,
    "malformed": _malformed,
    "endless": _endless,
    "buffers": _buffers,
    "slow": _slow,
    "forever": _slow,
}


@contextmanager
def hostile_engine(
    manner: str, well: int = 0, tls: Path | None = None, port: int = 0, **given: Any
) -> Iterator[Hostile]:
    """Serve on a free port of loopback, with a certificate of its own in `tls` if given."""
    engine = Hostile(manner, well, **given)
    handler = type("Handler", (_Handler,), {"engine": engine})
    server = ThreadingHTTPServer(("0.0.0.0" if tls else "127.0.0.1", port), handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if tls is not None:
        server.socket = _certified(tls).wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    engine.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield engine
    finally:
        server.shutdown()
        server.server_close()


def _certified(folder: Path) -> ssl.SSLContext:
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=elsewhere", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
