#!/bin/sh
# The image's file system: the C and C++ libraries and the trusted roots of TLS, from Debian's packages, and the agent.
#
# In: the folder to make, and the agent's program (optional). Out: the folder. Needs apt and dpkg, on Debian; nothing is
# installed. Used by the Containerfile, and by `cargo xtask image`, which shows that the agent starts in it.
# What can go wrong: no mirror can be reached, or the program needs a library that is not among the packages.
set -eu

root=${1:?usage: rootfs.sh FOLDER [PROGRAM]}
program=${2:-}
# base-files has /etc/debian_version, by which NVIDIA's container runtime knows where libraries belong; libstdc++6 is for
# libdcgm, which is C++.
packages="base-files libc6 libgcc-s1 libstdc++6 ca-certificates"

[ ! -e "$root" ] || { echo "rootfs.sh: $root is there already" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$root"
root=$(cd "$root" && pwd)

# With /usr merged, whatever of it a package does not bring.
for name in bin sbin lib lib64; do
    mkdir -p "$root/usr/$name"
    ln -s "usr/$name" "$root/$name"
done
# apt may drop its rights for a download: the folder must then be open to others.
chmod 755 "$work"
download() { (cd "$work" && apt-get -q -o APT::Sandbox::User=root download $packages); }
download || { apt-get -q update && download; } # the lists may be missing, or name packages that are replaced by now
for package in "$work"/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --keep-directory-symlink
done

# What the package's own script would do when it is installed.
mkdir -p "$root/etc/ssl/certs"
find "$root/usr/share/ca-certificates/mozilla" -name '*.crt' | LC_ALL=C sort | xargs cat \
    > "$root/etc/ssl/certs/ca-certificates.crt"
# Not needed to run: documents, translations, and 200 character sets.
rm -rf "$root/usr/share/doc" "$root/usr/share/man" "$root/usr/share/locale" "$root/usr/share/ca-certificates" \
    "$root/usr/share/gdb" "$root/usr/share/gcc" "$root"/usr/lib/*/gconv
# Places that are mounted over; the file system itself is read-only.
for place in proc sys dev tmp etc/warpgauge run/warpgauge run/nvidia/driver var/lib/warpgauge \
    var/lib/kubelet/pod-resources var/lib/kubelet/device-plugins var/log/pods var/log/containers; do
    mkdir -p "$root/$place"
done

if [ -n "$program" ]; then
    install -D -m 755 "$program" "$root/usr/bin/warpgauge"
    # The loader itself says what is missing.
    chroot "$root" /usr/bin/warpgauge --version > /dev/null
fi
