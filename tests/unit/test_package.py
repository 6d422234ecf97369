"""The package as a whole: public names, and imports that go one way."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bilevo

SOURCE = Path(bilevo.__file__).parent
ALLOWED = {  # room -> the rooms it may import from
    "core": {"core"},
    "optimizers": {"core", "optimizers"},
    "surrogates": {"core", "surrogates"},
    "problems": {"core", "problems"},
    "algorithms": {"core", "optimizers", "surrogates", "algorithms"},
    "run": {"core", "run", "version"},
    "plot": {"core"},
    "registry": {"core", "algorithms", "optimizers"},
    "certify": {"core", "optimizers", "run"},
    "api": {"core", "optimizers", "registry", "run", "certify"},
    "experiments": {"core", "api", "registry", "problems", "version", "plot", "experiments"},
    "cli": {"api", "core", "problems", "registry", "version"},
    "version": set(),
}
PURE = ("core", "optimizers", "surrogates", "algorithms")  # no I/O, no clock, no processes
IMPURE = {"os", "io", "time", "datetime", "threading", "multiprocessing", "subprocess", "random"}
IMPURE |= {"socket", "asyncio", "concurrent", "logging", "tempfile", "shutil", "sys", "rich"}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def room(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


FILES = [p for p in SOURCE.rglob("*.py") if p.parent != SOURCE or not p.name.startswith("__")]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("bilevo.")}
    assert ours <= ALLOWED[room(path)]


@pytest.mark.parametrize(
    "path", [p for p in FILES if room(p) in PURE], ids=lambda p: str(p.relative_to(SOURCE))
)
def test_algorithms_do_no_io(path: Path) -> None:
    outside = {name.split(".")[0] for name in imports(path)}
    assert not outside & IMPURE
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"print", "open", "input", "eval", "exec"}


def test_public_names_are_sorted_and_there() -> None:
    constants = [name for name in bilevo.__all__ if name.isupper()]
    assert bilevo.__all__ == constants + sorted(set(bilevo.__all__) - set(constants))
    for name in bilevo.__all__:
        assert getattr(bilevo, name) is not None
    assert len(bilevo.__all__) <= 25


def test_importing_bilevo_is_light() -> None:
    """No heavy library is imported before it is needed."""
    heavy = ("scipy", "matplotlib", "polars", "rich", "cyclopts", "numba", "loky", "cloudpickle")
    heavy += ("sklearn",)
    code = f"import bilevo, sys; print([m for m in {heavy!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
