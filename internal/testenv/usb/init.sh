#!/bin/busybox sh
# The init process of the guest: it sets up a system with USB, and then runs the
# commands that come on the second serial port, one per line. After the output of a
# command it prints a line "END" with the exit code.
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /root /tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
ip link set lo up
for module in /modules/*.ko; do insmod "$module"; done
export HOME=/root
stty -F /dev/ttyS1 raw -echo
exec </dev/ttyS1 >/dev/ttyS1 2>/dev/console
echo END 0
while read -r command; do
  eval "$command" </dev/null
  echo END $?
done
