"""Which devices a guest may ask for: KubeVirt's check when it makes the pod (renderresources.go, validatePermittedHostDevices)."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Optional

from ..device.faults import Refused
from .devices import HostDevice
from .spec import Spec

GPUS, HOST_DEVICES = "gpus", "hostDevices"
_WORDS = {GPUS: "GPU", HOST_DEVICES: "HostDevice"}


def refuse_unpermitted(spec: Spec, permitted: Optional[Collection[str]], unclaimed: Collection[str] = ()) -> None:
    """Raise Refused, naming every device whose resource is not permitted, GPUs first; its cause is KubeVirt's text.

    permitted: resource names of whatever kind (Declaration.resources), None where nothing says what is permitted: then all
    is. unclaimed: the lists ("gpus", "hostDevices") whose DRA claims are not served (KubeVirt's gates are off): an entry
    that names a claim is then one without a permitted name. Claims of other lists are not this check's.
    """
    if permitted is None:
        return
    lists: dict[str, tuple[HostDevice, ...]] = {GPUS: spec.domain.devices.gpus, HOST_DEVICES: spec.domain.devices.host_devices}
    wrong = [
        (f"spec.domain.devices.{listed}[{number}]", _WORDS[listed], one.device_name)
        for listed, devices in lists.items()
        for number, one in enumerate(devices)
        if one.device_name not in permitted and (one.device_name or listed in unclaimed)
    ]
    if wrong:
        raise Refused(
            what="run a guest with these devices",
            subject=", ".join(place for place, _word, _name in wrong),
            cause=" ".join(f"{word} {name} is not permitted in permittedHostDevices configuration" for _place, word, name in wrong),
            hint=_hint([name for _place, _word, name in wrong if name], sorted(permitted)),
        )


def _hint(names: list[str], permitted: list[str]) -> str:
    nearest = {name: get_close_matches(name, permitted, n=1, cutoff=0) for name in dict.fromkeys(names)}
    told = [f"the permitted name nearest to {name} is {found[0]}" for name, found in nearest.items() if found]
    return "; ".join(told) or ("permitted are " + ", ".join(permitted) if permitted else "nothing is permitted")
