"""What no single field can tell: rules over a whole spec, one row each.

A check takes a spec and its path and yields (path, cause) for each thing that is wrong.
"""

from __future__ import annotations

from typing import Callable

from ..device.names import collisions
from .network_checks import network_problems
from .schema import Problems
from .spec import Spec
from .waiting import waiting

Check = Callable[[Spec, str], Problems]

_NO_CLAIMS = "DRA claims are not served by this version"


def _device_names(spec: Spec, path: str) -> Problems:
    first: dict[str, str] = {}
    for place, device in spec.host_devices:
        other = first.setdefault(device.name, place)
        if other != place:
            yield (
                f"{path}{place[4:]}.name",
                f"{device.name!r} is also the name of {path}{other[4:]}; names of gpus and hostDevices are unique together",
            )


def _device_origins(spec: Spec, path: str) -> Problems:
    for place, device in spec.host_devices:
        if device.claimed:
            also = "; with deviceName it would be two devices in one entry" if device.device_name else ""
            yield f"{path}{place[4:]}.{'claimName' if device.claim_name is not None else 'requestName'}", f"{_NO_CLAIMS}{also}"
        elif not device.device_name:
            yield f"{path}{place[4:]}.deviceName", "required, and absent"


def _variables(spec: Spec, path: str) -> Problems:
    for one, two in collisions(spec.resources):
        (place, *unused) = [place for place, device in spec.host_devices if device.device_name == two]
        yield f"{path}{place[4:]}.deviceName", f"{two} and {one} would share one variable in the launcher's environment"


def amounts(spec: Spec, path: str) -> Problems:
    """Yield each number in resources that is neither memory nor CPU nor how many entries of that resource there are."""
    counts = spec.resources
    for key, side in (("requests", spec.domain.resources.requests), ("limits", spec.domain.resources.limits)):
        for name, amount in side.others.items():
            place = f"{path}.domain.resources.{key}.{name}"
            if name not in counts:
                yield place, "no entry of gpus or hostDevices asks for it; only these and cpu and memory stand here"
            elif amount.value != counts[name]:
                yield place, f"is {amount}, but {counts[name]} entries of gpus and hostDevices name {name}"


def _memory(spec: Spec, path: str) -> Problems:
    memory, limit = spec.domain.guest_memory, spec.domain.resources.limits.memory
    if memory is None:
        yield f"{path}.domain.memory.guest", "required, and absent (resources.requests.memory would do as well)"
    elif memory.value < 1024 * 1024:
        yield f"{path}.domain.memory.guest", f"{memory} is too little to boot anything; 1Mi is the least"
    elif limit is not None and memory.value > limit.value:
        yield f"{path}.domain.resources.limits.memory", f"{limit} is less than the guest's {memory}"


def _limits(spec: Spec, path: str) -> Problems:
    own = spec.domain.resources
    for name, asked, limit in (
        ("memory", own.requests.memory, own.limits.memory),
        ("cpu", own.requests.cpu, own.limits.cpu),
    ):
        for side, amount in (("requests", asked), ("limits", limit)):
            if amount is not None and amount.value < 0:
                yield f"{path}.domain.resources.{side}.{name}", f"{amount} is less than nothing"
        if asked is not None and limit is not None and asked.value > limit.value:
            yield f"{path}.domain.resources.requests.{name}", f"{asked} is more than the limit, {limit}"


def _volumes(spec: Spec, path: str) -> Problems:
    disks = {disk.name for disk in spec.domain.devices.disks}
    seen: set[str] = set()
    for index, volume in enumerate(spec.volumes):
        place = f"{path}.volumes[{index}]"
        if volume.sources != 1:
            yield place, f"exactly one kind of volume has to be there, are {volume.sources}"
        if volume.name in seen:
            yield f"{place}.name", f"{volume.name!r} is the name of another volume too"
        if volume.name not in disks:
            yield f"{place}.name", f"{volume.name!r} is used by no disk in {path}.domain.devices.disks"
        seen.add(volume.name)


def _disks(spec: Spec, path: str) -> Problems:
    volumes = {volume.name for volume in spec.volumes}
    names: set[str] = set()
    orders: set[int] = set()
    for index, disk in enumerate(spec.domain.devices.disks):
        place = f"{path}.domain.devices.disks[{index}]"
        if disk.disk and disk.cdrom:
            yield place, "is a disk and a cdrom; one of them"
        if disk.name not in volumes:
            yield f"{place}.name", f"{disk.name!r} is the name of no volume in {path}.volumes"
        if disk.name in names:
            yield f"{place}.name", f"{disk.name!r} is the name of another disk too"
        if disk.boot_order in orders:
            yield f"{place}.bootOrder", f"{disk.boot_order} is the order of another disk too"
        names.add(disk.name)
        orders |= {disk.boot_order} if disk.boot_order else set()


def _firmware(spec: Spec, path: str) -> Problems:
    firmware = spec.domain.firmware
    boot, loader, place = firmware.kernel_boot, firmware.bootloader, f"{path}.domain.firmware"
    if loader and loader.bios and loader.efi:
        yield f"{place}.bootloader", "is bios and efi; one of them"
    if boot and not boot.container:
        yield f"{place}.kernelBoot.container", "required, and absent"
    if boot and boot.container and not (boot.container.kernel_path or boot.container.initrd_path):
        yield f"{place}.kernelBoot.container", "kernelPath or initrdPath is required"
    if boot and boot.kernel_args and not (boot.container and boot.container.kernel_path):
        yield f"{place}.kernelBoot.kernelArgs", "there is no kernelPath whose arguments these are"


def _automatic_devices(spec: Spec, path: str) -> Problems:
    devices = spec.domain.devices
    wanted = (
        ("autoattachGraphicsDevice", devices.graphics, "guest displays are not served by this version"),
        ("autoattachPodInterface", devices.pod_interface, "guest networks are not served by this version"),
        ("autoattachMemBalloon", devices.mem_balloon, "a balloon cannot take memory that devices hold"),
    )
    for key, value, cause in wanted:
        if value:
            yield f"{path}.domain.devices.{key}", f"{cause}; leave it out, or false"


CHECKS: tuple[Check, ...] = (
    _device_names,
    _device_origins,
    _variables,
    amounts,
    _memory,
    _limits,
    _volumes,
    _disks,
    _firmware,
    _automatic_devices,
    network_problems,
    waiting,
)


def check_spec(spec: Spec, path: str) -> Problems:
    """Yield everything that is wrong with a spec that stands at path."""
    for check in CHECKS:
        yield from check(spec, path)
