#!/bin/sh
# customize.sh ROOT KEY.pub: makes a Debian tree the worker: its name, network, ssh access
set -eu
root=$1
key=$2
echo worker >"$root/etc/hostname"
printf '127.0.0.1 localhost\n127.0.1.1 worker\n' >"$root/etc/hosts"
printf 'LABEL=worker / ext4 rw,noatime 0 0\n' >"$root/etc/fstab"
printf 'nameserver 10.0.2.3\n' >"$root/etc/resolv.conf"
echo 11111111111111111111111111111111 >"$root/etc/machine-id"

install -d -m700 "$root/root/.ssh"
install -m600 "$key" "$root/root/.ssh/authorized_keys"
mkdir -p "$root/etc/ssh/sshd_config.d"
cat >"$root/etc/ssh/sshd_config.d/worker.conf" <<'S'
PermitRootLogin prohibit-password
UseDNS no
UsePAM no
PrintMotd no
PerSourcePenalties no
LoginGraceTime 0
MaxStartups 100
S
rm -f "$root"/etc/ssh/ssh_host_*
ssh-keygen -q -t ed25519 -N '' -C worker -f "$root/etc/ssh/ssh_host_ed25519_key"

# a fixed address needs no DHCP client, and this unit starts earlier than any network manager would
cat >"$root/etc/systemd/system/worker-network.service" <<'S'
[Unit]
Description=Fixed address of the management interface
DefaultDependencies=no
After=systemd-udevd.service
Before=network.target ssh.service
Wants=network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/worker-network
[Install]
WantedBy=multi-user.target
S
cat >"$root/usr/local/sbin/worker-network" <<'S'
#!/bin/sh
modprobe virtio_net
tries=0
while [ ! -e /sys/class/net/eth0 ] && [ $tries -lt 100 ]; do sleep .1; tries=$((tries + 1)); done
ip link set lo up
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2
S
chmod +x "$root/usr/local/sbin/worker-network"
chroot "$root" systemctl -q enable worker-network.service ssh.service
chroot "$root" systemctl -q set-default multi-user.target
