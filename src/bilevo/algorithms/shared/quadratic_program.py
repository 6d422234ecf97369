"""The quadratic programs of `sqp`: steps to the minimum of a model under linearized constraints.

They are solved as least distance problems: C. Lawson and R. Hanson, "Solving least squares
problems", 1974, chapter 23. Each of these becomes a problem of non-negative least squares, which
scipy solves. If two constraints leave no room between them, they are treated as one equality, which
is eliminated first (chapter 20).
"""

from __future__ import annotations

import numpy as np

from bilevo.core.arrays import TINY, BoolArray, FloatArray

OPPOSITE = 1e-10  # Two rows are opposite if 1 plus the cosine between them is below this.
THIN = 1e-11  # Room between two constraints below this fraction of the box counts as none.
# Equalities are dependent if singular values are below this fraction of the largest.
DEPENDENT = 1e-10


def quadratic_step(
    g: FloatArray,
    B: FloatArray,
    c: FloatArray,
    jacobian: FloatArray,
    below: FloatArray,
    above: FloatArray,
    margin: float,
) -> tuple[FloatArray, FloatArray]:
    """Return argmin g p + p B p / 2 under c + jacobian p <= 0 and bounds, and the multipliers.

    The bounds are below <= p <= above. Constraints are met with a margin in the units of p. If the
    constraints contradict each other or the bounds, the step makes the largest violation small, and
    the multipliers are 0. The step is 0 if B is singular.
    """
    multipliers = np.zeros(len(c))
    with np.errstate(all="ignore"):
        try:
            newton = np.asarray(-np.linalg.solve(B, g), dtype=np.float64)
        except np.linalg.LinAlgError:
            return np.zeros(len(below)), multipliers
        if not np.isfinite(newton).all():
            return np.zeros(len(below)), multipliers
        lengths = np.sqrt((jacobian**2).sum(axis=1))
        used = np.flatnonzero((lengths > 0) & np.isfinite(lengths) & np.isfinite(c))
        rows = jacobian[used] / lengths[used, None]
        offsets = -c[used] / lengths[used] - margin
        if (below <= newton).all() and (newton <= above).all() and (rows @ newton <= offsets).all():
            return newton, multipliers
        found = None
        if (opposite := opposites(rows, offsets + margin, margin)).any():
            found = step_on_equalities(g, B, rows, offsets, opposite, below, above)
        step, shadow = found or constrained_step(g, B, newton, rows, offsets, below, above)
    multipliers[used] = shadow / lengths[used]
    return np.clip(step, below, above), multipliers


def opposites(rows: FloatArray, offsets: FloatArray, margin: float) -> BoolArray:
    """Tell which two constraints leave no room between them, as a matrix (k, k).

    A constraint is row p <= offset, with a row of length 1. Each constraint keeps a margin.
    """
    room = offsets[:, None] + offsets[None, :]
    return np.asarray((rows @ rows.T < OPPOSITE - 1) & (room <= 2 * margin + THIN))


def step_on_equalities(
    g: FloatArray,
    B: FloatArray,
    rows: FloatArray,
    offsets: FloatArray,
    opposite: BoolArray,
    below: FloatArray,
    above: FloatArray,
) -> tuple[FloatArray, FloatArray] | None:
    """Return the step and the multipliers, with opposite rows as equalities; None if not found.

    The step is q + Z t. Here q is the shortest step that meets the equalities, and Z spans the
    directions that they leave free.
    """
    d, first = len(g), opposite.argmax(axis=1)
    one = np.flatnonzero(opposite.any(axis=1) & (first > np.arange(len(rows))))
    E, other = rows[one], first[one]
    middle = (offsets[one] - offsets[other]) / 2
    _, sizes, axes = np.linalg.svd(E)
    q = np.linalg.lstsq(E, middle, rcond=DEPENDENT)[0]
    Z = axes[int((sizes > DEPENDENT * sizes[0]).sum()) :].T
    rest = np.flatnonzero(~opposite.any(axis=1))
    A = np.concatenate([rows[rest], np.eye(d), -np.eye(d)])
    b = np.concatenate([offsets[rest], above, -below])
    free = free_step(Z.T @ (g + B @ q), Z.T @ B @ Z, A @ Z, b - A @ q)
    if free is None:
        return None
    t, shadow = free
    step, multipliers = q + Z @ t, np.zeros(len(rows))
    multipliers[rest] = shadow[: len(rest)]
    pull = -(g + B @ step + shadow @ A)  # what the equalities' multipliers have to balance
    along = np.linalg.lstsq(E.T, pull, rcond=DEPENDENT)[0]
    multipliers[one], multipliers[other] = np.maximum(along, 0.0), np.maximum(-along, 0.0)
    return step, multipliers


def free_step(
    g: FloatArray, B: FloatArray, A: FloatArray, b: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Return argmin g t + t B t / 2 subject to A t <= b, and its multipliers.

    Returns None if no solution is found.
    """
    try:
        newton = np.asarray(-np.linalg.solve(B, g), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    if (A @ newton <= b + THIN).all():
        return newton, np.zeros(len(b))
    return least_distance(g, B, A, b, newton) if len(g) else None


def constrained_step(
    g: FloatArray,
    B: FloatArray,
    newton: FloatArray,
    rows: FloatArray,
    offsets: FloatArray,
    below: FloatArray,
    above: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the step p and the multipliers under rows p <= offsets and below <= p <= above.

    If no p meets all of these, a slack is added to all rows, with a high price. The multipliers are
    then 0.
    """
    k, d = rows.shape
    A = np.concatenate([rows, np.eye(d), -np.eye(d)])
    b = np.concatenate([offsets, above, -below])
    found = least_distance(g, B, A, b, newton)
    if found is not None:
        return found[0], found[1][:k]
    stiff = np.array([[1e6 * float(np.diag(B).max())]])
    wide = np.block([[B, np.zeros((d, 1))], [np.zeros((1, d)), stiff]])
    slack = np.concatenate([-np.ones(k), np.zeros(2 * d)])
    found = least_distance(
        np.append(g, 0.0), wide, np.column_stack([A, slack]), b, np.append(newton, 0.0)
    )
    return (np.zeros(d) if found is None else found[0][:d]), np.zeros(k)


def least_distance(
    g: FloatArray, B: FloatArray, A: FloatArray, b: FloatArray, newton: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Return argmin g p + p B p / 2 under A p <= b and its multipliers, or None if not found.

    The solution is the feasible point nearest to the free minimum `newton`, in the metric of B.
    """
    excess = A @ newton - b
    lengths = np.einsum("ij,ji->i", A, np.linalg.solve(B, A.T))  # squared lengths of A's rows
    reach = np.maximum(excess, 0.0) ** 2 / np.maximum(lengths, TINY)
    for scale in (float(-g @ newton), float(reach.max())):  # scales that bring the distance near 1
        if scale > 0 and (found := _least_distance(B, A, b, newton, scale)) is not None:
            return found
    return None


def _least_distance(
    B: FloatArray, A: FloatArray, b: FloatArray, newton: FloatArray, scale: float
) -> tuple[FloatArray, FloatArray] | None:
    """Solve the problem of `least_distance` after B was divided by `scale`; None if that fails."""
    from scipy.optimize import nnls

    try:
        root = np.linalg.cholesky(B / scale)
        rows = -np.linalg.solve(root, A.T)  # constraints on z = root' (p - newton)
        bounds = A @ newton - b
        system = np.concatenate([rows, bounds[None]])
        target = np.append(np.zeros(len(newton)), 1.0)
        u, _ = nnls(system, target)
    except (np.linalg.LinAlgError, RuntimeError):
        return None
    residual = system @ u - target
    if -residual[-1] < 1e-12:
        return None
    step = newton + np.linalg.solve(root.T, residual[:-1] / -residual[-1])
    if not np.isfinite(step).all() or (A @ step - b).max() > 1e-6:
        return None
    return step, u / -residual[-1] * scale
