"""A service manager as far as a role uses one: `systemctl.py FOLDER COMMAND [UNIT]` over the unit files of /etc/systemd/system.

It really starts the unit's program, unless one of its conditions does not hold, and ends it. FOLDER keeps what it knows.
The program's Python is ours, as this machine's may lack the libraries, and so is its runtime.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

UNITS = Path("/etc/systemd/system")
RUNTIME = Path(__file__).resolve().parents[2] / "plugins/module_utils"
PATIENCE = 30.0


class Manager:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def text(self, unit: str) -> str:
        path = UNITS / unit
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def values(self, unit: str, key: str) -> list[str]:
        return re.findall(rf"^{key}=(.*)$", self.text(unit), re.MULTILINE)

    def pid(self, unit: str) -> int:
        """Return the process of a running unit, 0 without one."""
        try:
            number = int((self.folder / f"{unit}.pid").read_text(encoding="ascii"))
            state = Path(f"/proc/{number}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
        except (OSError, ValueError):
            return 0
        return 0 if state == "Z" else number

    def start(self, unit: str) -> None:
        wanted = self.values(unit, "ConditionPathExists")
        if self.pid(unit) or not all(Path(path.lstrip("!")).exists() is not path.startswith("!") for path in wanted):
            return
        for command in self.values(unit, "ExecStartPre"):
            subprocess.run(command.lstrip("+").split(), check=True)
        [command] = self.values(unit, "ExecStart")
        words = [sys.executable, *command.split()[1:]]
        env = {**os.environ, "PYTHONPATH": str(RUNTIME), "PYTHONDONTWRITEBYTECODE": "1"}
        with (self.folder / f"{unit}.log").open("ab") as log:
            made = subprocess.Popen(words, cwd="/", env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        (self.folder / f"{unit}.pid").write_text(str(made.pid), encoding="ascii")

    def stop(self, unit: str) -> None:
        number, limit = self.pid(unit), time.monotonic() + PATIENCE
        if number:
            os.kill(number, signal.SIGTERM)
        while self.pid(unit) and time.monotonic() < limit:
            time.sleep(0.1)

    def restart(self, unit: str) -> None:
        self.stop(unit)
        self.start(unit)

    def show(self, unit: str) -> None:
        loaded = "loaded" if self.text(unit) else "not-found"
        active = "active" if self.pid(unit) else "inactive"
        sys.stdout.write(f"LoadState={loaded}\nActiveState={active}\nUnitFileState={self.enabled(unit)}\n")

    def enabled(self, unit: str) -> str:
        return "enabled" if (self.folder / f"{unit}.enabled").exists() else "disabled"

    def main(self, command: str, unit: str) -> int:
        mark = self.folder / f"{unit}.enabled"
        if command == "is-enabled":
            sys.stdout.write(self.enabled(unit) + "\n")
            return 0 if mark.exists() else 1
        acts: dict[str, Callable[[str], object]] = {
            "start": self.start,
            "stop": self.stop,
            "restart": self.restart,
            "show": self.show,
            "enable": lambda _unit: mark.touch(),
            "disable": lambda _unit: mark.unlink(missing_ok=True),
            "daemon-reload": lambda _unit: None,
        }
        acts[command](unit)
        return 0


if __name__ == "__main__":
    given = [word for word in sys.argv[2:] if not word.startswith("-")]
    raise SystemExit(Manager(Path(sys.argv[1])).main(given[0], given[1] if len(given) > 1 else ""))
