#!/bin/bash
# Stops and removes a bed of cri-up.sh: its pods, containerd, shims, registry, mounts,
# network namespaces, bridge and cgroups. Changes nothing that does not belong to the
# bed, and kills processes by their ID. Can be run again, and after a crash of any
# part at any time.
#
#   cri-down.sh [--purge] DIR
#
# --purge also removes DIR, and what beds share if it is not in use: the cgroups of pods,
# and the chains of host ports. Another bed needs these while it starts pods, so purge only
# the last bed of a machine.
#
# The script stops and removes pods over CRI for KPBED_GRACE seconds (default 20), and then
# kills the remaining processes. Without --purge, the next cri-up.sh is like a reboot of the
# node: pods are SANDBOX_NOTREADY, and containers are EXITED with exit code 255.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

# finish PID stops a process: SIGTERM, then SIGKILL after 5 s.
finish() {
	kill "$1" 2>/dev/null
	for _ in $(seq 50); do
		grep -qs . "/proc/$1/cmdline" || return 0 # exited, or a zombie
		sleep 0.1
	done
	kill -9 "$1" 2>/dev/null
}

# shims prints the bed's shims: processes with -address and the bed's socket.
shims() {
	local f
	grep -lzsxF -- "$SOCK" /proc/[0-9]*/cmdline | while read -r f; do
		grep -zqsxF -- -address "$f" || continue
		f=${f#/proc/}
		echo "${f%/cmdline}"
	done
}

# stop_processes stops containerd and the registry, and then kills the remaining
# containers. The first process of a container is a child of its shim; when it is
# killed, the kernel kills the other processes of its PID namespace. Containers have
# their own cgroups and sessions, so nothing else would kill them.
stop_processes() {
	local pid shims children
	if pid=$(ours "$DIR/containerd.pid" "$DIR/config.toml"); then
		timeout "${KPBED_GRACE:-20}" "$BED/bin/criprobe" -e "$SOCK" cleanup
		finish "$pid"
	fi
	if pid=$(ours "$DIR/registry.pid" "$DIR/registry.addr"); then finish "$pid"; fi
	for _ in 1 2 3; do
		mapfile -t shims < <(shims)
		[ ${#shims[@]} -gt 0 ] || break
		mapfile -t children < <(pgrep -P "$(IFS=, && echo "${shims[*]}")")
		kill -9 "${children[@]}" "${shims[@]}" 2>/dev/null
		sleep 0.2
	done
}

# shim_sockets removes the sockets that killed shims of containerd 1.x left in the folder that
# all containerds share. The name of a socket is a hash of the shim's first ID.
shim_sockets() {
	local id
	[ -n "$(ls /run/containerd/s 2>/dev/null)" ] || return 0
	{
		ls "$DIR/state/io.containerd.runtime.v2.task/k8s.io"
		grep -oE 'shim disconnected" id=[0-9a-f]{64}' "$DIR/log/containerd.log" | cut -d= -f2
	} 2>/dev/null | sort -u | while read -r id; do
		rm -f "/run/containerd/s/$(printf %s "$SOCK/k8s.io/$id" | sha256sum | cut -d' ' -f1)"
	done
}

mounts() { awk -v dir="$DIR/" 'index($5, dir) == 1 {print $5}' /proc/self/mountinfo | sort -r; }

# unmount unmounts the deepest mounts first, three times because several mounts can be
# stacked on one path. Network namespaces of pods are mounts too; with a namespace, the
# kernel deletes its veth pair.
unmount() { for _ in 1 2 3; do mounts | xargs -r umount -l 2>/dev/null; done; }

nat() { iptables -w -t nat "$@" 2>/dev/null; }

# host_ports removes what the portmap plugin has left: the rules of pods that were removed
# without the plugin, which contain the name of the bed's network. With --purge, it also
# removes the chains of all networks, if no other network uses them and they did not exist
# before the bed.
host_ports() {
	local rule words chain
	[ -e "$DIR/chains" ] && nat -S >/dev/null || return 0
	nat -S CNI-HOSTPORT-DNAT | grep -F "name: \\\"$NET\\\"" | while read -r rule; do
		eval "words=(${rule#-A })" # the comment is quoted as for a shell
		chain=${words[-1]}
		nat -D "${words[@]}"
		nat -F "$chain" && nat -X "$chain"
	done
	[ -n "$PURGE" ] && [ ! -s "$DIR/chains" ] && ! nat -S CNI-HOSTPORT-DNAT | grep -q '^-A' || return 0
	for chain in PREROUTING OUTPUT POSTROUTING; do
		nat -S $chain | grep -- '-j CNI-HOSTPORT-' | while read -r rule; do
			eval "nat -D ${rule#-A }"
		done
	done
	for chain in CNI-HOSTPORT-{DNAT,SETMARK,MASQ}; do nat -F "$chain" && nat -X "$chain"; done
}

network() {
	host_ports
	ip link del "$BRIDGE" 2>/dev/null
	ip route del unreachable "$CIDR" metric 4000000 2>/dev/null
	# Restore ip_forward, unless another bridge may need it.
	if [ -s "$DIR/ip_forward" ] && [ -z "$(ip -o link show type bridge)" ]; then
		cat "$DIR/ip_forward" >/proc/sys/net/ipv4/ip_forward
	fi
	find /var/lib/cni/results -maxdepth 1 -name "$NET-*" -delete 2>/dev/null
	# containerd 1.x leaves a result file of each pod's loopback interface.
	grep -lFs "\"sandbox\":\"$DIR/" /var/lib/cni/results/cni-loopback-* | xargs -r rm -f
}

# cgroups removes the empty cgroups of the bed and of its tests: rmdir cannot remove a cgroup
# that is in use. /k8s.io is the parent of pods whose config names no parent cgroup.
cgroups() {
	local parent
	for parent in /sys/fs/cgroup/{kpbed*,k8s.io} /sys/fs/cgroup/*/{kpbed*,k8s.io}; do
		[ ! -d "$parent" ] || find "$parent" -depth -type d -exec rmdir {} \; 2>/dev/null
	done
}

PURGE=
[ "${1:-}" != --purge ] || { PURGE=1 && shift; }
DIR=${1:?usage: cri-down.sh [--purge] DIR}
[ -d "$DIR" ] || { say "no $DIR" && exit 0; }
DIR=$(cd "$DIR" && pwd -P)
SOCK=$DIR/containerd.sock
[ -e "$DIR/bed" ] || { say "$DIR is not a bed" && exit 1; }
# shellcheck source=/dev/null
. "$DIR/bed"

stop_processes
[ "${CONTAINERD:-2.4}" = 2.4 ] || shim_sockets
unmount
network
[ -z "$PURGE" ] || cgroups
cd "$DIR" && rm -rf containerd.pid registry.pid registry.addr env ip_forward containerd.sock containerd.sock.ttrpc s cni/ipam
rm -rf --one-file-system "$DIR/state"
left=$(mounts | wc -l)
[ "$left" = 0 ] || { say "$left mounts left under $DIR" && exit 1; }
[ -z "$PURGE" ] || { cd / && rm -rf --one-file-system "$DIR"; }
say "$DIR is down"
