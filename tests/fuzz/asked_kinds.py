"""What strangers may ask for: files of chunks, loads and traces, SQL, links and requests to the explorer, commands."""

import atexit
import functools
import json
import random
import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
from contracts.problems import made
from launches import COMMANDS, MANIFESTS
from test_chunks import OF_PORTIONS, same
from test_explorer import SMALL
from test_export import DENSE, FP8, SERVING, SPARSE, commands, run_of
from test_traces import CHAT, INPUTS, TRACES

from codesign.commands.export import exported
from codesign.commands.launch import read_launch
from codesign.commands.query import Frames
from codesign.explorer.answers import Answerer
from codesign.explorer.beginning import given
from codesign.explorer.server import moved, server_of
from codesign.model.workloads.daily_load import read_load
from codesign.search.exhaustive.chunks import Chunk, ChunkWork, Portion, edges_of, load_portion, save_portion
from codesign.search.exhaustive.sweep import Sweep
from codesign.simulation.serving.requests import read_trace
from fuzz.harness import TOKENS, Case, flipped, mutated
from fuzz.kinds import PLACE, file_with, quietly

SECRET = "not for readers"


@functools.cache
def _chunk() -> tuple[Portion, Path, bytes]:
    sweep = Sweep(made(), 8, 5)
    work = ChunkWork(sweep, edges_of(sweep))
    portion = work(Chunk(work.study, 1, 2))
    path = save_portion(portion, sweep, PLACE)
    return portion, path, path.read_bytes()


def chunk(rng: random.Random) -> Case:
    """A file of a chunk, damaged."""
    portion, path, whole = _chunk()
    file_with(path.name, flipped(whole, rng))
    return Case(path.name, quietly(lambda: same(load_portion(path), portion, OF_PORTIONS)))


LOAD = "hour,requests_per_s\n" + "".join(f"{hour},{3.5 + hour % 7}\n" for hour in range(24))
TRACE = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{0.25 * n},{100 + n},{10 + n % 5}\n" for n in range(40))


def load(rng: random.Random) -> Case:
    """Requests of a day, as CSV or YAML, gone wrong; what is taken are rates."""
    name, text = rng.choice((("load.csv", LOAD), ("load.yaml", "\n".join(f"- {3.5 + h}" for h in range(24)))))
    data = mutated(text.encode(), rng)
    path = file_with(name, data)

    def run() -> bool:
        rates = read_load(path)
        return bool(np.isfinite(rates).all() and (rates >= 0).all() and rates.max() > 0)

    return Case(f"{name}: {data[:300]!r}", quietly(run))


def trace(rng: random.Random) -> Case:
    """Requests of a trace, gone wrong; what is taken are lengths and times."""
    data = mutated(TRACE.encode(), rng)
    path = file_with("trace.csv", data)

    def run() -> bool:
        result = read_trace(path)
        whole = min(result.prompts.min(), result.outputs.min()) >= 1
        came = result.arrivals
        return bool(whole and came is not None and np.isfinite(came).all() and (np.diff(came) >= 0).all())

    return Case(repr(data[:300]), quietly(run))


WORDS = (
    "select", "from", "where", "designs", "chunks", "kept", "*", '"var.tp"', "time_s", "rank", "count(*)", ",", "(",
    ")", "group by 1", "order by 2", "limit 3", "1", "'x'", ";", "--", "/*", "with a as", "union all", "null",
    "cast(", "as", "read_csv('{secret}')", "read_text('{secret}')", "'{secret}'", "glob('{folder}/*')",
    "copy designs to '{folder}/out'", "attach '{folder}/db'", "install httpfs", "load httpfs",
    "pragma database_list", "set enable_external_access=true", "create table t as", "insert into designs",
    "drop table designs", "call", "explain", "describe", "summarize", "getenv('HOME')",
    "current_setting('home_directory')", "unnest([1,2])", "json_extract(", "regexp_matches(time_s, '(a+)+$')",
    "\x00", "\x1b[31m", "export database '{folder}'", "read_parquet('{folder}/designs.parquet')",
    "read_blob('{secret}')", "duckdb_secrets()", "select rank, time_s from designs", "select count(*) from designs",
    "select * from designs limit 2",
)  # fmt: skip


@functools.cache
def _frames() -> tuple[Frames, Path, tuple[str, ...]]:
    import pandas as pd

    folder = PLACE / "asked"
    folder.mkdir()
    pd.DataFrame({"rank": [1, 2, 3], "var.tp": [8.0, 4.0, 8.0], "time_s": [3.5, None, 4.5]}).to_parquet(
        folder / "designs.parquet"
    )
    (folder / "secret.csv").write_text(f"a\n{SECRET}\n")
    return Frames(folder), folder, tuple(sorted(path.name for path in folder.iterdir()))


def query(rng: random.Random) -> Case:
    """SQL of pieces that may or may not fit: no file is read, none is written."""
    frames, folder, before = _frames()
    begin = rng.choice(("select", "select", "from designs select", ""))
    words = [begin, *(rng.choice(WORDS) for _ in range(rng.choice((1, 2, 4, 8, 20))))]
    text = " ".join(words).replace("{secret}", str(folder / "secret.csv")).replace("{folder}", str(folder))

    def run() -> bool:
        try:
            _, rows = frames.answer(text)
            told = repr([row for row, _ in zip(rows, range(1000), strict=False)])
        finally:
            assert tuple(sorted(path.name for path in folder.iterdir())) == before
        return SECRET not in told

    return Case(repr(text[:400]), quietly(run))


atexit.register(_frames.cache_clear)  # a database that is still open then complains


@functools.cache
def _study() -> Any:
    return given(SMALL)


def link(rng: random.Random) -> Case:
    """Numbers of sliders in a link: each ends within its slider."""
    knobs = _study().knobs
    texts = (*TOKENS, "1e308", "-1e308", "1e-308", "1_0", " 7 ", "٣", "1e8", "0x1p3", "infinity")
    asked = {
        rng.choice((*(knob.key for knob in knobs), "other", "", "limits")): [
            rng.choice(texts).encode("utf-8", "surrogatepass") for _ in range(rng.choice((0, 1, 1, 3)))
        ]
        for _ in range(rng.choice((1, 2, 5)))
    }

    def run() -> bool:
        result = moved(knobs, asked)
        held = {knob.key: (knob.within(result[knob.key]), knob) for knob in knobs if knob.key in result}
        return all(knob.low <= value <= knob.high for value, knob in held.values()) and result.keys() <= held.keys()

    return Case(repr(asked)[:400], run)


@functools.cache
def _server() -> tuple[str, str]:
    """Host with port, and the path of a page that is served until this process ends."""
    result, ready, told = _study(), threading.Event(), {}

    def serve() -> None:
        import asyncio

        asyncio.set_event_loop(asyncio.new_event_loop())
        made_, address = server_of(result, answerer=Answerer(result))
        made_.start()
        told["at"] = urlsplit(address)
        made_.io_loop.add_callback(ready.set)
        atexit.register(made_.io_loop.add_callback_from_signal, made_.io_loop.stop)
        made_.io_loop.start()

    threading.Thread(target=serve, daemon=True).start()
    ready.wait(60)
    return told["at"].netloc, told["at"].path


STATUSES: Counter[int] = Counter()
"""Of the answers so far."""
METHODS = ("GET", "GET", "POST", "HEAD", "PUT", "OPTIONS", "DELETE", "TRACE", "FOO", "get")


def request(rng: random.Random) -> Case:
    """What is sent to the explorer's port: without its token and its host only 403 or a broken line comes back."""
    netloc, place = _server()
    host, _, port = netloc.partition(":")
    token = place.strip("/")
    wrong = mutated(token.encode(), rng).decode("latin-1")
    first = rng.choice((token, token, wrong, wrong, "", token[:-1], token + "x", token.upper(), "..", "static"))
    rest = rng.choice(
        (
            "",
            "/",
            "/static/js/bokeh.min.js",
            "/ws",
            "/autoload.js",
            "/metadata",
            "/../../etc/passwd",
            "/%2e%2e/",
            "/static/../server.py",
        )
    )
    path = quote(f"/{first}{rest}", safe="/%") + rng.choice(("", "", "?limits.capex_usd=1e8", "?" + "a" * 300, "#x"))
    asked_host = rng.choice((netloc, netloc, "evil.example", f"localhost:{port}", "", f"{host}.", "127.0.0.1:1"))
    method = rng.choice(METHODS)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {asked_host}", "Connection: close"]
    lines += rng.choice(([], ["Content-Length: 5"], ["Upgrade: websocket"], ["Cookie: " + "x" * 2000], ["X: \x01"]))
    data = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")
    data = data if rng.random() < 0.7 else mutated(data, rng)
    sound = data.startswith(f"{method} /{token}".encode()) and f"Host: {netloc}\r\n".encode() in data

    def run() -> bool:
        with socket.create_connection((host, int(port)), 5) as connection:
            connection.settimeout(5)
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            parts, size = [], 0
            while size < 1 << 16 and (part := connection.recv(1 << 14)):
                parts.append(part)
                size += len(part)
        words = b"".join(parts).split(b" ", 2)
        status = int(words[1]) if len(words) > 2 else 0  # a connection that is closed without a word
        STATUSES[status] += 1
        if status >= 500 or status == 101:
            raise AssertionError(f"the server answered {status}")
        return sound or status in (0, 400, 403, 405) or status == 403

    with_page = sound and method == "GET" and rest in ("", "/", "/autoload.js", "/metadata")
    if with_page:  # those make a session, whose proof is a process of its own: a few are enough
        return Case("a page", lambda: True)
    return Case(repr(data[:400]), run)


LAUNCHES = tuple(text for text, _ in COMMANDS)


def launch(rng: random.Random) -> Case:
    """A command of a server or a trainer, gone wrong."""
    text = mutated(rng.choice(LAUNCHES).encode(), rng).decode("utf-8", "replace")
    if rng.random() < 0.3:
        words = text.split(" ")
        words[rng.randrange(len(words))] = rng.choice((*TOKENS, "²", "٣", "-tp", "--tp=", "=", "--", "9" * 5000))
        text = " ".join(words)
    return Case(repr(text[:400]), lambda: read_launch(text) and True)


def manifest(rng: random.Random) -> Case:
    """A manifest or a file of settings, gone wrong, as a file."""
    text, _ = rng.choice((*MANIFESTS, COMMANDS[-1]))
    data = mutated(text.encode(), rng)
    path = file_with(rng.choice(("manifest.yaml", "settings.toml")), data)
    return Case(repr(data[:400]), lambda: read_launch(str(path)) and True)


def published_trace(rng: random.Random) -> Case:
    """A trace as it is published, gone wrong; what is taken are lengths and times."""
    name, text = rng.choice((*TRACES.items(), ("chat.json", json.dumps(CHAT)), ("inputs.json", json.dumps(INPUTS))))
    data = mutated(text.encode(), rng)
    path = file_with(name, data)

    def run() -> bool:
        result = read_trace(path, timed=False)
        whole = min(result.prompts.min(), result.outputs.min()) >= 1
        came = result.arrivals
        return bool(whole and (came is None or (np.isfinite(came).all() and (np.diff(came) >= 0).all())))

    return Case(f"{name}: {data[:300]!r}", quietly(run))


def export(rng: random.Random) -> Case:
    """A design as a command of an engine, read back: the same plan, or refused."""
    engine, model = rng.choice(("vllm", "sglang")), rng.choice((DENSE, SPARSE))
    plan: dict[str, float] = {"tp": rng.choice((1, 2, 4, 8)), "micro_batch": rng.choice((1, 7, 32, 256))}
    plan |= {"pp": rng.choice((2, 4))} if rng.random() < 0.3 else {}
    plan |= {"token_budget": rng.choice((128, 192, 2048))} if rng.random() < 0.7 else {}
    if model is SPARSE and rng.random() < 0.5:
        tp, sharing = plan["tp"], rng.choice((2, 8))
        plan |= {"ep": sharing} if tp == 1 else {"ep": tp * sharing, "etp": 1}  # whole experts on every rank
    folder = PLACE / f"run-{rng.randrange(10**12)}"

    def run() -> bool:
        import shutil

        try:
            path = run_of(folder, SERVING | {"precision": FP8}, model, plan)
            (words,) = commands(exported(path, engine)[f"{engine}.sh"])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        import shlex

        result = dict(text.split("=", 1) for text in read_launch(shlex.join(words)).overrides)
        kept = {key: value for key, value in plan.items() if value != 1 or key == "etp"}
        same_plan = all(
            float(result.get(f"plan.{key}", "nan")) == value for key, value in kept.items() if key != "token_budget"
        )
        return same_plan and result["model"] == model["name"]

    return Case(f"{engine} {json.dumps(plan)} {model['name']}", quietly(run))


ASKED = {
    "chunks": chunk, "loads": load, "traces": trace, "queries": query, "links": link, "requests": request,
    "launches": launch, "manifests": manifest, "published traces": published_trace, "exports": export,
}  # fmt: skip
