// Package podmanager holds the pods that this node should run: which source defines each
// pod, and which mirror pods the API server has for them.
//
// # What it does
//
// A [Merge] merges the pods of several sources into one stream of changes. Each [Change]
// has the new set of pods, the operations that lead from the previous set to the new set,
// and the sources that have not delivered their pods yet. [Diff] is the pure function that
// computes the operations.
//
// A [Manager] holds the desired pods and the mirror pods, and finds them by UID and by
// name. A static pod is defined on the node itself, by a file or a URL, and not by the API
// server. So that users can see the static pod, the node creates a mirror pod at the API
// server: a pod with the same name and another UID, which shows the spec and status of the
// static pod. Requests and events about a mirror pod refer to its static pod, so the
// Manager translates one UID into the other.
//
// A pod is static if the annotation kubernetes.io/config.source names a source other than
// the API server. A Merge sets this annotation, and replaces a value that the source has
// set. A pod is a mirror if it has the annotation kubernetes.io/config.mirror. A mirror
// belongs to the pod with the same name and namespace. Lookups by UID and by name do not
// return mirrors.
//
// [PlanMirrors] compares the pods with the mirrors and returns the required changes at the
// API server. A [MirrorClient] applies the changes: it creates missing mirrors, replaces
// mirrors that show another version of their pod, and deletes mirrors without a pod. An
// agent calls PlanMirrors after each notification of [Manager.Subscribe], and also
// periodically.
//
// # What you supply
//
// For a Merge, the names of the sources, and a Handler. Each source calls the function that
// [Merge.Source] returns with all pods that it defines: once as soon as it knows its pods,
// and again after each change. The sources of package podsource do this. For an informer,
// the caller writes a few lines of code that call the function with the pods of the lister.
//
// For a Manager, the pods, from a Merge or elsewhere: [Manager.SetPods] for all,
// [Manager.AddPod], [Manager.UpdatePod] and [Manager.RemovePod] for each change. Pass each
// changed pod as a new object, because the Merge, the Manager and their readers retain the
// pointers.
//
// For mirrors, a function that returns client-go's pod client (three of its methods are
// used), and the Node object that will own the mirrors: see [MirrorConfig]. An agent
// without an API server supplies neither.
//
// # What it guarantees
//
//  1. Returned pods and slices are shared, and the Manager never changes them. Lists are in
//     the order in which the pods were added.
//  2. A lookup by name returns the pod with this name that was added last. Removing or
//     updating an older pod with this name does not change the result. After the newer pod
//     is removed, the lookup returns the older pod again.
//  3. Translations use the current pods and mirrors only. The UID of a mirror whose pod was
//     removed is not translated, and neither is the UID of a pod whose mirror was removed.
//  4. Each read is a consistent snapshot: this includes [Manager.GetPodsAndMirrorPods] and
//     the two maps of [Manager.GetUIDTranslations].
//  5. Lookups and [Manager.GetPods] allocate nothing.
//  6. Several changes may cause one notification of a subscriber, but a notification always
//     follows the last change. A slow subscriber delays no other caller.
//  7. The MirrorClient deletes a mirror by UID, so it never deletes a newer pod with the
//     same name, or a pod that is not a mirror. Every mirror that it creates has the node
//     as its owner.
//  8. While a source has not delivered its pods yet, no operation removes a pod of this
//     source, and the removal of pods of other sources is not delayed. No operation is
//     lost. Each [Change] has at most one operation per pod UID, and a pod is removed
//     before another pod with its name is added.
//  9. If two sources define the same pod, the Merge delivers the pod of the source that
//     defined it first. The pod of the other source is a [Conflict], which the Merge logs
//     once when it appears and once when it is resolved.
//  10. Each delivered pod has the name of its source as an annotation. A Merge does not
//     modify the pods of a source. It copies a pod once if the annotation is missing or
//     different. If the source passes the same object again, the Merge delivers the same
//     copy again.
//
// # Goroutines and locking
//
// The package starts no goroutines, and there is no Run method. All methods may be called
// from any goroutine. A Merge works in the goroutine of the source that calls it: one lock
// serialises the calls and is held during the Handler, and another lock guards the state
// that reads return. In a Manager one RWMutex guards two indexes. A reader holds the lock
// only for a map lookup or for copying a slice header, because a list that was returned is
// never changed: the next writer copies the list first. Orphans and the two maps are
// computed from such lists without the lock.
//
// The alternative was a single immutable state behind an atomic pointer. Readers would save
// about 10 ns, but each update would copy three maps. With 500 pods that takes tens of
// microseconds, instead of a fraction of a microsecond.
//
// # Differences from the kubelet
//
// The baseline is kubelet 1.36 and 1.37.
//
//   - The kubelet counts a mirror with an empty hash as the mirror of a pod without a
//     hash; ours does not.
//   - The kubelet goes on translating the UID of a mirror to the UID of its static pod
//     after the static pod was removed; ours uses the current pods only.
//   - When a pod is removed, the kubelet deletes the entry of its name even if a newer pod
//     has that name, and it keeps the entry of a name that a pod had before; ours compares
//     UIDs, for pods and for mirrors.
//   - The kubelet finds a pod without a name or a namespace by its full name; ours finds no
//     pod by such a full name.
//   - The kubelet's mirror client creates a mirror of any pod, also while the node is being
//     deleted; ours creates no mirror of a pod that is not static or has no hash, and no
//     mirror while the node is being deleted.
//   - The kubelet sends the UID and the resource version of the static pod with its
//     mirror; ours leaves them to the API server.
//   - If the mirror exists already, the kubelet compares the hash of the empty object that
//     is returned with the error, so it reports an error each time; ours gets the existing
//     pod, and succeeds if that pod is a mirror with the same hash.
//   - The kubelet's mirror client deletes any pod by name; ours refuses to delete a pod
//     that is not a mirror or has no UID.
//   - The kubelet logs that a mirror could not be deleted, and reports success; ours
//     returns the error.
//   - The kubelet's lists are copies of maps in random order; ours are shared slices in the
//     order in which the pods were added. With 500 pods that saves 17 µs and 4 KB a call.
//   - The kubelet deletes orphaned mirrors by their names; ours returns them as pods, so
//     that a deletion has a UID.
//   - If two static pods have the same name, for example while one replaces the other, the
//     kubelet replaces the mirror for each of them in turn; in ours the mirror belongs to
//     the pod that was added last.
//   - If a static pod has no hash, ours keeps an existing mirror and creates no new mirror;
//     the kubelet deletes the mirror and creates a mirror with an empty hash.
//   - If the mirror to be replaced does not exist any more, or a newer pod has its name,
//     the kubelet waits for the next sync of the pod; ours creates the new mirror at once.
//   - A mirror is an orphan if the pod with its name is not static; the kubelet keeps that
//     mirror.
//   - The kubelet does not sync a finished pod, so its mirror is never created again after
//     a deletion; ours plans mirrors independently of syncs.
//   - If two sources define the same pod, the kubelet runs two pods, and the second waits
//     until the first has ended; in ours the pod belongs to the source that defined it
//     first, and the pod of the other source is reported as a conflict.
//   - If the name in a manifest with a UID changes, the kubelet keeps the old name of the
//     pod; ours uses the new name.
//   - The kubelet treats an empty and an unset list or map as different, and updates the
//     pod; ours does not.
//   - The kubelet terminates removed pods only after every source has delivered its pods,
//     so a server that is down keeps the pods of removed files running; ours waits for the
//     pod's own source only.
//
// # Testing your code with it
//
// A Manager needs no fake: call [New] and add the pods of the test case. The output of a
// Merge depends only on the calls of its sources. The plan that PlanMirrors returns is a
// value that tests can compare. For a MirrorClient, implement the three methods of
// [PodClient] on a map of pods.
package podmanager
