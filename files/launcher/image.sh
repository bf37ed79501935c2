#!/bin/sh
# Shapes the root file system of the launcher image; run by build_image.py and by Containerfile.
#   image.sh prepare ROOT    before the packages are installed
#   image.sh finish ROOT     after it
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

finish() {
    for folder in var/lib/launcher var/lib/launcher/run var/cache/launcher; do
        mkdir -p "$root/$folder"
        chown 107:107 "$root/$folder"
        chmod 0700 "$root/$folder"
    done
    rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/cache/debconf/*-old \
        "$root"/var/cache/ldconfig "$root"/var/log/* "$root"/usr/share/doc-base
}

"$step"
