"""What the words in tables mean, for pages that explain each indicator where it stands."""

from __future__ import annotations

from collections.abc import Iterable

from bilevo.lab.analysis.samples import F_ERROR, F_LOWER_ERROR
from bilevo.lab.analysis.table_parts import SIGNS, Table
from bilevo.lab.campaign import NEAR

SHARES = "the share of all runs with this accuracy or a better one."
TERMS = {  # by the word that a head or a cell begins or ends with
    "Acc_u": "|F - F*| of the answer as reported, the leader's distance from the known optimum.",
    "Acc_l": "|f - f*| of the answer as reported, the follower's distance from the known optimum.",
    "verified": "|F - F*| with the follower's true answer in place of the reported one.",
    "F": "the leader's objective at the answer as reported; smaller is better.",
    "F_verified": "F with the follower's true answer in place of the reported one.",
    "f": "the follower's objective at the answer; it is not compared.",
    "FEs_u": "evaluations of the leader's functions.",
    "FEs_l": "evaluations of the follower's functions.",
    "FEs": "evaluations of both levels.",
    f"evaluations to {NEAR:.0e}": "the cost of one run that comes this near to F*.",
    f"Acc_u <= {NEAR:.0e}": SHARES,
    "Acc_u <= 1e-06": SHARES,
    f"verified <= {NEAR:.0e}": SHARES,
    "rank": "the mean over problems of a method's place among the medians, 1 the best.",
    "A12": "the share of pairs of runs that the reference wins; 0.5 if neither is better.",
    "solved": f"runs with verified F within {F_ERROR:.0e} of F*, f within {F_LOWER_ERROR:.0e}.",
    "best": "one method, or several that do not differ significantly.",
    "no single best": "problems on which the best methods do not differ significantly.",
    "by": "the indicator in which a single best method is significantly better.",
    "times": "how many times as large the median of the next best method is.",
    SIGNS: "on how many problems the reference is significantly better, worse, neither.",
    "(m, n)": "the numbers of variables of the leader and of the follower.",
}


def terms_of(table: Table) -> dict[str, str]:
    """Return the terms that a table uses, with their meanings, in the order of TERMS."""
    words = set(_words(table.header))
    for i, head in enumerate(table.header):
        if head in ("indicator", "by", "problem"):
            words |= {row[i] for row in table.rows if isinstance(row[i], str)}  # type: ignore[misc]
    return {term: meaning for term, meaning in TERMS.items() if term in words}


def _words(heads: Iterable[str]) -> Iterable[str]:
    """Yield the heads, and the two parts of heads like "FEs: rank"."""
    for head in heads:
        yield head
        yield from (head.partition(": ")[0], head.rpartition(": ")[2])
