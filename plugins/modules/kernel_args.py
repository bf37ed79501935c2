#!/usr/bin/python
# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_args
short_description: Kernel boot arguments for PCI passthrough
version_added: 1.0.0
description:
  - Sees to it that every Linux entry of the boot menu, and every kernel installed later, starts with the arguments that are needed.
  - Words that switch an IOMMU off are removed, wherever they were set; a word after them would not undo them.
  - Whether a reboot is needed is computed at each run, from what the running kernel was started with and what the next boot has.
  - Works with GRUB as Debian and Ubuntu have it, through one file of its own that is read after all others.
    With another boot loader the module fails when something has to change, and says which words to set where.
author:
  - vfio.passthrough authors (@vfio-passthrough)
options:
  state:
    description:
      - V(present) makes the arguments hold from the next boot on.
      - V(absent) takes back everything that this module changed; O(arguments) and O(remove) then only widen what
        RV(reboot_required) looks at.
    type: str
    choices: [present, absent]
    default: present
  arguments:
    description:
      - Words that have to be there, one word each. This list is whole, a word of an earlier list that it lacks goes.
      - V(auto) stands for what this machine needs to have its IOMMU active, decided by the maker of its CPU and what the firmware
        gives. Nothing is needed where the IOMMU is active.
      - V(hugepages=) belongs to the V(hugepagesz=) just before it.
    type: list
    elements: str
    default: [auto]
  remove:
    description:
      - Words that must not be there, each compared as a whole; C(-) and C(_) are equal in a parameter's name.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Says what would change and changes nothing.
    support: full
  diff_mode:
    description: Shows the module's own file and every entry of the boot menu.
    support: full
  platform:
    description: Where it works.
    support: full
    platforms: linux
notes:
  - The module never reboots. Use M(ansible.builtin.reboot) when RV(reboot_required) is true.
  - Arguments go to normal entries only, so that the recovery entry stays a way back.
  - What the lines were before the first change is kept in C(/var/lib/vfio-passthrough/record.json) until it is undone.
requirements:
  - C(update-grub) of grub2-common on Debian and Ubuntu
"""

EXAMPLES = r"""
- name: Have the IOMMU active from the next boot on
  vfio.passthrough.kernel_args:
  register: boot

- name: Say whether a reboot is needed
  ansible.builtin.debug:
    var: boot.reboot_required

- name: What the machine needs, and two words more
  vfio.passthrough.kernel_args:
    arguments:
      - auto
      - iommu=pt
      - pci=realloc
    remove:
      - nomodeset

- name: As it was before
  vfio.passthrough.kernel_args:
    state: absent
"""

RETURN = r"""
reboot_required:
  description: Whether the next boot will have other arguments of concern than the running kernel.
  returned: success
  type: bool
  sample: true
boot_loader:
  description: What starts this machine.
  returned: success
  type: str
  sample: grub
running:
  description: The command line of the running kernel.
  returned: success
  type: str
  sample: BOOT_IMAGE=/boot/vmlinuz-6.12.0-1-amd64 root=UUID=6d3 ro quiet intel_iommu=off
next_boot:
  description: The arguments of the entry that boots next; empty where the boot loader is not managed.
  returned: success
  type: str
  sample: root=UUID=6d3 ro quiet intel_iommu=on
added:
  description: Words that the next boot has now and had not before this run.
  returned: success
  type: list
  elements: str
  sample: [intel_iommu=on]
removed:
  description: Words that the next boot had before this run and has no more.
  returned: success
  type: list
  elements: str
  sample: [intel_iommu=off]
superfluous:
  description: Words on the running or next line that have no effect on this machine; they are left alone.
  returned: success
  type: list
  elements: str
  sample: [amd_iommu=on]
diff:
  description: The module's own file and the entries of the boot menu, before and after.
  returned: success
  type: list
  elements: dict
  sample: []
fault:
  description: What was tried, on what, what the system said, and what to do.
  returned: failure
  type: dict
  sample:
    kind: unsupported
    what: change the boot arguments
    subject: boot loader systemd-boot
    cause: it is not one of those that are managed here
    hint: "in /etc/kernel/cmdline, then kernel-install add for each kernel, add: intel_iommu=on; then reboot"
"""

from typing import Any

from ..module_utils.glue.module import run_module
from ..module_utils.hostdev.kernel.bootargs import ensure
from ..module_utils.hostdev.kernel.bootloader import loader_of
from ..module_utils.hostdev.kernel.bootplan import Wish
from ..module_utils.hostdev.kernel.iommu import read_state
from ..module_utils.hostdev.root import Root

SPEC = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "arguments": {"type": "list", "elements": "str", "default": ["auto"]},
    "remove": {"type": "list", "elements": "str", "default": []},
}


def work(module: Any, root: Root) -> dict[str, Any]:
    given = module.params
    wish = Wish(tuple(given["arguments"]), tuple(given["remove"]), given["state"] == "absent")
    return ensure(root, loader_of(root), read_state(root), wish, check=module.check_mode)


def main() -> None:
    run_module(SPEC, work)


if __name__ == "__main__":
    main()
