# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Options of every module that takes the declaration; their argument spec is in plugins/module_utils/glue/declaration.py."""

from __future__ import annotations


class ModuleDocFragment:
    """What C(extends_documentation_fragment) merges into a module's documentation."""

    DOCUMENTATION = r"""
options:
  devices:
    description:
      - The declaration, a list of maps with C(resource) and what it means - C(select) with C(functions) and C(allow), C(bundle),
        or C(node) with C(count) and C(permissions).
      - Only PCI functions are prepared on a host; entries of other kinds are served as they are.
      - C(allow) may hold V(console), V(nic) and V(foreign_members). The host's own disks and the interfaces by which it is
        managed are never given away.
    type: list
    elements: dict
    default: []
  permitted_host_devices:
    description: KubeVirt's block C(permittedHostDevices), taken as it stands.
    type: dict
    default: {}
  management_address:
    description:
      - Addresses of the machine whose interfaces are never given away, beside those that show themselves.
      - Those are the local ends of SSH connections, the kubelet's node address, and the addresses from which storage in the
        network (NFS, iSCSI, NVMe) is reached.
    type: list
    elements: str
    default: []
"""
