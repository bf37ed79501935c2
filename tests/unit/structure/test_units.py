"""What the units of files/systemd keep from their services, and what they must not."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from ansible_collections.vfio.passthrough.tests.unit.structure.tree import ROOT

UNIT = ROOT / "files/systemd/vfio-passthrough-device-plugin.service"
AIM = 2.5
# what `systemd-analyze security` finds open, and why it has to be
OPEN = {
    "PrivateNetwork": "the kernel's device events reach the host's network namespace alone",
    "UserOrDynamicUser": "kubelet.sock and its folder are root's",
    "CapabilityBoundingSet_CAP_SYS_PTRACE": "a launcher's nodes are reached by /proc/PID/root",
    "CapabilityBoundingSet_CAP_CHOWN_FSETID_SETFCAP": "a launcher becomes the owner of its nodes",
    "CapabilityBoundingSet_CAP_DAC_FOWNER_IPC_OWNER": "the nodes and the folders above them may be another user's",
    "CapabilityBoundingSet_CAP_SYS_NICE_RESOURCE": "a launcher's memory-lock limit is raised by prlimit",
    "SystemCallFilter_privileged": "the calls that change a node's owner belong to it; the rest of it is shut",
    "PrivateUsers": "capabilities count in the launcher's user namespace only if held in the host's",
    "PrivateDevices": "nodes come and go, and all of them have to be seen",
    "DeviceAllow": "/dev/iommu is opened for launchers; the clock's entry comes with ProtectClock",
    "ProtectKernelModules": "it hides the modules' alias table, by which a `driver` selector finds a device",
    "ProcSubset": "a machine's memory is read from /proc/meminfo",
    "RestrictAddressFamilies_AF_UNIX": "the kubelet and launchers are met at unix sockets",
    "RestrictAddressFamilies_AF_NETLINK": "the kernel's device events come by netlink",
    "RootDirectoryOrRootImage": "runtime, Python and libraries are the host's",
    "UMask": "the kubelet's folder is made as the kubelet makes it, mode 0750",
}


def rendered(**given: Any) -> str:
    """Return the unit as the role renders it."""
    values = yaml.safe_load((ROOT / "roles/device_plugin/defaults/main.yml").read_text(encoding="utf-8"))
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)
    return environment.from_string(UNIT.read_text(encoding="utf-8")).render({**values, **given})


def settings(text: str) -> dict[str, list[str]]:
    """Return all assignments of each key, in order."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, mark, value = line.partition("=")
        if mark and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def judged(text: str, folder: Path) -> tuple[float, dict[str, float]]:
    """Return what systemd says of a unit: its exposure in all, and that of each point which is open."""
    path = folder / UNIT.name
    path.write_text(text, encoding="utf-8")
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager"]
    points = json.loads(subprocess.run([*command, "--json=short", str(path)], capture_output=True, text=True, check=True).stdout)
    table = subprocess.run([*command, str(path)], capture_output=True, text=True, check=True).stdout
    overall = float(table.strip().splitlines()[-1].partition(": ")[2].split()[0])
    return overall, {one["json_field"]: float(one["exposure"]) for one in points if one["exposure"] is not None}


def test_the_units_exposure_is_within_the_aim_and_each_open_point_has_its_reason(tmp_path: Path) -> None:
    overall, points = judged(rendered(), tmp_path)
    assert overall <= AIM
    assert set(points) == set(OPEN)


@pytest.mark.parametrize(("address", "family"), [("127.0.0.1:9810", "AF_INET"), ("[::1]:9810", "AF_INET6")])
def test_metrics_open_no_more_than_a_local_address(address: str, family: str, tmp_path: Path) -> None:
    found = settings(rendered(device_plugin_metrics=address))
    assert found["RestrictAddressFamilies"] == ["AF_UNIX AF_NETLINK", family]
    assert (found["IPAddressDeny"], found["IPAddressAllow"]) == (["any"], ["localhost"])
    _overall, points = judged(rendered(device_plugin_metrics=address), tmp_path)
    assert set(points) - set(OPEN) <= {"RestrictAddressFamilies_AF_INET_INET6", "IPAddressDeny"}


def test_the_plugin_reads_the_modules_aliases_and_can_load_none() -> None:
    found = settings(rendered())
    # systemd.exec(5): this hides /usr/lib/modules, and with it what a modalias would load
    assert found.get("ProtectKernelModules", ["no"]) == ["no"]
    assert "CAP_SYS_MODULE" not in found["CapabilityBoundingSet"][0].split()
    assert found["SystemCallFilter"] == ["@system-service", "~@privileged @resources", "@chown"]


@pytest.mark.parametrize("folder", ["/var/lib/kubelet/device-plugins", "/srv/kubelet/device-plugins"])
def test_the_plugin_can_write_a_kubelet_folder_that_was_not_there_or_is_made_anew(folder: str) -> None:
    found = settings(rendered(device_plugin_folder=folder))
    assert found["ProtectSystem"] == ["strict"]
    # with all rights and outside of the sandbox, which is made for each command of its own
    assert found["ExecStartPre"] == [f"+/usr/bin/mkdir -p {folder}"]
    assert found["ReadWritePaths"] == [f"{Path(folder).parent} {folder}"]
    assert found["UMask"] == ["0027"]


def test_the_unit_does_not_start_beside_the_other_form() -> None:
    assert settings(rendered())["ConditionPathExists"] == [
        "/etc/vfio-passthrough/devices.json",
        "!/etc/vfio-passthrough/daemonset",
    ]
