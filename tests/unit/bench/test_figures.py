"""What `make bench` says of a figure, and that it times both sides alike."""

from __future__ import annotations

import pytest
from ansible_collections.vfio.passthrough.tests.bench.executions import Execution, ours_on_the_worker
from ansible_collections.vfio.passthrough.tests.bench.figures import Figure, interleaved, table


@pytest.mark.parametrize(
    ("figure", "ratio", "met"),
    [
        (Figure("x", "ms", 1.0, 4.0, 0.7, aims_at_ratio=True), 0.25, True),
        (Figure("x", "ms", 3.0, 4.0, 0.7, aims_at_ratio=True), 0.75, False),
        (Figure("x", "ms", 3.0, 0.0, 0.7, aims_at_ratio=True), None, None),
        (Figure("x", "1", 12, aim=12), None, True),
        (Figure("x", "1", 13, aim=12), None, False),
        (Figure("x", "s", 3.0, 2.0), 1.5, None),
    ],
)
def test_an_aim_is_an_upper_bound(figure: Figure, ratio: float | None, met: bool | None) -> None:
    assert (figure.ratio, figure.met) == (ratio, met)


def test_a_figure_has_the_agreed_keys() -> None:
    told = Figure("x", "ms", 1.23456, 4.0, 0.7, aims_at_ratio=True).as_dict()
    assert told == {"name": "x", "unit": "ms", "ours": 1.235, "peer": 4.0, "ratio": 0.3086, "aim": 0.7, "met": True}


def test_a_missed_aim_stands_out() -> None:
    head, line = table([Figure("x", "1", 13, aim=12)]).splitlines()
    assert line.split() == ["x", "1", "13", "-", "-", "<=", "12", "NO"]
    assert head.split()[0] == "FIGURE"


def test_both_sides_are_called_alike_in_turn() -> None:
    calls: list[str] = []
    pair = interleaved(lambda: calls.append("ours"), lambda: calls.append("peer"), 4)
    assert (len(pair.ours), len(pair.peer)) == (4, 4)
    assert calls[2:] == ["peer", "ours", "ours", "peer"] * 2


def test_only_what_the_four_roles_run_on_the_worker_counts() -> None:
    ran = [
        Execution("host", "a", "m", "ssh"),
        Execution("vfio.passthrough.launcher", "b", "m", "ssh"),
        Execution("vfio.passthrough.verify", "c", "m", "ssh"),
        Execution("vfio.passthrough.host", "d", "m", "local"),
        Execution("", "e", "m", "ssh"),
    ]
    assert [one.task for one in ours_on_the_worker(ran)] == ["a", "b"]
