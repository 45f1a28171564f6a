"""Failure rates of a cluster's parts, checkpointing, and the share of time that is productive."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.errors import ConfigError, suggestion
from ...core.fields import Module, quantity, static
from ...core.jax_typed import asarray
from ...core.smooth import TINY, maximum, operation, used_share
from ...core.units import HOUR_S

# Cost of failures and checkpoints: how much longer a job takes that begins again from its last checkpoint.
#
# With failures at a rate r, work w between checkpoints of c seconds, and R seconds until work begins again, each able
# to fail once more, a stretch of w takes on average
#
#     exp(r R) (exp(r (w + c)) - 1) / r
#
# so that time grows by exp(r R) times `growth(r (w + c))` times (w + c) / w. It is least where
# w / M = 1 - exp(-(w + c) / M), M = 1 / r; there it is exp(r R) times `least_growth(r c)`. To first order
# w = sqrt(2 c M) and 1 + sqrt(2 c / M) + R / M.
#
# Log-convex in r, R, c and w together: (exp(x) - 1) / r is a series of products of powers with positive factors; and
# in r, R, c where w is the best, as least over w of what is convex in the logarithms together.
#
# Assumes: failures come at a constant rate, whatever has happened before; those during a checkpoint lose the stretch.
# Source: [daly2006] equation 16; [young1974].


LEAST = 1e-16  # of a checkpoint's time over the time between failures
HOPELESS = 60.0  # of an exponent: a job that takes e^60 times as long, and all beyond, never ends
STEPS = 6  # of Newton's method from above, where each squares the error: 4e-16 over the whole range after five


@operation
def growth(x: Any) -> Float[Array, "..."]:
    """(exp(x) - 1) / x, 1 at 0: its logarithm is convex in that of x; constant beyond x = 60."""
    some = jnp.clip(x, TINY, HOPELESS)
    return jnp.expm1(some) / some


@operation
def least_growth(a: Any) -> Float[Array, "..."]:
    """By how much checkpoints and work done twice lengthen a job at the best interval: y >= 1, 1 / y + log y = 1 + a.

    a is the time of a checkpoint over the mean time between failures. Newton's method for z = log y on
    exp(-z) + z - 1 = a from above, where the left side is convex and rising; one step more carries the slope. Constant
    below a = 1e-16, where it is 1 to eight digits and its slope grows without end, and beyond 60.
    """
    wanted = jnp.clip(a, LEAST, HOPELESS)
    z = jax.lax.stop_gradient(wanted + jnp.sqrt(2 * wanted))
    for _ in range(STEPS):
        z = z - jax.lax.stop_gradient((_excess(z) - wanted) / -jnp.expm1(-z))
    z = jax.lax.stop_gradient(z)
    return jnp.exp(z + (wanted - jax.lax.stop_gradient(wanted)) / -jnp.expm1(-z))


def _excess(z: Any, numbers: Any = jnp) -> Any:
    """exp(-z) - 1 + z, without what cancels where z is small."""
    small = z * z * (0.5 - z * (1 / 6 - z * (1 / 24 - z * (1 / 120 - z / 720))))
    return numbers.where(z < 0.02, small, numbers.expm1(-z) + z)


def best_growth(a: float) -> float:
    """`least_growth` of one number, without arrays."""
    wanted = min(max(a, LEAST), HOPELESS)
    z = wanted + math.sqrt(2 * wanted)
    for _ in range(STEPS):
        z -= (float(_excess(z, np)) - wanted) / -math.expm1(-z)
    return math.exp(z)


def best_interval_s(rate_hz: Array | float, checkpoint_s: Array | float) -> Array:
    """Seconds of work between checkpoints for which a job takes least: M (1 - 1 / y), y = `least_growth`.

    At the optimum exp(-(w + c) / M) = 1 - w / M, and the time has grown by exp((w + c) / M) = y.
    """
    return (1 - 1 / least_growth(rate_hz * checkpoint_s)) / rate_hz


def young_interval_s(rate_hz: Array | float, checkpoint_s: Array | float) -> Array | float:
    """Best interval to first order, sqrt(2 c M), for checkpoints that are short beside the time between failures."""
    return (2 * checkpoint_s / rate_hz) ** 0.5


STORES = ("storage", "host", "pool")
WELL = 3.0  # standard deviations of parts under repair that spares should cover


class Failure(Module):
    """One kind of failure: of a part that serves `devices_each` devices, every `mtbf_hours` of its time.

    `lost_s` is work lost beyond that since the last checkpoint: an error that is silent is found late. `replaced`: 1
    where the devices of the part are taken out for repair, 0 where the same ones go on.
    """

    mtbf_hours: Float[Array, "*b"] = quantity(low=1e-3, doc="of one part; mean time between failures")
    devices_each: Float[Array, "*b"] = quantity(low=1.0, default=1.0, doc="devices that fail with it")
    lost_s: Float[Array, "*b"] = quantity(default=0.0, doc="until an error that is silent is found")
    replaced: Float[Array, "*b"] = quantity(high=1.0, default=1.0, doc="share of these that need repair")

    def rate_hz(self, devices: Array) -> Array:
        """Failures a second among so many devices."""
        return devices / self.devices_each / (self.mtbf_hours * HOUR_S)


class Reliability(Module):
    """Failures of the parts that a job runs on, checkpoints and restarts.

        goodput = 1 / (g s)       g: of renewals, s = 1 + straggling sqrt(2 log n): the slowest of n devices in a step

    A checkpoint takes what storage takes, or the link to the host's memory, from where a copy goes to another host
    over the outermost network, or the way to a pool that outlives it; it is read back as fast. Without `interval_s`
    checkpoints are kept at the best interval, and 1 / goodput is log-convex in rates, times and bandwidths: a
    posynomial under an exponential, times `least_growth`.

    Where there are no spares a failed part is waited for (`repair_s`). Spares are bought, powered and idle; the used
    share `spares` says whether they cover parts under repair three standard deviations above their mean.

    Assumes: failures are independent and of constant rate; all devices stop with any of them; checkpoints stop the work
    but for the share `behind`; a second failure of the host that keeps the copy is not counted; times of devices are
    normal and independent from step to step, where they straggle; there is room for one checkpoint in the pool.
    Source: [daly2006]; [young1974]; of copies on other hosts [wang2023gemini].
    """

    failures: dict[str, Failure]
    restart_s: Float[Array, "*b"] = quantity(
        default=600.0,
        doc="from a failure until work begins again, but for what is read",
        usual=(30.0, 7200.0, "restarts that were published"),
    )
    storage_bytes_per_s: Float[Array, "*b"] = quantity(
        low=1.0, default=1e12, doc="of the whole cluster", usual=(1e9, 1e13, "published storage of clusters")
    )
    interval_s: Float[Array, "*b"] | None = quantity(
        low=1e-3, default=None, doc="of work between checkpoints; the best"
    )
    behind: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="share of a checkpoint hidden behind work")
    spare_ratio: Float[Array, "*b"] = quantity(high=10.0, default=0.02, doc="spares over devices at work")
    repair_s: Float[Array, "*b"] = quantity(default=86400.0, doc="until a failed part is back")
    straggling: Float[Array, "*b"] = quantity(
        high=1.0, default=0.0, doc="standard deviation of a device's time of a step"
    )
    store: str = static(default="storage")

    def rates_hz(self, devices: Array) -> dict[str, Array]:
        """Failures a second by kind."""
        return {name: failure.rate_hz(devices) for name, failure in self.failures.items()}

    def rate_hz(self, devices: Array) -> Array:
        """Failures a second of any kind."""
        return sum(self.rates_hz(devices).values(), asarray(0.0))

    def written_s(
        self,
        saved_bytes: Array,
        devices: Array,
        host_bytes_per_s: Array,
        network_bytes_per_s: Array,
        pool_s_per_byte: Array | None = None,
    ) -> Array:
        """Seconds to put `saved_bytes` of all devices together where they are kept, and to read them.

        Args:
            saved_bytes: once, whatever replicas hold.
            devices: that write, each its share.
            host_bytes_per_s: of a device to its host.
            network_bytes_per_s: of a device on the outermost network.
            pool_s_per_byte: of a device to memory that outlives it, where there is such.

        Raises:
            ConfigError: checkpoints go to a pool, and there is none.
        """
        each = saved_bytes / devices
        if self.store == "pool":
            if pool_s_per_byte is None:
                raise ConfigError(
                    "cluster.reliability.store = 'pool' needs memory that outlives a device, such as"
                    " memory=photonic_pool; this accelerator has its own alone (storage and host are the others)"
                )
            return each * pool_s_per_byte
        if self.store == "host":
            return maximum(each / host_bytes_per_s, each / network_bytes_per_s)
        return maximum(saved_bytes / self.storage_bytes_per_s, each / host_bytes_per_s)

    def stopped(self, devices: Array, read_s: Array) -> Array:
        """Elapsed time over that at work and in checkpoints: restarts, waits for repairs, errors found late.

        exp(r R) (1 + sum over kinds of rate * (what is lost with each, and waited for)); a restart can fail again,
        what is waited for or found late comes with each failure.
        """
        extra = asarray(1.0)
        wait = jnp.where(self.spare_ratio > 0, 0.0, self.repair_s)
        for name, rate in self.rates_hz(devices).items():
            failure = self.failures[name]
            extra = extra + rate * (failure.lost_s + failure.replaced * wait)
        return jnp.exp(jnp.minimum(self.rate_hz(devices) * (self.restart_s + read_s), HOPELESS)) * extra

    def stretched(self, devices: Array, written_s: Array) -> Array:
        """Time of a job over its time without failures: 1 / goodput."""
        rate, stop = self.rate_hz(devices), (1 - self.behind) * written_s
        if self.interval_s is None:
            lost = least_growth(rate * stop)
        else:
            between = self.interval_s + stop
            lost = growth(rate * between) * between / self.interval_s
        slowest = 1 + self.straggling * (2 * jnp.log(jnp.maximum(devices, 1.0))) ** 0.5
        return slowest * self.stopped(devices, written_s) * lost

    def best_interval_s(self, devices: Array, written_s: Array) -> Array:
        """Seconds of work between checkpoints: those given, else the best."""
        rate = self.rate_hz(devices)
        return best_interval_s(rate, (1 - self.behind) * written_s) if self.interval_s is None else self.interval_s

    def limits(self, devices: Array) -> dict[str, Array]:
        """Used share of the spares; nothing is used where there are none, since failed parts are waited for."""
        repaired = asarray(0.0)
        for name, rate in self.rates_hz(devices).items():
            failure = self.failures[name]
            repaired = repaired + rate * failure.replaced * self.repair_s * failure.devices_each
        wanted = repaired + WELL * (repaired + TINY) ** 0.5
        return {"spares": jnp.where(self.spare_ratio > 0, used_share(wanted, self.spare_ratio * devices), 0.0)}

    def __check_init__(self) -> None:
        """A place for checkpoints that exists; something that fails."""
        if self.store not in STORES:
            raise ConfigError(
                f"store = {self.store!r} is not one of {', '.join(STORES)}{suggestion(self.store, STORES)}"
            )
        if not self.failures:
            raise ConfigError("failures is empty: name at least one kind, or leave reliability out (reliability=null)")

    @classmethod
    def example(cls) -> "Reliability":
        """One kind."""
        return cls({"device": Failure(asarray(50000.0))})
