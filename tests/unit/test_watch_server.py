"""The server of `bilevo watch`: whom it answers, and what it says."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from watched import HOSTILE, make_run, watched

from bilevo.cli import main
from bilevo.lab.watch import command, server

uvicorn = pytest.importorskip("uvicorn", exc_type=ImportError)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[int, str]]:
    """The port and the token of a server that runs in a thread."""
    make_run(tmp_path / "a", name=HOSTILE)
    watcher = watched(tmp_path)
    token, bound = server.new_token(), server.listening(0)
    config = uvicorn.Config(server.application(watcher, token), log_level="error", lifespan="off")
    made = uvicorn.Server(config)
    thread = Thread(target=made.run, kwargs={"sockets": [bound]})
    thread.start()
    yield bound.getsockname()[1], token
    made.should_exit = made.force_exit = True
    thread.join()
    bound.close()


def ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[Any, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = b"" if path.endswith("events") and answer.status == 200 else answer.read()
    connection.close()
    return answer, body


def test_who_knows_the_token_sees_the_page_and_may_only_look(served: tuple[int, str]) -> None:
    port, token = served
    answer, body = ask(port, f"/{token}/")
    assert answer.status == 200 and b"<title>bilevo watch</title>" in body
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert "connect-src 'self'" in policy and "script-src 'sha256-" in policy
    assert "'unsafe-eval'" not in policy and "http" not in policy
    assert {"X-Content-Type-Options", "Referrer-Policy", "Cache-Control"} <= set(server.HEADERS)
    for name in server.HEADERS:
        assert answer.headers[name] == server.HEADERS[name]
    assert b"alert" not in body, "names of runs are no part of the page"
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
        assert ask(port, f"/{token}/", method)[0].status in (404, 405)


@pytest.mark.parametrize("wrong", ["", "x", "{}x", "{}%00", "x{}", "../{}", "{}"])
def test_without_the_token_there_is_nothing(served: tuple[int, str], wrong: str) -> None:
    port, token = served
    given = wrong.format(token) if wrong else ""
    given = given[:-1] if given == token else given
    for path in (f"/{given}/", f"/{given}", f"/{given}/events", "/", "/favicon.ico"):
        answer, body = ask(port, path)
        assert answer.status == 404 and body == b"", path


def test_another_host_is_refused_so_that_names_cannot_be_rebound(served: tuple[int, str]) -> None:
    port, token = served
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", ""):
        answer, body = ask(port, f"/{token}/", Host=host)
        assert answer.status == 400 and b"bilevo" not in body
    assert ask(port, f"/{token}/", Host=f"localhost:{port}")[0].status == 200


def test_details_are_json_and_unknown_ones_are_not_there(served: tuple[int, str]) -> None:
    port, token = served
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
        request = f"GET /{token}/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
        link.sendall(request.encode())
        text = b""
        while b"\n\n" not in text.partition(b"\r\n\r\n")[2]:
            text += link.recv(65536)
    assert b"text/event-stream" in text
    found = json.loads(re.search(rb"data: (.*)\n", text)[1])
    (row,) = found["rows"]
    answer, body = ask(port, f"/{token}/detail/{row['id']}?group=99")
    assert answer.headers["Content-Type"] == "application/json"
    assert json.loads(body)["pairs"]["count"] > 0
    for unknown in ("nothing", "..%2f..", "%00", "a" * 500):
        assert ask(port, f"/{token}/detail/{unknown}")[0].status == 404


def test_it_listens_on_the_loopback_interface_only() -> None:
    with server.listening(0) as bound:
        assert bound.getsockname()[0] == "127.0.0.1"
        with pytest.raises(ValueError, match="--port names another"):
            server.listening(bound.getsockname()[1])


@pytest.mark.parametrize("library", ["uvicorn", "starlette"])
def test_a_missing_library_is_named_before_anything_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert main(["watch", str(tmp_path), "--no-browser"]) == 2
    told = capsys.readouterr()
    assert f"need {library}: pip install 'bilevo[watch]'" in told.err and told.out == ""


def test_the_browser_gets_a_file_that_nobody_else_can_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others can see the arguments of processes, and so must not find the secret there."""
    given: list[tuple[str, str, int]] = []

    def opened(address: str) -> bool:
        path = Path(address.removeprefix("file://"))
        given.append((address, path.read_text(), path.stat().st_mode & 0o777))
        return True

    monkeypatch.setattr("webbrowser.open", opened)
    with command.opened_page("http://127.0.0.1:1/secret/"):
        ((address, text, mode),) = given
        assert "secret" not in address and "url=http://127.0.0.1:1/secret/" in text
        assert mode == 0o600
    assert not Path(address.removeprefix("file://")).exists()
