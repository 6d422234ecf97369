"""The arithmetic of a CMA-ES generation on one packed array, as kernels (see bilevo.kernels).

A search distribution is one array, because compiled calls with few arguments are faster. The parts
that tasks mix, mean and C, come first:

    mean (d) | C (d, d) | inverse root of C (d, d) | p_c (d) | p_s (d) | sigma

Compiled kernels have their own eigensolver, `_eigen`. With `LARGE = 0` they use numba's
np.linalg.eigh instead. Whole runs of drc-cma-es on SMD1 then took 1.06 times as long at m, n = 2, 3
and 1.15 times as long at 10, 10. Each time is the least of 8 processes, in alternation, that call
bilevo.minimize(..., max_evals=20_000, target=False) with the seeds 0 to 2. The two solvers also
round differently: with eigh, 18 of 30 stored runs have another answer, and 9 of these another
number of evaluations (python -m benchmarks.again --runs 30 --seed 7 --out FILE).
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from bilevo.core.arrays import FloatArray, IntArray, row_dots
from bilevo.core.order import ranking
from bilevo.kernels import kernel, part, stand_in

LARGE = 60  # for more variables than this, LAPACK is faster than `_eigen`
FEW = 24  # up to this number of columns, a plain loop multiplies faster than BLAS
LISTED = 64  # up to this number of coordinates, a list is faster than an array
CONDITION = 1e7  # the largest ratio allowed between deviations along the axes of C
MAX_SWEEPS = 50  # the most QL sweeps for an eigenvalue; two or three are usual
EPSILON = 2.0**-52  # relative precision of floating point
MAX_WIDTH = 1e60  # the largest deviation, and the largest coordinate of a mean, that is allowed
MIN_DEVIATION = 1e-30  # the least deviation; points of the unit box this close are equal


def packed_size(d: int) -> int:
    return 2 * d * d + 3 * d + 1


@part
def parts(
    packed: FloatArray, d: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return views of mean, C, its inverse root, p_c and p_s."""
    a, b = d + d * d, d + 2 * d * d
    C, inverse_root = packed[d:a].reshape(d, d), packed[a:b].reshape(d, d)
    return packed[:d], C, inverse_root, packed[b : b + d], packed[b + d : b + 2 * d]


@cache
def _dsyevd() -> Callable[..., Any]:
    """Return LAPACK's eigensolver; a call by np.linalg.eigh takes three times as long for d = 3."""
    from scipy.linalg.lapack import dsyevd

    return dsyevd  # type: ignore[no-any-return]


def eigen(C: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a symmetric matrix's eigenvalues in ascending order, and its eigenvectors as rows."""
    eigenvalues, columns, _ = _dsyevd()(C, lower=1)
    return eigenvalues, columns.T


def times(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the product of two matrices; for small ones @ takes twice as long."""
    product: FloatArray = a.dot(b)
    return product


def chosen(points: FloatArray, rows: IntArray) -> FloatArray:
    """Return some of the points; points[rows] takes twice as long."""
    return points.take(rows, axis=0)


def outside(points: FloatArray) -> bool:
    """Tell whether any coordinate is outside the unit box."""
    if points.size > LISTED:
        return bool(points.min() < 0 or points.max() > 1)
    coordinates = points.ravel().tolist()  # a few numbers are faster to compare as a list
    return min(coordinates) < 0 or max(coordinates) > 1


def any_above(limit: float, values: FloatArray) -> bool:
    """Tell whether any of a few numbers is above a limit."""
    numbers: list[float] = values.tolist()
    return max(numbers) > limit


def inside(points: FloatArray, centre: FloatArray) -> FloatArray:
    """Put coordinates outside the unit box half-way from `centre` to the bound."""
    return repaired(points, centre) if outside(points) else points


@part
def repaired(points: FloatArray, centre: FloatArray) -> FloatArray:
    """Do the same as `inside`, where some points are known to be outside."""
    points = np.where(points > 1, (centre + 1) / 2, points)
    points = np.where(points < 0, centre / 2, points)
    # Mixing between tasks can put a centre itself outside the box.
    return np.minimum(np.maximum(points, 0.0), 1.0)


@part
def roots(C: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Return the symmetric root of C, its inverse, and the largest deviation.

    The symmetric root does not depend on the arbitrary eigenbasis, so that samples agree between
    machines. If the smallest eigenvalue is too small against the largest, all are raised, in C too.
    """
    eigenvalues, rows = eigen(C)
    lowest, highest = eigenvalues[0], eigenvalues[-1]
    if lowest * CONDITION**2 <= highest or lowest <= 0:
        lift = max(highest, 1e-300) / CONDITION**2 - min(lowest, 0.0)
        eigenvalues = eigenvalues + lift
        C += lift * np.eye(len(C))
    deviations = np.sqrt(eigenvalues).reshape(-1, 1)
    root, inverse = times(rows.T, rows * deviations), times(rows.T, rows / deviations)
    return root, inverse, float(deviations[-1, 0])


@kernel("void(f8[::1], f8[:,::1])")
def sample(packed: FloatArray, points: FloatArray) -> None:
    """Turn standard normals (k, d) into points of N(mean, sigma^2 C), repaired into the unit box.

    This is done in place, because numba takes long to return an array.
    """
    mean, C, inverse_root, p_c, _ = parts(packed, points.shape[1])
    root, inverse, largest = roots(C)
    if not 0 < largest < math.inf:
        raise FloatingPointError("a covariance matrix is not finite")
    sigma, factor = max(float(packed[-1]), MIN_DEVIATION / largest), 1.0
    if largest > MAX_WIDTH:  # mixing by weights that add up to more than 1 lets C grow
        factor = MAX_WIDTH / largest
    elif sigma > CONDITION * largest:  # keep the step size and C comparable
        sigma, factor = largest, sigma / largest
    if factor != 1.0:
        C *= factor * factor
        p_c *= factor
        root, inverse = root * factor, inverse / factor
    inverse_root[:] = inverse
    packed[-1] = sigma
    drawn = mean + sigma * times(points, root)
    if outside(drawn):
        mean[:] = np.minimum(np.maximum(mean, -MAX_WIDTH), MAX_WIDTH)  # mixing lets the mean grow
        drawn = repaired(drawn, mean)
    points[:] = drawn


@kernel("void(f8[::1], f8[:,::1], f8[::1], f8[::1], f8[:,::1], f8[:,::1], UniTuple(f8, 9))")
def update(
    packed: FloatArray,
    points: FloatArray,
    objective: FloatArray,
    violation: FloatArray,
    weights: FloatArray,
    row_weights: FloatArray,
    rates: tuple[float, ...],
) -> None:
    """Update a distribution from the mu best points (Hansen 2001; clip: Hansen 2011).

    `cma_es.parameters` makes `weights` (1, mu), `row_weights` (mu, d) and `rates`.
    """
    c_s, push_s, c_c, push_c, keep, root_c_1, gain, chi, longest = rates
    mu, d = weights.shape[1], points.shape[1]
    mean, C, inverse_root, p_c, p_s = parts(packed, d)
    sigma = float(packed[-1])  # NumPy's own numbers are slower
    best = ranking(objective, violation)[:mu]
    steps = (chosen(points, best) - mean) / sigma
    white = times(steps, inverse_root)
    squares = row_dots(white, white)
    if any_above(longest * longest, squares):
        shorten = (longest / np.sqrt(np.maximum(squares, longest * longest))).reshape(-1, 1)
        steps = steps * shorten
    step = times(weights, steps)  # (1, d)
    mean += sigma * step[0]
    # Evolution paths.
    p_s *= 1 - c_s
    p_s += push_s * times(step, inverse_root)[0]
    p_c *= 1 - c_c
    p_c += push_c * step[0]
    # Covariance: rank mu and rank one in one product, which is exactly symmetric.
    rows = np.empty((mu + 1, d))
    rows[:mu] = row_weights * steps
    rows[mu] = root_c_1 * p_c
    C *= keep
    C += times(rows.T, rows)
    # Step size.
    length = math.sqrt(p_s.dot(p_s))
    packed[-1] = sigma * math.exp(min(1.0, gain * (length / chi - 1)))


@kernel("void(f8[::1], f8, f8[::1], f8, i8)")
def blend(
    packed: FloatArray, own_weight: float, other: FloatArray, weight: float, count: int
) -> None:
    """Replace the first `count` numbers of a distribution by a weighted sum with another's."""
    first = packed[:count]
    first *= own_weight
    first += weight * other[:count]


@stand_in(times)
def _times(a, b):  # type: ignore[no-untyped-def]
    """Multiply small matrices by a loop, because a call of BLAS takes longer."""
    if b.shape[1] > FEW:
        return np.dot(a, b)
    product = np.zeros((a.shape[0], b.shape[1]))
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            factor = a[i, k]
            for j in range(b.shape[1]):
                product[i, j] += factor * b[k, j]
    return product


@stand_in(ranking)
def _ranking(objective, violation):  # type: ignore[no-untyped-def]
    """Rank by two sorts, because numba has no lexsort."""
    if violation.max() == 0:
        return np.argsort(objective, kind="mergesort")
    order = np.argsort(np.where(violation > 0, 0.0, objective), kind="mergesort")
    return order[np.argsort(violation[order], kind="mergesort")]


@stand_in(chosen)
def _chosen(points, rows):  # type: ignore[no-untyped-def]
    """Take rows by an index, because numba's take has no axis."""
    return points[rows]


@stand_in(outside)
def _outside(points):  # type: ignore[no-untyped-def]
    return points.min() < 0 or points.max() > 1


@stand_in(any_above)
def _any_above(limit, values):  # type: ignore[no-untyped-def]
    return values.max() > limit


@stand_in(row_dots)
def _row_dots(a, b):  # type: ignore[no-untyped-def]
    """Multiply row by row, because numba has no vecdot."""
    dots = np.empty(a.shape[0])
    for i in range(a.shape[0]):
        dots[i] = 0.0
        for j in range(a.shape[1]):
            dots[i] += a[i, j] * b[i, j]
    return dots


@stand_in(eigen)
def _eigen(C):  # type: ignore[no-untyped-def]
    """Diagonalize by Householder's reduction and implicit QL (EISPACK's tred2, imtql2).

    For small matrices this is twice as fast as LAPACK: there is nothing to set up, and it rotates
    rows, which are contiguous.
    """
    d = len(C)
    if d > LARGE:
        eigenvalues, columns = np.linalg.eigh(C)
        return eigenvalues, columns.T.copy()
    size = np.abs(C).max()
    if size == 0.0:
        size = 1.0
    rows, values, beside = C / size, np.zeros(d), np.zeros(d)  # scaled: squares do not overflow
    _reduce(rows, values, beside)
    _rotate(rows, values, beside)
    for i in range(d - 1):
        k = i + np.argmin(values[i:])
        if k != i:
            values[i], values[k] = values[k], values[i]
            for j in range(d):
                rows[i, j], rows[k, j] = rows[k, j], rows[i, j]
    return values * size, rows


@part
def _reduce(rows, diagonal, beside):  # type: ignore[no-untyped-def]
    """Make the symmetric matrix in `rows` tridiagonal; the rows become the basis of that form."""
    d = len(rows)
    sizes, product = np.zeros(d), np.zeros(d)
    for i in range(d - 1, 0, -1):  # reflect row i: left of the diagonal, keep one entry
        u, last, square = rows[i, :i], rows[i, i - 1], 0.0
        for k in range(i - 1):
            square += u[k] * u[k]
        if square == 0.0:
            beside[i - 1] = last
            continue
        square += last * last
        beside[i - 1] = -math.copysign(math.sqrt(square), last)
        sizes[i] = square - last * beside[i - 1]
        u[i - 1] -= beside[i - 1]
        _reflect(rows, u, sizes[i], product)
    for i in range(d):  # the basis is the product of the reflections
        u = rows[i, :i]
        diagonal[i] = rows[i, i]
        if sizes[i] != 0.0:
            _mirror(rows, u, sizes[i])
        rows[i, :i] = 0.0
        rows[:i, i] = 0.0
        rows[i, i] = 1.0


@part
def _reflect(rows, u, size, product):  # type: ignore[no-untyped-def]
    """Replace A by H A H with H = 1 - u u' / size; only A's lower triangle is kept."""
    n = len(u)
    for j in range(n):
        total = rows[j, j] * u[j]
        for k in range(j):
            total += rows[j, k] * u[k]
            product[k] += rows[j, k] * u[j]
        product[j] = total
    along = 0.0
    for k in range(n):
        product[k] /= size
        along += product[k] * u[k]
    for k in range(n):
        product[k] -= along / (2 * size) * u[k]
    for j in range(n):
        for k in range(j + 1):
            rows[j, k] -= u[j] * product[k] + product[j] * u[k]


@part
def _mirror(rows, u, size):  # type: ignore[no-untyped-def]
    """Reflect the first len(u) rows by H = 1 - u u' / size."""
    for j in range(len(u)):
        along = 0.0
        for k in range(len(u)):
            along += u[k] * rows[j, k]
        for k in range(len(u)):
            rows[j, k] -= along / size * u[k]


@part
def _rotate(rows, values, beside):  # type: ignore[no-untyped-def]
    """Make a tridiagonal matrix diagonal by implicit QL steps; rotate the basis `rows` too."""
    d = len(rows)
    for first in range(d):
        for _ in range(MAX_SWEEPS):
            end = first
            while end < d - 1 and abs(beside[end]) > EPSILON * (
                abs(values[end]) + abs(values[end + 1])
            ):
                end += 1
            if end == first:
                break
            g = (values[first + 1] - values[first]) / (2 * beside[first])
            g = (
                values[end]
                - values[first]
                + beside[first] / (g + math.copysign(math.sqrt(g * g + 1), g))
            )
            sine, cosine, shift = 1.0, 1.0, 0.0
            for i in range(end - 1, first - 1, -1):
                f, b = sine * beside[i], cosine * beside[i]
                length = math.sqrt(f * f + g * g)
                beside[i + 1] = length
                if length == 0.0:  # the matrix splits here: begin again with the parts
                    values[i + 1] -= shift
                    break
                sine, cosine = f / length, g / length
                g = values[i + 1] - shift
                across = (values[i] - g) * sine + 2 * cosine * b
                shift = sine * across
                values[i + 1] = g + shift
                g = cosine * across - b
                for k in range(d):
                    f = rows[i + 1, k]
                    rows[i + 1, k] = sine * rows[i, k] + cosine * f
                    rows[i, k] = cosine * rows[i, k] - sine * f
            else:
                values[first] -= shift
                beside[first] = g
            beside[end] = 0.0
