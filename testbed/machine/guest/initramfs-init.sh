#!/bin/busybox sh
# First program of the guest: finds the root among the pmem devices and hands over to it.
/bin/busybox mount -t devtmpfs dev /dev
while read -r module; do
    /bin/busybox insmod "/modules/$module" || echo "insmod $module failed"
done < /modules/order
# The order of pmem devices is not that of the command line. A file system has erofs' magic at offset 1024; which of the
# two it is says the last byte of its UUID (recipe.py).
for device in /dev/pmem*; do
    magic=$(/bin/busybox dd if="$device" bs=4 skip=256 count=1 2>/dev/null | /bin/busybox hexdump -e '1/4 "%08x"')
    uuid=$(/bin/busybox dd if="$device" bs=1 skip=1087 count=1 2>/dev/null | /bin/busybox hexdump -e '1/1 "%02x"')
    case $magic$uuid in
        e0f5e1e200) root=$device ;;
        e0f5e1e201) layer=$device ;;
    esac
done
[ -n "$root" ] || { echo "testbed: no root file system among the pmem devices"; exec /bin/busybox poweroff -f; }
/bin/busybox mkdir -p /lower /layer /upper /root
/bin/busybox mount -t erofs -o ro,dax=always "$root" /lower || exec /bin/busybox poweroff -f
lower=/lower
if [ -n "$layer" ]; then
    /bin/busybox mount -t erofs -o ro,dax=always "$layer" /layer || exec /bin/busybox poweroff -f
    lower=/layer:/lower
fi
/bin/busybox mount -t tmpfs -o size=40% upper /upper
/bin/busybox mkdir /upper/data /upper/work
/bin/busybox mount -t overlay -o "lowerdir=$lower,upperdir=/upper/data,workdir=/upper/work" overlay /root
/bin/busybox umount /dev
exec /bin/busybox switch_root /root /usr/lib/testbed/init.sh
