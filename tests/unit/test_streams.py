"""Named random streams."""

import numpy as np
import pytest

from bilevo.core.streams import seed_of, stream


def test_a_stream_repeats_and_differs_by_every_part_of_its_name() -> None:
    base = (3, "follower", 4, 5)
    draws = stream(*base).random(8)
    assert np.array_equal(draws, stream(*base).random(8))
    for other in (
        (2, *base[1:]),
        (3, "leader", 4, 5),
        (3, "follower", 5, 4),
        (3, "follower", 4, 6),
    ):
        assert not np.intersect1d(draws, stream(*other).random(8)).size


def test_streams_do_not_overlap_when_long() -> None:
    long = stream(1, "a", 0, 0).integers(2**63, size=100_000)
    assert not np.intersect1d(long, stream(1, "a", 0, 1).integers(2**63, size=1000)).size


def test_seeds_come_from_ints_sequences_and_generators() -> None:
    assert seed_of(7) == seed_of(np.int64(7)) == 7
    assert seed_of(np.random.SeedSequence(3)) == seed_of(np.random.SeedSequence(3))
    assert seed_of(np.random.default_rng(3)) == seed_of(np.random.default_rng(3))


@pytest.mark.parametrize("bad", [-1, 1.5, True, "1", 2**63])
def test_other_seeds_are_refused(bad) -> None:
    with pytest.raises(ValueError, match="rng must be"):
        seed_of(bad)
