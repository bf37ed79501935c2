"""What the units of files/systemd keep from their services, and what they must not."""

from __future__ import annotations

from ansible_collections.vfio.passthrough.tests.unit.structure.tree import ROOT

UNIT = ROOT / "files/systemd/vfio-passthrough-device-plugin.service"


def settings() -> dict[str, str]:
    """Return the last assignment of each key."""
    pairs = (line.partition("=") for line in UNIT.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return {key: value for key, mark, value in pairs if mark}


def test_the_plugin_reads_the_modules_aliases_and_can_load_none() -> None:
    found = settings()
    # systemd.exec(5): this hides /usr/lib/modules, and with it what a modalias would load
    assert found.get("ProtectKernelModules", "no") == "no"
    assert "CAP_SYS_MODULE" not in found["CapabilityBoundingSet"].split()
    assert found["SystemCallFilter"] == "@system-service"
