"""A small OpenAI-compatible server with a known service process, for `codesign observe`: HTTP by hand, over asyncio.

A request takes one of `slots`, first come first served; its first token comes `first_s` after that, each further one
`between_s` later. What it did is recorded by the clock of this machine, so that what a client saw can be held against
it however busy the machine is.
"""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

TEMPLATE = 9  # tokens that a chat adds


def tokens_of(text: str) -> int:
    """A tokenizer that cuts words after four letters."""
    return sum(-(-len(word) // 4) for word in text.split())


@dataclass
class ServerRecord:
    """Of one request: when it came, when its first and its last token were written, how many tokens there were."""

    came: float
    prompt_tokens: int
    output_tokens: int
    first: float = 0.0
    last: float = 0.0


@dataclass
class ServiceProcess:
    """What the server does; `odd` may answer a request by its number in another way."""

    first_s: float = 0.03
    between_s: float = 0.005
    slots: int = 64
    usage: bool = True
    own_fields: bool = True
    longest: int = 1_000_000
    models: tuple[str, ...] = ("tiny",)
    odd: Callable[[int], str] = lambda number: ""
    ended: Callable[[int], None] = lambda number: None
    records: list[ServerRecord] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    async def answer(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        """One request."""
        if path.endswith("/models"):
            return await _whole(writer, 200, {"object": "list", "data": [{"id": name} for name in self.models]})
        if not path.endswith("/v1/completions") and not path.endswith("/v1/chat/completions"):
            return await _whole(writer, 404, {"detail": "Not Found"})
        asked = json.loads(body)
        self.bodies.append(asked)
        if "ignore_eos" in asked and not self.own_fields:
            return await _whole(writer, 400, {"error": {"message": "Unrecognized request argument: ignore_eos"}})
        number, kind = len(self.records), "chat" if "messages" in asked else "text"
        prompt = asked["messages"][0]["content"] if kind == "chat" else asked["prompt"]
        extra = TEMPLATE if kind == "chat" else 0
        count = min(asked["max_tokens"], self.longest)
        record = ServerRecord(time.perf_counter(), tokens_of(prompt) + extra, count)
        self.records.append(record)
        odd = self.odd(number)
        if odd == "500":
            return await _whole(writer, 500, {"error": {"message": "out of memory", "code": 500}})
        if odd == "whole":
            return await _whole(writer, 200, {"choices": [{"text": "all at once", "finish_reason": "stop"}]})
        async with self.places:
            await self._stream(writer, record, kind, odd)
        self.ended(number)
        return None

    async def _stream(self, writer: asyncio.StreamWriter, record: ServerRecord, kind: str, odd: str) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        begun = time.perf_counter()
        if kind == "chat":
            _event(writer, {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        for token in range(record.output_tokens):
            due = begun + self.first_s + token * self.between_s
            await asyncio.sleep(due - time.perf_counter())
            if odd == "cut" and token == 1:
                return
            if odd == "malformed" and token == 1:
                _chunk(writer, b'data: {"choices": [{"te\n\n')
            reason = "length" if token == record.output_tokens - 1 else None
            said = {"delta": {"content": " on"}} if kind == "chat" else {"text": "" if token == 2 else " on"}
            record.last = time.perf_counter()
            record.first = record.first or record.last
            _event(writer, {"choices": [{"index": 0, **said, "finish_reason": reason}], "usage": None})
            await writer.drain()
        if self.usage:
            counts = {"prompt_tokens": record.prompt_tokens, "completion_tokens": record.output_tokens}
            _event(writer, {"choices": [], "usage": counts})
        _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            said = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            length = int(said.get("content-length", 0))
            await self.answer(head.split()[1], await reader.readexactly(length), writer)
        with contextlib.suppress(ConnectionError):
            writer.close()

    async def _serve(self, ready: threading.Event, until: asyncio.Event) -> None:
        self.places = asyncio.Semaphore(self.slots)
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.loop, self.until = asyncio.get_running_loop(), until
        ready.set()
        await until.wait()
        server.close()


@contextlib.contextmanager
def serving(process: ServiceProcess) -> Iterator[str]:
    """The URL of a server in a thread of its own."""
    ready = threading.Event()

    async def run() -> None:
        await process._serve(ready, asyncio.Event())

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield f"http://127.0.0.1:{process.port}"
    finally:
        process.loop.call_soon_threadsafe(process.until.set)
        thread.join(20)


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def _event(writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
    _chunk(writer, b"data: " + json.dumps({"id": "cmpl-1", "object": "text_completion", **event}).encode() + b"\n\n")


async def _whole(writer: asyncio.StreamWriter, code: int, body: dict[str, Any]) -> None:
    data = json.dumps(body, indent=1).encode()
    head = f"HTTP/1.1 {code} -\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    await writer.drain()
