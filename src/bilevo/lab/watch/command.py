"""The command `bilevo watch`."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

from bilevo.core.extras import need
from bilevo.core.terminal import printable
from bilevo.lab.watch import page, server
from bilevo.lab.watch.places import require_directories
from bilevo.lab.watch.watcher import Watcher
from bilevo.options import Paths, Whole


def watch(
    paths: Paths,
    /,
    *,
    port: Whole = 0,
    browser: bool = True,
    export: Path | None = None,
) -> int:
    """Show runs and campaigns on a page in the browser, live while they are made.

    The page is for this machine and this user: it is served on the loopback interface, and its
    address has a secret. It can change nothing. Ctrl-C ends the command.

    Parameters
    ----------
    paths
        Run directories, directories of `bilevo bench`, or directories that hold some of these.
    port
        The port of the page; by default, any free one.
    browser
        Open the page in the browser.
    export
        Write the page as it is now to this file, which needs no server, and end.
    """
    require_directories(paths)
    if not 0 <= port < 2**16:
        raise ValueError(f"--port must be from 0 to {2**16 - 1}, got {port}")
    watcher = Watcher(paths)
    if export is not None:
        watcher.read_all()
        page.export(watcher, export)
        print(printable(str(export)))
        return 0
    need("live pages", "uvicorn", "watch")
    need("live pages", "starlette", "watch")
    token, bound = server.new_token(), server.listening(port)
    address = f"http://{server.HOST}:{bound.getsockname()[1]}/{token}/"
    watcher.start()
    print(f"{address}\nOnly this machine can open the page. Ctrl-C ends it.", flush=True)
    try:
        with opened_page(address) if browser else nullcontext():
            server.serve(watcher, token, bound)
    except KeyboardInterrupt:
        print(file=sys.stderr)
    finally:
        watcher.stop()
    return 0


@contextmanager
def opened_page(address: str) -> Iterator[None]:
    """Open an address in the browser, and keep it from other users of this machine.

    They can see the arguments of processes. So the browser is given a file that only this user can
    read, and that leads to the address.
    """
    with TemporaryDirectory(prefix="bilevo-watch-") as folder:
        file = Path(folder) / "open.html"
        line = f'<meta http-equiv="refresh" content="0; url={escape(address)}">'
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(f"<!doctype html><title>bilevo watch</title>{line}")
        if not webbrowser.open(file.as_uri()):
            print("No browser was found: open the address above.", file=sys.stderr)
        yield
