"""The grant server: folders and sockets of places that come, change, go and return, and what asking there is answered."""

from __future__ import annotations

import logging
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Absent, Fault, Refused
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.grant import Answer, decode_answer, encode_request
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.grant import Request as Asked
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube import grant
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.kube.grant import GrantServer, Place
from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.root import Root

RESOURCE = "example.com/gpu"


class Stand:
    """A server over the folders of a short base."""

    def __init__(self, base: Path) -> None:
        self.base = base / "grant"
        self.server = GrantServer(Root())

    def place(self, unit: str, *, vfio: bool = True, served: bool = True) -> Place:
        return Place(RESOURCE, unit, str(self.base / "EXAMPLE_COM_GPU" / unit), (f"/dev/vfio/{unit}",), (), vfio, served)

    def socket(self, unit: str) -> Path:
        return Path(self.place(unit).folder, "grant.sock")

    def ask(self, unit: str, line: bytes = encode_request(Asked(0))) -> Answer:
        with socket.socket(socket.AF_UNIX) as made:
            made.settimeout(60)
            made.connect(str(self.socket(unit)))
            made.sendall(line)
            with made.makefile("rb") as file:
                return decode_answer(file.readline())


@pytest.fixture(name="stand")
def _stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    stand = Stand(tmp_path_factory.mktemp("s"))  # a socket's path has 107 characters
    yield stand
    stand.server.stop()


def test_a_socket_is_everybodys_below_a_folder_that_is_nobodys(stand: Stand) -> None:
    assert stand.server.serve([stand.place("16")]) == {}
    modes = [oct(one.stat().st_mode & 0o777) for one in (stand.base, stand.base / "EXAMPLE_COM_GPU/16", stand.socket("16"))]
    assert modes == ["0o700", "0o755", "0o666"]


def test_a_socket_is_everybodys_whatever_the_umask(stand: Stand) -> None:
    before = os.umask(0o077)
    try:
        stand.server.serve([stand.place("16")])
    finally:
        os.umask(before)
    assert stand.socket("16").stat().st_mode & 0o777 == 0o666
    assert os.listdir(stand.place("16").folder) == ["grant.sock"]


def test_what_a_killed_service_left_half_made_is_replaced(stand: Stand) -> None:
    folder = Path(stand.place("16").folder)
    folder.mkdir(parents=True)
    (folder / ".new").symlink_to("/etc/passwd")
    assert stand.server.serve([stand.place("16")]) == {}
    assert os.listdir(folder) == ["grant.sock"]


def test_folders_that_a_container_runtime_made_first_are_closed_to_other_users(stand: Stand) -> None:
    Path(stand.place("16").folder).mkdir(parents=True)
    stand.base.chmod(0o777)
    stand.server.serve([stand.place("16")])
    assert stand.base.stat().st_mode & 0o777 == 0o700


def test_nobody_of_the_host_is_granted_anything(stand: Stand) -> None:
    stand.server.serve([stand.place("16")])
    with pytest.raises(Refused, match="host's mount namespace"):
        stand.ask("16")
    with pytest.raises(Refused, match="not one line of JSON"):
        stand.ask("16", b"hello\n")
    assert stand.server.counts == {(RESOURCE, "refused"): 2}


def test_an_unforeseen_error_is_a_fault_too(stand: Stand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_given: object) -> Answer:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(grant, "attend", fail)
    stand.server.serve([stand.place("16")])
    with pytest.raises(Fault, match=r"ZeroDivisionError\('no'\)"):
        stand.ask("16")
    assert "ZeroDivisionError" in caplog.text
    with pytest.raises(Fault, match="ZeroDivisionError"):
        stand.ask("16")


def test_what_cannot_be_made_is_told_by_folder_and_spoils_nothing_else(stand: Stand) -> None:
    stand.base.mkdir()
    (stand.base / "EXAMPLE_COM_GPU").mkdir()
    (stand.base / "EXAMPLE_COM_GPU/16").write_text("in the way", encoding="ascii")
    (stand.base / "EXAMPLE_COM_GPU/17/grant.sock/in").mkdir(parents=True)
    causes = stand.server.serve([stand.place(unit) for unit in ("16", "17", "18")])
    assert set(causes) == {stand.place("16").folder, stand.place("17").folder}
    assert "cannot make a grant folder" in causes[stand.place("16").folder]
    assert "cannot open a grant socket" in causes[stand.place("17").folder]
    assert stand.socket("18").is_socket()
    (stand.base / "EXAMPLE_COM_GPU/16").unlink()
    (stand.base / "EXAMPLE_COM_GPU/17/grant.sock/in").rmdir()
    (stand.base / "EXAMPLE_COM_GPU/17/grant.sock").rmdir()
    assert stand.server.serve([stand.place(unit) for unit in ("16", "17", "18")]) == {}
    assert stand.socket("16").is_socket() and stand.socket("17").is_socket()


def test_looking_again_changes_nothing(stand: Stand) -> None:
    stand.server.serve([stand.place("16")])
    before = stand.socket("16").stat().st_ino
    stand.server.serve([stand.place("16")])
    assert stand.socket("16").stat().st_ino == before


def test_a_changed_unit_keeps_its_socket(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grant, "attend", lambda *given: Answer(0, given[3].required))
    stand.server.serve([stand.place("16")])
    assert stand.ask("16").nodes == ("/dev/vfio/16",)
    before = stand.socket("16").stat().st_ino
    stand.server.serve([Place(RESOURCE, "16", stand.place("16").folder, ("/dev/vfio/99",), ())])
    assert stand.ask("16").nodes == ("/dev/vfio/99",)
    assert stand.socket("16").stat().st_ino == before


@pytest.mark.parametrize("what", ["socket", "folder"])
def test_what_was_removed_is_made_again(stand: Stand, what: str) -> None:
    stand.server.serve([stand.place("16")])
    stand.socket("16").unlink()
    if what == "folder":
        os.rmdir(stand.place("16").folder)
    stand.server.serve([stand.place("16")])
    with pytest.raises(Refused, match="host's mount namespace"):
        stand.ask("16")


def test_a_restarted_service_binds_in_the_same_folder(stand: Stand) -> None:
    stand.server.serve([stand.place("16")])
    folder = Path(stand.place("16").folder)
    before = folder.stat().st_ino
    stand.server.stop()
    assert folder.is_dir() and not stand.socket("16").exists()
    stand.server = GrantServer(Root())
    stand.server.serve([stand.place("16")])
    assert folder.stat().st_ino == before
    with pytest.raises(Refused, match="host's mount namespace"):
        stand.ask("16")


def test_a_killed_services_socket_is_replaced(stand: Stand) -> None:
    folder = Path(stand.place("16").folder)
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(stand.socket("16")))
    stand.server.serve([stand.place("16")])
    with pytest.raises(Refused, match="host's mount namespace"):
        stand.ask("16")


def test_a_unit_that_is_gone_keeps_its_door_while_nobody_can_say_what_is_held(stand: Stand) -> None:
    stand.server.serve([stand.place("16"), stand.place("17")])
    stand.server.serve([stand.place("17")])
    with pytest.raises(Refused, match="host's mount namespace"):
        stand.ask("16")


def test_a_unit_that_is_gone_keeps_its_door_while_it_is_held_and_no_longer(stand: Stand) -> None:
    stand.server.serve([stand.place("16"), stand.place("17")])
    held = [stand.place("16", served=False)]
    stand.server.serve([stand.place("17")], held)
    with pytest.raises(Refused, match="host's mount namespace"):
        stand.ask("16")
    stand.server.serve([stand.place("17")], [])
    assert not stand.socket("16").exists()
    assert Path(stand.place("16").folder).is_dir()
    stand.server.serve([stand.place("16"), stand.place("17")], [])
    with pytest.raises(Refused, match="host's mount namespace"):
        stand.ask("16")


def test_a_unit_that_is_held_and_not_there_is_told_so_until_it_comes(stand: Stand) -> None:
    stand.server.serve([], [stand.place("16", served=False)])
    with pytest.raises(Absent, match="example.com/gpu 16: this node does not have it now"):
        stand.ask("16")
    stand.server.serve([stand.place("16")], [stand.place("16", served=False)])
    with pytest.raises(Refused, match="host's mount namespace"):
        stand.ask("16")


def test_only_vfio_units_justify_locked_memory(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[frozenset[tuple[str, int]]] = []

    def attend(*given: object) -> Answer:
        seen.append(given[5])  # type: ignore[arg-type]
        return Answer(0, ())

    monkeypatch.setattr(grant, "attend", attend)
    stand.server.serve([stand.place("16"), stand.place("17"), stand.place("all", vfio=False)])
    stand.ask("16")
    device = stand.base.stat().st_dev
    assert seen == [{(stand.place("16").folder, device), (stand.place("17").folder, device)}]


def test_who_asks_on_does_not_fill_the_log(stand: Stand, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO)
    stand.server.serve([stand.place("16"), stand.place("17")])

    def ask(unit: str) -> None:
        with pytest.raises(Refused):
            stand.ask(unit)

    for dummy in range(grant.LINES + 5):
        ask("16")
    assert caplog.text.count("gpu 16: grant refused") == grant.LINES
    ask("17")
    assert caplog.text.count("gpu 17: grant refused") == 1
    monkeypatch.setattr(grant, "LINES_SECONDS", 0.0)
    ask("16")
    assert "(and 5 answers before that were not logged)" in caplog.text


def test_256_units_cost_one_thread(stand: Stand) -> None:
    before = threading.active_count()
    assert stand.server.serve([stand.place(str(number)) for number in range(256)]) == {}
    assert threading.active_count() == before + 1
    assert all(stat.S_ISSOCK(stand.socket(str(number)).stat().st_mode) for number in range(256))
    with pytest.raises(Refused, match="host's mount namespace"):
        stand.ask("255")
