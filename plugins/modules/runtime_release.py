#!/usr/bin/python
# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: runtime_release
short_description: The runtime of this collection on a node
version_added: 1.0.0
description:
  - Puts the program C(hostdev), which is part of this collection, on a node. It serves the device plugin and the launcher.
  - The package travels as one archive, and only when the node does not have it yet; an unchanged runtime costs one remote task.
  - Releases are folders named by a digest of their content, C(releases/DIGEST). C(current) points to the one in use and is switched
    in one step, C(previous) to the one before, so going back is one link.
author:
  - vfio.passthrough authors (@vfio-passthrough)
options:
  state:
    description:
      - V(present) makes this collection's runtime the current one.
      - V(absent) deletes all releases and links.
    type: str
    choices: [present, absent]
    default: present
  prefix:
    description: The folder that holds the releases.
    type: path
    default: /usr/lib/vfio-passthrough
  command:
    description:
      - A link by which an administrator calls the program.
      - Empty text for none. A file of others by this name is refused, never replaced.
    type: str
    default: /usr/local/sbin/hostdev
  python:
    description: The node's Python that runs the program, 3.9 or newer.
    type: path
    default: /usr/bin/python3
  digest:
    description: The release that is meant. Set by the action plugin.
    type: str
  archive:
    description: The transferred archive. Set by the action plugin.
    type: path
attributes:
  check_mode:
    description: Says whether another release would become current, and transfers nothing.
    support: full
  diff_mode:
    description: Shows digest and command before and after.
    support: full
  action:
    description: The archive is made on the controller from the installed collection.
    support: full
  platform:
    description: Where it works.
    support: full
    platforms: linux
notes:
  - Libraries that the program needs (grpcio, protobuf, lxml, pyudev) come from the distribution, never from the archive.
  - Restart the units that run the program when this task has changed something; a running program keeps the code it started with.
"""

EXAMPLES = r"""
- name: Deploy the runtime
  vfio.passthrough.runtime_release:
  notify: Restart the device plugin

- name: Take it away
  vfio.passthrough.runtime_release:
    state: absent
"""

RETURN = r"""
digest:
  description: The current release; empty when there is none.
  returned: success
  type: str
  sample: 5c1f0ad0b2f2a7f0c4f5f1f3b2dd1f7f3e8a2b0e6d3c9b8a7f6e5d4c3b2a1908
version:
  description: The version of the deployed runtime.
  returned: success
  type: str
  sample: 1.0.0
module_version:
  description: The version of the collection that ran this task.
  returned: success
  type: str
  sample: 1.0.0
previous:
  description: The release before, kept to go back to; empty when there is none.
  returned: success
  type: str
  sample: ""
releases:
  description: All releases on the node.
  returned: success
  type: list
  elements: str
  sample: [5c1f0ad0b2f2a7f0c4f5f1f3b2dd1f7f3e8a2b0e6d3c9b8a7f6e5d4c3b2a1908]
missing:
  description: Whether the node lacks the release's files, so that they have to be sent.
  returned: success
  type: bool
  sample: false
diff:
  description: Digest, version and command before and after.
  returned: success
  type: dict
  sample: {}
fault:
  description: What was tried, on what, what the system said, and what to do.
  returned: failure
  type: dict
  sample: {}
"""

from pathlib import Path
from typing import Any

from ..module_utils.glue.module import run_module
from ..module_utils.glue.release import Place, check_node, forecast, install, is_gone, is_settled, observe, remove
from ..module_utils.hostdev.device.version import __version__
from ..module_utils.hostdev.root import Root

SPEC = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "prefix": {"type": "path", "default": "/usr/lib/vfio-passthrough"},
    "command": {"type": "str", "default": "/usr/local/sbin/hostdev"},
    "python": {"type": "path", "default": "/usr/bin/python3"},
    "digest": {"type": "str"},
    "archive": {"type": "path"},
}


def work(module: Any, root: Root) -> dict[str, Any]:
    given = module.params
    place = Place(root, given["prefix"], given["command"], given["python"])
    before = observe(place)
    digest = given["digest"] or ""
    present = given["state"] == "present"
    due = not (is_settled(place, before, digest) if present else is_gone(place, before))
    missing = present and not place.release(digest).is_dir()
    if due and present:
        check_node(place)
    if not due or module.check_mode or (missing and not given["archive"]):
        after = forecast(before, digest if present else "", __version__) if due else before
        return _result(before, after, due, missing=missing)
    if present:
        install(place, digest, Path(given["archive"]) if given["archive"] else None)
    else:
        remove(place)
    return _result(before, observe(place), due, missing=False)


def _result(before: dict[str, Any], after: dict[str, Any], due: bool, *, missing: bool) -> dict[str, Any]:
    shown = ("current", "version", "command")
    return {
        "changed": due,
        "digest": after["current"],
        "version": after["version"],
        "module_version": __version__,
        "previous": after["previous"],
        "releases": after["releases"],
        "missing": missing,
        "diff": {"before": {key: before[key] for key in shown}, "after": {key: after[key] for key in shown}} if due else {},
    }


def main() -> None:
    run_module(SPEC, work, required_if=[("state", "present", ("digest",))])


if __name__ == "__main__":
    main()
