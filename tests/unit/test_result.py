"""Results on disk and on screen."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from conftest import fingerprint

from bilevo import Result, minimize, verify
from bilevo.core.result import History
from bilevo.problems import get


@pytest.mark.parametrize("options", [{"max_evals": 3000}, {"max_evals": 1}])
def test_a_saved_result_comes_back_with_the_same_bits(tmp_path, options) -> None:
    result = minimize(get("smd1"), **options)
    if options["max_evals"] > 1:
        verify(get("smd1"), result)
    result.save(tmp_path / "result.json")
    loaded = Result.load(tmp_path / "result.json")
    assert repr(fingerprint(loaded)) == repr(fingerprint(result))
    assert loaded.message == result.message and loaded.time == result.time
    if result.certificate is not None:
        assert loaded.certificate.F == result.certificate.F
        assert np.array_equal(loaded.certificate.y, result.certificate.y)
    json.loads((tmp_path / "result.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format": "other"}', '{"format": 3, "x": 1}', "null"]
)
def test_anything_else_is_refused_with_its_path(tmp_path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"other\.json is not a result"):
        Result.load(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("x", "12"),
        ("x", {"1": 2}),
        ("F", "many"),
        ("F", 10**400),
        ("success", "no"),
        ("nfev_upper", "many"),
        ("status", "done"),
        ("history", {"a": 1}),
        ("history", [{"executions": "abc"}]),
        ("certificate", 3),
        ("surprise", 1),
    ],
)
def test_damaged_fields_are_refused(tmp_path, field: str, value) -> None:
    path = tmp_path / "result.json"
    minimize(get("smd1"), max_evals=2000).save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(ValueError, match="is not a result"):
        Result.load(path)


def test_deep_nesting_is_refused(tmp_path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="is not a result"):
        Result.load(tmp_path / "deep.json")


def test_the_printed_result_shows_what_matters() -> None:
    shown = repr(minimize(get("smd1"), max_evals=200))
    for word in ("nfev_lower", "max_evals", "few", "success"):
        assert word in shown
    assert "failures" not in shown


def test_the_printed_result_tells_of_failures() -> None:
    def f(x, y):
        raise ArithmeticError

    result = minimize(lambda x, y: 0.0, f, [(0, 1)], [(0, 1)], on_failure="worst", max_evals=60)
    assert f"failures: {result.failures}" in repr(result)


def test_history_becomes_a_table() -> None:
    result = minimize(get("smd1"), max_evals=3000)
    table = result.history.to_dataframe()
    assert table.height == result.nit
    assert table["nfev_lower"].is_sorted()
    assert list(History()) == []


def test_only_plain_files_of_a_bounded_size_are_read(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 20 * 2**30)
    for name in ("pipe", "huge"):
        with pytest.raises(ValueError, match="no plain file of at most"):
            Result.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        Result.load(tmp_path / "missing")


def test_text_of_somebody_elses_result_is_printed_without_what_a_terminal_obeys() -> None:
    forged = replace(minimize(get("smd1"), max_evals=50), message="\x1b[31mverified\x07")
    assert "\\x1b[31mverified\\x07" in repr(forged) and "\x1b" not in repr(forged)
