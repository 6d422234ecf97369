"""Run directories that somebody else has made: nothing outside them is touched.

Each trial takes a run directory, puts links, special files, huge, cut or foreign files into it, and
runs or loads it. That ends in a named error or the right result, and files outside are as before.
"""

from __future__ import annotations

import os
import shutil
import socket
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crashes import SMALL, course, problem
from solvers import Walker
from solvers import problem as solved_problem

import bilevo
from bilevo import JournalCorrupt, RunLocked, RunMismatch
from bilevo.run import directory, stepper
from bilevo.run.errors import UnsafeFile

NAMES = ["lock", "journal.bin", "journal.bin.new", "snapshot.npz", "snapshot.npz.new", "followers"]
NAMES += ["followers/0.npz", "followers/1.npz.new", "followers/notes.txt", "other"]
NAMED = (JournalCorrupt, RunLocked, RunMismatch, UnsafeFile)
HUGE = 20 * 2**30  # bytes; the file is sparse


@pytest.fixture(autouse=True)
def everything_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "SNAPSHOT_AFTER", 0.0)
    monkeypatch.setattr(stepper, "STORED_AFTER", 0.0)


class Case:
    """A run, its result, and directories of it that were broken off in the middle."""

    def __init__(self, make: Callable[..., bilevo.Result], halfway: int, folder: Path) -> None:
        self._make = make
        self.whole = course(make(None))
        self.broken_off = folder
        make(folder, max_evals=halfway)

    def run(self, folder: Path) -> None:
        assert course(self._make(folder)) == self.whole


def by_functions(folder: Path | None, **options: Any) -> bilevo.Result:
    return bilevo.minimize(problem(), run_dir=folder, **{**SMALL, **options})


def by_solver(folder: Path | None, **options: Any) -> bilevo.Result:
    options = {"method": "drc-cma-es", "max_evals": 60, "rng": 4, **options}
    return bilevo.minimize(solved_problem(Walker(4)), run_dir=folder, **options)


class Outside:
    """Files and folders of the user's, to which nothing may happen."""

    def __init__(self, folder: Path, run: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "precious.txt").write_text("precious\n")
        (folder / "papers").mkdir()
        for i in range(5):
            (folder / "papers" / f"{i}.npz").write_bytes(b"not a state")
        shutil.copytree(run, folder / "another run")

    def seen(self) -> list[tuple[Any, ...]]:
        found = []
        for path in sorted(self.folder.rglob("*")):
            status = os.lstat(path)
            content = path.read_bytes() if path.is_file() else b""
            found.append((path, status.st_mode, status.st_ino, status.st_mtime_ns, content))
        return found


def link(target: Path) -> Callable[[Path, Outside], None]:
    return lambda path, outside: path.symlink_to(outside.folder / target)


def hard_link(target: Path) -> Callable[[Path, Outside], None]:
    return lambda path, outside: os.link(outside.folder / target, path)


def sparse(path: Path, outside: Outside) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE)


def listening(path: Path, outside: Outside) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the names of sockets are short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)
    os.chdir(here)


def full_folder(path: Path, outside: Outside) -> None:
    path.mkdir()
    (path / "0.npz").write_bytes(b"mine")


def behind_header(path: Path, outside: Outside) -> None:
    shutil.copy(outside.folder / "another run/journal.bin", path)
    os.truncate(path, HUGE)


TRAPS: dict[str, Callable[[Path, Outside], Any]] = {
    "link to a file": link(Path("precious.txt")),
    "link to a folder": link(Path("papers")),
    "link to nothing": link(Path("new file")),
    "link to itself": lambda path, outside: path.symlink_to(path.name),
    "link to a device": lambda path, outside: path.symlink_to("/dev/zero"),
    "link to another run": link(Path("another run/journal.bin")),
    "hard link": hard_link(Path("precious.txt")),
    "hard link to another run": hard_link(Path("another run/journal.bin")),
    "pipe": lambda path, outside: os.mkfifo(path),
    "socket": listening,
    "folder": full_folder,
    "empty": lambda path, outside: path.write_bytes(b""),
    "noise": lambda path, outside: path.write_bytes(np.random.default_rng(1).bytes(3000)),
    "huge": sparse,
    "huge behind a header": behind_header,
    "escape sequences": lambda path, outside: path.write_bytes(b"bilevo-journal-\x1b[31m9 x\n"),
    "foreign": lambda path, outside: shutil.copy(outside.folder / "another run/journal.bin", path),
}


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def spring(path: Path, trap: str, outside: Outside) -> None:
    """Put a trap in the place of a file."""
    if not path.parent.is_dir() or path.parent.is_symlink():
        remove(path.parent)
        path.parent.mkdir()
    remove(path)
    TRAPS[trap](path, outside)


def cut(folder: Path, rng: np.random.Generator) -> None:
    """Cut one of the files of a run somewhere."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    if files and (path := files[rng.integers(len(files))]).stat().st_size < 2**20:
        os.truncate(path, int(rng.integers(path.stat().st_size + 1)))


def try_out(look: Callable[[], Any], outside: Outside) -> str:
    """Do it; say in a word how it ended. Nothing outside may have changed."""
    before = outside.seen()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of snapshots that cannot be used
        try:
            look()
            ended = "right"
        except NAMED as error:
            assert "\x1b" not in str(error)
            ended = "refused"
        except ValueError as error:  # a folder without a journal, for `load`
            assert "holds no run" in str(error)
            ended = "refused"
    assert outside.seen() == before
    return ended


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory, "SNAPSHOT_AFTER", 0.0)
        patch.setattr(stepper, "STORED_AFTER", 0.0)
        made = [
            Case(by_functions, 40, folder / "functions"),
            Case(by_solver, 40, folder / "solver"),
        ]
    assert (folder / "solver" / "followers").is_dir()
    return made


def test_hostile_directories_lead_nowhere(
    cases: list[Case], tmp_path: Path, trials, figure
) -> None:
    rng, seen = np.random.default_rng(5), []
    for number in range(trials(80, 2000)):
        case, here = cases[number % 2], tmp_path / "here"
        outside = Outside(tmp_path / "outside", cases[1 - number % 2].broken_off)
        if rng.random() < 0.2:
            here.mkdir()
        else:
            shutil.copytree(case.broken_off, here)
        for _ in range(rng.integers(1, 4)):
            spring(here / rng.choice(NAMES), str(rng.choice(list(TRAPS))), outside)
        if rng.random() < 0.3:
            cut(here, rng)
        if rng.random() < 0.3:
            seen.append(try_out(lambda here=here: bilevo.load(here), outside))
        else:
            seen.append(try_out(lambda here=here, case=case: case.run(here), outside))
        shutil.rmtree(here)
        shutil.rmtree(outside.folder)
    assert {"right", "refused"} == set(seen)
    figure(24, len(seen), "directories with links, special, huge, cut or foreign files")


@pytest.mark.parametrize("trap", [trap for trap in TRAPS if "link" in trap or trap == "pipe"])
@pytest.mark.parametrize("name", ["lock", "journal.bin", "journal.bin.new", "followers"])
def test_no_link_is_followed(name: str, trap: str, cases: list[Case], tmp_path: Path) -> None:
    outside = Outside(tmp_path / "outside", cases[0].broken_off)
    shutil.copytree(cases[1].broken_off, tmp_path / "here")
    spring(tmp_path / "here" / name, trap, outside)
    ended = try_out(lambda: cases[1].run(tmp_path / "here"), outside)
    assert ended == ("right" if name == "journal.bin.new" else "refused")


@pytest.mark.parametrize("name", ["lock", "journal.bin.new"])
def test_a_new_run_overwrites_nothing_through_a_link(name: str, tmp_path: Path) -> None:
    """A user's script once showed this."""
    victim, here = tmp_path / "victim", tmp_path / "run"
    victim.write_text("precious\n")
    here.mkdir()
    (here / name).symlink_to(victim)
    try:
        by_functions(here)
    except UnsafeFile as error:
        assert name == "lock" and "is a link" in str(error) and "Nothing was changed" in str(error)
    assert victim.read_text() == "precious\n"


def test_states_of_a_run_that_has_ended_are_removed_and_other_files_are_not(tmp_path: Path) -> None:
    def run() -> bilevo.Result:
        options = {"max_evals": None, "target": 1e9}
        return by_solver(tmp_path, **options)

    (tmp_path / "followers").mkdir()
    (tmp_path / "followers" / "notes.txt").write_text("mine")
    (tmp_path / "followers" / "7.npz").write_bytes(b"a state")
    assert run().status == "target"
    assert [path.name for path in (tmp_path / "followers").iterdir()] == ["notes.txt"]


def test_a_huge_journal_is_refused_without_being_read_whole(
    cases: list[Case], tmp_path: Path
) -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    shutil.copytree(cases[0].broken_off, tmp_path / "run")
    os.truncate(tmp_path / "run" / "journal.bin", HUGE)
    with pytest.raises(JournalCorrupt, match="damaged at byte"):
        bilevo.load(tmp_path / "run")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 2**19  # kilobytes: half a gigabyte, where the file has twenty
