"""What the page shows of a campaign, as plain values that become JSON."""

from __future__ import annotations

from typing import Any

from bilevo.core.terminal import on_one_line
from bilevo.lab.analysis import tables
from bilevo.lab.analysis.samples import Case, ordered_methods
from bilevo.lab.analysis.table_parts import method_labels
from bilevo.lab.commands import usual_kinds
from bilevo.lab.frames import pl
from bilevo.lab.show.interactive import page_names, target_numbers
from bilevo.lab.show.page.cells import PageTable, shown_table
from bilevo.lab.store import FAILED, in_order
from bilevo.lab.watch.campaign_files import FollowedCampaign
from bilevo.lab.watch.run_view import Plain, plain_json
from bilevo.run.state import RunState

MAX_FAILED = 200  # The most failed runs that are listed.
GROUP = ("budget", "target")  # Runs that differ in these settings are not compared.


def campaign_state(campaign: FollowedCampaign) -> tuple[RunState, str]:
    """Return the state of a campaign, and a sentence on it."""
    left = sum(campaign.planned.values()) - sum(campaign.made().values())
    if campaign.running:
        return RunState.RUNNING, "a process makes its runs"
    if left <= 0:
        known = "all planned runs are made" if campaign.planned else "its runs were imported"
        return RunState.DONE, known
    if campaign.running is None:
        return RunState.UNKNOWN, "this system cannot tell whether a process makes its runs"
    return RunState.STOPPED, "no process makes its runs; the command that began it makes the rest"


def campaign_row(id: str, campaign: FollowedCampaign, now: float) -> Plain:
    """Return the row of a campaign in the list of campaigns."""
    runs, (state, sentence) = campaign.runs, campaign_state(campaign)
    planned = sum(campaign.planned.values())
    row = {
        "id": id,
        "kind": "campaign",
        "path": on_one_line(str(campaign.folder)),
        "error": campaign.error,
        "state": state,
        "sentence": sentence,
        "made": runs.height,
        "planned": planned or None,
        "share": min(1.0, runs.height / planned) if planned else None,
        "failed": runs.filter(pl.col("status") == FAILED).height,
        "methods": runs["method"].n_unique(),
        "problems": runs.select("problem", "m", "n").unique().height,
        "last": runs["made"].max(),
        "left": campaign.seconds_left(now),
        "unread": campaign.unread,
    }
    return plain_json(row)  # type: ignore[no-any-return]


def groups_of(runs: pl.DataFrame) -> list[tuple[int, bool]]:
    """Return the pairs of a limit and a target among the runs, in order."""
    return sorted(runs.select(GROUP).unique().rows())


def campaign_detail(
    id: str, campaign: FollowedCampaign, now: float, group: int = 0
) -> dict[str, Any]:
    """Return all that the page shows of a campaign; tables are those of one group of runs."""
    known = groups_of(campaign.runs)
    group = min(max(group, 0), max(len(known) - 1, 0))
    detail = {
        **campaign_row(id, campaign, now),
        "changes": campaign.changes,  # tells whether tables and curves are new
        "progress": _progress(campaign),
        "groups": [_group_name(*one) for one in known],
        "group": group,
        "failed_runs": _failed_runs(campaign.runs),
        **({} if not known else _compared(campaign, *known[group])),
    }
    return plain_json(detail)  # type: ignore[no-any-return]


def _group_name(limit: int, target: bool) -> str:
    words = f"max_evals {limit:,}" if limit else "no limit on evaluations"
    return words if target else f"{words}, not stopped at the optimum"


def _progress(campaign: FollowedCampaign) -> Plain:
    """Return the made and planned runs of each method on each problem, over all limits."""
    made = campaign.made()
    cells = {**dict.fromkeys(made, 0), **campaign.planned}
    counts: dict[tuple[Case, str], list[int]] = {}
    for cell, planned in cells.items():
        count = counts.setdefault((Case(cell.problem, cell.m, cell.n), cell.method), [0, 0])
        count[0] += made.get(cell, 0)
        count[1] += planned
    cases = sorted({case for case, _ in counts}, key=lambda case: case.order)
    methods = ordered_methods(dict.fromkeys(method for _, method in counts))
    return {
        "methods": methods,
        "cases": [case.problem if not case.m else str(case) for case in cases],
        "counts": [[counts.get((case, method)) for method in methods] for case in cases],
    }


def _failed_runs(runs: pl.DataFrame) -> list[Plain]:
    names = ("problem", "m", "n", "method", "number", "seed", "error")
    failed = runs.filter(pl.col("status") == FAILED).head(MAX_FAILED)
    return [
        {**row, "error": on_one_line(row["error"] or "")[:500]}
        for row in failed.select(names).iter_rows(named=True)
    ]


def _compared(campaign: FollowedCampaign, limit: int, target: bool) -> Plain:
    """Return tables and the ECDF of the runs of one group."""
    ours = (pl.col("budget") == limit) & (pl.col("target") == target)
    runs = in_order(campaign.runs.filter(ours))
    labels = method_labels(runs)
    return {
        "tables": _tables(runs, {label: method for method, label in labels.items()}),
        "ecdf": _ecdf(runs, campaign.history().filter(ours)),
        "names": page_names(runs),
    }


def _tables(runs: pl.DataFrame, methods: dict[str, str]) -> list[Plain]:
    made = []
    for kind in usual_kinds(runs):
        try:
            table = shown_table(tables.make_table(runs, kind, tested=False), methods)
        except ValueError as error:
            made.append({"title": kind, "missing": on_one_line(str(error))})
        else:
            made += [_plain_table(table)] if table.body else []
    return made


def _plain_table(table: PageTable) -> Plain:
    """Return a table as dictionaries, with the fields of its cells by name."""
    return {
        "title": table.title,
        "columns": [column._asdict() for column in table.columns],
        "body": [[cell._asdict() for cell in row.cells] for row in table.body],
        "foot": [[cell._asdict() for cell in row.cells] for row in table.foot],
        "notes": table.notes,
    }


def _ecdf(runs: pl.DataFrame, history: pl.DataFrame) -> Plain:
    try:
        numbers, left_out = target_numbers(runs, history)
    except ValueError as error:
        return {"missing": f"There is no such curve yet: {on_one_line(str(error))}."}
    return {**numbers, "left_out": left_out}
