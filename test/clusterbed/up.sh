#!/bin/bash
# Starts what a node needs around it: etcd, kube-apiserver (authorizers Node and RBAC, admission
# NodeRestriction, an audit log of the node's requests and of deletions), kube-controller-manager, kube-scheduler,
# and the container runtime of test/testbed. All of it is in one folder and one network namespace,
# without a route to other networks. Needs root, Debian's packages, Go and the Go module proxy. Can
# be run again: it does not change a bed that is running.
#
#   up.sh [--prepare]      --prepare only fills the cache
#
# Prints NAME=VALUE lines, which are also in DIR/env. down.sh removes the bed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"

# packages installs the Debian packages that are missing.
packages() {
	local p missing=()
	for p in bsdutils curl etcd-client etcd-server iproute2 iptables openssl util-linux; do
		dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	say "installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	local install=(apt-get install -y -qq --no-install-recommends "${missing[@]}")
	"${install[@]}" >/dev/null 2>&1 || { apt-get update -qq && "${install[@]}" >/dev/null; }
}

# programs fills the cache.
programs() {
	program kubectl k8s.io/kubernetes/cmd/kubectl
	(
		KUBERNETES=$CONTROL_PLANE BIN=$CACHE/kubernetes-$CONTROL_PLANE
		for p in kube-apiserver kube-scheduler kube-controller-manager; do program "$p" "k8s.io/kubernetes/cmd/$p"; done
	)
	"$here/../testbed/cri-up.sh" --prepare >/dev/null
}

# network creates the namespace, and the bridge with the node's address.
network() {
	[ -e "/run/netns/$NETNS" ] || { ip netns add "$NETNS" && touch "$DIR/made-netns"; }
	ip -n "$NETNS" link set lo up
	ip -n "$NETNS" link show kpcnode >/dev/null 2>&1 || ip -n "$NETNS" link add kpcnode type bridge
	ip -n "$NETNS" addr replace "$NODE_IP/24" dev kpcnode
	ip -n "$NETNS" link set kpcnode up
	ip -n "$NETNS" route replace "$SERVICES" dev kpcnode # no process answers at this address
}

# certificate NAME SUBJECT [NAMES] creates a key and a certificate. CN and O of the subject are the
# user and its groups.
certificate() {
	local new=(openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$PKI/$1.key")
	[ ! -e "$PKI/$1.crt" ] || return 0
	if [ "$1" = ca ]; then
		"${new[@]}" -x509 -days 30 -subj "$2" -addext keyUsage=critical,keyCertSign,digitalSignature -out "$PKI/ca.crt" 2>/dev/null
		return
	fi
	"${new[@]}" -subj "$2" -out "$PKI/$1.csr" 2>/dev/null
	printf 'basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n%s\n' "${3:+subjectAltName=$3}" >"$PKI/$1.ext"
	openssl x509 -req -in "$PKI/$1.csr" -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -CAcreateserial -days 30 -extfile "$PKI/$1.ext" -out "$PKI/$1.crt" 2>/dev/null
}

# credentials creates all certificates, and a kubeconfig for each client.
credentials() {
	local c
	certificate ca /CN=kpcluster
	certificate apiserver /CN=kube-apiserver "DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:$NODE_IP,IP:10.96.0.1"
	certificate apiserver-kubelet /O=system:masters/CN=kube-apiserver-kubelet-client
	certificate admin /O=system:masters/CN=admin
	certificate controllers /CN=system:kube-controller-manager
	certificate scheduler /CN=system:kube-scheduler
	certificate node "/O=system:nodes/CN=system:node:$NODE"
	certificate node-serving "/O=system:nodes/CN=system:node:$NODE" "DNS:$NODE,IP:$NODE_IP"
	[ -e "$PKI/sa.key" ] || openssl genrsa -out "$PKI/sa.key" 2048 2>/dev/null
	for c in admin controllers scheduler node; do
		cat >"$DIR/$c.kubeconfig" <<C
apiVersion: v1
kind: Config
clusters: [{name: bed, cluster: {server: "$SERVER", certificate-authority: "$PKI/ca.crt"}}]
users: [{name: u, user: {client-certificate: "$PKI/$c.crt", client-key: "$PKI/$c.key"}}]
contexts: [{name: bed, context: {cluster: bed, user: u}}]
current-context: bed
C
	done
	echo "bootstrap-token,bootstrap,1,\"system:bootstrappers\"" >"$DIR/tokens.csv"
	cat >"$DIR/bootstrap.kubeconfig" <<C
apiVersion: v1
kind: Config
clusters: [{name: bed, cluster: {server: "$SERVER", certificate-authority: "$PKI/ca.crt"}}]
users: [{name: u, user: {token: bootstrap-token}}]
contexts: [{name: bed, context: {cluster: bed, user: u}}]
current-context: bed
C
	cat >"$DIR/audit.yaml" <<C
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["system:node:$NODE"]}
- {level: Metadata, verbs: [delete, deletecollection], resources: [{group: "", resources: [namespaces, pods]}]}
- {level: None}
C
}

# await NAME WORD... waits until a command succeeds. NAME is the daemon to which the command
# sends requests.
await() {
	local name=$1
	shift
	for _ in $(seq 600); do
		"$@" >/dev/null 2>&1 && return
		ours "$name" >/dev/null || break
		sleep 0.2
	done
	say "$name did not get ready" && tail -20 "$DIR/log/$name.log" >&2 && exit 1
}

control_plane() {
	local servers=$CACHE/kubernetes-$CONTROL_PLANE
	start etcd etcd --data-dir "$DIR/etcd" --unsafe-no-fsync --listen-peer-urls http://127.0.0.1:2380
	await etcd inside curl -sf --noproxy '*' http://127.0.0.1:2379/health
	start apiserver "$servers/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --advertise-address="$NODE_IP" \
		--tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" --client-ca-file="$PKI/ca.crt" --token-auth-file="$DIR/tokens.csv" \
		--kubelet-client-certificate="$PKI/apiserver-kubelet.crt" --kubelet-client-key="$PKI/apiserver-kubelet.key" \
		--kubelet-certificate-authority="$PKI/ca.crt" --kubelet-preferred-address-types=InternalIP \
		--authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true \
		--service-account-key-file="$PKI/sa.key" --service-account-signing-key-file="$PKI/sa.key" \
		--service-account-issuer=https://kubernetes.default.svc.cluster.local --service-cluster-ip-range="$SERVICES" \
		--audit-policy-file="$DIR/audit.yaml" --audit-log-path="$DIR/log/audit.log" --shutdown-delay-duration=0s
	await apiserver inside "$BIN/kubectl" --kubeconfig "$DIR/admin.kubeconfig" get --raw /readyz
	start controllers "$servers/kube-controller-manager" --kubeconfig "$DIR/controllers.kubeconfig" --leader-elect=false --secure-port=0 \
		--service-account-private-key-file="$PKI/sa.key" --root-ca-file="$PKI/ca.crt" --use-service-account-credentials=true \
		--cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key"
	start scheduler "$servers/kube-scheduler" --kubeconfig "$DIR/scheduler.kubeconfig" --leader-elect=false --secure-port=0
	await controllers inside "$BIN/kubectl" --kubeconfig "$DIR/admin.kubeconfig" -n default get serviceaccount default
}

environment() {
	cat >"$DIR/inside" <<C
#!/bin/bash
# Runs a command in the bed's network namespace, as its administrator.
export KUBECONFIG=$DIR/admin.kubeconfig PATH=$BIN:\$PATH
exec nsenter --net=/run/netns/$NETNS "\$@"
C
	chmod +x "$DIR/inside"
	printf '%s=%s\n' KPCLUSTER_DIR "$DIR" KPCLUSTER_NETNS "$NETNS" PROGRAMS "$BIN" NODE_NAME "$NODE" NODE_IP "$NODE_IP" CLUSTER_DNS "$DNS_IP" \
		CLUSTER_CA "$PKI/ca.crt" RUN_INSIDE "$DIR/inside" CRI_SOCKET "$DIR/cri/containerd.sock" >"$DIR/env"
}

[ "$(id -u)" = 0 ] || { say "needs root" && exit 1; }
mkdir -p "$CACHE"
exec 9>"$CACHE/lock"
flock 9
packages
programs
[ "${1:-}" != --prepare ] || { say "cache ready: $CACHE" && exit 0; }
exec 9>&- # otherwise the daemons would inherit and hold the lock
umask 077
mkdir -p "$DIR/log" "$PKI"
chmod 711 "$DIR" # so that containers of any user can traverse it
network
credentials
control_plane
(umask 022 && inside "$here/../testbed/cri-up.sh" --dir "$DIR/cri" --bridge kpc0 --cidr 10.89.0.0/16 >/dev/null)
environment
cat "$DIR/env"
