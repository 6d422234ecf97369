"""Stop rules: each is met by what it says, and the first that is met gives the reason."""

import math

import pytest

from bilevo.core.budget import StopReason
from bilevo.core.problem import Target
from bilevo.core.stop_rules import (
    AtTarget,
    BudgetUsed,
    Progress,
    Settled,
    Stagnation,
    first_met,
)

WANTED = Target(1.0, 1e-3, optimum=False)


def test_the_first_rule_that_is_met_gives_the_reason() -> None:
    rules = AtTarget(WANTED), Settled(), BudgetUsed(upper=10)
    assert first_met(rules, Progress(0.5, 0.0, upper=20, settled=True)) is StopReason.TARGET
    assert first_met(rules, Progress(5.0, 0.0, upper=20, settled=True)) is StopReason.STAGNATION
    assert first_met(rules, Progress(5.0, 0.0, upper=20)) is StopReason.BUDGET
    assert first_met(rules, Progress(5.0, 0.0, upper=9)) is None


def test_only_a_feasible_pair_meets_a_target_and_without_one_none_does() -> None:
    assert AtTarget(WANTED).met(Progress(0.5, 0.0))
    assert not AtTarget(WANTED).met(Progress(0.5, 1e-9))
    assert not AtTarget(None).met(Progress(-math.inf, 0.0))


@pytest.mark.parametrize(
    ("rule", "progress"),
    [
        (BudgetUsed(upper=10), Progress(0.0, 0.0, upper=10)),
        (BudgetUsed(lower=10), Progress(0.0, 0.0, lower=10)),
        (BudgetUsed(total=10), Progress(0.0, 0.0, upper=4, lower=6)),
        (BudgetUsed(generations=10), Progress(0.0, 0.0, generations=10)),
    ],
)
def test_each_budget_counts_its_own_evaluations(rule: BudgetUsed, progress: Progress) -> None:
    assert rule.met(progress)
    assert not BudgetUsed().met(progress)
    fewer = {
        name: max(0, getattr(progress, name) - 1) for name in ("upper", "lower", "generations")
    }
    assert not rule.met(progress._replace(**fewer))


def test_stagnation_needs_a_window_of_generations_and_both_tolerances() -> None:
    rule = Stagnation(window=3, absolute=1e-3, relative=1e-3)
    assert not rule.met(Progress(1.0, 0.0, record=[1.0, 1.0, 1.0]))
    assert rule.met(Progress(1.0, 0.0, record=[5.0, 1.0, 1.0, 1.0]))
    assert not rule.met(Progress(1.0, 0.0, record=[1e6, 1.5, 1.1, 1.0]))  # small for its size only
