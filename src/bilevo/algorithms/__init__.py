"""Bilevel algorithms, one paper per file. None of them does I/O: see bilevo.core.request."""

from bilevo.algorithms.bl_cma_es import BLCMAES
from bilevo.algorithms.bleaq2 import BLEAQ2
from bilevo.algorithms.drc import DRC
from bilevo.algorithms.go_cma_es import GOCMAES
from bilevo.algorithms.mfbla import MFBLA
from bilevo.algorithms.nblea import NBLEA
from bilevo.algorithms.nested import NestedCMAES
from bilevo.algorithms.sa_bl_imode import SABLIMODE
from bilevo.algorithms.tlea import TLEA, TLEADE

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
    "NestedCMAES",
]
