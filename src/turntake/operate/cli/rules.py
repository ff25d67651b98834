"""`turntake rules`: what is set for whom, by whom and since when, and what that means for one conversation."""

from difflib import get_close_matches
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from cyclopts import App, Parameter

from turntake.clock import Clock, SystemClock
from turntake.errors import ConfigurationError
from turntake.http.rules import JSON_NAMES
from turntake.operate.cli.connection import Key, Url, connected, since, until
from turntake.operate.cli.flags import Config, Json, option
from turntake.operate.cli.output import clean, counted, paint, say, say_json, short, table
from turntake.rules.key import ConversationKey
from turntake.rules.rules import WORD_LISTS

PATH = "/v1/rules"
WIDTH = 40  # of a value that is explained: all but texts and word lists fit
_NAMES = {**{name: name for name in JSON_NAMES}, **{shown: name for name, shown in JSON_NAMES.items()}}

Scope = Annotated[str, Parameter(help="default, platform, tenant, agent or conversation.")]
Id = Annotated[str, Parameter(help="Which one: a platform's, tenant's or agent's name, or a conversation's key.")]

app = App(
    name="rules",
    help_epilogue="""
What is set here counts for every process within two seconds, and is kept in
the store; what waits gets the deadline that the new rules give it. The more
specific scope counts: default < platform < tenant < agent < conversation.

Examples:

    turntake rules get                                   all that is set
    turntake rules set tenant acme silence_ms=2500       and only that
    turntake rules set agent sales preset=quick-support
    turntake rules set tenant acme silence_ms=           no longer set
    turntake rules delete tenant acme
    turntake rules history
    turntake rules rollback 3
    turntake rules explain KEY                           each value, and why
    turntake rules explain KEY --message "hello?"        what would be done?
""",
)


@app.command(help_epilogue="")
def get(
    scope: Scope = "", id: Id = "", /, *, url: Url = None, key: Key = None, config: Config = None, json: Json = False
) -> None:
    """Show what is set: all of it, or for one scope."""
    with connected(url, key, config) as client:
        found = client.get(_path(scope, id) if scope else PATH)
        if json:
            return say_json(found)
        layers = client.get(PATH)["layers"] if scope else found["layers"]
    if scope:  # both what the settings say and what is set live
        layers = [layer for layer in layers if (layer["scope"], layer["id"]) == (found["scope"], found["id"])]
    if not layers:
        say("Nothing is set: every rule has its default. See `turntake rules explain KEY`.")
        return
    clock = SystemClock()
    for line in table(("SCOPE", "RULES", "SET"), [_row(layer, clock) for layer in layers]):
        say(line)


@app.command(name="set", help_epilogue="")
def set_(
    scope: Scope,
    /,
    *words: Annotated[str, Parameter(help="The id, unless the scope is default; then NAME=VALUE, as often as needed.")],
    url: Url = None,
    key: Key = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Set rules for a scope. What else is set for it stays; NAME= takes one away."""
    # An id may hold "=" too, but nobody calls a tenant like a rule.
    has_id = scope != "default" and bool(words) and words[0].partition("=")[0] not in _NAMES
    id, values = (words[0], words[1:]) if has_id else ("", words)
    path, given = _path(scope, id), dict(map(_assignment, values))
    if not given:
        raise ConfigurationError("Which rules? Write NAME=VALUE, such as silence_ms=2500.")
    with connected(url, key, config) as client:
        layer = client.patch(path, given)
    if json:
        return say_json(layer)
    say(
        f"Version {layer['version']}: {_scope(layer)} has {_rules(layer)}. Every process goes by it within two seconds."
    )
    for warning in layer.get("warnings", ()):  # a server of an earlier release gives none
        say(paint("yellow", clean(warning)))


@app.command(help_epilogue="")
def delete(scope: Scope, id: Id = "", /, *, url: Url = None, key: Key = None, config: Config = None) -> None:
    """Take away what was set for a scope while the service runs."""
    with connected(url, key, config) as client:
        client.delete(_path(scope, id))
    say(f"Deleted: nothing is set for {clean(f'{scope} {id}')} any more but what the settings say.")


@app.command(help_epilogue="")
def history(*, url: Url = None, key: Key = None, config: Config = None, json: Json = False) -> None:
    """Show who changed which rules when, the latest change first."""
    with connected(url, key, config) as client:
        found = client.get(f"{PATH}/history")
    if json:
        return say_json(found)
    if not found["changes"]:
        say("Nothing was ever set while the service ran.")
        return
    clock = SystemClock()
    rows = [
        (
            change["version"] if number == 0 else "",
            _when(change, clock) if number == 0 else "",
            _scope(edit),
            _edit(edit),
        )
        for change in found["changes"]
        for number, edit in enumerate(change["edits"])
    ]
    for line in table(("VERSION", "WHEN, BY WHOM", "SCOPE", "CHANGE"), rows):
        say(line)


@app.command(help_epilogue="")
def rollback(
    version: Annotated[int, Parameter(help="The version, as `turntake rules history` shows it; 0 is none at all.")],
    /,
    *,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Go back to the rules of an earlier version; that is a new version, and can be undone too."""
    with connected(url, key, config) as client:
        found = client.post(f"{PATH}/rollback", {"version": version})
    if json:
        return say_json(found)
    live = [layer for layer in found["layers"] if layer["source"] == "live"]
    left = f"they are set for {counted(len(live), 'scope')}" if live else "nothing is set any more but in the settings"
    say(f"Version {found['version']}: the rules of version {version} again; {left}.")


@app.command(help_epilogue="")
def explain(
    conversation: Annotated[str, Parameter(help="Its key, as `turntake conversations` shows it.")],
    /,
    *,
    message: Annotated[str | None, option("A text: what would be done with it now?", "TEXT")] = None,
    agent: Annotated[str, option("For this agent. [the conversation's]", "NAME")] = "",
    url: Url = None,
    key: Key = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show every rule of a conversation and where it comes from, or what would be done with a message."""
    with connected(url, key, config) as client:
        if message is None:
            found = client.get(f"{PATH}/explain", conversation=conversation, agent=agent)
        else:
            found = client.post(f"{PATH}/explain", _message(conversation, message, agent))
    if json:
        return say_json(found)
    if message is not None:
        say(_preview(found, SystemClock()))
        return _say_limits(found)
    rows = [(name, short(_word(origin["value"]), WIDTH), _origin(origin)) for name, origin in found["rules"].items()]
    for line in table(("RULE", "VALUE", "SET FOR"), rows):
        say(line)


def _say_limits(found: dict[str, Any]) -> None:
    """The limits that the answer does not count; a server of an earlier release names none."""
    limits = ", ".join(f"{limit['rule']}={limit['perMinute']}" for limit in found.get("limits", ()))
    if limits:
        say(clean(f"Unless it is over a limit: {limits}. Each process counts for itself."))


def _message(conversation: str, text: str, agent: str) -> dict[str, Any]:
    try:
        key = ConversationKey.parse(conversation)
    except ValueError as error:
        raise ConfigurationError(f"{clean(conversation)}: {error}") from None
    return {**key._asdict(), "id": "turntake rules explain", "text": text, "agent": agent}


def _preview(found: dict[str, Any], clock: Clock) -> str:
    if found["status"] != "buffered":
        return f"It would be {clean(found['status'])}."
    stops = " It would stop the running answer." if found["interrupts"] else ""
    if found["reason"] == "stop word":
        return f"It would drop what waits and be handed to the agent at once, because of: stop word.{stops}"
    wait = f"{counted(found['messages'], 'message')} would wait and be due {until(found['dueAt'], clock)}"
    return f"{wait}, because of: {clean(found['reason'])}.{stops}"


def _assignment(word: str) -> tuple[str, Any]:
    """`silence_ms=2500` as JSON has it; None takes the rule away."""
    written, is_assignment, value = word.partition("=")
    if not is_assignment:
        raise ConfigurationError(f"{clean(word)}: write NAME=VALUE, such as silence_ms=2500.")
    name = _NAMES.get(written)
    if name is None:
        near = get_close_matches(written, JSON_NAMES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(JSON_NAMES)}."
        raise ConfigurationError(f"{clean(word)}: there is no rule of that name; {hint}")
    return JSON_NAMES[name], _value(name, value) if value else None


def _value(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return [item.strip() for item in text.split(",") if item.strip()] if name in WORD_LISTS else text


def _row(layer: dict[str, Any], clock: Clock) -> tuple[object, ...]:
    return _scope(layer), _rules(layer), "in the settings" if layer["source"] == "settings" else _when(layer, clock)


def _when(change: dict[str, Any], clock: Clock) -> str:
    back = f", back to {change['restored']}" if change.get("restored") is not None else ""
    return f"{since(change['at'], clock)} by {clean(change['author'])}{back}"


def _scope(layer: dict[str, Any]) -> str:
    return clean(f"{layer['scope']} {layer['id']}")


def _rules(said: dict[str, Any]) -> str:
    preset = [f"preset={said['preset']}"] if said["preset"] else []
    return clean(" ".join([*preset, *(f"{name}={_word(value)}" for name, value in said["rules"].items())])) or "nothing"


def _edit(edit: dict[str, Any]) -> str:
    before, after = ("nothing" if said is None else _rules(said) for said in (edit["before"], edit["after"]))
    return f"{before} -> {after}"


def _origin(origin: dict[str, Any]) -> str:
    if origin["source"] is None:
        return "nobody: the default"
    return f"{_scope(origin)} ({'live' if origin['source'] == 'live' else 'in the settings'})"


def _word(value: Any) -> str:
    if isinstance(value, list):
        return clean(", ".join(value)) or "none"
    return str(value).lower() if isinstance(value, bool) else clean(value)


def _path(scope: str, id: str) -> str:
    if scope == "default" and not id:
        return f"{PATH}/default"
    if not id:
        raise ConfigurationError(f"Which {clean(scope)}? Write its id after the scope.")
    return f"{PATH}/{quote(scope, safe='')}/{quote(id, safe='')}"
