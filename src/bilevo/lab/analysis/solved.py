"""The tables "solved" and "ablation": which runs have the verified optimum, and what they cost.

A run has solved its problem if F where the follower really answers is within 1e-6 of F*, and the
reported f within 2e-6 of f*: F alone can be right with a follower that is wrong. Evaluations stand
beside the median that the DRC paper prints for DRC-CMA-ES, unless a limit cut the
runs off, since the paper's went on to the optimum; in an ablation, which has many forms of one
method, beside those of the reference, one row for each form.
"""

from __future__ import annotations

import numpy as np

from bilevo.lab.analysis.paper import METHODS, printed
from bilevo.lab.analysis.samples import Case, Group, Groups, methods_of, of_known_optimum
from bilevo.lab.analysis.table import (
    OTHER_ENDS,
    PLAIN,
    WHOLE,
    Cell,
    Row,
    Settings,
    Table,
    case_heads,
    case_names,
    run_notes,
    several_sizes,
    titled,
)

F_ERROR, F_LOWER_ERROR = 1e-6, 2e-6
PAPERS = next(iter(METHODS))  # DRC-CMA-ES
OF_PAPER = "Of the paper's: the ratio to the median that the DRC paper prints for DRC-CMA-ES."
NOT_TOLD = "The paper's runs ended at the known optimum; these were not told it and end later."


def solved(groups: Groups, settings: Settings) -> Table:
    """Median evaluations, their ratio to the paper's DRC-CMA-ES, and runs that were solved."""
    groups = of_known_optimum(groups)
    title = titled("Solved and verified", groups) if groups else "Solved and verified"
    if not groups:
        return Table("solved", title, ["problem"], [], ["No optimum is known."])
    methods, sized = methods_of(groups), several_sizes(groups)
    ratios: dict[tuple[str, str], list[float]] = {}
    counts: dict[tuple[str, str], list[tuple[int, int]]] = {}
    rows: list[Row] = []
    for case, of in groups.items():
        row: Row = [*case_names(case, sized)]
        for name in methods:
            group = of.get(name)
            cost, ratio = _cost(case, group)
            row += _cells(cost, ratio, _share(*_count(group)), settings.cut_off)
            ratios.setdefault((case.size, name), []).append(ratio)
            counts.setdefault((case.size, name), []).append(_count(group))
        rows.append(row)
    row_names = [["all", size] if sized else ["all"] for size in _sizes(groups)]
    closing: list[Row] = [
        [*names, *_closing(size, methods, ratios, counts, settings.cut_off)]
        for names, size in zip(row_names, _sizes(groups), strict=True)
    ]
    heads = [
        f"{settings.label(name)}: {what}" if len(methods) > 1 else what
        for name in methods
        for what in ("evaluations", *([] if settings.cut_off else ["of the paper's"]), "solved")
    ]
    notes = [
        *run_notes(groups, settings),
        f"Solved: F at the follower's true answer within {F_ERROR:.0e} of F*, and f within "
        f"{F_LOWER_ERROR:.0e} of f*.",
        OTHER_ENDS if settings.cut_off else OF_PAPER,
        *([] if settings.cut_off or settings.to_target else [NOT_TOLD]),
    ]
    return Table(
        "solved", title, [*case_heads(sized), *heads], [*rows, *closing], notes, len(closing)
    )


def _sizes(groups: Groups) -> list[str]:
    return list(dict.fromkeys(case.size for case in groups))


def _cells(cost: float, ratio: float, share: Cell, cut_off: bool) -> list[Cell]:
    """Return the cells of one method; the ratio to the paper's median where it is comparable."""
    beside = [] if cut_off else [Cell(ratio, PLAIN)]
    return [Cell(cost, WHOLE), *beside, share]


def _closing(
    size: str,
    methods: list[str],
    ratios: dict[tuple[str, str], list[float]],
    counts: dict[tuple[str, str], list[tuple[int, int]]],
    cut_off: bool,
) -> list[Cell]:
    """Return the mean ratio over the paper's problems, and how many of all runs were solved."""
    row: list[Cell] = []
    for name in methods:
        of_paper = [ratio for ratio in ratios[size, name] if not np.isnan(ratio)]
        mean = float(np.mean(of_paper)) if of_paper else np.nan
        good, runs = (sum(part) for part in zip(*counts[size, name], strict=True))
        row += _cells(np.nan, mean, _share(good, runs), cut_off)
    return row


def _cost(case: Case, group: Group | None) -> tuple[float, float]:
    """Median evaluations, and their ratio to the paper's."""
    evaluations = np.empty(0) if group is None else group.sample("FEs")
    if not evaluations.size:
        return np.nan, np.nan
    cost = float(np.median(evaluations))
    told = printed(case.problem, case.m, case.n, PAPERS, "FEs")
    return cost, np.nan if told is None else cost / told


def _count(group: Group | None) -> tuple[int, int]:
    """How many runs were solved, of how many; failed and infeasible ones were not."""
    if group is None:
        return 0, 0
    columns, count = group.columns, len(group)
    unknown = np.full(count, np.nan)
    f, f_star = columns.get("f", unknown), columns.get("f_star", unknown)
    feasible = ~(columns.get("violation", unknown) > 0)
    good = group.values("verified") <= F_ERROR
    good &= feasible & (np.abs(f - f_star) <= F_LOWER_ERROR)
    return int(good.sum()), count + group.failed


def _share(good: int, runs: int) -> Cell:
    share = good / runs if runs else np.nan
    return Cell(share, PLAIN, text=f"{good} of {runs}" if runs else None)


def ablation(groups: Groups, settings: Settings) -> Table:
    """What forms of a method cost beside the reference over all problems, and what they solve."""
    title = "Ablation"
    groups = {case: of for case, of in groups.items() if settings.reference in of}
    rows: list[Row] = []
    for name in methods_of(groups) if groups else []:
        ratios = {
            case: _cost(case, of[name])[0] / _cost(case, of[settings.reference])[0]
            for case, of in groups.items()
            if name in of
        }
        mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
        worst = max(ratios, key=lambda case: ratios[case])
        counts = [_count(of.get(name)) for case, of in of_known_optimum(groups).items()]
        good, runs = (sum(part) for part in zip(*counts, strict=True)) if counts else (0, 0)
        most = Cell(ratios[worst], PLAIN, text=f"{ratios[worst]:.2f} ({worst.problem})", named=True)
        rows.append([settings.label(name), Cell(mean, PLAIN), most, _share(good, runs)])
    notes = [
        *run_notes(groups, settings, "Figures"),
        f"Evaluations: the ratio of medians to those of {settings.reference}, its geometric mean "
        "over the problems, and where it is largest. Solved: F at the follower's true answer "
        f"within {F_ERROR:.0e} of F*, and f within {F_LOWER_ERROR:.0e} of f*, which kinked and "
        "noisy followers do not allow.",
    ]
    header = ["method", "evaluations", "at most", "solved"]
    return Table("ablation", title, header, rows, notes)
