"""What `attack.py` asks of a family: goals and limits as names, expressions and Python, log-convex or not by the way
they are made, with cliffs beside the optimum and limits that nearly cannot hold.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from attack_studies import Family, Survey

from codesign import Certified, Integer, Inverse, Metrics, Objective
from codesign.core import largest, maximum

LOG_CONVEX, NOT, UNKNOWN = "log-convex", "not", "unknown"
PROOF = Certified(seconds=60.0, batch_size=128, plans_per_round=256, top_k=8, convexity_samples=256, explain=False)
Custom = Callable[[Metrics], Any]


class Form(NamedTuple):
    """A quantity: the text of an expression, or a function; its truth by construction, and what it is called."""

    quantity: str | Custom
    truth: str
    name: str


@dataclass
class Asked:
    """One study of a family: its objective and search; places: designs (plan fields, coordinates) around which cliffs
    or limits were put; listed: variable -> values that it may have.
    """

    objective: Objective
    search: Any
    truth: str
    form: str
    places: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    listed: dict[str, list[float]] = field(default_factory=dict)


class Draw:
    """Random numbers and metrics of one member, each metric over its least value."""

    def __init__(self, rng: np.random.Generator, found: Survey):
        self.rng, self.found = rng, found
        self.names = [str(name) for name in rng.permutation(list(found.least))]
        self.a, self.b, self.c = (self.names[i % len(self.names)] for i in range(3))
        self.weight = (10 ** rng.uniform(-2, 2, 3)).tolist()
        self.power = np.round(rng.uniform(0.2, 2.5, 3), 3).tolist()

    def least(self, name: str) -> float:
        return self.found.least[name][0]

    def of(self, m: Metrics, name: str) -> Any:
        return m.get(name) / self.least(name)

    def three(self, m: Metrics) -> tuple[Any, Any, Any]:
        return self.of(m, self.a), self.of(m, self.b), self.of(m, self.c)

    def had(self, name: str, rng: np.random.Generator) -> float:
        """What a metric has in the optimum of the first one, or its own least."""
        at = int(self.found.values[self.names[0]].argmin())
        return float(self.found.values[name][at]) if rng.uniform() < 0.85 else self.least(name)

    def edge(self, name: str) -> float:
        """Where a cliff of a metric stands: beside its least, beside what another's optimum has, or anywhere."""
        least, seen = self.least(name), np.log(self.found.values[name])
        kind = self.rng.uniform()
        if kind < 0.5:
            return least * (1 + 10 ** self.rng.uniform(-3, -1.7))
        if kind < 0.8:
            other = self.found.values[self.a]
            at = float(self.found.values[name][int(other.argmin())])
            return at * (1 + float(self.rng.choice([-1, 1])) * 10 ** self.rng.uniform(-3, -1.7))
        return float(np.exp(np.quantile(seen, self.rng.uniform(0.02, 0.5))))


def smooth_forms(d: Draw) -> list[Form]:
    """Log-convex by construction."""
    (v, w, x), (p, q, r) = d.weight, d.power
    scale = {name: f"({name} / {d.least(name)!r})" for name in (d.a, d.b, d.c)}
    a, b, c = (scale[name] for name in (d.a, d.b, d.c))
    constants = _constant_of_plan

    def posynomial(m: Metrics) -> Any:
        f, g, h = d.three(m)
        return v * f**p * g**q + w * h + x * maximum(f * h, g**r)

    def arrays(m: Metrics) -> Any:
        parts = jnp.stack([v * f for f in d.three(m)])
        return jnp.max(parts) + jnp.dot(jnp.array([w, x, 1.0]), parts) + largest(parts[1:])

    def mean(m: Metrics) -> Any:
        f, g, h = d.three(m)
        return jnp.exp((v * jnp.log(f) + w * jnp.log(g) + x * jnp.log(h)) / (v + w + x)) + 0.1 * f

    def norm(m: Metrics) -> Any:
        return jnp.linalg.norm(jnp.stack([v * f for f in d.three(m)])) + jnp.cumsum(jnp.stack(d.three(m)))[-1]

    def by_plan(m: Metrics) -> Any:
        f, g, _ = d.three(m)
        return jnp.where(constants(m) % 1.0 > 0.5, v * f + g, jnp.maximum(f, w * g))

    def picked_by_plan(m: Metrics) -> Any:
        f, g, h = d.three(m)
        place = (constants(m) % 1.0 * 3).astype(int)
        return jnp.stack([(1 + v) * f + g, f, (1 + w) * f + h])[place]

    texts = [
        Form(d.a, LOG_CONVEX, "metric"),
        Form(f"{v:.4g} * {a} ** {p} * {b} ** {q} + {w:.4g} * {c}", LOG_CONVEX, "expression"),
        Form(f"max({v:.4g} * {a}, {b} * {c}) + sqrt({a} * {b})", LOG_CONVEX, "expression of maxima"),
    ]
    functions = (posynomial, arrays, mean, norm, by_plan, picked_by_plan)
    return texts + [Form(function, LOG_CONVEX, function.__name__) for function in functions]


def _constant_of_plan(m: Metrics) -> Any:
    """Some number that the plan alone decides."""
    return sum((3 + k) * m.memory_bytes[name] for k, name in enumerate(sorted(m.memory_bytes))) / 1e9 * 0.037


def _borrowed(a: Any, b: Any) -> Any:
    return jnp.where(a < 1, 0.6 * b, b)


_borrowed.__name__ = "codesign.at_least"


def cliff_forms(d: Draw) -> list[Form]:
    """Not log-convex: a part of the designs is better, or worse, at once; written in many ways."""
    edge = d.edge(d.b) / d.least(d.b)
    bonus = float(d.rng.choice([0.3, 0.9, 0.99, 1.5]))
    inside, value = lambda m: d.of(m, d.b) < edge, lambda m: d.of(m, d.a)

    def stepped(m: Metrics) -> Any:
        return value(m) * jnp.where(inside(m), bonus, 1.0)

    def slices(m: Metrics) -> Any:
        parts = jnp.stack([value(m), bonus * value(m)])
        return jnp.where(inside(m), parts[1], parts[0])

    def reversed_(m: Metrics) -> Any:
        parts = jnp.stack([value(m), bonus * value(m)])
        return jnp.where(inside(m), parts[::-1], parts)[0]

    def truth(m: Metrics) -> Any:
        return value(m) * (1 - (1 - bonus) * inside(m))

    def places(m: Metrics) -> Any:
        return jnp.stack([value(m), bonus * value(m)])[inside(m).astype(int)]

    def sign(m: Metrics) -> Any:
        return value(m) * (1 + 0.5 * abs(1 - bonus) * jnp.sign(d.of(m, d.b) - edge))

    def stairs(m: Metrics) -> Any:
        return value(m) * (1 + 0.05 * jnp.floor(d.of(m, d.b) / edge * 4))

    def rounded(m: Metrics) -> Any:
        return jax.lax.reduce_precision(value(m) * 1.03, 8, int(20 * bonus) % 6)

    def half(m: Metrics) -> Any:
        return (value(m) * 1.03).astype(jnp.float16).astype(float)

    def branches(m: Metrics) -> Any:
        return jax.lax.cond(inside(m), lambda x: bonus * x, lambda x: x, value(m))

    def borrowed(m: Metrics) -> Any:
        return jax.jit(_borrowed)(d.of(m, d.b) / edge, value(m))

    def overflow(m: Metrics) -> Any:
        huge = jnp.exp(1e4 * (d.of(m, d.b) / edge - 1)) * jnp.exp(700.0)
        return jnp.where(huge * 0.0 >= 0, bonus * value(m), value(m))

    def filled(m: Metrics) -> Any:
        return value(m) + jnp.take(jnp.stack(d.three(m)), 7, mode="fill", fill_value=-0.3) * d.of(m, d.b) ** 0.5 / edge

    def sharp_maximum(m: Metrics) -> Any:
        wide = maximum(value(m), d.of(m, d.b) / edge)
        return jnp.where(wide >= 1.0, value(m), 10 * value(m))

    functions = (
        *(stepped, slices, reversed_, truth, places, sign, stairs, rounded, half, branches, borrowed, overflow, filled),
        sharp_maximum,
    )
    return [Form(function, NOT, function.__name__.strip("_")) for function in functions]


def bent_forms(d: Draw) -> list[Form]:
    """Not log-convex, but continuous: differences, minima, quotients, sorted and wavy ones."""
    (v, w, _), a, b = d.weight, d.a, d.b
    share = float(d.rng.uniform(0.05, 0.9))

    def difference(m: Metrics) -> Any:
        return d.of(m, a) * 1.5 - share * jnp.minimum(d.of(m, b), 1.4)

    def least(m: Metrics) -> Any:
        return jnp.minimum(v * d.of(m, a), w * d.of(m, b)) + 0.01 * d.of(m, a)

    def distance(m: Metrics) -> Any:
        return 0.1 * d.of(m, a) + jnp.abs(d.of(m, b) - 1 - share)

    def quotient(m: Metrics) -> Any:
        return d.of(m, a) ** 2 / (d.of(m, b) + share)

    def wave(m: Metrics) -> Any:
        return d.of(m, a) * (1.2 + jnp.sin(20 * jnp.log(d.of(m, b))))

    def second(m: Metrics) -> Any:
        return jnp.sort(jnp.stack(d.three(m)))[1]

    def first(m: Metrics) -> Any:
        parts = jnp.stack([v * d.of(m, a), w * d.of(m, b)])
        return parts[jnp.argmin(parts)]

    def clipped(m: Metrics) -> Any:
        return jnp.clip(d.of(m, a), 1.0, 1 + share) * d.of(m, b) ** 0.1

    scale = {name: f"({name} / {d.least(name)!r})" for name in (a, b)}
    texts = [
        Form(f"min({v:.4g} * {scale[a]}, {w:.4g} * {scale[b]})", NOT, "expression of minima"),
        Form(f"{scale[a]} * 3 - {share:.3f} * {scale[b]} ** 0.5", NOT, "expression of a difference"),
    ]
    functions = (difference, least, distance, quotient, wave, second, first, clipped)
    return texts + [Form(function, NOT, function.__name__) for function in functions]


def member(given: Family, seed: int, number: int) -> Asked:
    """The study of this number in a family: its goal, its limits, and how it is searched."""
    rng = np.random.default_rng([seed, given.number, number, 13])
    d = Draw(rng, given.survey)
    kind = rng.uniform()
    forms = smooth_forms(d) if kind < 0.5 or number == 0 else cliff_forms(d) if kind < 0.8 else bent_forms(d)
    goal = forms[0] if number == 0 else forms[rng.integers(len(forms))]
    limits, floors, custom, truths = {}, {}, {}, [goal.truth]
    for name in d.names[: int(rng.integers(0, 4))]:
        limits[name] = d.edge(name) if rng.uniform() < 0.15 else d.had(name, rng) * _room(rng)
    if rng.uniform() < 0.15 and "time_s" in d.names:
        floors["tokens_per_s"] = _tokens(given) / (d.least("time_s") * _room(rng)) if _tokens(given) else 1.0
    if rng.uniform() < 0.2:
        some = (smooth_forms if rng.uniform() < 0.5 else cliff_forms)(Draw(rng, given.survey))
        limit = some[rng.integers(3, len(some))]
        custom["limited"], limits["limited"] = limit.quantity, 10 ** float(rng.uniform(0, 1.5))
        truths.append(limit.truth)
    if callable(goal.quantity):
        custom["wanted"] = goal.quantity
    minimise = "wanted" if callable(goal.quantity) else goal.quantity
    objective = Objective(minimise, limits=limits, floors=floors, custom=custom)
    search, listed = _search(given, objective, rng)
    if isinstance(search, Inverse):
        truths[0] = LOG_CONVEX
    truth = NOT if NOT in truths else LOG_CONVEX if given.convex else UNKNOWN
    name = goal.name + (f" under {', '.join([*limits, *floors])}" if limits or floors else "")
    return Asked(objective, search, truth, name, [place[1:] for place in given.survey.least.values()], listed)


def _room(rng: np.random.Generator) -> float:
    """A limit over what is least: mostly it leaves a tenth of a per cent to some per cent, sometimes nothing."""
    return 0.995 if rng.uniform() < 0.06 else 1 + 10 ** float(rng.uniform(-3, -0.3))


def _tokens(given: Family) -> float:
    """Tokens of a step, where that is the same for all plans."""
    values = given.survey.values
    if not {"time_s", "energy_j", "joules_per_token"} <= set(values):
        return 0.0
    tokens = values["energy_j"] / values["joules_per_token"]
    return float(tokens[0]) if np.ptp(tokens) < 1e-9 * tokens[0] else 0.0


def _search(given: Family, objective: Objective, rng: np.random.Generator) -> tuple[Any, dict[str, list[float]]]:
    """Most by `certified`; the least or most of one number; some numbers listed or counted."""
    names, kind = given.space.names, rng.uniform()
    if kind < 0.15 and (objective.limits or objective.floors) and len(names) > 1:
        return Inverse(str(rng.choice(names)), maximise=bool(rng.uniform() < 0.3), proof=PROOF), {}
    if kind < 0.27 and len(names) > 1 and given.space.combinations < 20_000:
        name = str(rng.choice(names))
        variable = given.space.hardware[name]
        values = np.geomspace(variable.low, variable.high, int(rng.integers(2, 4))).tolist()
        return Integer(allowed_values={name: values}, proof=PROOF), {name: values}
    return PROOF, {}
