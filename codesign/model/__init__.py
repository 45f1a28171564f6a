"""The model of a cluster and its work: hardware, networks, workloads, and what a scenario costs."""

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from .network_traffic import sent_per_step
    from .scenario import Cluster, Facility, Host, Scenario
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = ["Cluster", "Facility", "Host", "Scenario", "sent_per_step"]
