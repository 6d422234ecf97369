"""What the package promises to those who install it: extras, metadata, and how they are tried."""

import re
import tomllib
from pathlib import Path
from runpy import run_path

import bilevo

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = set(PROJECT["optional-dependencies"])


def test_every_extra_is_tried_in_an_empty_environment() -> None:
    tried = set(run_path(str(ROOT / "scripts" / "try_wheel.py"))["TRIALS"])
    script = (ROOT / "scripts" / "wheel").read_text()
    (listed,) = re.findall(r"set -- (.*)", script)
    assert tried == set(listed.split()) == {*EXTRAS, "core"} - {"dev"}


def test_every_extra_is_in_the_quick_start() -> None:
    page = (ROOT / "docs" / "quick_start.md").read_text()
    rows = " ".join(re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE))
    assert EXTRAS - {"dev"} <= set(re.findall(r"`(\w+)`", rows))


def test_errors_name_extras_that_there_are() -> None:
    named = set()
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text()
        named |= set(re.findall(r"bilevo\[(\w+)\]", text))
        named |= set(re.findall(r'need\("[^"]+", "[^"]+", "(\w+)"\)', text))
    assert {"bench", "pandas", "ray"} <= named <= EXTRAS


def test_the_metadata_is_what_an_index_asks_for() -> None:
    assert PROJECT["readme"] == "README.md" and PROJECT["license"] == "MIT"
    assert (ROOT / "src" / "bilevo" / "py.typed").exists()
    assert re.fullmatch(r"\d+\.\d+\.\d+([abrc.]+\d+)?", bilevo.__version__)
    versions = [each for each in PROJECT["classifiers"] if each.count("3.")]
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    for version in (each.rpartition(" ")[2] for each in versions):
        assert f'"{version}"' in workflow


def test_the_workflow_runs_the_scripts_that_there_are() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    run = re.findall(r"run: (\S+)", workflow)
    assert ".ci/run" in run and "scripts/docs" in run and "scripts/wheel" in run
    for name in run:
        assert name == "pip" or (ROOT / name).stat().st_mode & 0o111
