"""What success means, and what a message says is missing."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import quadratic
from hypothesis import given
from hypothesis import strategies as st

import bilevo
from bilevo.core.budget import OWN_ENDS, SUCCESSFUL_ENDS, StopReason
from bilevo.core.request import Incumbent
from bilevo.core.result import Certificate, Result
from bilevo.run.record import RunRecord

CHECKED = {"gap": 0.0, "certified": True, "searches": 3, "agreeing": 2, "check_evals": 50}
PAIR = Incumbent(np.zeros(1), np.zeros(1), 1.0, 2.0, 0.0, **CHECKED)
BARE = Incumbent(*PAIR[:5])
UNSETTLED = "stopped before it settled: "
ENDS = {
    StopReason.TARGET: "F reached the target",
    StopReason.STAGNATION: "the search has settled: F improves no more",
    StopReason.BUDGET: UNSETTLED + "the method's own budget is used up",
    StopReason.MAX_EVALS: UNSETTLED + "the limit on evaluations leaves no room for the next batch "
    "of 7",
    StopReason.MAX_TIME: UNSETTLED + "the time limit is reached",
    StopReason.CALLBACK: UNSETTLED + "the callback ended the run",
    StopReason.INTERRUPTED: UNSETTLED + "interrupted by the user",
    StopReason.RUNNING: "still running",
}
ANSWERS = {
    "the answer is feasible, and its follower is certified: 2 of 3 independent searches agree, and "
    "none found a better answer": PAIR,
    "the answer is feasible, but its follower is not certified: bilevo.verify checks it": BARE,
    "the answer is feasible, but its follower is not certified: only 1 of 3 independent searches "
    "agree": PAIR._replace(certified=False, agreeing=1),
    "the answer is feasible, but its follower is not certified: too few searches: 1 of 1 "
    "independent searches agree": PAIR._replace(certified=False, searches=1, agreeing=1),
    "the answer is feasible, but its follower's solver was not done": PAIR._replace(
        unfinished=True
    ),
    "the best pair violates constraints by 0.5": PAIR._replace(violation=0.5),
    "no pair with finite values was found": BARE._replace(F=math.inf, f=math.inf),
    "no value of F was computed before that": None,
}


def ended(reason: StopReason, best: Incumbent | None) -> Result:
    return RunRecord(best=best).result(1, 1, reason, 7, 0.0, "made-up", 1, "numpy")


def test_the_message_of_a_certified_answer_says_in_full_that_a_batch_was_cut() -> None:
    reason = StopReason.MAX_EVALS
    record = RunRecord(best=PAIR)
    result = record.result(1, 1, reason, 0, 0.0, "made-up", 1, "numpy", unused=4)
    why = "the limit on evaluations is reached (it cut a step off, and the last 4 values are not "
    why += "used); the answer is feasible, "
    assert result.message.startswith(UNSETTLED + why)


@pytest.mark.parametrize("reason", StopReason)
def test_the_message_begins_with_why_a_run_ended(reason: StopReason) -> None:
    result = ended(reason, PAIR)
    assert result.message.partition("; ")[0] == ENDS[reason]
    assert result.certified and result.success == (reason in SUCCESSFUL_ENDS)


@pytest.mark.parametrize("says", ANSWERS)
def test_the_message_ends_with_what_is_known_of_the_answer(says: str) -> None:
    result = ended(StopReason.TARGET, ANSWERS[says])
    assert result.message == f"F reached the target; {says}"
    assert result.success == ("and its follower is certified" in says)


def test_a_used_up_budget_is_an_end_of_its_own_but_no_success() -> None:
    assert StopReason.BUDGET in OWN_ENDS and not ended(StopReason.BUDGET, PAIR).success


def test_a_methods_own_certificate_is_in_the_result() -> None:
    made = ended(StopReason.MAX_EVALS, PAIR).certificate
    assert made is not None and made.by == "made-up" and made.confirmed and made.feasible
    assert (made.searches, made.agreeing, made.nfev_lower, made.follower_gap) == (3, 2, 50, 0)
    assert ended(StopReason.TARGET, BARE).certificate is None
    assert math.isnan(ended(StopReason.TARGET, BARE).follower_gap)


def test_a_gap_of_zero_is_not_known_if_searches_disagree() -> None:
    unsure = PAIR._replace(certified=False, agreeing=1)
    made = ended(StopReason.TARGET, unsure).certificate
    assert made is not None and math.isnan(made.follower_gap) and "nan" not in str(made)
    refuted = ended(StopReason.TARGET, unsure._replace(gap=0.25))
    assert refuted.follower_gap == 0.25


@given(
    st.sampled_from(StopReason),
    st.sampled_from([0.0, 1e-3, math.inf]),
    st.sampled_from([1.0, math.inf]),
    st.booleans(),
)
def test_success_follows_from_the_end_the_answer_and_the_certificate(
    reason: StopReason, violation: float, F: float, confirmed: bool
) -> None:
    result = ended(reason, BARE._replace(violation=violation, F=F))
    assert not result.success
    result.accept(certificate(confirmed))
    needed = reason in SUCCESSFUL_ENDS, violation == 0, math.isfinite(F), confirmed
    assert result.success == all(needed) and result.certified == confirmed
    assert result.message == f"{ENDS[reason]}; what was found"


def certificate(confirmed: bool, **changes: Any) -> Certificate:
    gap = 0.0 if confirmed else 0.5
    made = Certificate(np.zeros(1), 1.0, 2.0 - gap, gap, True, 90, 1, "what was found", confirmed)
    return replace(made, **changes)


def test_a_certificate_says_who_made_it_and_what_was_found() -> None:
    text = str(certificate(True, effort="low", searches=5, agreeing=4))
    assert text == (
        "confirmed by verify with effort low: 4 of 5 independent searches agree, 91 evaluations, "
        "f is 0 above the best f found"
    )
    refuted = str(certificate(False, by="mine"))
    assert refuted.startswith("not confirmed by mine: 91 evaluations, f is 0.5 above")
    assert "\x1b" not in str(certificate(True, by="\x1b[2J\n"))


def test_a_second_certificate_replaces_the_first() -> None:
    result = ended(StopReason.TARGET, PAIR)
    result.accept(certificate(False))
    assert not result.success and not result.certified and result.follower_gap == 0.5
    result.accept(certificate(True))
    assert result.success and result.message == "F reached the target; what was found"


def test_a_verified_pair_that_violates_a_constraint_is_no_success() -> None:
    result = ended(StopReason.TARGET, PAIR)
    result.accept(certificate(True, feasible=False))
    assert result.certified and not result.success


def test_published_methods_name_verify_and_it_makes_the_success() -> None:
    result = bilevo.minimize(quadratic(), method="bl-cma-es", rng=1)
    assert result.status == "stagnation" and not result.success and not result.certified
    assert result.message.endswith("not certified: bilevo.verify checks it")
    made = bilevo.verify(quadratic(), result)
    assert made.by == "verify" and result.certificate is made
    assert result.success == made.confirmed == result.certified


def test_a_success_of_an_older_file_is_none_without_a_certificate(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    ended(StopReason.TARGET, BARE).save(path)
    content = json.loads(path.read_text())
    del content["certified"]  # as in files from before there were certificates
    content |= {"success": True, "message": "F reached the target; the answer is feasible"}
    path.write_text(json.dumps(content))
    loaded = Result.load(path)
    assert not loaded.success and not loaded.certified and loaded.feasible
    assert loaded.message.endswith(
        "feasible, but its follower is not certified: bilevo.verify checks it"
    )
