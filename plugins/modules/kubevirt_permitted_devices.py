#!/usr/bin/python
# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: kubevirt_permitted_devices
short_description: Permit declared devices in KubeVirt
version_added: 1.0.0
description:
  - Merges the declared resources into C(spec.configuration.permittedHostDevices) of the KubeVirt object, each with
    C(externalResourceProvider) true, and adds the feature gate C(HostDevices).
  - What it added it remembers in the annotation C(vfio.passthrough/permitted) of the object, and takes out only that. Entries
    that were there before stay the administrator's, and so does an entry of ours that somebody edited.
  - An entry without C(externalResourceProvider) that selects the same devices is refused, because KubeVirt would hand them out too.
  - Without C(permittedHostDevices) KubeVirt lets every resource pass, with it only those that are listed. Where this module is
    the first to list any, a warning names the virtual machines that ask for others.
author: the vfio.passthrough authors (@vfio-passthrough)
extends_documentation_fragment:
  - vfio.passthrough.cluster
options:
  state:
    description: Whether the declared resources are permitted, or nothing of ours is left in the object.
    type: str
    choices: [present, absent]
    default: present
  declarations:
    description:
      - What the hosts declare; hosts with the same declaration need only one element.
      - Each is read by itself, so that two hosts may give different names to equal devices.
    type: list
    elements: dict
    default: []
    suboptions:
      devices:
        description:
          - A declaration, as M(vfio.passthrough.pci_info) takes it. Generic device nodes have no list in KubeVirt and are passed over.
        type: list
        elements: dict
        default: []
      permitted_host_devices:
        description:
          - KubeVirt's block C(permittedHostDevices), the other form of a declaration. Its entries are permitted with
            C(externalResourceProvider) true, whatever they say, since another plugin than KubeVirt's serves them.
        type: dict
        default: {}
  purge:
    description: Whether entries of ours are taken out that none of O(declarations) asks for; V(false) where other hosts may declare more.
    type: bool
    default: true
  functions:
    description:
      - What M(vfio.passthrough.pci_info) returns as C(functions), of all nodes in one list. They give the ids of what the declaration
        selects by other means, such as a slot. Ids that were found earlier stay permitted until the resource is no longer declared.
    type: list
    elements: dict
    default: []
  usb:
    description: The same for C(usb), for USB devices that are declared without vendor or product.
    type: list
    elements: dict
    default: []
  namespace:
    description: The namespace of the KubeVirt object.
    type: str
    default: kubevirt
  name:
    description: The name of the KubeVirt object.
    type: str
    default: kubevirt
attributes:
  check_mode:
    description: The API server is asked by a dry run, so that its refusals show.
    support: full
  diff_mode:
    description: Shows the two lists and the annotation.
    support: full
  platform:
    description: Systems that the module runs on.
    support: full
    platforms: posix
seealso:
  - module: vfio.passthrough.pci_info
"""

EXAMPLES = r"""
- name: Permit the GPUs in KubeVirt
  vfio.passthrough.kubevirt_permitted_devices:
    declarations:
      - devices:
          - resource: nvidia.com/AD102_GEFORCE_RTX_4090
            select: {id: "10de:2684"}
    kubeconfig: ~/.kube/config
  delegate_to: localhost
  run_once: true

- name: Take out what was added
  vfio.passthrough.kubevirt_permitted_devices:
    state: absent
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
entries:
  description: The entries that are ours now, by list.
  returned: always
  type: dict
  sample:
    pciHostDevices:
      - pciVendorSelector: "10de:2684"
        resourceName: nvidia.com/AD102_GEFORCE_RTX_4090
        externalResourceProvider: true
feature_gate_added:
  description: Whether the feature gate C(HostDevices) stands there by us.
  returned: always
  type: bool
  sample: true
notes:
  description: What should be known of entries of others, and of entries that were ours.
  returned: always
  type: list
  elements: str
  sample: []
"""

from ..module_utils.glue.kubevirt import SPEC, work
from ..module_utils.glue.module import run_module


def main() -> None:
    """Run the module."""
    run_module(SPEC, work)


if __name__ == "__main__":
    main()
