"""Run directories and results made or changed by somebody else: refused by name, nothing is run."""

from __future__ import annotations

import copy
import io
import json
import math
import os
import pickle
import tracemalloc
import warnings
import zipfile
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from conftest import fingerprint

import bilevo
from bilevo import JournalCorrupt, Result, RunMismatch
from bilevo.run.journal import _HEAD, _MARK, JOURNAL_FORMAT, JournalFile, JournalWriter, Record

PROBLEM = bilevo.Problem(
    lambda x, y: float(x @ x + y @ y),
    lambda x, y: float((y - x) @ (y - x)),
    [(-5, 10)],
    [(-5, 10)],
)
SHORT = {  # more than one generation
    "method": "drc-cma-es",
    "budget": bilevo.Budget(lower_max=4, upper_max=14),
    "max_evals": 100,
}
DEEP = ["[" * n + "]" * n for n in (10, 900, 940, 960, 980, 100_000)]
DEEP += ['{"a":' * n + "1" + "}" * n for n in (10, 900, 940, 960, 980, 100_000)]
TEXTS = ["", "{}", "[]", "null", "3", '"x"', "NaN", '{"F": 1' + "0" * 400 + "}", "9" * 5000, *DEEP]
CLASSES = ["os.system", "subprocess.Popen", "builtins.exec", "bilevo.cli.entry", "pathlib.Path"]


class Bomb:
    """Makes a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class Kept:
    """The run directory of a short run, to be spoilt and looked at again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tried, self.exploded = folder / "run", 0, folder / "exploded"
        self.whole = self.run()
        self.journal, self.snapshot = self.folder / "journal.bin", self.folder / "snapshot.npz"
        self.journal_bytes = self.journal.read_bytes()
        self.snapshot_bytes = self.snapshot.read_bytes()

    def run(self) -> Result:
        return bilevo.minimize(PROBLEM, run_dir=self.folder, **SHORT)

    def try_journal(self, content: bytes) -> Result | None:
        """Loading and resuming give a result (the latter is returned) or the named error."""
        if self.snapshot.exists():
            self.snapshot.unlink()
        for look in (lambda: bilevo.load(self.folder), self.run):
            self.journal.write_bytes(content)
            result = None
            try:
                result = look()
            except (JournalCorrupt, RunMismatch) as error:
                assert str(self.folder) in str(error) and len(str(error)) < 3000
                assert self.journal.read_bytes() == content  # nothing was changed
        self.tried += 1
        return result

    def try_snapshot(self, content: bytes) -> bool:
        """The same result, with a warning unless the snapshot is of use; whether it was."""
        self.journal.write_bytes(self.journal_bytes)
        self.snapshot.write_bytes(content)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = self.run()
        assert fingerprint(result) == fingerprint(self.whole)
        assert {warning.category for warning in caught} <= {UserWarning}
        assert not self.exploded.exists()
        self.tried += 1
        return not caught


@pytest.fixture
def kept(tmp_path: Path, monkeypatch) -> Kept:
    with monkeypatch.context() as patch:
        patch.setattr("bilevo.run.directory.SNAPSHOT_AFTER", 0.0)
        return Kept(tmp_path)


def mutated(rng: np.random.Generator, content: bytes) -> bytes:
    """Cut, flipped, overwritten, repeated, or nothing but noise."""
    data, at = bytearray(content), int(rng.integers(len(content)))
    length = int(rng.integers(1, 200))
    match rng.integers(6):
        case 0:
            del data[at:]
        case 1:
            data[at] ^= 1 << rng.integers(8)
        case 2:
            data[at : at + length] = rng.bytes(length)
        case 3:
            del data[at : at + length]
        case 4:
            data[at:at] = data[at : at + length]
        case 5:
            data = bytearray(rng.bytes(at + 1))
    return bytes(data)


def header(text: str) -> bytes:
    return f"{JOURNAL_FORMAT} {crc32(text.encode()):08x} {text}\n".encode()


def with_records(kept: Kept, records: list[Record]) -> bytes:
    """A journal of these records, as the library itself would write it."""
    path = kept.folder / "other.bin"
    writer = JournalWriter.create(path, JournalFile(kept.journal).header)
    for record in records:
        writer.append(record)
    writer.close()
    return path.read_bytes()


def test_mutated_journals_end_in_a_result_or_the_named_error(kept: Kept, trials, figure) -> None:
    rng = np.random.default_rng(1)
    for _ in range(trials(150, 5000)):
        resumed = kept.try_journal(mutated(rng, kept.journal_bytes))
        assert resumed is None or fingerprint(resumed) == fingerprint(kept.whole)
    figure(16, kept.tried, "journals")


def test_records_of_nonsense_with_the_right_crc_are_refused(kept: Kept, trials, figure) -> None:
    rng = np.random.default_rng(2)
    honest = [record for record, _ in JournalFile(kept.journal).records()]
    payloads = [text.encode() for text in TEXTS] + [b"\0" * 7, b"\0" * 8, b"\xff" * 16]
    changes: list[dict[str, Any]] = [{"payload": payload} for payload in payloads]
    changes += [{"level": 9}, {"points": 0}, {"points": 65535}, {"number": 2**63}, {"kind": 3}]
    changes += [{"elapsed": elapsed} for elapsed in (math.nan, math.inf, -1.0, 1e300)]
    for change in changes * trials(3, 60):
        at = int(rng.choice([0, rng.integers(len(honest)), len(honest) - 1]))
        if rng.random() < 0.3:  # a generation's record or that of a failure
            change = {**change, "kind": int(rng.integers(1, 3))}  # noqa: PLW2901
        records = [*honest[:at], honest[at]._replace(**change), *honest[at + 1 :]]
        kept.try_journal(with_records(kept, records))
    figure(16, kept.tried, "journals")


def test_changed_fields_in_json_records_are_refused_or_read(kept: Kept, trials, figure) -> None:
    rng = np.random.default_rng(3)
    honest = [record for record, _ in JournalFile(kept.journal).records()]
    written = [i for i, record in enumerate(honest) if record.kind >= 2]
    for _ in range(trials(60, 3000)):
        at = int(rng.choice(written))
        content = json.loads(honest[at].payload)
        content[str(rng.choice([*content, "new"]))] = json.loads(str(rng.choice(TEXTS[1:7])))
        record = honest[at]._replace(payload=json.dumps(content).encode())
        kept.try_journal(with_records(kept, [*honest[:at], record, *honest[at + 1 :]]))
    figure(16, kept.tried, "journals")


def test_headers_made_to_harm_are_refused(kept: Kept, figure) -> None:
    honest = json.loads(kept.journal_bytes.split(b"\n")[0].split(b" ", 2)[2])
    sizes = [[10**9, 1], [10**12, 1], [10**30, 1], [-1, 1], [1.5, 1], "ab", None, [1], {}]
    texts = [json.dumps({**honest, "sizes": size}) for size in sizes]
    texts += [json.dumps({k: v for k, v in honest.items() if k != name}) for name in honest]
    texts += [json.dumps({**honest, name: None}) for name in honest]
    texts += [json.dumps(honest)[:-1] + f', "extra": {text}}}' for text in DEEP] + TEXTS
    texts += [json.dumps({**honest, "problem": "x" * 2**19}), "x" * 2**21]
    tracemalloc.start()
    for text in texts:
        kept.try_journal(header(text))
    assert tracemalloc.get_traced_memory()[1] < 2**26
    tracemalloc.stop()
    figure(16, kept.tried, "journals")


def test_a_journal_made_to_keep_its_reader_busy_does_not(kept: Kept, figure) -> None:
    """Thirty thousand beginnings of records, each said to reach to the end of the file."""
    count, busy = 30_000, bytearray(kept.journal_bytes)
    for i in range(count):
        left = max(0, (count - i - 1) * _HEAD.size - 4)
        busy += _HEAD.pack(_MARK, left, 0, 0, 1, 0, 0, 0.0)
    kept.try_journal(bytes(busy))
    kept.try_journal(kept.journal_bytes + _HEAD.pack(_MARK, 2**32 - 1, 0, 0, 1, 0, 0, 0.0))
    figure(16, kept.tried, "journals")


def test_mutated_snapshots_are_passed_over(kept: Kept, trials, figure) -> None:
    rng = np.random.default_rng(4)
    assert kept.try_snapshot(kept.snapshot_bytes)
    for _ in range(trials(80, 3000)):
        kept.try_snapshot(mutated(rng, kept.snapshot_bytes))
    figure(16, kept.tried, "snapshots")


def packed(tree: Any, arrays: dict[str, np.ndarray]) -> bytes:
    content = io.BytesIO()
    text = tree if isinstance(tree, str) else json.dumps(tree)
    np.savez(content, tree=np.frombuffer(text.encode(), np.uint8), **arrays)
    return content.getvalue()


def unpacked(kept: Kept) -> tuple[Any, dict[str, np.ndarray]]:
    with np.load(io.BytesIO(kept.snapshot_bytes)) as stored:
        arrays = dict(stored)
    return json.loads(arrays.pop("tree").tobytes()), arrays


@pytest.mark.rest
def test_snapshots_that_hold_code_or_bombs_run_and_fill_nothing(kept: Kept, figure) -> None:
    tree, arrays = unpacked(kept)
    code = np.array([Bomb(kept.exploded)], dtype=object)
    spoilt = [pickle.dumps(Bomb(kept.exploded)), b"", b"PK\x05\x06" + b"\0" * 18]
    content = io.BytesIO()
    np.save(content, code, allow_pickle=True)
    spoilt += [content.getvalue(), packed(tree, {**arrays, "a0": code})]
    spoilt += [packed(text, arrays) for text in TEXTS]
    spoilt += [packed({**tree, "state": json.loads(text)}, arrays) for text in TEXTS[1:7]]
    for name in CLASSES:
        fields = {"class": name, "fields": {"args": ["touch", str(kept.exploded)]}}
        for state in (fields, {"enum": name, "value": f"touch {kept.exploded}"}):
            spoilt.append(packed({**tree, "state": state}, arrays))
            inside = copy.deepcopy(tree)
            inside["state"]["fields"]["leader"] = state
            spoilt.append(packed(inside, arrays))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:  # 200 MB in 200 kB
        file.writestr("tree.npy", b"\x93NUMPY" + b"\0" * 200_000_000)
    spoilt.append(bomb := content.getvalue())
    large = io.BytesIO()
    with zipfile.ZipFile(large, "w") as file:  # a header that declares a terabyte
        about = str({"descr": "<f8", "fortran_order": False, "shape": (10**12,)}).encode() + b"\n"
        file.writestr("tree.npy", b"\x93NUMPY\1\0" + len(about).to_bytes(2, "little") + about)
    for content in (*spoilt, large.getvalue()):
        assert not kept.try_snapshot(content)
    tracemalloc.start()
    kept.try_snapshot(bomb)
    assert tracemalloc.get_traced_memory()[1] < 2**26
    tracemalloc.stop()
    figure(16, kept.tried, "snapshots")


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a tree."""
    found = []
    for key, item in tree.items() if isinstance(tree, dict) else enumerate(tree):
        found += [(tree, key), *(places(item) if isinstance(item, dict | list) else [])]
    return found


@pytest.mark.rest
def test_snapshots_of_another_make_are_passed_over_or_refused(kept: Kept, trials, figure) -> None:
    """Other types, names, shapes and numbers than a state has, in a file that is well made."""
    rng = np.random.default_rng(5)
    other: list[Any] = [None, True, -1, 10**400, 2**64, 1.5, math.nan, "x", [], {}]
    other += [{"array": 0}, {"array": 99}, {"list": ["a"]}, {"tuple": []}]
    alter = [
        lambda a: a.astype(complex),
        lambda a: a.ravel()[:0],
        lambda a: a.ravel()[0],
        lambda a: np.concatenate([a, a]),
        lambda a: np.full(a.shape, np.nan),
        np.zeros_like,
        lambda a: a.astype("f4"),
    ]
    for case in range(trials(120, 3000)):
        tree, arrays = unpacked(kept)
        if case % 3:
            spots = places(tree["state"])
            node, key = spots[rng.integers(len(spots))]
            node[key] = other[rng.integers(len(other))]
        else:
            name = f"a{rng.integers(len(arrays))}"
            arrays[name] = alter[rng.integers(len(alter))](arrays[name])
        kept.journal.write_bytes(kept.journal_bytes)
        kept.snapshot.write_bytes(packed(tree, arrays))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = kept.run()
            except ValueError:  # RunMismatch, mostly: the state is one, but not of this run
                result = None
        if any(warning.category is UserWarning for warning in caught):
            assert result is not None and fingerprint(result) == fingerprint(kept.whole)
        kept.tried += 1
    figure(16, kept.tried, "snapshots")


def test_mutated_and_hostile_results_are_read_or_refused(tmp_path: Path, trials, figure) -> None:
    rng, path = np.random.default_rng(6), tmp_path / "result.json"
    bilevo.minimize(PROBLEM, **SHORT).save(path)
    honest = path.read_bytes()
    tree = json.loads(honest)
    contents = [mutated(rng, honest) for _ in range(trials(1000, 50_000))]
    contents += [text.encode() for text in TEXTS] + [pickle.dumps(Bomb(tmp_path / "exploded"))]
    for text in TEXTS[1:7]:
        for i in range(len(places(tree))):
            spoilt = copy.deepcopy(tree)
            node, key = places(spoilt)[i]
            node[key] = json.loads(text)
            contents.append(json.dumps(spoilt).encode())
    for name in tree:
        rest = json.dumps({k: v for k, v in tree.items() if k != name})
        contents += [f'{rest[:-1]}, "{name}": {text}}}'.encode() for text in DEEP]
    for content in contents:
        path.write_bytes(content)
        try:
            assert isinstance(Result.load(path), Result)
        except ValueError as error:
            assert "is not a result" in str(error)
    assert not (tmp_path / "exploded").exists()
    figure(16, len(contents), "results")
