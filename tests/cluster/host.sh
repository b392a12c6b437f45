#!/usr/bin/env bash
# The first process of a host: its own /tmp, /run, /dev/shm, home and name, then an ssh server on its address until it is ended.
# host.sh NAME FOLDER PREFIX KEEP…: FOLDER becomes root's home; PREFIX is an environment of Python, which the host may change for
# itself and which has the pinned packages but not ours; KEEP are paths that stay what they are, wherever they lie.
set -euo pipefail
name=$1 folder=$2 prefix=$3
shift 3
hostname "$name"
mount -t proc proc /proc
rest=$folder/rest
mkdir -p "$rest"
mount -t tmpfs tmpfs "$rest"
mkdir "$rest/changed" "$rest/work"
mount -t overlay overlay -o "lowerdir=$prefix,upperdir=$rest/changed,workdir=$rest/work" "$prefix"
rm -r "$prefix"/lib/python3*/site-packages/*fedpns_ray*
[ ! -e "$folder/fedpns.pth" ] || cp "$folder/fedpns.pth" "$(echo "$prefix"/lib/python3*/site-packages)"
for hidden in /tmp /run /dev/shm "$HOME"; do
    own=$rest$hidden
    mkdir -p "$own"
    mount -t tmpfs tmpfs "$own"
    [ "$hidden" != "$HOME" ] || cp -a "$folder/home/." "$own"
    for keep in "$@"; do
        case $keep in "$hidden"/*) mkdir -p "$own${keep#"$hidden"}" && mount --rbind "$keep" "$own${keep#"$hidden"}" ;; esac
    done
done
conf=$(cat "$folder/sshd_config")
for hidden in /run /dev/shm "$HOME" /tmp; do # /tmp last: FOLDER may lie there
    exec 9<"$rest$hidden"
    mount --rbind /proc/self/fd/9 "$hidden"
done
chmod 1777 /tmp /dev/shm
mkdir -p /run/sshd
echo "$conf" >/run/sshd_config
exec 9<&-
exec /usr/sbin/sshd -D -e -f /run/sshd_config
