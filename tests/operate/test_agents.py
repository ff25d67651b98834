"""From the words after `--agent` to an agent, and what is said when they lead nowhere."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.agent_server import agent_server, answers
from harness.conversation import a_turn, talking
from turntake import ConfigurationError, TurnTake
from turntake.deliver.sink import Answer
from turntake.operate.agents import agent_from, load_object

MODULE = """
from turntake import Rules, Turn, TurnTake
from turntake.deliver.handler import HandlerSink

async def answer(turn: Turn) -> str:
    return turn.text.upper()

def plain(turn):
    return ["one", "two"]

def nothing(): ...
def pair(turn, tools): ...

class Bot:
    async def __call__(self, turn):
        return "called"
    def method(self, turn):
        return "method"

bot = Bot()
sink = HandlerSink(answer)
turns = TurnTake("memory://", rules=Rules(silence_ms=5), agent=answer)
bare = TurnTake("memory://")
number = 7
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with somebody's agents in it, to start turntake in."""
    (tmp_path / "my_agents.py").write_text(MODULE)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("spec", "replies"),
    [
        ("echo", ("You sent 1 message (waited 1.0 s, then: silence):\nhello",)),
        ("my_agents:answer", ("HELLO",)),
        ("my_agents:plain", ("one", "two")),
        ("my_agents:bot", ("called",)),
        ("my_agents:bot.method", ("method",)),
        ("my_agents:sink", ("HELLO",)),
        ("my_agents:turns", ("HELLO",)),
    ],
)
async def test_it_answers(spec: str, replies: tuple[str, ...]) -> None:
    """A function, plain or async, a method, a callable, a sink, or the handler of a TurnTake."""
    assert await agent_from(spec).sink.deliver(a_turn()) == Answer(replies)


def test_a_turntake_object_comes_along() -> None:
    """So that its store and rules can be used."""
    turns = agent_from("my_agents:turns").turns
    assert isinstance(turns, TurnTake)
    assert (turns, turns.rules.silence_ms) == (load_object("my_agents:turns"), 5)
    assert agent_from("my_agents:answer").turns is None


async def test_a_url_is_called() -> None:
    async with agent_server(answers(200, "hi")) as server, talking(agent_from(server.url).sink) as talk:
        await talk.say("Hey")
        record = await talk.outcome()
    assert record.status == "answered"


QUEUE = """
from turntake.deliver.sink import Answer, Sink

class Queue(Sink):
    def __init__(self, url, options):
        self.url, self.options = url, options

    async def deliver(self, turn):
        return Answer((f"queued at {self.url} within {self.options['timeout_ms']} ms",))
"""


async def test_a_scheme_of_a_plug_in_is_called(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file and one entry point: the plug-in gets the whole URL and what is set for agents."""
    (folder / "my_queue.py").write_text(QUEUE)
    metadata = folder / "my_queue-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-queue\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[turntake.sinks]\nqueue = my_queue:Queue\n")
    monkeypatch.syspath_prepend(str(folder))
    agent = agent_from("Queue://orders", {"timeout_ms": 5})
    assert await agent.sink.deliver(a_turn()) == Answer(("queued at Queue://orders within 5 ms",))


def test_the_current_folder_comes_first(folder: Path) -> None:
    """A file of the same name elsewhere on the path is not taken for it."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "my_agents.py").write_text("answer = None")
    sys.path.insert(0, str(elsewhere))
    assert callable(load_object("my_agents:answer"))


@pytest.mark.parametrize(
    ("spec", "advice"),
    [
        ("answer", "write `echo`, a URL, or module:attribute"),
        ("", "write `echo`"),
        ("my_agents:", "write `echo`"),
        (":answer", "write `echo`"),
        ("my_agent:answer", r"no module 'my_agent' in .*did you mean 'my_agents'\?.*start turntake in the folder"),
        ("no.such.module:answer", "no module 'no'"),
        ("my_agents.py:answer", "write 'my_agents' instead of 'my_agents.py'"),
        ("./my_agents.py:answer", "write 'my_agents' instead"),
        ("my_agents:anser", r"no 'anser' in 'my_agents' \(did you mean 'answer'\?\)"),
        ("my_agents:bot.metod", "no 'metod' in a Bot"),
        ("my_agents:number", "of type int: name a function that takes a Turn"),
        ("my_agents:number.nothing", "no 'nothing' in a int"),
        ("my_agents:Bot", "is a class: name a function, or an instance"),
        ("my_agents:nothing", r"takes \(\), but is called with one argument.*async def nothing\(turn\)"),
        ("my_agents:pair", r"takes \(turn, tools\)"),
        ("my_agents:bare", "has no handler yet: decorate a function"),
        ("ftp://host/agent", "No agent can be reached by ftp://; this installation can call: http://, https://"),
        ("HTTPS://", "Only http:// and https://"),
        ("https://ada:sesame@host/", "contains a user or password"),
    ],
)
def test_what_leads_nowhere_says_what_to_do(spec: str, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice) as refused:
        agent_from(spec)
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("import no_such_sdk", "'broken' imports 'no_such_sdk', which is not installed here"),
        (
            "import sys\nsys.exit('bye')",
            r"Importing 'broken' called sys\.exit\(\): what a program starts belongs under",
        ),
        ("x = 1\ny = x + z", r"Importing 'broken' raised NameError: .* \(broken.py:2\)"),
        ("x = 1\ndef answer(turn)\n    pass", r"Importing 'broken' raised SyntaxError: expected ':' \(broken.py:2\)\."),
    ],
)
def test_a_module_that_breaks_says_where(folder: Path, source: str, advice: str) -> None:
    """The fault is in the module, not in the way it was named."""
    (folder / "broken.py").write_text(source)
    with pytest.raises(ConfigurationError, match=advice):
        agent_from("broken:answer")
