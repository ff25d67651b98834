"""A primary and its replica without anybody who watches over them: whoever runs them promotes."""

from pathlib import Path

from harness.databases import HOST, Group, Valkey, until


class Pair(Group):
    """`primary` and `replica` change places when the replica is promoted."""

    def __init__(self, folder: Path, *options: str, is_safe: bool = True) -> None:
        options = ("repl-diskless-sync-delay 0", *options)  # there is no second replica to wait for
        self.primary = Valkey(folder / "one", *options, is_safe=is_safe)
        self.replica = Valkey(folder / "other", f"replicaof {HOST} {self.primary.port}", *options, is_safe=is_safe)
        super().__init__(self.primary, self.replica)

    def cut_off(self) -> None:
        """The replica gets nothing more, and what is under way to it is lost, until it is resumed."""
        self.replica.pause()
        self.primary.ask("CLIENT", "KILL", "TYPE", "replica")

    def hand_over(self) -> None:
        """As planned: writes wait until the replica has everything, and the two change places."""
        self.primary.ask("FAILOVER", "TO", HOST, self.replica.port)
        until(lambda: self.replica.ask("ROLE")[0] == b"master")
        self._change_places()
        self.wait()

    def promote(self) -> None:
        """The replica takes over as it is, though the primary may be gone."""
        self.replica.ask("REPLICAOF", "NO", "ONE")
        self._change_places()

    def follow(self) -> None:
        """The server that was primary before follows the new one; whatever only it had is gone."""
        if not self.replica.is_running:
            self.replica.start()
        self.replica.ask("REPLICAOF", HOST, self.primary.port)
        self.wait()

    def wait(self) -> None:
        """Until the replica follows, also after it was cut off."""
        until(lambda: self.replica.ask("INFO", "replication").get("master_link_status") == "up")
        for server in (self.primary, self.replica):
            server.ask("CONFIG", "REWRITE")  # one that is started again keeps its role

    def _change_places(self) -> None:
        self.primary, self.replica = self.replica, self.primary

    def _join(self) -> None:
        self.wait()
