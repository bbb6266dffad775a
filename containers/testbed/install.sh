#!/bin/sh
# Runs inside the new root, when wheels, the image of machines and the entrypoint are in /opt/testbed: installs testbed,
# and makes the snapshot from which runs start.
set -eu
cd /opt/testbed
chown -R 0:0 .
# A snapshot is valid only for an image with the same times, and no file of the archive is newer than this.
find cache -type f -exec touch --date "@$SOURCE_DATE_EPOCH" {} +
python3 -m venv .
bin/pip install --quiet --no-index --find-links wheels testbed
rm -r wheels install.sh
ln -s /opt/testbed/bin/testbed /usr/local/bin

export XDG_CACHE_HOME=/opt/testbed/cache
bin/testbed run ip-reuse --variant garp --out /tmp/runs
# Runs start from the last snapshot. Its file is mostly a hole, and a container image cannot have holes.
cd cache/testbed
tar --create --sparse --zstd --sort=name --mtime "@$SOURCE_DATE_EPOCH" --file snapshots.tar.zst \
    "snapshots/$(ls -t snapshots | head -n 1)" descriptions
rm -r snapshots descriptions
ln -s /tmp/testbed/snapshots /tmp/testbed/descriptions .
mkdir --mode 1777 /runs
