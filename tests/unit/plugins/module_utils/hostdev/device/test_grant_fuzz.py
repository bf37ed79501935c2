"""Whatever a container writes is one request or one refusal, and whatever a unit is called its folder stays in its place."""

from __future__ import annotations

import json

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device import grant
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault, Refused
from ansible_collections.vfio.passthrough.tests.fakes import grant_lines
from hypothesis import example, given, settings
from hypothesis import strategies as st

FEW = settings(max_examples=300, database=None, deadline=None)


@FEW
@given(grant_lines.LINES)
def test_a_line_is_a_request_or_refused(line: bytes) -> None:
    grant_lines.check(line)


@pytest.mark.parametrize("shape", [('{"version":1,"memlock_bytes":', "[", "]", "}"), ("", '{"version":', "}", "")])
def test_no_depth_is_more_than_a_refusal(shape: tuple[str, str, str, str]) -> None:
    before, opening, closing, after = shape
    for depth in (*range(1, 40), *range(900, 1100), 2000, 4000):
        assert not grant_lines.check(f"{before}{opening * depth}1{closing * depth}{after}".encode())


@FEW
@given(grant_lines.JSON)
def test_an_answer_is_an_answer_or_a_fault(value: object) -> None:
    try:
        answer = grant.decode_answer(json.dumps(value).encode())
    except Fault:
        return
    assert all(isinstance(node, str) for node in answer.nodes)


@FEW
@given(st.text(max_size=300), st.sampled_from(["example.com/gpu", "example.com/" + "n" * 63, f"{'d' * 200}.example/x"]))
@example("..", "example.com/gpu")
@example("", "example.com/gpu")
@example("\ud800", "example.com/gpu")
def test_a_units_folder_is_two_below_the_base(unit: str, resource: str) -> None:
    grant_lines.check_folder(unit, resource)


@FEW
@given(st.text(max_size=100), st.text(max_size=100))
def test_two_ids_stay_two(one: str, two: str) -> None:
    assert (grant.safe_id(one) == grant.safe_id(two)) == (one == two)


def test_a_refusal_tells_long_values_short() -> None:
    with pytest.raises(Refused) as caught:
        grant.decode_request(b'{"version":1,"memlock_bytes":"' + b"x" * 4000 + b'"}')
    assert len(caught.value.text()) < 300
