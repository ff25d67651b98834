"""What must be so in the life of a store, kept from its answers alone: the machine's memory of what it was told."""

from collections import defaultdict

from msgspec.structs import replace

from turntake.rules.conversation import Closed, Conversation, Dead, ReplyReport, Retry, Settlement
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message, as_said, in_order
from turntake.rules.records import Append, Appended, Claim
from turntake.rules.rules import Rules


class Ledger:
    """What must be so, kept from the answers alone and never read from the store.

    What is open is known by its number, amendments and all; `sealed` are the numbers that a turn holds.
    """

    def __init__(self) -> None:
        self.open: dict[ConversationKey, dict[int, Message]] = defaultdict(dict)
        self.sealed: dict[ConversationKey, range] = {}
        self.resumed: dict[ConversationKey, list[range]] = defaultdict(list)
        self.letters: dict[str, tuple[ConversationKey, tuple[Message, ...]]] = {}
        self.ended: dict[str, tuple[ConversationKey, frozenset[str], int]] = {}
        self.forgotten: list[tuple[ConversationKey, frozenset[str], int]] = []
        self.answered: dict[str, tuple[Message, ...]] = {}
        self.failed: dict[str, set[int]] = defaultdict(set)
        self.leases: dict[ConversationKey, tuple[int, int]] = {}
        self.epochs: dict[ConversationKey, int] = defaultdict(int)
        self.seen: dict[str, Claim] = {}
        self.saved: set[str] = set()
        self.untried: set[str] = set()
        self.stops: dict[ConversationKey, int] = {}
        """The stop words that nobody took yet, by number."""
        self.max_wait_ms: dict[ConversationKey, int] = defaultdict(int)

    def knows(self, key: ConversationKey, message_id: str) -> bool:
        ended = (ids for owner, ids, _ in (*self.ended.values(), *self.forgotten) if owner == key)
        open_ids = {message.id for message in self.open[key].values()}
        return message_id in open_ids or any(message_id in ids for ids in ended)

    def is_anything_left(self, key: ConversationKey) -> bool:
        """Whether a store must have anything of it: what is open, a turn that is not forgotten, or an id."""
        has_ids = any(owner == key and ids for owner, ids, _ in self.forgotten)
        return bool(self.open[key]) or has_ids or any(owner == key for owner, _, _ in self.ended.values())

    def waiting(self, key: ConversationKey) -> tuple[Message, ...]:
        """All that waits, amendments too."""
        sealed = {seq for numbers in self.sealed_ranges(key) for seq in numbers}
        return tuple(self.open[key][seq] for seq in sorted(self.open[key]) if seq not in sealed)

    def sealed_ranges(self, key: ConversationKey) -> list[range]:
        """The numbers of all turns that are open, in the order in which a snapshot has them."""
        ranges = [*self.resumed[key], *([self.sealed[key]] if key in self.sealed else [])]
        return sorted(ranges, key=lambda numbers: numbers.start)

    def among(self, key: ConversationKey, numbers: range) -> tuple[Message, ...]:
        """What is open among these, which are all numbers of a turn."""
        return tuple(self.open[key][seq] for seq in numbers)

    def is_right(self, status: str, arrival: Append) -> bool:
        """Whether this may become of it. A stop word over a limit is taken if there is anything to stop: of an answer
        under way, only the store knows whether it can be called back."""
        is_over = arrival.over and _is_stop(arrival) and not self.waiting(arrival.key)
        if status == "buffered" and is_over and not self.knows(arrival.key, arrival.message.id):
            return bool(self.sealed_ranges(arrival.key))
        return status == self._status(arrival)

    def _status(self, arrival: Append) -> str:
        is_amendment, waiting = arrival.message.is_amendment, self.waiting(arrival.key)
        if is_amendment and not waiting:
            return "ignored"
        if self.knows(arrival.key, arrival.message.id):
            return "duplicate"
        if _is_stop(arrival):
            return "rejected" if arrival.over and not waiting else "buffered"
        rules = arrival.rules.of("")
        is_busy = bool(self.sealed_ranges(arrival.key)) and not waiting
        is_rejected = is_busy and rules.enabled and rules.on_busy == "reject" and not is_amendment
        return "rejected" if arrival.over or is_rejected else "buffered"

    def appended(self, arrival: Append, answer: Appended, now: int) -> None:
        key, message = arrival.key, arrival.message
        assert self.is_right(answer.status, arrival)
        if answer.rejected is not None:
            self.open[key][answer.seq] = replace(message, seq=answer.seq, received_at=now)
            self.end(key, answer.rejected, range(answer.seq, answer.seq + 1), now, is_letter=False)
        if answer.status != "buffered":
            return
        self.open[key][answer.seq] = replace(message, seq=answer.seq, received_at=now)
        self.max_wait_ms[key] = max(self.max_wait_ms[key], arrival.rules.of("").max_wait_ms)
        if _is_stop(arrival):
            self._stopped(key, answer, now)
        elif answer.interrupted is not None:
            assert not message.is_amendment, "an amendment stops no answer"
            assert answer.interrupted not in self.saved, "nothing interrupts after the point of no return"
            del self.leases[key], self.sealed[key]
            self._take_resumed(key)

    def _stopped(self, key: ConversationKey, answer: Appended, now: int) -> None:
        """A stop word is a turn by itself. All that waited is over, and so is a turn whose answer could be called back,
        which nobody claims again; one that cannot be called back goes on."""
        assert answer.interrupted is None or answer.interrupted not in self.saved, "what began to leave goes on"
        ended = list(answer.stopped)
        waiting = [message.seq for message in self.waiting(key) if message.seq != answer.seq]
        stop = self.stops.get(key)
        if stop is not None:
            self.end(key, ended.pop(0), range(stop, stop + 1), now, is_letter=False)
            if self.sealed.get(key) == range(stop, stop + 1):
                del self.sealed[key]
            else:
                self.resumed[key].remove(range(stop, stop + 1))
        if answer.interrupted is not None or (key in self.sealed and len(ended) > bool(waiting)):
            self.leases.pop(key, None)
            self.end(key, ended.pop(0), self.sealed.pop(key), now, is_letter=False)
        if waiting:
            self.end(key, ended.pop(0), range(waiting[0], answer.seq), now, is_letter=False)
        assert not ended, "a stop word ends nothing else"
        self.stops[key] = answer.seq
        self.resumed[key].insert(0, range(answer.seq, answer.seq + 1))
        self._take_resumed(key)

    def claimed(self, claim: Claim, lease_ms: int, now: int) -> None:
        assert self.leases.get(claim.key, (0, now))[1] <= now, "nobody else's lease runs"
        assert claim.epoch > self.epochs[claim.key]
        self.epochs[claim.key] = claim.epoch
        self.sealed[claim.key] = range(claim.turn.head, claim.turn.tail + 1)
        if self.stops.get(claim.key) == claim.turn.head:
            del self.stops[claim.key]
        assert claim.messages == in_order(as_said(self.among(claim.key, self.sealed[claim.key])))
        before = self.seen.get(claim.turn.id)
        if before is not None:
            assert claim.messages == before.messages, "the same turn has the same messages"
            assert claim.epoch > before.epoch
            tried = before.turn.attempt - (claim.turn.id in self.untried)
            assert claim.turn.attempt >= tried + (not claim.turn.progress.is_final)
        self.untried.discard(claim.turn.id)
        self.seen[claim.turn.id] = claim
        self.leases[claim.key] = (claim.epoch, now + lease_ms)

    def extended(self, claim: Claim, lease_ms: int, now: int) -> None:
        assert self.leases[claim.key][0] == claim.epoch, "only the latest claim extends"
        self.leases[claim.key] = (claim.epoch, now + lease_ms)

    def save(self, claim: Claim, lease_ms: int, now: int) -> None:
        epoch, until_at = self.leases[claim.key]
        assert epoch == claim.epoch, "only the latest claim saves"
        self.leases[claim.key] = (epoch, max(until_at, now + lease_ms))
        self.saved.add(claim.turn.id)

    def absorbed(self, claim: Claim, rules: Rules) -> None:
        """What waited next to the turn belongs to it, or the turn is as it was."""
        assert self.holds(claim), "only the latest claim absorbs"
        before, after = self.sealed[claim.key], range(claim.turn.head, claim.turn.tail + 1)
        assert before.start == after.start
        assert before == after or rules.on_busy == "steer"
        assert len(self.among(claim.key, after)) == len(after), "nothing in between is missing or settled"
        self.sealed[claim.key] = after
        assert claim.messages == in_order(as_said(self.among(claim.key, after)))
        self.seen[claim.turn.id] = claim

    def settled(self, claim: Claim, settlement: Settlement, now: int) -> None:
        if claim.turn.id in self.ended:
            return
        assert self.leases[claim.key][0] == claim.epoch, "only the latest claim settles"
        if isinstance(settlement, Retry):
            self.leases[claim.key] = (claim.epoch, now)
            if not settlement.is_tried:
                self.untried.add(claim.turn.id)
            return
        del self.leases[claim.key]
        is_letter = isinstance(settlement, Dead) or bool(self.failed[claim.turn.id])
        self.end(claim.key, claim.turn.id, self.sealed.pop(claim.key), now, is_letter=is_letter)
        self._take_resumed(claim.key)

    def holds(self, claim: Claim) -> bool:
        """Whether this is the latest claim of a turn that is open."""
        return self.leases.get(claim.key, (0, 0))[0] == claim.epoch

    def withdrawn(self, claim: Claim, closed: Closed, now: int) -> None:
        """The latest claim was refused and its turn is closed: its answer was stale."""
        assert closed.reason == "stale"
        assert claim.turn.id not in self.saved, "nothing is stale after the point of no return"
        assert any(not message.is_amendment for message in self.waiting(claim.key)), "something newer waits"
        del self.leases[claim.key]
        numbers = self.sealed.pop(claim.key)
        if closed.status == "discarded":
            self.end(claim.key, claim.turn.id, numbers, now, is_letter=False)
        self._take_resumed(claim.key)

    def end(self, key: ConversationKey, ended_id: str, numbers: range, now: int, is_letter: bool) -> None:
        messages = self.among(key, numbers)
        for message in messages:
            del self.open[key][message.seq]
        self.ended[ended_id] = (key, frozenset(message.id for message in messages), now)
        if is_letter:
            self.letters[ended_id] = (key, messages)
        else:
            self.answered[ended_id] = messages

    def reported(self, turn_id: str, report: ReplyReport, now: int) -> None:
        """A report that was news: a reply that failed makes a dead letter of an answered turn, or will do so."""
        if report.status != "failed":
            self.failed[turn_id].discard(report.index)
            return
        self.failed[turn_id].add(report.index)
        if turn_id in self.ended and turn_id not in self.letters:
            key, ids, _ = self.ended[turn_id]
            self.letters[turn_id] = (key, self.answered.pop(turn_id))
            self.ended[turn_id] = (key, ids, now)

    def retried(self, letter_id: str, conversation: Conversation) -> None:
        key, messages = self.letters.pop(letter_id)
        self.failed.pop(letter_id, None)
        if any(turn.id == letter_id for turn in conversation.open_turns):
            self.open[key] |= {message.seq: message for message in messages}
            self.resumed[key].append(range(messages[0].seq, messages[-1].seq + 1))
            del self.ended[letter_id]
            self._take_resumed(key)
            return
        for seq, message in enumerate(messages, conversation.next_seq - len(messages)):
            self.open[key][seq] = replace(message, seq=seq)
        self.ended[letter_id] = (key, frozenset(), self.ended[letter_id][2])

    def _take_resumed(self, key: ConversationKey) -> None:
        if key not in self.sealed and self.resumed[key]:
            self.sealed[key] = self.resumed[key].pop(0)

    def forget(self, before: int, ids_before: int) -> None:
        for ended_id, (key, ids, at) in list(self.ended.items()):
            if at < before and ended_id not in self.letters:
                del self.ended[ended_id]
                self.forgotten.append((key, ids, at))
        self.forgotten = [entry for entry in self.forgotten if entry[2] >= ids_before]
        self._drop_empty()

    def forget_chosen(self, who: ConversationKey, before: int, ids_before: int) -> None:
        """The same for one conversation; ids of turns that were forgotten earlier stay known."""
        for ended_id, (key, ids, at) in list(self.ended.items()):
            if key == who and at < before and ended_id not in self.letters:
                del self.ended[ended_id]
                if at >= ids_before:
                    self.forgotten.append((key, ids, at))
        self._drop_empty()

    def _drop_empty(self) -> None:
        for key in [key for key in self.epochs if not self.is_anything_left(key)]:
            del self.epochs[key]  # a conversation that begins anew counts its claims from the start


def _is_stop(arrival: Append) -> bool:
    return arrival.cue.of(arrival.agent).kind == "stop" and not arrival.message.is_amendment
