"""Pictures."""

import pytest

import bilevo
from bilevo import plot


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
