"""What containers may write to a grant socket: nothing in particular, JSON of any shape, and requests that are almost right."""

from __future__ import annotations

import json
import string
from pathlib import PurePosixPath

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device import grant
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused
from hypothesis import strategies as st

SAFE = set(string.ascii_letters + string.digits + ":._-")
_NUMBERS = st.integers(-(2**70), 2**70) | st.sampled_from([0, 1, -1, 2**63 - 1, 2**63, 2**64]) | st.floats()
_SCALARS = st.none() | st.booleans() | _NUMBERS | st.text(max_size=30)
JSON = st.recursive(_SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4))
_KEYS = st.sampled_from(["version", "memlock_bytes", "nodes", "", "Version"]) | st.text(max_size=5)
_ALMOST = st.dictionaries(_KEYS, JSON, max_size=4)
_RIGHT = st.fixed_dictionaries({"version": st.just(1), "memlock_bytes": _NUMBERS})


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    line = bytearray(draw((_ALMOST | _RIGHT).map(lambda value: json.dumps(value).encode())))
    for dummy in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(line)))
        line[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(line)


LINES = st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()) | _damaged()


def check(line: bytes) -> bool:
    """Decode a line as the service does and tell whether it is a request; an assertion error for what is neither request nor refusal."""
    try:
        request = grant.decode_request(line)
    except Refused as refused:
        answer = grant.encode_answer(refused)
        assert answer.endswith(b"\n") and answer.count(b"\n") == 1
        assert len(answer) < 2000
        return False
    assert not isinstance(request.memlock_bytes, bool)
    assert 0 <= request.memlock_bytes < 2**63
    return True


def check_folder(unit: str, resource: str) -> None:
    """Hold a unit's folder against its bounds: two below the base, of safe characters, short enough for a socket."""
    name = grant.safe_id(unit)
    assert set(name) <= SAFE and 0 < len(name) <= 63
    folder = PurePosixPath(grant.unit_folder(resource, name))
    assert str(folder.parent.parent) == grant.FOLDER
    assert not {folder.name, folder.parent.name} & {"", ".", ".."}
    assert len(f"{folder}/{grant.SOCKET}") <= 107
