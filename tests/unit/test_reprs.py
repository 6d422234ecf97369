"""What notebooks show of problems and results."""

import math
from html.parser import HTMLParser

import numpy as np
import pytest

import bilevo
from bilevo.core.notebook import MAX_POINTS, sparkline, table


class Reader(HTMLParser):
    """Tags and text of a page; tags that are open at the end are a mistake."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.lines: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        self.lines += [value for name, value in attrs if name == "points"]

    def handle_startendtag(self, tag, attrs) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        self.texts.append(data)


def test_a_problem_shows_its_sizes_bounds_and_constraints() -> None:
    page = Reader(bilevo.problems.get("smd1")._repr_html_())
    assert page.texts[0] == "Problem smd1"
    assert "2 variables x in [-5, 10]" in page.texts
    assert any(text.startswith("3 variables y in [-5, 10], [-1.5") for text in page.texts)
    assert page.texts[-1] == "F = 0, f = 0"
    page = Reader(bilevo.problems.get("gold-mining")._repr_html_())
    assert "1 variable y in [0, 100], with constraints" in page.texts
    assert "optimum" not in page.texts


def test_many_different_bounds_are_cut_short() -> None:
    bounds = [(0, i) for i in range(1, 50)]
    page = bilevo.Problem(max, max, bounds, [(0, 1)])._repr_html_()
    assert "49 variables x in [0, 1], [0, 2], [0, 3], [0, 4], ..." in page


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a & b", '"><img src=x onerror=1>'])
def test_names_are_text_and_nothing_else(name: str) -> None:
    problem = bilevo.Problem(lambda x, y: x[0], lambda x, y: y[0], [(0, 1)], [(0, 1)], name=name)
    page = Reader(problem._repr_html_())
    assert page.texts[0] == f"Problem {name}"
    assert not {"script", "img"} & set(page.tags)
    result = bilevo.minimize(problem, max_evals=50)
    result.method = result.message = name
    page = Reader(result._repr_html_())
    assert page.texts.count(name) == 2 and not {"script", "img"} & set(page.tags)
    page = Reader(table(name, {name: name}) + sparkline([1, 2], name))
    assert page.texts.count(name) == 4


def test_a_result_shows_what_it_prints_and_its_certificate() -> None:
    problem = bilevo.problems.get("smd1")
    result = bilevo.minimize(problem, method="drc-cma-es", max_evals=6000, rng=1)
    page = Reader(result._repr_html_())
    for line in repr(result).splitlines():
        name, _, text = line.strip().partition(": ")
        assert name in page.texts and text in page.texts
    assert len(page.lines[0].split()) == result.nit
    assert "certificate" not in page.texts
    certificate = bilevo.verify(problem, result)
    shown = Reader(result._repr_html_()).texts
    assert str(certificate) in shown and result.message in shown
    assert certificate.message in result.message


def test_a_curve_falls_when_its_values_do() -> None:
    corners = [
        tuple(map(float, p.split(","))) for p in Reader(sparkline([5, 3, 1], "F")).lines[0].split()
    ]
    x, y = np.array(corners).T
    assert (np.diff(x) > 0).all() and (np.diff(y) > 0).all()  # pixels count downwards


@pytest.mark.parametrize(
    ("values", "points"),
    [
        ([], 0),
        ([1.0], 0),
        ([math.inf, math.nan, 2.0], 0),
        ([math.inf, 3.0, 2.0], 2),
        ([1.0, 1.0], 2),
        ([-1.7e308, 1.7e308], 2),
    ],
)
def test_curves_of_few_or_infinite_values(values, points: int) -> None:
    drawn = sparkline(values, "F")
    assert (len(Reader(drawn).lines[0].split()) if drawn else 0) == points
    assert "nan" not in drawn and "inf" not in drawn


def test_long_curves_are_thinned_and_keep_their_end() -> None:
    corners = Reader(sparkline([float(-i) for i in range(10_000)], "F")).lines[0].split()
    assert MAX_POINTS / 2 < len(corners) <= MAX_POINTS + 2
    assert corners[-1] == "237.0,45.0"
