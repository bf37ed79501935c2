# Copyright: the vfio.passthrough authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The options by which modules take the declaration; plugins/doc_fragments/declaration.py documents them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..hostdev.device.declaration import Declaration, parse_declaration

SPEC: dict[str, Any] = {
    "devices": {"type": "list", "elements": "dict", "default": []},
    "permitted_host_devices": {"type": "dict", "default": {}},
    "management_address": {"type": "list", "elements": "str", "default": []},
}


def declaration_of(given: Mapping[str, Any]) -> Declaration:
    """Return the declaration in a module's parameters; Refused with the position of what is wrong."""
    return parse_declaration(given["devices"], given["permitted_host_devices"], "devices", "permitted_host_devices")
