"""Fields that are read and typed, and that the launcher does not honour yet: refused by their path until it does.

Admission, overhead and the pod's resources know all of them; who teaches the guest's side one takes its row away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Tuple

from .schema import Problems, write_object
from .spec import Spec

_NO_TAG = "device tags (cloud-init device metadata) are not served by this version"
_NO_NETWORK = "guest networks are not served by this version"
_NO_CLAIMS = "DRA claims are not served by this version"
_NO_CONFIG = "disks made from the cluster's objects are not served by this version"
_NO_PROBE = "probes of the guest are not served by this version"

# path in the document, [] for each item of a list
WAITING: Mapping[str, str] = {
    "resourceClaims": _NO_CLAIMS,
    "networks[].pod": _NO_NETWORK,
    "livenessProbe": _NO_PROBE,
    "readinessProbe": _NO_PROBE,
    "volumes[].persistentVolumeClaim": "volumes of the cluster's storage are not served by this version",
    "volumes[].hostDisk": "a file of the node is not served by this version",
    "volumes[].cloudInitNoCloud": _NO_CONFIG,
    "volumes[].cloudInitConfigDrive": _NO_CONFIG,
    "volumes[].configMap": _NO_CONFIG,
    "volumes[].secret": _NO_CONFIG,
    "domain.launchSecurity": "memory that the host cannot read is not served by this version",
    "domain.memory.maxGuest": "memory hot-plug is not served: devices hold all of the guest's memory",
    "domain.memory.reservedOverhead": "reserved overhead is not served by this version",
    "domain.devices.gpus[].tag": _NO_TAG,
    "domain.devices.hostDevices[].tag": _NO_TAG,
    "domain.devices.interfaces[].masquerade": _NO_NETWORK,
    "domain.devices.interfaces[].passt": _NO_NETWORK,
    "domain.devices.interfaces[].passtBinding": _NO_NETWORK,
    "domain.devices.interfaces[].state": _NO_NETWORK,
    "domain.devices.interfaces[].tag": _NO_TAG,
    "domain.devices.tpm": "an emulated TPM is not served by this version",
    "domain.devices.watchdog": "an emulated watchdog is not served by this version",
}
# what only some values of a field mean: path -> how a value begins that is not served, and why
_VALUES: Mapping[str, Tuple[str, str]] = {
    "architecture": ("arm64", "guests of arm64 are not served by this version; has to be amd64"),
    "domain.machine.type": ("virt", "machines of arm64 are not served by this version; has to be q35 or one of its versions (pc-q35-...)"),
}


def waiting(spec: Spec, path: str) -> Problems:
    """Yield each field that is there and waits for its guest side."""
    document = write_object(spec)
    for pattern, cause in WAITING.items():
        yield from ((place, cause) for place, dummy in _find(document, pattern.split("."), path))
    for pattern, (begin, cause) in _VALUES.items():
        yield from ((place, cause) for place, value in _find(document, pattern.split("."), path) if str(value).startswith(begin))


def _find(value: Any, parts: list[str], path: str) -> Iterator[Tuple[str, Any]]:
    if not parts:
        yield path, value
        return
    key, many = parts[0].removesuffix("[]"), parts[0].endswith("[]")
    if not isinstance(value, Mapping) or key not in value:
        return
    below = enumerate(value[key]) if many else ((None, value[key]),)
    for index, one in below:
        yield from _find(one, parts[1:], f"{path}.{key}" + ("" if index is None else f"[{index}]"))
