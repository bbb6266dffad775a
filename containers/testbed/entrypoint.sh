#!/bin/sh
# Runs testbed as whoever the container is run as, with a cache of this user's that has the container's image and snapshot.
set -eu
shipped=/opt/testbed/cache/testbed
export XDG_CACHE_HOME="${TMPDIR:-/tmp}/cache-$(id -u)"
cache=$XDG_CACHE_HOME/testbed
if ! [ -e "$cache/images" ]; then
    mkdir -p "$cache"
    tar --extract --file "$shipped/snapshots.tar.zst" --directory "$cache"
    ln -s "$shipped/images" "$cache/images"
fi
exec /opt/testbed/bin/testbed "$@"
