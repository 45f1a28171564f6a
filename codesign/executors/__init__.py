"""Runners: the parts of one search on processes of this machine, on a Ray cluster, on a Slurm cluster."""

from .base import AbstractRunner as AbstractRunner
from .base import Result as Result
from .base import Task as Task
from .local import Local as Local
from .local import Serial as Serial
from .ray_cluster import RayCluster as RayCluster
from .slurm import Slurm as Slurm

__all__ = ["AbstractRunner", "Local", "RayCluster", "Result", "Serial", "Slurm", "Task"]
