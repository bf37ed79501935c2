# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The work of the module domain_xml: a manifest and its variables to libvirt's XML, and that to a file where wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Dict, List

from ..hostdev.guest.assignment import assignments
from ..hostdev.guest.domain import render
from ..hostdev.guest.settings import DomainSettings
from ..hostdev.root import Root, read_text, write_file
from ..hostdev.vmi.manifest import parse_manifest


def domain_xml(given: Mapping[str, Any], root: Root, *, check: bool) -> Dict[str, Any]:
    """Return the module's result; writes the file at `path`, when there is one and it differs, unless `check`."""
    vmi = parse_manifest(given["definition"]).instance()
    # YAML gives true and 1 where the environment has text
    environment = {str(key): str(value) for key, value in given["variables"].items()}
    text = render(vmi, environment, DomainSettings(emulation=given["emulation"]))
    difference = _keep(root, given["path"], text, check=check) if given["path"] else []
    return {"changed": bool(difference), "xml": text, "devices": assignments(vmi, environment), "diff": difference}


def _keep(root: Root, path: str, text: str, *, check: bool) -> List[Dict[str, str]]:
    old = read_text(root.at(path))
    before = "" if old is None else f"{old}\n"
    if before == text:
        return []
    if not check:
        write_file(root.at(path), text)
    return [{"before_header": path, "after_header": path, "before": before, "after": text}]
