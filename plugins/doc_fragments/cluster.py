# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Options of every module that asks the API server; their argument spec is in plugins/module_utils/glue/cluster.py."""

from __future__ import annotations


class ModuleDocFragment:
    """What C(extends_documentation_fragment) merges into a module's documentation."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description: Path of a kubeconfig. Without it the environment decides.
    type: path
  context:
    description: The kubeconfig's context.
    type: str
requirements:
  - kubernetes (Python library) on the host that runs the module, usually the controller
"""
