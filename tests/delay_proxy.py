"""A TCP proxy that delays each direction: a distant network on loopback."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def delay_proxy(port: int, seconds: float) -> AsyncIterator[int]:
    """Yield the port of a proxy to a local `port`; `seconds` is the delay one way."""
    relays: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(_relay(reader, writer, port, seconds))
        relays.add(task)
        await asyncio.wait({task})

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in relays:
            task.cancel()
        await asyncio.gather(*relays, return_exceptions=True)


async def _relay(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, seconds: float
) -> None:
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await asyncio.gather(_pump(reader, far_writer, seconds), _pump(far_reader, writer, seconds))
    finally:
        for end in (writer, far_writer):
            end.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """Pass bytes on, each `seconds` after it came, in order; then the end."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def out() -> None:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not data:
                break
            writer.write(data)
        with contextlib.suppress(OSError):
            writer.write_eof()

    sending = asyncio.create_task(out())
    try:
        while True:
            try:
                data = await reader.read(65536)
            except OSError:
                data = b""
            queue.put_nowait((loop.time() + seconds, data))
            if not data:
                break
        await sending
    finally:
        sending.cancel()
