"""`runner=ray`: tasks on a Ray cluster, one that runs already or one of this machine that nobody else reaches."""

import functools
import os
import pickle
import secrets
import socket
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError
from .base import TICK_S, AbstractRunner, Reply, Result, Task, lost, needed, packed, packed_reply_to, search_path

AHEAD = 2  # tasks of each worker under way or waiting on the cluster: none waits for this process in between
STORE_BYTES = 128 * 2**20  # of a cluster of this machine: what goes through it is kilobytes a task
PATIENCE_S = 5.0  # for somebody to answer
TOKENS = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Ray then takes 127.0.0.1 for the address of this machine, on every system; read when Ray is imported."""

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@dataclass(frozen=True)
class RayCluster(AbstractRunner):
    """Ray Core: a lost worker's or a lost node's tasks are computed again elsewhere.

    Every connection carries a token (`RAY_AUTH_MODE=token`): that of the cluster, in `RAY_AUTH_TOKEN` or
    `RAY_AUTH_TOKEN_PATH`, or a fresh one for a cluster of this machine.

    Args:
        address: of a cluster that runs, such as `10.0.0.7:6379` or `auto`; empty: one of this machine, for this search.
        workers: tasks under way at the same time; None for as many as the cluster has processors.
        chunk_s: seconds that one task should take.
        retries: times that Ray gives a task to another worker after its own was lost.
    """

    address: str = ""
    workers: int | None = None
    chunk_s: float = 10.0
    retries: int = 3

    def __post_init__(self) -> None:
        """Settings that can be kept."""
        self.check()

    def refuse(self) -> None:
        """Ray is not installed; of a cluster that runs: nobody answers there, or no token for it."""
        if find_spec("ray") is None:
            raise needed("ray", "ray")
        if not self.address:
            return
        has_token = Path("~/.ray/auth_token").expanduser().is_file() or TOKENS & os.environ.keys()
        if not has_token and os.environ.get("RAY_AUTH_MODE", "token") == "token":
            raise ConfigError(
                f"runner.address = {self.address!r}: set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the token of the "
                "cluster (RAY_AUTH_MODE=disabled where it has none)"
            )
        host, _, port = self.address.rpartition(":")
        if host and port.isdigit():
            try:
                socket.create_connection((host, int(port)), PATIENCE_S).close()
            except OSError as error:
                reason = error.strerror or error
                raise ConfigError(f"runner.address = {self.address!r}: nobody answers there: {reason}") from error

    def results(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Generator[Result | None, None, None]:
        """Yield results as they complete; None while none is ready.

        Raises:
            ConfigError: no such cluster, or work that cannot be sent.
            CodesignError: a task that workers do not survive.
        """
        sent = packed(work)
        if not tasks:
            return
        with self._cluster() as ray:
            remote = ray.remote(max_retries=self.retries, scheduling_strategy="SPREAD", num_cpus=1)(packed_reply_to)
            shared, waiting = ray.put(sent), deque(tasks)
            pending: dict[Any, Any] = {}
            most = AHEAD * (self.workers or int(ray.cluster_resources().get("CPU", 1)))
            while waiting or pending:
                while waiting and len(pending) < most:
                    task = waiting.popleft()
                    pending[remote.remote(shared, task)] = task
                ready, _ = ray.wait(list(pending), num_returns=1, timeout=TICK_S)
                if not ready:
                    yield None
                for reference in ready:
                    yield _got(ray, reference, pending.pop(reference), self.retries).result()

    @contextmanager
    def _cluster(self) -> Generator[Any, None, None]:
        """Ray, connected; what was started here is ended here."""
        self.refuse()
        before = dict(os.environ)
        os.environ.update(_settings(alone=not self.address))
        ray: Any = import_module("ray")
        started = not ray.is_initialized()
        try:
            if started:
                self._connect(ray)
            yield ray
        finally:
            if started:
                ray.shutdown()
            for name in os.environ.keys() - before.keys():
                del os.environ[name]
            os.environ.update(before)

    def _connect(self, ray: Any) -> None:
        """To the cluster, or to a new one of this machine.

        Raises:
            ConfigError: there is none.
        """
        here = {"num_cpus": self.count, "object_store_memory": STORE_BYTES, "include_dashboard": False}
        try:
            where = {"address": self.address} if self.address else here
            ray.init(log_to_driver=False, logging_level="ERROR", **where)
        except (ray.exceptions.RayError, RuntimeError, ValueError, OSError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise ConfigError(f"runner.address = {self.address!r}: no cluster of Ray: {lines[0]}") from error

    @classmethod
    def example(cls) -> "RayCluster":
        """Two workers of this machine."""
        return cls(workers=2, chunk_s=1.0)


def _settings(alone: bool) -> dict[str, str]:
    """Settings of the environment, which Ray and its workers read."""
    result = QUIET | {"RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE", "token")}
    if not alone:
        return result
    if not TOKENS & os.environ.keys():
        result["RAY_AUTH_TOKEN"] = _stored_token()
    return result | LOOPBACK | {"PYTHONPATH": search_path()}


@functools.cache
def _stored_token() -> str:
    """One for this process: Ray reads it once."""
    return secrets.token_hex(32)


def _got(ray: Any, reference: Any, task: Any, retries: int) -> Reply:
    """The reply to a task.

    Raises:
        CodesignError: its workers were lost.
    """
    try:
        return pickle.loads(ray.get(reference))
    except ray.exceptions.RayError as error:
        raise lost("ray", task, retries + 1) from error
