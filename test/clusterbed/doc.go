// Package clusterbed tests agent/cluster/cmd/cluster-agent as a node of a real cluster: etcd, API
// server, controllers, scheduler and containerd, which up.sh starts. Run it with make cluster-e2e.
package clusterbed
