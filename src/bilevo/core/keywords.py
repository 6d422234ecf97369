"""Keywords: extra arguments of users' functions, and names that other libraries have."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import update_wrapper
from typing import Any, ParamSpec, TypeVar

from bilevo.core.checks import require, shown

P = ParamSpec("P")
R = TypeVar("R")
_COUNT, _ITERATIONS = "max_evals={value}", "max_evals, which counts evaluations"
_MINIMIZED = "-F, as both levels are minimized (docs/recipe_maximise.md)"
_EQUALITY = "g (or G), and let it return h and -h (docs/recipe_equality.md)"
_WHOLE = "x_integrality and y_integrality, 0 (real) or 1 (whole) for each variable"
# Keywords of other libraries, and what to use here. The first word is one of our keywords.
FOREIGN = {
    **dict.fromkeys(("seed", "random_state", "random_seed"), "rng={value}"),
    **dict.fromkeys(("maxfev", "maxfun", "max_nfev", "n_evals", "n_trials"), _COUNT),
    **dict.fromkeys(("maxiter", "max_iter", "n_iter", "n_gen"), _ITERATIONS),
    **dict.fromkeys(("disp", "verbose"), "progress=True"),
    **dict.fromkeys(("maximize", "maximise", "sense", "direction"), _MINIMIZED),
    **dict.fromkeys(("fun", "func", "objective"), "F for the leader and f for the follower"),
    "bounds": "x_bounds and y_bounds, a box for each level",
    "constraints": "G for the leader and g for the follower; both hold where they are <= 0",
    **dict.fromkeys(("integrality", "integer", "integers", "dtype", "vtype"), _WHOLE),
    **dict.fromkeys(("h", "H", "eq", "equality"), _EQUALITY),
    "options": "max_evals, ftol and the other keywords; there is no dictionary of options",
    "tol": "ftol for objectives and ctol for constraints",
    "n_jobs": "workers={value}",
    "algorithm": "method={value}",
}
OF_PROBLEM = ("F_jac", "f_jac", "G_jac", "g_jac", "jac", "follower", "followers", "play")


def explain_unknown(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function refuse an unknown keyword with words that say what it is called here."""
    named = inspect.signature(function).parameters

    def checked(*given: P.args, **keywords: P.kwargs) -> R:
        unknown = keywords.keys() - named.keys()
        if unknown:
            raise TypeError(_explained(function.__qualname__, sorted(unknown)[0], keywords, named))
        return function(*given, **keywords)

    return update_wrapper(checked, function)


def _explained(function: str, name: str, keywords: Mapping[str, Any], named: Iterable[str]) -> str:
    """Return the message for an unknown keyword."""
    function = function.removesuffix(".__init__")
    phrase = FOREIGN.get(name, "")
    if name in OF_PROBLEM:
        meant = f"bilevo.Problem(..., {name}=...), and give that problem"
        return f"{function} has no argument {name!r}: use {meant}"
    if phrase is _MINIMIZED or re.split(r"\W", phrase)[0] in named:
        meant = phrase.format(value=shown(keywords[name], 40))
        return f"{function} has no argument {name!r}: use {meant}"
    from difflib import get_close_matches  # late: few calls need it

    near = get_close_matches(name, list(named), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; help(bilevo.{function}) lists them"
    return f"{function} has no argument {name!r}{hint}"


class WithArgs:
    """A user's function of (x, y) with extra arguments, which follow y."""

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.function, self.args = function, args

    def __call__(self, x: Any, y: Any) -> Any:
        return self.function(x, y, *self.args)


def with_args(functions: dict[str, Any], args: Any) -> dict[str, Any]:
    """Return functions of (x, y) that pass extra arguments on; others than functions stay."""
    require(isinstance(args, tuple), "args", "a tuple such as (data,)", args)
    if not args:
        return functions
    return {k: WithArgs(one, args) if callable(one) else one for k, one in functions.items()}
