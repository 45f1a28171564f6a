"""The outcome of one search over listed plans, as another process sends it: everything but the programme.

Plans are numbered as they are listed, so that whoever has a programme over the same plans takes bounds, cuts, designs
and notes over as if the search had been run here.
"""

from typing import Any

from .bounding import Bounding
from .effort import Outcome
from .programme import Programme

HERE = ("programme", "_began", "_evaluated")
"""Attributes of a `Bounding` that are not sent: the programme, and counters that start when it is made."""


class SentOutcome:
    """Outcome without its programme.

    Args:
        outcome: of a search that nobody works on any more.
    """

    def __init__(self, outcome: Outcome):
        self.state: dict[str, Any] = {k: v for k, v in vars(outcome.bounding).items() if k not in HERE}
        self.counts, self.seconds, self.stopped = outcome.counts, outcome.seconds, outcome.stopped

    def over(self, programme: Programme) -> Outcome:
        """The outcome as if it had been found here.

        Args:
            programme: over the same plans and variables, numbered alike.
        """
        bounding = Bounding(programme, 0.0)
        assert len(bounding.lower) == len(self.state["table"].lower), "plans are numbered alike everywhere"
        vars(bounding).update(self.state)
        return Outcome(bounding, self.counts, self.seconds, self.stopped)
