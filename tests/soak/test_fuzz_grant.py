"""A million inputs for what reads a container's words and a kernel's tables: none is more than a request or a refusal."""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device import grant
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.grant import GRANTED, GrantServer, Place
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root
from ansible_collections.vfio.passthrough.tests.fakes import grant_lines
from hypothesis import given, settings
from hypothesis import strategies as st

INPUTS = 1_000_000
SEEDS = 10_000
LINES = 10_000
WORDS = [
    b"[",
    b"]",
    b"{",
    b"}",
    b'"',
    b"\\u0000",
    b"\\ud800",
    b"1e999",
    b"9" * 400,
    b"null",
    b"\n",
    b"\xff",
    b'"version":1',
    b"memlock_bytes",
]


def damaged(line: bytes, chance: random.Random) -> bytes:
    """Return a line with some of it lost, doubled, replaced or flipped."""
    text = bytearray(line)
    for dummy in range(chance.randint(1, 6)):
        place, end = sorted((chance.randint(0, len(text)), chance.randint(0, len(text))))
        text[place:end] = chance.choice(
            [b"", bytes(text[place:end]) * 2, chance.choice(WORDS), chance.randbytes(3), bytes(one ^ 32 for one in text[place:end])]
        )
    return bytes(text[: grant.LONGEST_REQUEST])


def test_no_line_of_a_million_is_more_than_a_request_or_a_refusal() -> None:
    counts = {"tried": 0, "requests": 0}

    @settings(max_examples=SEEDS, database=None, deadline=None)
    @given(grant_lines.LINES)
    def try_around(line: bytes) -> None:
        # seeded by the line: what fails fails again
        chance = random.Random(line)
        for dummy in range(INPUTS // SEEDS):
            counts["requests"] += grant_lines.check(damaged(line, chance))
            counts["tried"] += 1

    try_around()
    assert counts["tried"] >= INPUTS
    assert 0 < counts["requests"] < counts["tried"]


@settings(max_examples=SEEDS, database=None, deadline=None)
@given(st.text(max_size=300))
def test_no_id_leads_out_of_its_place(unit: str) -> None:
    grant_lines.check_folder(unit, "example.com/gpu")


def test_a_server_that_hears_ten_thousand_bad_lines_is_as_it_was(tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.mktemp("s")
    folder = str(base / "grant/X/16")
    server = GrantServer(Root())
    assert server.serve([Place("example.com/gpu", "16", folder, ("/dev/vfio/16",), (), vfio=True)]) == {}
    chance = random.Random(4711)
    right = grant.encode_request(grant.Request(1 << 30))
    before = 0
    for number in range(LINES):
        with socket.socket(socket.AF_UNIX) as made:
            made.settimeout(60)
            made.connect(f"{folder}/{grant.SOCKET}")
            made.sendall(damaged(right, chance))
            made.shutdown(socket.SHUT_WR)
            with pytest.raises(Fault), made.makefile("rb") as file:
                grant.decode_answer(file.readline())
        if number == 100:
            before = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) <= before
    assert sum(server.counts.values()) == LINES
    assert not [outcome for _resource, outcome in server.counts if outcome in {GRANTED, "fault"}]
    server.stop()
    assert Path(folder).is_dir()
