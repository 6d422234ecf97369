"""Kernels agree to rounding, compiled and not, and each repeats its own results."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bilevo
from bilevo import kernels
from bilevo.algorithms import DRC
from bilevo.core.order import ranking
from bilevo.optimizers import CMAES, Start
from bilevo.optimizers.cma_kernels import eigen, roots

pytest.importorskip("numba")


def generations(kernel: kernels.Name, d: int, seed: int, count: int) -> list[np.ndarray]:
    """Return a search's distribution after each generation, from the same random numbers."""
    rng, cma, packed = np.random.default_rng(seed), CMAES(), []
    with kernels.using(kernel):
        state = cma.start(Start.uniform(np.full(d, 0.3), rng))
        for _ in range(count):
            points = cma.ask(state, rng)
            cma.tell(
                state, points, (points - 0.3) ** 2 @ np.arange(1.0, d + 1), np.zeros(len(points))
            )
            packed.append(state.packed.copy())
    return packed


@pytest.fixture(autouse=True)
def _nothing_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kernels.VARIABLE, raising=False)


def test_numba_is_what_these_tests_are_about() -> None:
    assert kernels.default() == "numba"


@cache
def compiled(function: Callable) -> Callable:
    """Compile a function that kernels call. It is not kept on disk, so it is never out of date."""
    import numba

    kernels.prepare("numba")
    return numba.njit(lambda *args: function(*args))  # noqa: PLW0108 (it stands for another)


@pytest.mark.rest
@given(
    st.lists(
        st.tuples(
            st.sampled_from([-1.0, 0.0, 2.5, np.inf]),
            st.sampled_from([0.0, 0.0, 1e-9, 3.0, np.inf]),
        ),
        min_size=1,
    )
)
def test_the_compiled_order_is_debs(values) -> None:
    objective, violation = np.array(values).T.copy()
    found = compiled(ranking)(objective, violation)
    assert np.array_equal(found, ranking(objective, violation))


@settings(max_examples=60, deadline=None)
@given(d=st.one_of(st.integers(1, 40), st.sampled_from([60, 61, 70])), seed=st.integers(0, 2**32))
def test_a_step_is_the_same_to_rounding(d: int, seed: int) -> None:
    """Compare one generation from the same state of a running search."""
    start = generations("numpy", d, seed, 8)[-1]
    rng, cma, after = np.random.default_rng(seed), CMAES(), []
    z_and_order = rng.bit_generator.state
    for kernel in kernels.NAMES:
        rng.bit_generator.state = z_and_order
        with kernels.using(kernel):
            state = cma.start(Start.uniform(np.full(d, 0.3), rng))
            state.packed[:] = start
            points = cma.ask(state, rng)
            cma.tell(state, points, rng.random(len(points)), np.zeros(len(points)))
        after.append((points, state.packed))
    for one, other in zip(*after, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kernel", kernels.NAMES)
def test_each_kernel_repeats_itself_to_the_bit(kernel: kernels.Name) -> None:
    one, two = (generations(kernel, 6, 3, 50) for _ in range(2))
    assert np.array_equal(one, two)


@pytest.mark.rest
@settings(max_examples=100, deadline=None)
@given(d=st.integers(1, 64), seed=st.integers(0, 2**32), spread=st.floats(0, 30))
def test_the_compiled_eigensolver_agrees_with_lapack(d: int, seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    values = 10.0 ** rng.uniform(-spread, spread, d)
    values[rng.random(d) < 0.3] = values[0]  # equal ones
    values[rng.random(d) < 0.1] = 0.0
    C = (basis * values) @ basis.T
    C = (C + C.T) / 2
    found, rows = compiled(eigen)(C)
    np.testing.assert_allclose(found, eigen(C)[0], atol=1e-13 * np.abs(values).max())
    np.testing.assert_allclose(rows @ rows.T, np.eye(d), atol=1e-12)
    np.testing.assert_allclose((rows.T * found) @ rows, C, atol=1e-12 * np.abs(values).max())


@pytest.mark.parametrize("C", [np.zeros((3, 3)), np.eye(4) * 1e-200, np.diag([1e120, 1.0, 2.0])])
def test_the_compiled_eigensolver_takes_any_scale(C: np.ndarray) -> None:
    found, rows = compiled(eigen)(C)
    assert found.tolist() == sorted(C.diagonal())
    np.testing.assert_allclose(np.abs(rows).sum(axis=0), 1)


def test_a_repaired_covariance_is_repaired_in_place() -> None:
    C = np.diag([1.0, 1e-40])
    _, inverse, largest = roots(C)
    assert C[1, 1] == pytest.approx(1e-14) and largest == pytest.approx(1) and inverse[1, 1] < 1.1e7


def test_a_result_says_what_computed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = bilevo.problems.get("smd1", 2, 3)
    assert bilevo.minimize(problem, max_evals=300).kernel == "numba"
    with kernels.using("numpy"):
        assert bilevo.minimize(problem, max_evals=300).kernel == "numpy"
    monkeypatch.setenv(kernels.VARIABLE, "numpy")
    assert bilevo.minimize(problem, max_evals=300).kernel == "numpy"
    monkeypatch.setenv(kernels.VARIABLE, "fortran")
    with pytest.raises(ValueError, match=r"BILEVO_KERNEL must be one of .* got 'fortran'"):
        bilevo.minimize(problem, max_evals=300)


@pytest.mark.parametrize("began_with", kernels.NAMES)
def test_a_run_goes_on_with_the_kernel_it_began_with(tmp_path, began_with: kernels.Name) -> None:
    problem = bilevo.problems.get("smd2", 2, 3)
    with kernels.using(began_with):
        whole = bilevo.minimize(problem, rng=5, max_evals=4000)
        bilevo.minimize(problem, rng=5, max_evals=2000, run_dir=tmp_path)
    resumed = bilevo.minimize(problem, rng=5, max_evals=4000, run_dir=tmp_path)
    assert resumed.kernel == began_with and bilevo.load(tmp_path).kernel == began_with
    assert resumed.summary() | {"time": 0} == whole.summary() | {"time": 0}


def test_a_compiled_run_is_not_gone_on_with_where_numba_is_missing(tmp_path, monkeypatch) -> None:
    problem = bilevo.problems.get("smd2", 2, 3)
    bilevo.minimize(problem, max_evals=2000, run_dir=tmp_path)
    monkeypatch.setattr(kernels, "_numba", lambda: None)
    with pytest.raises(bilevo.RunMismatch, match="kernel is 'numba' there and 'numpy' here"):
        bilevo.minimize(problem, max_evals=4000, run_dir=tmp_path)


@pytest.mark.parametrize(("began_with", "wanted"), [("numba", "numpy"), ("numpy", "numba")])
def test_a_kernel_that_is_asked_for_is_not_exchanged(tmp_path, began_with, wanted) -> None:
    problem = bilevo.problems.get("smd2", 2, 3)
    with kernels.using(began_with):
        bilevo.minimize(problem, max_evals=500, run_dir=tmp_path)
    with kernels.using(wanted), pytest.raises(bilevo.RunMismatch, match="kernel is"):
        bilevo.minimize(problem, max_evals=1000, run_dir=tmp_path)


def test_numba_that_is_asked_for_and_missing_is_an_error(monkeypatch) -> None:
    monkeypatch.setattr(kernels, "_numba", lambda: None)
    problem = bilevo.problems.get("smd1", 2, 3)
    assert bilevo.minimize(problem, max_evals=300).kernel == "numpy"
    monkeypatch.setenv(kernels.VARIABLE, "numba")
    with pytest.raises(ValueError, match=r"need numba: pip install 'bilevo\[fast\]'"):
        bilevo.minimize(problem, max_evals=300)
    monkeypatch.setenv(kernels.VARIABLE, "")
    assert bilevo.minimize(problem, max_evals=300).kernel == "numpy"


def test_a_callback_keeps_its_own_context_variables() -> None:
    seen: ContextVar[int] = ContextVar("seen", default=0)

    def callback(result: bilevo.Result) -> None:
        seen.set(result.nit)

    result = bilevo.minimize(bilevo.problems.get("smd1", 2, 3), max_evals=3000, callback=callback)
    assert seen.get() == result.nit > 0


class Careful(DRC):
    """An algorithm with a context of its own around requests."""

    def generation(self, spec, state):
        with np.errstate(all="raise"):
            return (yield from DRC.generation(self, spec, state))


def test_an_algorithm_may_wait_for_values_inside_a_context() -> None:
    problem = bilevo.problems.get("smd1", 2, 3)
    result = bilevo.minimize(problem, method=Careful(), max_evals=500)
    assert result.status == "max_evals"


class Plain(CMAES):
    """An optimizer that gives out what compiled code does not take."""

    def mean(self, state):
        mean = np.repeat(state.mean, 2)[::2].astype(np.float32)
        mean.flags.writeable = False
        return mean


def test_compiled_kernels_take_any_optimizers_mean() -> None:
    problem = bilevo.problems.get("smd1", 2, 3)
    result = bilevo.minimize(problem, method=DRC(lower=Plain()), max_evals=2000)
    assert result.kernel == "numba" and result.nfev > 1900


def python(code: str, *path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    found = ":".join([*map(str, path), *sys.path])
    return subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": found, **environment},
    )


SHORT = "bilevo.minimize(bilevo.problems.get('smd1', 2, 3), max_evals=300)"


def test_importing_bilevo_neither_loads_numba_nor_compiles() -> None:
    assert python("import sys, bilevo; sys.exit('numba' in sys.modules)").returncode == 0


def test_numba_is_not_loaded_where_numpy_is_asked_for() -> None:
    code = f"import sys, bilevo; {SHORT}; sys.exit('numba' in sys.modules)"
    assert python(code, **{kernels.VARIABLE: "numpy"}).returncode == 0


@pytest.mark.rest
def test_compiling_is_announced_and_kept_for_the_next_process(tmp_path) -> None:
    code = f"""
import bilevo
from bilevo import kernels
from bilevo.optimizers.cma_kernels import sample, update
kernels.NOTICE_AFTER = 0.0
{SHORT}
print(*(len(kernel.compiled.stats.cache_hits) for kernel in (sample, update)))
"""
    first, second = (python(code, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert first.stderr == "bilevo: preparing compiled kernels (numba)\n"
    assert (first.stdout, second.stdout) == ("0 0\n", "1 1\n")


@pytest.mark.slow
def test_first_runs_may_begin_in_several_threads_and_without_a_cache(tmp_path) -> None:
    """Check that kernels are compiled for this process only where nothing can be kept."""
    code = f"""
import bilevo, numba.core.caching as caching
from concurrent.futures import ThreadPoolExecutor
caching.CacheImpl._locator_classes = []
run = lambda _: {SHORT}
with ThreadPoolExecutor(4) as pool:
    print(*{{result.F for result in pool.map(run, range(4))}})
"""
    done = python(code)
    assert done.returncode == 0 and len(done.stdout.split()) == 1, done.stderr


@pytest.mark.rest
@pytest.mark.parametrize(
    ("module", "reason"),
    [("raise OSError('no LLVM')", "no LLVM"), ("__version__ = '0.50.1'", "older than 0.61")],
)
def test_a_numba_that_does_not_work_is_done_without(tmp_path, module: str, reason: str) -> None:
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").write_text(module)
    (tmp_path / "numba" / "extending.py").write_text("")
    done = python(f"import bilevo; print({SHORT}.kernel)", tmp_path)
    assert done.stdout == "numpy\n" and reason in done.stderr
