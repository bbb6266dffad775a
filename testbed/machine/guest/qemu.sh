#!/bin/sh
# Runs inside the new root: packs the QEMU that runs the image, with its libraries and its firmware, into qemu.tar.
# /testbed/qemu holds the packages that the root lacks; the libraries of the others are the root's own.
set -eu
umask 022
cd /testbed/qemu
multiarch=usr/lib/x86_64-linux-gnu
for deb in debs/*.deb; do dpkg -x "$deb" root; done
mkdir -p out/lib out/modules out/firmware
cp root/usr/bin/qemu-system-x86_64 out/
cp root/$multiarch/qemu/accel-tcg-x86_64.so out/modules/ 2>/dev/null || : # a part of the program itself in some versions
for file in out/qemu-system-x86_64 out/modules/*.so; do
    [ ! -e "$file" ] || LD_LIBRARY_PATH=root/$multiarch ldd "$file"
done | awk '$2 == "=>" && !seen[$1]++ { print $3; if ($3 == "not") exit 1 }' | while read -r library; do
    cp -L "$library" out/lib/
done
cp -L /lib64/ld-linux-x86-64.so.2 out/lib/
for name in bios-256k.bin kvmvapic.bin linuxboot_dma.bin; do
    cp -L "$(find root/usr/share -name "$name" | LC_ALL=C sort | head -n 1)" out/firmware/
done
out/lib/ld-linux-x86-64.so.2 --library-path out/lib out/qemu-system-x86_64 --version | sed -n '1s/.*version //p' > out/version
tar --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C out -cf ../qemu.tar .
