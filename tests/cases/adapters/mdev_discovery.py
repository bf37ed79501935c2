"""Adapter of mdev-discovery.json: trees and a configuration to plugins, skipped devices and Allocate answers."""

from __future__ import annotations

from ansible_collections.vfio.passthrough.tests.cases import discovery

SECTIONS = ("cases",)
cases = discovery.cases
