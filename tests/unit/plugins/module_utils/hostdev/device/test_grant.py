from __future__ import annotations

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device import grant
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Busy, Refused


def test_what_is_asked_and_answered_comes_through() -> None:
    assert grant.encode_request(grant.Request(8 << 30)) == b'{"version":1,"memlock_bytes":8589934592}\n'
    assert grant.decode_request(grant.encode_request(grant.Request(0))) == grant.Request(0)
    answer = grant.Answer(7, ("/dev/vfio/18",))
    assert grant.decode_answer(grant.encode_answer(answer)) == answer


def test_a_fault_comes_through_as_its_own_kind() -> None:
    with pytest.raises(Busy) as caught:
        grant.decode_answer(grant.encode_answer(Busy(what="w", subject="s", cause="c", hint="h")))
    assert (caught.value.what, caught.value.subject, caught.value.cause, caught.value.hint) == ("w", "s", "c", "h")


@pytest.mark.parametrize(
    "line",
    [
        b"", b"8589934592", b"[]", b"\xff", b'{"version":1}', b'{"version":2,"memlock_bytes":0}', b'{"version":true,"memlock_bytes":0}',
        b'{"version":1,"memlock_bytes":-1}', b'{"version":1,"memlock_bytes":true}', b'{"version":1,"memlock_bytes":1.5}',
        b'{"version":1,"memlock_bytes":9223372036854775808}', b'{"version":1,"memlock_bytes":0,"nodes":["/dev/sda"]}', b"[" * 4000,
    ],
)  # fmt: skip
def test_anything_else_is_refused(line: bytes) -> None:
    with pytest.raises(Refused):
        grant.decode_request(line)


def test_ids_are_safe_and_stay_apart() -> None:
    assert grant.safe_id("18") == "18"
    assert grant.safe_id("..") != ".."
    assert "/" not in grant.safe_id("a/b")
    assert grant.safe_id("a/b") != grant.safe_id("a b")
    assert len(grant.safe_id("x" * 200)) <= 63


def test_a_folder_bears_its_names_while_the_socket_can_be_bound() -> None:
    assert grant.unit_folder("nvidia.com/AD102", "18") == "/run/vfio-passthrough/grant/NVIDIA_COM_AD102/18"
    long = grant.unit_folder("example.com/" + "n" * 63, "18")
    assert len(f"{long}/{grant.SOCKET}") <= 107
    assert long != grant.unit_folder("example.com/" + "n" * 62, "18")
