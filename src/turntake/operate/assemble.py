"""From options to the running parts: which agent, which way out, which TurnTake."""

from typing import NamedTuple

import msgspec

from turntake.deliver.outbound import NoOutbound, Outbound
from turntake.observe.turn_log import TurnLog
from turntake.operate import logs
from turntake.operate.accounts import Account, callbacks_of, reply_apis_of, webhook_url
from turntake.operate.accounts import accounts as accounts_in
from turntake.operate.agents import Agent, agent_from
from turntake.operate.options.groups import Options
from turntake.service import TurnTake

OWN = ("store", "rules.", "worker.", "history.", "dedupe.", "letters.", "savings.")
"""Settings of a TurnTake: one that the agent's module made has its own."""


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


def assemble(options: Options) -> Parts:
    """A TurnTake as the options say, not yet entered. Raises ConfigurationError."""
    agent = agent_of(options)
    accounts = accounts_in(options)
    observers = [TurnLog()] if logs.shows_turns(options.log) else []
    outbound = outbound_of(options, accounts)
    if agent.turns is not None:
        # It has its own store and rules; of ours it takes the role and the way out.
        if options.sources.is_set("role"):
            agent.turns.role = options.role
        agent.turns.set_outbound(outbound)
        for observer in observers:
            agent.turns.observers.add(observer)
        ignored = tuple(key for key, value in options.sources.values.items() if value.is_set and key.startswith(OWN))
        return Parts(agent.turns, agent, outbound, accounts, ignored)
    turns = TurnTake(
        options.store,
        rules=options.layers,
        agent=agent.sink,
        outbound=outbound,
        role=options.role,
        concurrency=options.worker.concurrency,
        lease_ms=options.worker.lease_ms,
        shutdown_ms=options.worker.shutdown_ms,
        handler_ms=options.worker.handler_ms,
        keep_ms=options.history.keep_ms,
        dedupe_keep_ms=options.dedupe.keep_ms,
        letters_keep_ms=options.letters.keep_ms,
        observers=observers,
        call_price=options.savings.call_price,
        currency=options.savings.currency,
    )
    return Parts(turns, agent, outbound, accounts)


def agent_of(options: Options) -> Agent:
    http = {"secrets": options.agent_secret, **msgspec.structs.asdict(options.http_agent)}
    return agent_from(options.agent, http, options.handler.yields)


def outbound_of(options: Options, accounts: list[Account]) -> Outbound:
    """Replies stay with their turns unless they have somewhere to go; only then is an HTTP client loaded."""
    apis, callbacks = reply_apis_of(accounts), callbacks_of(accounts)
    for account in accounts:
        if options.public_url and account.id in apis:
            apis[account.id].webhook_url = webhook_url(account, options)
    outbound: Outbound = NoOutbound()
    if not apis and not callbacks:
        return outbound
    from turntake.deliver.callback import Callback
    from turntake.deliver.replies import Replies

    for channel, url, secret in callbacks:
        outbound = Callback(url, outbound, channel=channel, secrets=secret)
    return Replies(apis, outbound, options.replies) if apis else outbound
