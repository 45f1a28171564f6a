"""Waiting time of prompts for engines that fill their steps with as many as there is room for.

A step takes s of its own and b for each prompt in it, N at most: T = s + b alone, P = s / N + b for each in full steps.
x engines take prompts from one queue, each l of them a second. Those that come while all engines are at work are in the
next step that begins, together: the more come, the longer are steps. With S a step and n prompts in it, a = l E[S]
those that come between two ends of steps, none with probability p, r = l b, w the probability that all engines are at
work, and z the squared variation of times between ends, 0 of one engine, (x - 1) / (x + 1) of engines that do not know
of each other,

    w = (a / E[n])^k,  k = sqrt(2 (x + 1)) - 1,  p = (1 + z a)^(-1 / z)
    1 / E[n] = 1 - w + w (1 - p) / a,  E[S] = s + b E[n]
    m = w E[n] / a,  c = 1 + z - 1 / x
    E[S^2] = (s^2 + 2 s b E[n] + b^2 (1 - m (1 - p) + m a (g^2 + c a) + v^2 E[n])) / (1 - r^2 m / x)
    G = w (c E[S] + E[S^2] / (x E[S])) (1 / (2 x) + r)

G is the rest of a step that runs and what those add who come into the same step; g, v vary gaps between arrivals and
prompts. Where N is large there is nothing else to wait for; where N = 1 it is the queue of prompts one after the other,
Q(P); between them

    W = (1 - 1 / N) (G - Q(b)) + Q(P) + B,    Q(t) = (l t)^k / (x (1 - l t)) t (g^2 + v^2) / 2
    B = rho^(1 - 1 / x + k (2 - 1 / N)) phi F / (2 N),    rho = l P

W is exact for one engine where N = 1 and no prompt has a rest; else it is near: G for one engine but for p alone,
and by z and w for more. B is for those who share the last step of a prompt that is no multiple of a step, phi of them,
in full steps of F. Chosen against 96 simulations, not derived: how W goes from one end to the other, the power of the
load in B, and how W is drawn for percentiles (within a step where all engines are at work, else exponential).

Source: closed form of this package, held against `simulation.serving.simulate_apart`; Q and w [sakasegawa1977].
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ...core.smooth import TINY, at_least, at_most
from .steady_state import FULLEST

__all__ = ["Filling", "Waits", "waits_of"]

ROUNDS = 8  # of the fixed point of E[n]; chosen against the same simulations


class Filling(NamedTuple):
    """Steps of an engine: seconds of a mean prompt alone, of one in full steps, of a full step; prompts in a full step,
    at least 1; share of prompts that are no multiple of a step."""

    alone_s: Array
    filled_s: Array
    step_s: Array
    room: Array
    rests: Array


class Waits(NamedTuple):
    """Mean seconds until a step begins and for those who share it, within its length; probability of waiting in a
    queue, mean seconds of those that do; share of full steps that is used: too much at 1."""

    gate_s: Array
    late: Array
    queue_s: Array
    load: Array

    @property
    def mean(self) -> Array:
        """Mean wait of all requests, seconds."""
        return self.gate_s + self.late * self.queue_s


def waits_of(steps: Filling, rate: Array, engines: Array, arrival_cv: Array, own_cv2: Array) -> Waits:
    """Waits of a prompt beyond the steps it takes alone.

    Args:
        steps: of one engine.
        rate: prompts/s of all engines.
        engines: how many there are.
        arrival_cv: variation of gaps between arrivals.
        own_cv2: squared variation of seconds of prompts.
    """
    asked = rate * steps.filled_s / engines
    each = at_most(asked, FULLEST) / steps.filled_s
    power, varied = jnp.sqrt(2 * (engines + 1)) - 1, arrival_cv**2 + own_cv2
    more = 1 - 1 / steps.room
    one = at_least((steps.filled_s - steps.alone_s / steps.room) / at_least(more, 1e-9), 0.0)
    one = at_most(at_most(one, steps.filled_s), steps.alone_s)
    start, load = steps.alone_s - one, each * one
    mixed = (engines - 1) / (engines + 1)
    apart, count = 1 + mixed - 1 / engines, at_least(each * start / (1 - load), 1.0)
    step = start + one * count
    for _ in range(ROUNDS):
        come = each * step
        waiting = at_most(come / count, 1.0) ** power
        count = 0.5 * (count + 1 / (1 - waiting + waiting * _some(come, mixed)))
        step = start + one * count
    come = each * step
    waiting = at_most(come / count, 1.0) ** power
    alone = 1 - count * waiting * _some(come, mixed)  # share of steps that begin when somebody comes
    even = count * waiting * (arrival_cv**2 + apart * come)
    square = start**2 + 2 * start * one * count + one**2 * (alone + even + own_cv2 * count)
    square = square / (1 - load**2 * count * waiting / (engines * come))
    gap = apart * step + square / (engines * step)
    gate = waiting * gap * (0.5 / engines + load)
    full = each * steps.filled_s
    late = full**power
    behind = full ** (1 - 1 / engines) * late ** (1 + more)  # a queue, not only engines at work
    beside = behind * steps.step_s * steps.rests / (2 * steps.room)
    gated = more * at_least(gate - load**power * _queue(one, load, engines, varied), 0.0)
    gate, queue = gated + beside, late * _queue(steps.filled_s, full, engines, varied)
    few = (1 - waiting) * gated  # of few who wait some wait long
    often = (late * queue + waiting * few) / at_least(queue + few, TINY)
    return Waits(gate - few, often, (queue + few) / at_least(often, TINY), asked)


def _some(come: Array, mixed: Array) -> Array:
    """Probability over mean of those who come between two ends of steps, that there are any."""
    few = come < 1e-6
    come = jnp.where(few, 1.0, come)
    log = jnp.where(mixed > 0, jnp.log1p(mixed * come) / jnp.where(mixed > 0, mixed, 1.0), come)
    return jnp.where(few, 1.0, -jnp.expm1(-log) / come)


def _queue(seconds: Array, load: Array, engines: Array, varied: Array) -> Array:
    """Mean wait of those that wait for an engine that takes one after the other."""
    return seconds / (engines * (1 - load)) * varied / 2
