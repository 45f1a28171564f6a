"""Plain questions from Python: what `codesign serve` and `codesign train` answer, as a table."""

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path

from ..core.errors import ConfigError
from ..report.side_by_side import Comparison
from .ask import answered
from .parser import parsed
from .questions import serving_question, training_question

Value = str | float | bool | Sequence[str] | Sequence[float]


def serve(model: str, *overrides: str, root: Path | str = "runs", **options: Value) -> Comparison:
    """Find the cheapest way to serve a model on each of several products, as `codesign serve` does.

    Args:
        model: a name of the catalogue, a hub name, or a path of a `config.json`.
        overrides: of the configuration, such as `tp=8`.
        root: folder of run folders.
        options: those of the command, with underscores: `on=["h200", "b200"]`, `rate="30/s"`, `ttft_p99="2s"`,
            `confidence=0.9`; True for one that has no value.

    Returns:
        A row for each candidate, the best first; `facts["folder"]` is where page, slide and proofs are.

    Raises:
        ConfigError: an option or a value that is none.
    """
    return _answer("serve", model, overrides, Path(root), options)


def train(model: str, *overrides: str, root: Path | str = "runs", **options: Value) -> Comparison:
    """Find the cheapest way to train a model on each of several products, as `codesign train` does.

    Args:
        model: a name of the catalogue, a hub name, or a path of a `config.json`.
        overrides: of the configuration, such as `tp=8`.
        root: folder of run folders.
        options: those of the command, with underscores: `on="b200"`, `tokens="15T"`, `days=90`.

    Returns:
        A row for each candidate, the best first; `facts["folder"]` is where page, slide and proofs are.

    Raises:
        ConfigError: an option or a value that is none.
    """
    return _answer("train", model, overrides, Path(root), options)


def _answer(command: str, model: str, overrides: Sequence[str], root: Path, options: dict[str, Value]) -> Comparison:
    words = [command, model, *overrides]
    for name, value in options.items():
        if value is not False:
            words.append(f"--{name.replace('_', '-')}")
            words += [] if value is True else [_text(value)]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            read = parsed(words)
    except SystemExit as error:  # as argparse ends, with its line printed
        raise ConfigError(said.getvalue().strip().removeprefix("codesign: ")) from error
    question = (serving_question if command == "serve" else training_question)(read)
    return answered(question, read, words, root).joint


def _text(value: Value) -> str:
    """A value as it is typed; several divided by commas."""
    return f"{value}" if isinstance(value, str | int | float) else ",".join(map(str, value))
