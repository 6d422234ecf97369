"""Conversion of our dataclasses and named tuples to JSON, and back.

`plain` turns a value into JSON's types, and `revive` turns them back into a value of a given type.
A field must have the type of its hint, so the content cannot choose which classes are made.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar

import numpy as np

from bilevo.core.checks import shown

V = TypeVar("V")


def plain(value: Any) -> Any:
    """Return a value in JSON's types; non-finite numbers become strings that float() reads."""
    return unpacked(value, lambda one: one if math.isfinite(one) else str(one))


def unpacked(value: Any, number: Callable[[float], Any] = float) -> Any:
    """Return a value with lists in place of arrays and tuples; `number` converts its floats."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: unpacked(item, number) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [unpacked(item, number) for item in value]
    if isinstance(value, Enum):
        return value.value
    return number(value) if isinstance(value, float) else value


def revive(kind: type[V], content: Any) -> V:
    """Return the value that `plain` turned into this content; refuse content of other types."""
    read: Callable[[Any], V] = _reader(typing.cast(Any, kind))
    return read(content)


def revive_fields(kind: type, content: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a class by name, as far as `content` has them.

    Each value has the type of its field's hint.
    """
    readers = _field_readers(kind)
    return {name: readers[name](value) for name, value in _exactly(dict, content).items()}


@cache
def _field_readers(kind: type) -> dict[str, Callable[[Any], Any]]:
    return {name: _reader(hint) for name, hint in typing.get_type_hints(kind).items()}


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return the function that turns JSON's types into a value of the hinted type."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is np.ndarray:
        return lambda content: np.array([_number(item) for item in _exactly(list, content)])
    if origin in (list, tuple):
        read = _reader(parts[0])
        return lambda content: origin(read(item) for item in _exactly(list, content))
    if origin in (types.UnionType, typing.Union) and len(parts) == 2 and parts[1] is type(None):
        read = _reader(parts[0])
        return lambda content: None if content is None else read(content)
    return _class_reader(hint)


def _class_reader(kind: Any) -> Callable[[Any], Any]:
    if kind is float:
        return _number
    if kind in (int, bool, str):
        return lambda content: _exactly(kind, content)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        return lambda content: kind(**revive_fields(kind, content))
    raise TypeError(f"{kind} cannot be read from JSON")


def _number(content: Any) -> float:
    if isinstance(content, float | int) or content in ("nan", "inf", "-inf"):
        return float(content)
    raise ValueError(f"{shown(content)} is no number")


def _exactly(kind: type, content: Any) -> Any:
    if type(content) is not kind:
        raise ValueError(f"{shown(content)} is no {kind.__name__}")
    return content
