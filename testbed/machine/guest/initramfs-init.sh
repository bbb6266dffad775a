#!/bin/busybox sh
# First program of the guest: finds the root among the pmem devices and hands over to it.
/bin/busybox mount -t devtmpfs dev /dev
while read -r module; do
    /bin/busybox insmod "/modules/$module" || echo "insmod $module failed"
done < /modules/order
# The order of pmem devices is not that of the command line: the root is the one with erofs' magic at offset 1024.
for device in /dev/pmem*; do
    magic=$(/bin/busybox dd if="$device" bs=4 skip=256 count=1 2>/dev/null | /bin/busybox hexdump -e '1/4 "%08x"')
    [ "$magic" = e0f5e1e2 ] && root=$device
done
[ -n "$root" ] || { echo "testbed: no root file system among the pmem devices"; exec /bin/busybox poweroff -f; }
/bin/busybox mkdir -p /lower /upper /root
/bin/busybox mount -t erofs -o ro,dax=always "$root" /lower || exec /bin/busybox poweroff -f
/bin/busybox mount -t tmpfs -o size=40% upper /upper
/bin/busybox mkdir /upper/data /upper/work
/bin/busybox mount -t overlay -o lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work overlay /root
/bin/busybox umount /dev
exec /bin/busybox switch_root /root /usr/lib/testbed/init.sh
