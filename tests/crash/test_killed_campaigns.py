"""`bilevo bench` killed by SIGKILL, together with the processes of its runs, and started again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bilevo.cli import main
from bilevo.lab.campaign import stored_runs

PLAN = Path(__file__).parents[2] / "plans" / "quick.toml"
PART = ["--problems", "smd1,smd2,smd9", "--runs", "3"]


def command(folder: Path, part: list[str]) -> list[str]:
    bench = ["bench", str(PLAN), *part, "--out", str(folder), "--no-progress"]
    return [sys.executable, "-m", "bilevo", *bench]


def kill_when(folder: Path, stored: int, part: list[str]) -> int:
    """Start the campaign and end it hard when it has stored some runs; how many it has then."""
    process = subprocess.Popen(command(folder, part), start_new_session=True)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        if len(stored_runs(folder)) >= stored:
            break
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return len(stored_runs(folder))


def tables(folder: Path, capsys) -> str:
    kinds = "accuracy,evaluations,total,effort,ranks,summary"
    assert main(["table", str(folder), "--kind", kinds, "--format", "text,csv"]) == 0
    return capsys.readouterr().out


def killed_and_unbroken_give_the_same(tmp_path: Path, part: list[str], total: int, capsys) -> None:
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    counts = [kill_when(broken, stored, part) for stored in (1, total // 2)]
    assert 1 <= counts[0] <= counts[1] < total
    for folder in (broken, whole):
        subprocess.run(command(folder, part), check=True)
        assert len(stored_runs(folder)) == total
    assert tables(broken, capsys) == tables(whole, capsys)


@pytest.mark.rest
def test_a_part_of_the_quick_plan_killed_twice_gives_the_tables_of_an_unbroken_run(
    tmp_path, capsys
) -> None:
    killed_and_unbroken_give_the_same(tmp_path, PART, 36, capsys)


@pytest.mark.slow
def test_the_quick_plan_killed_twice_gives_the_tables_of_an_unbroken_run(tmp_path, capsys) -> None:
    killed_and_unbroken_give_the_same(tmp_path, [], 240, capsys)
