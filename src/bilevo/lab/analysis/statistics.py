"""Comparisons of samples of runs, by scipy.stats. Smaller values are better.

- Spread is between quartiles that are interpolated linearly, by numpy. MATLAB, which many papers
  use, has other quartiles, which lie a little farther apart for few runs.
- The Wilcoxon rank-sum test is made by scipy.stats.mannwhitneyu, which is the same test. scipy's
  ranksums does not correct for ties, and a floor on accuracies makes many ties. Small samples
  without ties are tested exactly. Samples whose values are all equal have p = 1.
- The signed-rank test (scipy.stats.wilcoxon) pairs runs of the same number. Nothing else connects
  them: seeds of different methods share nothing. Pairs of equal values are taken out first, as
  Wilcoxon did, so that the exact test can be used more often.
- A test is made only if the samples are large enough to show a difference at all.
- Holm's correction is written here because scipy has only the correction of Benjamini and Hochberg,
  which controls another error. Verdicts use the latter.
- A published median, without its sample, is compared with a sample by Mathisen's test: if both are
  from one distribution, the number of our values below their median has a negative hypergeometric
  distribution.
- Ranks, the Friedman test and Nemenyi's critical difference follow J. Demsar, "Statistical
  comparisons of classifiers over multiple data sets", JMLR 7, 2006.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bilevo.core.arrays import FloatArray

Test = Literal["rank-sum", "signed-rank"]
ALPHA = 0.05  # The usual level of significance.
DIGITS = 3  # Published medians have at least so many digits.
MIN_METHODS = 3  # The fewest methods that a Friedman test can compare.


class Comparison(NamedTuple):
    """A comparison of a sample with that of the reference, by a test with this p value.

    `excess` is positive if the reference tends to have the smaller values, which are better.
    """

    p: float
    excess: float

    def mark(self, alpha: float = ALPHA) -> str:
        """Return + if the reference is significantly better, - if it is worse, and = otherwise."""
        if self.p >= alpha or self.excess == 0:
            return "="
        return "+" if self.excess > 0 else "-"


class Ranking(NamedTuple):
    """The average rank of each method over `blocks` problems, and p of the Friedman test.

    Rank 1 is the best. Two methods differ significantly if their average ranks differ by more than
    the critical difference.
    """

    average: list[float]
    p: float
    critical_difference: float
    blocks: int


def median(values: FloatArray) -> float:
    """Return the median, or NaN if there are no values."""
    return float(np.median(values)) if len(values) else np.nan


def spread(values: FloatArray) -> float:
    """Return the interquartile range, or NaN without values or if both quartiles are infinite."""
    if not len(values):
        return np.nan
    with np.errstate(invalid="ignore"):
        return float(np.subtract(*np.percentile(values, [75, 25])))


def rank_sum(values: FloatArray, reference: FloatArray) -> Comparison:
    """Make the Wilcoxon rank-sum test of two independent samples; neither may be empty."""
    from scipy import stats

    found = stats.mannwhitneyu(values, reference)
    return Comparison(float(found.pvalue), _win_share(found, values, reference) - 0.5)


def signed_rank(values: FloatArray, reference: FloatArray) -> Comparison:
    """Make the Wilcoxon signed-rank test of one or more pairs."""
    from scipy import stats

    differ = values != reference  # this also avoids inf - inf
    if not differ.any():
        return Comparison(1.0, 0.0)
    apart = values[differ] - reference[differ]
    excess = float(np.sum(np.sign(apart) * stats.rankdata(np.abs(apart))))
    return Comparison(float(stats.wilcoxon(apart).pvalue), excess)


def stratified_rank_sum(pairs: Iterable[tuple[FloatArray, FloatArray]]) -> Comparison:
    """Make one rank-sum test of several problems; each has a sample and one of the reference.

    Ranks are within a problem, and problems count by P. van Elteren's weights (1960). p is that of
    the normal distribution, with ties accounted for. If all values are 0 or 1, this is the test of
    Cochran, Mantel and Haenszel, but for its weights.
    """
    from scipy import stats

    total = variance = 0.0
    for values, reference in pairs:
        ours, all_runs = len(values), len(values) + len(reference)
        if not 0 < ours < all_runs:
            continue
        ranks = stats.rankdata(np.concatenate([values, reference]))
        weight = 1 / (all_runs + 1)
        total += weight * float(ranks[:ours].sum() - ours * (all_runs + 1) / 2)
        spread = ours * (all_runs - ours) / all_runs * float(ranks.var(ddof=1))
        variance += weight**2 * spread
    if variance == 0:
        return Comparison(1.0, 0.0)
    return Comparison(math.erfc(abs(total) / math.sqrt(2 * variance)), total)


def control_median(values: FloatArray, median: float, size: int) -> float:
    """Return p of a test of a sample against another one of which only the median is known.

    The test counts the values below the median of the other sample, which has `size` values (H. C.
    Mathisen, "A method of testing the hypothesis that two samples are from the same population",
    Annals of Mathematical Statistics 14, 1943). Published medians are rounded, so values that equal
    the median in its first DIGITS digits may lie on either side of it; p is the largest possible.
    """
    rounded = np.array([float(f"{value:.{DIGITS - 1}e}") for value in values])
    below = np.arange((rounded < median).sum(), (rounded <= median).sum() + 1)
    return _control_p(below, len(values), size)


def least_control_p(ours: int, theirs: int) -> float:
    """Return the smallest p that `control_median` can give for samples of these sizes."""
    return _control_p(np.zeros(1), ours, theirs)


def _control_p(below: FloatArray | NDArray[np.int64], ours: int, theirs: int) -> float:
    """Return the largest two-sided p of these counts of our values below their median."""
    from scipy import stats

    count = stats.nhypergeom(ours + theirs, ours, (theirs + 1) // 2)
    tails = np.minimum(count.cdf(below), count.sf(below - 1))
    return min(1.0, 2 * float(tails.max()))


def find_test(name: str) -> Callable[[FloatArray, FloatArray], Comparison]:
    """Return the test with this name; raise ValueError if it is unknown."""
    tests = {"rank-sum": rank_sum, "signed-rank": signed_rank}
    if name not in tests:
        raise ValueError(f"unknown test {name!r}; known are {', '.join(tests)}")
    return tests[name]


def least_p(ours: int, theirs: int, test: Test) -> float:
    """Return the smallest p value that a test of samples of these sizes can have."""
    orders = math.comb(ours + theirs, ours) if test == "rank-sum" else 2 ** min(ours, theirs)
    return min(2 / orders, 1.0)


def effect_size(values: FloatArray, reference: FloatArray) -> float:
    """Return Vargha and Delaney's A12: the share of pairs in which the reference is smaller.

    Ties count half. Below 0.5 the values are better (smaller), above 0.5 the reference is better.
    A12 is U / (k l) for the U of Mann and Whitney and samples of sizes k and l.
    """
    from scipy import stats

    return _win_share(stats.mannwhitneyu(values, reference), values, reference)


def holm(p: list[float]) -> list[float]:
    """Return p values corrected as one family (S. Holm, 1979), in the given order."""
    order = np.argsort(p, kind="stable")
    factors = np.arange(len(p), 0, -1)
    adjusted = np.minimum(np.maximum.accumulate(np.asarray(p)[order] * factors), 1.0)
    result = np.empty(len(p))
    result[order] = adjusted
    return result.tolist()


def false_discovery(p: list[float]) -> list[float]:
    """Return p values corrected as one family (Y. Benjamini and Y. Hochberg, 1995), in order."""
    from scipy import stats

    return stats.false_discovery_control(p).tolist() if p else []


def friedman(medians: FloatArray, alpha: float = ALPHA) -> Ranking:
    """Make the Friedman test of medians (blocks, methods), and average the ranks of each method.

    A block is a row of medians: those of all methods on one problem.
    """
    from scipy import stats

    blocks, methods = medians.shape
    if methods < MIN_METHODS:
        raise ValueError(f"a Friedman test needs {MIN_METHODS} methods or more, not {methods}")
    if not blocks:
        raise ValueError("a Friedman test needs a problem with runs of all methods")
    ranks = stats.rankdata(medians, axis=1)
    tied = bool((ranks == ranks[0, 0]).all())  # the statistic would be 0 / 0
    p = 1.0 if tied else float(stats.friedmanchisquare(*medians.T).pvalue)
    difference = critical_difference(methods, blocks, alpha)
    return Ranking([float(rank) for rank in ranks.mean(axis=0)], p, difference, blocks)


def critical_difference(methods: int, blocks: int, alpha: float = ALPHA) -> float:
    """Return Nemenyi's critical difference of average ranks."""
    from scipy import stats

    q = stats.studentized_range.ppf(1 - alpha, methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * blocks)))


def _win_share(found: Any, values: FloatArray, reference: FloatArray) -> float:
    return float(found.statistic / (len(values) * len(reference)))
