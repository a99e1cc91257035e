#!/bin/bash
# Builds the bed's programs into OUT/bin, its images into OUT/images, and the images
# that only the registry has into OUT/images/pull.
#
#   build.sh OUT
set -euo pipefail
OUT=${1:?usage: build.sh OUT}
mkdir -p "$OUT/bin" "$OUT/images/pull"
cd "$(dirname "$0")"
CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -trimpath -ldflags='-s -w' -o "$OUT/bin/" ./...

image() { # FILE NAME OPTION...
	"$OUT/bin/mkimage" -o "$OUT/images/$1.tar" -name "kubeparts.test/$2" "${@:3}"
}

image pause pause:1 -file "$OUT/bin/pause:/pause" -entrypoint /pause -user 65535:65535 -env GOMAXPROCS=1

# Debian's static busybox. It has no pgrep and no ipcs, and its applets are
# symbolic links: a mount over /bin/ls is a mount over busybox itself.
links=()
for applet in $(/bin/busybox --list); do
	[ "$applet" = busybox ] || links+=(-link "/bin/$applet=busybox")
done
image busybox busybox:1 -file /bin/busybox:/bin/busybox "${links[@]}" -dir /tmp:1777 -cmd sh \
	-text '/etc/passwd=root:x:0:0:root:/root:/bin/sh' -text '/etc/group=root:x:0:'

testserver=(-file "$OUT/bin/testserver:/testserver" -dir /tmp:1777 -entrypoint /testserver -env GOMAXPROCS=1)
image testserver testserver:1 "${testserver[@]}"
image pull/pulled pulled:1 "${testserver[@]}" -env IMAGE=pulled
image pull/locked locked:1 "${testserver[@]}" -env IMAGE=locked
image named named:1 -file /bin/busybox:/bin/busybox "${links[@]}" -dir /tmp:1777 -cmd sh -user app \
	-text $'/etc/passwd=root:x:0:0:root:/root:/bin/sh\napp:x:1234:1234:app:/:/bin/sh' -text $'/etc/group=root:x:0:\napp:x:1234:'
