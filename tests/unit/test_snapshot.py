"""States as files: what goes in comes out, and what cannot is said so."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from bilevo.run import snapshot
from bilevo.run.journal import Position

T = TypeVar("T")


@dataclass
class State:
    weights: list[Any] = field(default_factory=lambda: [np.ones((2, 3)), np.arange(4)])
    settings: dict[str, Any] = field(default_factory=dict)
    rng: Any = None
    step: Any = 3
    shape: tuple[int, ...] = (1, 2)


def again(state: Any, like: Any, folder: Path) -> Any:
    snapshot.write(folder / "state.npz", state, Position(5, 7))
    found, position = snapshot.read(folder / "state.npz", snapshot.StateKind.of(type(like), like))
    assert position == Position(5, 7)
    return found


@pytest.mark.parametrize("kind", [np.random.Philox, np.random.PCG64, np.random.SFC64])
def test_generators_dictionaries_and_scalars_come_back(kind: Any, tmp_path: Path) -> None:
    rng = np.random.Generator(kind(3))
    rng.random(5)
    settings = {"rate": np.float32(0.1), "batch": np.int64(8), 3: None, "deep": {"on": True}}
    state = State(settings=settings, rng=rng, step=np.int64(9))
    found = again(state, State(), tmp_path)
    assert found.settings == settings
    assert [type(value) for value in found.settings.values()] == [
        type(value) for value in settings.values()
    ]
    assert type(found.step) is np.int64 and found.shape == (1, 2)
    assert all(np.array_equal(a, b) for a, b in zip(found.weights, state.weights, strict=True))
    assert found.rng.standard_normal(3).tolist() == rng.standard_normal(3).tolist()


def test_a_state_need_not_be_a_dataclass(tmp_path: Path) -> None:
    state = {"x": np.zeros(2), "parts": (1.5, "text", [State()])}
    found = again(state, {"parts": State()}, tmp_path)
    assert found["parts"][:2] == (1.5, "text") and isinstance(found["parts"][2][0], State)


def test_other_things_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    for other in (
        object(),
        {"f": len},
        np.array([object()]),
        np.random.Generator(np.random.MT19937(1)),
    ):
        with pytest.raises(snapshot.NotStorable, match="state holds"):
            snapshot.write(tmp_path / "state.npz", [other], Position(0, 0))
    assert not list(tmp_path.iterdir())


def test_a_class_that_the_state_at_hand_has_not_is_not_made(tmp_path: Path) -> None:
    snapshot.write(tmp_path / "state.npz", {"inner": State()}, Position(0, 0))
    with pytest.raises(snapshot.Unusable):
        snapshot.read(tmp_path / "state.npz", snapshot.StateKind.of(dict, {}))


class Colour(Enum):
    RED = (1, 2)
    ODD = frozenset([1])


class Box(NamedTuple, Generic[T]):
    inside: T


@dataclass
class Loose:
    """Values that are nearly of the declared types, as algorithms make them."""

    count: int = 0
    flag: bool = False
    share: float = 0.0
    any_array: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    floats: NDArray[np.floating] = field(default_factory=lambda: np.zeros(0))
    thing: object = None
    colour: Colour = Colour.RED
    box: Box[int] = field(default_factory=lambda: Box(1))


@pytest.mark.parametrize(
    "changes",
    [
        {"count": np.argmin([3, 1])},
        {"flag": np.bool_(True)},
        {"share": np.float32(0.5)},
        {"share": np.int64(2)},
        {"any_array": np.ones((2, 3), np.int8)},
        {"floats": np.ones((2, 3), np.float32)},
        {"thing": "text"},
        {"colour": Colour.ODD},
        {"box": Box(7)},
    ],
    ids=str,
)
def test_what_is_stored_comes_back(changes: dict[str, Any], tmp_path: Path) -> None:
    kind = snapshot.StateKind.of(Loose, Loose())
    state = Loose(**changes)
    snapshot.require_storable(state, kind)
    snapshot.write(tmp_path / "state.npz", state, Position(0, 0), kind)
    found, _ = snapshot.read(tmp_path / "state.npz", kind)
    for name, value in changes.items():
        assert np.array_equal(getattr(found, name), value)
        assert type(getattr(found, name)) is type(value)


@pytest.mark.parametrize("count", ["many", 10**5000], ids=["text", "a long number"])
def test_what_would_not_come_back_is_refused_at_once(count: Any) -> None:
    with pytest.raises(snapshot.NotStorable, match=r"would not come back|cannot be"):
        snapshot.require_storable(Loose(count=count), snapshot.StateKind.of(Loose, Loose()))


def test_a_named_tuple_with_attributes_of_its_own_is_refused() -> None:
    class Tagged(Position):
        pass

    tagged = Tagged(1, 2)
    tagged.born = 3
    with pytest.raises(snapshot.NotStorable):
        snapshot.require_storable({"held": tagged}, snapshot.StateKind.of(dict, {"held": tagged}))
