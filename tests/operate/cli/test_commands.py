"""The commands that look and send, against a real server; help texts; and the pages made from them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.serving import PATIENCE_S, PATIENT, QUICK, Served, command, environment, first, served
from turntake.clock import SystemClock
from turntake.operate.assemble import agent_of
from turntake.operate.cli import COMMANDS, following, main, reference
from turntake.operate.cli.init import toml
from turntake.operate.cli.output import clean, duration, short
from turntake.operate.options.sources import load

DOCS = Path(__file__).parents[3] / "docs" / "reference"
PICKY = """
async def answer(turn):
    if "fail" in turn.text:
        raise RuntimeError("cannot \\x1b[31m this")
    return [f"{len(turn.messages)} heard", "bye"]
"""

Output = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that answers at once and gives up at the first failure."""
    folder = tmp_path_factory.mktemp("quick")
    (folder / "picky.py").write_text(PICKY)
    with served(folder, *QUICK, "--agent", "picky:answer", "--rules-max-attempts", "1") as server:
        yield server


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server on which messages wait until somebody flushes them."""
    with served(tmp_path_factory.mktemp("patient"), *PATIENT) as server:
        yield server


def test_send_prints_a_receipt(patient: Served, capsys: Output) -> None:
    assert main(["send", "one", "two", "--conversation", "rita", "--url", patient.url]) == 0
    said = capsys.readouterr().out
    assert said.startswith("buffered 2 messages\n2 messages of default:generic:default:rita due in 10 min: silence")


def test_send_again_is_a_duplicate(patient: Served, capsys: Output) -> None:
    for _ in range(2):
        assert main(["send", "x", "--id", "same", "--conversation", "dora", "--url", patient.url, "--json"]) == 0
    receipts = capsys.readouterr().out
    assert receipts.index('"buffered"') < receipts.index('"duplicate"')


def test_send_takes_every_part_of_the_key(patient: Served, capsys: Output) -> None:
    parts = ["--conversation", "c", "--channel", "ch", "--topic", "t p", "--tenant", "te", "--sender", "s"]
    assert main(["send", "x", *parts, "--url", patient.url, "--json"]) == 0
    (receipt,) = json.loads(capsys.readouterr().out)
    assert receipt["conversationKey"] == "te:ch:default:c:t~20p"


def test_send_names_the_agent(patient: Served, capsys: Output) -> None:
    assert main(["send", "x", "--conversation", "una", "--agent", "sales", "--url", patient.url]) == 0
    capsys.readouterr()
    assert main(["conversations", "default:generic:default:una", "--json", "--url", patient.url]) == 0
    assert json.loads(capsys.readouterr().out)["agent"] == "sales"


def test_follow_prints_the_answer(quick: Served, capsys: Output) -> None:
    assert main(["send", "hi", "there", "--follow", "--conversation", "fay", "--url", quick.url]) == 0
    said = capsys.readouterr().out
    assert "answered 2 messages in one turn; the wait ended by: silence\n  2 heard\n  bye\n" in said


def test_follow_tells_of_failure(quick: Served, capsys: Output) -> None:
    """And text from elsewhere cannot command the terminal."""
    assert main(["send", "fail", "--follow", "--conversation", "gus", "--url", quick.url]) == 1
    said = capsys.readouterr().out
    assert "not answered (RuntimeError: cannot  [31m this); turntake letters show turn_" in said
    assert "\x1b" not in said


def test_follow_says_why_a_message_was_rejected(capsys: Output) -> None:
    assert following.print_turn({"turnId": "turn_1", "status": "rejected", "reason": "busy", "error": ""}) == 1
    assert capsys.readouterr().out == "not answered (rejected: busy); turntake turns show turn_1\n"


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (
            ["send", "hi", "--url", "http://127.0.0.1:1"],
            "No server at http://127.0.0.1:1: start one with `turntake serve`.",
            1,
        ),
        (
            ["send", "hi", "--url", "nowhere"],
            "nowhere is not the address of a server; write it like http://127.0.0.1:8080.",
            1,
        ),
        (["send"], 'Nothing to send: turntake send "hello".', 2),
        (["send", "a", "b", "--id", "1"], "--id names one message", 2),
        (["send", "a", "--follow", "--conversation", "\n"], "`conversation` contains control characters", 2),
        (["conversations", "--flush"], "--flush is for one conversation", 2),
        (["conversations", "\x01"], "contains control characters", 2),
        (["conversations", "--status", "asleep"], 'Invalid value "asleep" for --status', 2),
        (["srve"], 'Unknown command "srve". Did you mean "serve"?', 2),
        (["letters", "show"], "requires an argument", 2),
        (["letters", "retry"], "Which letters? Give one ID, or --all, or --since and --reason", 2),
        (["letters", "retry", "turn_1", "--all"], "Which letters?", 2),
        (["letters", "retry", "--since", "yesterday"], "--since yesterday: write 90s, 15min, 2h or 3d", 2),
        (["turns", "show"], "requires an argument", 2),
        (["send", "x", "--gap", "-1"], "--gap is 0 or more milliseconds", 2),
        (["demo", "--people", "0"], "--people is 0: choose from 1 to 500.", 2),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], says: str, code: int, capsys: Output) -> None:
    assert main(arguments) == code
    said = capsys.readouterr()
    assert says in said.err
    assert said.err.startswith("turntake: ")
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_the_servers_own_words_reach_the_person(patient: Served, capsys: Output) -> None:
    assert main(["conversations", "a:b", "--url", patient.url]) == 1
    assert "A conversation key reads tenant:channel:account:conversation" in capsys.readouterr().err
    assert main(["conversations", "nobody-yet", "--url", patient.url]) == 1
    assert "No such conversation is known" in capsys.readouterr().err


def test_a_server_that_is_not_turntake_is_one_line_of_error(patient: Served, capsys: Output) -> None:
    assert main(["conversations", "--url", f"{patient.url}/elsewhere"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_conversations_lists_and_shows(patient: Served, capsys: Output) -> None:
    patient.client.post(
        "/v1/messages", {"conversation": "lou", "id": "1", "text": "is\x1b[2J it open?", "tenant": "t9"}
    )
    assert main(["conversations", "--tenant", "t9", "--url", patient.url]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["CONVERSATION", "STATE", "WAITING", "DUE", "REASON"]
    assert row.split() == ["t9:generic:default:lou", "collecting", "1", "in", "10", "min", "silence"]
    assert main(["conversations", "t9:generic:default:lou", "--url", patient.url]) == 0
    said = capsys.readouterr().out
    assert "1 message waits for" in said
    assert "is [2J it open?" in said
    assert "How its deadline moved:" in said
    assert main(["conversations", "--tenant", "t9", "--url", patient.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["conversations"][0]["status"] == "collecting"


def test_conversations_when_there_are_none(patient: Served, capsys: Output) -> None:
    assert main(["conversations", "--tenant", "nobody", "--url", patient.url]) == 0
    assert capsys.readouterr().out == 'No conversations. Start one: turntake send "hello"\n'


def test_hold_flush_and_clear(patient: Served, capsys: Output) -> None:
    with patient.client.events("default:generic:default:max") as events:
        main(["send", "x", "--conversation", "max", "--url", patient.url])
        assert main(["conversations", "max", "--hold", "3600000", "--url", patient.url]) == 0
        assert "held" in capsys.readouterr().out
        assert main(["conversations", "max", "--flush", "--url", patient.url]) == 0
        assert first(events, "answered")["turnId"]
    main(["send", "y", "--conversation", "max", "--url", patient.url])
    assert main(["conversations", "max", "--clear", "--url", patient.url, "--json"]) == 0
    assert '"status": "cleared"' in capsys.readouterr().out


def test_letters(quick: Served, capsys: Output) -> None:
    """List, show, retry, discard: and what is gone says so."""
    with quick.client.events("default:generic:default:hal") as events:
        main(["send", "fail me", "--conversation", "hal", "--url", quick.url])
        letter = first(events, "dead-lettered")["turnId"]
        capsys.readouterr()
        assert main(["letters", "list", "--url", quick.url]) == 0
        (row,) = [line for line in capsys.readouterr().out.splitlines() if letter in line]
        assert "failed once: " in row, "the error is what tells one outage from another"
        assert main(["letters", "show", letter, "--url", quick.url]) == 0
        said = capsys.readouterr().out
        assert "reason        failed once, after 1 attempt" in said
        assert "fail me" in said
        assert main(["letters", "retry", letter, "--url", quick.url]) == 0
        assert "Due again: turntake conversations default:generic:default:hal" in capsys.readouterr().out
        again = first(events, "dead-lettered")["turnId"]
    assert main(["letters", "discard", again, "--url", quick.url]) == 0
    assert main(["letters", "discard", again, "--url", quick.url]) == 1
    assert "There is no such dead letter" in capsys.readouterr().err
    assert main(["letters", "list", "--url", quick.url, "--json"]) == 0
    assert again not in {entry["id"] for entry in json.loads(capsys.readouterr().out)["deadLetters"]}


def test_letters_list_prints_something_without_letters(patient: Served, capsys: Output) -> None:
    assert main(["letters", "list", "--limit", "1", "--url", patient.url]) == 0
    assert capsys.readouterr().out


def test_the_server_of_the_settings_is_found(patient: Served, capsys: Output) -> None:
    """`port` in turntake.toml is enough for every command."""
    Path("turntake.toml").write_text(f"port = {patient.url.rpartition(':')[2]}\n")
    assert main(["conversations", "--tenant", "nobody"]) == 0
    assert capsys.readouterr().out.startswith("No conversations.")


def test_init_writes_what_loads(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["init"]) == 0
    assert "turntake serve" in capsys.readouterr().out
    assert {Path(name).stat().st_mode & 0o777 for name in ("turntake.toml", "agent.py")} == {0o600}
    options = load(environ={})
    assert options.agent == "agent:answer"
    assert [key for key in options.sources.values if options.sources.is_set(key)] == ["agent"]
    monkeypatch.delitem(sys.modules, "agent", raising=False)
    assert agent_of(options).turns is None


def test_init_keeps_what_is_there(capsys: Output) -> None:
    Path("agent.py").write_text("mine")
    assert main(["init"]) == 0
    assert Path("agent.py").read_text() == "mine"
    assert main(["init"]) == 2
    assert "turntake.toml exists already: edit it, or replace it with turntake init --force." in capsys.readouterr().err
    assert main(["init", "--force"]) == 0
    assert Path("agent.py").read_text() != "mine"


def test_the_written_file_tells_of_rules_for_some() -> None:
    assert "[rules.tenant.acme]" in toml()


def test_every_line_of_the_written_file_is_valid() -> None:
    """With all comments taken away, the file says the defaults."""
    lines = [line.removeprefix("# ") for line in toml().splitlines() if "=" in line or line.startswith("[")]
    Path("turntake.toml").write_text(
        "\n".join(line for line in lines if line.split(" =")[0].isidentifier() or "[" in line[:1])
    )
    written, defaults = (load(config=config, environ={}).sources.values for config in (None, Path("/dev/null")))
    assert {k: g.value for k, g in written.items()} == {k: g.value for k, g in defaults.items()}


@pytest.mark.parametrize("name", [name for name, _, _ in COMMANDS])
def test_every_command_has_help_with_examples(name: str, capsys: Output) -> None:
    assert main([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"Usage: turntake {name}" in said
    assert "Examples:" in said
    assert "[default: " not in said or name == "bench"


def test_help_and_version(capsys: Output) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert said.index("Start here") < said.index("serve") < said.index("Look") < said.index("Set up")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("turntake 0.")
    assert main([]) == 0


@pytest.mark.parametrize("page", ["settings", "cli"])
def test_reference_pages_are_current(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If not: python -m turntake.operate.cli.reference cli > docs/reference/cli.md, or the page that is named."""
    monkeypatch.setenv("COLUMNS", "200")
    assert (DOCS / f"{page}.md").read_text() == getattr(reference, page)()


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [(0, "0 ms"), (999, "999 ms"), (4_200, "4.2 s"), (59_000, "59 s"), (600_000, "10 min"), (7_200_000, "2.0 h")],
)
def test_durations_in_words(milliseconds: int, words: str) -> None:
    assert duration(milliseconds) == words


def test_control_characters_are_removed_from_printed_text() -> None:
    assert clean("a\nb\x1b[31m\u202e") == "a b [31m"
    assert short("abcdef", 4) == "abc…"


def test_turns_show(quick: Served, capsys: Output) -> None:
    """Messages, how the deadline moved, and the answer, also long after it; and that a dead one is a letter."""
    with quick.client.events("default:generic:default:ida") as events:
        main(["send", "hi\x1b[2J", "there", "--conversation", "ida", "--url", quick.url])
        turn = first(events, "answered")["turnId"]
        main(["send", "fail", "--conversation", "ida", "--url", quick.url])
        dead = first(events, "dead-lettered")["turnId"]
    capsys.readouterr()
    assert main(["turns", "show", turn, "--url", quick.url]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{turn}  answered  default:generic:default:ida\n2 messages, waited ")
    assert "hi [2J" in said
    assert ": silence" in said
    assert said.endswith("Answer:\n  2 heard\n  bye\n")
    assert main(["turns", "show", dead, "--url", quick.url]) == 0
    assert f"Its messages are a dead letter: turntake letters show {dead}" in capsys.readouterr().out
    assert main(["turns", "show", turn, "--url", quick.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["turnId"] == turn
    assert main(["turns", "show", "turn_gone", "--url", quick.url]) == 1
    assert "There is no such turn" in capsys.readouterr().err


def test_a_letter_shows_where_the_exception_came_from(quick: Served, capsys: Output) -> None:
    with quick.client.events("default:generic:default:kim") as events:
        main(["send", "fail", "--conversation", "kim", "--url", quick.url])
        letter = first(events, "dead-lettered")["turnId"]
    capsys.readouterr()
    assert main(["letters", "show", letter, "--url", quick.url]) == 0
    said = capsys.readouterr().out
    assert "Where the agent's exception came from:" in said
    assert 'picky.py", line 4, in answer' in said
    assert 'raise RuntimeError("cannot' in said
    assert "turntake/" not in said.partition("came from:")[2]


def test_several_letters_are_retried_at_once(quick: Served, capsys: Output) -> None:
    """By age, by reason, or all; what fails again is left alone, however often."""
    with quick.client.events() as events:
        for name in ("uma", "val", "wes"):
            main(["send", f"fail {name}", "--conversation", name, "--url", quick.url])
            first(events, "dead-lettered")
        capsys.readouterr()
        assert main(["letters", "retry", "--reason", "no such words", "--url", quick.url]) == 0
        assert capsys.readouterr().out == "No dead letter is like that.\n"
        assert main(["letters", "retry", "--reason", "CANNOT", "--since", "1h", "--url", quick.url, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["retried"] >= 3
        for _ in range(3):
            first(events, "dead-lettered")
        assert main(["letters", "retry", "--all", "--url", quick.url]) == 0
        assert capsys.readouterr().out.endswith(" letters due again.\n")
        assert main(["letters", "retry", "--since", "2100-01-01T00:00:00Z", "--url", quick.url]) == 0
        assert capsys.readouterr().out == "No dead letter is like that.\n"


def test_a_gap_is_left_between_messages(patient: Served, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text is sent by itself, with the pause before all but the first."""
    pauses: list[int] = []
    monkeypatch.setattr(SystemClock, "pause", lambda self, duration_ms: pauses.append(duration_ms))
    assert main(["send", "a", "b", "c", "--gap", "800", "--conversation", "gia", "--url", patient.url]) == 0
    assert pauses == [800, 800]
    assert capsys.readouterr().out.startswith("buffered 3 messages\n3 messages of default:generic:default:gia")


def test_following_ends_after_its_time(patient: Served, capsys: Output) -> None:
    """And says where the messages are."""
    flags = ["--follow", "--timeout", "0.01", "--conversation", "tim", "--url", patient.url]
    assert main(["send", "x", *flags]) == 1
    assert "No answer within 0.01 s. 1 message waits for" in capsys.readouterr().err


def test_an_answer_by_another_process_is_followed_too(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that accepts tells of no answers; and if nobody works, that is said."""
    monkeypatch.setattr(following, "LATE_MS", 0)
    with served(tmp_path, *QUICK, "--role", "accept") as accepting:
        flags = ["--follow", "--conversation", "ali", "--url", accepting.url]
        assert main(["send", "nobody yet", "--timeout", "1", *flags]) == 1
        said = capsys.readouterr()
        assert "for a worker, due" in said.err
        assert "This server only accepts messages: start one with `turntake serve --role work`" in said.out
        with served(tmp_path, *QUICK, "--role", "work"):
            assert main(["send", "hello", *flags]) == 0
        assert "  hello\n" in capsys.readouterr().out


def test_chat_sends_lines_and_prints_answers(quick: Served, tmp_path: Path) -> None:
    """Each line is a message of its own; at the end of the input it waits for what is still open."""
    talk = subprocess.run(
        command("chat", "--conversation", "zed", "--url", quick.url),
        input=b"hi\n\nare you open?\nfail\n",
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    said = talk.stdout.decode()
    assert said.startswith(f"You are zed, at {quick.url}. Each line is a message; Ctrl-D ends it.\n")
    assert said.count("  buffered; ") == 3
    assert "not answered" in said
    assert talk.returncode == 1


def test_chat_without_a_server_says_so(capsys: Output) -> None:
    assert main(["chat", "--url", "http://127.0.0.1:1"]) == 1
    assert "No server at http://127.0.0.1:1" in capsys.readouterr().err
