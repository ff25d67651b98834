"""`turntake keys`: in the store itself, and at a server; a server for others starts once the store has a key."""

import json
from collections import deque
from pathlib import Path

import pytest

from harness.serving import PATIENT, run, served
from turntake.errors import TurntakeError
from turntake.operate.cli import main
from turntake.operate.client import Client

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def made(capsys: Output, *flags: str) -> str:
    assert main(["keys", "new", *flags]) == 0
    said = capsys.readouterr()
    assert "cannot be shown again" in said.err
    return said.out.strip()


def listed(capsys: Output, *flags: str) -> list[dict[str, object]]:
    assert main(["keys", "list", "--json", *flags]) == 0
    keys: list[dict[str, object]] = json.loads(capsys.readouterr().out)["keys"]
    return keys


def test_a_key_is_made_listed_and_revoked(capsys: Output) -> None:
    """The key alone is on standard output; nothing that is kept holds it."""
    assert main(["keys", "list"]) == 0
    assert capsys.readouterr().out.startswith("No keys yet")
    written = made(capsys, "crm", "--scope", "orders", "--scope", "events", "--tenant", "acme")
    assert written.startswith("ttk_")
    for file in Path().glob("turntake.db*"):
        assert written.encode() not in file.read_bytes()
    (key,) = listed(capsys)
    assert (key["name"], key["scopes"], key["tenants"]) == ("crm", ["orders", "events"], ["acme"])
    assert main(["keys", "revoke", str(key["id"])]) == 0
    assert main(["keys", "list"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert ("crm (revoked" in line, line.endswith("acme     orders events")) == (True, True)


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (["new", "crm"], 2, "Give --scope"),
        (["new", "crm", "--scope", "orders", "--all-scopes"], 2, "Give --scope"),
        (["new", "crm", "--scope", "everything"], 2, "There is no scope `everything`"),
        (["new", " ", "--scope", "orders"], 2, "`name`"),
        (["revoke", "nobody"], 1, "There is no key nobody"),
    ],
)
def test_mistakes_are_one_line(capsys: Output, flags: list[str], code: int, says: str) -> None:
    assert main(["keys", *flags]) == code
    said = capsys.readouterr().err
    assert (says in said, said.count("\n")) == (True, 1)


def test_a_store_in_memory_is_asked_through_its_server(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNTAKE_STORE", "memory://")
    assert main(["keys", "list"]) == 2
    assert "--url" in capsys.readouterr().err


def test_a_server_for_others_starts_once_there_is_a_key(tmp_path: Path, capsys: Output) -> None:
    """Made before it started and while it runs; over HTTP a key needs the scope for it."""
    refused = run("serve", "--host", "0.0.0.0", "--port", "0", folder=tmp_path)
    assert (refused.returncode, "turntake keys new" in refused.stderr) == (2, True)
    owner = made(capsys, "owner", "--all-scopes")
    with served(tmp_path, "--host", "0.0.0.0", *PATIENT) as server:
        assert not any("anybody on this machine gets in" in line["message"] for line in server.log)
        at = ["--url", server.url, "--key", owner]
        reader = made(capsys, "reader", "--scope", "conversations:read", "--tenant", "acme", *at)
        with Client(server.url, reader) as client:
            assert client.get("/v1/conversations")["conversations"] == []
            with pytest.raises(TurntakeError, match="lacks the scope `admin`"):
                client.get("/v1/keys")
        assert [(key["name"], key["tenants"]) for key in listed(capsys, *at)] == [("reader", ["acme"]), ("owner", None)]
        # By another process, in the store itself: the server sees that soon.
        assert main(["keys", "revoke", str(listed(capsys)[0]["id"])]) == 0
        with Client(server.url, reader) as client, pytest.raises(TurntakeError, match="does not know this API key"):
            deque(client.get("/v1/conversations") for _ in range(5_000))
