"""The archive of the runtime: the same from the same tree, and nothing but what was sent."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.glue.pack import digest, pack, tree, unpack, version_of
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "source"
    for name, text in {"__init__.py": '"""x"""\n\n__version__ = "1.2.3"\n', "b/a.py": "b", "a.py": "a"}.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")
    (place / "__pycache__").mkdir()
    (place / "__pycache__/a.cpython-311.pyc").write_bytes(b"x")
    return place


def test_names_are_sorted_and_compiled_files_left_out(folder: Path) -> None:
    assert list(tree(folder)) == ["hostdev/__init__.py", "hostdev/a.py", "hostdev/b/a.py"]


def test_times_and_modes_do_not_count(folder: Path) -> None:
    first = pack(tree(folder))
    (folder / "a.py").chmod(0o600)
    (folder / "a.py").touch()
    assert pack(tree(folder)) == first
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        assert {(info.date_time[0], info.external_attr >> 16) for info in archive.infolist()} == {(1980, 0o100644)}


def test_digest_is_of_names_and_contents() -> None:
    assert digest({"a": b"bc"}) != digest({"ab": b"c"})
    assert digest({"a": b"1", "b": b"2"}) == digest({"b": b"2", "a": b"1"})


def test_round_trip(folder: Path, tmp_path: Path) -> None:
    files = tree(folder)
    (tmp_path / "x.zip").write_bytes(pack(files))
    assert unpack(tmp_path / "x.zip", digest(files)) == files


@pytest.mark.parametrize(
    ("files", "wanted", "says"),
    [
        ({"hostdev/a.py": b"x"}, "0" * 64, "not 000"),
        ({"hostdev/../../etc/x": b"x"}, "", "outside"),
        ({"/etc/x": b"x"}, "", "outside"),
    ],
)
def test_refuses_another_or_a_straying_archive(tmp_path: Path, files: dict[str, bytes], wanted: str, says: str) -> None:
    (tmp_path / "x.zip").write_bytes(pack(files))
    with pytest.raises(Refused, match=says):
        unpack(tmp_path / "x.zip", wanted or digest(files))


def test_refuses_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"no")
    with pytest.raises(Refused, match="read the runtime's archive"):
        unpack(tmp_path / "x.zip", "")


def test_version() -> None:
    assert version_of('"""x"""\n\n__version__ = "1.2.3"\n') == "1.2.3"
    assert version_of(None) == version_of("nothing") == ""
