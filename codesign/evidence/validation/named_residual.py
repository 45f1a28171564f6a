"""Learned factors whose names are numbers: devices, engines and formats of one structure share one program.

`hardware.Residual` finds what was learned about a kernel by the words of its chip's label, which are structure: every
device, engine and format would be traced on its own. Here the label keeps the class alone, and the chip the rows of the
network's embeddings that stand for the three other words. The factor is the same, number by number.
"""

from dataclasses import fields

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.fields import quantity
from ...model.hardware import AbstractKernel, Residual
from ...model.hardware.compute import Work
from ...model.hardware.kernels_base import AbstractChip, Chip
from ...model.hardware.residual import UNKNOWN, AbstractResidual, FittedOn, ShapeNetwork, applied, network_of

__all__ = ["NumberedResidual", "numbered"]


class NumberedChip(AbstractChip):
    """A chip and the rows of its class's embeddings: of accelerator, framework and number format."""

    accelerator_row: Float[Array, "*b"] = quantity(default=0.0)
    framework_row: Float[Array, "*b"] = quantity(default=0.0)
    format_row: Float[Array, "*b"] = quantity(default=0.0)


class NumberedResidual(AbstractResidual):
    """Learned residual, like `Residual`, for kernels that `numbered` made."""

    def factor(self, kernel: AbstractKernel, work: Work) -> Float[Array, "*b"]:
        """Factor on the seconds of launches."""
        chip = getattr(kernel, "chip", None)
        network = network_of(chip.label, self.folder) if isinstance(chip, NumberedChip) else None
        if network is None or not isinstance(chip, NumberedChip):
            return Residual(self.folder).factor(kernel, work)
        return applied(network, _context(network, chip), work, chip)


def _context(network: ShapeNetwork, chip: NumberedChip) -> Array:
    """Contribution of the three words to the first layer: a row each, chosen by a product with ones and zeros."""
    result = jnp.zeros_like(jnp.asarray(network.biases[0]))
    for rows, row in zip(network.embeddings, (chip.accelerator_row, chip.framework_row, chip.format_row), strict=True):
        chosen = jnp.equal(jnp.arange(float(len(rows))), row).astype(float)
        result = result + chosen @ jnp.asarray(rows)
    return result


def numbered(kernel: AbstractKernel, folder: str) -> AbstractKernel:
    """Copy with numbers for the words of its label; without a label where nothing was learned of its class."""
    chip = getattr(kernel, "chip", None)
    label = FittedOn.of(chip.label) if isinstance(chip, Chip) else None
    network = network_of(label.kind, folder) if label is not None else None
    if not isinstance(chip, Chip):
        return kernel
    values = {field.name: getattr(chip, field.name) for field in fields(Chip)}
    if label is None or network is None:
        return eqx.tree_at(lambda known: known.chip, kernel, Chip(**values | {"label": ""}))
    rows = [
        float(names.index(word) + 1 if word in names else UNKNOWN)
        for names, word in zip(network.names, label[1:], strict=True)
    ]
    own = NumberedChip(**values | {"label": label.kind}, **dict(zip(_ROWS, map(np.float64, rows), strict=True)))
    return eqx.tree_at(lambda known: known.chip, kernel, own)


_ROWS = ("accelerator_row", "framework_row", "format_row")
