"""Log lines of the explorer's server: what a client sends is told in one line, an error of this package in full.

Bokeh and Tornado log whatever a client sends that they cannot read, with a traceback and the message itself, which may
be as long as the client likes.
"""

import logging
from types import TracebackType

__all__ = ["shorten_log_lines"]

LONGEST = 160  # characters of a line
SOCKET, PROTOCOL, HANDLER = "bokeh.server.views.ws", "bokeh.protocol", "bokeh.server.protocol_handler"
LOGGERS = (SOCKET, PROTOCOL, HANDLER, "tornado.application", "tornado.general", "tornado.access")
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
    if record.name == PROTOCOL or (record.name == SOCKET and trace is not None):
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
