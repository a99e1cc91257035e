#!/bin/bash
# Builds the images that Kubernetes' specs with the label NodeConformance run, as OCI layout tars. They
# stand for the images of the same names, and consist of programs from the sources of Kubernetes
# and from Debian's packages. Prints the folder of the tars.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"

# reference ID prints the name and tag that the sources of the specs give an image.
reference() {
	local registry=registry.k8s.io/e2e-test-images
	[ "$1" != Pause ] || registry=registry.k8s.io
	sed -nE "s#^\s*configs\[$1\] = Config\{[a-zA-Z0-9.]*, \"([^\"]+)\", \"([^\"]+)\"\}.*#$registry/\1:\2#p" "$SOURCES/test/utils/image/manifest.go"
}

# image FILE ID OPTION... builds an image.
image() { "$PROGRAMS/mkimage" -o "$OUT/$1.tar" -name "$(reference "$2")" "${@:3}"; }

# unpack unpacks Debian's packages, and the packages on which they depend, into a folder.
unpack() {
	local deb list="bash bind9-dnsutils curl dash hostname iproute2 libc-bin netcat-openbsd util-linux"
	ROOT=$CACHE/debian-$(sha256sum <<<"$list" | cut -c1-8)
	[ ! -d "$ROOT" ] || return 0
	rm -rf "$ROOT.new"
	mkdir -p "$ROOT.new/archives/partial"
	: >"$ROOT.new/status" # no package counts as installed
	# shellcheck disable=SC2086
	local install=(apt-get install -qq -y -o "Dir::State::status=$ROOT.new/status" -o "Dir::Cache::archives=$ROOT.new/archives"
		-o APT::Sandbox::User=root --no-install-recommends --download-only $list)
	"${install[@]}" >/dev/null 2>&1 || { apt-get update -qq && "${install[@]}" >/dev/null; }
	for deb in "$ROOT.new"/archives/*.deb; do dpkg-deb -x "$deb" "$ROOT.new"; done
	rm -r "$ROOT.new/archives"
	mv "$ROOT.new" "$ROOT"
}

# programs SOURCE:DESTINATION... prints mkimage's options for programs in ROOT and their libraries.
programs() {
	local p loader
	loader=$(readlink -f "$ROOT/lib64/ld-linux-x86-64.so.2" || readlink -f "$ROOT"/lib/*/ld-linux-x86-64.so.2)
	printf -- '-file\n%s:/lib64/ld-linux-x86-64.so.2\n' "$loader"
	for p in "$@"; do printf -- '-file\n%s:%s\n' "$(readlink -f "$ROOT${p%%:*}")" "${p##*:}"; done
	for p in "$@"; do
		"$loader" --library-path "$ROOT/lib/x86_64-linux-gnu:$ROOT/usr/lib/x86_64-linux-gnu" --list "$(readlink -f "$ROOT${p%%:*}")"
	done | sed -n 's#.* => \(/[^ ]*\) .*#\1#p' | sort -u | while read -r p; do
		printf -- '-file\n%s:/lib/x86_64-linux-gnu/%s\n' "$(readlink -f "$p")" "${p##*/}"
	done
}

# busybox APPLET... prints mkimage's options for busybox, without links for these applets.
busybox() {
	local applet
	printf -- '-file\n/bin/busybox:/bin/busybox\n'
	for applet in $(/bin/busybox --list); do
		[[ " busybox $* " == *" $applet "* ]] || printf -- '-link\n/bin/%s=busybox\n' "$applet"
	done
	printf -- '-dir\n%s\n' /tmp:1777 /root:0700 /var:0755 /home:0755 /usr/bin:0755
}

# users [LINE] prints mkimage's options for the users and groups of an image.
users() {
	printf -- '-text\0/etc/passwd=root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/bin/false\nnobody:x:65534:65534:nobody:/home:/bin/false%s\0' \
		"${1:+$'\n'$1}"
	printf -- '-text\0/etc/group=root:x:0:\ndaemon:x:1:\nnogroup:x:65534:%s\0' "${2:+$'\n'$2}"
}

# agnhost builds the image with the servers and clients of most specs, under its current and its
# previous name. A spec starts its registry of images, which has the image pause. The specs use
# its shell with Debian's programs; busybox's shell would prefer its own applets.
agnhost() {
	local blob name options registry=() user group
	mkdir "$OUT/pause"
	tar -xf "$OUT/pause.tar" -C "$OUT/pause"
	for blob in "$OUT/pause/blobs/sha256"/*; do
		name=${blob##*/}
		for kind in manifests blobs; do registry+=(-file "$blob:/var/registry/pause/$kind/sha256/${name:0:2}/$name/data:0644"); done
	done
	name=$(sed 's/.*"digest":"\(sha256:[0-9a-f]*\)".*/\1/' "$OUT/pause/index.json")
	mapfile -t options < <(busybox sh ash bash nc ip ipcs && programs /bin/dash:/bin/sh /bin/bash:/bin/bash /usr/bin/curl:/usr/bin/curl \
		/bin/nc.openbsd:/bin/nc /bin/ip:/sbin/ip /bin/ss:/sbin/ss /usr/bin/dig:/usr/bin/dig /usr/bin/getent:/usr/bin/getent /usr/bin/ipcs:/usr/bin/ipcs)
	mapfile -t -d '' user < <(users 'user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh' \
		$'user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image')
	options+=("${user[@]}" "${registry[@]}" -text "/var/registry/pause/manifests/testing=$name"
		-file "$BIN/agnhost:/agnhost" -link /agnhost-2=agnhost -dir /uploads:0755
		-file "$SOURCES/test/images/agnhost/porter/localhost.crt:/localhost.crt:0644" -file "$SOURCES/test/images/agnhost/porter/localhost.key:/localhost.key:0644"
		-text '/etc/nsswitch.conf=hosts: files dns' -text '/etc/services=http 80/tcp' -text '/etc/os-release=PRETTY_NAME="stands for Alpine Linux"'
		-env GOMAXPROCS=2 -entrypoint /agnhost -cmd pause)
	image agnhost Agnhost "${options[@]}"
	image agnhost-previous AgnhostPrev "${options[@]}" -env PREVIOUS=1
	rm -r "$OUT/pause"
}

others() {
	local box glibc user
	mapfile -t box < <(busybox sh && printf -- '-file\n%s:/bin/sh\n' "$PROGRAMS/envshell")
	mapfile -t -d '' user < <(users)
	box+=("${user[@]}")
	image busybox BusyBox "${box[@]}" -cmd sh
	image nonroot NonRoot "${box[@]}" -cmd sh -user 1234
	image nonewprivs Nonewprivs "${box[@]}" -file "$BIN/nonewprivs:/usr/local/bin/nnp:6755" -cmd nnp
	image nginx Nginx "${box[@]}" -cmd sh -env NGINX=1 # one spec replaces busybox by it, and runs a script of the shell
	mapfile -t glibc < <(busybox sh ash hostname && programs /bin/dash:/bin/sh /bin/hostname:/bin/hostname /usr/bin/dig:/usr/bin/dig /usr/bin/getent:/usr/bin/getent)
	image glibc-dns GlibcDnsTesting "${glibc[@]}" "${user[@]}" -text '/etc/nsswitch.conf=hosts: files dns' -cmd sh
}

mkdir -p "$CACHE"
program agnhost k8s.io/kubernetes/test/images/agnhost
program nonewprivs k8s.io/kubernetes/test/images/nonewprivs
SOURCES=$(go env GOMODCACHE)/k8s.io/kubernetes@$KUBERNETES
PROGRAMS=$("$here/../testbed/cri-up.sh" --prepare | sed -n 's/^KPBED_BIN=//p')
unpack
OUT=$CACHE/images-$(cat "$0" "$PROGRAMS/envshell" "$PROGRAMS/mkimage" "$BIN/agnhost" | sha256sum | cut -c1-12)
if [ ! -e "$OUT/done" ]; then
	say "building the images"
	rm -rf "$CACHE"/images-*
	mkdir "$OUT"
	image pause Pause -file "$PROGRAMS/pause:/pause" -entrypoint /pause -user 65535:65535 -env GOMAXPROCS=1
	agnhost
	others
	touch "$OUT/done"
fi
echo "$OUT"
