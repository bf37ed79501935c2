"""What goes into the node's record: each claimed function as it was found before us."""

from __future__ import annotations

from dataclasses import replace

from ..device.pci import VFIO_PCI, Function
from ..root import Root, read_text
from .boot_files import RULES
from .claims import Claim
from .facts import MachineFacts
from .record import Former, Record


def _as_found(one: Function, serial: str, bound_by_us: bool) -> Former:
    """A record that was lost cannot name the driver any more, but our own rule tells that the binding is ours."""
    pre_bound = one.driver == VFIO_PCI and not bound_by_us
    override = one.override if pre_bound or one.override != VFIO_PCI else ""
    driver = one.driver if pre_bound or one.driver != VFIO_PCI else ""
    return Former(one.id, driver, override, pre_bound, serial, modalias=one.modalias)


def with_claims(root: Root, record: Record, claims: tuple[Claim, ...]) -> Record:
    """Return the record with the functions of the claims added as they are now; what is known already stays as it was.

    A different card at a known address is a new function: the old entry says nothing about it.
    """
    # the functions that are asked about are those of which nothing is recorded
    facts = MachineFacts(root, dict)
    at_boot = read_text(root.at(RULES)) or ""
    functions = dict(record.functions)
    for claim in claims:
        for member in claim.members:
            address, one = str(member.address), member.function
            known = functions.get(address)
            if known is None or known.id != one.id:
                known = _as_found(one, facts.serial_of(one), bound_by_us=address in at_boot)
            functions[address] = replace(known, resource=claim.resource, group=one.iommu_group or known.group, part=member.part)
    return replace(record, functions=functions)
