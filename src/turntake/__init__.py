"""Turns bursts of chat messages into turns, and looks after each until it is answered."""

from turntake.arrival import Arrival, Receipt
from turntake.deliver.turn import Turn
from turntake.errors import (
    Away,
    ClaimLost,
    ConfigurationError,
    GiveUp,
    InvalidMessage,
    MissingExtra,
    RateLimited,
    RetryLater,
    StoreUnavailable,
    TurntakeError,
)
from turntake.observe.observer import Observer
from turntake.rules.conversation import Touch
from turntake.rules.key import ConversationKey
from turntake.rules.message import Attachment, Message
from turntake.rules.rules import PRESETS, Rules
from turntake.service import TurnTake

__all__ = [
    "PRESETS",
    "Arrival",
    "Attachment",
    "Away",
    "ClaimLost",
    "ConfigurationError",
    "ConversationKey",
    "GiveUp",
    "InvalidMessage",
    "Message",
    "MissingExtra",
    "Observer",
    "RateLimited",
    "Receipt",
    "RetryLater",
    "Rules",
    "StoreUnavailable",
    "Touch",
    "Turn",
    "TurnTake",
    "TurntakeError",
]
