#!/bin/sh
# essential.sh ROOT: runs before the kernel is configured, so that its one initramfs is already the small one
set -eu
config=$1/etc/initramfs-tools
mkdir -p "$config/conf.d" "$config/scripts/init-top" "$config/scripts/init-bottom"
printf 'MODULES=list\nCOMPRESS=zstd\nCOMPRESSLEVEL=3\nBUSYBOX=y\nFSTYPE=ext4\n' >"$config/conf.d/worker.conf"
printf 'virtio_pci\nvirtio_blk\next4\ncrc32c_generic\n' >"$config/modules"
# no udev inside the initramfs; what its last script does besides - moving /dev - is still needed
cat >"$config/scripts/init-top/udev" <<'END'
#!/bin/sh
[ "$1" = prereqs ] && exit 0
exit 0
END
cat >"$config/scripts/init-bottom/udev" <<'END'
#!/bin/sh
[ "$1" = prereqs ] && exit 0
mount -n -o move /dev "${rootmnt:?}/dev"
END
chmod +x "$config/scripts/init-top/udev" "$config/scripts/init-bottom/udev"
