"""By how much measured times differ from predicted ones: factors that a draw of errors puts on a scenario.

Errors of a class of operations are shared by all its launches, those of a source (machine, framework, whoever measured)
by everything that runs. A scenario without doubts is the model itself; with them it is the same model under one draw.
"""

from jaxtyping import Array, Float

from ..core.fields import Module, quantities, quantity
from ..core.jax_typed import asarray


class ErrorFactors(Module):
    """Measured over predicted, of one draw: classes of kernels, collective operations, and what is seen from outside.

    kernels: `class number_format` or `class` -> factor; collectives: operation -> factor; what has no entry is
    taken as predicted. source multiplies all times, first_token the time to the first token once more, energy all
    energy.
    """

    kernels: dict[str, Float[Array, "*b"]] = quantities()
    collectives: dict[str, Float[Array, "*b"]] = quantities()
    source: Float[Array, "*b"] = quantity(default=1.0)
    first_token: Float[Array, "*b"] = quantity(default=1.0)
    energy: Float[Array, "*b"] = quantity(default=1.0)

    def of_kernel(self, kind: str, number_format: str) -> Array:
        """Factor on the seconds of a launch."""
        result = self.kernels.get(f"{kind} {number_format}", self.kernels.get(kind))
        return self.source if result is None else self.source * result

    def of_collective(self, operation: str) -> Array:
        """Factor on the seconds of a collective."""
        return self.source * self.collectives.get(operation, asarray(1.0))

    def of_first_token(self, extra: dict[str, Array]) -> dict[str, Array]:
        """Metrics of this kind of job, first tokens as in this draw: percentiles err as means do (assumed)."""
        if "ttft_s" not in extra:
            return extra
        later = (self.first_token - 1) * extra["ttft_s"]
        factors = dict(extra)
        for name, value in extra.items():
            if name.startswith("ttft_"):
                factors[name] = value * self.first_token
            elif name.startswith("e2e_"):
                factors[name] = value + later
        return factors
