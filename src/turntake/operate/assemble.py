"""From settings to the running parts: which agent, which way out, which TurnTake."""

from typing import NamedTuple

from turntake.deliver.options import ReplyOptions
from turntake.deliver.outbound import NoOutbound, Outbound
from turntake.operate.account_options import Account, senders_of
from turntake.operate.account_options import accounts as accounts_in
from turntake.operate.agents import Agent, agent_from
from turntake.operate.options.settings import Settings
from turntake.service import TurnTake

OWN = ("store", "rules.", "worker.", "history.")


class Parts(NamedTuple):
    """What was built, and who must close it: the parts' maker, except for a TurnTake that the agent's module made."""

    turns: TurnTake
    agent: Agent
    outbound: Outbound
    accounts: list[Account]
    ignored: tuple[str, ...] = ()

    async def aclose(self) -> None:
        await self.agent.sink.aclose()
        await self.outbound.aclose()


def assemble(settings: Settings) -> Parts:
    """A TurnTake as the settings say, not yet entered. Raises ConfigurationError."""
    agent = agent_of(settings)
    accounts = accounts_in(settings)
    outbound = outbound_of(settings, accounts)
    if agent.turns is not None:
        return _named(agent, agent.turns, settings, outbound, accounts)
    turns = TurnTake(
        settings("store"),
        rules=settings.rules,
        agent=agent.sink,
        outbound=outbound,
        role=settings("role"),
        concurrency=settings("worker.concurrency"),
        lease_ms=settings("worker.lease_ms"),
        keep_ms=settings("history.keep_ms"),
        shutdown_ms=settings("worker.shutdown_ms"),
    )
    return Parts(turns, agent, outbound, accounts)


def agent_of(settings: Settings) -> Agent:
    return agent_from(
        settings("agent"),
        {
            "secrets": settings("agent_secret"),
            "timeout_ms": settings("http_agent.timeout_ms"),
            "complete_within_ms": settings("http_agent.complete_within_ms"),
        },
    )


def outbound_of(settings: Settings, accounts: list[Account]) -> Outbound:
    """Replies stay with their turns unless they have somewhere to go; only then is an HTTP client loaded."""
    url, senders = settings("generic.callback_url"), senders_of(accounts)
    if not url and not senders:
        return NoOutbound()
    from turntake.deliver.callback import Callback
    from turntake.deliver.replies import Replies

    callback = Callback(url, secrets=settings("generic.secret"))
    if not senders:
        return callback
    options = ReplyOptions(
        on_unknown=settings("replies.on_unknown"),
        timeout_ms=settings("replies.timeout_ms"),
        quote=settings("replies.quote"),
        typing=settings("replies.typing"),
    )
    return Replies(senders, callback, options)


def _named(agent: Agent, turns: TurnTake, settings: Settings, outbound: Outbound, accounts: list[Account]) -> Parts:
    """The object that `module:turns` names has its own store and rules; of ours it takes the role and the way out."""
    if settings.is_set("role"):
        turns.role = settings("role")
    turns.set_outbound(outbound)
    ignored = tuple(key for key in settings.given if key.startswith(OWN) and settings.is_set(key))
    return Parts(turns, agent, outbound, accounts, ignored)
