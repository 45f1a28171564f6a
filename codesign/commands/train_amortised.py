"""`codesign train-amortised`: train the networks of `search=amortised` and measure what their answers lose."""

from pathlib import Path

from ..config import study_from_config
from ..core.errors import ConfigError, suggestion
from ..search.amortised.guesser import FOLDER
from ..search.amortised.training.families import FAMILIES, regrets, summary
from ..search.amortised.training.network_training import train
from .setup import prepare_jax
from .terminal import console


def train_amortised(
    names: list[str], out: Path | str | None = None, seed: int = 0, steps: int = 4000, held_out: int = 40
) -> list[Path]:
    """Train the networks of these families (all if none is named); the files written.

    Args:
        names: families.
        out: folder of the files; None is where the package looks.
        seed: of weights, training studies and held-out studies.
        steps: of training.
        held_out: studies on which the regret is measured; 0 leaves it out.

    Raises:
        ConfigError: unknown family.
    """
    for name in names:
        if name not in FAMILIES:
            raise ConfigError(f"family {name!r} does not exist{suggestion(name, FAMILIES)}")
    prepare_jax()
    folder, screen, written = Path(out) if out else FOLDER, console(), list[Path]()
    for name in names or list(FAMILIES):
        family = FAMILIES[name]
        base = study_from_config(*family.overrides).problem
        guesser = train(
            family, base, seed, steps,
            note=lambda step, loss, name=name: screen.print(f"{name}: step {step}, mean loss {loss:.4f}"),
        )  # fmt: skip
        path = folder / f"{name}.npz"
        guesser.save(path)  # before the measurement: that may be interrupted
        if held_out:
            rows = regrets(
                guesser, family, base, held_out, seed,
                note=lambda row: screen.print(f"regret {row['regret']:+.2%} in {row['seconds']:.2f} s"),
            )  # fmt: skip
            guesser.facts["regret"] = summary(rows)
            guesser.save(path)
            screen.print(f"{name}: {guesser.facts['regret']}")
        screen.print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")
        written.append(path)
    return written
