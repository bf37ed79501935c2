"""kubevirt.io/v1 VirtualMachine: a guest that is to run, or not, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .instance import API_VERSION, VirtualMachineInstance
from .meta import Metadata, TemplateMetadata
from .schema import BOOLEAN, Problems, nested, one_of, row, write_object
from .spec import Spec

STRATEGIES = ("Always", "RerunOnFailure", "Once", "Halted")
REFUSED_STRATEGIES: Mapping[str, str] = {
    "Manual": "starting and stopping by KubeVirt's API does not exist here; use Always or Halted",
    "WaitAsReceiver": "waiting for a live migration is not served: a guest with host devices cannot move",
}


@dataclass(frozen=True)
class Template:
    """spec.template: the runs that a VirtualMachine makes."""

    spec: Spec = row("spec", nested(Spec), required=True)
    metadata: TemplateMetadata = row("metadata", nested(TemplateMetadata), TemplateMetadata())


@dataclass(frozen=True)
class MachineSpec:
    """spec of a VirtualMachine: exactly one of running and runStrategy, and the template."""

    unserved: ClassVar[Mapping[str, str]] = {
        "instancetype": "instance types are not served: write CPU and memory into the template",
        "preference": "preferences are not served: write what they say into the template",
        "dataVolumeTemplates": "volumes of the cluster's storage are not served by this version",
    }

    template: Template = row("template", nested(Template), required=True)
    running: bool | None = row("running", BOOLEAN)
    run_strategy: str = row("runStrategy", one_of(*STRATEGIES, *REFUSED_STRATEGIES), "")


@dataclass(frozen=True)
class VirtualMachine:
    """A guest that is to run, or not."""

    metadata: Metadata = row("metadata", nested(Metadata), required=True)
    spec: MachineSpec = row("spec", nested(MachineSpec), required=True)

    @property
    def name(self) -> str:
        """Return metadata.name."""
        return self.metadata.name

    @property
    def run_strategy(self) -> str:
        """Return one of STRATEGIES; `running` true is Always, false is Halted."""
        return self.spec.run_strategy or ("Always" if self.spec.running else "Halted")

    def instance(self) -> VirtualMachineInstance:
        """Return the run that this machine makes: its name and namespace, the template's marks and spec."""
        marks = self.spec.template.metadata
        meta = Metadata(name=self.name, namespace=self.metadata.namespace, labels=marks.labels, annotations=marks.annotations)
        return VirtualMachineInstance(metadata=meta, spec=self.spec.template.spec)

    def to_dict(self) -> dict[str, Any]:
        """Return the document; parse_manifest of it gives an equal value."""
        return {"apiVersion": API_VERSION, "kind": "VirtualMachine", **write_object(self)}


def check_run(spec: MachineSpec) -> Problems:
    """Yield what is wrong with running and runStrategy."""
    if (spec.running is None) == (not spec.run_strategy):
        yield "spec.runStrategy", "exactly one of running and runStrategy has to be there"
    if spec.run_strategy in REFUSED_STRATEGIES:
        yield "spec.runStrategy", f"{spec.run_strategy}: {REFUSED_STRATEGIES[spec.run_strategy]}"
