"""The launcher as a process of its own: `launcher.py MODULE_UTILS OPTIONS-AS-JSON [FOLDER WITH ANOTHER libvirt]`.

Signals, children and exit code belong to the whole process, so tests start it and look from outside. Any Python will
do: the distribution's own has libvirt.
"""

from __future__ import annotations

import json
import sys

sys.path[:0] = [*sys.argv[3:], sys.argv[1]]

from hostdev.guest.launch import LaunchOptions, launch  # type: ignore[import-not-found]  # noqa: E402


def main() -> int:
    options = json.loads(sys.argv[2])
    options["daemon"] = tuple(options["daemon"])
    return int(launch(LaunchOptions(**options)))


if __name__ == "__main__":
    sys.exit(main())
