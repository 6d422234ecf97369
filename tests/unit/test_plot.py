"""Pictures."""

import math
from itertools import pairwise

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
        history = results["drc-cma-es"].history
        shown = [history[i].executions for i in (0, math.ceil(0.4 * len(history)) - 1)]
        assert drawn[: 2 * len(shown[0])] == [count for bars in shown for count in bars]
    else:
        assert [line.get_label() for line in figure.axes[0].lines] == list(results)


def test_a_run_without_a_generation_cannot_be_drawn() -> None:
    result = bilevo.minimize(bilevo.problems.get("smd1"), method="drc-plus", max_evals=70)
    with pytest.raises(ValueError, match="no generation to show"):
        plot.allocation({"drc": result})


def test_a_run_that_ends_in_its_first_generation_is_a_point() -> None:
    problem = bilevo.Problem(
        *(lambda x, y: (x[0] - 3) ** 2 + y[0], lambda x, y: (y[0] - x[0]) ** 2),
        *([(0, 10)], [(0, 10)]),
        **{"x_integrality": 1, "y_integrality": 1},
    )
    result = bilevo.minimize(problem, max_evals=30)
    assert not result.history
    line = result.plot().axes[0].lines[0]
    assert (*line.get_xdata(), *line.get_ydata()) == (result.nfev, result.F)
    with pytest.raises(ValueError, match="nothing to show"):
        bilevo.minimize(problem, max_evals=1).plot()


def test_stages_are_the_first_generation_and_two_and_four_fifths_of_the_way() -> None:
    numbers = list(range(1, 51))
    tasks = [[number] for number in numbers]
    found = plot.stages(numbers, tasks, [[True]] * 50)
    assert [(stage.name, stage.generation, stage.executions) for stage in found] == [
        ("early", 1, [1]),
        ("middle", 20, [20]),
        ("late", 40, [40]),
    ]
    thinned = plot.stages([1, 17, 33, 49, 50], [[0]] * 5, [[True]] * 5)
    assert [stage.generation for stage in thinned] == [1, 33, 49]
    assert [stage.generation for stage in plot.stages([1], [[3]], [[True]])] == [1, 1, 1]


def test_methods_have_scales_of_their_own_and_ticks_that_can_be_read() -> None:
    few = [plot.Stage(name, 1, [1, 0, 8], [True] * 3) for name in plot.STAGES]
    many = [plot.Stage(name, 1, [350] * 50, [True] * 50) for name in plot.STAGES]
    figure = plot.draw_stages([("drc", few), ("nblea", many)])
    figure.draw_without_rendering()
    first, second = figure.axes[:3], figure.axes[3:]
    assert len({ax.get_ylim() for ax in first}) == len({ax.get_ylim() for ax in second}) == 1
    assert first[0].get_ylim()[1] < 10 and second[0].get_ylim()[1] > 350
    assert first[0].get_xticks().tolist() == [1, 2, 3]
    assert second[2].get_xticks().tolist() == [1, 8, 15, 22, 29, 36, 43, 50]
    for ax in figure.axes:
        assert all(tick == int(tick) for tick in ax.get_yticks())


@pytest.mark.parametrize("count", [0, 1, 8, 9, 50, 1000])
def test_at_most_eight_tasks_are_named(count: int) -> None:
    ticks = plot.task_ticks(count)
    assert len(ticks) <= plot.MAX_TICKS and ticks[:1] == [1][:count]
    assert len({b - a for a, b in pairwise(ticks)}) <= 1


def test_a_result_draws_itself_and_notebooks_show_it() -> None:
    result = bilevo.minimize(bilevo.problems.get("smd1"), method="drc-cma-es", max_evals=6000)
    figure = result.plot(F_star=0.0)
    first, *stages = figure.axes
    assert first.lines[0].get_ydata().tolist() == [abs(row.F) for row in result.history]
    heights = [bar.get_height() for bar in stages[0].patches]
    assert heights[: len(result.history[0].executions)] == list(result.history[0].executions)
    assert len({ax.get_ylim() for ax in stages}) == 1
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_one_task_alone_shares_out_nothing() -> None:
    result = bilevo.minimize(bilevo.problems.get("smd1"), rng=1)  # drc-plus descends
    assert all(len(row.executions) == 1 for row in result.history)
    (ax,) = result.plot().axes
    assert ax.lines[0].get_marker() == "o"
