#!/bin/bash
# Takes down a bed of cri-up.sh: its pods, containerd, shims, registry, mounts,
# network namespaces, bridge and cgroups. Touches nothing that is not the bed's,
# and ends processes by their number. Safe to run again, and after a crash of any
# part at any point.
#
#   cri-down.sh [--purge] DIR
#
# --purge also removes DIR, and what beds share, as far as it is not in use: the cgroups of
# pods, and the chains of host ports. Another bed needs these while it starts pods, so the
# last bed of a machine is the one to purge.
#
# Pods get KPBED_GRACE seconds (default 20) for the regular way; what is left then
# is killed. Without --purge the next cri-up.sh is a reboot of the node: pods come
# back as SANDBOX_NOTREADY, containers as EXITED with exit code 255.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

# finish PID ends a process: TERM, then KILL after 5 s.
finish() {
	kill "$1" 2>/dev/null
	for _ in $(seq 50); do
		grep -qs . "/proc/$1/cmdline" || return 0 # gone, or a zombie
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

# stop_processes ends containerd and the registry, and then whatever containers
# are left: the first process of each is a child of its shim, and takes the others
# of its pid namespace with it. Containers are in cgroups and sessions of their
# own, so nothing else would end them.
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

# shim_sockets removes those that killed shims of containerd 1.x left in the folder that all
# containerds share. A name there is a hash of the shim's first id.
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

# unmount goes deepest first, and again for mounts stacked on one place. Pod
# network namespaces are mounts, and their veth pairs go with them.
unmount() { for _ in 1 2 3; do mounts | xargs -r umount -l 2>/dev/null; done; }

nat() { iptables -w -t nat "$@" 2>/dev/null; }

# host_ports takes away what the portmap plugin has left: the rules of pods that
# went without it, which name the bed's network, and, with --purge, the chains of all
# networks if no other uses them and the bed did not find them.
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
	# Not while another bridge may need it.
	if [ -s "$DIR/ip_forward" ] && [ -z "$(ip -o link show type bridge)" ]; then
		cat "$DIR/ip_forward" >/proc/sys/net/ipv4/ip_forward
	fi
	find /var/lib/cni/results -maxdepth 1 -name "$NET-*" -delete 2>/dev/null
	# containerd 1.x leaves one of each pod's loopback.
	grep -lFs "\"sandbox\":\"$DIR/" /var/lib/cni/results/cni-loopback-* | xargs -r rm -f
}

# cgroups removes the empty cgroups of the bed and of its tests: rmdir cannot remove one
# that is in use. /k8s.io is where containerd puts pods that name no parent.
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
