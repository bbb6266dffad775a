#!/bin/sh
# Prints what `testbed diagnose --from` reads of a host, or of a switch with Linux (SONiC, Cumulus): addresses,
# neighbours, MACs, bonds, RDMA devices, LLDP, and counters, twice. It installs and changes nothing; programs that are
# missing are left out.
#
#   for host in gpu1 gpu2; do
#       ssh "$host" sudo sh -s "$(date +%s.%N)" < collect.sh > bundle/hosts/"$host".txt &
#   done; wait
#
# The first argument is the time here, by which clocks are compared; the second the seconds between two readings.
show() {
    command -v "$1" >/dev/null || return 0
    printf '### %s\n' "$*"
    "$@" 2>/dev/null
    echo
}
nics() { ls /sys/class/net | grep -v '^lo$'; }
counters() {
    show date +%s.%N
    show ip -j -s -s link
    show rdma -j statistic
    for nic in $(nics); do
        show ethtool -S "$nic"
    done
}
printf '### asked at\n%s\n\n' "$1"
show date +%s.%N
show date +%z
show uname -sr
[ -e /etc/sonic/sonic_version.yml ] && show cat /etc/sonic/sonic_version.yml
[ -e /etc/lsb-release ] && show cat /etc/lsb-release
counters
show ip -j -d address
show ip -j route
show ip -j -6 route
show ip -j -s neighbour
show bridge -j -s fdb
show bridge -j vlan
for bond in $(ls /proc/net/bonding 2>/dev/null); do
    show cat /proc/net/bonding/"$bond"
done
show clagctl
show rdma -j link
for nic in $(nics); do
    show ethtool "$nic"
done
show lldpctl -f json
sleep "${2:-10}"
counters
