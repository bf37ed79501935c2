#!/usr/bin/python
# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_pods_info
short_description: List the pods that a reboot of their node would interrupt
version_added: 1.0.0
description:
  - Asks the API server for the pods of a node and leaves out those of DaemonSets, static pods and finished ones.
author: the vfio.passthrough authors (@vfio-passthrough)
extends_documentation_fragment:
  - vfio.passthrough.cluster
options:
  node:
    description: The name of the node object.
    type: str
    required: true
attributes:
  check_mode:
    description: Reads only.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
  platform:
    description: Systems that the module runs on.
    support: full
    platforms: posix
"""

EXAMPLES = r"""
- name: See what runs on the node
  vfio.passthrough.node_pods_info:
    node: worker
    kubeconfig: ~/.kube/config
  delegate_to: localhost
"""

RETURN = r"""
workloads:
  description: Namespace and name of each pod that a reboot would interrupt, sorted.
  returned: always
  type: list
  elements: str
  sample: [default/database-0]
"""

from ..module_utils.glue.module import run_module
from ..module_utils.glue.node_pods import SPEC, work


def main() -> None:
    """Run the module."""
    run_module(SPEC, work)


if __name__ == "__main__":
    main()
