"""Named random streams: the same seed and name give the same numbers, whatever else was drawn.

A stream is a Philox generator whose key is (seed, name) and whose counter starts at (generation,
task). So streams never overlap, and no state needs to be stored between two generations. The order
of tasks and the number of workers do not change a stream.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from bilevo.core.checks import is_whole, shown

SEED_LIMIT = 2**63  # seeds must be below this number


class _Key(ISeedSequence):
    """The key of a Philox generator as a seed sequence, which is five times as fast as `key=`."""

    def __init__(self, seed: int, name: str) -> None:
        word = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
        self._key = np.array([seed, word], dtype=np.uint64)

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return self._key


_key = lru_cache(64)(_Key)


def stream(seed: int, name: str, generation: int = 0, task: int = 0) -> np.random.Generator:
    """Return the random stream of this name, generation and task."""
    counter = np.array([0, 0, task, generation], dtype=np.uint64)
    key: Any = _key(seed, name)
    return np.random.Generator(np.random.Philox(key, counter=counter))


def seed_of(rng: Any) -> int:
    """Return a seed from an int, a SeedSequence, or a Generator, which draws a number for it.

    None draws a fresh seed from the operating system.
    """
    rng = np.random.SeedSequence() if rng is None else rng
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(SEED_LIMIT))
    if isinstance(rng, np.random.SeedSequence):
        return int(rng.generate_state(1, np.uint64)[0]) % SEED_LIMIT
    if is_whole(rng) and 0 <= rng < SEED_LIMIT:
        return int(rng)
    raise ValueError(
        "rng must be an int from 0 to 2**63 - 1, a numpy SeedSequence or Generator, or None; "
        f"got {shown(rng)}"
    )
