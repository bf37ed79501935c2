"""The runtime's version, which is the collection's; here because ansible-core before 2.21 wants empty __init__.py files."""

from __future__ import annotations

__version__ = "1.0.0"
