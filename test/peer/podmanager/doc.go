// Package podmanager compares podmanager with the kubelet's pod manager, its mirror
// client and its merge of sources.
//
// There are four peers. The first plays changes of pods and mirrors of few names and
// UIDs on a pod manager and asks every question about each pod after each step. The
// second creates and deletes mirrors at an API server that fails, holds others of the
// name, or has no node. The third lets three sources answer with sets of pods, whose
// labels, spec, status and deletion change, and compares the operations and the sources
// that pods have then; pods of the API server name no source, or a wrong one. The fourth
// compares when mirrors are created and deleted: the plan of ours, applied at an API
// server, with what the kubelet does when it syncs each static pod and cleans up.
//
// Lists of the kubelet come from maps: they are compared sorted, and the order of ours
// with that of adding. The clean-up of orphans is a few lines of the kubelet's larger
// one, and is written again here.
package podmanager
