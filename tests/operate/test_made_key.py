"""The key that a server makes at its first start: who can read it, and who gets in by it."""

import os
import stat
from pathlib import Path

import httpx2
import pytest

from harness.serving import run, served
from turntake.operate.made_key import find_key, make_key, path_for

REACHED = {"TURNTAKE_GENERIC_SECRET": "a secret of the tests that is long enough"}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("store", "path"),
    [
        ("sqlite:///turntake.db", "turntake.db.key"),
        ("sqlite:////var/lib/t.db", "/var/lib/t.db.key"),
        ("redis://cache:6379/0", "turntake.key"),
        ("memory://", "turntake.key"),
    ],
)
def test_it_is_kept_beside_the_store(store: str, path: str) -> None:
    assert path_for(store) == Path(path)


def test_it_is_made_once_and_only_its_owner_reads_it() -> None:
    before = os.umask(0)
    try:
        made = make_key("sqlite:///t.db")
    finally:
        os.umask(before)
    assert made.is_new
    assert len(made.key) > 40
    assert stat.S_IMODE(Path("t.db.key").stat().st_mode) == 0o600
    assert make_key("sqlite:///t.db") == (made.key, Path("t.db.key"), False)
    assert find_key("sqlite:///t.db") == made.key
    assert [path.name for path in Path().iterdir()] == ["t.db.key"]


def test_one_that_others_may_read_or_write_is_not_used() -> None:
    """They may know it; whoever made it so finds it replaced by one in memory, and the file left alone."""
    key = make_key("sqlite:///t.db").key
    Path("t.db.key").chmod(0o644)
    assert find_key("sqlite:///t.db") == ""
    again = make_key("sqlite:///t.db")
    assert (again.path, again.is_new) == (None, True)
    assert again.key != key


def test_a_folder_that_cannot_be_written_costs_only_the_file() -> None:
    assert make_key("sqlite:///no/such/folder/t.db").path is None
    assert find_key("sqlite:///no/such/folder/t.db") == ""


def test_a_first_user_needs_no_key(tmp_path: Path) -> None:
    """Nothing says that others reach the server, so programs on this machine just call it."""
    with served(tmp_path) as server:
        assert httpx2.get(f"{server.url}/v1/conversations").status_code == 200
        assert httpx2.get(server.url).status_code == 200
        assert httpx2.get(f"{server.url}/v1/conversations", headers={"cf-ray": "x"}).status_code == 403


def test_a_server_that_others_reach_asks_for_the_key_that_it_made(tmp_path: Path) -> None:
    """Commands on this machine find it; the log says where it is, and never what it is."""
    with served(tmp_path, env=REACHED) as server:
        for path in ("/v1/conversations", "/", "/openapi.json"):
            assert httpx2.get(server.url + path).status_code == 401
        assert httpx2.get(f"{server.url}/healthz").status_code == 200
        assert httpx2.post(f"{server.url}/webhooks/generic").status_code == 401
        listing = run("conversations", "--url", server.url, folder=tmp_path, env=REACHED)
        assert (listing.returncode, listing.stderr) == (0, "")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        refused = run("conversations", "--url", server.url, folder=elsewhere)
        assert refused.returncode == 1
        assert "asks for an API key" in refused.stderr
        key = find_key("sqlite:///turntake.db")
        assert httpx2.get(server.url, params={"key": key}).status_code == 303
        server.stop()
        list(server.process.stderr or ())
    assert key
    assert key not in str(server.log)
    (start,) = [line for line in server.log if line["message"] == "Listening"]
    assert start["key_file"] == "turntake.db.key"
    (unset,) = [line["message"] for line in server.log if "TURNTAKE_API_KEYS (" in line["message"]]
    assert "all but webhooks needs the key that it made" in unset


def test_the_doctor_says_who_gets_in(tmp_path: Path) -> None:
    alone = run("doctor", "--offline", "--port", "0", folder=tmp_path)
    assert "only 127.0.0.1 gets in; once the store has an API key (turntake keys list), only with one" in alone.stdout
    reached = run("doctor", "--offline", "--port", "0", folder=tmp_path, env=REACHED)
    assert "all but webhooks needs the key that serve makes, and keeps in turntake.db.key" in reached.stdout
