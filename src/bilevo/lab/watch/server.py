"""The server of `bilevo watch`: it answers this machine only, and only those who know its token.

starlette and uvicorn do what a server must do well: they parse requests, check the header Host (so
that no foreign page reaches us by DNS rebinding), stream events to many windows at once, and end
cleanly. What is left to say here is which few addresses there are. They change nothing.

    /TOKEN/             the page
    /TOKEN/events       the rows, and then each row that changes (server-sent events)
    /TOKEN/detail/ID    the details of a run or a campaign
"""

from __future__ import annotations

import json
import re
import socket
from asyncio import sleep
from collections.abc import AsyncIterator, Callable
from secrets import compare_digest, token_urlsafe
from typing import Any

from bilevo.core.extras import need
from bilevo.lab.watch.page import live_page
from bilevo.lab.watch.run_view import Plain
from bilevo.lab.watch.watcher import Watcher

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")  # What a browser on this machine calls us.
POLL = 0.2  # Seconds between two looks at the watcher's version.
ALIVE = 5.0  # Seconds after which an event is sent even if nothing has changed.
MAX_CONNECTIONS = 64
MAX_ADDRESS = 200  # The longest path of a request.
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
POLICY_IN_PAGE = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]*)"')
NOTHING = "default-src 'none'; frame-ancestors 'none'"  # the policy of answers that are no page


def new_token() -> str:
    return token_urlsafe(24)


def listening(port: int) -> socket.socket:
    """Return a socket that listens on the loopback interface; port 0 takes any free port."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((HOST, port))
        made.listen(MAX_CONNECTIONS)  # from now on a browser that comes too early waits
    except (OSError, OverflowError) as error:
        made.close()
        raise ValueError(f"port {port} cannot be used ({error}); --port names another") from None
    return made


def serve(watcher: Watcher, token: str, bound: socket.socket) -> None:
    """Serve the page until Ctrl-C."""
    uvicorn = need("live pages", "uvicorn", "watch")
    made: Any = None
    config = uvicorn.Config(
        application(watcher, token, lambda: made is not None and made.should_exit),
        log_level="error",
        access_log=False,  # addresses have the token
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        http="h11",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=2**14,
    )
    made = uvicorn.Server(config)
    made.run(sockets=[bound])


def application(watcher: Watcher, token: str, is_ending: Callable[[], bool] = lambda: False) -> Any:
    """Return the application: a few addresses to look at, behind the checks of every request.

    Streams of events end when `is_ending` returns True.
    """
    need("live pages", "starlette", "watch")
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, Response, StreamingResponse
    from starlette.routing import Route

    html = live_page()
    found = POLICY_IN_PAGE.search(html)
    assert found is not None
    policy = found[1].replace("&#39;", "'") + "; frame-ancestors 'none'"

    def page(request: Request) -> Response:
        return HTMLResponse(html, headers={"Content-Security-Policy": policy})

    def detail(request: Request) -> Response:
        group = request.query_params.get("group", "0")
        number = int(group) if group.isascii() and group.isdigit() and len(group) < 4 else 0
        found = watcher.detail(request.path_params["id"], number)
        if found is None:
            return Response(status_code=404)
        return Response(_json(found), media_type="application/json")

    async def stream(request: Request) -> Response:
        return StreamingResponse(events(watcher, is_ending), media_type="text/event-stream")

    routes = [
        Route(f"/{token}/", page, methods=["GET"]),
        Route(f"/{token}/events", stream, methods=["GET"]),
        Route(f"/{token}/detail/{{id}}", detail, methods=["GET"]),
    ]
    checks = [
        Middleware(TrustedHostMiddleware, allowed_hosts=list(NAMES), www_redirect=False),
        Middleware(_Guard, token=token),
    ]
    made = Starlette(routes=routes, middleware=checks)
    made.router.redirect_slashes = False
    return made


class _Guard:
    """Refuses requests without the token, and adds the headers that every answer has.

    Who does not know the token learns nothing, not even which addresses there are.
    """

    def __init__(self, app: Any, token: str) -> None:
        self._app, self._token = app, token.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("raw_path") or scope.get("path", "").encode()
        given = path[1:].partition(b"/")[0]
        known = len(path) <= MAX_ADDRESS and compare_digest(given, self._token)

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = dict(HEADERS)
                if not any(name == b"content-security-policy" for name, _ in message["headers"]):
                    headers["Content-Security-Policy"] = NOTHING
                pairs = [(name.lower().encode(), text.encode()) for name, text in headers.items()]
                message = {**message, "headers": [*message["headers"], *pairs]}
            await send(message)

        if scope["type"] == "http" and not (known and scope["method"] == "GET"):
            start = {"type": "http.response.start", "status": 404, "headers": []}
            await with_headers({**start, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, receive, with_headers)


async def events(watcher: Watcher, is_ending: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield all rows, and then rows as they change, as server-sent events."""
    version, silent = 0, ALIVE
    while not is_ending():
        if watcher.version > version or silent >= ALIVE:
            rows, gone, version = watcher.rows_since(version)
            told = {"rows": rows, "gone": gone, "settled": watcher.settled.is_set()}
            yield f"data: {_json(told)}\n\n"
            silent = 0.0
        await sleep(POLL)
        silent += POLL


def _json(content: Plain) -> str:
    return json.dumps(content, allow_nan=False, separators=(",", ":"))
