"""USB devices as offers: a bundle of one or several, known by where they are plugged in and by their serials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..device.declaration import USB, Declaration
from ..device.grant import safe_id
from ..device.inventory import Skipped
from ..device.offer import LINE, Found, Offer, Proof
from ..device.usb import Bundle, UsbDevice, gather
from ..root import Root
from .usb import DEVICES, read_usb

INCOMPLETE = "incomplete-bundle"


def find(root: Root, declaration: Declaration, former: Sequence[Offer] = ()) -> Found:
    """Return the bundles in the order of the declaration; a device serves the first that takes it.

    former: what was offered before. Its devices stay together, whatever is plugged in or out beside them: a pod may hold
    the bundle, and what is left of a broken one is not given to another.
    """
    entries = declaration.of(USB).served
    plugged = {one.port: one for one in read_usb(root)} if entries else {}
    free = dict(plugged)
    offers: list[Offer] = []
    skipped: list[Skipped] = []
    for port in (port for offer in former for port in ports_of(offer)):
        free.pop(port, None)
    for entry in entries:
        for bundle in entry.bundles:
            kept = [members for offer in former if offer.resource == entry.resource if (members := _again(offer, bundle, plugged))]
            made = [*kept, *gather(bundle, list(free.values()))]
            for device in (device for members in made for device in members):
                free.pop(device.port, None)
            offers += [_offer(root, entry.resource, members) for members in made]
            if not made and len(bundle) > 1:
                skipped += _incomplete(entry.resource, bundle, list(free.values()))
    return Found(tuple(offers), tuple(skipped))


def gone(root: Root, offer: Offer) -> str:
    """Return why a bundle that was offered is none any more."""
    lost = [port for port in ports_of(offer) if not (root.at(DEVICES) / port).exists()]
    if lost:
        return f"unplugged: no USB device is at port {', '.join(lost)}"
    return f"another device is plugged in at port {', '.join(ports_of(offer))}"


def ports_of(offer: Offer) -> list[str]:
    """Return the ports of an offer's devices, which are its name."""
    return offer.name.split("+")


def _again(offer: Offer, bundle: Bundle, plugged: dict[str, UsbDevice]) -> tuple[UsbDevice, ...]:
    """Return the former bundle's devices as they are now, empty unless each is there, matches, and has its former serial."""
    members = tuple(plugged[port] for port in ports_of(offer) if port in plugged)
    same = len(members) == len(bundle) and all(selector.matches(one) for selector, one in zip(bundle, members))
    return members if same and _id(members) == offer.id else ()


def _id(members: Sequence[UsbDevice]) -> str:
    return safe_id("_".join(one.label for one in members))


def _offer(root: Root, resource: str, members: Sequence[UsbDevice]) -> Offer:
    nodes = tuple(one.node for one in members)
    return Offer(
        kind=USB,
        resource=resource,
        id=_id(members),
        name="+".join(one.port for one in members),
        values=tuple(one.value for one in members),
        required=nodes,
        present=tuple(node for node in nodes if root.at(node).exists()),
        card=members[0].port.partition("-")[0],
        proofs=tuple(Proof(f"{DEVICES}/{one.port}/uevent", f"DEVNAME={one.node[len('/dev/') :]}", LINE) for one in members),
    )


def _incomplete(resource: str, bundle: Bundle, free: Iterable[UsbDevice]) -> list[Skipped]:
    lacking = [str(selector) for selector in bundle if not any(selector.matches(one) for one in free)]
    present = [one for one in free if any(selector.matches(one) for selector in bundle)]
    detail = f"its bundle lacks {' and '.join(lacking) or 'one more device of the same kind'}"
    return [Skipped(one.port, resource, INCOMPLETE, detail, "plug in the rest of the bundle") for one in present]
