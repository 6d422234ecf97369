"""What the README shows runs, and its links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_python_blocks_run_and_give_what_their_comments_say(block: str, capsys) -> None:
    namespace: dict = {}
    exec(block, namespace)  # noqa: S102 (our own text)
    assert abs(namespace["result"].F - 1.90) < 0.01
    assert namespace["certificate"].follower_gap < 1e-6
    assert "F = 1.90" in capsys.readouterr().out


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs/reproduction.md"])
def test_links_lead_to_files(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_named_commands_exist() -> None:
    for name in re.findall(r"scripts/(\w+)", README + (ROOT / "CONTRIBUTING.md").read_text()):
        assert (ROOT / "scripts" / name).stat().st_mode & 0o111
