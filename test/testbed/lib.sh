# shellcheck shell=bash
# Shared by cri-up.sh and cri-down.sh; sourced, not run.

say() { echo "${0##*/}: $*" >&2; }

# ours PIDFILE WORD prints the process id in PIDFILE while that process has WORD
# as one of its arguments. The word guards against a number that was given out
# again, and against a zombie: where process 1 does not reap, a killed containerd
# stays one, `kill -0` still succeeds on it, and only its arguments are gone.
ours() {
	local pid
	[ -s "$1" ] || return 1
	pid=$(cat "$1")
	grep -zqsxF -- "$2" "/proc/$pid/cmdline" && echo "$pid"
}
