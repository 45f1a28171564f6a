"""`codesign explore [RUN | OVERRIDE ...]`."""

import sys
import webbrowser

from ..commands.remarks import say_default, warn
from ..commands.setup import prepare_jax
from ..core.errors import ConfigError
from .beginning import given

PORTS = (1024, 65535)


def explore(words: list[str], port: int = 0, *, show: bool = False) -> int:
    """Make a study ready, print the address of its page and serve it until Ctrl-C.

    Raises:
        ConfigError: bad configuration, no such run, a port that cannot be had.
    """
    if port and not PORTS[0] <= port <= PORTS[1]:
        raise ConfigError(f"--port = {port} must be from {PORTS[0]} to {PORTS[1]}")
    prepare_jax()
    result = given(words)
    if result.run is None:
        say_default(list(result.overrides))
    warn(result.study.unusual)
    print("reading the model and pricing every plan once ...", file=sys.stderr, flush=True)
    from .answers import Answerer
    from .server import run_until_stopped, server_of

    answerer = Answerer(result)
    made, address = server_of(result, port, answerer=answerer)
    print(f"{result.title}: {answerer.how}; {len(result.knobs)} sliders. Ctrl-C ends it.", file=sys.stderr)
    print(address, flush=True)
    if show:
        webbrowser.open(address)
    run_until_stopped(made)
    return 0
