"""KubeVirt's own object through the API server: read, patched at the version that was read, and again when somebody was faster."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, Callable, Protocol

from ..device.faults import Absent, Busy, Fault, Refused, Unsupported
from .api import Api
from .kubevirt import Merge, merge, permitted, strangers, title
from .objects import Object
from .permits import Wanted

_GROUP = "/apis/kubevirt.io/v1"
_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)
_PAGE = 500
_MANAGER = "vfio-passthrough"


class Objects(Protocol):
    """What is asked of the API server (KubeVirts, or a fake)."""

    def read(self) -> Object:
        """Return the KubeVirt object; Absent without one."""

    def patch(self, patch: Object, dry_run: bool) -> Object:
        """Return the object as it is, or would be, after a merge patch; Busy when it is another version."""

    def vms(self) -> list[Object]:
        """Return all VMs and VMIs of the cluster."""


class KubeVirts:
    """One KubeVirt object of one cluster, and the VMs that it rules."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        """Take the object's namespace and name; nothing is asked yet."""
        self._api, self._namespace, self._name = api, namespace, name
        self._path = f"{_GROUP}/namespaces/{namespace}/kubevirts/{name}"

    def read(self) -> Object:
        """Return the object; Absent says whether it, or KubeVirt, is missing, and which others there are."""
        try:
            return self._call("get", self._path, "read", "kubevirts")
        except Absent as fault:
            raise self._absent(fault) from fault

    def patch(self, patch: Object, dry_run: bool) -> Object:
        """Return the object as the API server has it after a merge patch, or would have it."""
        dry = {"dry_run": "All"} if dry_run else {}
        return self._call("patch", self._path, "write", "kubevirts", body=patch, field_manager=_MANAGER, **dry)

    def vms(self) -> list[Object]:
        """Return all VMs and VMIs of the cluster."""
        return [one for kind in ("virtualmachines", "virtualmachineinstances") for one in self._all(kind)]

    def _all(self, kind: str) -> list[Object]:
        found: list[Object] = []
        more: dict[str, str] = {}
        while True:
            page = self._call("get", f"{_GROUP}/{kind}", "list", kind, limit=_PAGE, **more)
            found += page["items"]
            more = {"_continue": page["metadata"].get("continue") or ""}
            if not more["_continue"]:
                return found

    def _call(self, method: str, path: str, verb: str, kind: str, **options: Any) -> Object:
        try:
            return self._api.call(method, path, what=f"{verb} {kind}.kubevirt.io", **options)
        except Refused as fault:
            # the words of the API server's own authorizer; a webhook's refusal has others
            asked = next((word for word in ("get", "patch", "list") if f" cannot {word} resource" in fault.cause), "")
            hint = f"give this account the verb {asked} on {kind}.kubevirt.io" if asked else fault.hint
            raise Refused(what=fault.what, subject=fault.subject, cause=fault.cause, hint=hint) from fault

    def _absent(self, fault: Absent) -> Fault:
        subject = f"{self._namespace}/{self._name}"
        try:
            others = [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in self._all("kubevirts")]
        except Absent:
            return Absent(
                what="read KubeVirt's configuration",
                subject=subject,
                cause="the cluster knows no kubevirts.kubevirt.io of version v1: KubeVirt is not installed",
                hint="install KubeVirt first",
            )
        except Refused:
            return Absent(
                what=fault.what, subject=fault.subject, cause=fault.cause, hint="give the namespace and name of the KubeVirt object"
            )
        hint = f"give namespace and name of one that exists: {', '.join(sorted(others))}" if others else "create the KubeVirt object first"
        return Absent(what="read KubeVirt's configuration", subject=subject, cause="there is no such KubeVirt object", hint=hint)


def converge(objects: Objects, wanted: Wanted, dry_run: bool, sleep: Callable[[float], None] = time.sleep) -> Merge:
    """Bring the object to what is wanted and return what that changed; with dry_run the API server is asked, and changes nothing.

    A conflict is planned anew from the object as it is then; Busy when there is no end of them. Unsupported when the
    object's schema would drop what is to be written, before anything is.
    """
    for pause in _PAUSES:
        with suppress(Busy):
            return _attempt(objects, wanted, dry_run)
        sleep(pause)
    return _attempt(objects, wanted, dry_run)


def _attempt(objects: Objects, wanted: Wanted, dry_run: bool) -> Merge:
    done = merge(objects.read(), wanted)
    if not done.patch:
        return done
    _insist(objects.patch(done.patch, True), done)
    if not dry_run:
        objects.patch(done.patch, False)
    return _told(objects, done, wanted)


def _insist(stored: Object, done: Merge) -> None:
    """Look whether the object holds what was written: a schema drops the fields that it does not know, without a word."""
    there = permitted(stored)
    dropped = [str(one) for one in done.added if one not in there[one.listed]]
    if dropped:
        raise Unsupported(
            what="permit resources in KubeVirt",
            subject=f"{title(stored)}: {', '.join(dropped)}",
            cause="this version's schema of the KubeVirt object drops them",
            hint="take a newer KubeVirt, or these entries out of the declaration",
        )


def _told(objects: Objects, done: Merge, wanted: Wanted) -> Merge:
    """Return the merge with a warning when the list is new: before it everything passed, after it only what is listed."""
    if not done.restricts:
        return done
    text = f"{title(done.after)} had no permittedHostDevices, which lets every resource pass; from now on only those pass that are listed"
    try:
        others = strangers(objects.vms(), wanted.resources)
    except Fault as fault:
        return replace(done, warnings=(f"{text}. Which VMs ask for others is not known: {fault.text()}", *done.warnings))
    end = f". These are not and will not start again: {'; '.join(others)}" if others else ". No VM asks for another one"
    return replace(done, warnings=(text + end, *done.warnings))
