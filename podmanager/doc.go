// Package podmanager is the one place that knows which pods should be on this
// node, and which of them the API server shows as mirrors.
//
// # What it does
//
// A [Manager] holds the desired pods and the mirror pods, and finds them by UID
// and by name. A static pod comes from the node itself, a file or a URL; the API
// server cannot hold it, so the node makes a mirror there: a pod of the same name
// with a UID of its own, through which users see the static pod and its status.
// What the API server says about a mirror is about the static pod, and the UID of
// the one has to be turned into that of the other.
//
// A pod is a mirror if it has the annotation kubernetes.io/config.mirror. A mirror
// belongs to the pod of its name and namespace. Lookups by UID and by name return
// pods that are not mirrors.
//
// [PlanMirrors] compares the two sets and says what has to be done at the API server,
// and a [MirrorClient] does it: mirrors are made for the pods that have none, those
// of another version are replaced, and those without a pod are deleted. An agent
// plans whenever [Manager.Subscribe] tells of a change, and now and then besides.
//
// # What you supply
//
// The pods, from whatever source: [Manager.SetPods] once a source has said all of
// what it wants, [Manager.AddPod], [Manager.UpdatePod] and [Manager.RemovePod] as
// it changes its mind. Give each change as a new object: the Manager keeps the
// pointers, and so do its readers.
//
// For mirrors, three methods of client-go's pod client, through one closure, and the
// node that is to own them: see [MirrorConfig]. An agent without an API server leaves
// this part out.
//
// # What it guarantees
//
//  1. What is returned is shared and never changed by the Manager. Lists are in
//     the order in which the pods were added, not in random order.
//  2. A name belongs to the pod that was added last under it. Removing or updating
//     an older pod of that name changes nothing about it; removing the newer one
//     gives the name back to the older.
//  3. Translations come from the two sets as they are now. Neither a mirror whose
//     pod is gone nor a pod whose mirror is gone translates to anything.
//  4. Each read is one moment: [Manager.GetPodsAndMirrorPods] and the two maps are
//     consistent in themselves.
//  5. Lookups and [Manager.GetPods] allocate nothing.
//  6. Whoever has subscribed is told of the last change, and delays nobody.
//  7. A mirror is deleted by its UID: what was planned for one of them never hits a
//     successor of its name, or a pod that is no mirror. None is made that the node
//     would not own.
//
// # Goroutines and locking
//
// There are none of its own, and there is nothing to run. All methods may be
// called from any goroutine. One RWMutex guards two indexes. A reader holds it for
// a map lookup or for copying a slice header, because a list that has been handed
// out is never changed: the next writer makes a copy of it. What has to be worked out
// of all pods, orphans and the two maps, is worked out of such lists without the lock.
//
// A single immutable state behind an atomic pointer was the alternative. Its
// readers would save about 10 ns, and each update would copy three maps: tens of
// microseconds with 500 pods, where it is a fraction of one now.
//
// # Differences from the kubelet
//
// The baseline is kubelet 1.36 and 1.37. There,
//
//   - the removal of a pod deletes the entry of its name even if that belongs to a
//     successor by now. The live pod is not found by name any more, its mirror
//     counts as an orphan and housekeeping deletes it. Here names compare UIDs,
//     for pods and for mirrors;
//   - a mirror goes on translating to its static pod after that was removed. Here
//     translations are not kept but derived;
//   - GetPods copies the map in random order: 17 µs and 4 KB with 500 pods. Here
//     it returns a slice that exists;
//   - orphaned mirrors are returned as full names, and deleted by name whoever has it
//     by then. Here they are pods, so that a deletion can be guarded by UID;
//   - when a mirror exists already, its hash is looked for in the empty object that
//     comes with the error, so that it never matches. Here the pod is fetched;
//   - the mirror of a pod that has finished never comes back when it is deleted,
//     because such a pod is not synced. Here mirrors have a plan of their own;
//   - what goes wrong with a mirror is logged and dropped. Here it is an error.
//
// # Testing your code with it
//
// A Manager is made by [New], costs nothing and needs no fake. Fill it with the pods
// of the case. A plan is a value to compare. For a MirrorClient, three methods on a
// map of pods are an API server.
package podmanager
