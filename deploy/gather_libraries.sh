#!/bin/sh
# gather_libraries.sh ROOT PROGRAM...: copies into ROOT the shared libraries that the programs need, each to the path where the
# loader looks for it. For each Debian package that they are from: its licence, and its record where scanners of images look.
set -eu
root="$1"
shift
libraries="$(ldd "$@")"
case "$libraries" in
  *"not found"*)
    echo "gather_libraries.sh: a library is missing: $libraries" >&2
    exit 1
    ;;
esac
# NVIDIA's driver, which containers get from their host, names these old parts of libc
libc="$(echo "$libraries" | sed -n 's|.* => \(/.*\)/libc\.so\.6 .*|\1|p' | head -n 1)"
for library in $(echo "$libraries" | grep -o '/[^ ]*\.so[^ ]*') "$libc/libdl.so.2" "$libc/libpthread.so.0" "$libc/librt.so.1"; do
  [ -e "$root$library" ] && continue
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
  # dpkg knows a file as /lib/x86_64-linux-gnu/NAME or with /usr before it: the last two parts tell
  file="$(realpath "$library")"
  last="$(basename "$(dirname "$file")")/$(basename "$file")"
  package="$(dpkg-query --search "*/$last" 2>/dev/null | head -n 1 | cut -d : -f 1)"
  [ -n "$package" ] || continue # built here
  mkdir -p "$root/usr/share/doc/$package" "$root/var/lib/dpkg/status.d"
  cp -L "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/"
  dpkg-query --status "$package" > "$root/var/lib/dpkg/status.d/$package"
done
mkdir -p "$root/etc"
cp -L /etc/os-release "$root/etc/"
