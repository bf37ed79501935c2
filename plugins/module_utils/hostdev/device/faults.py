"""The one fault family: every failure says what was tried, on what, what the system said, and what to do."""

from __future__ import annotations


class Fault(Exception):
    """A failure that the user can read and act upon.

    what: what was tried, as a phrase that follows "cannot" ("bind to vfio-pci").
    subject: on what (an address, a path, a field with its position).
    cause: what the system said, or which rule was broken.
    hint: what to do; empty when there is nothing to do.
    """

    def __init__(self, *, what: str, subject: str, cause: str, hint: str = "") -> None:
        self.what, self.subject, self.cause, self.hint = what, subject, cause, hint
        super().__init__(self.text())

    def text(self) -> str:
        """Return the one-line message: "cannot WHAT: SUBJECT: CAUSE. HINT"."""
        line = f"cannot {self.what}: {self.subject}: {self.cause}"
        return f"{line.removesuffix('.')}. {self.hint}" if self.hint else line

    def as_dict(self) -> dict[str, str]:
        """Return the four parts and the kind, for JSON output and module results."""
        return {"kind": type(self).__name__.lower(), "what": self.what, "subject": self.subject, "cause": self.cause, "hint": self.hint}


class Absent(Fault):
    """What was asked for does not exist."""


class Busy(Fault):
    """Somebody holds it; trying later may succeed."""


class Refused(Fault):
    """A safety or validation rule forbids it; trying again changes nothing."""


class Unsupported(Fault):
    """This machine or this version cannot do it."""


class Timeout(Fault):
    """It did not happen within its time."""
