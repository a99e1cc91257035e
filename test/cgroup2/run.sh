#!/bin/bash
# Runs one Linux program on a real kernel with cgroup v2 and PSI: Debian's own
# cloud kernel in QEMU, by software emulation, with a small root file system in
# memory. Needs Go, and root only to install missing Debian packages
# (qemu-system-x86). Fills its cache at the first run.
#
#   run.sh [OPTIONS] -- BINARY [ARGS...]
#     --mem 1G          memory of the guest
#     --cpus 1          processors of the guest
#     --timeout 120     seconds the program may run; after them: SIGQUIT, 5 s
#                       later SIGKILL, exit code 124
#     --frozen 90       seconds without a sign of life after which a guest counts
#                       as hung
#     --file SRC[:DST]  a file or a folder to copy into the guest (default: /NAME)
#     --env K=V         a variable of the environment
#     --dir PATH        working directory in the guest (default /test); contains
#                       ./testdata of the caller's directory
#     --out DIR         the files that the program writes to /out are copied to DIR
#     --disk SIZE[:AT]  an ext4 file system with project quotas on a disk (default:
#                       at /data)
#     --swap SIZE       a swap device
#     --modules A,B     kernel modules to load, with their dependencies
#     --sysctl N=V      a kernel setting
#     --append "..."    more arguments of the kernel's command line
#     --accel tcg       tcg, kvm or auto (kvm if it is available)
#     --console FILE    file for the output of the kernel's console
#     --time            print timings on standard error
#     --cache DIR       default: $KPCGROUP2_CACHE, else the user's cache folder
#     --prepare         only fill the cache
#
# Options can come from the environment too: KPCGROUP2_OPTS="--mem 2G --time".
# To run Go tests in the guest: go test -exec '.../run.sh --' ./...
#
# The guest gives a sign of life every 5 s. If it gives none for --frozen seconds, it
# has hung. This happened once, in a run of CI, and the cause is not known. Therefore
# run.sh prints the registers of the processors, and starts the guest once more. If
# the second guest hangs too, the run fails.
#
# The exit code is the program's: 128+N for signal N, 124 for the time limit. It is 125
# if the guest did not start or crashed, and 126 if a file or program is missing here.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
MEM=1G CPUS=1 TIMEOUT=120 FROZEN=90 DIR=/test OUT= DISK= SWAP= MODULES= APPEND= ACCEL=tcg CONSOLE= TIME= PREPARE=
CACHE=${KPCGROUP2_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/kpcgroup2}
FILES=() ENVS=() SYSCTLS=()
ORIGINAL=("$@")
say() { echo "cgroup2: $*" >&2; }
die() { say "$*"; exit 126; }
# shellcheck disable=SC2086
set -- ${KPCGROUP2_OPTS:-} "$@"
while [ $# -gt 0 ]; do
	case $1 in
	--mem) MEM=$2; shift ;;
	--cpus) CPUS=$2; shift ;;
	--timeout) TIMEOUT=$2; shift ;;
	--frozen) FROZEN=$2; shift ;;
	--file) FILES+=("$2"); shift ;;
	--env) ENVS+=("$2"); shift ;;
	--dir) DIR=$2; shift ;;
	--out) OUT=$2; shift ;;
	--disk) DISK=$2; shift ;;
	--swap) SWAP=$2; shift ;;
	--modules) MODULES=$2; shift ;;
	--sysctl) SYSCTLS+=("$2"); shift ;;
	--append) APPEND=$2; shift ;;
	--accel) ACCEL=$2; shift ;;
	--console) CONSOLE=$2; shift ;;
	--cache) CACHE=$2; shift ;;
	--time) TIME=1 ;;
	--prepare) PREPARE=1 ;;
	--) shift; break ;;
	-*) die "unknown option $1" ;;
	*) break ;;
	esac
	shift
done
[ -n "$PREPARE" ] || [ $# -gt 0 ] || die "run.sh [OPTIONS] -- BINARY [ARGS...]"

# fetch_kernel downloads Debian's newest cloud kernel into a folder, and sets pkg to the name of its package.
fetch_kernel() {
	pkg=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -1)
	[ -n "$pkg" ] && (cd "$1" && apt-get download -qq "$pkg")
}

# 1. The cache: QEMU, the kernel, the base of the root file system.
prepare() {
	mkdir -p "$CACHE"
	exec 9>"$CACHE/lock"
	flock 9
	if ! command -v qemu-system-x86_64 >/dev/null || [ ! -x /bin/busybox ]; then
		[ "$(id -u)" = 0 ] || die "qemu-system-x86 and busybox-static are missing"
		say "installing qemu-system-x86, busybox-static"
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends qemu-system-x86 busybox-static >/dev/null 2>&1 9>&- ||
			{ apt-get update -qq 9>&- && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends qemu-system-x86 busybox-static >/dev/null 9>&-; } ||
			die "apt-get install failed"
	fi
	if [ ! -e "$KDIR/done" ]; then
		local pkg t=$KDIR.new
		say "fetching a kernel"
		rm -rf "$t" "$KDIR"
		mkdir -p "$t/deb"
		fetch_kernel "$t/deb" 2>/dev/null || { apt-get update -qq 9>&- && fetch_kernel "$t/deb"; } || die "could not download linux-image-cloud-amd64"
		dpkg -x "$t"/deb/*.deb "$t/x"
		rm -rf "$t/deb"
		mv "$t"/x/boot/vmlinuz-* "$t/vmlinuz"
		mv "$t"/x/boot/config-* "$t/config"
		mv "$t"/x/lib/modules/* "$t/modules"
		rm -rf "$t/x"
		echo "$pkg" >"$t/version"
		touch "$t/done"
		mv "$t" "$KDIR"
	fi
	if [ ! -e "$BASE/done" ]; then
		say "building the guest's programs"
		rm -rf "$BASE"
		mkdir -p "$BASE"
		(cd "$here/guest" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOWORK=off GOOS=linux GOARCH=amd64 go build -trimpath -ldflags='-s -w' -o "$BASE/" ./init ./mkcpio 9>&-) >&2 ||
			die "go build failed"
		local links=() a
		for a in $(/bin/busybox --list); do [ "$a" = busybox ] || links+=("/bin/$a=link:busybox"); done
		"$BASE/mkcpio" -o "$BASE/base.cpio" /init="$BASE/init" /bin/busybox=/bin/busybox "${links[@]}" \
			/etc/passwd="$here/guest/passwd" /etc/group="$here/guest/group" /proc=dir: /sys=dir: /dev=dir: /sbin=dir: \
			/usr/bin=dir: /usr/sbin=dir: /var=dir: /data=dir: >&2 || die "mkcpio failed"
		touch "$BASE/done"
	fi
	flock -u 9
	exec 9>&-
}
KDIR=$CACHE/kernel
BASE=$CACHE/base-$(cd "$here/guest" && cat go.mod init/*.go mkcpio/*.go passwd group "$here/run.sh" | sha256sum | cut -c1-16)
if [ ! -e "$KDIR/done" ] || [ ! -e "$BASE/done" ] || ! command -v qemu-system-x86_64 >/dev/null; then prepare; fi
[ -z "$PREPARE" ] || { say "cache ready: $CACHE ($(cat "$KDIR/version"))"; exit 0; }

# 2. What this run adds to the root file system.
T=$(mktemp -d "${TMPDIR:-/tmp}/cgroup2.XXXXXX")
QPID=
clean() {
	trap - EXIT INT TERM HUP
	if [ -n "$QPID" ]; then kill -9 "$QPID" 2>/dev/null || true; fi
	rm -rf "$T"
}
trap clean EXIT
trap 'clean; exit 130' INT TERM HUP
hex() { printf %s "$1" | od -An -v -tx1 | tr -d ' \n'; }
conf() { echo "$*" >>"$T/run.conf"; }
: >"$T/run.conf"

bin=$1
case $bin in */*) ;; *) bin=$(command -v -- "$bin" || true) ;; esac
if [ -n "$bin" ] && [ -f "$bin" ]; then
	name=/run.bin/$(basename "$bin")
	add=("$name=$bin")
	# A dynamic executable (cgo, -race) needs its libraries.
	while read -r lib; do
		[ -z "$lib" ] || add+=("$lib=$(readlink -f "$lib")")
	done < <(ldd "$bin" 2>/dev/null | grep -o '/[^ ]*' | sort -u || true)
elif /bin/busybox --list | grep -qx -- "$1"; then
	name=/bin/$1 add=()
else
	die "no program $1"
fi
shift
for f in "${FILES[@]}"; do
	src=${f%%:*} dst=/$(basename "${f%%:*}")
	case $f in *:*) dst=${f#*:} ;; esac
	[ -e "$src" ] || die "no file $src"
	add+=("$dst=$src")
done
if [ -d testdata ]; then add+=("$DIR/testdata=testdata"); fi
conf "timeout $TIMEOUT"
conf "dir $DIR"
conf "arghex $(hex "$name")"
for a in "$@"; do conf "arghex $(hex "$a")"; done
for e in "${ENVS[@]}"; do conf "envhex $(hex "$e")"; done
for s in "${SYSCTLS[@]}"; do conf "sysctl $s"; done

drives=() nvme=0
drive() { # FILE: sets DEV
	drives+=(-drive "file=$1,if=none,id=d$nvme,format=raw,cache=unsafe" -device "nvme,drive=d$nvme,serial=d$nvme")
	DEV=/dev/nvme${nvme}n1
	nvme=$((nvme + 1))
}
if [ -n "$DISK" ]; then
	at=/data
	case $DISK in *:*) at=${DISK#*:} ;; esac
	truncate -s "${DISK%%:*}" "$T/disk"
	PATH=$PATH:/sbin mkfs.ext4 -q -F -m 0 -I 256 -O ^has_journal,quota,project -E quotatype=prjquota "$T/disk" || die "mkfs.ext4 failed"
	MODULES=quota_v2${MODULES:+,$MODULES}
	drive "$T/disk"
	conf "disk $DEV $at"
fi
if [ -n "$SWAP" ]; then
	truncate -s "$SWAP" "$T/swap"
	PATH=$PATH:/sbin mkswap "$T/swap" >/dev/null 2>&1 || die "mkswap failed"
	drive "$T/swap"
	conf "swap $DEV"
fi
if [ -n "$OUT" ]; then
	mkdir -p "$OUT"
	truncate -s 1G "$T/tar"
	drive "$T/tar"
	conf "out $DEV"
fi
load=()
[ -z "$MODULES" ] || load=(-modules "$KDIR/modules" -load "$MODULES")
"$BASE/mkcpio" -o "$T/add.cpio" "${load[@]}" "${add[@]}" /run.conf="$T/run.conf" >&2 || die "mkcpio failed"
cat "$BASE/base.cpio" "$T/add.cpio" >"$T/initrd"
rm "$T/add.cpio"

# 3. The guest.
case $ACCEL in
auto) if [ -w /dev/kvm ] && grep -qE '^flags.*\b(vmx|svm)\b' /proc/cpuinfo; then ACCEL=kvm; else ACCEL=tcg; fi ;;
tcg | kvm) ;;
*) die "--accel tcg, kvm or auto" ;;
esac
if [ "$ACCEL" = kvm ]; then accel=(-accel kvm -cpu "${KPCGROUP2_CPU:-host}"); else accel=(-accel tcg,thread=multi,tb-size=256 -cpu "${KPCGROUP2_CPU:-max,la57=off}"); fi
cmdline="psi=1 console=ttyS0 panic=-1 quiet nokaslr mitigations=off tsc=reliable no_timer_check nowatchdog 8250.nr_uarts=4 random.trust_cpu=on cryptomgr.notests log_buf_len=4M printk.devkmsg=on $APPEND"
mkfifo "$T/out" "$T/monitor.in" "$T/monitor.out"
: >"$T/console"
cat "$T/out" &
CAT=$!
began=$(date +%s%N)
nice -n 10 qemu-system-x86_64 -M pc -nodefaults -no-user-config -display none -no-reboot "${accel[@]}" \
	-m "$MEM" -smp "$CPUS" -kernel "$KDIR/vmlinuz" -initrd "$T/initrd" -append "$cmdline" -rtc base=utc \
	-chardev "file,id=c,path=$T/console,append=on" -serial chardev:c \
	-chardev "file,id=o,path=$T/out,append=on" -serial chardev:o \
	-chardev "pipe,id=m,path=$T/monitor" -mon m \
	"${drives[@]}" </dev/null >"$T/qemu" 2>&1 &
QPID=$!
# The guest enforces the time limit itself. This process kills a guest that hangs.
(
	exec >/dev/null 2>&1
	trap 'kill $S; exit' TERM
	last=-1 still=0
	while [ "$still" -lt "$FROZEN" ]; do
		sleep 1 &
		S=$!
		wait $S
		size=$(stat -c %s "$T/console")
		if [ "$size" = "$last" ]; then still=$((still + 1)); else still=0 last=$size; fi
	done
	timeout 5 cat "$T/monitor.out" >"$T/registers" &
	S=$!
	timeout 2 sh -c 'echo info registers -a >"$1"' - "$T/monitor.in" || true
	wait $S || true # it reads until its timeout
	touch "$T/frozen"
	kill -9 "$QPID"
) &
DOG=$!
wait "$QPID" 2>/dev/null || true
QPID=
kill "$DOG" 2>/dev/null || true
wait "$DOG" 2>/dev/null || true
wait "$CAT" || true
total=$((($(date +%s%N) - began) / 1000000))

# 4. The results.
[ -z "$CONSOLE" ] || tr -d '\r' <"$T/console" >"$CONSOLE"
marks=$(tr -d '\r' <"$T/console" | sed -n 's/^@@cgroup2 //p')
echo "$marks" | grep -vE '^(init|start|alive|end|exit) |^$' | sed 's/^/cgroup2: guest: /' >&2 || true
code=$(echo "$marks" | sed -n 's/^exit \([0-9]*\) .*/\1/p' | tail -1)
if [ -n "$TIME" ]; then
	say "$(echo "$marks" | sed -n 's/^init uptime \(.*\)/in init after \1 s of kernel time/p'), $(echo "$marks" | sed -n 's/^start uptime \(.*\)/program started at \1 s/p'), $(echo "$marks" | sed -n 's/^end took \(.*\)/ran \1 s/p'), whole run $((total / 1000)).$(printf %03d $((total % 1000))) s"
fi
if [ -e "$T/frozen" ]; then
	say "the guest gave no sign of life for $FROZEN s; the last sign of life: $(echo "$marks" | tail -1)"
	tr -d '\r' <"$T/registers" | grep -E '^(CPU#|[ER]IP=|RAX=|RSP=)' >&2 || true
	if [ -z "${KPCGROUP2_AGAIN:-}" ]; then
		say "starting the guest once more"
		clean
		export KPCGROUP2_AGAIN=1
		exec "$0" "${ORIGINAL[@]}"
	fi
fi
if [ -z "$code" ]; then
	say "the guest crashed or did not start; the end of its console output:"
	cat "$T/qemu" >&2
	tr -d '\r' <"$T/console" | tail -n 40 >&2
	exit 125
fi
if [ -n "$OUT" ]; then tar -xf "$T/tar" -C "$OUT" || say "could not unpack the files of /out"; fi
exit "$code"
