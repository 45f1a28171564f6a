"""One request to an OpenAI-compatible server, and when the tokens of its answer came.

vLLM, SGLang and TensorRT-LLM stream server-sent events, one or more tokens each, and say in the last one how many
tokens prompt and answer had (`stream_options.include_usage`). Each request has a connection of its own, so that a first
token waits for that, too.
"""

import json
import logging
import time
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import urlsplit

from tornado.httpclient import AsyncHTTPClient, HTTPError, HTTPRequest, HTTPResponse

from ...core.errors import ConfigError, one_line
from ...core.json_yaml import dumps, is_mapping

__all__ = ["Endpoint", "StreamedAnswer", "client_of", "served_model"]

MOST_ANSWER = 2**28  # bytes of a streamed answer; a token takes some 300
MOST_EVENT = 2**20  # bytes of one event
MOST_SAID = 4096  # bytes of an answer that is no stream that are kept
SHOWN = 120  # characters of a server's complaint that are repeated
CONNECT_S = 20.0
REFUSES_OURS = (400, 422)  # of a server that takes no field beyond OpenAI's


@dataclass(frozen=True)
class Endpoint:
    """Completions endpoint of a server, and the options of its requests.

    base: URL up to `/v1`. chat: as messages. extension_fields: whether `ignore_eos` is sent, so that answers have
    the length asked for; servers that know OpenAI's fields alone refuse it. key: sent as bearer token where there is
    one.
    """

    base: str
    model: str = ""
    chat: bool = False
    extension_fields: bool = True
    key: str = ""
    timeout_s: float = 600.0

    @classmethod
    def of_url(cls, url: str, *, chat: bool = False, key: str = "", timeout_s: float = 600.0) -> "Endpoint":
        """The endpoint of a server, of its `/v1`, or of a path below that.

        Raises:
            ConfigError: no URL of a server.
        """
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            valid = False
            parts = urlsplit("")
        if not valid:
            raise ConfigError(f"{url!r} is no URL of a server; allowed: http://HOST:PORT, with or without /v1")
        path = parts.path.rstrip("/")
        for end in ("/chat/completions", "/completions", "/models"):
            chat = chat or (end.startswith("/chat") and path.endswith(end))
            path = path.removesuffix(end)
        path = path if path.endswith("/v1") else f"{path}/v1"
        return cls(f"{parts.scheme}://{parts.netloc}{path}", chat=chat, key=key, timeout_s=timeout_s)

    def of_model(self, name: str) -> "Endpoint":
        """This endpoint with the name that the server has for a model."""
        return replace(self, model=name)

    def plain(self) -> "Endpoint":
        """This endpoint with OpenAI's own fields alone, for servers that refuse others."""
        return replace(self, extension_fields=False)

    @property
    def url(self) -> str:
        """URL that completions are requested from."""
        return f"{self.base}/{'chat/' if self.chat else ''}completions"

    def headers(self) -> dict[str, str]:
        """HTTP headers of every request."""
        return {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.key}"} if self.key else {})

    def body(self, prompt: str, output_tokens: int) -> bytes:
        """A request for so many tokens."""
        fields: dict[str, Any] = {
            "model": self.model, "max_tokens": output_tokens, "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        fields |= {"messages": [{"role": "user", "content": prompt}]} if self.chat else {"prompt": prompt}
        return dumps(fields | ({"ignore_eos": True} if self.extension_fields else {})).encode()

    async def ask(self, client: AsyncHTTPClient, prompt: str, output_tokens: int) -> "StreamedAnswer":
        """The answer to a prompt; one that fails says why instead of raising."""
        stream = _TokenEvents()
        request = HTTPRequest(
            self.url, "POST", self.headers(), self.body(prompt, output_tokens), connect_timeout=CONNECT_S,
            request_timeout=self.timeout_s, streaming_callback=stream.take, follow_redirects=False,
        )  # fmt: skip
        sent = time.perf_counter()
        error, code = "", 0
        try:
            code = (await client.fetch(request, raise_error=False)).code
        except (HTTPError, OSError, ValueError) as failed:
            error = _reason(failed)
        return stream.answer(sent, code, error)


@dataclass(frozen=True)
class StreamedAnswer:
    """Times at which a request was sent and its first and last token arrived (seconds of one clock), and token counts.

    prompt_tokens and output_tokens are what the server reports, 0 where it does not; events are tokens counted by the
    pieces that came. error is empty where the answer came whole; code is that of HTTP, 0 without any.
    """

    sent: float
    first: float
    last: float
    prompt_tokens: int
    output_tokens: int
    events: int
    code: int
    error: str

    @property
    def tokens(self) -> int:
        """Output tokens of the answer: as the server reports them, else as counted."""
        return self.output_tokens or self.events

    @property
    def ttft_s(self) -> float:
        """To the first token."""
        return self.first - self.sent

    @property
    def e2e_s(self) -> float:
        """To the last token."""
        return self.last - self.sent

    @property
    def tpot_s(self) -> float | None:
        """Mean time of each token after the first; None of an answer of one."""
        return (self.last - self.first) / (self.tokens - 1) if self.tokens > 1 else None


class _TokenEvents:
    """Parser of a stream of server-sent events, fed piece by piece."""

    def __init__(self) -> None:
        self._head, self._rest, self._error = b"", b"", ""
        self._first = self._last = 0.0
        self._events, self._usage = 0, dict[str, Any]()
        self._ended = self._streamed = False

    def take(self, piece: bytes) -> None:
        """Complete lines of the bytes received so far."""
        now = time.perf_counter()
        if len(self._head) < MOST_SAID:
            self._head += piece[:MOST_SAID]
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > MOST_EVENT:
            self._rest, self._error = b"", self._error or "an event without an end"
        for line in lines:
            self._line(line.strip(), now)

    def _line(self, line: bytes, now: float) -> None:
        if not line.startswith(b"data:"):  # a comment, a name of an event, or no event at all
            return
        self._streamed, text = True, line[5:].strip()
        if text == b"[DONE]":
            self._ended = True
            return
        try:
            event: Any = json.loads(text)
        except (ValueError, RecursionError):
            event = None
        if not is_mapping(event):
            self._error = self._error or "an event that is no JSON object"
        elif event.get("error"):
            self._error = self._error or _said(text)
        else:
            self._event(event, now)

    def _event(self, event: dict[str, Any], now: float) -> None:
        usage: Any = event.get("usage")
        self._usage = usage if is_mapping(usage) else self._usage
        choices: Any = event.get("choices")
        choice = _first_of(choices)
        if not is_mapping(choice):
            return
        self._ended = self._ended or bool(choice.get("finish_reason"))
        delta: Any = choice.get("delta")
        said = any(v for k, v in delta.items() if k != "role") if is_mapping(delta) else bool(choice.get("text"))
        if said or (not is_mapping(delta) and not choice.get("finish_reason")):  # a token may have no text of its own
            self._first, self._last, self._events = self._first or now, now, self._events + 1

    def answer(self, sent: float, code: int, error: str) -> StreamedAnswer:
        """Outcome of a request whose connection ended early or was never made."""
        if not error and code != 200:
            error = " ".join(filter(None, (f"HTTP {code}", _said(self._head))))
        elif not error and self._error:
            error = self._error
        elif not error and not self._streamed:
            error = "an answer that is no stream of events"
        elif not error and not self._ended:
            error = "a stream that breaks off"
        elif not error and not self._events:
            error = "a stream without tokens"
        counts = [self._usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
        prompt, output = (count if isinstance(count, int) and count > 0 else 0 for count in counts)
        return StreamedAnswer(sent, self._first, self._last, prompt, output, self._events, code, error)


def client_of(most_open: int) -> AsyncHTTPClient:
    """A client that has so many requests open at a time."""
    logging.getLogger("tornado.application").addFilter(_is_reportable)
    return AsyncHTTPClient(force_instance=True, max_clients=max(most_open, 1), max_body_size=MOST_ANSWER)


def _is_reportable(record: logging.LogRecord) -> bool:
    """True if a line of the HTTP client's log is worth showing: cancelled requests were cancelled on purpose."""
    return "after Future was cancelled" not in str(record.msg)


async def served_model(client: AsyncHTTPClient, endpoint: Endpoint, wanted: str) -> str:
    """The name that the server gives its model: what is wanted where it has that, else its only one.

    Raises:
        ConfigError: nobody answers, or it serves several models and none is named.
    """
    try:
        request = HTTPRequest(
            f"{endpoint.base}/models", headers=endpoint.headers(), connect_timeout=CONNECT_S, request_timeout=CONNECT_S
        )
        result = await client.fetch(request, raise_error=False)
    except (HTTPError, OSError, ValueError) as error:
        raise ConfigError(f"{endpoint.base} does not answer: {_reason(error)}") from error
    names = _names(result)
    if wanted in names or (wanted and not names):
        return wanted
    if len(names) == 1:
        return names[0]
    if not names:
        raise ConfigError(f"{endpoint.base}/models names no model (HTTP {result.code}): say --served-model NAME")
    raise ConfigError(f"{endpoint.base} serves {', '.join(names)}: say --served-model NAME")


def _names(response: HTTPResponse) -> list[str]:
    try:
        listed: Any = json.loads(response.body) if response.code == 200 else None
    except (ValueError, RecursionError):
        return []
    data: Any = listed.get("data") if is_mapping(listed) else None
    models = cast(list[object], data) if isinstance(data, list) else []
    return [str(one["id"]) for one in models if is_mapping(one) and one.get("id")]


def _first_of(listed: object) -> Any:
    """The first entry of what may be a list."""
    result = cast(list[object], listed) if isinstance(listed, list) else []
    return result[0] if result else None


def _reason(error: Exception) -> str:
    """Reason why a request failed, in a few words."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return one_line(text.removeprefix("HTTP 599: "))[:SHOWN]


def _said(text: bytes) -> str:
    """The message of a server's complaint."""
    words = text.decode("utf-8", "replace").strip()
    try:
        node: Any = json.loads(words)
    except (ValueError, RecursionError):
        node = None
    for name in ("error", "message", "detail"):
        node = node.get(name, node) if is_mapping(node) else node
    return one_line(node if isinstance(node, str) else words)[:SHOWN]
