"""The grant socket's language and places, which the node's server and the launcher's client share.

A launcher asks for what it cannot do itself: to own its device nodes and to lock its guest's memory. One request
line goes in, one answer line comes out; both are JSON objects that end with a newline. Holding the mount of a
unit's folder is holding the unit, so a request names no device.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from .faults import Absent, Busy, Fault, Refused, Timeout, Unsupported
from .names import variable

VERSION = 1
FOLDER = "/run/vfio-passthrough/grant"
SOCKET = "grant.sock"
SHARED = "all"
LONGEST_LINE = 65536
LONGEST_REQUEST = 4096
_LONGEST_PATH = 107  # struct sockaddr_un holds 108 bytes, one of them the end mark
_LONGEST_ID = 63
_LONGEST_TOLD = 60
_UNSAFE = re.compile(r"[^A-Za-z0-9:._-]")
_KINDS: dict[str, type[Fault]] = {kind.__name__.lower(): kind for kind in (Absent, Busy, Refused, Timeout, Unsupported, Fault)}
_WHAT = "talk over the grant socket"


@dataclass(frozen=True)
class Request:
    """What a launcher asks for: the bytes that it wants to lock (0: only the ownership of its device nodes)."""

    memlock_bytes: int = 0


@dataclass(frozen=True)
class Answer:
    """What was done: the limit that now holds for the asking process, and the nodes that are now its own (paths as it sees them)."""

    memlock_bytes: int
    nodes: tuple[str, ...]


def encode_request(request: Request) -> bytes:
    """Return the request as one line."""
    return _line({"version": VERSION, "memlock_bytes": request.memlock_bytes})


def decode_request(line: bytes) -> Request:
    """Return the request that a line holds; Refused for anything that is not exactly one."""
    fields = _fields(line, "the request")
    if fields.get("version") != VERSION or isinstance(fields["version"], bool):
        raise _refused("the request", f"its version is {_told(fields.get('version'))}, this side speaks {VERSION}")
    unknown = sorted(set(fields) - {"version", "memlock_bytes"})
    if unknown:
        raise _refused("the request", f"unknown field {_told(unknown[0])}")
    return Request(_bytes_of(fields, "the request"))


def encode_answer(answer: Answer | Fault) -> bytes:
    """Return an answer, or the fault that stands in its place, as one line."""
    if isinstance(answer, Fault):
        return _line({"fault": answer.as_dict()})
    return _line({"memlock_bytes": answer.memlock_bytes, "nodes": list(answer.nodes)})


def decode_answer(line: bytes) -> Answer:
    """Return the answer that a line holds; raises the other side's fault, as its own kind, when it holds one."""
    fields = _fields(line, "the answer")
    fault = fields.get("fault")
    if isinstance(fault, dict):
        kind = _KINDS.get(str(fault.get("kind", "")), Fault)
        what, subject, cause, hint = (str(fault.get(part, "")) for part in ("what", "subject", "cause", "hint"))
        raise kind(what=what, subject=subject, cause=cause, hint=hint)
    nodes = fields.get("nodes")
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        raise _refused("the answer", "'nodes' is not a list of texts")
    return Answer(_bytes_of(fields, "the answer"), tuple(nodes))


def safe_id(text: str) -> str:
    """Return a unit's id as Kubernetes and file names take it: [A-Za-z0-9:._-], at most 63 characters.

    Other characters become "_"; whatever was changed is followed by 8 hex digits of its SHA-256, so that two ids stay two.
    """
    clean = _UNSAFE.sub("_", text)
    if clean == text and 0 < len(text) <= _LONGEST_ID and text.strip("."):
        return text
    return f"{clean[: _LONGEST_ID - 9]}_{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:8]}"


def unit_folder(resource: str, unit: str, base: str = FOLDER) -> str:
    """Return the folder of a unit's grant socket, the same path on the host and in the container.

    BASE/NAME/ID with NAME as in the environment variables. Where the socket's path would pass the 107 bytes of a unix
    socket, or a part the 255 of a file name, NAME and ID become the first 16 hex digits of their SHA-256.
    """
    parts = [variable("", resource)[1:], safe_id(unit)]
    if len(f"{base}/{parts[0]}/{parts[1]}/{SOCKET}".encode()) > _LONGEST_PATH:
        parts = [hashlib.sha256(part.encode()).hexdigest()[:16] for part in parts]
    return f"{base}/{parts[0]}/{parts[1]}"


def place_folder(resource: str, unit: str, base: str = FOLDER, *, shared: bool = False) -> str:
    """Return the folder of a unit's grant; shared: all units of the resource are one node, and have one folder."""
    return unit_folder(resource, SHARED if shared else unit, base)


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def _fields(line: bytes, whose: str) -> dict[str, Any]:
    try:
        fields = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _refused(whose, f"not one line of JSON: {error}") from error
    if not isinstance(fields, dict):
        raise _refused(whose, "not a JSON object")
    return fields


def _bytes_of(fields: dict[str, Any], whose: str) -> int:
    value = fields.get("memlock_bytes")
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise _refused(whose, f"'memlock_bytes' is {_told(value)}, not a number of bytes")
    return value


def _told(value: object) -> str:
    """Return a value of the other side for a message: it may be long, or nested as deep as the parser goes and no deeper."""
    if isinstance(value, (list, dict)):
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= _LONGEST_TOLD else f"{text[:_LONGEST_TOLD]}..."


def _refused(whose: str, cause: str) -> Refused:
    return Refused(what=_WHAT, subject=whose, cause=cause, hint="launcher and node service have to be of one release")
