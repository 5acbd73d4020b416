"""Errors an operator can act on: one sentence, and the exit code it ends with."""

# The exit code where something may be half done, or goes on without us.
INCOMPLETE = 5


class Refusal(Exception):
    """A sentence naming what went wrong and what to do; `code` is the exit code (design 8)."""

    def __init__(self, sentence: str, code: int = 3) -> None:
        """Keep the sentence and the exit code."""
        super().__init__(sentence)
        self.sentence = sentence
        self.code = code


class HostUnreachable(Refusal):
    """The host, or the container on it, cannot be reached."""


class UnknownHostKey(HostUnreachable):
    """The server's key (OpenSSH text) is in no known_hosts file: the operator must decide."""

    def __init__(self, sentence: str, host: str, port: int, key: str, fingerprint: str) -> None:
        """Keep what the question to the operator needs."""
        super().__init__(sentence)
        self.host = host
        self.port = port
        self.key = key
        self.fingerprint = fingerprint


class AnotherMachine(Refusal):
    """The machine that answers by a name is not the one that the store knows by it."""


class WrongUsage(Refusal):
    """An unknown check, panel or path: exit code 2."""

    def __init__(self, sentence: str) -> None:
        """Keep the sentence; the code is 2."""
        super().__init__(sentence, 2)
