"""Snapshots: an algorithm's state between two generations, as arrays and JSON in one npz file.

A state is a tree of dataclasses, named tuples, lists, tuples, dictionaries, numbers, strings,
enums, arrays and numpy's random generators. States of a problem's own solver are stored likewise.
The file names the classes. Only classes that the algorithm's `State` declares, or that its first
state holds, are made again, so a file cannot choose code to run. A snapshot only saves time: if it
cannot be used, it is ignored and the whole journal is replayed.
"""

from __future__ import annotations

import io
import json
import os
import types
import typing
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bilevo import safe_files
from bilevo.core.checks import shown
from bilevo.core.terminal import printable
from bilevo.run import old_names
from bilevo.run.journal import Position

SNAPSHOT_FORMAT = "bilevo-snapshot-1"
MAX_SNAPSHOT = 2**30  # The largest snapshot, in bytes.

Classes = dict[str, type]
_GENERATORS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (np.random.Philox, np.random.PCG64, np.random.PCG64DXSM, np.random.SFC64)
}


@dataclass(slots=True)
class _Parts:
    """The parts of a state that are encoded so far: its arrays, and its numbered objects.

    An object that a state holds twice is written once and comes back as one object, because it may
    be changed in place.
    """

    classes: Classes | None = None  # classes that can be read back; None allows any
    path: list[str] = field(default_factory=lambda: ["state"])  # the fields that lead here
    arrays: dict[str, Any] = field(default_factory=dict)
    numbers: dict[int, tuple[int, Any]] = field(default_factory=dict)  # number and object, by id


@dataclass(slots=True)
class _Stored:
    """A file's arrays, the classes that are allowed, and the objects made so far."""

    arrays: dict[str, Any]
    classes: Classes
    made: list[Any] = field(default_factory=list)

    def kind(self, name: str) -> type:
        """Return the class that a name in the file, maybe an old name, stands for."""
        return self.classes[old_names.CLASSES.get(name, name)]


class Unusable(ValueError):  # noqa: N818 (the name says what is wrong)
    """A file is no snapshot, or holds a state of another kind."""


class NotStorable(TypeError):  # noqa: N818 (the name says what is wrong)
    """A state would be different after it is written and read back."""


@dataclass(frozen=True, slots=True)
class StateKind:
    """The kind of a run's states: their class, the classes inside them, and a first state if known.

    A solver's states may be of any class. For them `state` is None, and `first` shows the class.
    """

    state: type | None
    classes: Classes
    first: Any = None

    @classmethod
    def of(cls, state: type | None, first: Any = None) -> StateKind:
        """Return the kind of states of the class `state`.

        The classes inside them are those that `state` declares, and those that `first`, an example
        of a state, holds.
        """
        found: Classes = {}
        try:
            _collect_class(state, found)
            _collect(first, found)
        except Exception as error:  # type hints may name anything
            raise NotStorable(
                f"its type hints cannot be read ({error}); put its classes at the top of a module"
            ) from None
        return cls(state, found, first)

    def admits(self, state: Any) -> bool:
        """Tell whether a state is of this kind."""
        known = self.state is None or type(state) is self.state
        return known and (self.first is None or _alike(state, self.first))


def require_storable(state: Any, kind: StateKind) -> None:
    """Refuse a state that would not be of this kind after it is written and read back."""
    _encode(state, kind)


def _encode(state: Any, kind: StateKind | None) -> tuple[str, _Parts]:
    """Return a state as JSON, and its arrays.

    If a kind is given, raise `NotStorable` if the state, read back, would not be of this kind.
    """
    parts = _Parts(None if kind is None else kind.classes)
    try:
        text = json.dumps(_plain(state, parts))
        if kind is not None:
            again = _revive(json.loads(text), _Stored(parts.arrays, kind.classes))
            if not kind.admits(again):
                raise NotStorable("its class or the dimensions of its arrays change")
    except NotStorable:
        raise
    except RecursionError:
        raise NotStorable("it holds itself") from None
    except Exception as error:  # values that are no JSON, or not of the declared types
        raise NotStorable(f"it would not come back as it is ({error})") from None
    return text, parts


def write(
    path: Path, state: Any, position: Position, kind: StateKind | None = None, extra: Any = None
) -> None:
    """Write a snapshot of a state that was reached at this position of the journal.

    Raise `NotStorable` if the state, read back, would not be of its kind.
    """
    state_text, parts = _encode(state, kind)
    parts_of_head = {"format": SNAPSHOT_FORMAT, "position": list(position), "extra": extra}
    head = json.dumps({name: part for name, part in parts_of_head.items() if part is not None})
    text = np.frombuffer(f'{head[:-1]}, "state": {state_text}}}'.encode(), np.uint8)
    content = io.BytesIO()
    np.savez(content, tree=text, **parts.arrays)
    if content.getbuffer().nbytes > MAX_SNAPSHOT:
        raise NotStorable(f"it takes more than {MAX_SNAPSHOT} bytes")
    safe_files.write_whole(path, content.getvalue())


def read(path: Path, kind: StateKind) -> tuple[Any, Position]:
    """Return the stored state, which must be of this kind, and its position in the journal.

    Raise `Unusable` if the file holds no such state.
    """
    return read_all(path, kind)[:2]


def read_all(path: Path, kind: StateKind) -> tuple[Any, Position, Any]:
    """Return the stored state, its position in the journal, and the JSON content beside it."""
    try:
        arrays = _read_arrays(path)
        tree = json.loads(arrays.pop("tree").tobytes())
        if tree["format"] != SNAPSHOT_FORMAT:
            raise Unusable("another format")
        offset, crc = (int(part) for part in tree["position"])
        state = _revive(tree["state"], _Stored(arrays, kind.classes))
        if not kind.admits(state):
            raise Unusable("another state")
        return state, Position(offset, crc), tree.get("extra")
    except Unusable:
        raise
    except Exception as error:  # a foreign file can be wrong in any way
        raise Unusable(printable(f"{type(error).__name__}: {error}"[:500])) from None


def _read_arrays(path: Path) -> dict[str, Any]:
    from zipfile import ZipFile  # late: slow to import

    with safe_files.reading(path) as file:
        size = os.fstat(file.fileno()).st_size
        with ZipFile(file) as packed:
            # `write` does not compress: a file that grows when unpacked is not from `write`.
            unpacked = sum(item.file_size for item in packed.infolist())
        if unpacked > size or size > MAX_SNAPSHOT:
            raise Unusable("too large")
        file.seek(0)
        with np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}


def _collect(value: Any, found: Classes) -> None:
    if is_dataclass(value) and not isinstance(value, type):
        _collect_class(type(value), found)
        for field in fields(value):
            _collect(getattr(value, field.name), found)
    elif isinstance(value, list | tuple | dict):
        if _is_named_tuple(type(value)):
            _collect_class(type(value), found)
        for item in value.values() if isinstance(value, dict) else value:
            _collect(item, found)


def _collect_class(hint: Any, found: Classes) -> None:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is not None:
        for part in (typing.get_origin(hint), *typing.get_args(hint)):
            _collect_class(part, found)
    elif isinstance(hint, type) and _name(hint) not in found:
        if issubclass(hint, Enum):
            found[_name(hint)] = hint
        elif is_dataclass(hint) or _is_named_tuple(hint):
            found[_name(hint)] = hint
            for part in typing.get_type_hints(hint).values():
                _collect_class(part, found)


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _plain(value: Any, parts: _Parts) -> Any:
    """Return JSON for a value, and put its arrays into `parts`."""
    if isinstance(value, Enum):
        member = value.name in type(value).__members__  # combinations of flags are not members
        chosen = {"member": value.name} if member else {"value": value.value}
        return {"enum": _known_name(type(value), parts), **chosen}
    if value is None or type(value) in (bool, int, float, str):
        return value
    plain = type(value) is tuple or _is_named_tuple(type(value))
    if isinstance(value, tuple) and plain and not getattr(value, "__dict__", None):
        items = [_plain(item, parts) for item in value]
        named = {} if type(value) is tuple else {"named": _known_name(type(value), parts)}
        return {"tuple": items, **named}
    if isinstance(value, np.generic):
        return {"scalar": _array(np.asarray(value), parts)}
    if id(value) in parts.numbers:
        return {"again": parts.numbers[id(value)][0]}
    content = _plain_object(value, parts)
    parts.numbers[id(value)] = len(parts.numbers), value
    return content


def _plain_object(value: Any, parts: _Parts) -> Any:
    """Return JSON for an object that can be changed in place."""
    if type(value) is list:
        return {"list": [_plain(item, parts) for item in value]}
    if type(value) is dict:
        return {"dict": [[_plain(part, parts) for part in item] for item in value.items()]}
    if type(value) is np.ndarray:
        return {"array": _array(value, parts)}
    if isinstance(value, np.random.Generator):
        kind = type(value.bit_generator).__name__
        if kind in _GENERATORS:
            return {"random": kind, "state": _plain(value.bit_generator.state, parts)}
    if is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in fields(value)]
        if not getattr(value, "__dict__", {}).keys() - set(names):  # no other attributes
            content = {name: _plain_field(value, name, parts) for name in names}
            return {"class": _known_name(type(value), parts), "fields": content}
    raise NotStorable(
        f"{'.'.join(parts.path)} holds {shown(value)}, and states are made of dataclasses, named "
        "tuples, lists, tuples, dictionaries, arrays, numbers, strings and enums"
    )


def _plain_field(value: Any, name: str, parts: _Parts) -> Any:
    parts.path.append(name)
    content = _plain(getattr(value, name), parts)
    parts.path.pop()
    return content


def _known_name(kind: type, parts: _Parts) -> str:
    """Return a class's name for the file; refuse a class that could not be read back."""
    name = _name(kind)
    if parts.classes is not None and parts.classes.get(name) is not kind:
        raise NotStorable(
            f"{'.'.join(parts.path)} holds a {kind.__qualname__}, which its type hints do not "
            "declare: give that field a type"
        )
    return name


def _array(array: Any, parts: _Parts) -> int:
    if array.dtype.kind not in "fiub":
        raise NotStorable(f"{'.'.join(parts.path)} holds an array of {array.dtype}, not of numbers")
    index = len(parts.arrays)
    parts.arrays[f"a{index}"] = array
    return index


def _revive(value: Any, stored: _Stored) -> Any:
    if not isinstance(value, dict):
        return value
    match value:
        case {"enum": name, **chosen}:
            kind: Any = stored.kind(name)
            return kind[chosen["member"]] if "member" in chosen else kind(chosen["value"])
        case {"tuple": items, **named}:
            made = tuple(_revive(item, stored) for item in items)
            return _revive_named(stored.kind(named["named"]), made) if named else made
        case {"scalar": index}:
            return stored.arrays[f"a{index}"][()]
        case {"again": number}:
            return stored.made[number]
    made = _revive_changeable(value, stored)
    stored.made.append(made)
    return made


def _revive_changeable(value: dict[str, Any], stored: _Stored) -> Any:
    match value:
        case {"list": items}:
            return [_revive(item, stored) for item in items]
        case {"dict": items}:
            return dict([_revive(part, stored) for part in item] for item in items)
        case {"array": index}:
            return stored.arrays[f"a{index}"]
        case {"random": kind, "state": content}:
            made = np.random.Generator(_GENERATORS[kind]())
            made.bit_generator.state = _revive(content, stored)
            return made
        case {"class": name, "fields": content}:
            parts = {key: _revive(item, stored) for key, item in content.items()}
            return _revive_object(name, stored.kind(name), parts)
    raise Unusable("another format")


def _revive_named(kind: type, items: tuple[Any, ...]) -> Any:
    fields = getattr(kind, "_fields", ())
    hints = _type_hints(kind)
    # Older files lack fields that were added at the end.
    lacking = fields[len(items) :]
    if not fields or len(items) > len(fields) or set(lacking) - _field_defaults(kind).keys():
        raise Unusable(f"another {kind.__name__}")
    for name, item in zip(fields, items, strict=False):
        if not _fits(item, hints.get(name, Any)):
            raise Unusable(f"another {kind.__name__}.{name}")
    return kind(*items)


def _field_defaults(kind: type) -> dict[str, Any]:
    """Return the defaults of a named tuple's fields, by name."""
    return getattr(kind, "_field_defaults", {})


def _default(each: Field[Any]) -> Any:
    """Return the default of a field; MISSING if it has none."""
    return each.default if each.default_factory is MISSING else each.default_factory()


def _revive_object(name: str, kind: type, parts: dict[str, Any]) -> Any:
    if not is_dataclass(kind):
        raise Unusable(f"another {name}")
    defaults = {each.name: _default(each) for each in fields(kind)}
    renamed = old_names.FIELDS.get(_name(kind), {})
    dropped = old_names.DROPPED.get(_name(kind), set())
    parts = {renamed.get(key, key): part for key, part in parts.items() if key not in dropped}
    parts = {**{key: value for key, value in defaults.items() if value is not MISSING}, **parts}
    if parts.keys() != defaults.keys():  # fields with a default may be newer than the file
        raise Unusable(f"another {name}")
    hints = _type_hints(kind)
    if wrong := [key for key, item in parts.items() if not _fits(item, hints[key])]:
        raise Unusable(f"another {name}.{wrong[0]}")
    made = object.__new__(kind)
    for key, item in parts.items():
        object.__setattr__(made, key, item)
    return made


@lru_cache
def _type_hints(kind: type) -> dict[str, Any]:
    """Return the types that a class declares; working them out is slow."""
    return typing.get_type_hints(kind)


_NUMBERS: dict[Any, tuple[type, ...]] = {
    float: (np.floating, np.integer),
    int: (np.integer,),
    bool: (np.bool_,),
}


def _fits(value: Any, hint: Any) -> bool:
    """Tell whether a value fits the type that a field declares."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, types.UnionType) or origin is typing.Union:
        return any(_fits(value, part) for part in parts)
    if origin is np.ndarray:
        return isinstance(value, np.ndarray) and all(
            kind is Any or not isinstance(kind, type) or np.issubdtype(value.dtype, kind)
            for kind in typing.get_args(parts[1])
        )
    if origin is list:
        return type(value) is list and all(_fits(item, parts[0]) for item in value)
    if hint is float and type(value) in (float, int):
        return type(value) is float or abs(value) < 2**63
    if hint in _NUMBERS and isinstance(value, _NUMBERS[hint]):
        return True
    return type(value) is hint if isinstance(hint, type) and hint not in (Any, object) else True


def _alike(state: Any, like: Any) -> bool:
    """Tell whether a state has the same classes and the same dimensions of arrays as `like`."""
    if is_dataclass(like) and not isinstance(like, type):
        return type(state) is type(like) and all(
            _alike(getattr(state, field.name), getattr(like, field.name)) for field in fields(like)
        )
    return not isinstance(like, np.ndarray) or not like.size or np.ndim(state) == like.ndim
