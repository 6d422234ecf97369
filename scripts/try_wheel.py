"""Try an installed bilevo in the working folder: `python try_wheel.py EXTRA`.

Each function uses what the extra of its name is for. `core` also checks that what is missing is
told. scripts/wheel calls this file in empty environments, so it imports only bilevo, the standard
library and what the extra brings.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import bilevo
from bilevo.core.extras import MissingExtra

BIN = Path(sys.executable).parent


def solved(**options: object) -> bilevo.Result:
    """Solve a small problem."""
    return bilevo.minimize(bilevo.problems.get("smd1"), **options)


def command(*words: str) -> None:
    """Run the installed command."""
    subprocess.run([BIN / "bilevo", *words], check=True, stdout=subprocess.DEVNULL)


def core() -> None:
    assert ".venv" not in bilevo.__file__ and "site-packages" in bilevo.__file__
    result = solved(run_dir="run", keep_archive=True)
    assert result.success and bilevo.verify(bilevo.problems.get("smd1"), result).confirmed
    assert len(result.archive()) == result.nfev
    command("solve", "smd1", "--dim", "2,3", "--max-evals", "1e4")
    command("list")
    for call in (result.to_pandas, result.history.to_dataframe, result.plot):
        try:
            call()
        except MissingExtra as error:
            assert "pip install 'bilevo[" in str(error)
        else:
            raise AssertionError(f"{call} needs no extra")


def plot() -> None:
    bilevo.plot.save(solved().plot(), "run.svg")


def bench() -> None:
    assert solved().history.to_dataframe().height > 0
    command("bench", "--problems", "smd1", "--dim", "2,3", "--runs", "1", "--out", "campaign")
    command("table", "campaign")


def pandas() -> None:
    assert len(solved(keep_archive=True).archive().to_pandas()) > 100


def report() -> None:
    bench()
    command("report", "campaign", "--out", "report.html")
    assert Path("report.html").stat().st_size > 10_000


def watch() -> None:
    bench()
    command("watch", "campaign", "--export", "watch.html")
    assert Path("watch.html").stat().st_size > 10_000


def fast() -> None:
    assert solved().kernel == "numba"


def surrogate() -> None:
    assert solved(method="bleaq2", max_evals=2000).nfev > 0


def dask() -> None:
    from distributed import Client

    with Client(n_workers=1, processes=False, dashboard_address=None) as client:
        assert solved(workers=client, max_evals=200).nfev <= 200


def ray() -> None:
    import ray as library

    library.init(num_cpus=1, include_dashboard=False, logging_level="error")
    assert solved(workers=bilevo.RayExecutor(), max_evals=200).nfev <= 200
    library.shutdown()


def docs() -> None:
    import myst_parser
    import pydata_sphinx_theme
    import sphinx

    assert sphinx.version_info and myst_parser.__version__ and pydata_sphinx_theme.__version__


TRIALS: dict[str, Callable[[], None]] = {
    trial.__name__: trial
    for trial in (core, plot, bench, pandas, report, fast, surrogate, dask, ray, watch, docs)
}

if __name__ == "__main__":
    TRIALS[sys.argv[1]]()
    print(f"{sys.argv[1]}: works")
