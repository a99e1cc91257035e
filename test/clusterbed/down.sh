#!/bin/bash
# Stops and removes what up.sh has started: the runtime with its pods, the daemons, the network
# namespace.
#
#   down.sh [--purge]      --purge also removes the folder
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"

# stop NAME stops a daemon.
stop() {
	local pid
	pid=$(ours "$1") || { rm -f "$DIR/$1.pid" && return; }
	kill "$pid"
	for _ in $(seq 100); do ours "$1" >/dev/null || break; sleep 0.1; done
	ours "$1" >/dev/null && kill -9 "$pid"
	rm -f "$DIR/$1.pid"
}

[ -d "$DIR" ] || exit 0
for name in agent registry scheduler controllers apiserver etcd; do stop "$name"; done
for cri in "$DIR"/cri2 "$DIR"/cri; do
	[ ! -e "$cri" ] || inside "$here/../testbed/cri-down.sh" ${1:+"$1"} "$cri"
done
# Unmount the volumes of the node.
awk -v dir="$DIR/" 'index($5, dir) == 1 {print $5}' /proc/self/mountinfo | sort -r | while read -r m; do umount -l "$m"; done
find /sys/fs/cgroup -depth -type d -path "*/$NETNS*" -exec rmdir {} + 2>/dev/null
[ ! -e "$DIR/made-netns" ] || ip netns del "$NETNS"
rm -f "$DIR/made-netns" "$DIR/env"
[ "${1:-}" != --purge ] || rm -rf --one-file-system "$DIR"
