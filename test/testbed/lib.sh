# shellcheck shell=bash
# Shared by cri-up.sh and cri-down.sh; sourced, not run.

say() { echo "${0##*/}: $*" >&2; }

# ours PIDFILE WORD prints the process ID in PIDFILE if that process has WORD as one
# of its arguments. The check of WORD detects a process that has reused the ID, and a
# zombie: if process 1 does not reap, a killed containerd remains a zombie, for which
# `kill -0` still succeeds. A zombie has no arguments.
ours() {
	local pid
	[ -s "$1" ] || return 1
	pid=$(cat "$1")
	grep -zqsxF -- "$2" "/proc/$pid/cmdline" && echo "$pid"
}
