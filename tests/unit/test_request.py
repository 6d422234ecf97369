"""`together`, `alongside` and `Values`."""

import numpy as np
import pytest

from bilevo.core.request import (
    Evaluate,
    Incumbent,
    Level,
    Procedure,
    Request,
    Values,
    alongside,
    evaluate,
    run,
    together,
)


def answers(request: Evaluate, spent: int = 0) -> Values:
    """Values that show where they belong: x + 10 y below, their negative above."""
    sign = 1 if request.level is Level.LOWER else -1
    objective = sign * (request.x[:, 0] + 10 * request.y[:, 0])
    return Values.of(objective, np.empty((len(objective), 0)), 0, spent)


def drive(steps: Procedure) -> tuple[list, object]:
    """Drive a procedure; its requests and its result."""
    requests = []

    def answer(request: Request) -> Values | None:
        requests.append(request)
        return answers(request) if isinstance(request, Evaluate) else None

    return requests, run(steps, answer)


def batches(steps: Procedure) -> list[tuple[Level, int]]:
    """The level and size of a procedure's evaluations."""
    return [(r.level, len(r.x)) for r in drive(steps)[0] if isinstance(r, Evaluate)]


def procedure(name: float, rounds: int) -> Procedure[list[float]]:
    seen = []
    for i in range(rounds):
        point = np.array([[name]]), np.array([[float(i)]])
        seen += (yield from evaluate(Level.LOWER, *point)).objective.tolist()
    yield Incumbent(np.zeros(1), np.zeros(1), name, 0.0, 0.0)
    seen += (yield from evaluate(Level.UPPER, *point)).objective.tolist()
    return seen


def test_together_gives_each_procedure_its_own_values() -> None:
    alone = [drive(procedure(name, rounds))[1] for name, rounds in ((1.0, 2), (2.0, 1), (3.0, 3))]
    _, joined = drive(together([procedure(1.0, 2), procedure(2.0, 1), procedure(3.0, 3)]))
    assert joined == alone


def test_together_batches_requests_of_one_level_and_passes_incumbents_on() -> None:
    three = [(1.0, 2), (2.0, 1), (3.0, 3)]
    expected = [(Level.LOWER, 3), (Level.LOWER, 2), (Level.LOWER, 1), (Level.UPPER, 3)]
    assert batches(together(procedure(*one) for one in three)) == expected
    requests, _ = drive(together(procedure(*one) for one in three))
    assert [r.F for r in requests if isinstance(r, Incumbent)] == [2.0, 1.0, 3.0]


def test_together_of_nothing_is_nothing() -> None:
    assert drive(together([])) == ([], [])


@pytest.mark.parametrize(("main", "side"), [(3, 1), (2, 2), (1, 3)])
def test_alongside_gives_both_procedures_their_own_values(main: int, side: int) -> None:
    alone = [drive(procedure(name, rounds))[1] for name, rounds in ((1.0, main), (2.0, side))]
    requests, joined = drive(alongside(procedure(1.0, main), procedure(2.0, side)))
    assert list(joined) == alone
    assert {r.F for r in requests if isinstance(r, Incumbent)} == {1.0, 2.0}


def test_alongside_adds_no_batch_before_the_main_procedure_has_ended() -> None:
    waits = [(Level.LOWER, 2), (Level.LOWER, 1), (Level.LOWER, 1), (Level.UPPER, 2)]
    assert batches(alongside(procedure(1.0, 3), procedure(2.0, 1))) == waits
    goes_on = [(Level.LOWER, 2), (Level.UPPER, 1), (Level.LOWER, 1), (Level.UPPER, 1)]
    assert batches(alongside(procedure(1.0, 1), procedure(2.0, 2))) == goes_on


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["objective", "constraints"])
def test_a_non_finite_number_anywhere_makes_its_row_worst(bad: float, where: str) -> None:
    objective, constraints = np.array([1.0, 2.0]), np.array([[-1.0, 2.0], [0.5, -3.0]])
    {"objective": objective, "constraints": constraints[:, 0]}[where][1] = bad
    values = Values.of(objective, constraints, 0, 5)
    assert values.objective.tolist() == [1.0, np.inf]
    assert values.violation.tolist() == [2.0, np.inf]
    assert values.spent == 5


def test_huge_finite_values_stay_as_they_are() -> None:
    values = Values.of(np.array([1e200, -1e300]), np.full((2, 1), -1e250), 0, 0)
    assert values.objective.tolist() == [1e200, -1e300]
    assert values.violation.tolist() == [0.0, 0.0]
    overflow = Values.of(np.zeros(1), np.full((1, 2), 1.7e308), 0, 0)
    assert (overflow.objective[0], overflow.violation[0]) == (np.inf, np.inf)


def test_repeated_constraints_are_not_counted() -> None:
    values = Values.of(np.zeros(1), np.array([[1.0, 2.0, 4.0]]), 2, 0)
    assert values.violation.tolist() == [1.0]


def test_fair_turns_serve_the_level_that_has_waited_longest() -> None:
    def upper() -> Procedure[None]:
        yield evaluate_request(Level.UPPER)

    def lower() -> Procedure[None]:
        for _ in range(3):
            yield evaluate_request(Level.LOWER)

    def evaluate_request(level: Level) -> Evaluate:
        return Evaluate(level, np.zeros((1, 1)), np.zeros((1, 1)))

    def levels(fair: bool) -> str:
        requests, _ = drive(together([lower(), upper()], fair=fair))
        return "".join(request.level[0] for request in requests)

    assert levels(fair=False) == "lllu" and levels(fair=True) == "lull"
