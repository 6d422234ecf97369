"""The state of a run, as its directory shows it: running, dead, stopped or done."""

from __future__ import annotations

from enum import StrEnum

from bilevo.core.budget import OWN_ENDS, StopReason
from bilevo.run.lock import Owner


class RunState(StrEnum):
    """Whether a run goes on, and if not, whether it can."""

    RUNNING = "running"  # a process holds the directory's lock
    DEAD = "dead"  # its process ended in the middle of it; the call that began it continues it
    STOPPED = "stopped"  # a limit, a callback, Ctrl-C or an error ended it; it can be continued
    DONE = "done"  # it ended by the method's own rules or at its target
    UNKNOWN = "unknown"  # it has no end, and this system cannot tell whether a process runs it


def state_of(owner: Owner, end: StopReason | None) -> RunState:
    """Return the state of a run from the owner of its directory and the end in its journal.

    `end` is the reason in the journal's last record, or None if that record is not an end.
    """
    if owner.held:
        return RunState.RUNNING
    if end is not None:
        return RunState.DONE if end in OWN_ENDS else RunState.STOPPED
    if owner.held is None:
        return RunState.UNKNOWN
    return RunState.STOPPED if owner.left else RunState.DEAD


def state_words(owner: Owner, end: StopReason | None) -> str:
    """Return a run's state and what it means, on one line."""
    state = state_of(owner, end)
    return f"{state}: {explained_state(state, owner, end)}"


def explained_state(state: RunState, owner: Owner, end: StopReason | None) -> str:
    """Return a sentence on a run's state: who runs it, why it ended, and how it is continued."""
    who = owner.name or "a process that left no name"
    again = "the call that began it continues it"
    if state is RunState.STOPPED and end is None:
        return f"{who} left it before its end, after Ctrl-C or an error; {again}"
    if state is RunState.STOPPED and end is not StopReason.CALLBACK:
        return f"the limit {end} ended it; the same call with a larger limit continues it"
    return {
        RunState.RUNNING: f"{who} runs it",
        RunState.DEAD: f"{who} ended in the middle of it; {again}",
        RunState.STOPPED: f"a callback ended it; {again}",
        RunState.DONE: f"it ended by itself: {end}",
        RunState.UNKNOWN: "it has no end, and this system cannot tell whether a process runs it",
    }[state]
