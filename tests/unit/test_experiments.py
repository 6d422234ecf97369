"""The comparison with the paper, and pictures."""

import numpy as np
import pytest

import bilevo
from bilevo import plot
from bilevo.experiments.reproduce import Row, Run, carry_out, compare, paper_values, show


def test_the_paper_is_quoted_as_printed() -> None:
    assert paper_values("smd1", "2,3", "drc-cma-es") == {
        "total": 14600,
        "accuracy": 1e-6,
        "upper": 818,
        "lower": 13700,
    }
    assert paper_values("smd12", "10,10", "bl-cma-es") == {"total": 418000}


def test_seeds_come_from_the_runs_name_alone() -> None:
    seeds = {
        Run(problem, 2, 3, method, i).seed
        for problem in ("smd1", "smd2")
        for method in ("drc-cma-es", "bl-cma-es")
        for i in range(50)
    }
    assert len(seeds) == 200
    assert Run("smd1", 2, 3, "drc-cma-es", 0).seed == Run("smd1", 2, 3, "drc-cma-es", 0).seed


def test_a_run_is_verified_beside_what_it_reports() -> None:
    row = carry_out(Run("smd4", 2, 3, "drc-cma-es", 1))
    assert row.accuracy < 1e-6
    assert np.isfinite(row.verified) and row.verified != row.accuracy


def test_tables_show_ours_the_papers_and_the_difference() -> None:
    rows = [Row(Run("smd1", 2, 3, "drc-cma-es", i), 1e-9, 2e-5, 900, 13700) for i in range(3)]
    lines = compare(rows, "2,3")
    assert lines[1][:5] == ["drc-cma-es", "smd1", "1.0e-06", "1.0e-06", "2.0e-05"]
    assert lines[1][5:11] == ["900", "818", "+10.0%", "13700", "13700", "+0.0%"]
    assert lines[2][1] == "sum"
    assert len({len(line) for line in lines}) == 1
    assert show(lines, markdown=True).splitlines()[1].startswith("| --- |")
    assert len({len(line) for line in show(lines, markdown=False).splitlines()}) == 1


@pytest.mark.parametrize("kind", ["convergence", "allocation"])
def test_pictures_are_drawn(tmp_path, kind: str) -> None:
    problem = bilevo.problems.get("smd1")
    results = {
        method: bilevo.minimize(problem, method=method, max_evals=6000)
        for method in ("drc-cma-es", "bl-cma-es")
    }
    figure = getattr(plot, kind)(results)
    figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5000
    drawn = [bar.get_height() for ax in figure.axes for bar in ax.patches if bar.get_height()]
    if kind == "allocation":
        shown = results["drc-cma-es"].history[-1].executions
        assert drawn[2 * len(shown) : 3 * len(shown)] == list(shown)
    else:
        assert [line.get_label() for line in figure.axes[0].lines] == list(results)


def test_a_run_without_a_generation_cannot_be_drawn() -> None:
    result = bilevo.minimize(bilevo.problems.get("smd1"), max_evals=70)
    with pytest.raises(ValueError, match="no generation to show"):
        plot.allocation({"drc": result})
