// Package podmanager compares podmanager and the merge of podmanager/podsource with
// the kubelet's pod manager, its mirror client and its merge of sources.
//
// There are three peers. The first plays changes of pods and mirrors of few names and
// UIDs on a pod manager and asks every question about each pod after each step. The
// second creates and deletes mirrors at an API server that fails, holds others of the
// name, or has no node. The third lets three sources answer with sets of pods, whose
// labels, spec, status and deletion change, and compares the operations.
//
// Lists of the kubelet come from maps: they are compared sorted. When mirrors are made
// and removed is decided in the package kubelet itself, beside other things, and is not
// compared here.
package podmanager
