"""The cue of a message, by the rules that it arrives under. Pure."""

from turntake.rules.message import Message
from turntake.rules.rules import Rules, RulesByAgent
from turntake.rules.words import CUT, NO_CUE, Cue, CueByAgent, cue_in


def cue_of(message: Message, rules: RulesByAgent, agent: str = "", *, is_cut: bool = False) -> CueByAgent:
    """What a message says about the wait. Its text `is_cut` if it fills the longest one that its platform takes.

    If the rules differ by agent and the message names none, the text is looked at once it is known which agent counts.
    """
    if agent or isinstance(rules, Rules):
        return _cue(message, rules.of(agent), is_cut)
    return AgentCues(message, rules, is_cut)


class AgentCues:
    """The cues of one message, each looked for once however often the store asks."""

    __slots__ = ("_is_cut", "_known", "_message", "_rules")

    def __init__(self, message: Message, rules: RulesByAgent, is_cut: bool) -> None:
        self._message = message
        self._rules = rules
        self._is_cut = is_cut
        self._known: dict[str, Cue] = {}

    def of(self, agent: str) -> Cue:
        cue = self._known.get(agent)
        if cue is None:
            cue = self._known[agent] = _cue(self._message, self._rules.of(agent), self._is_cut)
        return cue


def _cue(message: Message, rules: Rules, is_cut: bool) -> Cue:
    """An amendment gives none: it moves no deadline. What is cut off cannot be trusted to be the last word."""
    if message.is_amendment:
        return NO_CUE
    if is_cut and rules.cut_text_ms:
        return CUT
    return cue_in(message.text, rules.words, not message.attachments) if rules.has_words else NO_CUE
