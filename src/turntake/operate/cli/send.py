"""`turntake send`: a person at the keyboard, so that a server can be tried without a platform."""

import getpass
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

from cyclopts import App, Parameter

from turntake.clock import SystemClock
from turntake.errors import ConfigurationError, TurntakeError
from turntake.operate.cli.connection import Key, Url, connected, until
from turntake.operate.cli.flags import Config, Json, option, switch
from turntake.operate.cli.output import clean, counted, paint, say, say_json
from turntake.operate.client import Client, Happened
from turntake.rules.key import ConversationKey

ENDS = ("answered", "dead-lettered")

app = App(
    name="send",
    help_epilogue="""
Each text is a message of its own; messages sent together make one turn.

Examples:

    turntake send "hi" "are you open tomorrow?"
    turntake send --follow "hello"            wait for the answer
    turntake send --conversation ann "hello"  as somebody else
    turntake send --json "hello"              the server's own words
""",
)


@app.default
def send(
    *texts: Annotated[str, Parameter(name="TEXT", help="What the person says.")],
    conversation: Annotated[str | None, option("Whose conversation. [your user name]", "NAME")] = None,
    sender: Annotated[str, option("Who says it, if several people share the conversation.", "NAME")] = "",
    id: Annotated[str | None, option("The message's id; sent again, it changes nothing. [random]", "ID")] = None,
    channel: Annotated[str, option("The channel it seems to come from. [generic]", "NAME")] = "",
    topic: Annotated[str, option("The topic or thread inside the conversation.", "NAME")] = "",
    tenant: Annotated[str, option("Whose customer it is. [default]", "NAME")] = "",
    follow: Annotated[bool, switch("Wait for the answer and print it.")] = False,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Send messages to a running server, as a person would."""
    if not texts:
        raise ConfigurationError('Nothing to send: turntake send "hello".')
    if id and len(texts) > 1:
        raise ConfigurationError("--id names one message: send one text, or leave --id out.")
    parts = {"conversation": conversation or _me(), "channel": channel, "topic": topic, "tenant": tenant}
    body = [parts | {"id": id or str(uuid.uuid4()), "sender": sender, "text": text} for text in texts]
    with connected(url, key, config) as client:
        if not follow:
            _post(client, body, json)
            return 0
        return _post_and_follow(client, body, _key(parts), json)


def _me() -> str:
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return "me"


def _key(parts: dict[str, str]) -> str:
    try:
        return str(ConversationKey.of(**parts))
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def _post(client: Client, body: list[dict[str, str]], json: bool) -> list[dict[str, Any]]:
    receipts: list[dict[str, Any]] = client.post("/v1/messages", body)
    if json:
        say_json(receipts)
        return receipts
    *_, last = receipts
    for status in dict.fromkeys(receipt["status"] for receipt in receipts):
        number = sum(receipt["status"] == status for receipt in receipts)
        say(f"{paint('green' if status == 'buffered' else 'yellow', status)} {counted(number, 'message')}")
    if last["dueAt"]:
        waiting = counted(last["messages"], "message")
        say(
            f"{waiting} of {clean(last['conversationKey'])} due {until(last['dueAt'], SystemClock())}: {last['reason']}"
        )
    return receipts


def _post_and_follow(client: Client, body: list[dict[str, str]], key: str, json: bool) -> int:
    """Watches before it sends, so that no answer is too quick for it."""
    with client.events(key) as happened:
        receipts = _post(client, body, json)
        sent = zip(body, receipts, strict=True)
        open_ids = {message["id"] for message, receipt in sent if receipt["status"] == "buffered"}
        code = 0
        for turn in _ended(client, happened) if open_ids else ():
            open_ids -= {message["id"] for message in turn["messages"]}
            code = max(code, _print_turn(turn, json))
            if not open_ids:
                return code
    if open_ids:
        raise TurntakeError("The server ended the stream before the answer: turntake conversations shows where it is.")
    return code


def _ended(client: Client, happened: Iterator[Happened]) -> Iterator[dict[str, Any]]:
    for event in happened:
        if event.kind in ENDS:
            yield client.get(f"/v1/turns/{event.data['turnId']}")


def _print_turn(turn: dict[str, Any], json: bool) -> int:
    is_dead = turn["status"] == "dead"
    if json:
        say_json(turn)
    elif is_dead:
        say(f"{paint('red', 'not answered')} ({clean(turn['error'])}); turntake letters show {turn['turnId']}")
    else:
        waited = f"{counted(turn['messageCount'], 'message')} in one turn; the wait ended by: {turn['reason']}"
        say(f"{paint('green', 'answered')} {paint('dim', waited)}")
        for reply in turn["replies"] or ["(nothing to say)"]:
            for line in reply.splitlines():
                say(f"  {clean(line)}")
    return int(is_dead)
