"""Failure rates of a cluster's parts, checkpointing, and the share of time that is productive."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.errors import ConfigError, suggestion
from ...core.fields import quantity, static
from ...core.jax_typed import asarray
from ...core.module import Module
from ...core.smooth import TINY, maximum, used_share
from ...core.units import HOUR_S
from .renewal import HOPELESS, best_interval_s, growth, least_growth

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

        goodput = 1 / (g s)       g: `renewal`, s = 1 + straggling sqrt(2 log n): the slowest of n devices in a step

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
