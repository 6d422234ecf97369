"""Which differences of a follower's f count: one rule for runs and for verification.

A difference counts if it is large enough relative to the scale of f. This scale is local: it is how
much f would change over the box in its softest direction at an answer. The softest direction is the
one in which f changes least, but does change. So no difference is hidden by a penalty or a stiff
term that acts far away or in another direction, nor by a constant added to f. A difference that
rounding of f may cause never counts.
"""

from __future__ import annotations

import math

import numpy as np

from bilevo.core.arrays import FloatArray

# The following are differences of f, as fractions of its local scale.
NEGLIGIBLE = 1e-9  # Answers whose f differ by less are equally good for the follower.
AGREEMENT = 1e-6  # Searches that end at values of f closer than this have found the same basin.
SHARP = 1e-13  # f is level over a set if it differs by less; exact searches have such errors.
DIFFERENCES = 1e-15  # Finite differences leave an error in y, which makes f worse by about this.
# The following are distances, as fractions of the box.
SAME = 1e-6  # Answers that are closer than this are the same one.
UNRESOLVED = 1e-5  # Rounding of f must not hide where its minimum is by more than this.
NEAR, FAR = 1e-3, 1e-2  # Steps at which f is compared with its value at an answer.
# Each of the following says what it is relative to.
REPORTED = 1e-12  # Solvers report f to about this accuracy, relative to |f|, or to 1 if |f| < 1.
ALIKE = 1e-6  # Values of F that differ by less, relative to 1 + |F|, are the same.
# A change of f in one direction that is smaller than this, relative to the largest change in any
# direction, may only come from rounding of the direction.
LEVEL = 1e-20


def rounding(f: float) -> float:
    """Return how far values of f may be off by rounding of f itself."""
    return 4 * float(np.finfo(float).eps) * abs(f)


def local_scale(f: float, near: FloatArray, far: FloatArray) -> float:
    """Return the scale of f at an answer: its change over the box in the softest direction.

    `f` is its value at the answer; `near` and `far` (k,) hold f at steps of `NEAR` and `FAR` in the
    same k directions. The two steps show with which power of the distance f grows. This power,
    clipped to 1 to 2, extrapolates the change to the whole box. Directions in which f fails, falls
    or does not change are left out. The scale is 0 if no direction is left.
    """
    with np.errstate(all="ignore"):
        small, large = near - f, far - f
        steepest = float(large[np.isfinite(large)].max(initial=0.0))
        least = max(rounding(f), LEVEL * steepest)
        seen = np.isfinite(large) & (large > least)
        usable = seen & (small > least)
        power = np.log(large / np.where(usable, small, 1.0)) / math.log(FAR / NEAR)
        over_box = small * NEAR ** -np.clip(power, 1.0, 2.0)
        # Where rounding hides the near step, f grows at least with the second power.
        changes = np.where(usable, over_box, large * FAR**-2.0)[seen]
    return float(changes.min(initial=math.inf)) if changes.size else 0.0


def negligible(f: float, scale: float) -> float:
    """Return the difference of f up to which two answers are equally good for the follower."""
    return max(rounding(f), NEGLIGIBLE * scale)


def sharp(f: float, scale: float) -> float:
    """Return the difference of f up to which answers belong to one level set."""
    return rounding(f) + SHARP * scale


def reported(f: float) -> float:
    """Return the difference of f that does not count if only a solver knows f and reports it."""
    return REPORTED * max(abs(f), 1.0)


def alike(F: float, other: float) -> bool:
    """Tell whether two values of the leader's F are the same to six digits."""
    return other == F or abs(F - other) <= ALIKE * (1 + abs(F))
