"""Bilevel algorithms, one paper per file. None of them does I/O: see bilevo.core.request."""

from typing import TYPE_CHECKING

from bilevo.core.lazy import lazy_names

if TYPE_CHECKING:
    from bilevo.algorithms.bl_cma_es import BLCMAES
    from bilevo.algorithms.bleaq2 import BLEAQ2
    from bilevo.algorithms.drc import DRC
    from bilevo.algorithms.drc_plus import DRCPlus
    from bilevo.algorithms.drc_race import DRCRace
    from bilevo.algorithms.go_cma_es import GOCMAES
    from bilevo.algorithms.mfbla import MFBLA
    from bilevo.algorithms.nblea import NBLEA
    from bilevo.algorithms.nested import NestedCMAES
    from bilevo.algorithms.sa_bl_imode import SABLIMODE
    from bilevo.algorithms.tlea import TLEA, TLEADE
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "BLCMAES": "bilevo.algorithms.bl_cma_es",
            "BLEAQ2": "bilevo.algorithms.bleaq2",
            "DRC": "bilevo.algorithms.drc",
            "DRCPlus": "bilevo.algorithms.drc_plus",
            "DRCRace": "bilevo.algorithms.drc_race",
            "GOCMAES": "bilevo.algorithms.go_cma_es",
            "MFBLA": "bilevo.algorithms.mfbla",
            "NBLEA": "bilevo.algorithms.nblea",
            "SABLIMODE": "bilevo.algorithms.sa_bl_imode",
            "TLEA": "bilevo.algorithms.tlea",
            "TLEADE": "bilevo.algorithms.tlea",
            "NestedCMAES": "bilevo.algorithms.nested",
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
    "NestedCMAES",
]
