"""Figures of stored runs."""

import sys

import polars as pl
import pytest

from bilevo.lab.analysis import curves
from bilevo.lab.analysis.samples import Case
from bilevo.lab.show import figures
from bilevo.lab.show.palette import COLOURS, short_name, styles
from bilevo.lab.store import HISTORY, RUNS

METHODS = ("drc-cma-es", "bl-cma-es", "_a $method$ <b>")
KINDS = [kind for kind in figures.FIGURES if kind != "sensitivity"]  # it needs other runs
OPTIMA = {"smd1": 0.0, "smd$2$": float("nan"), "tp1": 225.0}


@pytest.fixture(scope="module")
def frames() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Made-up runs of three methods on three problems, one of them unknown."""
    runs, history = [], []
    for i, problem in enumerate(OPTIMA):
        for j, method in enumerate(METHODS):
            for number in range(3):
                key = {"problem": problem, "m": 2, "n": 2 if problem == "tp1" else 3}
                key |= {"method": method, "number": number}
                values = [10.0 ** (2 - k) * (1 + j + number) for k in range(8)]
                end = {"F": values[-1], "f": 0.0, "violation": 0.0, "nfev_upper": 8}
                end |= {"nfev_lower": 800 * (1 + j), "status": "target", "Acc_u": values[-1]}
                end |= {"F_star": OPTIMA[problem]}
                runs.append({**key, **end, "time": 0.1 * (1 + i + j + number)})
                history += [
                    {**key, **end, "generation": k + 1, "nfev_upper": k + 1, "F": F}
                    | {"nfev_lower": 100 * (k + 1) * (1 + j)}
                    | {"executions": [3 + k, 1, 2 + j, 5], "survived": [True, False, True, False]}
                    for k, F in enumerate(values)
                ]
    keys = {name: RUNS[name] for name in ("problem", "m", "n", "method", "number")}
    told = [{name: row[name] for name in (*keys, *HISTORY)} for row in history]
    return pl.DataFrame(runs, schema=RUNS), pl.DataFrame(told, schema=keys | HISTORY)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("kind", "suffix"),
    [*((kind, "pdf") for kind in KINDS), ("ecdf", "png"), ("ecdf", "svg")],
)
def test_the_same_figure_is_the_same_file(tmp_path, frames, kind: str, suffix: str) -> None:
    files = []
    for folder in ("first", "second"):
        path = tmp_path / folder / f"figure.{suffix}"
        path.parent.mkdir()
        figures.save(figures.draw(kind, *frames), path)
        files.append(path.read_bytes())
    assert files[0] == files[1]
    assert files[0].startswith({"pdf": b"%PDF", "png": b"\x89PNG", "svg": b"<?xml"}[suffix])
    assert len(files[0]) > 3000
    for date in (b"CreationDate", b"dc:date", b"tIME"):
        assert date not in files[0]


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_shown_as_they_are(tmp_path, frames, kind: str) -> None:
    """Neither as formulas nor as markup, and none is left out because of how it begins."""
    figures.save(figures.draw(kind, *frames), tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    words = ["_a $method$", "&lt;b&gt;"]  # two lines where there is little room
    words += ["smd$2$ (2, 3)"] if kind in ("convergence", "runtime", "ecdf") else []
    for word in words:
        assert word in text


def test_a_method_looks_the_same_whatever_else_is_there() -> None:
    alone = styles(["drc-cma-es"])["drc-cma-es"]
    many = styles(["nblea", "other", "drc-cma-es/plain", "bl-cma-es", "drc-cma-es"])
    assert many["drc-cma-es"] == alone
    assert many["drc-cma-es/plain"].colour == alone.colour
    assert len(set(many.values())) == len(many)
    published = ["drc-cma-es", "bl-cma-es", "tlea-cma-es", "nblea", "bleaq2", "go-cma-es"]
    printed = styles(["drc-plus", *published])
    assert len({look.colour for look in printed.values()}) == len(printed) <= len(COLOURS)


def test_names_are_cut_to_one_short_line() -> None:
    assert short_name("plain") == "plain"
    assert short_name("a\nb\x00c") == "a\ufffdb\ufffdc"
    assert len(short_name("x" * 99)) == 28
    assert short_name("x" * 99).endswith("\u2026")


def test_lines_show_the_medians(frames) -> None:
    runs, history = frames
    one = pl.col("problem") == "smd1"
    figure = figures.draw("convergence", runs.filter(one), history.filter(one))
    (ax,) = figure.axes
    bands = curves.convergence(history, runs, Case("smd1", 2, 3)).bands
    for line, band in zip(ax.lines, bands, strict=True):
        assert line.get_xdata().tolist() == band.evaluations.tolist()
        assert line.get_ydata().tolist() == band.median.tolist()
    assert ax.get_yscale() == "log"


def test_each_problem_has_a_panel_and_an_unknown_optimum_is_said(frames) -> None:
    figure = figures.draw("convergence", *frames)
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["smd1 (2, 3)", "tp1 (2, 2)", "smd$2$ (2, 3)"]
    unknown = figure.axes[-1]
    assert unknown.get_yscale() == "linear"
    assert unknown.texts[0].get_text() == "optimum unknown,\nbest reported 1e-05"


def test_what_has_no_history_is_named_below(frames) -> None:
    runs, history = frames
    known = history.filter(pl.col("method") != "bl-cma-es")
    for kind in ("convergence", "allocation"):
        figure = figures.draw(kind, runs, known)
        assert figure.get_supxlabel().endswith("\nnot shown: bl-cma-es")
    label = figures.draw("ecdf", runs, known).axes[0].get_xlabel()
    assert label == "evaluations of both levels\nnot shown: bl-cma-es, smd$2$ (2, 3)"


def test_a_problem_without_a_feasible_pair_is_named_below(frames) -> None:
    worse = pl.when(pl.col("problem") == "tp1").then(1.0).otherwise(pl.col("violation"))
    runs, history = (frame.with_columns(violation=worse) for frame in frames)
    figure = figures.draw("convergence", runs, history)
    assert len(figure.axes) == 2
    assert figure.get_supxlabel().endswith("\nnot shown: tp1 (2, 2)")


@pytest.mark.parametrize("kind", ["convergence", "allocation", "ecdf"])
def test_runs_without_histories_cannot_be_drawn(frames, kind: str) -> None:
    runs, history = frames
    with pytest.raises(ValueError, match="histor"):
        figures.draw(kind, runs, history.clear())


def test_allocation_is_of_the_first_problem_that_has_executions(frames) -> None:
    runs, history = frames
    silent = pl.when(pl.col("problem") == "smd1").then(pl.lit([])).otherwise("executions")
    few = history.with_columns(executions=silent.cast(HISTORY["executions"]))
    assert figures.draw("allocation", runs, few).get_supxlabel().startswith("tp1 (2, 2)")
    none = history.with_columns(executions=pl.lit([]).cast(HISTORY["executions"]))
    with pytest.raises(ValueError, match="no run has a history with executions"):
        figures.draw("allocation", runs, none)


def test_bars_join_the_methods_that_do_not_differ(frames) -> None:
    runs, history = frames
    found = curves.ranks(runs, "Acc_u", 1e-6)
    figure = figures.draw("critical-difference", runs, history)
    text = [note.get_text() for note in figure.axes[0].texts]
    assert f"critical difference {found.difference:.2f}" in text
    assert "drc-cma-es  1.00" in text
    thick = [line for line in figure.axes[0].lines if line.get_linewidth() > 2]
    assert len(thick) == len(found.cliques) == 2


def test_an_unknown_kind_is_refused(frames) -> None:
    with pytest.raises(ValueError, match="unknown figure 'pie'; known are convergence, alloc"):
        figures.draw("pie", *frames)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"indicator": "Acc"}, "unknown indicator 'Acc'; known are Acc_u, Acc_l, verified, F"),
        ({"floor": -1.0}, "floor is -1.0; it should be a number from 0"),
    ],
)
@pytest.mark.parametrize("kind", ["critical-difference", "ecdf"])
def test_what_is_asked_wrongly_is_told(frames, kind: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        figures.draw(kind, *frames, **options)


def test_a_missing_matplotlib_is_told(frames, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"figures need matplotlib: pip install 'bilevo\[plot\]'"):
        figures.draw("ecdf", *frames)
