from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault, Unsupported
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kernel.record import PLACE, Former, Record, read_record, write_record
from ansible_collections.vfio.passthrough.tests.fakes.host import FakeHost

FORMER = Former("10de:2684", "nvidia", resource="nvidia.com/X", group="10", part="selected")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    root = FakeHost(tmp_path).root
    write_record(root, Record({"0000:01:00.0": FORMER}))
    assert read_record(root).functions == {"0000:01:00.0": FORMER}
    assert (tmp_path / PLACE.lstrip("/")).stat().st_mode & 0o777 == 0o600


def test_unknown_keys_survive_and_missing_ones_have_defaults(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.write(PLACE, json.dumps({"version": 1, "functions": {"0000:01:00.0": {"id": "10de:2684", "odd": 1}}, "mdevs": [1]}))
    record = read_record(host.root)
    assert record.functions == {"0000:01:00.0": Former("10de:2684")}
    write_record(host.root, record)
    assert json.loads((tmp_path / PLACE.lstrip("/")).read_text(encoding="utf-8"))["mdevs"] == [1]


def test_a_later_form_is_read_but_not_changed(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.write(PLACE, json.dumps({"version": 2, "functions": {"0000:01:00.0": {"id": "10de:2684", "driver": "nvidia"}}}))
    record = read_record(host.root)
    assert record.functions["0000:01:00.0"].driver == "nvidia"
    with pytest.raises(Unsupported, match="version 2"):
        write_record(host.root, Record())


def test_an_unreadable_record_is_never_taken_for_an_empty_one(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.write(PLACE, "{half")
    with pytest.raises(Fault, match="not our JSON"):
        read_record(host.root)


def test_an_empty_record_is_no_file(tmp_path: Path) -> None:
    root = FakeHost(tmp_path).root
    write_record(root, Record({"0000:01:00.0": FORMER}))
    write_record(root, Record())
    assert not (tmp_path / PLACE.lstrip("/")).parent.exists()
    write_record(root, Record(arguments={"quiet": True}))
    assert read_record(root).arguments == {"quiet": True}
