#!/usr/bin/env bash
# Turns fresh namespaces into a host with sshd, one user "spark" and a private /tmp:
#   unshare --net --pid --mount --fork --kill-child --mount-proc host.sh FOLDER COMMAND...
# FOLDER becomes /mnt: home/, bin/, etc. stay readable from outside.
set -euo pipefail
ip link set lo up
ip address add 127.0.0.2/8 dev lo 2> /dev/null || true
mount --bind "$1" /mnt
shift
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
mkdir -p /run/sshd /mnt/ssh

# A second name for this user, with a home of its own.
{ cat /etc/passwd; echo "spark:x:0:0::/mnt/home:/bin/bash"; } > /mnt/ssh/passwd
{ cat /etc/shadow; echo "spark:*:20000::::::"; } > /mnt/ssh/shadow
mount --bind /mnt/ssh/passwd /etc/passwd
mount --bind /mnt/ssh/shadow /etc/shadow

ssh-keygen -q -t ed25519 -N "" -f /mnt/ssh/host_key
ssh-keygen -q -t ed25519 -N "" -f /mnt/ssh/user_key
cp /mnt/ssh/user_key.pub /mnt/ssh/authorized_keys
cat > /mnt/ssh/sshd_config << 'CONFIG'
ListenAddress 127.0.0.1
ListenAddress 127.0.0.2
HostKey /mnt/ssh/host_key
AuthorizedKeysFile /mnt/ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
PidFile none
CONFIG
"$(command -v sshd || echo /usr/sbin/sshd)" -f /mnt/ssh/sshd_config -E /mnt/ssh/log
cd /mnt
# Not exec: the first process of a pid namespace must reap what daemons leave.
status=0
"$@" || status=$?
exit $status
