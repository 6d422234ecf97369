"""The package as a whole: public names, and imports that go one way."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import bilevo

SOURCE = Path(bilevo.__file__).parent
ALLOWED = {  # room -> the rooms it may import from
    "core": {"core"},
    "kernels": set(),
    "optimizers": {"core", "kernels", "optimizers"},
    "problems": {"core", "followers", "problems"},
    "followers": {"core", "kernels", "optimizers", "followers"},
    "algorithms": {"core", "kernels", "optimizers", "algorithms"},
    "run": {"core", "kernels", "run", "safe_files", "version"},
    "safe_files": set(),
    "verification": {"algorithms", "core", "optimizers", "run", "verification"},
    "plot": {"core", "verification"},
    "registry": {"core", "algorithms", "optimizers"},
    "settings": {"core", "kernels", "registry"},
    "api": {"core", "kernels", "run", "settings", "verification"},
    "options": set(),
    "lookup": {"core", "problems", "registry"},
    "lab": {"algorithms", "api", "core", "kernels", "lab", "lookup", "optimizers", "options"}
    | {"plot", "problems", "registry", "run", "safe_files", "settings", "verification"}
    | {"version"},
    "cli": {"api", "core", "lookup", "options", "problems", "registry", "run", "version"},
    "testing": {"api", "core", "followers", "problems", "run", "testing"},
    "version": set(),
}
LATE = {"core/result.py": {"plot"}}  # in a function: `Result.plot`, which people want to type
PURE = ("core", "optimizers", "algorithms")  # no I/O, no clock, no processes
IMPURE = {"os", "io", "time", "datetime", "threading", "multiprocessing", "subprocess", "random"}
IMPURE |= {"socket", "asyncio", "concurrent", "logging", "tempfile", "shutil", "sys", "rich"}


def imports(path: Path, anywhere: bool = True) -> set[str]:
    """What a file imports; or, not anywhere, with its own import."""
    found = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if anywhere else tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def rooms(names: set[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("bilevo.")}


def room(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


FILES = [p for p in SOURCE.rglob("*.py") if p.parent != SOURCE or not p.name.startswith("__")]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    late = LATE.get(path.relative_to(SOURCE).as_posix(), set())
    assert rooms(imports(path)) - ALLOWED[room(path)] == late
    assert rooms(imports(path, anywhere=False)) <= ALLOWED[room(path)]


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
    assert len(bilevo.__all__) <= 27


HEAVY = {"asyncio", "cloudpickle", "cyclopts", "difflib", "importlib.metadata", "loky"}
HEAVY |= {"matplotlib", "multiprocessing", "numba", "polars", "ray", "rich", "scipy", "sklearn"}
HEAVY |= {"socket", "subprocess", "unittest", "zipfile"}
LAZY = ("bilevo", "bilevo.algorithms", "bilevo.followers", "bilevo.optimizers")


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh process has loaded after some code."""
    code += "; import sys; print(*sys.modules)"
    return set(subprocess.check_output([sys.executable, "-c", code], text=True).split())


def test_importing_bilevo_is_light() -> None:
    """Nothing is imported before it is needed: no heavy library, and no algorithm."""
    found = loaded_by("import bilevo")
    assert not found & HEAVY
    ours = {name for name in found if name.startswith(("bilevo.algorithms.", "bilevo.optimizers."))}
    assert not ours | (found & {"bilevo.verification.by_search", "bilevo.run.pool"})
    formulas = {name for name in found if name.startswith("bilevo.problems.literature.")}
    assert not formulas


def test_a_first_run_loads_what_it_uses_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BILEVO_KERNEL", "numpy")
    run = "bilevo.minimize(bilevo.problems.get('smd1'), max_evals=50, method='drc-plus')"
    found = loaded_by(f"import bilevo; {run}")
    others = {"cloudpickle", "cyclopts", "loky", "matplotlib", "polars", "rich"}
    assert not found & (others | {"bilevo.verification.by_search", "bilevo.run.pool", "sklearn"})
    algorithms = {name for name in found if name.startswith("bilevo.algorithms.")}
    shared = (
        "basin_moves",
        "blocks",
        "differences",
        "follower_search",
        "foresight",
        "gradients",
        "independent_search",
        "joint_search",
        "leader",
        "polish",
        "quadratic_program",
        "sqp",
        "sqp_model",
        "surroundings",
        "ties",
    )
    plus = (
        "basin_steps",
        "beside",
        "box_search",
        "branches",
        "certificate",
        "competition",
        "descent",
        "exact_descent",
        "experience",
        "fallback",
        "leader_gradient",
        "leader_view",
    )
    plus += ("local_follower", "method", "state", "tie_stage", "unfelt", "warm_follower")
    used = ["drc", "drc_plus", "shared", *(f"shared.{name}" for name in shared)]
    used += [f"drc_plus.{name}" for name in plus]
    assert algorithms == {f"bilevo.algorithms.{name}" for name in used}


@pytest.mark.parametrize("package", LAZY)
def test_names_loaded_late_are_as_good_as_others(package: str) -> None:
    module = import_module(package)
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        value = getattr(module, name)
        assert getattr(module, name) is value
        if isinstance(value, type):
            assert value is getattr(import_module(value.__module__), name)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'CMA'"):
        _ = module.CMA


def test_a_star_import_gives_every_public_name() -> None:
    code = "import bilevo; from bilevo import *; print(set(bilevo.__all__) <= set(dir()))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "True"


PREPOSITIONS = {"about", "above", "across", "after", "against", "along", "among", "around", "as"}
PREPOSITIONS |= {"at", "before", "behind", "below", "beside", "between", "beyond", "by", "during"}
PREPOSITIONS |= {"except", "for", "from", "in", "inside", "into", "of", "off", "on", "out", "over"}
PREPOSITIONS |= {"per", "since", "through", "to", "towards", "under", "until", "up", "upon", "with"}
PREPOSITIONS |= {"within", "without"}
ROOMS = sorted({path.parent for path in FILES})


def defined_twice(folder: Path) -> list[str]:
    """Classes that two files of a folder define, and constants that have two values there."""
    classes: dict[str, int] = {}
    values: dict[str, set[str]] = {}
    for path in sorted(folder.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                classes[node.name] = classes.get(node.name, 0) + 1
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for name in (target.id for target in targets if isinstance(target, ast.Name)):
                    if name.isupper() and not name.startswith("_"):
                        values.setdefault(name, set()).add(ast.unparse(node.value))
    twice = [f"class {name}" for name, times in classes.items() if times > 1]
    return twice + [f"constant {name}" for name, found in values.items() if len(found) > 1]


@pytest.mark.parametrize("folder", ROOMS, ids=lambda p: p.relative_to(SOURCE).as_posix())
def test_a_name_stands_for_one_thing_in_a_room(folder: Path) -> None:
    assert defined_twice(folder) == []


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    """A few may begin with a preposition; a habit of it makes sentences without a verb."""
    found = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                first = (ast.get_docstring(node) or "-").split()[0].strip(".,:;").lower()
                if first in PREPOSITIONS:
                    found.append(f"{path.relative_to(SOURCE)}: {ast.get_docstring(node)}")
    assert len(found) < 10, "\n".join(found)
