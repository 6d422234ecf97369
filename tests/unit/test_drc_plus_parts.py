"""The parts of DRC-plus: certificates, ties, states that are stored, and problems without sense."""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from conftest import fingerprint, minimize_counted
from driven import Driven

import bilevo
from bilevo import Budget, Problem
from bilevo.algorithms import DRCPlus
from bilevo.algorithms.drc_plus.certificate import LEAST_THOROUGH, final_thoroughness
from bilevo.algorithms.drc_plus.fallback import FallbackDRC
from bilevo.algorithms.drc_plus.leader_view import FLAT_REACH
from bilevo.algorithms.drc_plus.method import DRCPlusState
from bilevo.algorithms.shared.follower_search import FollowerCheck, Pair
from bilevo.algorithms.shared.leader import LeaderState
from bilevo.core.problem import Target
from bilevo.core.request import Level
from bilevo.core.stop_rules import Stagnation
from bilevo.problems import get

METHOD = "drc-plus"
ROUGH = "smd1-abs"  # a follower with kinks
BOX = [(-5, 10)] * 2


def leader(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ x + y @ y)


def copying(x: np.ndarray, y: np.ndarray) -> float:
    return float((y - x) @ (y - x))


# Certificates


def with_elite(name: str, x: list[float], y: list[float]) -> tuple[Driven, DRCPlusState]:
    """A state whose best pair is this one, in the user's units."""
    driven = Driven(get(name))
    state = driven.run(DRCPlus().init(driven.spec()))
    F, _, f, _ = driven.problem.evaluate(x, y)
    units = driven.x_box.unit(np.array(x)), driven.y_box.unit(np.array(y))
    state.elite = Pair(*units, float(f[0]), 0.0, float(F[0]), 0.0)
    return driven, state


def test_a_wrong_answer_of_the_follower_is_refuted() -> None:
    driven, state = with_elite("smd3", [0.0, 0.0], [0.99, 0.0, 0.0])
    wrong = state.the_elite
    state.known.learn(wrong)
    driven.run(DRCPlus().certify_elite(driven.spec(), state, 1.0))
    assert wrong.f > 0.9 and state.the_elite.f == pytest.approx(0.0, abs=1e-9)
    assert pytest.approx(0.0, abs=1e-6) == state.the_elite.F and state.the_elite.certified
    assert driven.told[-1].f == state.the_elite.f and driven.told[-1].gap == 0
    assert len(state.known.y) == 1 and state.known.y[0].tolist() == state.the_elite.y.tolist()


def test_a_right_answer_has_its_certificate_once() -> None:
    driven, state = with_elite("smd3", [0.0, 0.0], [0.0, 0.0, 0.0])
    right = state.the_elite
    driven.run(DRCPlus().certify_elite(driven.spec(), state))
    assert state.elite is right and driven.told[-1].gap == 0
    cost = driven.counts[Level.LOWER]
    driven.run(DRCPlus().certify_elite(driven.spec(), state))
    assert driven.counts[Level.LOWER] == cost > 0


def test_a_new_best_pair_has_no_certificate() -> None:
    driven, state = with_elite("smd1", [0.0, 0.0], [0.0, 0.0, 0.0])
    state.the_elite.check = FollowerCheck(0.0, True, 2, 2, 100, passed=True)
    assert state.checked == 1.0
    driven.run(state.accept_elite(replace(state.the_elite, check=None)))
    assert not state.checked and not state.the_elite.certified
    assert math.isnan(driven.told[-1].gap)


@pytest.mark.parametrize("F", [-0.5, 0.5])
def test_a_pair_that_is_not_at_the_target_is_checked_as_if_there_were_none(F: float) -> None:
    """A wrong answer of the follower may make F better than the known optimum."""
    driven, state = with_elite("smd1", [0.0, 0.0], [0.0, 0.0, 0.0])
    known = replace(driven.spec(), target=Target(0.0, 1e-6, optimum=True))
    assert final_thoroughness(known, state.the_elite, 100) == 1
    missed = replace(state.the_elite, F=F)
    blind = replace(known, target=None)
    assert final_thoroughness(blind, missed, 100) == LEAST_THOROUGH
    assert final_thoroughness(known, missed, 100) == LEAST_THOROUGH


@pytest.mark.parametrize("seed", [9, 39, 109])
def test_last_digits_of_y_do_not_make_an_answer_infeasible(seed: int) -> None:
    """Constraints of both levels are active, and the last check finds more digits of y."""
    problem = Problem(
        lambda x, y: (x[0] - 4) ** 2 + (y[0] - 4) ** 2 + (y[1] + 1) ** 2,
        lambda x, y: (y[0] - x[0]) ** 2 + (y[1] - x[0]) ** 2,
        [(0, 10)],
        [(0, 10)] * 2,
        G=lambda x, y: x[0] + y[0] - 6,
        g=lambda x, y: y[0] + y[1] - 5,
    )
    result = bilevo.minimize(problem, method=METHOD, rng=seed)
    assert result.feasible and result.success
    assert pytest.approx(14.75, abs=1e-5) == result.F


def test_a_run_that_may_end_soon_leaves_the_check_to_its_end() -> None:
    driven, state = with_elite("smd1", [0.5, 0.5], [0.5, 0.5, 0.5])
    blind = replace(driven.spec(), target=None)
    known = replace(blind, target=Target(0.0, 1e-6, optimum=True))
    assert not state.may_end_soon(blind)  # no descent has ended
    state.remember_end(np.full(2, 0.5), np.zeros(2))
    assert state.may_end_soon(blind)
    assert not state.may_end_soon(known)
    state.known.refute(np.full(3, 0.5))
    assert not state.may_end_soon(blind)


def test_descents_after_a_look_at_leaders_are_those_that_are_missing() -> None:
    _, state = with_elite("smd1", [0.5, 0.5], [0.5, 0.5, 0.5])
    found = []
    for _ in range(6):
        state.remember_end(np.full(2, 0.5), np.zeros(2))
        found.append(state.missing_descents(3))
    assert found == [3, 3, 2, 1, 1, 1]
    state.remember_end(np.full(2, 0.9), np.zeros(2))
    assert state.missing_descents(3) == 3


def certified(run_dir: Path | None = None, stop_at: int | None = None) -> bilevo.Result:
    def callback(result: bilevo.Result) -> None:
        if result.nit == stop_at:
            raise StopIteration

    options = {"rng": 4, "target": False, "run_dir": run_dir}
    return bilevo.minimize(get("smd2"), method=METHOD, callback=callback, **options)


def test_the_gap_is_kept_in_files(tmp_path: Path) -> None:
    result = certified(tmp_path / "run")
    assert result.certified and result.follower_gap >= 0
    result.save(tmp_path / "result.json")
    assert bilevo.Result.load(tmp_path / "result.json").follower_gap == result.follower_gap
    assert bilevo.load(tmp_path / "run").follower_gap == result.follower_gap
    again = certified(tmp_path / "run")  # a run that has ended is read
    assert again.follower_gap == result.follower_gap and again.message == result.message


def test_the_gap_is_there_again_after_a_stop(tmp_path: Path) -> None:
    whole = certified()
    part = certified(tmp_path / "run", stop_at=whole.nit - 1)
    assert repr(bilevo.load(tmp_path / "run").follower_gap) == repr(part.follower_gap)
    resumed = certified(tmp_path / "run")
    assert fingerprint(resumed) == fingerprint(whole) and resumed.certified


def test_a_gap_that_is_not_known_is_kept_as_such(tmp_path: Path) -> None:
    result = bilevo.minimize(get("smd1"), method=METHOD, max_evals=50, run_dir=tmp_path / "run")
    result.save(tmp_path / "result.json")
    for loaded in (
        bilevo.load(tmp_path / "run"),
        bilevo.Result.load(tmp_path / "result.json"),
    ):
        assert math.isnan(loaded.follower_gap)


# Ties


def flat_of(problem: Problem, y: np.ndarray) -> np.ndarray:
    """The flat directions around an answer, all in the unit box."""
    driven = Driven(problem)
    state = driven.run(DRCPlus().init(driven.spec()))
    x = np.full(problem.m, 0.5)
    values = driven.run(state.known.evaluate(x, y[None]))
    driven.run(state.find_flat_directions(Pair(x, y, float(values.objective[0]), 0.0)))
    return np.asarray(state.flat)


def test_a_linear_follower_is_not_flat() -> None:
    assert not len(flat_of(get("tp4"), np.full(3, 0.5)))
    plane = Problem(lambda x, y: 0.0, lambda x, y: float(y.sum()), [(0, 1)], [(0, 1)] * 2)
    for y in (np.array([0.5, 0.5]), np.zeros(2), np.array([0.3, 1.0])):
        flat = flat_of(plane, y)
        # along what is left of them, f stays what it is
        assert np.abs(FLAT_REACH * flat.sum(axis=1)).max(initial=0.0) < 1e-6


def test_a_valley_is_flat_along_its_floor() -> None:
    valley = Problem(
        lambda x, y: 0.0, lambda x, y: float((y[0] - y[1]) ** 2), [(0, 1)], [(0, 1)] * 2
    )
    (direction,) = flat_of(valley, np.array([0.5, 0.5]))
    assert np.abs(direction) == pytest.approx(math.sqrt(0.5), abs=1e-4)


@pytest.mark.parametrize("seed", [1, 2])
def test_directions_may_turn_while_other_ties_are_being_resolved(seed: int) -> None:
    def turning(x: np.ndarray, y: np.ndarray) -> float:
        across = y[0] * math.cos(3 * x[0]) + y[1] * math.sin(3 * x[0])
        return float((across - 0.3) ** 2 + (y[2] - x[1]) ** 2)

    wanted = np.array([0.7, 0.6, 0.2, 0.3, 0.5])
    problem = Problem(
        lambda x, y: float(((np.concatenate([x, y]) - wanted) ** 2).sum()),
        turning,
        [(0, 1)] * 2,
        [(0, 1)] * 3,
    )
    result = minimize_counted(problem, method=METHOD, rng=seed, max_evals=12_000)
    assert result.F < 0.017 and result.f < 1e-6


# States


@cache
def rough_run() -> bilevo.Result:
    return bilevo.minimize(get(ROUGH), method=METHOD, rng=5, max_evals=5000, target=False)


def test_rough_followers_are_handed_over_and_the_run_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bilevo.run.directory.SNAPSHOT_AFTER", 0.0)
    seen: list[bool] = []
    handing_over = DRCPlus.run_fallback

    def noted(self: DRCPlus, spec: object, state: DRCPlusState) -> object:
        seen.append(state.fallback is not None)
        return handing_over(self, spec, state)

    monkeypatch.setattr(DRCPlus, "run_fallback", noted)
    for stop in (2, 5, 9):

        def callback(result: bilevo.Result, stop: int = stop) -> None:
            if result.nit == stop:
                raise StopIteration

        options = {"method": METHOD, "rng": 5, "max_evals": 5000, "target": False}
        run_dir = tmp_path / str(stop)
        bilevo.minimize(get(ROUGH), callback=callback, run_dir=run_dir, **options)
        assert (run_dir / "snapshot.npz").exists()
        seen.clear()
        resumed = bilevo.minimize(get(ROUGH), run_dir=run_dir, **options)
        assert seen[0]  # DRC's state came from the snapshot
        assert fingerprint(resumed) == fingerprint(rough_run())


def test_a_certificate_is_valid_also_after_a_snapshot() -> None:
    """States in files are trees: what was one pair comes back as two."""
    outcomes = []
    for copied in (False, True):
        driven = Driven(get(ROUGH))
        spec, method = driven.spec(seed=3), DRCPlus()
        state = driven.run(method.init(spec))
        while state.fallback is None:
            state = driven.run(method.generation(spec, state))
        elite = state.the_elite
        elite.F, elite.f = -1e3, -1e3  # nobody replaces it
        elite.check = FollowerCheck(0.0, True, 2, 2, 100, passed=True)
        if copied:
            assert state.fallback is not None
            state.fallback.elite = Pair(*(getattr(elite, name) for name in elite.__slots__))
        state = driven.run(method.generation(spec, state))
        outcomes.append((state.checked, state.the_elite.certified))
    assert outcomes == [(1.0, True), (1.0, True)]


@pytest.mark.filterwarnings("ignore:workers slow this run down")
def test_workers_change_nothing() -> None:
    options = {"method": METHOD, "rng": 3, "max_evals": 700, "target": False}
    alone, shared = (bilevo.minimize(get(ROUGH), workers=w, **options) for w in (None, 2))
    assert fingerprint(alone) == fingerprint(shared)


def test_the_first_pair_is_at_x0() -> None:
    seen: list[list[float]] = []

    def F(x: np.ndarray, y: np.ndarray) -> float:
        seen.append(x.tolist())
        return leader(x, y)

    bilevo.minimize(F, copying, BOX, BOX, method=METHOD, x0=[2.5, -1.0], max_evals=600)
    assert seen[0] == pytest.approx([2.5, -1.0], abs=1e-12)


# Problems without sense, or short of it: a run ends by itself, and a generation does


def no_value(x: np.ndarray, y: np.ndarray) -> float:
    return math.nan


def constant(x: np.ndarray, y: np.ndarray) -> float:
    return 1.0


def often_raising(x: np.ndarray, y: np.ndarray) -> float:
    if math.modf(1e3 * abs(math.sin(1e4 * float(x[0] + 3 * y[0] + 1))))[0] < 0.9:
        raise ArithmeticError
    return copying(x, y)


ODD = {
    "F-constant": Problem(constant, copying, BOX, BOX),
    "f-constant": Problem(leader, constant, BOX, BOX),
    "both-constant": Problem(constant, constant, BOX, BOX),
    "F-fails": Problem(no_value, copying, BOX, BOX),
    "f-fails": Problem(leader, no_value, BOX, BOX),
    "f-fails-often": Problem(leader, often_raising, BOX, BOX),
    "F-fails-often": Problem(often_raising, copying, BOX, BOX),
    "f-infeasible": Problem(leader, copying, BOX, BOX, g=lambda x, y: 1 + float(y @ y)),
    "f-infeasible-and-flat": Problem(leader, copying, BOX, BOX, g=constant),
    "F-infeasible": Problem(leader, copying, BOX, BOX, G=lambda x, y: 1 + float(x @ x)),
    "no-x": Problem(leader, copying, [(3, 3), (1, 1)], BOX),
    "no-y": Problem(leader, copying, BOX, [(2, 2), (1, 1)]),
    "no-variables": Problem(leader, copying, [(3, 3), (1, 1)], [(2, 2), (1, 1)]),
    "some-fixed": Problem(leader, copying, [(3, 3), (-5, 10)], [(-5, 10), (2, 2)]),
    "f-of-steps": Problem(leader, lambda x, y: float(np.floor(4 * abs(y - x)).sum()), BOX, BOX),
    "f-concave": Problem(leader, lambda x, y: -copying(x, y), BOX, BOX),
    "f-an-equality": Problem(
        leader, copying, BOX, BOX, g=lambda x, y: [y[0] - y[1] ** 2, y[1] ** 2 - y[0]]
    ),
}


@pytest.mark.filterwarnings("ignore:[Ff] changes in steps")  # some functions round inside
@pytest.mark.rest
@pytest.mark.parametrize("name", ODD)
def test_a_run_ends_by_itself(name: str) -> None:
    few = Budget(upper_max=100, lower_max=60)
    result = minimize_counted(ODD[name], method=METHOD, rng=1, budget=few, on_failure="worst")
    assert result.status in ("stagnation", "budget")
    assert result.nfev < 20_000  # more than the budget: what is under way comes to its end


@pytest.mark.parametrize(("name", "F"), [("no-x", 20.0), ("no-y", 5.0), ("no-variables", 15.0)])
def test_a_level_without_variables_ends_a_run_soon(name: str, F: float) -> None:
    for seed in (1, 7):
        result = minimize_counted(ODD[name], method=METHOD, rng=seed)
        assert result.status == "stagnation" and result.nfev < 8000
        assert pytest.approx(F, abs=1e-6) == result.F


def test_the_fallback_does_not_give_up_a_certified_elite_for_an_unchecked_pair() -> None:
    driven = Driven(get("smd1"))
    spec, method = driven.spec(seed=1), DRCPlus()
    state = driven.run(method.init(spec))
    while not (state.elite is not None and state.the_elite.certified):
        state = driven.run(method.generation(spec, state))
    proven = state.the_elite
    state.known.smooth = 0.0  # as if followers were not smooth
    for _ in range(3):
        state = driven.run(method.generation(spec, state))
        assert state.the_elite.certified and state.the_elite.no_worse(proven)
        assert driven.told[-1].certified
    assert state.fallback is not None


def test_a_run_comes_back_from_the_fallback_when_followers_are_smooth() -> None:
    driven = Driven(get("smd1"))
    spec, method = driven.spec(seed=1), DRCPlus()
    state = driven.run(method.init(spec))
    state = driven.run(method.generation(spec, state))
    state.known.smooth = 0.4
    for _ in range(60):
        state = driven.run(method.generation(spec, state))
        if not state.known.rough:
            break
    assert not state.known.rough


def test_the_fallback_goes_on_while_its_leaders_improve_although_the_elite_does_not() -> None:
    def pairs(*values: float) -> list[Pair]:
        made = [Pair(np.zeros(1), np.zeros(1), 0.0, 0.0, F=F) for F in values]
        for pair in made:
            pair.violation = 0.0 if math.isfinite(pair.F) else 1.0
        return made

    drc, state = FallbackDRC(), LeaderState(None, elite=pairs(0.0)[0])
    rule, done = Stagnation(window=4, absolute=1e-6, relative=1e-6), list[bool]()
    inf = math.inf
    falling = [pairs(9.0 - i, 5.0 - i, 8.0 - i) for i in range(6)]
    stale = [pairs(9.0, 1.0, 8.0)] * 4
    for generation in [*[pairs(inf, 1.0, inf)] * 6, *falling, *stale]:
        state.elite_F.append(drc.recorded_F(state, generation))
        done.append(rule.met(state.progress()))
    assert all(math.isnan(F) for F in state.elite_F[:6])  # most pairs were infeasible
    assert state.elite_F[6:] == [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    assert done == [False] * 14 + [True] * 2
