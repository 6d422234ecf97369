"""Which conformance tests of slower methods wait for `scripts/test --rest`."""

from __future__ import annotations

import pytest

# These have all tests in the short run. Others have the rules there that a change of the driver can
# break: counting, limits, repeating, resuming, ask and tell, values that are missing.
ALWAYS = ("drc-cma-es", "drc-plus", "bl-cma-es", "drc-in-rounds")
VARIANTS = (
    "bleaq2-by-mappings",
    "drc-mixed-in-rounds",
    "drc-plus-wide",
)  # of methods that are tested themselves
LATER = {
    "test_improves_on_its_first_generation",
    "test_solves_one_dimensional_levels",
    "test_returns_on_every_problem_of_the_suites",
    "test_stops_at_a_value_that_takes_some_search",
    "test_reports_the_values_at_the_pair_it_reports",
    "test_counts_the_executions_of_each_task",
    "test_survives_failures_of_one_point_in_ten",
    "test_succeeds_although_one_point_in_ten_fails",
    "test_another_seed_gives_another_run",
    "test_starts_from_a_given_point",
    "test_handles_one_dimensional_levels",
    "test_returns_within_the_bounds_of_wide_narrow_and_fixed_variables",
    "test_stops_at_a_target",
    "test_resumes_from_a_snapshot_to_the_same_bits",
    "test_finds_an_answer_although_one_point_in_ten_fails",
    "test_handles_whole_numbers",
    "test_handles_two_independent_followers",
    "test_handles_two_followers_in_equilibrium",
}
WITH_SOLVER = ("trust-region",)  # has all tests on solvers in the short run
CONSTRAINED = "test_handles_constraints_at_both_levels"
FIRST_PROBLEM = "smd9"  # of those with constraints, the one that is in the short run


def waits(item: pytest.Item) -> bool:
    """Tell whether a test is one of a slower method that the short run leaves out."""
    if not isinstance(item, pytest.Function) or item.path.parent.name != "conformance":
        return False
    case = item.callspec.id if hasattr(item, "callspec") else ""
    if item.cls is not None and item.cls.__name__ == "TestWithSolver":
        return not case.endswith(WITH_SOLVER)
    if case.endswith((*ALWAYS, *VARIANTS)):
        return case.endswith(VARIANTS)
    name = item.originalname
    return name in LATER or (name == CONSTRAINED and FIRST_PROBLEM not in case.split("-"))
