"""Which names a manifest may hold: Kubernetes' rules, and libvirt's for what becomes an alias."""

from __future__ import annotations

import re

from ..device.faults import Refused

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
# libvirt takes letters, digits, '_' and '-' in an alias of the user's (virDomainDeviceAliasIsUserAlias)
_ALIAS = re.compile(r"[A-Za-z0-9_-]+")

_LONGEST_OBJECT = 253
# "", a folder and a file: what stands in / itself has no folder that could be shown to the pod
_SHORTEST_PATH = 3

LONGEST = 49
"""Our objects are named vm-NAME, and what controllers append has to fit into 63 characters with it."""


def _refuse(name: str, cause: str) -> Refused:
    return Refused(what="accept a name", subject=repr(name), cause=cause)


def check_object(name: str) -> str:
    """Return the name of a VM, or Refused when Kubernetes would not take vm-NAME and what is derived from it."""
    if not _SUBDOMAIN.fullmatch(name):
        raise _refuse(name, "has to be lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit")
    if len(name) > LONGEST:
        raise _refuse(name, f"has {len(name)} characters, {LONGEST} are allowed")
    return name


def check_object_name(name: str) -> str:
    """Return the name of an object of Kubernetes' (a DNS subdomain), or Refused."""
    if len(name) > _LONGEST_OBJECT or not _SUBDOMAIN.fullmatch(name):
        raise _refuse(name, "has to be at most 253 lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit")
    return name


def check_file(path: str) -> str:
    """Return the absolute path of a file, without steps back and empty parts, or Refused."""
    parts = path.split("/")
    if len(parts) < _SHORTEST_PATH or parts[0] or any(part in ("", ".", "..") for part in parts[1:]):
        raise _refuse(path, "has to be the absolute path of a file in a folder, without '.', '..' and doubled slashes")
    return path


def check_label(name: str) -> str:
    """Return a DNS label (volume names become names of the pod's volumes), or Refused."""
    if len(name) > 63 or not _LABEL.fullmatch(name):
        raise _refuse(name, "has to be at most 63 lower-case letters, digits and '-', beginning and ending with a letter or digit")
    return name


def check_alias(name: str) -> str:
    """Return a device's name, or Refused when libvirt would not take it in an alias (ua-gpu-NAME)."""
    if not _ALIAS.fullmatch(name):
        raise _refuse(name, "becomes part of a libvirt alias, so it has to be letters, digits, '_' and '-'")
    return name
