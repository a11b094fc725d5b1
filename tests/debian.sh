# Sourced by the scripts that run something in a Debian in a directory, which needs root. `target`
# becomes the directory of what is built; Debians are kept in its `newer`.

target=${CARGO_TARGET_DIR:-$PWD/target}
case $target in /*) ;; *) target=$PWD/$target ;; esac

# Starts the script once more, unless it is that already, with mounts of its own: what is mounted in
# such a directory is so for that script alone, so that whoever deletes the directory meanwhile
# deletes nothing else.
with_own_mounts() {
    [ -z "${GANGER_OWN_MOUNTS-}" ] || return 0
    [ "$(id -u)" -eq 0 ] || { echo "$0: needs root, to run a Debian in a directory" >&2; exit 1; }
    GANGER_OWN_MOUNTS=1 exec unshare --mount --propagation private "$PWD/tests/${0##*/}" "$@"
}

# make_debian SUITE PACKAGE…: makes the Debian in $system, unless it is there from last time, with
# nothing beside the smallest variant but these packages, and mounts what a running system has.
make_debian() {
    local suite=$1
    shift
    if [ ! -e "$system/complete" ]; then
        command -v debootstrap >/dev/null || { apt-get update; apt-get install --yes --no-install-recommends debootstrap; }
        rm -rf "$system"
        mkdir -p "$system"
        debootstrap --variant=minbase --include=ca-certificates "$suite" "$system"
        # It reaches its packages the way that this system does.
        cp -aL /etc/resolv.conf /etc/hosts "$system/etc/"
        cp -aL /etc/apt/apt.conf.d/. "$system/etc/apt/apt.conf.d/"
        cp -aL --remove-destination /etc/ssl/certs/. "$system/etc/ssl/certs/"
        printf '#!/bin/sh\nexit 101\n' | install -m 755 /dev/stdin "$system/usr/sbin/policy-rc.d"
        touch "$system/complete"
    fi
    mount_from_here proc dev sys
    if [ "$(cat "$system/complete")" != "$*" ]; then
        in_system apt-get update
        in_system apt-get install --yes --no-install-recommends "$@"
        echo "$*" >"$system/complete"
    fi
}

mount_from_here() {
    local dir
    for dir; do
        mountpoint -q "$system/$dir" || mount --rbind "/$dir" "$system/$dir"
    done
}

in_system() {
    DEBIAN_FRONTEND=noninteractive chroot "$system" "$@"
}
