"""The explorer's socket: whoever does not speak its protocol is refused, and nothing is printed."""

import asyncio
import contextlib
import json
import logging
import re
import threading
from urllib.parse import urlsplit

import pytest
from bokeh.util.token import generate_jwt_token
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClosedError, websocket_connect

from codesign.core.errors import ConfigError
from codesign.explorer.answers import Answerer
from codesign.explorer.beginning import given
from codesign.explorer.server import server_of, shorten_log_lines
from codesign.study.objective import Expression

SMALL = ("space.plan.tp=[4,8]", "space.plan.pp=[8]", "space.plan.micro_batch=[1]", "space.plan.virtual_stages=[1]",
         "space.plan.zero=[0]", "space.plan.sequence_parallel=[true]", "space.plan.recompute=[none]")  # fmt: skip
EXPIRY = "eyJzZXNzaW9uX2lkIjogIngiLCAic2Vzc2lvbl9leHBpcnkiOiAieCJ9"  # an end that is a word
NAMELESS = "eyJzZXNzaW9uX2V4cGlyeSI6IDk5OTk5OTk5OTl9"  # no session


@pytest.fixture(scope="module")
def found():
    return given(SMALL)


def served(found, ask):
    """What a coroutine finds at a server's address."""
    made, address = server_of(found, answerer=Answerer(found))
    result = []

    def run():
        try:
            result.append(asyncio.run(ask(address)))
        finally:
            made.io_loop.add_callback(made.io_loop.stop)

    made.start()
    thread = threading.Thread(target=run)
    thread.start()
    made.io_loop.start()
    thread.join()
    made.stop()
    return result[0]


@pytest.mark.slow
def test_a_socket_without_protocol_or_session_is_refused_in_silence(found, caplog, capfd):
    offered = [None, [], ["bokeh"], ["other", "x"], ["bokeh", "x"], ["bokeh", EXPIRY], ["bokeh", NAMELESS],
               ["bokeh", "e" * 17_000], ["bokeh", "x", "y"]]  # fmt: skip

    async def ask(address):
        codes = []
        for words in offered:
            with pytest.raises(HTTPClientError) as refused:
                await websocket_connect(request_of(address), subprotocols=words)
            codes.append(refused.value.code)
        return codes

    with caplog.at_level(logging.WARNING):
        assert set(served(found, ask)) == {403}
    assert [record for record in caplog.records if record.exc_info] == []
    assert "Traceback" not in "".join(capfd.readouterr())


PATCH = '{"msgtype": "PATCH-DOC", "msgid": "1"}'
COUNTED = '{"msgtype": "PATCH-DOC", "msgid": "1", "num_buffers": 1}'
NOBODY = '{"events": [{"kind": "ModelChanged", "model": {"id": "p0"}, "attr": "x", "new": 1}]}'
GARBAGE = {
    "words": ["garbage"] * 3,
    "bytes": [b"\xff\x00"],
    "no type": ["{}"] * 3,
    "a list": ["[]"] * 3,
    "a number": ["7"] * 3,
    "deep": ["[" * 100_000] * 3,
    "long": ['{"x": "' + "y" * 100_000 + '"}'] * 3,
    "an unknown type": ['{"msgtype": "X\\nTraceback", "msgid": "1"}', "{}", "{}"],
    "of a server": ['{"msgtype": "ACK", "msgid": "1"}', "{}", "{}"],
    "events that are none": [PATCH, "{}", '{"events": 7}'],
    "an event of no kind": [PATCH, "{}", '{"events": [{"kind": "x"}]}'],
    "an event without": [PATCH, "{}", "{}"],
    "content of words": [PATCH, "{}", '"x"'],
    "an event for nobody": [PATCH, "{}", NOBODY],
    "a count of words": ['{"msgtype": "PATCH-DOC", "msgid": "1", "num_buffers": "x"}', "{}", '{"events": []}'],
    "a buffer header of words": [COUNTED, "{}", '{"events": []}', "x"],
    "a buffer for nobody": [COUNTED, "{}", '{"events": []}', '{"id": "1"}', b"x"],
    "a reply to nothing": ['{"msgtype": "PULL-DOC-REPLY", "msgid": "1", "reqid": "9"}', "{}", "{}"],
    "a document of its own": ['{"msgtype": "PUSH-DOC", "msgid": "1"}', "{}", '{"doc": 3}'],
}  # fmt: skip


def request_of(address):
    """A request for the socket, as a page of the server makes it."""
    place = urlsplit(address)
    return HTTPRequest(f"ws://{place.netloc}{place.path}ws", headers={"Origin": f"http://{place.netloc}"})


async def token_of(address):
    """What the page opens its socket with."""
    page = (await AsyncHTTPClient().fetch(address)).body.decode()
    return json.loads(re.findall(r'"token":("[^"]+")', page)[0])


async def opened(address, token):
    """A socket that a token opens, and the first message it gives."""
    socket = await websocket_connect(request_of(address), subprotocols=["bokeh", token])
    first = await socket.read_message()
    for _ in ("metadata", "content"):
        await socket.read_message()
    return socket, first


@pytest.mark.slow
def test_what_opens_properly_and_then_sends_garbage_is_one_line(found, caplog, capfd):
    async def ask(address):
        token = await token_of(address)
        for messages in GARBAGE.values():
            socket, first = await opened(address, token)
            assert "ACK" in first
            with contextlib.suppress(WebSocketClosedError, TimeoutError):
                for message in messages:
                    await socket.write_message(message, binary=isinstance(message, bytes))
                while await asyncio.wait_for(socket.read_message(), 0.2) is not None:
                    pass
            socket.close()
        expired = generate_jwt_token("a", signed=False, expiration=-1)
        await websocket_connect(request_of(address), subprotocols=["bokeh", expired])
        socket, first = await opened(address, token)  # others are served all the same
        socket.close()
        return first

    with caplog.at_level(logging.ERROR):
        assert "ACK" in served(found, ask)
    lines = [record.getMessage() for record in caplog.records]
    assert 0.5 * len(GARBAGE) < len(lines) <= len(GARBAGE) + 1
    assert all(line and "\n" not in line and len(line) <= 200 for line in lines), lines
    assert sum("closing connection" in line for line in lines) >= 5
    assert not any(record.exc_info for record in caplog.records)
    assert "Traceback (most" not in "".join(capfd.readouterr())


def test_an_error_of_this_package_keeps_its_traceback(caplog):
    shorten_log_lines()
    for name, failing in (("bokeh.server.protocol_handler", Expression), ("tornado.application", float)):
        try:
            failing("a +")
        except (ConfigError, ValueError):
            logging.getLogger(name).error("failed\nhere", exc_info=True)
    told = [(record.name, bool(record.exc_info), record.getMessage()) for record in caplog.records]
    assert told == [
        ("bokeh.server.protocol_handler", True, "failed\nhere"),
        ("tornado.application", False, "ValueError: failed here"),
    ]


@pytest.mark.slow
def test_the_page_has_its_socket(found, caplog, capfd):
    """What its own token opens answers, and messages that are none do not end it."""

    async def ask(address):
        socket, first = await opened(address, await token_of(address))
        socket.close()
        return first

    assert "ACK" in served(found, ask)
    assert [record for record in caplog.records if record.exc_info] == []
    assert "Traceback" not in "".join(capfd.readouterr())
