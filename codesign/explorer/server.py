"""Access to the page: this machine alone, with the token that the address carries; nothing is asked of a network.

The token stands first in every address of the server, that of scripts and of the socket too. What does not begin with
it is refused with 403 whatever it asks for, and so is a request whose host is not this machine's own address, as those
of a page are that makes its name lead here. A socket is opened for a session that the server made itself: it names
Bokeh's protocol and the session's own token.
"""

import logging
import secrets
import signal
import sys
import webbrowser
import zlib
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, cast

from bokeh.application import Application
from bokeh.application.handlers import FunctionHandler
from bokeh.document import Document
from bokeh.server.server import Server
from bokeh.util.token import get_session_id, get_token_payload
from tornado.routing import Matcher, Rule
from tornado.web import RequestHandler

from ..commands.remarks import say_default, warn
from ..commands.setup import prepare_jax
from ..core.errors import ConfigError
from .answers import Answerer
from .beginning import NumberSlider, SliderStudy, given
from .reader_page import Page

__all__ = ["moved", "run_until_stopped", "server_of", "shorten_log_lines"]


# Log lines of the explorer's server: what a client sends is told in one line, an error of this package in full.
#
# Bokeh and Tornado log whatever a client sends that they cannot read, with a traceback and the message itself, which
# may be as long as the client likes.


LONGEST = 160  # characters of a line

SOCKET, SOCKET_PROTOCOL, HANDLER = "bokeh.server.views.ws", "bokeh.protocol", "bokeh.server.protocol_handler"

LOGGERS = (SOCKET, SOCKET_PROTOCOL, HANDLER, "tornado.application", "tornado.general", "tornado.access")

ROOT = __name__.partition(".")[0]


def shorten_log_lines() -> None:
    """Make Bokeh and Tornado log errors alone, each on one line unless this package raised it."""
    for name in ("bokeh", "tornado"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_one_line)


def _one_line(record: logging.LogRecord) -> bool:
    """Shorten a record to one line; drop it where another line of the socket follows and says the same."""
    trace = record.exc_info[2] if record.exc_info else None
    if _passes_through_package(trace):
        return True
    if record.name == SOCKET_PROTOCOL or (record.name == SOCKET and trace is not None):
        return False  # the socket says that it closes the connection, and why
    record.msg, record.args = _short(record), ()
    record.exc_info = record.exc_text = record.stack_info = None
    return True


def _passes_through_package(trace: TracebackType | None) -> bool:
    """Return True where a traceback passes through code of this package."""
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0] == ROOT:
            return True
        trace = trace.tb_next
    return False


def _short(record: logging.LogRecord) -> str:
    """The words of a record in one line, with the kind of the error if it has one."""
    text = " ".join(record.getMessage()[: 4 * LONGEST].split())
    kind = record.exc_info[0] if record.exc_info else None
    said = f"{text[:LONGEST]} ..." if len(text) > LONGEST else text
    return f"{kind.__name__}: {said}" if kind is not None else said


ADDRESS = "127.0.0.1"
TOKEN_BYTES = 24
CLOSE_MS = 5_000  # after a reader has gone, its proof is given up
READERS = 8  # at a time
READING = ("GET", "HEAD")
PROTOCOL, LONGEST_SESSION = "bokeh", 16_384  # of a socket; characters of a session's token, which repeats headers


class ForbiddenHandler(RequestHandler):
    """403, and nothing else."""

    def prepare(self) -> None:
        """Whatever the method."""
        self.set_status(403)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        cast(Any, self).finish("403: this page needs the address that `codesign explore` printed\n")


def has_session(request: object) -> bool:
    """True if a request for a socket names a session as Bokeh's page does: its protocol, and a token."""
    headers: Mapping[str, str] = getattr(request, "headers", {})
    words = [word.strip() for word in headers.get("Sec-WebSocket-Protocol", "").split(",")]
    if len(words) != 2 or words[0] != PROTOCOL or len(words[1]) > LONGEST_SESSION:
        return False
    try:
        session, payload = get_session_id(words[1]), get_token_payload(words[1])
        return isinstance(cast(object, session), str) and isinstance(payload["session_expiry"], int)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error):
        return False


class UntrustedRequest(Matcher):
    """Matches requests without the token, for another host, for a socket of no session, or to do more than read."""

    def __init__(self, token: str, host: Callable[[], str]):
        self._token, self._host = token, host

    def match(self, request: object) -> dict[str, Any] | None:
        """None lets a request pass."""
        first = getattr(request, "path", "/").split("/")[1:2]
        authorized = bool(first) and secrets.compare_digest(first[0].encode(), self._token.encode())
        reads = getattr(request, "method", "") in READING
        ours = authorized and reads and getattr(request, "host", "") == self._host()
        socket = getattr(request, "path", "").rstrip("/").endswith("/ws")
        return None if ours and (not socket or has_session(request)) else {}


def server_of(
    setup: SliderStudy, port: int = 0, token: str = "", answerer: Answerer | None = None
) -> tuple[Server, str]:
    """A server that listens, and the address of its page.

    Raises:
        ConfigError: the port is taken.
    """
    token = token or secrets.token_urlsafe(TOKEN_BYTES)
    shared = answerer or Answerer(setup)
    pages: list[Page] = []

    def open_page(document: Document) -> None:
        context: Any = document.session_context
        arguments: dict[str, list[bytes]] = context.request.arguments if context else {}
        pages[:] = [page for page in pages if page.document.session_context is not None]
        pages.append(Page(setup, shared, document, address, moved(setup.knobs, arguments)))

    shorten_log_lines()
    try:
        made = Server(
            {"/": Application(FunctionHandler(open_page))}, address=ADDRESS, port=port, prefix=f"/{token}",
            check_unused_sessions_milliseconds=CLOSE_MS, unused_session_lifetime_milliseconds=CLOSE_MS,
        )  # fmt: skip
    except OSError as error:
        raise ConfigError(f"--port {port}: {error.strerror}; without --port a free one is taken") from error
    host = f"{ADDRESS}:{made.port}"
    tornado = cast(Any, made)._tornado
    tornado._websocket_origins = {host}
    tornado.wildcard_router.rules.insert(0, Rule(UntrustedRequest(token, lambda: host), ForbiddenHandler))
    address = f"http://{host}/{token}/"
    return made, address


def moved(knobs: tuple[NumberSlider, ...], arguments: Mapping[str, list[bytes]]) -> dict[str, float]:
    """Key of a knob -> value, of a link; what is no number or nobody's is left aside."""
    result: dict[str, float] = {}
    for knob in knobs:
        for text in arguments.get(knob.key, [])[-1:]:
            try:
                value = float(text)
            except ValueError:
                continue
            if value == value:
                result[knob.key] = value
    return result


def run_until_stopped(made: Server) -> None:
    """Serve until Ctrl-C, or until the process is told to end: what proves ends with it."""

    def stop(*_: object) -> None:
        cast(Any, made.io_loop).add_callback_from_signal(made.io_loop.stop)

    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, stop)
    made.start()
    made.io_loop.start()
    made.stop()


# `codesign explore [RUN | OVERRIDE ...]`.


PORTS = (1024, 65535)


def explore(words: list[str], port: int = 0, *, show: bool = False) -> int:
    """Make a study ready, print the address of its page and serve it until Ctrl-C.

    Raises:
        ConfigError: bad configuration, no such run, a port that cannot be had.
    """
    if port and not PORTS[0] <= port <= PORTS[1]:
        raise ConfigError(f"--port = {port} must be from {PORTS[0]} to {PORTS[1]}")
    prepare_jax()
    result = given(words)
    if result.run is None:
        say_default(list(result.overrides))
    warn(result.study.unusual)
    print("reading the model and pricing every plan once ...", file=sys.stderr, flush=True)
    answerer = Answerer(result)
    made, address = server_of(result, port, answerer=answerer)
    print(f"{result.title}: {answerer.how}; {len(result.knobs)} sliders. Ctrl-C ends it.", file=sys.stderr)
    print(address, flush=True)
    if show:
        webbrowser.open(address)
    run_until_stopped(made)
    return 0
