// Package podmanager compares podmanager with the kubelet's pod manager, its mirror client
// and its merge of sources.
//
// There are four peers. The first applies changes of pods and mirror pods with few names and
// UIDs to a pod manager, and calls every query method for each pod after each step. The
// second creates and deletes mirror pods in an API server that fails, has other pods of the
// same name, or has no node. The third lets three sources deliver sets of pods with changing
// labels, spec, status and deletion. It compares the operations and the source of each pod.
// Pods of the API server have no source annotation, or a wrong one. The fourth compares when
// mirror pods are created and deleted: our plan, applied to an API server, and the kubelet's
// actions when it syncs each static pod and cleans up.
//
// Lists of the kubelet come from maps: they are compared sorted, and the order of our lists
// is compared with the order of additions. The cleanup of orphaned mirror pods is a few lines
// of a larger function of the kubelet. This package has a copy of its behaviour.
package podmanager
