#!/usr/bin/python
# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: pci_info
short_description: PCI devices of a host as passthrough sees them
version_added: 1.0.0
description:
  - Reports which declared devices could be given to VMs now, with a reason for each that could not.
  - Reports what M(vfio.passthrough.pci_binding) would refuse, and whether the IOMMU is active and why not.
  - Changes nothing.
author:
  - vfio.passthrough authors (@vfio-passthrough)
options:
  devices:
    description: The declaration, a list of maps with C(resource), C(select), C(functions) and C(allow).
    type: list
    elements: dict
    default: []
  permitted_host_devices:
    description: KubeVirt's block C(permittedHostDevices), taken as it stands.
    type: dict
    default: {}
  management_address:
    description: Addresses of the machine through which it is managed, beside those of open SSH connections, which are found.
    type: list
    elements: str
    default: []
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
"""

from typing import Any

from ..module_utils.glue.module import run_module
from ..module_utils.hostdev.device.declaration import parse_declaration
from ..module_utils.hostdev.kernel.survey import survey
from ..module_utils.hostdev.root import Root

SPEC = {
    "devices": {"type": "list", "elements": "dict", "default": []},
    "permitted_host_devices": {"type": "dict", "default": {}},
    "management_address": {"type": "list", "elements": "str", "default": []},
}


def work(module: Any, root: Root) -> dict[str, Any]:
    given = module.params
    declaration = parse_declaration(given["devices"], given["permitted_host_devices"], "devices", "permitted_host_devices")
    return {"changed": False, **survey(root, declaration, given["management_address"])}


def main() -> None:
    run_module(SPEC, work)


if __name__ == "__main__":
    main()
