"""`turntake letters`: dead letters, which wait until somebody retries or discards them."""

from typing import Annotated, Any
from urllib.parse import quote

from cyclopts import App, Parameter

from turntake.clock import SystemClock
from turntake.operate.cli.connection import Key, Url, connected, since
from turntake.operate.cli.flags import Config, Json, option
from turntake.operate.cli.output import clean, counted, paint, say, say_json, short, table

TEXT_WIDTH = 60

Id = Annotated[str, Parameter(help="The letter's id, as `turntake letters list` shows it.")]

app = App(
    name="letters",
    help_epilogue="""
Examples:

    turntake letters list          the latest first
    turntake letters show ID       its messages, and what went wrong
    turntake letters retry ID      once the cause is mended: due at once
    turntake letters discard ID    nobody needs to answer this any more
""",
)


@app.command(name="list", help_epilogue="")
def list_(
    *,
    limit: Annotated[int, option("How many at most. [50]", "NUMBER")] = 50,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """List dead letters, the latest first."""
    with connected(url, key, config) as client:
        page = client.get("/v1/dead-letters", limit=limit)
    if json:
        return say_json(page)
    letters = page["deadLetters"]
    if not letters:
        say("No dead letters: every message was answered, or still waits for its answer.")
        return
    clock = SystemClock()
    for line in table(
        ("ID", "WHEN", "CONVERSATION", "MESSAGES", "REASON"), [_row(letter, clock) for letter in letters]
    ):
        say(line)


def _row(letter: dict[str, Any], clock: SystemClock) -> tuple[object, ...]:
    when = since(letter["at"], clock)
    return letter["id"], when, letter["conversationKey"], letter["messageCount"], short(letter["reason"], TEXT_WIDTH)


@app.command(help_epilogue="")
def show(id: Id, /, *, url: Url = None, key: Key = None, config: Config = None, json: Json = False) -> None:
    """Show a dead letter: its messages, and what went wrong."""
    with connected(url, key, config) as client:
        letter = client.get(_path(id))
    if json:
        return say_json(letter)
    say(f"{paint('bold', clean(letter['id']))}  {since(letter['at'], SystemClock())}")
    say(f"conversation  {clean(letter['conversationKey'])}")
    say(f"reason        {clean(letter['reason'])}, after {counted(letter['attempts'], 'attempt')}")
    say(f"error         {clean(letter['error']) or 'none'}")
    say(f"\n{counted(letter['messageCount'], 'message').capitalize()}:")
    for message in letter["messages"]:
        say(f"  {clean(message['text']) or '(no text)'}")


@app.command(help_epilogue="")
def retry(id: Id, /, *, url: Url = None, key: Key = None, config: Config = None, json: Json = False) -> None:
    """Retry a dead letter: its messages wait in their conversation again, due at once."""
    with connected(url, key, config) as client:
        conversation = client.post(f"{_path(id)}/retry")
    if json:
        return say_json(conversation)
    say(f"Due again: turntake conversations {clean(conversation['conversationKey'])}")


@app.command(help_epilogue="")
def discard(id: Id, /, *, url: Url = None, key: Key = None, config: Config = None) -> None:
    """Discard a dead letter; its turn stays in the history."""
    with connected(url, key, config) as client:
        client.delete(_path(id))
    say(f"Discarded {clean(id)}.")


def _path(id: str) -> str:
    return f"/v1/dead-letters/{quote(id, safe='')}"
