#!/bin/sh
# Prepares this checkout: installs missing Debian packages, and .venv with testbed in it. `setup.sh image` adds the
# build tools of the image, if there is no image yet. `setup.sh local` is for labs on this kernel: it adds the packages
# of the image, and makes them visible in .venv. It is quick when nothing is missing, and restarts the step at which it
# was interrupted. Exit status 3: something is missing, and the message names it.
set -eu
cd "$(dirname "$0")"

say() { printf 'set-up: %s\n' "$*" >&2; }
fail() { say "$@"; exit 3; }
quietly() { output=$("$@" 2>&1 </dev/null) || { printf '%s\n' "$output" | tail -n 20 >&2; return 1; }; }
need() { command -v "$1" >/dev/null || missing="$missing $2"; }

# Prints the first Python that is new enough; nothing if there is none.
find_python() {
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

# Prints the missing Debian package that a virtual environment needs.
venv_package() {
    python=$(find_python)
    if [ -n "$python" ]; then
        "$python" -c 'import ensurepip, venv' 2>/dev/null ||
            "$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'
    elif command -v python3 >/dev/null; then
        fail "Python 3.11 or newer is needed, and this machine has $(python3 -V 2>&1)"
    else
        echo python3-venv
    fi
}

# Succeeds if all build tools of the image are here. Only Python can check for the image itself, and its start is slow.
image_tools_are_here() {
    for tool in mmdebstrap mkfs.erofs newuidmap; do
        command -v "$tool" >/dev/null || { [ "$tool" = newuidmap ] && [ "$(id -u)" = 0 ]; } || return 1
    done
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ]
}

# Prints the missing Debian packages for building the image; none if the image has been built or imported.
image_packages() {
    image_tools_are_here && return
    python=$(find_python)
    if [ -n "$python" ]; then
        "$python" -c 'from testbed.machine import image_build; print(*image_build.wanted_packages())'
    else
        echo mmdebstrap erofs-utils uidmap debian-archive-keyring
    fi
}

# Prints the Debian packages of the image that are missing here.
lab_packages() {
    wanted=$(sed '/^#/d; /^$/d' testbed/machine/guest/packages.txt)
    here=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null | sed -n 's/^installed //p') || :
    for name in $wanted; do
        case " $(echo $here) " in *" $name "*) ;; *) echo "$name" ;; esac
    done
}

# Debian's modules, such as pyverbs, work only with Debian's Python.
show_system_packages() {
    sed -i 's/^\(include-system-site-packages\) = false/\1 = true/' .venv/pyvenv.cfg
    .venv/bin/python -c 'import pyverbs' 2>/dev/null ||
        fail "$(.venv/bin/python -V) of .venv has no module pyverbs. Remove .venv, and put /usr/bin first in PATH"
}

install_packages() {
    install="apt-get install --no-install-recommends$1"
    command -v apt-get >/dev/null ||
        fail "missing here, by their names in Debian:$1. Only apt-get is known here: please install them yourself"
    as_root=
    if [ "$(id -u)" != 0 ]; then
        sudo -n true 2>/dev/null || fail "Debian packages are missing. Run: sudo apt-get update && sudo $install"
        as_root='sudo -n'
    fi
    say "installing the Debian packages$1"
    quietly $as_root env DEBIAN_FRONTEND=noninteractive sh -c "
        apt-get update -q # may fail for an unneeded mirror
        dpkg --configure -a # in case it was killed in the middle
        $install -qy -o DPkg::Lock::Timeout=120" || fail "see above; mend it and try again, or run: $install"
}

install_python() {
    rm -f "$stamp"
    if [ "$1" = anew ]; then
        python=$(find_python)
        [ -n "$python" ] || fail "Python 3.11 or newer is needed"
        quietly "$python" -m venv --clear .venv || fail "$python could not make .venv; see above"
    fi
    pip='.venv/bin/python -m pip install --disable-pip-version-check --no-input'
    quietly $pip --require-hashes --requirement requirements.lock || fail "pip could not fetch the packages; see above"
    quietly $pip --no-build-isolation --no-deps --editable . || fail "pip could not install testbed; see above"
}

# The Python and the directory of .venv: if either changes, .venv is made again.
place() { echo "$(.venv/bin/python -V 2>/dev/null) in $(pwd -P)"; }

exec 9<. && flock 9 # concurrent set-ups take turns; the lock lives as long as its holder and its child processes
stamp=.venv/set-up  # written last
inputs=$(cat requirements.lock pyproject.toml | sha256sum)
made=$(cat "$stamp" 2>/dev/null || :)
ready=$(printf '%s\n%s' "$(place)" "$inputs")

missing=
[ "$made" = "$ready" ] || {
    venv=$(venv_package)
    missing="$missing${venv:+ $venv}"
}
if [ "${1:-}" = image ]; then
    tools=$(image_packages) || fail "see above"
    missing="$missing${tools:+ $tools}"
fi
if [ "${1:-}" = local ]; then
    for name in $(lab_packages); do missing="$missing $name"; done
fi
[ -z "$missing" ] || install_packages "$missing"
if [ "$made" != "$ready" ]; then
    say "installing the Python packages into .venv"
    case $made in
        "$(place)"*) install_python again ;;
        *) install_python anew ;;
    esac
    printf '%s\n%s\n' "$(place)" "$inputs" >"$stamp"
fi
[ "${1:-}" != local ] || show_system_packages
