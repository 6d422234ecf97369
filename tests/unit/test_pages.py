"""What the README and the pages show runs, and their links lead somewhere."""

import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from cyclopts import CycloptsError
from pages import ROOT, blocks, pages, run_page

from bilevo.algorithms import DRCPlus
from bilevo.algorithms.drc_plus import (
    basin_steps,
    box_search,
    branches,
    certificate,
    competition,
    descent,
    exact_descent,
    leader_gradient,
    method,
    unfelt,
    warm_follower,
)
from bilevo.cli import app
from bilevo.lab.plans import plan_of

README = (ROOT / "README.md").read_text()
PAGES = pages()
WITH_PYTHON = [page for page in PAGES if any(block.kind == "python" for block in blocks(page))]
# Of the others, commands take too long or need what is not there: they are read, and not run.
COMMANDS_RUN = ("docs/quick_start.md", "docs/tutorial_", "docs/watch.md")
pytestmark = pytest.mark.filterwarnings("ignore:workers slow this run down")
Spaces = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def check_readme(spaces: Spaces, shown: str) -> None:
    (made,) = spaces
    assert abs(made["result"].F - 1.90) < 0.01 and made["result"].success


def check_quick_start(spaces: Spaces, shown: str) -> None:
    first, checked, costly, solver = spaces
    assert abs(first["result"].F - 1.90) < 0.01
    assert checked["certificate"].follower_gap < 1e-6
    assert costly["result"].F < 2
    assert abs(solver["result"].F + 18) < 1e-3


def check_long_runs(spaces: Spaces, shown: str) -> None:
    kept, _ = spaces
    assert kept["more"].nfev > kept["result"].nfev == kept["again"].nfev
    assert kept["looked_at"].nfev == kept["more"].nfev


def check_drc_plus(spaces: Spaces, shown: str) -> None:
    (made,) = spaces
    assert made["result"].method == "drc-plus" and made["result"].success
    assert 4 * made["result"].nfev < made["published"].nfev


def check_optimizers(spaces: Spaces, shown: str) -> None:
    mixed, joined, population = spaces
    assert mixed["mixed"].name == joined["ours"].name == "drc"
    assert joined["result"].feasible and abs(joined["result"].F) < 1e-4
    assert population["result"].feasible and abs(population["result"].F) < 1e-2


def check_laboratory(spaces: Spaces, shown: str) -> None:
    (made,) = spaces
    assert len(made["runs"]) == 4 and set(made["history"]["method"]) == {"drc-cma-es", "bl-cma-es"}


def slower(page: str) -> bool:
    """Tell whether a page is run in the second part."""
    return page not in ("README.md", "docs/quick_start.md", "docs/concepts.md", "docs/howto.md")


CHECKS: dict[str, Callable[[Spaces, str], None]] = {
    "README.md": check_readme,
    "docs/quick_start.md": check_quick_start,
    "docs/long_runs.md": check_long_runs,
    "docs/drc-plus.md": check_drc_plus,
    "docs/optimizers.md": check_optimizers,
    "docs/laboratory.md": check_laboratory,
}


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.rest if slower(page) else ()) for page in WITH_PYTHON],
)
def test_the_code_of_a_page_runs_and_prints_what_is_shown(page: str, capsys) -> None:
    spaces = run_page(page, commands=page.startswith(COMMANDS_RUN))
    if page in CHECKS:
        CHECKS[page](spaces, capsys.readouterr().out)


def parse_commands(page: str) -> None:
    for block in blocks(page):
        for command in block.commands if block.kind == "console" else []:
            if command.startswith("bilevo "):
                app.parse_args(shlex.split(command)[1:], exit_on_error=False, print_error=False)


def written(text: str) -> str:
    """A page in the working folder."""
    path = Path("page.md").absolute()
    path.write_text(text)
    return str(path)


def test_a_page_that_shows_another_output_is_found_out() -> None:
    code = "```python\nn = 1\nprint(n + n)\n```\n\n```text\n{}\n```\n"
    (space,) = run_page(written(code.format(2)), commands=False)
    assert space["n"] == 1
    with pytest.raises(AssertionError, match="2"):
        run_page(written(code.format(3)), commands=False)


def test_blocks_of_a_page_share_names_files_and_a_folder() -> None:
    page = written(
        "```python\n# part.py\nimport sys\nvalue = len(sys.argv)\nprint(value)\n```\n"
        "```console\n$ python part.py a b  # three words\n```\n\n```text\n3\n```\n"
        "```python\nimport part\n```\n```python\nseen = part.value\n```\n"
    )
    assert run_page(page, commands=True)[-1]["seen"] > 0
    assert "part" not in sys.modules


def test_a_command_that_fails_or_is_not_there_is_found_out() -> None:
    with pytest.raises(AssertionError, match="python absent"):
        run_page(written("```console\n$ python absent.py\n```\n"), commands=True)
    with pytest.raises(AssertionError, match="bilevo solve absent"):
        run_page(written("```console\n$ bilevo solve absent\n```\n"), commands=True)
    with pytest.raises(CycloptsError, match="--methd"):
        parse_commands(written("```console\n$ bilevo solve smd1 --methd drc-de\n```\n"))


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_commands_that_are_shown_have_the_options_they_use(page: str) -> None:
    parse_commands(page)


def test_the_page_on_drc_plus_tells_every_switch_and_names_what_there_is() -> None:
    page = (ROOT / "docs" / "drc-plus.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", page, re.MULTILINE)
    switches = [field.name for field in fields(DRCPlus) if field.default is True]
    assert [name for name, _ in rows] == switches
    modules = descent, warm_follower, method, box_search, branches, certificate, competition
    modules += basin_steps, exact_descent, leader_gradient, unfelt
    found = {name: value for module in modules for name, value in vars(module).items()}
    found |= {module.__name__.rpartition(".")[2]: module for module in modules}
    for owner, attribute in re.findall(r"`(\w+)\.(\w+)`", " ".join(where for _, where in rows)):
        assert hasattr(found[owner], attribute), f"{owner}.{attribute}"


def test_the_plans_that_are_shown_are_plans() -> None:
    shown = [block.text for block in blocks("docs/laboratory.md") if block.kind == "toml"]
    runs = [plan_of(tomllib.loads(text), "shown").all_runs() for text in shown]
    assert [*map(len, runs)] == [3 * 21 * (12 * 2 * 2 + 10), 14 * 21 * 12]


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_links_lead_to_files(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/design.md"])
def test_the_files_that_a_map_names_are_there(page: str) -> None:
    there = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("[!.]*/**/*.py")]
    for name in re.findall(r"`([\w/]+\.py)`", (ROOT / page).read_text()):
        assert "NAME" in name or any(f"/{path}".endswith(f"/{name}") for path in there), name


@pytest.mark.parametrize("room", ["run", "lab"])
def test_the_map_names_every_file_of_the_large_rooms(room: str) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    listed = page.partition(f"**`{room}`**")[2].partition("\n\n    ")[2].partition("\n\n")[0]
    files = {path.stem for path in (ROOT / "src" / "bilevo" / room).rglob("[!_]*.py")}
    assert files <= set(re.findall(r"\w+", listed))


def test_the_constants_that_the_map_names_are_there() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    for name, file in re.findall(r"`([A-Z]+)` (?:of|in) `([\w/]+\.py)`", page):
        place = ROOT / file if file.startswith("tests") else ROOT / "src" / "bilevo" / file
        assert re.search(rf"^{name}\b", place.read_text(), re.MULTILINE), f"{name} of {file}"


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_named_commands_exist() -> None:
    for name in re.findall(r"scripts/(\w+)", README + (ROOT / "CONTRIBUTING.md").read_text()):
        assert (ROOT / "scripts" / name).stat().st_mode & 0o111
