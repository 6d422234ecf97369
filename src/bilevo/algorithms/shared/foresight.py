"""Guesses that let a local search ask for more points at once, where there are many workers.

A step that is taken needs derivatives at its end. If it is likely to be taken, the neighbours that
give them are requested with it, in one batch. A wrong guess costs these neighbours. It does not
change where the search goes, only how far away neighbours are that give curvatures.
"""

from __future__ import annotations

from dataclasses import dataclass

from bilevo.core.arrays import TINY

GOOD = 0.25  # A model was good if the last gain differed from what it expected by less than this.
FIRST_SHARE = 0.6  # The share of right guesses that a search begins with.
ENOUGH_RIGHT = 0.7  # Whole steps are guessed at if at least this share of guesses was right.
RECENT = 0.3  # The weight of the last guess in that share.


@dataclass(slots=True, eq=False)
class Foresight:
    """Guesses which steps of a search are taken, and counts how often it was right.

    A whole step is taken to be likely if the model was good for the last one, but not so good that
    the search would end. A step that was shortened once is nearly always taken.
    """

    error: float = 1.0  # how far the last gain was from the expected one, relative to that
    share: float = FIRST_SHARE  # the share of right guesses, of which recent ones weigh most
    promising: bool = False  # whether the current step, if taken whole, seems to go on
    trial: int = 0  # how often the current step was shortened

    def expects(self, trial: int, left: float, tolerance: float) -> bool:
        """Tell whether a step that was shortened so often is likely to be taken.

        The model expects that it gains `left`, and the search ends if it errs by less than the
        tolerance.
        """
        self.trial = trial
        if trial > 0:
            return trial == 1
        self.promising = self.error <= GOOD and self.error * left >= tolerance
        return self.promising and self.share >= ENOUGH_RIGHT

    def learn(self, surprise: float, left: float, goes_on: bool) -> None:
        """Learn from a step that was taken.

        Its gain differed by `surprise` from the expected gain `left`. `goes_on` tells whether the
        search needed slopes at its end, and no curvatures.
        """
        if self.promising:
            self.share += RECENT * ((goes_on and self.trial == 0) - self.share)
        self.error, self.promising = surprise / max(left, TINY), False
