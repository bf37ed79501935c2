"""Ask a libvirtd of our own what QEMU's arguments would be; nothing is started.

Standard input: {name: the domain's XML}. Argument: a folder of the user's. Output: {name: [arguments, or libvirt's refusal]}.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import libvirt


def main(folder: str) -> None:
    """Start the daemon, ask, end it."""
    own = {f"XDG_{name}_HOME": f"{folder}/{name}" for name in ("CACHE", "CONFIG")}
    environment = {**os.environ, **own, "XDG_RUNTIME_DIR": f"{folder}/run", "HOME": folder}
    os.mkdir(f"{folder}/run")
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    daemon = subprocess.Popen(["libvirtd"], env=environment, stderr=subprocess.DEVNULL)
    try:
        connection = _connect(f"{folder}/run/libvirt/libvirt-sock")
        sys.stdout.write(json.dumps({name: _native(connection, xml) for name, xml in json.load(sys.stdin).items()}))
    finally:
        daemon.terminate()
        daemon.wait()


def _connect(socket: str) -> libvirt.virConnect:
    for _number in range(600):
        if os.path.exists(socket):
            break
        time.sleep(0.1)
    return libvirt.open(f"qemu+unix:///session?socket={socket}")


def _native(connection: libvirt.virConnect, xml: str) -> list[str]:
    try:
        return [str(connection.domainXMLToNative("qemu-argv", xml, 0)), ""]
    except libvirt.libvirtError as error:
        return ["", str(error)]


if __name__ == "__main__":
    main(sys.argv[1])
