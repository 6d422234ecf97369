"""Tables as text, Markdown, CSV and LaTeX."""

import csv
import re
import shutil
import subprocess
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import PAPER

from bilevo.lab import store
from bilevo.lab.analysis import tables
from bilevo.lab.analysis.table_parts import GENERAL, Cell, Table
from bilevo.lab.show import formats

DATA = Path(__file__).parents[2] / "docs" / "data"
NASTY = [
    *("smd_1", "<script>alert(1)</script>", "50% & more", r"\input{/etc/passwd}", "$x^2$", "#~{}"),
    *(
        "[2mm]",
        "*",
        "a|b",
        "--",
        "`code`",
        '"q"',
        "_a_",
        "**b**",
        "na\u00efve \u4e2d\u6587",
        "a\nb",
    ),
    *("x\x1b[31mred", "![](http://x)", "=1+1", "&lt;", "a\\", "\u00de\u00d0"),
]


def write(table: Table, form: str) -> str:
    return formats.format_tables([table], form)


SMALL = Table(
    "small",
    "A table at (m, n) = (2, 3)",
    ["problem", "indicator", "drc-cma-es", "x_1"],
    [
        [
            *("smd1", "Acc_u"),
            Cell(1e-6, spread=0.0, baseline=2e-6, best=True),
            Cell(0.5, spread=0.25, mark="+", doubt=True),
        ],
        [
            "smd1",
            "FEs",
            Cell(1234.5, ".0f", baseline=1e3),
            Cell(99.0, ".0f", saved=-0.835, best=True),
        ],
        ["smd2", "Acc_u", Cell(np.nan), Cell(np.inf, ".0f", text="never", mark="=")],
        ["+/-/=", "Acc_u", Cell(np.nan, text=""), Cell(np.nan, text="1/0/1 [1/1/0]")],
    ],
    ["Medians of 3 runs.", "+/-/=: better, worse, neither."],
)
LATEX = r"""% in the preamble: \usepackage{booktabs,graphicx} \usepackage[table]{xcolor}
\begin{table*}[htbp]
  \centering
  \caption{A table at (m, n) = (2, 3)}
  \label{table:small}
  \resizebox{\textwidth}{!}{%
  \begin{tabular}{llcc}
    \toprule
    problem & indicator & drc-cma-es & x\_1 \\
    \midrule
    smd1 & Acc\_u & \cellcolor[rgb]{.851,.851,.851}\textbf{1.00e-06(0.00e+00)} {[}2.00e-06{]} & 5.00e-01!(2.50e-01)$+$ \\
     & FEs & 1234 {[}1000{]} & \cellcolor[rgb]{.851,.851,.851}\textbf{99(-83.5\%)} \\
    \midrule
    smd2 & Acc\_u & - & never$\approx$ \\
    \midrule
    +/-/$\approx$ & Acc\_u &  & 1/0/1 {[}1/1/0{]} \\
    \bottomrule
  \end{tabular}}
  \par\smallskip{\footnotesize Medians of 3 runs.}
  \par\smallskip{\footnotesize +/-/$\approx$: better, worse, neither.}
\end{table*}
"""  # noqa: E501
TEXT = """\
A table at (m, n) = (2, 3)

problem  indicator                       drc-cma-es                     x_1
   smd1      Acc_u  1.00e-06 (0.00e+00)* [2.00e-06]  5.00e-01! (2.50e-01) +
   smd1        FEs                      1234 [1000]            99 (-83.5%)*
   smd2      Acc_u                                -                 never =
  +/-/=      Acc_u                                            1/0/1 [1/1/0]

Medians of 3 runs.
+/-/=: better, worse, neither.
*: the best of its row.
"""
MARKDOWN = """\
| problem | indicator | drc-cma-es | x_1 |
| --- | --- | --- | --- |
| smd1 | Acc_u | **1.00e-06 (0.00e+00)** [2.00e-06] | 5.00e-01! (2.50e-01) + |
| smd1 | FEs | 1234 [1000] | **99 (-83.5%)** |
| smd2 | Acc_u | - | never = |
| +/-/= | Acc_u |  | 1/0/1 [1/1/0] |

Medians of 3 runs. +/-/=: better, worse, neither.
"""
CSV = (
    "problem,indicator,drc-cma-es,drc-cma-es: IQR,drc-cma-es: baseline,x_1,x_1: doubt,x_1: IQR,"
    """x_1: mark,x_1: saved
smd1,Acc_u,1e-06,0.0,2e-06,0.5,!,0.25,+,
smd1,FEs,1234.5,,1000.0,99.0,,,,-0.835
smd2,Acc_u,,,,never,,,=,
'+/-/=,Acc_u,,,,1/0/1 [1/1/0],,,,
"""
)


@pytest.mark.parametrize(
    ("form", "expected"),
    [("latex", LATEX), ("text", TEXT), ("markdown", MARKDOWN), ("csv", CSV)],
)
def test_a_table_in_every_format(form: str, expected: str) -> None:
    assert write(SMALL, form) == expected


def named(names: list[str]) -> Table:
    """A table whose every place for a name has one of these."""
    rows: list[list[Cell | str]] = [
        [name, "Acc_u", *(Cell(1.0, mark="=", best=True) for _ in names)] for name in names
    ]
    notes = [f"Runs that failed: {name}." for name in names]
    return Table("named", "Names", ["problem", "indicator", *names], rows, notes)


def test_names_stay_on_their_line_and_obey_no_terminal() -> None:
    shown = write(named(NASTY), "text")
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 2 + 1 + len(NASTY) + 1 + len(NASTY) + 1
    assert len(write(named(NASTY), "markdown").splitlines()) == 2 + len(NASTY) + 2


@settings(derandomize=True, deadline=None)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True))
def test_markdown_keeps_its_columns_and_lets_no_html_through(names: list[str]) -> None:
    table, _, _ = write(named(names), "markdown").partition("\n\n")
    lines = table.split("\n")
    assert len(lines) == 2 + len(names)
    assert all(len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == len(names) + 3 for line in lines)
    assert not set("<>") & set(table)


@settings(derandomize=True, deadline=None)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True))
def test_names_come_back_from_csv(names: list[str]) -> None:
    written = write(named(names), "csv")
    header, *lines = csv.reader(StringIO(written, newline=""))
    assert [formats.unguarded(head) for head in header[::2][1:]] == names
    assert [formats.unguarded(line[0]) for line in lines] == names
    for cell in (*header, *(cell for line in lines for cell in line)):
        assert cell in ("=", *names) or cell[:1] not in ("=", "+", "-", "@", "\t", "\r")
        assert cell not in names or len(cell) == 1 or cell[0] not in "=+-@\t\r"


def test_names_within_cells_are_escaped_too() -> None:
    cell = Cell(2.0, text="2.00 (\x1b[2J<b>)", named=True)
    table = Table("t", "T", ["a"], [[cell]])
    assert "2.00 (\\x1b[2J<b>)" in write(table, "text")
    assert "&lt;b&gt;" in write(table, "markdown")


@settings(derandomize=True, deadline=None)
@given(st.text())
def test_latex_sees_only_letters_that_mean_themselves(name: str) -> None:
    shown = write(Table("t", "Names", ["x"], [[f"({name})"]]), "latex")
    first = re.search(r"\\midrule\n    \((.*)\) \\\\\n", shown)[1]
    known = r"\\text(backslash|asciitilde|asciicircum|less|greater|bar)\{\}|\\[&%$#_{}]"
    known += r"|\{[][*]\}|\{\\char\d+\}|\$\\approx\$"
    assert not set(r"\&%$#^~<>|[]*") & set(re.sub(known, "", first))
    assert all(letter.isascii() or letter in formats.LETTERS for letter in first)


def test_a_table_without_rows_says_why() -> None:
    empty = Table("real", "Nothing", ["problem", "indicator"], [], ["The optima are known."])
    for form in ("text", "markdown", "latex"):
        assert "The optima are known." in write(empty, form)
    assert write(empty, "csv") == "problem,indicator\n"


@pytest.mark.parametrize("form", ["text", "csv", "latex", "markdown"])
def test_several_tables_stand_one_after_the_other(form: str) -> None:
    one = write(SMALL, form)
    assert formats.format_tables([SMALL, SMALL], form) == f"{one}\n{one}"


def test_several_tables_are_one_document() -> None:
    wide = named(["a", "b", "c"])
    text = formats.format_tables([SMALL, wide], "latex-document")
    for once in (r"\documentclass", r"\begin{document}", r"\end{document}", r"\clearpage"):
        assert text.count(once) == 1
    assert text.count(r"\begin{table*}") == 2 and "% in the preamble" not in text
    assert "paperwidth=220mm,paperheight=104mm" in text  # five columns, four rows


def test_values_of_problems_have_digits_that_count() -> None:
    cell = Cell(-2.34567891e-5, GENERAL, spread=1.23456e-7)
    assert formats.pieces(cell)["value"] == "-2.34568e-05"
    assert formats.pieces(cell)["IQR"] == "1.235e-07"


def test_an_unknown_format_is_told() -> None:
    with pytest.raises(ValueError, match="unknown format 'pdf'; known are text, csv"):
        write(SMALL, "pdf")


@pytest.mark.latex
@pytest.mark.parametrize("kind", [*tables.TABLES, "nasty names", "nothing"])
def test_latex_compiles(kind: str, tmp_path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex here: apt install texlive-latex-recommended")
    if kind in tables.TABLES:
        runs = store.runs(DATA / "runs_2_3.csv")
        table = tables.make_table(runs, kind, baseline=PAPER)
    else:
        table = named(NASTY if kind == "nasty names" else [])
    found = [table, SMALL] if kind == "nasty names" else [table]
    text = formats.format_tables(found, "latex-document")
    (tmp_path / "table.tex").write_text(text, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape"]
    done = subprocess.run([*command, "table.tex"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    assert f"({len(found)} page".encode() in done.stdout
