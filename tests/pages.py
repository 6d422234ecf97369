"""The code that our pages show: found, run, and compared with what the pages say it prints.

The blocks of a page are run in their order, in one namespace and one folder:

- `python` runs. One that begins with a comment naming a file, as `# toll.py`, is that file instead.
- `text` straight after another block is what that one prints, to the letter.
- `console` has commands after `$`. Where they run, `bilevo` and `python` do; others are for people.
- `{literalinclude}` puts the file it names into the folder.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import invalidate_caches
from io import StringIO
from pathlib import Path
from typing import Any

from bilevo.cli import main

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"^```(\{literalinclude\}|\w+)(?: (\S+))?\n(.*?)^```\n(?=(\n```text\n)?)", re.M | re.S
)
STATUS = re.compile(r"# .*\bstatus (\d)$")
FILE = re.compile(r"# (\w+\.py)\n")


@dataclass(frozen=True)
class Block:
    kind: str
    argument: str
    text: str
    told: bool  # the next block is what it prints
    where: str

    @property
    def commands(self) -> list[str]:
        """Return the commands of a console block: the lines after a prompt, without comments."""
        return [shlex.join(shlex.split(line, comments=True)) for line in self._prompted]

    @property
    def statuses(self) -> list[int]:
        """Return the exit status of each command: the one that its comment ends with, or 0."""
        said = [STATUS.search(line) for line in self._prompted]
        return [0 if each is None else int(each[1]) for each in said]

    @property
    def _prompted(self) -> list[str]:
        return [line[2:] for line in self.text.splitlines() if line.startswith("$ ")]


def blocks(page: str) -> list[Block]:
    """A page's blocks of code, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(
            match[1].strip("{}"),
            match[2] or "",
            match[3],
            match[4] is not None,
            f"{page}:{text.count(chr(10), 0, match.start()) + 1}",
        )
        for match in BLOCK.finditer(text)
    ]


def pages() -> list[str]:
    """README.md and the pages of the site."""
    return ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


def run_page(page: str, commands: bool) -> list[dict[str, Any]]:
    """Run a page in the working folder; the namespace as it is after each Python block."""
    with importable_folder():
        return run_blocks(blocks(page), commands)


def run_blocks(found: list[Block], commands: bool) -> list[dict[str, Any]]:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    after: list[dict[str, Any]] = []
    printed: str | None = None
    for block in found:
        if block.kind == "text":
            assert printed is None or block.text == printed, f"{block.where}\n{printed}"
            continue
        shown = StringIO()
        if block.kind == "literalinclude":
            shutil.copy(ROOT / "docs" / block.argument, ".")
        elif block.kind == "console" and commands:
            shown.write("".join(map(run_command, block.commands, block.statuses)))
        elif block.kind == "python" and (named := FILE.match(block.text)):
            Path(named[1]).write_text(block.text, encoding="utf-8")
            invalidate_caches()  # it may be imported at once
        elif block.kind == "python":
            with redirect_stdout(shown):
                exec(compile(block.text, block.where, "exec"), namespace)  # noqa: S102 (ours)
            after.append(dict(namespace))
        print(shown.getvalue(), end="")
        printed = shown.getvalue() if block.told else None
    return after


def run_command(command: str, status: int) -> str:
    """What a command prints. `bilevo` runs in this process, which has loaded it already."""
    program, *words = shlex.split(command)
    shown = StringIO()
    if program == "bilevo":
        with redirect_stdout(shown):
            assert main(words) == status, command
    elif program == "python":
        done = subprocess.run(
            [sys.executable, *words], stdout=subprocess.PIPE, text=True, check=False
        )
        dies = words[-1] == "die"  # our scripts that show what a kill does kill themselves
        assert done.returncode == (-signal.SIGKILL if dies else status), command
        shown.write(done.stdout)
    return shown.getvalue()


@contextmanager
def importable_folder() -> Iterator[None]:
    """Modules in the working folder can be imported, and are forgotten after that."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(here):
                del sys.modules[name]
