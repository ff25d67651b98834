"""Whose an account at a platform is: a webhook does not say which tenant its messages are for, and who answers them."""

from collections.abc import Mapping
from typing import NamedTuple

from turntake.platforms import address
from turntake.rules.key import ConversationKey


class Home(NamedTuple):
    """Whose the conversations of an account are, and which agent they are for; an empty one is the default."""

    tenant: str = ""
    agent: str = ""


Homes = Mapping[tuple[str, str], Home]
"""By the channel's name and the account's, which is "" for the only or first one."""
NOBODYS = Home()


def home_of(key: ConversationKey, homes: Homes) -> Home:
    """That of the account through which the answers of a conversation leave."""
    return homes.get((key.channel, address.read_account(key.account).name), NOBODYS)
