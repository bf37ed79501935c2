"""metadata of the documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .names import check_label, check_object
from .schema import TEXT, TEXTS, checked, row


@dataclass(frozen=True)
class Metadata:
    """Name, namespace (empty: the caller's), labels and annotations."""

    name: str = row("name", checked(check_object), required=True)
    namespace: str = row("namespace", checked(check_label), "")
    labels: Mapping[str, str] = row("labels", TEXTS, make=dict)
    annotations: Mapping[str, str] = row("annotations", TEXTS, make=dict)


@dataclass(frozen=True)
class TemplateMetadata:
    """Metadata of a VirtualMachine's template: what its runs are marked with; their name is the VM's."""

    name: str = row("name", TEXT, "")
    labels: Mapping[str, str] = row("labels", TEXTS, make=dict)
    annotations: Mapping[str, str] = row("annotations", TEXTS, make=dict)
