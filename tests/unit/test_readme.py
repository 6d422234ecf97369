"""What the README shows runs, and its links lead somewhere."""

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

import bilevo
from bilevo.algorithms import DRCPlus, drc_plus, phi, warm_follower
from bilevo.experiments.plans import plan_of

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCUMENTS = ["README.md", "CONTRIBUTING.md"]
DOCUMENTS += [f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")]
pytestmark = pytest.mark.filterwarnings("ignore:workers slow this run down")


def run_blocks(document: str) -> list[dict]:
    """Run a document's Python, and return what each block defines."""
    namespaces: list[dict] = []
    for block in re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL):
        namespaces.append({"bilevo": bilevo})
        exec(block, namespaces[-1])  # noqa: S102 (our own text)
    return namespaces


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_readme_runs_and_gives_what_its_comments_say(capsys) -> None:
    first, costly = run_blocks("README.md")
    assert abs(first["result"].F - 1.90) < 0.01
    assert first["certificate"].follower_gap < 1e-6
    shown = capsys.readouterr().out
    assert "F = 1.90" in shown and "0 []\nTrue\n" in shown
    assert costly["result"].F < 2


def test_the_page_on_long_runs_runs() -> None:
    kept, _ = run_blocks("docs/long_runs.md")
    assert kept["more"].nfev > kept["result"].nfev == kept["again"].nfev
    assert kept["looked_at"].nfev == kept["more"].nfev


def test_the_page_on_drc_plus_runs() -> None:
    (shown,) = run_blocks("docs/drc-plus.md")
    assert shown["result"].method == "drc-plus" and shown["result"].follower_gap == 0
    assert 4 * shown["result"].nfev < shown["published"].nfev


def test_the_page_on_drc_plus_tells_every_switch_and_names_what_there_is() -> None:
    page = (ROOT / "docs" / "drc-plus.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", page, re.MULTILINE)
    assert [name for name, _ in rows] == [field.name for field in fields(DRCPlus)]
    found = {**vars(phi), **vars(warm_follower), **vars(drc_plus), "phi": phi}
    for owner, attribute in re.findall(r"`(\w+)\.(\w+)`", " ".join(where for _, where in rows)):
        assert hasattr(found[owner], attribute), f"{owner}.{attribute}"


def test_an_optimiser_joins_as_the_page_on_optimisers_shows() -> None:
    mixed, joined = run_blocks("docs/optimisers.md")
    assert mixed["mixed"].name == joined["ours"].name == "drc"
    assert joined["result"].success and abs(joined["result"].F) < 1e-4


def test_the_page_on_the_laboratory_runs() -> None:
    (made,) = run_blocks("docs/laboratory.md")
    assert len(made["runs"]) == 4 and set(made["history"]["method"]) == {"drc-cma-es", "bl-cma-es"}


def test_the_plans_that_are_shown_are_plans() -> None:
    page = (ROOT / "docs" / "laboratory.md").read_text()
    (shown,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    runs = plan_of(tomllib.loads(shown), "shown").all_runs()
    assert len(runs) == 3 * 21 * (12 * 2 * 2 + 10)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_named_commands_exist() -> None:
    for name in re.findall(r"scripts/(\w+)", README + (ROOT / "CONTRIBUTING.md").read_text()):
        assert (ROOT / "scripts" / name).stat().st_mode & 0o111
