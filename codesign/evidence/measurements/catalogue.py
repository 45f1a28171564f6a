"""All kinds of tables, in the order that decides between two that require as many columns."""

from .kinds_collectives import COLLECTIVE_KINDS
from .kinds_kernels import KERNEL_KINDS
from .kinds_machines import MACHINE_KINDS
from .kinds_serving import SERVING_KINDS
from .kinds_training import TRAINING_KINDS
from .schema import Schema

SCHEMAS: tuple[Schema, ...] = (*KERNEL_KINDS, *COLLECTIVE_KINDS, *TRAINING_KINDS, *SERVING_KINDS, *MACHINE_KINDS)
