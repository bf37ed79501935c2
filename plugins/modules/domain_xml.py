#!/usr/bin/python
# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: domain_xml
short_description: Render the libvirt domain of a KubeVirt-style virtual machine
version_added: 1.0.0
description:
  - Turns a C(VirtualMachineInstance) or C(VirtualMachine) and the variables that a device plugin sets into libvirt's domain XML,
    exactly as the launcher in the pod does.
  - Shows what a guest would get before a pod exists, and serves hosts that run libvirt without Kubernetes.
  - Fields that are not served are refused by their path; nothing is left out silently.
author: the vfio.passthrough authors (@vfio-passthrough)
options:
  definition:
    description: The VirtualMachineInstance or VirtualMachine, as KubeVirt users write it.
    type: dict
    required: true
  variables:
    description:
      - What the launcher would find in its environment. C(PCI_RESOURCE_NAME) holds the PCI addresses for the resource, separated by
        commas; C(HOSTDEV_COMPANIONS_NAME) the other functions that go to the guest with them, as C(PRIMARY=A+B,...).
      - NAME is the resource in upper case, each C(/) and each C(.) an underscore.
    type: dict
    default: {}
  emulation:
    description: Whether the guest runs by emulation, on a host without KVM.
    type: bool
    default: false
  path:
    description: A file on the target to keep the XML in; written only when it differs. Without it nothing is written.
    type: path
attributes:
  check_mode:
    description: Says whether the file would change and returns the XML; writes nothing.
    support: full
  diff_mode:
    description: Shows the file at O(path) before and after.
    support: full
  platform:
    description: Where it works.
    support: full
    platforms: posix
notes:
  - Devices are given addresses in the launcher's order, C(hostDevices) first, then C(gpus), each as written.
  - Paths in the XML are those of the launcher's pod.
seealso:
  - module: vfio.passthrough.virtual_machine
requirements:
  - lxml on the host that runs the module (python3-lxml)
"""

EXAMPLES = r"""
- name: See what the guest would get
  vfio.passthrough.domain_xml:
    definition: "{{ lookup('ansible.builtin.file', 'gpu-vm.yaml') | from_yaml }}"
    variables:
      PCI_RESOURCE_NVIDIA_COM_AD102_GEFORCE_RTX_4090: "0000:81:00.0"
  register: guest

- name: Show it
  ansible.builtin.debug:
    var: guest.xml

- name: Keep the domain of a guest with a whole card
  vfio.passthrough.domain_xml:
    definition:
      apiVersion: kubevirt.io/v1
      kind: VirtualMachineInstance
      metadata:
        name: desktop
      spec:
        domain:
          memory:
            guest: 8Gi
          devices:
            gpus:
              - name: gpu1
                deviceName: nvidia.com/AD102_GEFORCE_RTX_4090
    variables:
      PCI_RESOURCE_NVIDIA_COM_AD102_GEFORCE_RTX_4090: "0000:81:00.0"
      HOSTDEV_COMPANIONS_NVIDIA_COM_AD102_GEFORCE_RTX_4090: "0000:81:00.0=0000:81:00.1"
    path: /etc/libvirt/desktop.xml
"""

RETURN = r"""
xml:
  description: The domain. Equal input gives equal text.
  returned: success
  type: str
  sample: "<domain type=\"kvm\">...</domain>"
devices:
  description: Which device of the definition gets which device of the host, in the order of the domain.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The device's name in the definition.
      returned: always
      type: str
      sample: gpu1
    list:
      description: The list in which it stands, V(gpus) or V(hostDevices).
      returned: always
      type: str
      sample: gpus
    kind:
      description: What kind of device it is, V(pci), V(mdev) or V(usb).
      returned: always
      type: str
      sample: pci
    resource:
      description: The resource that it asks for.
      returned: always
      type: str
      sample: nvidia.com/AD102_GEFORCE_RTX_4090
    variable:
      description: The variable from which its address comes.
      returned: always
      type: str
      sample: PCI_RESOURCE_NVIDIA_COM_AD102_GEFORCE_RTX_4090
    alias:
      description: The device's alias in the domain.
      returned: always
      type: str
      sample: ua-gpu-gpu1
    address:
      description: Its address on the host, a PCI address, a mediated device's UUID, or BUS:DEVICE of a USB device.
      returned: always
      type: str
      sample: "0000:81:00.0"
    companions:
      description: The other functions, or the other devices of a USB bundle, that go to the guest with it.
      returned: always
      type: list
      elements: str
      sample: ["0000:81:00.1"]
diff:
  description: The file at O(path) before and after; empty when nothing changes.
  returned: success
  type: list
  elements: dict
  sample: []
fault:
  description: What was tried, on what, what the system said, and what to do.
  returned: failure
  type: dict
  sample:
    kind: refused
    what: read a VirtualMachineInstance
    subject: spec.domain.devices.gpus[0].deviceNam
    cause: "unknown field; nearest known: deviceName"
    hint: Mend the manifest
"""

from typing import Any

from ..module_utils.glue.domain_xml import domain_xml
from ..module_utils.glue.module import run_module
from ..module_utils.hostdev.root import Root

SPEC = {
    "definition": {"type": "dict", "required": True},
    "variables": {"type": "dict", "default": {}},
    "emulation": {"type": "bool", "default": False},
    "path": {"type": "path"},
}


def work(module: Any, root: Root) -> dict[str, Any]:
    return domain_xml(module.params, root, check=module.check_mode)


def main() -> None:
    run_module(SPEC, work)


if __name__ == "__main__":
    main()
