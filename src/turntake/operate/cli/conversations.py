"""`turntake conversations`: who waits and why; with a key, one of them, and orders to it."""

from typing import Annotated, Any
from urllib.parse import quote

from cyclopts import App, Parameter

from turntake.clock import SystemClock
from turntake.errors import ConfigurationError
from turntake.operate.cli.connection import Key, Url, connected, full_key, since, until
from turntake.operate.cli.flags import Config, Json, option, switch
from turntake.operate.cli.output import clean, paint, say, say_json, short, table
from turntake.operate.client import Client
from turntake.rules.conversation import Status

TEXT_WIDTH = 60

app = App(
    name="conversations",
    help_epilogue="""
Examples:

    turntake conversations                          those due first, first
    turntake conversations --status collecting      only those that wait
    turntake conversations KEY                      why it waits, its last turns
    turntake conversations KEY --flush              due now
    turntake conversations KEY --hold 60000         not before a minute from now
    turntake conversations KEY --clear              to the dead letters
""",
)


@app.default
def conversations(
    conversation: Annotated[
        str | None, Parameter(name="KEY", help="Show this one: a key as listed, or just its name. [list them]")
    ] = None,
    /,
    *,
    status: Annotated[Status | None, option("Only those in this state.")] = None,
    tenant: Annotated[str, option("Only this tenant's.", "NAME")] = "",
    channel: Annotated[str, option("Only this channel's.", "NAME")] = "",
    limit: Annotated[int, option("How many at most. [50]", "NUMBER")] = 50,
    flush: Annotated[bool, switch("With KEY: what waits is due now.")] = False,
    hold: Annotated[int | None, option("With KEY: hold what waits for this long.", "MS")] = None,
    clear: Annotated[bool, switch("With KEY: what waits becomes a dead letter.")] = False,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """List conversations, or show one: why it waits, its last turns."""
    orders = [name for name, is_given in (("flush", flush), ("hold", hold is not None), ("clear", clear)) if is_given]
    if len(orders) > 1 or (orders and conversation is None):
        raise ConfigurationError(f"--{orders[0]} is for one conversation, one order at a time: add its KEY.")
    with connected(url, key, config) as client:
        if conversation is None:
            query = {"status": status, "tenant": tenant, "channel": channel, "limit": limit}
            _list(_found(client, query), json)
        else:
            _show(_ordered(client, f"/v1/conversations/{quote(full_key(conversation), safe='')}", orders, hold), json)


def _found(client: Client, query: dict[str, Any]) -> dict[str, Any]:
    """The first `limit` that match. Where few of many do, a page may have fewer, and leads on to the next."""
    page: dict[str, Any] = client.get("/v1/conversations", **query)
    while page["cursor"] and len(page["conversations"]) < query["limit"]:
        missing = query["limit"] - len(page["conversations"])
        following = client.get("/v1/conversations", **query | {"limit": missing, "cursor": page["cursor"]})
        page = {**following, "conversations": [*page["conversations"], *following["conversations"]]}
    return page


def _ordered(client: Client, path: str, orders: list[str], hold: int | None) -> dict[str, Any]:
    for order in orders:
        client.post(f"{path}/{order}", {"forMs": hold} if order == "hold" else None)
    conversation: dict[str, Any] = client.get(path)
    return conversation


def _list(page: dict[str, Any], json: bool) -> None:
    if json:
        return say_json(page)
    conversations = page["conversations"]
    if not conversations:
        say('No conversations. Start one: turntake send "hello"')
        return
    clock = SystemClock()
    rows = [
        (c["conversationKey"], c["status"], c["messageCount"], until(c["dueAt"], clock), c["reason"] or "")
        for c in conversations
    ]
    for line in table(("CONVERSATION", "STATE", "WAITING", "DUE", "REASON"), rows):
        say(line)
    if page["cursor"]:
        say(paint("dim", f"The first {len(conversations)}; --limit shows more."))


def _show(conversation: dict[str, Any], json: bool) -> None:
    if json:
        return say_json(conversation)
    say(f"{paint('bold', clean(conversation['conversationKey']))}  {conversation['status']}")
    say(clean(conversation["why"]))
    turn = conversation["turn"]
    _messages("Being answered:", turn["messages"] if turn else [])
    _messages("Waiting:", conversation["messages"])
    _decisions(conversation["decisions"])
    _turns(conversation["turns"])


def _messages(title: str, messages: list[dict[str, Any]]) -> None:
    if messages:
        say(f"\n{title}")
        for message in messages:
            say(f"  {since(message['receivedAt'], SystemClock()):>12}  {short(message['text'], TEXT_WIDTH)}")


def _decisions(decisions: list[dict[str, Any]]) -> None:
    if decisions:
        say("\nHow its deadline moved:")
        for line in table(
            ("AT", "DUE", "REASON"), [(d["at"][11:23], d["dueAt"][11:23], d["reason"]) for d in decisions]
        ):
            say(f"  {line}")


def _turns(turns: list[dict[str, Any]]) -> None:
    if turns:
        say("\nLast turns:")
        rows = [
            (t["turnId"], t["status"], t["messageCount"], short(" / ".join(t["replies"]) or t["error"], TEXT_WIDTH))
            for t in turns
        ]
        for line in table(("TURN", "STATUS", "MESSAGES", "ANSWER"), rows):
            say(f"  {line}")
