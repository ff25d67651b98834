"""The doctor on good and on broken set-ups. It changes nothing."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from turntake.clock import SystemClock
from turntake.finding import Finding
from turntake.operate.cli import main
from turntake.operate.doctor import report as doctor
from turntake.testing.clock import VirtualClock

Output = pytest.CaptureFixture[str]


@pytest.fixture
def free() -> str:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return str(bound.getsockname()[1])


def found(capsys: Output, *flags: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """The exit code, the checks by what they are about, and the settings by name."""
    code = main(["doctor", "--json", *flags])
    said = json.loads(capsys.readouterr().out)
    checks = {finding["about"]: finding for finding in said["checks"]}
    return code, checks, {row["setting"]: row for row in said["settings"]}


def about(checks: Iterator[Finding], what: str) -> list[Finding]:
    return [finding for finding in checks if finding.subject == what]


def test_a_good_set_up(capsys: Output, free: str) -> None:
    """All is well, every setting is listed with its origin, and no file appeared."""
    code, checks, settings = found(capsys, "--port", free)
    assert code == 0
    assert {finding["mark"] for finding in checks.values()} == {"ok"}
    assert settings["port"] == {"setting": "port", "value": free, "from": "--port"}
    assert settings["store"]["from"] == "default"
    assert list(Path().iterdir()) == []


def test_the_report_in_words_ends_with_a_verdict(capsys: Output, free: str) -> None:
    assert main(["doctor", "--port", free]) == 0
    said = capsys.readouterr().out
    assert said.startswith("✓ turntake")
    assert said.endswith("All is well.\n")
    assert main(["doctor", "--port", free, "--agent", "nobody:here"]) == 1
    assert capsys.readouterr().out.endswith("1 problem to fix.\n")


def test_with_a_warning_not_all_is_well(capsys: Output, free: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNTAKE_WHATSAPP_APPSECRET", "misspelt")
    assert main(["doctor", "--port", free]) == 0
    assert capsys.readouterr().out.endswith("It can start; 1 warning above, marked with !.\n")


def test_only_what_is_set_is_shown_unless_all_is_asked_for(capsys: Output, free: str) -> None:
    """The findings stay on the screen; every default is one flag away."""
    Path("turntake.toml").write_text('[rules]\npreset = "interview"\n')
    assert main(["doctor", "--port", free]) == 0
    said = capsys.readouterr().out
    rows = [line.split() for line in said.partition("SETTING")[2].splitlines()]
    assert [row[0] for row in rows[1:] if row][:4] == [
        "port",
        "rules.preset",
        "rules.silence_ms",
        "rules.typing_inference_ms",
    ]
    assert " settings at the default; --all shows them." in said
    assert len(said.splitlines()) < 30
    assert main(["doctor", "--port", free, "--all"]) == 0
    assert "worker.concurrency" in capsys.readouterr().out


def test_an_agent_behind_a_url_is_looked_for(capsys: Output, free: str) -> None:
    """A warning, since it may be started later; and nothing is sent to it."""
    with socket.create_server(("127.0.0.1", 0)) as agent:
        port = agent.getsockname()[1]
        code, checks, _ = found(capsys, "--port", free, "--agent", f"http://127.0.0.1:{port}/turn")
        assert (code, checks["agent"]["mark"]) == (0, "ok")
        assert checks["agent"]["says"] == f"something listens at 127.0.0.1:{port}"
        called, _ = agent.accept()
        with called:
            assert called.recv(1) == b""
    code, checks, _ = found(capsys, "--port", free, "--agent", f"http://127.0.0.1:{port}/turn")
    assert (code, checks["agent"]["mark"]) == (0, "warn")
    assert (
        checks["agent"]["says"]
        == f"nothing can be reached at 127.0.0.1:{port} (connection refused): start the agent there"
    )
    _, checks, _ = found(capsys, "--port", free, "--offline", "--agent", f"http://127.0.0.1:{port}/turn")
    assert checks["agent"]["mark"] == "ok"


def test_a_file_of_variables_is_named_and_should_be_private(capsys: Output, free: str) -> None:
    Path(".env").write_text("TURNTAKE_AGENT_SECRET=whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0\n")
    Path(".env").chmod(0o644)
    _, checks, settings = found(capsys, "--port", free)
    assert checks["config"]["says"] == ".env read"
    assert checks["secret"]["says"] == "everybody can read .env: chmod 600 .env"
    assert settings["agent_secret"]["from"] == "TURNTAKE_AGENT_SECRET in .env"


def test_secrets_are_not_shown(capsys: Output, free: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNTAKE_API_KEYS", "hunter2")
    Path("secret").write_text("hunter3")
    Path("secret").chmod(0o644)
    monkeypatch.setenv("TURNTAKE_AGENT_SECRET_FILE", "secret")
    monkeypatch.setenv("TURNTAKE_GENERIC_CALLBACK_URL", "https://me:hunter4@host/x?token=hunter5")
    code, checks, settings = found(capsys, "--port", free)
    assert code == 0
    assert "hunter" not in json.dumps([checks, settings])
    assert settings["api_keys"] == {"setting": "api_keys", "value": "set (1)", "from": "TURNTAKE_API_KEYS"}
    assert checks["secret"]["says"] == "everybody can read secret: chmod 600 secret"


@pytest.mark.parametrize("mark", ["/", "#", "?", "["])
@pytest.mark.parametrize("command", ["doctor", "serve"])
def test_a_password_that_was_not_escaped_is_not_shown(capsys: Output, free: str, command: str, mark: str) -> None:
    """Neither by who looks nor by who would serve; both say how to write it."""
    assert main([command, "--port", free, "--store", f"redis://:hunter{mark}2secret@127.0.0.1"]) != 0
    said = "".join(capsys.readouterr())
    assert "write them as %40 %2F %3F %23" in said
    assert "hunter" not in said
    assert "secret@" not in said


def test_a_broken_config_is_a_finding(capsys: Output) -> None:
    Path("turntake.toml").write_text("prot = 1\n")
    code, checks, settings = found(capsys)
    assert code == 1
    assert checks["config"]["says"] == "prot in turntake.toml: there is no such setting; did you mean port?"
    assert settings == {}
    assert main(["doctor"]) == 1


def test_odd_variables_are_a_warning(capsys: Output, free: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNTAKE_SOTRE", "x")
    code, checks, _ = found(capsys, "--port", free)
    assert (code, checks["environment"]["mark"]) == (0, "warn")


def test_a_config_with_a_password_that_everybody_can_read(capsys: Output, free: str) -> None:
    Path("turntake.toml").write_text('[generic]\ncallback_url = "https://me:pass@host/"\n')
    Path("turntake.toml").chmod(0o644)
    _, checks, _ = found(capsys, "--port", free)
    assert checks["config"]["says"].endswith("chmod 600 turntake.toml")


@pytest.mark.parametrize(
    ("flags", "what", "says"),
    [
        (["--agent", "nobody:here"], "agent", "There is no module 'nobody'"),
        (["--store", "mysql://x"], "store", "There is no store called 'mysql'"),
        (["--store", "sqlite:///no/such/t.db"], "store", "there is no folder"),
        (["--store", "host=db password=hunter2"], "store", "The store is no URL: write sqlite:///turntake.db"),
    ],
)
def test_problems_are_found(capsys: Output, free: str, flags: list[str], what: str, says: str) -> None:
    code, checks, _ = found(capsys, "--port", free, *flags)
    assert (code, checks[what]["mark"]) == (1, "fail")
    assert says in checks[what]["says"]


def test_an_address_for_others_needs_a_key(capsys: Output, free: str) -> None:
    """Only the store knows whether there is one, and doctor opens none."""
    code, checks, _ = found(capsys, "--port", free, "--host", "0.0.0.0")
    assert (code, checks["access"]["mark"]) == (0, "warn")
    assert "turntake keys list" in checks["access"]["says"]


def test_keys_that_may_do_everything_are_a_warning(capsys: Output, free: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNTAKE_API_KEYS", "a-long-and-random-word-for-this-test")
    code, checks, _ = found(capsys, "--port", free)
    assert (code, checks["access"]["mark"]) == (0, "warn")
    assert "turntake keys new" in checks["access"]["says"]


def test_a_port_that_somebody_else_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PROBE_MS", 200)
    with socket.create_server(("127.0.0.1", 0), backlog=1) as taken:
        taken.listen(0)
        finding = doctor._port("127.0.0.1", taken.getsockname()[1])
    assert finding.level == "fail"
    assert "choose another --port" in finding.text


def test_memory_is_a_warning(capsys: Output, free: str) -> None:
    code, checks, _ = found(capsys, "--port", free, "--store", "memory://")
    assert (code, checks["store"]["mark"]) == (0, "warn")


def test_a_clock_that_is_behind() -> None:
    (finding,) = about(doctor.machine(VirtualClock()), "clock")
    assert finding.level == "fail"
    (finding,) = about(doctor.machine(SystemClock()), "clock")
    assert finding.level == "ok"


def test_an_old_sqlite_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.40.1")
    (finding,) = about(doctor.machine(SystemClock()), "sqlite")
    assert finding.level == "fail"
    assert "pip install -U 'apsw>=3.51.3'" in finding.text
