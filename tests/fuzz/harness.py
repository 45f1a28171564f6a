"""Hostile input, by seeds: each kind makes cases, each case ends well or is a finding.

A case ends well where what was read is what was written, or where it was refused in one line. Findings are any other
exception, a message of several lines, more than `SLOWEST` seconds, and damage that was taken without a word. Seconds
are of the processor, so that others on the machine are no finding; what waits without working ends after
`LONGEST_WAIT`.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from codesign.core.errors import CodesignError

SLOWEST = 10.0
LONGEST_WAIT = 120.0
AGAIN = 5.0  # seconds to the next ring, where the first fell into a callback that lets nothing through
LONGEST = 2_000  # characters of a message that somebody will read


class Case(NamedTuple):
    """What is tried, in words; what tries it; whether it may be taken, which `run` says where only the result tells."""

    told: str
    run: Callable[[], Any]
    sound: bool = True


class Finding(NamedTuple):
    """A case that did not end well."""

    kind: str
    number: int
    told: str
    what: str


Kind = Callable[[random.Random], Case]


class _TooSlow(BaseException):
    """Not an Exception, so that nothing in between takes it for bad input."""


def _ring(_signal: int, _frame: Any) -> None:
    raise _TooSlow


def verdict(case: Case) -> tuple[str, str]:
    """(`taken`, `refused` or what went wrong; details)."""
    clocks = ((signal.SIGPROF, signal.ITIMER_PROF, SLOWEST), (signal.SIGALRM, signal.ITIMER_REAL, LONGEST_WAIT))
    before = {number: signal.signal(number, _ring) for number, _, _ in clocks}
    for _, clock, seconds in clocks:
        signal.setitimer(clock, seconds, AGAIN)
    try:
        taken = case.run()
    except CodesignError as error:
        text = str(error)
        if "\n" in text:
            return "several lines", text
        return ("refused", text) if 0 < len(text) <= LONGEST else (f"a message of {len(text)} characters", text[:200])
    except _TooSlow:
        return "hang", f"more than {SLOWEST:g} s of work, or {LONGEST_WAIT:g} s of waiting"
    except Exception as error:  # what a user would see as a traceback
        return "traceback", f"{type(error).__name__}: {error}"[:300]
    finally:
        for number, clock, _ in clocks:
            signal.setitimer(clock, 0)
            signal.signal(number, before[number])
    return ("taken", "") if case.sound and taken is not False else ("silently taken", "damage was not seen")


def trial(kind: str, make: Kind, count: int, seed: int) -> tuple[Counter[str], list[Finding], float]:
    """So many cases of a kind: how they ended, those that ended badly, CPU seconds of the slowest."""
    ends: Counter[str] = Counter()
    findings: list[Finding] = []
    slowest = 0.0
    for number in range(count):
        case = make(random.Random(f"{kind} {seed} {number}"))
        started = time.process_time()
        end, details = verdict(case)
        slowest = max(slowest, time.process_time() - started)
        ends[end] += 1
        if end not in ("taken", "refused"):
            findings.append(Finding(kind, number, case.told[:300], f"{end}: {details}"))
    return ends, findings, slowest


TOKENS = (
    "nan", ".nan", "inf", "-.inf", "1e400", "-1", "0", "", "null", "~", "true", "[]", "{}", "[[[[", "}}}}", "'", '"',
    "\x00", "\x07", "\u202e", "\ufeff", "9" * 400, "a" * 3000, "!!python/object/apply:os.system ['true']", "&a [*a]",
    "*a", "<<: *x", "${oc.env:HOME}", "${a.b}", "../../etc/passwd", "<!ENTITY a 'b'>", "\n\n", "\t", ": ", "- ", "#",
    "1_000", "0x10", "1e-400", "900GB/s", "h100", "\ud7ff", "💥", "=1+1", "__import__('os')", "{{7*7}}", "%s%n",
)  # fmt: skip


def mutated(text: bytes, rng: random.Random) -> bytes:
    """A text with one to four things wrong."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        text = rng.choice(list(_mutations(text, rng)))()
    return text


def _mutations(text: bytes, rng: random.Random) -> Iterator[Callable[[], bytes]]:
    at, other = (rng.randrange(len(text) + 1) for _ in range(2))
    low, high = min(at, other), max(at, other)
    lines = text.splitlines(keepends=True) or [b""]
    line = rng.randrange(len(lines))
    token = rng.choice(TOKENS).encode("utf-8", "surrogatepass")
    yield lambda: text[:at]
    yield lambda: text[:low] + text[high:]
    yield lambda: text[:at] + token + text[at:]
    yield lambda: text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
    yield lambda: b"".join([*lines[:line], *lines[line + 1 :]])
    yield lambda: b"".join([*lines[: line + 1], *lines[line:]])
    yield lambda: b"".join([*lines[:line], lines[line].partition(b":")[0] + b": " + token + b"\n", *lines[line + 1 :]])
    yield lambda: b"".join(rng.sample(lines, len(lines))) if len(lines) < 200 else text[:high]


def flipped(data: bytes, rng: random.Random) -> bytes:
    """An archive with bits flipped, a piece missing, zeros in it, or cut short."""
    way = rng.randrange(5)
    at = rng.randrange(len(data))
    if way == 0:
        return data[:at]
    if way == 1:
        length = rng.choice((1, 8, 512))
        return data[:at] + data[at + length :]
    if way == 2:
        length = rng.choice((1, 8, 512))
        return data[:at] + bytes(length) + data[at + length :]
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 16))):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)
