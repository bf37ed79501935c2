#!/usr/bin/python
# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_daemonset
short_description: Give a node its pod of a DaemonSet, or take it away
version_added: 1.0.0
description:
  - Applies a DaemonSet, labels the node so that it gets a pod, and waits until that pod is ready. So a play brings a
    DaemonSet to the nodes that it works on, node by node, and a new version of it as well.
  - With O(state=absent) the node's label and pod go, and with the last label the DaemonSet.
author: the vfio.passthrough authors (@vfio-passthrough)
extends_documentation_fragment:
  - vfio.passthrough.cluster
options:
  state:
    description: Whether the node has a pod of the DaemonSet.
    type: str
    choices: [present, absent]
    default: present
  node:
    description: The name of the node object.
    type: str
    required: true
  definition:
    description:
      - The DaemonSet, C(apps/v1). Its pods' C(nodeSelector) says which label a node is given.
      - Its update strategy should be C(OnDelete); pods of a former template are ended by this module, on this node alone.
      - It is applied on the server's side; what others have set beside it stays.
    type: dict
    required: true
  wait:
    description: Whether to wait until the node's pod is ready, or gone.
    type: bool
    default: true
  wait_timeout:
    description: Seconds to wait.
    type: int
    default: 300
notes:
  - The account needs the verbs get, patch, create and delete for the DaemonSet, get, list and patch for nodes, list and delete for pods.
attributes:
  check_mode:
    description: Asks the API server what would change without changing it.
    support: full
  diff_mode:
    description: Shows the DaemonSet before and after, as the API server completes it.
    support: full
  platform:
    description: Systems that the module runs on.
    support: full
    platforms: posix
"""

EXAMPLES = r"""
- name: Run the agent on this node
  vfio.passthrough.node_daemonset:
    node: worker
    definition: "{{ lookup('ansible.builtin.file', 'agent.yaml') | from_yaml }}"
    kubeconfig: ~/.kube/config
  delegate_to: localhost

- name: Show what taking it away would change
  vfio.passthrough.node_daemonset:
    state: absent
    node: worker
    definition: "{{ lookup('ansible.builtin.file', 'agent.yaml') | from_yaml }}"
  check_mode: true
  diff: true
  delegate_to: localhost
"""

RETURN = r"""
template:
  description: The digest of the pods' template; pods of it bear it as annotation C(vfio-passthrough/template).
  returned: always
  type: str
  sample: 0f343b093112
"""

from ..module_utils.glue.module import run_module
from ..module_utils.glue.node_daemonset import SPEC, work


def main() -> None:
    """Run the module."""
    run_module(SPEC, work)


if __name__ == "__main__":
    main()
