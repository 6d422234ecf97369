"""How evaluations and answers depend on the settings of a method.

Forms whose names have settings, such as "drc-cma-es/gamma=0.25" (see `bilevo.lab.grids`), are
compared with the method itself on the problems that both have. Forms that change the same settings
are one family. Tests are over all runs of all problems together, see
`statistics.stratified_rank_sum`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bilevo.core.arrays import FloatArray
from bilevo.lab.analysis import samples
from bilevo.lab.analysis import table_parts as parts
from bilevo.lab.analysis.samples import Case, Group, base_method, registered_methods
from bilevo.lab.analysis.statistics import (
    MIN_METHODS,
    holm,
    median,
    stratified_rank_sum,
)
from bilevo.lab.analysis.table_parts import PLAIN, SHARE, Cell, Study, Table, TableRow
from bilevo.lab.campaign import NEAR
from bilevo.lab.grids import Setting, settings_of

Pairs = dict[Case, tuple[Group, Group]]  # a form's runs and those of the method itself
P_VALUE = ".2g"
NONE = (
    "No method has runs both without and with settings in its name, as those of a grid "
    'have ("method/setting=0.5").'
)


class Effect(NamedTuple):
    """What a setting does: evaluations relative to the method itself, and the share of good runs.

    `evaluations` is the geometric mean over problems of ratios of medians. A run is good if its
    answer is near the known optimum. p values are NaN for the method itself.
    """

    settings: dict[str, Setting]
    evaluations: float
    near: float
    p_evaluations: float = np.nan
    p_near: float = np.nan


class Family(NamedTuple):
    """A method, and forms of it that change the same settings, in the order of their values."""

    method: str
    own: Effect  # its settings are empty unless the method is registered
    effects: list[Effect]

    @property
    def names(self) -> list[str]:
        return list(self.effects[0].settings)

    @property
    def everything(self) -> list[Effect]:
        """Return all effects whose settings are known, in the order of values."""
        known = [self.own, *self.effects] if self.own.settings else self.effects
        return sorted(known, key=lambda one: _place(one.settings))

    @property
    def is_mixture(self) -> bool:
        """Tell whether there are several settings, and they always sum to 1."""
        numbers = [[*one.settings.values()] for one in self.effects]
        if len(self.names) < 2 or any(isinstance(value, str) for row in numbers for value in row):
            return False
        return all(abs(sum(map(float, row)) - 1) < 1e-4 for row in numbers)


def families(study: Study) -> list[Family]:
    """Return the families of all methods that have runs of their own and of forms.

    With `study.holm`, p values of each indicator are corrected as one family of tests.
    """
    found: dict[tuple[str, frozenset[str]], list[str]] = {}
    for name in study.methods:
        if (settings := settings_of(name)) and base_method(name) in study.methods:
            found.setdefault((base_method(name), frozenset(settings)), []).append(name)
    made = [_family(study, method, forms) for (method, _), forms in found.items()]
    return _corrected(made) if study.holm else made


def _family(study: Study, method: str, forms: list[str]) -> Family:
    effects = [_effect(study, method, name) for name in forms]
    effects.sort(key=lambda one: _place(one.settings))
    own = _effect(study, method, method)
    return Family(method, own._replace(settings=_defaults(method, [*effects[0].settings])), effects)


def _effect(study: Study, method: str, form: str) -> Effect:
    both: Pairs = {
        case: (of[form], of[method])
        for case, of in study.groups.items()
        if form in of and method in of
    }
    known = samples.of_known_optimum({case: study.groups[case] for case in both})
    near, p_near = _good_share({case: both[case] for case in known})
    cost, p_cost = (np.nan, np.nan) if study.limit else _cost(both)
    if form == method:
        return Effect({}, cost, near)
    return Effect(settings_of(form), cost, near, p_cost, p_near)


def _cost(both: Pairs) -> tuple[float, float]:
    """Return the mean ratio of median evaluations, and p of the test."""
    pairs = [(ours.sample("FEs"), theirs.sample("FEs")) for ours, theirs in both.values()]
    pairs = [pair for pair in pairs if len(pair[0]) and len(pair[1])]
    if not pairs:
        return np.nan, np.nan
    ratios = [median(ours) / max(median(theirs), 1) for ours, theirs in pairs]
    return float(np.exp(np.mean(np.log(ratios)))), stratified_rank_sum(pairs).p


def _good_share(both: Pairs) -> tuple[float, float]:
    """Return the mean share of runs that are near the optimum, over problems, and p of the test."""
    if not both:
        return np.nan, np.nan
    groups = [group for pair in both.values() for group in pair]
    checked = all("verified" in group.known for group in groups)
    pairs = [(_misses(ours, checked), _misses(theirs, checked)) for ours, theirs in both.values()]
    shares = [1 - ours.mean() for ours, _ in pairs if len(ours)]
    return float(np.mean(shares)) if shares else np.nan, stratified_rank_sum(pairs).p


def _misses(group: Group, checked: bool) -> FloatArray:
    """Return 1 for each run that is not near the optimum, and 0 for each that is."""
    distances = group.standing("verified" if checked else "Acc_u")
    return np.asarray(distances > NEAR, np.float64)


def _defaults(method: str, names: list[str]) -> dict[str, Setting]:
    """Return the settings of a registered method itself, or nothing if they are not known.

    Names in stored files are only text: nothing else is loaded.
    """
    known = registered_methods().get(method)
    if known is None:
        return {}
    try:
        made = known.make()
    except (ImportError, ValueError):
        return {}
    values = {name: getattr(made, name, None) for name in names}
    plain = {key: value for key, value in values.items() if isinstance(value, int | float | str)}
    return plain if len(plain) == len(names) else {}


def _place(settings: dict[str, Setting]) -> list[tuple[bool, float, str]]:
    """Return a sort key: numbers by value, then texts."""
    return [
        (True, 0.0, value) if isinstance(value, str) else (False, float(value), "")
        for _, value in sorted(settings.items())
    ]


def _corrected(made: list[Family]) -> list[Family]:
    """Apply Holm's correction to all p values of an indicator."""
    for name in ("p_evaluations", "p_near"):
        known = [getattr(one, name) for family in made for one in family.effects]
        adjusted: Iterator[Any] = iter(holm([p for p in known if not np.isnan(p)]))
        made = [
            family._replace(
                effects=[
                    one if np.isnan(getattr(one, name)) else one._replace(**{name: next(adjusted)})
                    for one in family.effects
                ]
            )
            for family in made
        ]
    return made


def sensitivity(study: Study) -> Table:
    """Show what each setting does to evaluations and to the share of good runs, with p values."""
    made = families(study)
    title = study.titled("Sensitivity")
    if not made:
        return Table("sensitivity", title, ["settings"], [], [NONE])
    several = len({family.method for family in made}) > 1
    rows: list[TableRow] = []
    for family in made:
        for one in [family.own, *family.effects]:
            text = ", ".join(f"{key} {_short(value)}" for key, value in one.settings.items())
            own = " (default)" if one is family.own else ""
            words = f"{family.method}: {text}" if several and text else text or family.method
            cells = [Cell(one.evaluations, PLAIN), Cell(one.p_evaluations, P_VALUE)]
            cells += [Cell(one.near, SHARE), Cell(one.p_near, P_VALUE)]
            rows.append([words + own, *cells])
    corrected = ", with Holm's correction" if study.holm else ""
    notes = [
        f"Evaluations: the ratio of medians to those of {' and '.join(_methods(made))}, its "
        f"geometric mean over the problems. Near: the share of runs whose answer is within "
        f"{NEAR:.0e} of the known optimum, verified if all runs were, averaged over problems. p: "
        f"rank-sum tests of all runs by problem (van Elteren{corrected}).",
        *_runs_note(study, made),
        *(note for family in made for note in _friedman_note(study, family)),
    ]
    header = ["settings", "evaluations", "p", "near", "p of near"]
    return Table("sensitivity", title, header, rows, notes)


def _short(value: Setting) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _methods(made: list[Family]) -> list[str]:
    return list(dict.fromkeys(family.method for family in made))


def _runs_note(study: Study, made: list[Family]) -> list[str]:
    """Say how many runs the methods themselves and their forms have on each problem."""
    own = _methods(made)
    forms = [name for name in study.methods if base_method(name) in own and settings_of(name)]
    cases = [of for of in study.groups.values() if any(name in of for name in forms)]
    ours, theirs = (
        parts.span(of[name].attempts for of in cases for name in names if name in of)
        for names in (forms, own)
    )
    return [f"{ours} runs of each setting on each of {len(cases)} problems; default {theirs}."]


def _equally_many(of: dict[str, Group]) -> dict[str, Group]:
    """Return groups with the same number of completed runs, the first ones of each.

    Medians of few runs and of many are not comparable if runs are skewed.
    """
    count = min(map(len, of.values()))
    return {
        name: replace(group, columns={key: one[:count] for key, one in group.columns.items()})
        for name, group in of.items()
    }


def _friedman_note(study: Study, family: Family) -> list[str]:
    """Say whether the settings of a family differ at all, by Friedman tests of medians."""
    wanted = {frozenset(one.settings) for one in family.effects}
    forms = [
        name
        for name in study.methods
        if base_method(name) == family.method
        and (name == family.method or frozenset(settings_of(name)) in wanted)
    ]
    groups = {
        case: _equally_many({name: of[name] for name in forms})
        for case, of in study.groups.items()
        if all(name in of for name in forms)
    }
    if len(forms) < MIN_METHODS or not groups:
        return []
    known = samples.of_known_optimum(groups)
    tests = [] if study.limit else [("evaluations", groups, "FEs")]
    tests += [("verified accuracy", known, "verified")]
    found = []
    for what, among, indicator in tests:
        try:
            _, ranking = samples.ranked(among, indicator, study.floor, study.alpha)
        except ValueError:
            continue
        found.append(f"p = {ranking.p:.2g} for {what}")
    words = f"{', '.join(family.names)}: Friedman tests of {len(forms)} settings over problems"
    return [f"{words} have {' and '.join(found)}."] if found else []
