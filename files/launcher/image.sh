#!/bin/sh
# Shapes the root file system of the launcher image; run by files/image/build_image.py and by Containerfile.
#   image.sh prepare ROOT    before the packages are installed
#   image.sh probe ROOT      after it: keeps what libvirt finds out about QEMU
#   image.sh finish ROOT     after that
set -eu
step=$1
root=${2%/}

prepare() {
    # libvirtd ends without a message when its user has no record; KubeVirt's launcher has the same numbers.
    # Before the packages, so that none of their system users takes the number.
    echo 'qemu:x:107:107:launcher:/var/lib/launcher:/usr/sbin/nologin' >>"$root/etc/passwd"
    echo 'qemu:x:107:' >>"$root/etc/group"
    mkdir -p "$root/etc/apt/preferences.d"
}

probe() {
    # At its first start libvirt asks QEMU what it can do: most of a minute where the node is emulated itself. Here once,
    # as the launcher's user and without KVM; the launcher gives it to libvirt, which asks again where it does not fit.
    work=tmp/probe
    kept=usr/share/vfio-passthrough/capabilities
    mkdir -p "$root/$work" "$root/$kept"
    chown 107:107 "$root/$work"
    set -- chroot --userspec=107:107 "$root/" env -i PATH=/usr/sbin:/usr/bin LC_ALL=C HOME="/$work" XDG_RUNTIME_DIR="/$work/run" \
        XDG_CACHE_HOME="/$work/cache" XDG_CONFIG_HOME="/$work/config"
    "$@" libvirtd >"$root/$work.log" 2>&1 &
    daemon=$!
    for _attempt in $(seq 300); do
        # the first question of a client makes libvirt look
        if "$@" virsh -q -c "qemu+unix:///session?socket=/$work/run/libvirt/libvirt-sock" domcapabilities >/dev/null 2>&1 ||
            ! kill -0 "$daemon" 2>/dev/null; then break; fi
        sleep 0.2
    done
    if ! install -m 0644 "$root/$work"/cache/libvirt/qemu/cache/capabilities/*.xml "$root/$kept/"; then
        echo "image.sh: libvirtd told nothing about QEMU, every launcher will ask anew; its last lines:" >&2
        tail -n 3 "$root/$work.log" >&2
    fi
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" || true
    rm -rf "$root/${work:?}" "$root/$work.log"
}

finish() {
    for folder in var/lib/launcher var/lib/launcher/run var/cache/launcher; do
        mkdir -p "$root/$folder"
        chown 107:107 "$root/$folder"
        chmod 0700 "$root/$folder"
    done
}

"$step"
