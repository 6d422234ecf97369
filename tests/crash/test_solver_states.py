"""Runs with a problem's own solver that are broken off: states are restored, or made again."""

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from crashes import boundaries, course, start
from solvers import Exact, Opaque, SlowSteady, Steady, Walk, Walker, problem

import bilevo
from bilevo import RunMismatch
from bilevo.run import directory, stepper
from bilevo.run.jobs import Changed

OPTIONS: dict[str, Any] = {"method": "drc-cma-es", "max_evals": 160, "rng": 4}


@pytest.fixture(autouse=True)
def everything_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "SNAPSHOT_AFTER", 0.0)
    monkeypatch.setattr(stepper, "STORED_AFTER", 0.0)


def run(follower: Any, run_dir: Path | None, **options: Any) -> bilevo.Result:
    return bilevo.minimize(problem(follower), run_dir=run_dir, **{**OPTIONS, **options})


TRUSTING = {"method": "trust-region"}


@pytest.mark.parametrize(("kind", "options"), [(Walker, {}), (Opaque, {}), (Steady, TRUSTING)])
@pytest.mark.parametrize("kept", ["all", "journal"])
def test_a_cut_anywhere_resumes_to_the_same_result(
    kind: Any, options: Any, kept: str, tmp_path: Path, trials, figure
) -> None:
    whole = run(kind(), tmp_path / "whole", **options)
    assert course(whole) == course(run(kind(), None, **options))
    content = (tmp_path / "whole" / "journal.bin").read_bytes()
    cuts = boundaries(tmp_path / "whole" / "journal.bin")[3 :: trials(37, 2)]
    for cut in cuts:
        here = tmp_path / "cut"
        shutil.copytree(tmp_path / "whole", here)
        if kept == "journal":
            (here / "snapshot.npz").unlink()
            shutil.rmtree(here / "followers", ignore_errors=True)
        (here / "journal.bin").write_bytes(content[:cut])
        assert course(run(kind(), here, **options)) == course(whole), cut
        shutil.rmtree(here)
    assert course(bilevo.load(tmp_path / "whole")) == course(whole)
    figure(22, len(cuts), "cuts")


def stopped_in_the_middle(follower: Any, run_dir: Path, **options: Any) -> int:
    """Steps that a run had taken when its follower broke it off, in the middle of a generation."""
    follower.breaks_at = 50
    with pytest.raises(KeyError):
        run(follower, run_dir, **options)
    return int(follower.taken)


class Breaking(Walker):
    breaks_at = -1

    def advance(self, state: Any) -> Any:
        if self.taken == self.breaks_at:
            raise KeyError("the power went off")
        return super().advance(state)


class BreakingOpaque(Opaque, Breaking):
    pass


@pytest.mark.parametrize("method", ["drc-cma-es", "bl-cma-es"])  # of small and of large batches
def test_states_of_arrays_are_restored_and_others_made_again(method: str, tmp_path: Path) -> None:
    whole = run(Walker(), None, method=method)
    for kind, again in ((Breaking, False), (BreakingOpaque, True)):
        taken = stopped_in_the_middle(kind(), tmp_path / kind.__name__, method=method)
        follower = kind()
        options = {"method": method, "recheck": False}
        assert course(run(follower, tmp_path / kind.__name__, **options)) == course(whole)
        more = follower.taken - (whole.nfev_lower - taken)  # steps that were made twice
        assert (more > 0) is again


class Point(NamedTuple):
    x: Any
    y: Any


class Still(Breaking):
    """One whose states hold what a test wants them to, at the beginning."""

    def __init__(self, holds: Any = None) -> None:
        super().__init__()
        self.holds = holds

    def start(self, x: Any, rng: np.random.Generator) -> Any:
        y = rng.uniform(-4, 4, x.size)
        return {"x": x, "y": y, "steps": 0, "holds": None if self.holds is None else self.holds(y)}

    def advance(self, state: Any) -> Any:
        if self.taken == self.breaks_at:
            raise KeyError("the power went off")
        self.taken += 1
        kinds = Still.kinds.setdefault(str(self.holds), set())
        holds = state["holds"]
        kinds.add((type(holds), holds is state["y"], hasattr(holds, "more")))
        state["steps"] += 1
        state["y"] += 0.6 * (0.5 * state["x"] - state["y"])
        return state

    def best(self, state: Any) -> tuple[Any, float, float]:
        return state["y"], float(((state["y"] - 0.5 * state["x"]) ** 2).sum()), 0.0

    def done(self, state: Any) -> bool:
        return bool(state["steps"] >= 12)

    kinds: ClassVar[dict[str, Any]] = {}


def with_itself(y: Any) -> Any:
    ring = [y]
    ring.append(ring)
    return ring


def with_more(y: Any) -> Any:
    walk = Walk(y, y, np.random.default_rng(1))
    walk.more = 1  # type: ignore[attr-defined]
    return walk


@pytest.mark.parametrize(
    "holds",
    [
        lambda y: Point(y, y),
        lambda y: y[0],
        lambda y: np.ma.array(y, mask=False),
        lambda y: y,
        with_itself,
        with_more,
    ],
    ids=["named tuple", "numpy's float", "masked", "shared", "itself", "attribute"],
)
def test_states_come_back_as_they_were_or_are_made_again(holds: Any, tmp_path: Path) -> None:
    whole = run(Still(holds), None)
    Still.kinds.clear()
    stopped_in_the_middle(Still(holds), tmp_path / "run")
    assert course(run(Still(holds), tmp_path / "run")) == course(whole)
    (kinds,) = Still.kinds.values()
    assert len(kinds) == 1


def test_states_of_bytes_are_the_users_own(tmp_path: Path) -> None:
    class Bytes(Exact):
        """Comes nearer by halves; its state is the numbers of x and y."""

        def start(self, x: Any, rng: np.random.Generator) -> bytes:
            return np.append(x, np.zeros_like(x)).tobytes()

        def advance(self, state: bytes) -> bytes:
            x, y = np.frombuffer(state).reshape(2, -1)
            return np.append(x, y + 0.5 * (0.5 * x - y)).tobytes()

        def best(self, state: bytes) -> tuple[Any, float, float]:
            x, y = np.frombuffer(state).reshape(2, -1)
            return y, float(((y - 0.5 * x) ** 2).sum()), 0.0

        def done(self, state: bytes) -> bool:
            return self.best(state)[1] < 1e-6

    assert course(run(Bytes(), tmp_path / "run")) == course(run(Bytes(), None))


@pytest.mark.filterwarnings("ignore:workers slow this run down")
def test_a_restored_state_is_not_the_worse_for_a_step_that_failed_in_a_thread(
    tmp_path: Path,
) -> None:
    class Moody(Breaking):
        calls = 0

        def advance(self, state: Any) -> Any:
            self.calls += 1
            if self.breaks_at < 0 and self.calls % 3 == 1:
                state.steps += 4  # half changed
                raise OSError("busy")
            return super().advance(state)

    whole = run(Walker(), None)
    stopped_in_the_middle(Moody(), tmp_path / "run")
    with ThreadPoolExecutor(1) as threads:
        again = run(Moody(), tmp_path / "run", workers=threads, retries=9)
    assert course(again) == course(whole)


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
    assert not (tmp_path / "run" / "followers").exists()


SHORT = bilevo.Budget(upper_max=20)


class SlowWalker(Walker):
    def advance(self, state: Any) -> Any:
        time.sleep(0.002)
        return super().advance(state)


def to_the_end(run_dir: Path | None, out: Path, method: str, workers: int | None) -> None:
    stepper.STORED_AFTER = 0.01
    directory.SNAPSHOT_AFTER = 0.01
    follower = SlowSteady() if method == "trust-region" else SlowWalker()
    result = run(follower, run_dir, method=method, max_evals=240, workers=workers)
    temporary = out.with_suffix(".new")
    temporary.write_text(course(result))
    os.replace(temporary, out)


@pytest.mark.rest
@pytest.mark.parametrize("method", ["drc-cma-es", "trust-region"])
@pytest.mark.parametrize("workers", [None, 2])
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(
    workers: int | None, method: str, tmp_path: Path, trials, figure
) -> None:
    to_the_end(tmp_path / "unharmed", tmp_path / "unharmed.json", method, None)
    whole = (tmp_path / "unharmed" / "journal.bin").stat().st_size
    out, journal = tmp_path / "result.json", tmp_path / "run" / "journal.bin"
    kills = trials(3, 60)
    for size in np.linspace(0, whole, kills + 2)[1:-1]:
        process = start(to_the_end, tmp_path / "run", out, method, workers)
        while process.exitcode is None and not (journal.exists() and journal.stat().st_size > size):
            time.sleep(0.001)
        process.kill()
        process.join()
    to_the_end(tmp_path / "run", out, method, workers)
    assert out.read_text() == (tmp_path / "unharmed.json").read_text()
    figure(22, kills, "kills")


class Moody(Steady):
    """Fails, or takes a nap that no timeout allows, in a third of the box."""

    def __init__(self, nap: float = 0.0) -> None:
        super().__init__()
        self.nap = nap

    def advance(self, state: Any) -> Any:
        if state.x[0] > 1.5:
            time.sleep(self.nap)
            raise ArithmeticError("the solver gave up")
        return super().advance(state)


def test_trust_region_goes_on_where_the_solver_fails(tmp_path: Path, figure) -> None:
    options = {**TRUSTING, "on_failure": "worst"}
    whole = run(Moody(), None, **options)
    assert whole.failures > 1 and np.isfinite(whole.F) and whole.x[0] <= 1.5
    run(Moody(), tmp_path / "run", **{**options, "max_evals": 80})
    assert course(run(Moody(), tmp_path / "run", **options)) == course(whole)
    figure(7, whole.failures, "exceptions ranked last and replayed")


def test_trust_region_raises_the_solvers_error_and_resumes(tmp_path: Path, figure) -> None:
    class BreakingSteady(Steady, Breaking):
        pass

    stopped_in_the_middle(BreakingSteady(), tmp_path / "run", **TRUSTING)
    again = run(BreakingSteady(), tmp_path / "run", **TRUSTING)
    assert course(again) == course(run(Steady(), None, **TRUSTING))
    figure(7, 1, "exceptions raised and resumed from")


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore:workers slow this run down")
def test_trust_region_goes_on_where_the_solver_hangs(figure) -> None:
    options = {**TRUSTING, "on_failure": "worst", "workers": 2, "timeout": 0.5, "max_evals": 24}
    result = run(Moody(nap=60.0), None, **options)
    assert result.failures > 0 and np.isfinite(result.F) and result.x[0] <= 1.5
    figure(10, result.failures, "hanging evaluations ended")
