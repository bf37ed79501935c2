from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Fault
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.guest.workplace import Workplace, warm_capabilities


def test_libvirt_gets_the_work_folder_and_the_programs(tmp_path: Path) -> None:
    env = Workplace(tmp_path).environment({"PATH": "/opt/bin", "PCI_RESOURCE_X": "1"})
    assert env["XDG_RUNTIME_DIR"] == str(tmp_path / "run")
    assert env["PATH"].startswith("/opt/bin:")
    assert "/usr/sbin" in env["PATH"].split(":")
    assert env["PCI_RESOURCE_X"] == "1"
    assert Workplace(tmp_path).environment({})["PATH"].startswith("/usr/local/sbin:")


def test_qemu_writes_the_serial_line_itself(tmp_path: Path) -> None:
    place = Workplace(tmp_path)
    place.prepare()
    place.prepare()
    assert (place.config / "libvirt/qemu.conf").read_text(encoding="ascii") == 'stdio_handler = "file"\n'
    assert place.runtime.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "w").touch()
    with pytest.raises(Fault, match=r"cannot prepare the work folder: .*/w.*: Not a directory .*emptyDir with fsGroup"):
        Workplace(tmp_path / "w").prepare()


def test_the_tail_of_the_log_begins_where_it_is_told(tmp_path: Path) -> None:
    place = Workplace(tmp_path)
    assert place.log_size() == 0
    assert place.log_tail() == "nothing"
    stamp = "2026-11-30 10:15:50.166+0000: 23: "
    place.daemon_log.write_text("".join(f"{stamp}error : {word}\n" for word in ("one", "two", "three", "four")), encoding="ascii")
    assert place.log_tail() == "error : two / error : three / error : four"
    assert place.log_tail(place.log_size()) == "nothing"


def _capabilities(folder: Path) -> Path:
    folder.mkdir()
    (folder / "abc.xml").write_text(
        "<qemuCaps>\n <qemuctime>1</qemuctime>\n <selfctime>2</selfctime>\n <v>3</v>\n</qemuCaps>\n", encoding="ascii"
    )
    return folder


def test_libvirts_knowledge_of_qemu_is_stamped_with_the_times_that_the_programs_have_here(tmp_path: Path) -> None:
    emulator, daemon = tmp_path / "qemu", tmp_path / "libvirtd"
    emulator.touch()
    daemon.touch()
    assert warm_capabilities(_capabilities(tmp_path / "warm"), tmp_path / "cache", emulator, daemon) == 1
    text = (tmp_path / "cache/libvirt/qemu/cache/capabilities/abc.xml").read_text(encoding="ascii")
    assert f"<qemuctime>{int(emulator.stat().st_ctime)}</qemuctime>" in text
    assert "<selfctime>2<" not in text
    assert "<v>3</v>" in text


def test_without_qemu_nothing_is_copied(tmp_path: Path) -> None:
    assert warm_capabilities(_capabilities(tmp_path / "warm"), tmp_path / "cache", tmp_path / "none", tmp_path / "none") == 0
