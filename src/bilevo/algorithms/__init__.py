"""Bilevel algorithms, one paper per file. None of them does I/O: see bilevo.core.request."""

from typing import TYPE_CHECKING

from bilevo.core.extras import lazy_names

if TYPE_CHECKING:
    from bilevo.algorithms.bl_cma_es import BLCMAES
    from bilevo.algorithms.drc import DRC
    from bilevo.algorithms.drc_plus.method import DRCPlus
    from bilevo.algorithms.drc_race.method import DRCRace
    from bilevo.algorithms.few.method import Few
    from bilevo.algorithms.moves.method import Moves
    from bilevo.algorithms.nested import NestedCMAES
    from bilevo.algorithms.nested_ties.method import NestedTies
    from bilevo.algorithms.rivals.bleaq2 import BLEAQ2
    from bilevo.algorithms.rivals.go_cma_es import GOCMAES
    from bilevo.algorithms.rivals.mfbla import MFBLA
    from bilevo.algorithms.rivals.nblea import NBLEA
    from bilevo.algorithms.rivals.sa_bl_imode import SABLIMODE
    from bilevo.algorithms.rivals.tlea import TLEA, TLEADE
    from bilevo.algorithms.trust_region.method import TrustRegion
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "BLCMAES": "bilevo.algorithms.bl_cma_es",
            "BLEAQ2": "bilevo.algorithms.rivals.bleaq2",
            "DRC": "bilevo.algorithms.drc",
            "DRCPlus": "bilevo.algorithms.drc_plus.method",
            "DRCRace": "bilevo.algorithms.drc_race.method",
            "GOCMAES": "bilevo.algorithms.rivals.go_cma_es",
            "MFBLA": "bilevo.algorithms.rivals.mfbla",
            "NBLEA": "bilevo.algorithms.rivals.nblea",
            "SABLIMODE": "bilevo.algorithms.rivals.sa_bl_imode",
            "TLEA": "bilevo.algorithms.rivals.tlea",
            "TLEADE": "bilevo.algorithms.rivals.tlea",
            "Few": "bilevo.algorithms.few.method",
            "Moves": "bilevo.algorithms.moves.method",
            "NestedCMAES": "bilevo.algorithms.nested",
            "NestedTies": "bilevo.algorithms.nested_ties.method",
            "TrustRegion": "bilevo.algorithms.trust_region.method",
        },
    )

__all__ = [
    "BLCMAES",
    "BLEAQ2",
    "DRC",
    "GOCMAES",
    "MFBLA",
    "NBLEA",
    "SABLIMODE",
    "TLEA",
    "TLEADE",
    "DRCPlus",
    "DRCRace",
    "Few",
    "Moves",
    "NestedCMAES",
    "NestedTies",
    "TrustRegion",
]
