#!/bin/sh
# Runs inside the new root, after Debian's packages are there: kernel, initramfs, and what the guest's first process needs.
# /testbed holds kernel/*.deb and the files of this directory; vmlinuz, initrd and manifest are left there.
# Two builds from the same packages are the same to the byte: what differs from one to the next is removed or dated.
set -eu
umask 022
cd /testbed
for deb in kernel/*.deb; do dpkg -x "$deb" kernel/root; done
rm -rf /usr/lib/modules
if [ -d kernel/root/usr/lib/modules ]; then modules=kernel/root/usr/lib/modules; else modules=kernel/root/lib/modules; fi
release=$(ls "$modules" | head -n 1)
image=$(ls "$modules/$release"/vmlinuz* kernel/root/boot/vmlinuz* 2>/dev/null | head -n 1)
mv "$image" vmlinuz
mv "$modules" /usr/lib/modules
depmod "$release"

mkdir -p initrd/bin initrd/modules initrd/dev
cp /bin/busybox initrd/bin/
cp initramfs-init.sh initrd/init
chmod 755 initrd/init
for module in nfit nd_pmem erofs overlay; do modprobe --show-depends --set-version "$release" "$module"; done |
    sed -n 's/^insmod //p' | awk '!seen[$1]++ { print $1 }' | while read -r path; do
        name=$(basename "$path" .xz)
        case $path in
            *.xz) python3 -c 'import lzma, sys; sys.stdout.buffer.write(lzma.open(sys.argv[1]).read())' "$path" ;;
            *) cat "$path" ;;
        esac > "initrd/modules/$name"
        echo "$name" >> initrd/modules/order
    done
find initrd -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
(cd initrd && find . | LC_ALL=C sort | busybox cpio -o -H newc --renumber-inodes --ignore-devno 2>/dev/null) > initrd.cpio

mkdir -p /usr/lib/testbed /mnt/out
install -m 755 init.sh /usr/lib/testbed/
install -m 644 boot.py modules.txt /usr/lib/testbed/
rm -rf python/bin python/*.dist-info/RECORD # they name the Python that fetched them
cp -r --no-preserve=mode python/. /usr/local/lib/python3.13/dist-packages/
ln -s busybox /usr/bin/ash # what files written for containerlab call a shell
python3 -m compileall -q -j0 /usr/local/lib/python3.13/dist-packages || :
printf '%s\n' "$release" > kernel-release
dpkg-query -W -f '${Package} ${Version}\n' > packages
cp /var/lib/dpkg/status dpkg-status
cp /etc/apt/sources.list sources
# Nothing in the guest asks for these; they are a third of the files.
rm -rf /usr/share/doc/* /usr/share/man/* /usr/share/locale/* /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/*
rm -f /etc/machine-id /etc/resolv.conf /var/cache/ldconfig/aux-cache
# Every file gets one time (mkfs.erofs -T), so Python's caches must not be compared with their sources: PEP 552.
python3 - << 'END'
import pathlib
for path in pathlib.Path("/usr").rglob("*.pyc"):
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\1\0\0\0" + bytes(8) + data[16:])
END
