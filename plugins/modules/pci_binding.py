#!/usr/bin/python
# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: pci_binding
short_description: Bind PCI devices to vfio-pci, boot-safe, and give them back
version_added: 1.0.0
description:
  - Resolves a declaration to PCI addresses, and binds exactly those functions, with their companions, to the VFIO driver.
  - A companion is another function of the selected device's slot with its vendor id, or an audio function there.
  - Refuses what the host cannot spare, such as its disks, its management and default-route interfaces, its boot console,
    devices that a process uses, and groups that hold other devices. All refusals are reported at once, and nothing is changed then.
  - What the machine was before is recorded on it before the first change, in C(/var/lib/vfio-passthrough/record.json).
  - After each change the driver link is read back. When one function of a group did not come, all of them go back to their drivers.
author:
  - vfio.passthrough authors (@vfio-passthrough)
extends_documentation_fragment:
  - vfio.passthrough.declaration
options:
  state:
    description:
      - V(bound) binds exactly what is declared. Functions that an earlier run bound and that are no longer declared go back to
        their former drivers, unless a process or a pod holds them. Those stay until a later run finds them idle, and are noted.
      - V(released) gives everything back that the record knows, whatever is declared, and removes all files of this module.
    type: str
    choices: [bound, released]
    default: bound
  force:
    description:
      - With O(state=released), take devices back also from running pods that hold them and have not opened them.
        Without it such a pod, which the kubelet names, is a reason to change nothing. A device that a process has open is never
        taken, since the kernel would wait for that process.
    type: bool
    default: false
  kubelet_root:
    description:
      - The root folder of the node's kubelet, which is asked for the pods that hold devices before any goes back to the host.
      - That it cannot be asked, or that the runtime is not on the node, is noted and forbids nothing.
    type: path
    default: /var/lib/kubelet
  missing:
    description: Whether an entry of O(devices) for which the machine has no device is wrong or only reported.
    type: str
    choices: [fail, report]
    default: fail
  now:
    description:
      - Whether devices may be moved in this boot. With V(false) only what is for the next boot is written.
      - Where the IOMMU waits for a reboot, nothing is moved in any case.
    type: bool
    default: true
  persistent:
    description: Whether the devices are bound at each boot too. With V(false) the files for that are removed.
    type: bool
    default: true
attributes:
  check_mode:
    description: Says what would change, or what would be refused, and changes nothing.
    support: full
  diff_mode:
    description: Shows drivers, steps and files.
    support: full
  platform:
    description: Where it works.
    support: full
    platforms: linux
notes:
  - The module never reboots. Use M(ansible.builtin.reboot) when RV(reboot_required) is true.
  - An unbind that does not return within a minute is left behind, and reported as a needed reboot.
seealso:
  - module: vfio.passthrough.kernel_args
  - module: vfio.passthrough.pci_info
"""

EXAMPLES = r"""
- name: Bind all cards of one model
  vfio.passthrough.pci_binding:
    devices:
      - resource: nvidia.com/AD102_GEFORCE_RTX_4090
        select: {id: "10de:2684"}
  register: binding

- name: Look what one card would need
  vfio.passthrough.pci_binding:
    devices:
      - resource: example.com/scratch-nvme
        select: {id: "144d:a808", address: "0000:65:00.0"}
  check_mode: true
  diff: true

- name: Give everything back
  vfio.passthrough.pci_binding:
    state: released
"""

RETURN = r"""
functions:
  description: The functions concerned, as they are after the run.
  returned: success
  type: list
  elements: dict
  sample:
    - address: "0000:01:00.0"
      id: "10de:2684"
      driver: vfio-pci
      former: nvidia
      pre_bound: false
      group: "13"
      resource: nvidia.com/AD102_GEFORCE_RTX_4090
      part: selected
      state: bound
refused:
  description: Every rule that forbids taking a function, with what was seen and what to do.
  returned: always
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
reboot_required:
  description: Whether devices wait for a reboot, to be bound or to be given back.
  returned: success
  type: bool
  sample: false
notes:
  description: What does not forbid anything but should be known.
  returned: success
  type: list
  elements: str
  sample: []
diff:
  description: Drivers and files, before and after.
  returned: success
  type: list
  elements: dict
  sample: []
fault:
  description: What was tried, on what, what the system said, and what to do.
  returned: failure
  type: dict
  sample: {kind: refused, what: take devices from the host, subject: "0000:00:04.0", cause: system disk, hint: nothing was changed}
"""

from functools import partial
from typing import Any

from ..module_utils.glue.declaration import SPEC as DECLARATION
from ..module_utils.glue.declaration import declaration_of
from ..module_utils.glue.holders import KUBELET_ROOT, ask_holders
from ..module_utils.glue.module import run_module
from ..module_utils.hostdev.kernel import bound, released
from ..module_utils.hostdev.root import Root

SPEC = {
    **DECLARATION,
    "state": {"type": "str", "choices": ["bound", "released"], "default": "bound"},
    "force": {"type": "bool", "default": False},
    "kubelet_root": {"type": "path", "default": KUBELET_ROOT},
    "missing": {"type": "str", "choices": ["fail", "report"], "default": "fail"},
    "now": {"type": "bool", "default": True},
    "persistent": {"type": "bool", "default": True},
}


def bind(module: Any, root: Root) -> dict[str, Any]:
    given = module.params
    ask = partial(ask_holders, root, given["kubelet_root"])
    wishes = bound.Wishes(tuple(given["management_address"]), given["now"], given["persistent"], ask)
    plan = bound.plan_bound(root, declaration_of(given), wishes)
    fault = bound.as_fault(plan, given["missing"] == "fail")
    if fault:
        module.fail_json(msg=fault.text(), fault=fault.as_dict(), **{**bound.result(root, plan), "changed": False, "diff": []})
    return bound.result(root, plan, None if module.check_mode else bound.apply_bound(root, plan))


def release(module: Any, root: Root) -> dict[str, Any]:
    plan = released.plan_released(root, partial(ask_holders, root, module.params["kubelet_root"]))
    released.check_released(plan, module.params["force"])
    return released.result(root, plan, {} if module.check_mode else released.apply_released(root, plan))


def work(module: Any, root: Root) -> dict[str, Any]:
    return release(module, root) if module.params["state"] == "released" else bind(module, root)


def main() -> None:
    run_module(SPEC, work)


if __name__ == "__main__":
    main()
