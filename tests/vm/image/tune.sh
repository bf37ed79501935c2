#!/bin/sh
# tune.sh ROOT: takes out of the boot what costs seconds under emulation and no test looks at
set -eu
root=$1
units=$root/etc/systemd/system
mask() { for unit; do ln -sf /dev/null "$units/$unit"; done; }

chroot "$root" systemctl -q disable systemd-networkd.service systemd-networkd.socket 2>/dev/null || true
mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer dpkg-db-backup.timer logrotate.timer
mask getty.target getty@tty1.service grub-common.service remote-fs.target sshd-keygen.service modprobe@.service
mask user@.service user-runtime-dir@.service machines.target
mask dev-mqueue.mount sys-kernel-tracing.mount sys-kernel-debug.mount sys-fs-fuse-connections.mount var-lib-machines.mount
mask proc-sys-fs-binfmt_misc.automount ldconfig.service
for name in ask-password-console.path ask-password-wall.path binfmt.service boot-random-seed.service creds.socket firstboot.service \
  fsck-root.service fsck@.service hibernate-clear.service hostnamed.socket hwdb-update.service importd.socket initctl.socket \
  journal-catalog-update.service journal-flush.service machine-id-commit.service network-generator.service \
  networkd-wait-online.service pcrmachine.service pcrphase-sysinit.service pcrphase.service pstore.service random-seed.service \
  sysext.socket tpm2-setup-early.service tpm2-setup.service udev-load-credentials.service update-done.service user-sessions.service
do mask "systemd-$name"; done

mkdir -p "$root/etc/systemd/system-generators"
for name in debug getty gpt-auto hibernate-resume import rc-local run ssh system-update sysv tpm2
do ln -sf /dev/null "$root/etc/systemd/system-generators/systemd-$name-generator"; done

touch "$root/etc/.updated" "$root/var/.updated"
mkdir -p "$root/etc/systemd/journald.conf.d"
printf '[Journal]\nStorage=volatile\n' >"$root/etc/systemd/journald.conf.d/worker.conf"

# decompressing modules is slow under emulation
find "$root/usr/lib/modules" -name '*.ko.xz' -print0 | xargs -0 -P2 -n64 unxz
for kernel in "$root"/usr/lib/modules/*; do chroot "$root" depmod "$(basename "$kernel")"; done
# what coldplug would load and no test needs
for module in acpi_cpufreq ahci bochs button ccp evdev i2c_i801 iTCO_wdt intel_pmc_bxt intel_rapl_common intel_rapl_msr joydev kvm kvm_amd \
  kvm_intel libahci lpc_ich pcspkr powernow_k8 psmouse qemu_fw_cfg rapl serio_raw sp5100_tco vmw_vsock_vmci_transport
do echo "blacklist $module"; done >"$root/etc/modprobe.d/worker-slim.conf"
