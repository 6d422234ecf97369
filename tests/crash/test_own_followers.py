"""Runs with a follower of the user's that are broken off: states are restored, or made again."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from crashes import boundaries, course, start
from own_followers import Opaque, Walker, problem

import bilevo
from bilevo import RunMismatch
from bilevo.run import advance, rundir
from bilevo.run.work import Changed

OPTIONS: dict[str, Any] = {"method": "drc-cma-es", "max_evals": 160, "rng": 4}


@pytest.fixture(autouse=True)
def everything_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rundir, "SNAPSHOT_AFTER", 0.0)
    monkeypatch.setattr(advance, "SHELVED_AFTER", 0.0)


def run(follower: Any, run_dir: Path | None, **options: Any) -> bilevo.Result:
    return bilevo.minimize(problem(follower), run_dir=run_dir, **{**OPTIONS, **options})


@pytest.mark.parametrize("kind", [Walker, Opaque])
@pytest.mark.parametrize("kept", ["all", "journal"])
def test_a_cut_anywhere_resumes_to_the_same_result(kind: Any, kept: str, tmp_path: Path) -> None:
    whole = run(kind(), tmp_path / "whole")
    assert course(whole) == course(run(kind(), None))
    content = (tmp_path / "whole" / "journal.bin").read_bytes()
    cuts = boundaries(tmp_path / "whole" / "journal.bin")
    for cut in cuts[3::37]:
        here = tmp_path / "cut"
        shutil.copytree(tmp_path / "whole", here)
        if kept == "journal":
            (here / "snapshot.npz").unlink()
            shutil.rmtree(here / "followers", ignore_errors=True)
        (here / "journal.bin").write_bytes(content[:cut])
        assert course(run(kind(), here)) == course(whole), cut
        shutil.rmtree(here)
    assert course(bilevo.load(tmp_path / "whole")) == course(whole)


def stopped_in_the_middle(follower: Any, run_dir: Path) -> int:
    """Steps that a run had taken when its follower broke it off, in the middle of a generation."""
    follower.breaks_at = 50
    with pytest.raises(KeyError):
        run(follower, run_dir)
    return int(follower.taken)


class Breaking(Walker):
    breaks_at = -1

    def advance(self, state: Any) -> Any:
        if self.taken == self.breaks_at:
            raise KeyError("the power went off")
        return super().advance(state)


class BreakingOpaque(Opaque, Breaking):
    pass


def test_states_of_arrays_are_restored_and_others_made_again(tmp_path: Path) -> None:
    whole = run(Walker(), None)
    for kind, again in ((Breaking, False), (BreakingOpaque, True)):
        taken = stopped_in_the_middle(kind(), tmp_path / kind.__name__)
        follower = kind()
        assert course(run(follower, tmp_path / kind.__name__)) == course(whole)
        more = follower.taken - (whole.nfev_lower - taken)  # steps that were made twice
        assert (more > 0) is again


def test_damaged_states_are_made_again(tmp_path: Path) -> None:
    whole = run(Walker(), None)
    stopped_in_the_middle(Breaking(), tmp_path / "run")
    files = sorted((tmp_path / "run" / "followers").iterdir())
    assert files
    for i, file in enumerate(files):
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2] if i % 2 else b"\0" + content[1:])
    assert course(run(Breaking(), tmp_path / "run")) == course(whole)


def test_a_follower_that_does_not_answer_as_it_did_is_found_out(tmp_path: Path) -> None:
    class Another(Walker):
        def advance(self, state: Any) -> Any:
            state = super().advance(state)
            state.y = state.y + 1e-9
            return state

    stopped_in_the_middle(BreakingOpaque(), tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "followers", ignore_errors=True)
    changed = Another()
    changed.__class__.__name__ = "BreakingOpaque"  # what the journal knows it by
    with pytest.raises(Changed, match="does not answer as it did"):
        run(changed, tmp_path / "run")
    with pytest.raises(RunMismatch, match="follower"):
        run(Walker(), tmp_path / "run")


def test_files_of_tasks_that_are_over_are_removed(tmp_path: Path) -> None:
    result = run(Walker(), tmp_path / "run", method="nested-cma-es", max_evals=None, budget=SHORT)
    assert result.status == "budget"
    assert list((tmp_path / "run" / "followers").iterdir()) == []


SHORT = bilevo.Budget(upper_max=20)


class SlowWalker(Walker):
    def advance(self, state: Any) -> Any:
        time.sleep(0.002)
        return super().advance(state)


def to_the_end(run_dir: Path | None, out: Path, workers: int | None) -> None:
    advance.SHELVED_AFTER = 0.01
    rundir.SNAPSHOT_AFTER = 0.01
    result = run(SlowWalker(), run_dir, max_evals=400, workers=workers)
    temporary = out.with_suffix(".new")
    temporary.write_text(course(result))
    os.replace(temporary, out)


@pytest.mark.parametrize("workers", [None, 2])
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(
    workers: int | None, tmp_path: Path
) -> None:
    out = tmp_path / "result.json"
    kills = 0
    while not out.exists():
        process = start(to_the_end, tmp_path / "run", out, workers)
        process.join(1.5 + 1.5 * kills)
        if process.exitcode is None:
            process.kill()
            process.join()
            kills += 1
    assert kills > 0
    to_the_end(None, tmp_path / "unharmed.json", None)
    assert out.read_text() == (tmp_path / "unharmed.json").read_text()
