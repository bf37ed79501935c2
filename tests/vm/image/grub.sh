#!/bin/sh
# grub.sh ROOT UUID "ARGUMENTS" "DEFAULT ARGUMENTS": the settings that update-grub reads, and a first grub.cfg that agrees with them
set -eu
root=$1
kernel=$(basename "$root"/boot/vmlinuz-*)
cat >"$root/etc/default/grub" <<G
GRUB_DEFAULT=0
GRUB_TIMEOUT=0
GRUB_DISTRIBUTOR=Debian
GRUB_CMDLINE_LINUX_DEFAULT="$4"
GRUB_CMDLINE_LINUX="$3"
GRUB_TERMINAL="console"
GRUB_DISABLE_OS_PROBER=true
GRUB_DISABLE_SUBMENU=true
GRUB_GFXPAYLOAD_LINUX=text
G
mkdir -p "$root/boot/grub"
cat >"$root/boot/grub/grub.cfg" <<G
set default=0
set timeout=0
menuentry 'Debian GNU/Linux' {
	search --no-floppy --fs-uuid --set=root $2
	linux /boot/$kernel root=UUID=$2 ro $3 $4
	initrd /boot/initrd.img-${kernel#vmlinuz-}
}
G
