#!/usr/bin/python
# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: virtual_machine
short_description: Run a virtual machine with host devices in a Kubernetes pod
version_added: 1.0.0
description:
  - Creates the launcher pod of a KubeVirt-style C(VirtualMachineInstance), follows it until the guest runs, and deletes it.
  - Works without KubeVirt; the devices come from the resources that role device_plugin serves.
  - A VirtualMachineInstance is one run of a guest. A pod that exists is never replaced; when it runs with another
    definition RV(restart_required) says so.
author: the vfio.passthrough authors (@vfio-passthrough)
extends_documentation_fragment:
  - vfio.passthrough.cluster
options:
  state:
    description: Whether the virtual machine is there.
    type: str
    choices: [present, absent]
    default: present
  definition:
    description: The VirtualMachineInstance, as KubeVirt users write it. Fields that are not served are refused by their path.
    type: dict
    required: true
  namespace:
    description: The namespace where the definition gives none.
    type: str
    default: default
  launcher_image:
    description: The image of the launcher. Needed for O(state=present).
    type: str
  launcher_image_pull_policy:
    description: When the kubelet pulls the image.
    type: str
    choices: [Always, IfNotPresent, Never]
    default: IfNotPresent
  launcher_emulation:
    description:
      - V(always) runs the guest by emulation and asks for no KVM, V(never) asks for KVM.
      - V(auto) asks for KVM when some node offers C(devices.kubevirt.io/kvm).
    type: str
    choices: [auto, always, never]
    default: auto
  resources:
    description: The declared resource names; a device of another one is refused. Without this option nothing is compared.
    type: list
    elements: str
  wait:
    description: Whether to wait until the guest runs or its run is over, or until its pod is gone.
    type: bool
    default: true
  wait_timeout:
    description: Seconds to wait.
    type: int
    default: 300
attributes:
  check_mode:
    description: Tells what would change without changing it.
    support: full
  diff_mode:
    description: Shows the objects that are created or deleted.
    support: full
  platform:
    description: Systems that the module runs on.
    support: full
    platforms: posix
"""

EXAMPLES = r"""
- name: Run a guest with a GPU
  vfio.passthrough.virtual_machine:
    definition: "{{ lookup('ansible.builtin.file', 'gpu-vm.yaml') | from_yaml }}"
    launcher_image: registry.example.com/vfio-passthrough-launcher:1.0.0
    kubeconfig: ~/.kube/config
  delegate_to: localhost

- name: Show what would be created
  vfio.passthrough.virtual_machine:
    definition: "{{ lookup('ansible.builtin.file', 'gpu-vm.yaml') | from_yaml }}"
    launcher_image: registry.example.com/vfio-passthrough-launcher:1.0.0
  check_mode: true
  diff: true
  delegate_to: localhost

- name: End the guest
  vfio.passthrough.virtual_machine:
    state: absent
    definition: "{{ lookup('ansible.builtin.file', 'gpu-vm.yaml') | from_yaml }}"
  delegate_to: localhost
"""

RETURN = r"""
phase:
  description: Absent, Pending, Starting, Running, Stopping, Succeeded or Failed.
  returned: always
  type: str
  sample: Running
node:
  description: The node that the scheduler chose; empty before that.
  returned: always
  type: str
  sample: worker
message:
  description: Why the virtual machine is in this phase; for a pending one, what each node has of its devices.
  returned: always
  type: str
  sample: ""
report:
  description: What the launcher wrote when it ended; empty before that.
  returned: always
  type: dict
  sample: {}
restart_required:
  description: Whether the pod runs with another definition than this one.
  returned: always
  type: bool
  sample: false
summary:
  description: The state in one line.
  returned: always
  type: str
  sample: "default/gpu-vm: Running on node worker"
"""

from ..module_utils.glue.module import run_module
from ..module_utils.glue.virtual_machine import SPEC, work


def main() -> None:
    """Run the module."""
    run_module(SPEC, work, required_if=[("state", "present", ["launcher_image"])])


if __name__ == "__main__":
    main()
