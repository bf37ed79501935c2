"""What our files for boot-time binding say, from the functions that are to be bound; pure.

Layers: a script before udev in the initramfs (only where a native driver is in there), a udev rule with a rescue step,
a unit that verifies. Every layer compares the ids first, so a card that moved to another address is never hit, and looks
for an IOMMU group, so that with the IOMMU off the native driver gets its device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..device.pci import VFIO_PCI, Function

RULES = "/etc/udev/rules.d/40-vfio-passthrough.rules"
MODULES = "/etc/modules-load.d/vfio-passthrough.conf"
HELPER = "/usr/local/lib/vfio-passthrough/boot-binding"
UNIT_NAME = "vfio-passthrough-verify.service"
UNIT = f"/etc/systemd/system/{UNIT_NAME}"
WANTS = f"/etc/systemd/system/multi-user.target.wants/{UNIT_NAME}"
STATE = "/run/vfio-passthrough"
# udev replays "add" events long after boot too; after this many seconds of uptime nothing is taken from a driver any more
BOOT_SECONDS = 600
_HEAD = "# Written by the vfio.passthrough collection; its next run replaces it, the release of the devices removes it.\n"


@dataclass(frozen=True)
class OwnFile:
    """One file of ours: path, text, mode; a link's text is its target."""

    path: str
    text: str
    mode: int = 0o644
    link: bool = False


def boot_files(functions: Sequence[Function]) -> tuple[OwnFile, ...]:
    """Return the files of the root file system that bind the functions at each boot; none when there are no functions."""
    if not functions:
        return ()
    return (
        OwnFile(MODULES, f"{_HEAD}{VFIO_PCI}\n"),
        OwnFile(RULES, _HEAD + "".join(_rule(one) for one in functions)),
        OwnFile(HELPER, _helper(functions), 0o755),
        OwnFile(UNIT, _UNIT),
        OwnFile(WANTS, f"../{UNIT_NAME}", link=True),
    )


def early_script(path: str, functions: Sequence[Function]) -> OwnFile:
    """Return the init-top script of initramfs-tools: it needs no module and runs before udev, by its name and lack of prerequisites."""
    return OwnFile(path, "#!/bin/sh\n" + _HEAD + _EARLY + "".join(f"claim {line}\n" for line in _lines(functions)), 0o755)


def _lines(functions: Iterable[Function]) -> list[str]:
    return [f"{one.address} 0x{one.vendor} 0x{one.device} {VFIO_PCI}" for one in functions]


def _rule(one: Function) -> str:
    match = (
        'ACTION=="add"',
        'SUBSYSTEM=="pci"',
        f'KERNEL=="{one.address}"',
        f'ATTR{{vendor}}=="0x{one.vendor}"',
        f'ATTR{{device}}=="0x{one.device}"',
        'TEST=="iommu_group"',
    )
    bind = (f'ATTR{{driver_override}}="{VFIO_PCI}"', f'RUN{{builtin}}+="kmod load {VFIO_PCI}"')
    # the rule may be copied into an initramfs, the helper is not
    rescue = (f'TEST=="{HELPER}"', f'RUN+="{HELPER} rescue {one.address}"')
    return ", ".join((*match, *bind)) + "\n" + ", ".join((*match, *rescue)) + "\n"


def _helper(functions: Sequence[Function]) -> str:
    listed = "\n".join(_lines(functions))
    return f"#!/bin/sh\n{_HEAD}\nSTATE={STATE}\nBOOT_SECONDS={BOOT_SECONDS}\nFUNCTIONS='\n{listed}\n'\n{_HELPER}"


_EARLY = """
case "$1" in prereqs) exit 0 ;; esac

claim() { # address vendor device driver
    folder=/sys/bus/pci/devices/$1
    [ -e "$folder/iommu_group" ] || return 0
    read -r vendor <"$folder/vendor" && read -r device <"$folder/device" || return 0
    [ "$vendor $device" = "$2 $3" ] || return 0
    echo "$4" >"$folder/driver_override"
}

"""

_UNIT = (
    _HEAD
    + f"""
[Unit]
Description=Verify that the devices declared for passthrough are bound
Documentation=man:udev(7)
After=systemd-modules-load.service systemd-udev-trigger.service
Before=kubelet.service nvidia-persistenced.service display-manager.service
ConditionPathExists={HELPER}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={HELPER} verify
TimeoutStartSec=300

[Install]
WantedBy=multi-user.target
"""
)

_HELPER = r"""
DEVICES=/sys/bus/pci/devices

say() {
    echo "vfio-passthrough: $*" >/dev/kmsg
    echo "$*" >&2
}

driver_of() {
    link=$(readlink "$DEVICES/$1/driver") && echo "${link##*/}"
}

# the driver that an address is meant to have; fails when another card is there
meant() {
    echo "$FUNCTIONS" | while read -r address vendor device driver; do
        [ "$address" = "$1" ] || continue
        [ "$(cat "$DEVICES/$1/vendor" "$DEVICES/$1/device" 2>/dev/null | tr '\n' ' ')" = "$vendor $device " ] && echo "$driver"
    done | grep .
}

nodes_of() {
    find "$DEVICES/$1/" -name uevent -exec sed -n 's|^DEVNAME=|/dev/|p' {} + 2>/dev/null
    sed -n 's|^Device Minor:[^0-9]*|/dev/nvidia|p' "/proc/driver/nvidia/gpus/$1/information" 2>/dev/null
}

users_of() {
    for node in $(nodes_of "$1"); do
        grep -hs "^$node " /proc/mounts /proc/swaps
        ls "/sys/class/block/${node##*/}/holders" 2>/dev/null
        find /proc/[0-9]*/fd -lname "$node" -print -quit 2>/dev/null
    done
    find "$DEVICES/$1/" -path '*/net/*/operstate' -exec grep -lx up {} + 2>/dev/null
}

# why the function has to be left alone; prints nothing when it may be moved
hindrance() {
    if [ -e "$STATE/released/$1" ]; then echo "given back to the host"
    elif [ ! -e "$DEVICES/$1/iommu_group" ]; then echo "the IOMMU is off or does not cover it"
    elif [ -n "$(users_of "$1" | head -n 1)" ]; then echo "in use: $(users_of "$1" | head -n 1)"
    fi
}

past_boot() {
    [ -e "$STATE/booted" ] && return 0
    read -r uptime _ </proc/uptime
    [ "${uptime%%.*}" -ge "$BOOT_SECONDS" ]
}

# called from a udev rule: only decides; what may hang runs in a unit of its own, since udev ends its workers after 180 s
rescue() {
    want=$(meant "$1") || exit 0
    now=$(driver_of "$1")
    [ "$now" = "$want" ] && exit 0
    past_boot && exit 0
    why=$(hindrance "$1")
    if [ -n "$why" ]; then
        say "$1 stays on ${now:-no driver}: $why"
        exit 0
    fi
    systemd-run --quiet --no-block --collect --unit="vfio-passthrough-rescue-$(echo "$1" | tr ':.' '--')" "$0" move "$1"
}

move() {
    want=$(meant "$1") || exit 0
    [ "$(driver_of "$1")" = "$want" ] && exit 0
    echo "$want" >"$DEVICES/$1/driver_override"
    modprobe -q "$want"
    [ -e "$DEVICES/$1/driver" ] && [ "$(driver_of "$1")" != "$want" ] && echo "$1" >"$DEVICES/$1/driver/unbind"
    [ -e "$DEVICES/$1/driver" ] || echo "$1" >/sys/bus/pci/drivers_probe
    now=$(driver_of "$1")
    say "$1 moved to ${now:-no driver}, wanted $want"
    [ "$now" = "$want" ]
}

verify() {
    failed=0
    udevadm settle --timeout=60
    for address in $(echo "$FUNCTIONS" | while read -r address _; do echo "$address"; done); do
        [ -e "$STATE/released/$address" ] && continue
        if ! want=$(meant "$address"); then
            say "$address: the declared card is not there"
            failed=1
        elif [ "$(driver_of "$address")" != "$want" ]; then
            why=$(hindrance "$address")
            if [ -n "$why" ]; then say "$address stays on $(driver_of "$address"): $why"; failed=1
            else (move "$address") || failed=1
            fi
        fi
    done
    mkdir -p "$STATE" && : >"$STATE/booted"
    exit $failed
}

case "$1" in
    rescue | move | verify) "$@" ;;
    *) echo "usage: $0 rescue ADDRESS | move ADDRESS | verify" >&2; exit 2 ;;
esac
"""
