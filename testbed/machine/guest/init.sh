#!/bin/sh
# Second program of the guest: the mounts and modules a lab expects, then the process that waits for work.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 PYTHONHASHSEED=0 PYTHONUNBUFFERED=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t tracefs tracing /sys/kernel/tracing
mount -t configfs config /sys/kernel/config
mkdir -p /run/netns /run/lock /run/testbed/in /run/testbed/out
# What a run leaves travels in a pmem file of 1 GiB, progress included.
mount -t tmpfs -o size=900m out /run/testbed/out
hostname testbed
ip link set lo up
sed "/^#/d" /usr/lib/testbed/modules.txt | xargs modprobe -a
# A quiet kernel: every one of these would wake an idle guest, and a virtual hour costs what its wake-ups cost.
echo 0 > /proc/sys/vm/dirty_writeback_centisecs
echo 3600 > /proc/sys/vm/stat_interval
echo 0 > /proc/sys/vm/compaction_proactiveness
echo never > /sys/kernel/mm/transparent_hugepage/enabled
echo N > /sys/module/damon_stat/parameters/enabled
for family in ipv4 ipv6; do echo 3600000 > /proc/sys/net/$family/neigh/default/interval_probe_time_ms; done
# GVRP and MVRP run on every parent of a VLAN device, whether the VLAN speaks them or not: 20 timers a second.
for timer in garp/parameters/garp_join_time mrp/parameters/mrp_join_time mrp/parameters/mrp_periodic_time; do
    echo 3600000 > /sys/module/$timer
done
# Namespaces, veth and rxe wait for RCU grace periods when they come and go.
echo 1 > /sys/kernel/rcu_expedited
# Neighbour limits are those of a kernel, not of a switch: out of the way, the switch agent keeps its own.
for family in ipv4 ipv6; do
    echo 1000000 | tee /proc/sys/net/$family/neigh/default/gc_thresh1 \
        /proc/sys/net/$family/neigh/default/gc_thresh2 /proc/sys/net/$family/neigh/default/gc_thresh3 > /dev/null
done
ulimit -n 65536
exec python3 -X frozen_modules=on /usr/lib/testbed/boot.py
