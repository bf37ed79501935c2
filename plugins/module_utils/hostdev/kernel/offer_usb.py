"""USB devices as offers: a bundle of one or several, known by where they are plugged in and by their serials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..device.declaration import USB, Declaration, Entry
from ..device.grant import safe_id
from ..device.inventory import Skipped, serves_another
from ..device.offer import LINE, Found, Offer, Proof
from ..device.usb import Bundle, UsbDevice, gather
from ..root import Root
from .usb import DEVICES, read_usb

INCOMPLETE = "incomplete-bundle"
Devices = tuple[UsbDevice, ...]


class _Look:
    """One look at what is plugged in: which devices are free, and for whom the others are.

    taken: by port the resource that a device serves, or is kept for. broken: former bundles of which a part is missing, each
    with what is left of it: no other bundle gets that, since a pod may hold it and the missing part may return.
    """

    def __init__(self, entries: Sequence[Entry], plugged: Mapping[str, UsbDevice], former: Sequence[Offer]) -> None:
        self.plugged = plugged
        self.taken: dict[str, str] = {}
        self.kept: dict[tuple[str, Bundle], list[Devices]] = {}
        left = list(former)
        for entry in entries:
            for bundle in entry.bundles:
                for offer in [one for one in left if one.resource == entry.resource]:
                    members = _again(offer, bundle, self.free)
                    if members:
                        left.remove(offer)
                        self.kept.setdefault((entry.resource, bundle), []).append(self._take(entry.resource, members))
        declared, unkept = {entry.resource for entry in entries}, self.free
        rests = [(offer, _rest(offer, unkept)) for offer in left if offer.resource in declared]
        self.broken = [(offer, rest) for offer, rest in rests if 0 < len(rest) < len(ports_of(offer))]
        for offer, rest in self.broken:
            self._take(offer.resource, rest)

    @property
    def free(self) -> dict[str, UsbDevice]:
        """Return the devices that nobody has by their ports, in the order of these."""
        return {port: one for port, one in self.plugged.items() if port not in self.taken}

    def made(self, resource: str, bundle: Bundle) -> list[Devices]:
        """Return the bundles that are kept, those that free devices make, and those that mend a broken one."""
        found = [self._take(resource, members) for members in gather(bundle, list(self.free.values()))]
        like = [one for one in self.broken if (one[0].resource, len(ports_of(one[0]))) == (resource, len(bundle))]
        for offer, rest in like:
            # one that is made of what is left of it and of what is free takes its place: it cannot come back as it was
            whole = gather(bundle, [*rest, *self.free.values()])[:1]
            if whole:
                self.broken.remove((offer, rest))
                for one in rest:
                    self.taken.pop(one.port, None)
                found.append(self._take(resource, whole[0]))
        return [*self.kept.pop((resource, bundle), []), *found]

    def _take(self, resource: str, members: Devices) -> Devices:
        self.taken.update((one.port, resource) for one in members)
        return members


def find(root: Root, declaration: Declaration, former: Sequence[Offer] = ()) -> Found:
    """Return the bundles in the order of the declaration; a device serves the first that takes it.

    former: what was offered before. Its devices stay together, whatever is plugged in or out beside them.
    """
    entries = declaration.of(USB).served
    look = _Look(entries, {one.port: one for one in read_usb(root)} if entries else {}, former)
    positions = {entry.resource: entry.position for entry in reversed(entries)}
    offers: list[Offer] = []
    skipped: list[Skipped] = []
    for entry in entries:
        for bundle in entry.bundles:
            made = look.made(entry.resource, bundle)
            offers += [_offer(root, entry.resource, members) for members in made]
            if not made and len(bundle) > 1:
                skipped += _incomplete(entry.resource, bundle, list(look.free.values()))
            skipped += _elsewhere(entry.resource, bundle, look, positions)
    return Found(tuple(offers), tuple(dict.fromkeys(skipped)))


def replaced(former: Offer, fresh: Iterable[Offer]) -> bool:
    """Return whether a former bundle cannot come back as it was.

    fresh: the bundles of the same look that were not offered before. One of them has a device of the former one, or they have
    all of its devices at other ports, each known by its serial.
    """
    now = [one for offer in fresh for one in offer.plugged]
    if any(mine.is_again(other) for mine in former.plugged for other in now):
        return True
    moved = [mine.serial and any(mine.is_alike(other) for other in now) for mine in former.plugged]
    return bool(moved) and all(moved)


def gone(root: Root, offer: Offer) -> str:
    """Return why a bundle that was offered is none any more."""
    lost = [port for port in ports_of(offer) if not (root.at(DEVICES) / port).exists()]
    if lost:
        return f"unplugged: no USB device is at port {', '.join(lost)}"
    return f"another device is plugged in at port {', '.join(ports_of(offer))}"


def ports_of(offer: Offer) -> list[str]:
    """Return the ports of an offer's devices, which are its name."""
    return offer.name.split("+")


def _rest(offer: Offer, plugged: Mapping[str, UsbDevice]) -> Devices:
    """Return what is there still of a former bundle; without its devices in memory, what is at its ports."""
    before = {one.port: one for one in offer.plugged}
    there = [plugged[port] for port in ports_of(offer) if port in plugged]
    return tuple(one for one in there if one.port not in before or one.is_again(before[one.port]))


def _again(offer: Offer, bundle: Bundle, plugged: Mapping[str, UsbDevice]) -> Devices:
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
        plugged=tuple(members),
        card=members[0].port.partition("-")[0],
        proofs=tuple(Proof(f"{DEVICES}/{one.port}/uevent", f"DEVNAME={one.node[len('/dev/') :]}", LINE) for one in members),
    )


def _elsewhere(resource: str, bundle: Bundle, look: _Look, positions: Mapping[str, str]) -> Iterator[Skipped]:
    """Yield the devices that a bundle means and that serve another resource."""
    for port, holder in look.taken.items():
        if holder != resource and any(selector.matches(look.plugged[port]) for selector in bundle):
            yield serves_another(port, resource, holder, positions[holder])


def _incomplete(resource: str, bundle: Bundle, free: Iterable[UsbDevice]) -> list[Skipped]:
    lacking = [str(selector) for selector in bundle if not any(selector.matches(one) for one in free)]
    present = [one for one in free if any(selector.matches(one) for selector in bundle)]
    detail = f"its bundle lacks {' and '.join(lacking) or 'one more device of the same kind'}"
    return [Skipped(one.port, resource, INCOMPLETE, detail, "plug in the rest of the bundle") for one in present]
