#!/bin/sh
# Runs as root in a Debian VM: installs the kernel of backports, in which rdma_rxe works in network namespaces, and the
# packages that a checkout needs for its set-up. The kernel runs after the next boot.
set -eu
export DEBIAN_FRONTEND=noninteractive
. /etc/os-release
apt-get update -q
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | head -n 1)
echo "deb $mirror $VERSION_CODENAME-backports main" > /etc/apt/sources.list.d/backports.list
apt-get update -q
apt-get install --no-install-recommends -qy -t "$VERSION_CODENAME-backports" linux-image-amd64
apt-get install --no-install-recommends -qy make sudo
