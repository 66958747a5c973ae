#!/bin/busybox sh
# The init process of the guest: it loads the modules of the test, and then runs the
# commands that come on the second serial port, one per line, after their length. After the
# output of a command it prints a line "END" with the exit code. A busy guest loses characters
# now and then: it asks for such a line again.
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /root /tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
ip link set lo up
hostname guest
for module in /modules/*.ko; do insmod "$module" $(cat "${module%.ko}.parameters"); done
export HOME=/root
stty -F /dev/ttyS1 raw -echo
exec </dev/ttyS1 >/dev/ttyS1 2>/dev/console
echo END 0
while read -r length command; do
  [ "$length" = "${#command}" ] || { echo AGAIN; continue; }
  eval "$command" </dev/null
  echo END $?
done
