"""Statistics: agreement with scipy.stats called directly on stored runs, and what always holds."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bilevo.lab import store
from bilevo.lab.analysis import samples, statistics
from bilevo.lab.analysis.statistics import Comparison, rank_sum, signed_rank

RUNS = store.runs(Path(__file__).parents[2] / "docs" / "data" / "runs_2_3.csv")
GROUPS = samples.grouped(RUNS)
FLOOR = 1e-6
always = settings(derandomize=True, deadline=None)

values = st.one_of(st.sampled_from([0.0, 1e-6, 1.0, np.inf]), st.floats(0, 100))
sample = st.lists(values, min_size=1, max_size=12).map(np.array)
pairs = st.lists(st.tuples(values, values), min_size=1, max_size=6).map(
    lambda found: tuple(np.array(side) for side in zip(*found, strict=True))
)


def stored(problem: str, method: str, column: str) -> np.ndarray:
    """A column as it is in the file, without any code of ours."""
    here = RUNS.filter(problem=problem, method=method).sort("number")
    return here[column].to_numpy()


def standing(problem: str, method: str, column: str) -> np.ndarray:
    """The same, with infeasible runs as the worst."""
    wrong = stored(problem, method, "violation") > 0
    if column == "verified":
        wrong |= stored(problem, method, "violation_verified") > 0
    return np.where(wrong, np.inf, stored(problem, method, column))


@pytest.mark.parametrize("floor", [None, FLOOR])
def test_the_rank_sum_test_is_scipys_on_stored_runs(floor: float | None) -> None:
    found, too_few = samples.compare_all(GROUPS, "Acc_u", "drc-cma-es", floor=floor)
    assert not too_few
    assert len(found) == sum(len(methods) - 1 for methods in GROUPS.values()) == 150
    for (case, method), ours in found.items():
        both = [standing(case.problem, name, "Acc_u") for name in (method, "drc-cma-es")]
        direct = stats.mannwhitneyu(*(np.maximum(one, floor or 0) for one in both))
        assert ours.p == direct.pvalue
        assert ours.excess + 0.5 == pytest.approx(direct.statistic / (len(both[0]) * len(both[1])))


def test_the_signed_rank_test_is_scipys_on_stored_runs() -> None:
    found, _ = samples.compare_all(GROUPS, "FEs_l", "drc-cma-es", test="signed-rank")
    for (case, method), ours in found.items():
        theirs, reference = (
            stored(case.problem, name, "nfev_lower") for name in (method, "drc-cma-es")
        )
        both = min(len(theirs), len(reference))  # numbers run from 0
        assert ours.p == stats.wilcoxon(theirs[:both], reference[:both]).pvalue


def test_pairs_of_equals_do_not_change_the_signed_rank_test() -> None:
    ours = signed_rank(np.array([5.0, 5.0, 3.0, 2.5, 8.0]), np.array([5.0, 5.0, 1.0, 1.0, 9.0]))
    assert ours.p == stats.wilcoxon([0.0, 0.0, 2.0, 1.5, -1.0]).pvalue == 0.5
    assert ours.excess == 3 + 2 - 1


def test_medians_and_spreads_are_numpys_and_scipys_on_stored_runs() -> None:
    for case, methods in GROUPS.items():
        for method, group in methods.items():
            direct = np.maximum(stored(case.problem, method, "Acc_l"), FLOOR)
            ours = group.sample("Acc_l", FLOOR)
            assert statistics.median(ours) == np.median(direct)
            assert statistics.spread(ours) == pytest.approx(stats.iqr(direct), rel=1e-12)


def test_the_friedman_test_is_scipys_on_stored_runs() -> None:
    names = ["bl-cma-es", "drc-cma-es", "go-cma-es", "tlea-cma-es"]
    chosen = samples.grouped(RUNS.filter(RUNS["method"].is_in(names)))
    methods, ranking = samples.ranked(chosen, "verified", FLOOR)
    medians = [
        [
            np.median(np.maximum(standing(f"smd{i}", method, "verified"), FLOOR))
            for method in methods
        ]
        for i in range(1, 13)
    ]
    assert sorted(methods) == names and ranking.blocks == 12
    assert ranking.p == stats.friedmanchisquare(*zip(*medians, strict=True)).pvalue
    assert ranking.average == list(np.mean(stats.rankdata(medians, axis=1), axis=0))


def test_the_critical_difference_is_that_of_the_published_table() -> None:
    """Demsar (2006), Table 5: q at 0.05 for 2 to 10 methods."""
    q = [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]
    for k, expected in enumerate(q, start=2):
        difference = statistics.critical_difference(k, 1)
        assert difference / np.sqrt(k * (k + 1) / 6) == pytest.approx(expected, abs=1e-3)


@always
@given(sample, sample)
def test_exchanging_two_samples_exchanges_the_verdict(a: np.ndarray, b: np.ndarray) -> None:
    one, other = rank_sum(a, b), rank_sum(b, a)
    assert one.p == pytest.approx(other.p) and one.excess == pytest.approx(-other.excess)
    exchanged = {"+": "-", "-": "+", "=": "="}
    assert other.mark(0.2) == exchanged[one.mark(0.2)]


@always
@given(pairs)
def test_exchanging_the_sides_of_pairs_exchanges_the_verdict(both) -> None:
    one, other = signed_rank(*both), signed_rank(*both[::-1])
    assert 0 <= one.p <= 1 and one.p == pytest.approx(other.p)
    assert one.excess == -other.excess


@always
@given(sample)
def test_a_sample_does_not_differ_from_itself(a: np.ndarray) -> None:
    assert rank_sum(a, a).p == signed_rank(a, a).p == 1
    assert rank_sum(a, a).mark() == signed_rank(a, a).mark() == "="


@always
@given(sample, sample)
def test_the_effect_size_counts_pairs(a: np.ndarray, b: np.ndarray) -> None:
    larger = np.mean([(x > y) + 0.5 * (x == y) for x in a for y in b])
    assert statistics.effect_size(a, b) == pytest.approx(larger)


def test_marks_are_from_the_references_side() -> None:
    good, bad = np.arange(20.0), np.arange(20.0) + 100
    assert rank_sum(bad, good).mark() == signed_rank(bad, good).mark() == "+"
    assert rank_sum(good, bad).mark() == signed_rank(good, bad).mark() == "-"
    assert Comparison(0.04, 1.0).mark(0.01) == "="


def test_runs_at_the_floor_are_alike() -> None:
    a, b = np.full(21, FLOOR), np.full(21, FLOOR)
    assert rank_sum(a, b).p == signed_rank(a, b).p == 1
    b[0] = 1.0
    assert rank_sum(a, b).mark() == signed_rank(a, b).mark() == "="


@pytest.mark.parametrize(
    ("test", "ours", "theirs"), [("rank-sum", 3, 3), ("rank-sum", 2, 9), ("signed-rank", 5, 5)]
)
def test_the_smallest_p_is_that_of_samples_wholly_apart(test, ours: int, theirs: int) -> None:
    low, high = np.arange(float(ours)), 100.0 + 2 * np.arange(float(theirs))
    compare = rank_sum if test == "rank-sum" else signed_rank
    assert statistics.least_p(ours, theirs, test) == pytest.approx(compare(low, high).p)


def test_no_sample_is_too_large_for_its_smallest_p() -> None:
    assert statistics.least_p(5000, 5000, "rank-sum") == 0
    assert statistics.least_p(1, 1, "signed-rank") == statistics.least_p(1, 1, "rank-sum") == 1


def test_holms_correction_on_a_worked_example() -> None:
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([0.4]) == [0.4] and statistics.holm([]) == []


@always
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.randoms())
def test_holms_correction_keeps_the_order_and_never_helps(p: list[float], random) -> None:
    adjusted = dict(zip(p, statistics.holm(p), strict=True))
    assert all(old <= new <= min(1, len(p) * old) + 1e-12 for old, new in adjusted.items())
    assert [adjusted[one] for one in sorted(p)] == sorted(adjusted[one] for one in p)
    shuffled = random.sample(p, len(p))
    assert statistics.holm(shuffled) == [adjusted[one] for one in shuffled]


@always
@given(st.integers(3, 6).flatmap(lambda k: st.lists(st.lists(values, min_size=k, max_size=k))))
def test_average_ranks_add_up(rows: list[list[float]]) -> None:
    if not rows:
        with pytest.raises(ValueError, match="runs of all methods"):
            statistics.friedman(np.empty((0, 3)))
        return
    found = statistics.friedman(np.array(rows))
    k = len(rows[0])
    assert sum(found.average) == pytest.approx(k * (k + 1) / 2) and 0 <= found.p <= 1


def test_two_methods_are_too_few_for_a_friedman_test() -> None:
    with pytest.raises(ValueError, match="3 methods or more, not 2"):
        statistics.friedman(np.ones((5, 2)))


def test_nothing_and_infinity_have_a_median() -> None:
    nothing, lost = np.empty(0), np.array([1.0, np.inf, np.inf, np.inf])
    assert np.isnan(statistics.median(nothing)) and np.isnan(statistics.spread(nothing))
    assert statistics.median(lost) == np.inf and np.isnan(statistics.spread(lost[1:]))


@pytest.mark.parametrize("below", range(5))
def test_a_published_median_is_tested_by_counting_all_orders_of_both_samples(below: int) -> None:
    ours, theirs = 4, 5
    counts = []
    for places in combinations(range(ours + theirs), theirs):
        middle = places[theirs // 2]
        counts.append(middle - theirs // 2)  # how many of ours lie below their median
    tails = [sum(count <= below for count in counts), sum(count >= below for count in counts)]
    values = np.array([1.0] * below + [3.0] * (ours - below))
    expected = min(1.0, 2 * min(tails) / len(counts))
    assert statistics.control_median(values, 2.0, theirs) == pytest.approx(expected)


def test_a_value_that_is_printed_like_the_median_counts_on_the_side_that_says_less() -> None:
    above = np.linspace(200, 300, 20)
    apart = statistics.control_median(np.append(above, 124.6), 123, 21)
    alike = statistics.control_median(np.append(above, 123.4), 123, 21)
    assert apart < 0.001 < alike
    assert statistics.control_median(np.full(21, 123.4), 123, 21) == 1
