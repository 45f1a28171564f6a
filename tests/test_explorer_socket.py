"""The explorer's socket: whoever does not speak its protocol is refused, and nothing is printed."""

import asyncio
import json
import logging
import re
import threading
from urllib.parse import urlsplit

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from codesign.explorer.answers import Answerer
from codesign.explorer.beginning import given
from codesign.explorer.server import server_of

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


def test_a_socket_without_protocol_or_session_is_refused_in_silence(found, caplog, capfd):
    offered = [None, [], ["bokeh"], ["other", "x"], ["bokeh", "x"], ["bokeh", EXPIRY], ["bokeh", NAMELESS],
               ["bokeh", "e" * 17_000], ["bokeh", "x", "y"]]  # fmt: skip

    async def ask(address):
        codes = []
        for words in offered:
            place = urlsplit(address)
            request = HTTPRequest(f"ws://{place.netloc}{place.path}ws", headers={"Origin": f"http://{place.netloc}"})
            with pytest.raises(HTTPClientError) as refused:
                await websocket_connect(request, subprotocols=words)
            codes.append(refused.value.code)
        return codes

    with caplog.at_level(logging.WARNING):
        assert set(served(found, ask)) == {403}
    assert [record for record in caplog.records if record.exc_info] == []
    assert "Traceback" not in "".join(capfd.readouterr())


def test_the_page_has_its_socket(found, caplog, capfd):
    """What its own token opens answers, and messages that are none do not end it."""

    async def ask(address):
        from tornado.httpclient import AsyncHTTPClient

        place = urlsplit(address)
        page = (await AsyncHTTPClient().fetch(address)).body.decode()
        token = re.search(r'"token":("[^"]+")', page)
        assert token
        request = HTTPRequest(f"ws://{place.netloc}{place.path}ws", headers={"Origin": f"http://{place.netloc}"})
        socket = await websocket_connect(request, subprotocols=["bokeh", json.loads(token[1])])
        first = await socket.read_message()
        socket.close()
        return first

    assert "ACK" in served(found, ask)
    assert [record for record in caplog.records if record.exc_info] == []
    assert "Traceback" not in "".join(capfd.readouterr())
