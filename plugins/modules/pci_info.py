#!/usr/bin/python
# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: pci_info
short_description: Devices of a host as passthrough sees them
version_added: 1.0.0
description:
  - Reports which declared devices could be given to VMs now, with a reason for each that could not.
  - Reports what M(vfio.passthrough.pci_binding) would refuse, and whether the IOMMU is active and why not.
  - Reports what the device plugin on the host serves and leaves out, of every kind, with reasons and the pods that hold devices.
  - Changes nothing.
author:
  - vfio.passthrough authors (@vfio-passthrough)
extends_documentation_fragment:
  - vfio.passthrough.declaration
options:
  kubelet_root:
    description: The root folder of the node's kubelet, which is asked for the pods that hold devices.
    type: path
    default: /var/lib/kubelet
attributes:
  check_mode:
    description: Reads only.
    support: full
  diff_mode:
    description: Reads only.
    support: none
  platform:
    description: Where it works.
    support: full
    platforms: linux
seealso:
  - module: vfio.passthrough.pci_binding
"""

EXAMPLES = r"""
- name: Look at the machine
  vfio.passthrough.pci_info:
    devices:
      - resource: nvidia.com/AD102_GEFORCE_RTX_4090
        select: {id: "10de:2684"}
  register: pci
"""

RETURN = r"""
units:
  description: The groups that serve a resource.
  returned: success
  type: list
  elements: dict
  sample: []
skipped:
  description: Declared functions that cannot be handed out now, each with reason, detail and hint.
  returned: success
  type: list
  elements: dict
  sample: []
functions:
  description: The declared functions and their companions; without a declaration every function but bridges.
  returned: success
  type: list
  elements: dict
  sample: []
usb:
  description: The plugged USB devices of the declared entries, an element for each bundle, with port, vendor and product of its devices.
  returned: success
  type: list
  elements: dict
  sample:
    - resource: example.com/stick
      devices: [{port: "1-4.2", vendor: "46f4", product: "0001"}]
refused:
  description: What M(vfio.passthrough.pci_binding) would refuse.
  returned: success
  type: list
  elements: dict
  sample: []
missing:
  description: Positions of entries for which the machine has no device.
  returned: success
  type: list
  elements: str
  sample: []
iommu:
  description: The verdict on the machine's IOMMU.
  returned: success
  type: dict
  sample: {code: IOMMU_OK, active: true, curable: false, evidence: [], advice: nothing to do, subjects: []}
plugin:
  description: What the device plugin's state file tells; where no plugin runs all lists are empty.
  returned: success
  type: dict
  contains:
    running:
      description: Whether a device plugin runs.
      type: bool
    holders_fault:
      description: Why nobody could be asked for holders, empty when somebody was.
      type: str
    resources:
      description: Every resource that is served, with its socket and whether the kubelet took it.
      type: list
      elements: dict
    units:
      description:
        - Every unit, with kind, name, id, health, reason and its code, the time since then, and its holders.
        - Holders are a list of namespace, pod and container, or null where nobody could be asked.
      type: list
      elements: dict
    skipped:
      description: Declared devices that are no healthy unit, each with reason, detail and hint.
      type: list
      elements: dict
    renumbered:
      description: Pods whose stored answer means other devices than its ids do now, each with detail and hint.
      type: list
      elements: dict
  sample:
    running: true
    holders_fault: ""
    resources: [{resource: nvidia.com/X, registered: true}]
    units:
      - kind: pci
        resource: nvidia.com/X
        id: "16"
        name: "0000:01:00.0"
        health: Healthy
        reason: ""
        holders: [{namespace: default, pod: vm-a, container: compute}]
    skipped: []
    renumbered: []
"""

from typing import Any

from ..module_utils.glue.declaration import SPEC as DECLARATION
from ..module_utils.glue.declaration import declaration_of
from ..module_utils.glue.holders import KUBELET_ROOT, plugin_told
from ..module_utils.glue.module import run_module
from ..module_utils.hostdev.kernel.survey import survey
from ..module_utils.hostdev.root import Root

SPEC = {**DECLARATION, "kubelet_root": {"type": "path", "default": KUBELET_ROOT}}


def work(module: Any, root: Root) -> dict[str, Any]:
    given = module.params
    found = survey(root, declaration_of(given), given["management_address"])
    return {"changed": False, **found, "plugin": plugin_told(root, given["kubelet_root"])}


def main() -> None:
    run_module(SPEC, work)


if __name__ == "__main__":
    main()
