"""What each kind of fault may cause, beside the delay that every one of them may cause. Nothing else is excused.

How this works: a fault has a kind, and a kind has an allowance. Those that are not listed here allow a delay, a second
hand-over and a second reply under the same key, until a lease after they are over, as `Seen.is_disturbed` says. A store
that lost its latest writes is another matter: then the same numbers are given again and finished work comes again.
"""

from dataclasses import dataclass

from chaos.history import Fault

# A replica is behind by milliseconds; a busy machine makes more of them.
REPLICATION_S = 1.0
# Turns that were there when processes died again and again are tried one at a time, with a pause of a second or two
# between them for everybody else; so many come of a run's people on one process.
ISOLATION_S = 30.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """`undoes_work`: what was claimed, saved or settled meanwhile may come again, as if it had never been.
    `loses_messages`: so may what was acknowledged meanwhile, and nobody brings that back.
    `hurries`: turns may be handed over before they are due.
    `echoes`: retries may come as much later as the fault lasted, since pauses grow while nobody answers.
    `isolates`: turns that were under way may have to wait until they can be tried alone.
    """

    undoes_work: bool = False
    loses_messages: bool = False
    hurries: bool = False
    echoes: bool = False
    isolates: bool = False


DELAY = Allowance()
ALLOWED = {
    # A replica is promoted that may not have the latest writes. Nobody waited for it.
    "fail over": Allowance(undoes_work=True, loses_messages=True),
    "fail over, replica behind": Allowance(undoes_work=True, loses_messages=True),
    "kill primary": Allowance(undoes_work=True, loses_messages=True),
    "hang primary": Allowance(undoes_work=True, loses_messages=True),
    # With `wait` each message was on the replica before it was acknowledged; the work on it was not.
    "promote": Allowance(undoes_work=True),
    "promote, replica behind": Allowance(undoes_work=True),
    # The only process has no clock but its own.
    "step the store's clock": Allowance(hurries=True),
    "kill": Allowance(isolates=True),
    "poison": Allowance(isolates=True),
    "agent away": Allowance(echoes=True),
    "platform away": Allowance(echoes=True),
}


def allowance(fault: Fault) -> Allowance:
    return ALLOWED.get(fault.kind, DELAY)


def over_at(fault: Fault) -> float:
    """When nothing of it is left but leases that have to end."""
    return fault.ended_at + (fault.ended_at - fault.at if allowance(fault).echoes else 0)


def late_until(fault: Fault) -> float:
    """Until when it is a reason for being late, leases not counted."""
    return over_at(fault) + (ISOLATION_S if allowance(fault).isolates else 0)


def touches(fault: Fault, at: float) -> bool:
    """Whether what was written at that time may not have reached the replica."""
    return fault.at - REPLICATION_S <= at <= fault.ended_at
