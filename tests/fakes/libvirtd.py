"""libvirtd as the launcher sees it: a process that makes its socket and stays, or does otherwise as its argument says."""

from __future__ import annotations

import os
import signal
import sys
import time

how = sys.argv[1] if len(sys.argv) > 1 else "stay"
sys.stderr.write("2026-01-01 00:00:00.000+0000: 7: error : a first complaint about D-Bus\n")
if how == "die":
    sys.stderr.write("2026-01-01 00:00:00.000+0000: 7: error : Failed to find user record for uid '107'\n")
    sys.exit(1)
if how == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if how != "mute":
    folder = os.path.join(os.environ["XDG_RUNTIME_DIR"], "libvirt")
    os.mkdir(folder)
    open(os.path.join(folder, "libvirt-sock"), "w").close()
if how == "fail":
    time.sleep(0.7)
    sys.stderr.write("2026-01-01 00:00:00.000+0000: 7: error : the last word\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGABRT)
if how == "orphan" and os.fork() == 0:
    # a QEMU that libvirt has made a daemon; it writes to the serial line until it is ended
    os.setsid()
    if os.fork() == 0:
        with open(os.path.join(os.path.dirname(os.environ["XDG_RUNTIME_DIR"]), "serial0"), "w") as line:
            line.write("GUEST-BEGIN\nno line end")
            line.flush()

            def farewell(*unused: object) -> None:
                line.write(" but a last word")
                line.flush()
                os._exit(0)

            signal.signal(signal.SIGTERM, farewell)
            while True:
                time.sleep(60)
    os._exit(0)
while True:
    time.sleep(60)
