# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The border between Ansible and the runtime: one argument spec, one piece of work, one place where faults end."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, Callable, Dict

from ansible.module_utils.basic import AnsibleModule

from ..hostdev.device.faults import Fault
from ..hostdev.root import Root
from .runner import command_runner

Work = Callable[[Any, Root], Dict[str, Any]]


def run_module(spec: Mapping[str, Any], work: Work, **options: Any) -> None:
    """Run a module: work(module, root) returns the result; a Fault becomes fail_json with its parts under `fault`.

    options go to AnsibleModule (required_if and the like); check mode is supported unless they say otherwise.
    """
    module = AnsibleModule(argument_spec=dict(spec), **{"supports_check_mode": True, **options})
    try:
        result = work(module, Root(runner=command_runner(module)))
    except Fault as fault:
        module.fail_json(msg=fault.text(), fault=fault.as_dict(), exception=traceback.format_exc())
    module.exit_json(**result)
