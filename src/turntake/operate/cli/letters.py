"""`turntake letters`: dead letters, which wait until somebody retries or discards them."""

import re
from typing import Annotated, Any
from urllib.parse import quote

from cyclopts import App, Parameter

from turntake.clock import DAY_MS, Clock, SystemClock
from turntake.errors import ConfigurationError
from turntake.instants import rfc3339, to_ms
from turntake.operate.cli.connection import Key, Url, connected, since
from turntake.operate.cli.flags import Config, Json, option, switch
from turntake.operate.cli.output import clean, clean_indented, counted, paint, say, say_json, short, table
from turntake.operate.client import Client

TEXT_WIDTH = 100
PAGE = 100  # few enough to be retried within the patience of a client
AGO = re.compile(r"(\d{1,6}) ?(s|min|h|d)")
UNITS_MS = {"s": 1_000, "min": 60_000, "h": 3_600_000, "d": DAY_MS}

Id = Annotated[str, Parameter(help="The letter's id, as `turntake letters list` shows it.")]

app = App(
    name="letters",
    help_epilogue="""
Examples:

    turntake letters list          the latest first
    turntake letters show ID       its messages, and what went wrong
    turntake letters retry ID      once the cause is mended: due at once
    turntake letters retry --since 2h --reason 502    all of an outage
    turntake letters retry --all   every one, also those cleared by order
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
    why = ": ".join(filter(None, (letter["reason"], letter["error"])))
    return letter["id"], when, letter["conversationKey"], letter["messageCount"], short(why, TEXT_WIDTH)


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
    if letter.get("trace"):  # a server of an earlier release knows none
        say("\nWhere the agent's exception came from:")
        for line in letter["trace"].splitlines():
            say(f"  {paint('dim', clean_indented(line))}")


@app.command(help_epilogue="")
def retry(
    id: Annotated[str | None, Parameter(help="The letter's id, as `turntake letters list` shows it.")] = None,
    /,
    *,
    all: Annotated[bool, switch("Every letter that there is now.")] = False,
    since: Annotated[str | None, option("Those of the last 90s, 15min, 2h or 3d, or since an instant.", "TIME")] = None,
    reason: Annotated[str, option("Those whose reason or error contains this.", "TEXT")] = "",
    url: Url = None,
    key: Key = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Retry a dead letter, or several: their messages wait in their conversations again, due at once."""
    several = all or since is not None or bool(reason)
    if several == (id is not None) or (all and (since is not None or reason)):
        raise ConfigurationError("Which letters? Give one ID, or --all, or --since and --reason, alone or together.")
    with connected(url, key, config) as client:
        if id is None:
            return _retry_several(client, _instant(since, SystemClock()), reason, json)
        conversation = client.post(f"{_path(id)}/retry")
    if json:
        return say_json(conversation)
    say(f"Due again: turntake conversations {clean(conversation['conversationKey'])}")


def _retry_several(client: Client, since: str | None, reason: str, json: bool) -> None:
    """Page by page. What fails again is a new letter, which is later than `before` and so is left alone."""
    body: dict[str, Any] = {"since": since, "reason": reason, "limit": PAGE}
    retried = 0
    while True:
        page = client.post("/v1/dead-letters/retry", body)
        retried += page["retried"]
        if page["cursor"] is None:
            break
        body |= {"cursor": page["cursor"], "before": page["before"]}
    if json:
        return say_json({"retried": retried})
    say(f"{counted(retried, 'letter')} due again." if retried else "No dead letter is like that.")


def _instant(since: str | None, clock: Clock) -> str | None:
    """The instant that `2h` or an RFC 3339 text means."""
    if since is None:
        return None
    if ago := AGO.fullmatch(since):
        return rfc3339(max(0, clock.now() - int(ago[1]) * UNITS_MS[ago[2]]))
    try:
        return rfc3339(to_ms(since))
    except ValueError:
        raise ConfigurationError(
            f"--since {clean(since)}: write 90s, 15min, 2h or 3d, or an instant like 2026-11-15T09:30:00Z."
        ) from None


@app.command(help_epilogue="")
def discard(id: Id, /, *, url: Url = None, key: Key = None, config: Config = None) -> None:
    """Discard a dead letter; its turn stays in the history."""
    with connected(url, key, config) as client:
        client.delete(_path(id))
    say(f"Discarded {clean(id)}.")


def _path(id: str) -> str:
    return f"/v1/dead-letters/{quote(id, safe='')}"
