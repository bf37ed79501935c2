"""The fault family."""

from __future__ import annotations

from ansible_collections.vfio.passthrough.plugins.module_utils.hostdev.device.faults import Busy, Fault, Refused


def test_a_message_says_what_on_what_why_and_what_to_do() -> None:
    fault = Refused(what="bind to vfio-pci", subject="0000:01:00.0", cause="it backs /", hint="choose another device")
    assert str(fault) == "cannot bind to vfio-pci: 0000:01:00.0: it backs /. choose another device"
    assert fault.as_dict() == {
        "kind": "refused",
        "what": "bind to vfio-pci",
        "subject": "0000:01:00.0",
        "cause": "it backs /",
        "hint": "choose another device",
    }


def test_without_hint_nothing_trails() -> None:
    assert str(Busy(what="open", subject="/dev/vfio/7", cause="in use")) == "cannot open: /dev/vfio/7: in use"
    assert issubclass(Busy, Fault)


def test_a_cause_that_is_a_sentence_keeps_its_one_full_stop() -> None:
    said = {"what": "start libvirt", "subject": "libvirtd", "cause": "it said no."}
    assert Fault(**said, hint="ask again").text() == "cannot start libvirt: libvirtd: it said no. ask again"
    assert Fault(**said).text() == "cannot start libvirt: libvirtd: it said no."
