#!/bin/bash
# Checks the packaged service in a guest with systemd, and reports each check in a line:
# "OK name" or "FAILED name: why". The guest is turned off afterwards.
exec >/dev/ttyS0 2>&1
export PATH=/usr/bin:/usr/sbin

ok() { echo "OK $1"; }
failed() { echo "FAILED $1: $2"; }
# equal NAME GOT WANT
equal() { if [ "$2" = "$3" ]; then ok "$1"; else failed "$1" "got '$2', want '$3'"; fi; }
show() { systemctl show --value -p "$1" "${2:-ferrule}"; }
as() { local user=$1; shift; setpriv --reuid "$user" --regid "$user" --init-groups env HOME=/tmp/$user "$@"; }
# until COMMAND: waits until a command succeeds, for a minute.
until_ok() {
  local end=$((SECONDS + 60))
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.2
  done
}
running() { [ "$(show ActiveState)" = active ] && ferrule devices --data /var/lib/ferrule; }
another() { [ "$(show MainPID)" != "$1" ] && [ "$(show MainPID)" != 0 ] && running; }

for user in alice bob; do mkdir -p /tmp/$user && chown $user /tmp/$user; done

# Boot: the service was started with the system.
until_ok running
equal boot "$(show ActiveState)" active
equal user "$(ps -o user= -p "$(show MainPID)")" ferrule
loaded() { show ExecMainStartTimestampMonotonic "$1"; }
order="$(show ActiveEnterTimestampMonotonic systemd-sysusers) $(loaded modprobe@cdc_acm) $(show ExecMainStartTimestampMonotonic)"
read -r users driver service <<<"$order"
if [ "$users" -gt 0 ] && [ "$users" -lt "$service" ] && [ "$driver" -gt 0 ] && [ "$driver" -lt "$service" ]; then ok order; else failed order "$order"; fi
equal drivers "$(lsmod | grep -cE '^(cdc_acm|usbserial) ')" 2

# Files.
equal data "$(stat -c '%a %U %G' /var/lib/ferrule)" "700 ferrule ferrule"
equal runtime "$(stat -c '%a %U %G' /run/ferrule)" "750 ferrule ferrule"
equal socket "$(stat -c '%a %U %G' /run/ferrule/control.sock)" "660 ferrule ferrule"
equal own-socket "$(stat -c '%a' /var/lib/ferrule/control.sock)" 600

# Users: alice is a member of the group, bob is not.
as alice ferrule devices >/tmp/out 2>&1
equal member "$? $(grep -c robot /tmp/out)" "0 1"
as bob ferrule devices >/tmp/out 2>&1
equal other "$? $(grep -c usermod /tmp/out)" "8 1"

# Restrictions: interfaces can be listed, and a serial port can be opened.
equal netlink "$(journalctl -u ferrule -o cat --no-pager | grep -ciE 'netlink|address family')" 0
equal serial "$(ferrule devices --json --data /var/lib/ferrule | grep -ciE 'permission denied|not permitted')" 0

# The computer as a device: it runs with its restrictions, and nobody can use it without the token.
systemctl start ferrule-board
serves() { [ "$(show ActiveState ferrule-board)" = active ] && (: <>/dev/tcp/127.0.0.1/8642); }
until_ok serves && ok board || failed board "$(systemctl status --no-pager ferrule-board)"
equal board-user "$(ps -o user= -p "$(show MainPID ferrule-board)")" ferrule
equal board-token "$(stat -c '%a %U' /var/lib/ferrule-board/token)" "600 ferrule"
exec 3<>/dev/tcp/127.0.0.1/8642
printf 'POST /mcp HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n' >&3
equal board-refuses "$(head -1 <&3 | cut -d' ' -f2)" 401
exec 3>&-
equal board-rules "$(journalctl -b -o cat --no-pager | grep -c 'ferrule-board.rules.*nvalid\|ferrule-board.rules.*nknown')" 0
systemctl stop ferrule-board
equal board-stop "$(show ActiveState ferrule-board) $(show Result ferrule-board)" "inactive success"

# Reload keeps the process.
pid=$(show MainPID)
systemctl reload ferrule
equal reload "$? $(until_ok running && show MainPID)" "0 $pid"
equal reload-result "$(show NRestarts)" 0

# A crash, and an exit without an error.
pid=$(show MainPID)
kill -KILL "$pid"
until_ok another "$pid" && ok crash || failed crash "$(systemctl status --no-pager ferrule)"
pid=$(show MainPID)
kill -TERM "$pid"
until_ok another "$pid" && ok exit || failed exit "$(systemctl status --no-pager ferrule)"

# Stop.
pid=$(show MainPID)
systemctl stop ferrule
equal stop "$? $(show ActiveState) $(show Result)" "0 inactive success"
[ -e /proc/"$pid" ] && failed process "process $pid is left" || ok process
[ -e /run/ferrule ] && failed runtime-gone "/run/ferrule is left" || ok runtime-gone
as alice ferrule devices >/tmp/out 2>&1
equal stopped-member "$?" 7

# An invalid configuration is not tried again.
echo "nonsense: 1" >>/etc/ferrule/ferrule.yaml
systemctl start ferrule
given_up() { [ "$(show ActiveState)" = failed ]; } # not "activating", which would be another try
until_ok given_up
equal invalid "$(show ActiveState) $(show ExecMainStatus)" "failed 2"

echo END
systemctl poweroff --force --force
