#!/bin/sh
# Puts testbed into the root $1, with the Python $2 of this machine: its wheels, its image, and the snapshot that runs
# start from.
set -eu
cd "$(dirname "$0")/../.."
root=$1
python=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m pip wheel --quiet --no-deps --wheel-dir "$work" .
"$python" -m pip download --quiet --dest "$work" --only-binary=:all: --python-version 3.13 --implementation cp \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 "$work"/testbed-*.whl
mkdir -p "$root/opt/wheels" "$root/opt/testbed/cache/testbed/images" "$root/runs"
cp "$work"/*.whl "$root/opt/wheels"
cp -r "$("$python" -c 'from testbed.machine import image; print(image.place())')" "$root/opt/testbed/cache/testbed/images"
# A container's files have their times in seconds, and a snapshot is only for an image of the same time.
find "$root/opt/testbed/cache" -type f -exec touch --date 2026-01-01 {} +
cp containers/testbed/entrypoint.sh "$root/opt/testbed"

# The /proc that mmdebstrap mounts is read-only, and a machine's memory is restored through it.
unshare --mount sh -euc 'mount -t proc proc "$0/proc" && exec chroot "$0" sh -eu' "$root" <<'EOF'
python3 -m venv /opt/testbed
/opt/testbed/bin/pip install --quiet --no-index --find-links /opt/wheels testbed
rm -r /opt/wheels
export XDG_CACHE_HOME=/opt/testbed/cache
/opt/testbed/bin/testbed run ip-reuse --variant garp --out /tmp/runs
rm -r /tmp/runs
# The last one is what runs start from. Its file is mostly a hole, which an image of a container cannot have.
cd "$XDG_CACHE_HOME/testbed"
tar --create --sparse --zstd --file snapshots.tar.zst "snapshots/$(ls -t snapshots | head -n 1)" descriptions
rm -r snapshots descriptions
ln -s /tmp/testbed/snapshots /tmp/testbed/descriptions .
chmod 1777 /runs
EOF
