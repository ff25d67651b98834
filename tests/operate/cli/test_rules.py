"""`turntake rules` against a running server."""

from collections.abc import Iterator

import httpx2
import pytest

from harness.servers import Later, talking
from turntake import TurnTake
from turntake.operate.cli import main

SETTINGS = {"silence_ms": 20_000, "tenant": {"acme": {"silence_ms": 25_000}}}
KEY = "acme:generic:default:ann"


@pytest.fixture
def server() -> Iterator[httpx2.Client]:
    with talking(TurnTake("memory://", rules=SETTINGS, agent=Later())) as client:
        yield client


class Shell:
    """Runs commands against the server."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._url = url
        self._capsys = capsys

    def says(self, *words: str) -> str:
        assert main(["rules", *words, "--url", self._url]) == 0
        return self._capsys.readouterr().out

    def complains(self, *words: str) -> str:
        assert main(["rules", *words, "--url", self._url]) > 0
        return self._capsys.readouterr().err


@pytest.fixture
def shell(server: httpx2.Client, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(str(server.base_url), capsys)


def test_rules_are_set_one_by_one_shown_and_deleted(shell: Shell) -> None:
    assert "Version 1: tenant acme has silenceMs=700" in shell.says("set", "tenant", "acme", "silence_ms=700")
    assert "onBusy=interrupt" in shell.says("set", "tenant", "acme", "on_busy=interrupt", "enabled=true")
    shown = shell.says("get", "tenant", "acme")
    assert "enabled=true silenceMs=700 onBusy=interrupt" in shown
    assert "ago by" in shown
    assert "silenceMs" not in shell.says("set", "tenant", "acme", "silence_ms=")
    everything = shell.says("get")
    assert everything.index("silenceMs=25000") < everything.index("onBusy=interrupt")
    assert "in the settings" in everything
    assert "Deleted" in shell.says("delete", "tenant", "acme")
    assert "in the settings" in shell.says("get", "tenant", "acme")


def test_what_the_settings_say_is_shown_beside_what_is_set_live(shell: Shell) -> None:
    shell.says("set", "tenant", "acme", "capacity=9")
    _, settings, live = shell.says("get", "tenant", "acme").splitlines()
    assert settings.split() == ["tenant", "acme", "silenceMs=25000", "in", "the", "settings"]
    assert "capacity=9" in live


@pytest.mark.parametrize("command", ["get", "delete"])
def test_what_is_not_set_is_told_without_a_word_about_http(shell: Shell, command: str) -> None:
    complaint = shell.complains(command, "tenant", "zeta")
    assert "Nothing is set for this scope" in complaint
    assert "/v1/" not in complaint


def test_a_platform_that_is_probably_misspelled_is_told(shell: Shell) -> None:
    said = shell.says("set", "platform", "WhatsApp", "silence_ms=700")
    assert said.splitlines()[1] == "platform WhatsApp: there is no channel of that name; did you mean whatsapp?"


def test_words_are_written_as_a_list_with_commas(shell: Shell) -> None:
    said = shell.says("set", "tenant", "acme", "stop_words=@de, das reicht", 'hold_words=["one moment"]')
    assert "holdWords=one moment stopWords=@de, das reicht" in said
    assert "none" in next(line for line in shell.says("explain", KEY).splitlines() if line.startswith("flushWords"))
    assert "because of: stop word" in shell.says("explain", KEY, "--message", "Das reicht!")
    assert "lists of our own" in shell.complains("set", "tenant", "acme", "stop_words=@klingon")


def test_rules_are_set_by_the_names_that_are_shown_too(shell: Shell) -> None:
    assert "tenant acme has silenceMs=2500." in shell.says("set", "tenant", "acme", "silenceMs=2500")


def test_a_text_is_emptied_by_empty_quotes(shell: Shell) -> None:
    assert "has busyText=." in shell.says("set", "tenant", "acme", 'busy_text=""')
    assert "has nothing." in shell.says("set", "tenant", "acme", "busy_text=")


def test_what_else_is_set_stays_however_its_scope_is_spelled(shell: Shell) -> None:
    shell.says("set", "tenant", "ne\u0301", "silence_ms=5")
    said = shell.says("set", "tenant", "ne\u0301", "capacity=7")
    assert "has silenceMs=5 capacity=7." in said


def test_the_rules_of_everybody_need_no_id(shell: Shell) -> None:
    shell.says("set", "default", "preset=interview")
    assert "preset=interview" in shell.says("get", "default")
    assert '"preset": "interview"' in shell.says("get", "default", "--json")
    shell.says("delete", "default")


def test_history_and_the_way_back(shell: Shell) -> None:
    assert "Nothing was ever set" in shell.says("history")
    shell.says("set", "agent", "sales", "silence_ms=700")
    shell.says("set", "agent", "sales", "silence_ms=800")
    assert "Version 3: the rules of version 1 again; they are set for 1 scope." in shell.says("rollback", "1")
    lines = shell.says("history").splitlines()
    assert lines[1].startswith("3 ")
    assert "back to 1" in lines[1]
    assert lines[2].endswith("agent sales  silenceMs=700 -> silenceMs=800")
    assert lines[3].endswith("nothing -> silenceMs=700")
    assert "there are 0 to 3" in shell.complains("rollback", "7")


def test_history_names_a_version_once_whatever_it_changed(shell: Shell, server: httpx2.Client) -> None:
    body = {"silenceMs": 700, "platformOverrides": {"whatsapp": {"silenceMs": 800}}}
    assert server.put("/v1/rules/default", json=body).status_code == 200
    _, first, second = shell.says("history").splitlines()
    assert (first.split()[0], first.split()[-1]) == ("1", "silenceMs=700")
    assert second.split() == ["platform", "whatsapp", "nothing", "->", "silenceMs=800"]


def test_an_id_may_hold_whatever_a_name_may(shell: Shell) -> None:
    for id in ("a=b", "a b?", "100%"):
        shell.says("set", "tenant", id, "silence_ms=700")
        assert f"tenant {id}  silenceMs=700" in shell.says("get", "tenant", id)
        shell.says("delete", "tenant", id)


def test_explain_shows_where_each_value_comes_from(shell: Shell) -> None:
    shell.says("set", "agent", "sales", "activity_ms=7")
    lines = {line.split()[0]: line for line in shell.says("explain", KEY, "--agent", "sales").splitlines()}
    assert lines["activityMs"].endswith("agent sales (live)")
    assert lines["silenceMs"].endswith("tenant acme (in the settings)")
    assert lines["enabled"].endswith("nobody: the default")


def test_explain_says_what_would_be_done_with_a_message(shell: Shell, server: httpx2.Client) -> None:
    said = shell.says("explain", KEY, "--message", "hello?")
    assert "1 message would wait and be due in 2" in said
    assert said.endswith("because of: silence.\n")
    shell.says("set", "agent", "sales", "flush_words=hello")
    assert "because of: flush word" in shell.says("explain", KEY, "--message", "hello?", "--agent", "sales")
    assert "It would be ignored." in shell.says("explain", KEY, "--message", " ")
    assert server.get("/v1/conversations").json()["conversations"] == []


def test_explain_names_the_limits_that_a_message_may_be_over(shell: Shell) -> None:
    assert len(shell.says("explain", KEY, "--message", "hi").splitlines()) == 1
    shell.says("set", "tenant", "acme", "messages_per_minute=20")
    said = shell.says("explain", KEY, "--message", "hi").splitlines()
    assert said[1:] == ["Unless it is over a limit: messagesPerMinute=20. Each process counts for itself."]


def test_explain_says_what_a_stop_word_would_do(shell: Shell) -> None:
    shell.says("set", "tenant", "acme", "stop_words=basta")
    said = shell.says("explain", KEY, "--message", "Basta!")
    assert said == "It would drop what waits and be handed to the agent at once, because of: stop word.\n"


def test_a_long_value_is_cut_where_rules_are_explained(shell: Shell) -> None:
    assert max(map(len, shell.says("explain", KEY).splitlines())) < 110


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["get", "tenant"], "Which tenant? Write its id after the scope."),
        (["get", "tenant", "zeta"], "Nothing is set for this scope"),
        (["set", "tenant", "acme"], "Which rules? Write NAME=VALUE"),
        (["set", "tenant", "acme", "silence=5"], "silence=5: there is no rule of that name; did you mean silence_ms?"),
        (["set", "tenant", "acme", "volume=5"], "there are: enabled, silence_ms"),
        (["set", "tenant", "silence_ms=5"], "Which tenant? Write its id after the scope."),
        (["set", "default", "acme", "silence_ms=5"], "acme: write NAME=VALUE"),
        (["set", "conversation", "ann", "silence_ms=5"], "A conversation key reads"),
        (["set", "tenant", "acme", "on_busy=wait"], "allowed are 'queue', 'interrupt', 'steer', 'reject'"),
        (["set", "tenant", "acme", "silence_ms=soon"], "Expected `int | null`, got `str`"),
        (["set", "team", "acme", "silence_ms=5"], 'There is no scope "team"'),
        (["explain", "ann"], "A conversation key reads"),
        (["explain", "ann", "--message", "hi"], "A conversation key reads"),
    ],
)
def test_mistakes_are_explained(shell: Shell, words: list[str], says: str) -> None:
    assert says in shell.complains(*words)
