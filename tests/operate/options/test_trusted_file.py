"""Settings in the current folder: read only if nobody else can have written them."""

import os
from pathlib import Path

import pytest

from harness.serving import run
from turntake.operate.options.sources import load
from turntake.operate.options.trusted_file import why_not_ours, why_not_private


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "turntake.toml"
    path.write_text("port = 18740\n")
    path.chmod(0o644)
    return path


@pytest.mark.parametrize(
    ("mode", "why"),
    [(0o600, ""), (0o644, ""), (0o664, ""), (0o646, "others may write it"), (0o666, "others may write it")],
)
def test_a_file_that_others_may_write_is_not_ours(file: Path, mode: int, why: str) -> None:
    """Our own group may: where everybody has a group of their own, files are made so."""
    file.chmod(mode)
    assert why_not_ours(file) == why


def test_one_that_another_group_may_write_is_not_ours(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.chmod(0o664)
    monkeypatch.setattr(os, "getegid", lambda: file.stat().st_gid + 1)
    assert why_not_ours(file) == "others may write it"


def test_one_of_another_user_is_not_ours_and_one_of_root_is(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = file.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert why_not_ours(file) == ("" if owner == 0 else "it belongs to another user")


def test_what_others_may_read_is_not_private(file: Path) -> None:
    assert why_not_private(file) == "others may read it"
    file.chmod(0o600)
    assert why_not_private(file) == ""


def test_a_file_that_is_not_ours_is_ignored_unless_it_is_named(file: Path) -> None:
    """It says where secrets are sent; whoever names it has looked at it."""
    assert load(environ={}).port == 18740
    file.chmod(0o666)
    options = load(environ={})
    assert (options.port, options.sources.config) == (8080, None)
    (warning,) = options.sources.warnings
    assert warning.startswith("turntake.toml is ignored, since others may write it: make it yours")
    assert warning.endswith("or name it with --config.")
    assert load(config=file, environ={}).port == 18740


def test_every_command_names_the_file_first(file: Path) -> None:
    """It decides which server is called, and with whose key."""
    said = run("conversations", folder=file.parent)
    assert said.stderr.splitlines()[0] == "turntake: settings from turntake.toml"
    file.chmod(0o666)
    said = run("conversations", folder=file.parent)
    assert "turntake.toml is ignored, since others may write it" in said.stderr.splitlines()[0]
