"""`/v1/rules/explain`: what the rules mean for one conversation, and what would be done with a message now."""

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from turntake.accept.body import Instant, checked
from turntake.accept.caller import caller_of, own_key
from turntake.accept.messages import MessageBody, arrival_of
from turntake.arrival import append_of
from turntake.errors import Problem
from turntake.http.json import answer, body_of, conversation_key, query_of
from turntake.http.rules import JSON_NAMES, RuleValue
from turntake.instants import rfc3339
from turntake.rules.key import ConversationKey
from turntake.rules.message_limits import Part
from turntake.rules.preview import preview
from turntake.rules.rates import RATE_RULES
from turntake.rules.scopes import ScopeKind, Source
from turntake.service import TurnTake


class ExplainQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A conversation by its key. Its agent is the one that its messages named, unless another is asked about."""

    conversation: str
    agent: Part = ""


class OriginView(msgspec.Struct, frozen=True):
    """A rule's value and the scope that says so; `source` is null if nobody set it."""

    value: RuleValue
    scope: ScopeKind
    id: str
    source: Source | None


class LimitView(msgspec.Struct, frozen=True, rename="camel"):
    """A limit that a message of the conversation counts towards: so much per minute, by the rule of this name."""

    rule: str
    per_minute: int


class ExplainView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Every rule of a conversation, and where its value comes from.

    `limits` are those that apply to it. What is left of them is not told: each process counts for itself.
    """

    conversation_key: str
    agent: str
    rules: dict[str, OriginView]
    limits: list[LimitView]


class PreviewView(ExplainView, frozen=True, rename="camel", kw_only=True):
    """What would be done with a message now: `messages` would wait together until `dueAt`, because of `reason`.

    `interrupts` is the turn whose running answer it would stop.
    """

    status: str
    messages: int
    due_at: Instant | None
    reason: str | None
    interrupts: str | None


async def explain(turns: TurnTake, request: Request) -> Response:
    asked = query_of(request, ExplainQuery)
    key = conversation_key(asked.conversation)
    if not caller_of(request.scope).sees(key):
        raise Problem(404, "This API key knows of no such conversation.")
    found = await turns.store.find(key)
    agent = asked.agent or (found.conversation.agent if found else "")
    view = ExplainView(
        conversation_key=str(key),
        agent=agent,
        rules=_origins(turns, key, agent),
        limits=_limits(turns, key, asked.agent),
    )
    return answer(view)


async def explain_message(turns: TurnTake, request: Request) -> Response:
    """What would be done with the message, if it came now; nothing is."""
    payload = await body_of(request, MessageBody)
    arrival = checked(arrival_of, payload)
    key = own_key(caller_of(request.scope), arrival.key)
    arrival, found = replace(arrival, key=key), await turns.store.find(key)
    agent = arrival.agent or (found.conversation.agent if found else "")
    what = preview(found, append_of(arrival, turns.rule_keeper.book), turns.clock.now())
    view = PreviewView(
        conversation_key=str(key),
        agent=agent,
        rules=_origins(turns, key, agent),
        limits=_limits(turns, key, arrival.agent),
        status=what.status,
        messages=what.waiting,
        due_at=None if what.due_at is None else rfc3339(what.due_at),
        reason=what.reason,
        interrupts=what.interrupted,
    )
    return answer(view)


def _origins(turns: TurnTake, key: ConversationKey, agent: str) -> dict[str, OriginView]:
    explained = turns.rule_keeper.book.explain(key, agent)
    return {JSON_NAMES[name]: OriginView(value, *scope, source) for name, (value, scope, source) in explained.items()}


def _limits(turns: TurnTake, key: ConversationKey, agent: str) -> list[LimitView]:
    """Messages are counted by the rules of the agent that they name themselves; 0 is no limit."""
    rules = turns.rule_keeper.book.rules_for(key, agent)
    limits = ((JSON_NAMES[name], getattr(rules, name)) for name in RATE_RULES)
    return [LimitView(name, per_minute) for name, per_minute in limits if per_minute]
