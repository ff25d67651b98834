"""Replies to Instagram's direct messages. Pure."""

from turntake.platforms.messenger.replies import MessengerReplies
from turntake.platforms.replies import Recipient, Unit, path_id

LINKED_TO_A_PAGE = "graph.facebook.com"


class InstagramReplies(MessengerReplies):
    """Messenger's API on another server. A text is measured in bytes, so that "é" counts as two."""

    title = "Instagram"
    longest = 1000
    unit: Unit = "bytes"

    def _own_id(self, to: Recipient) -> str:
        """The account, by its id. Apps that came by a Facebook page have that page's token, and are `me`."""
        is_linked = LINKED_TO_A_PAGE in self._values["api_base"]
        return "me" if is_linked or not to.account else path_id(to.account, "The account's id")
