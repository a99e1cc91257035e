// Package imagegc compares the image garbage collection of Kubeparts with the kubelet's.
//
// The kubelet's image manager runs over its own runtime manager, and both sides over
// the same fake runtime, which is called as CRI clients are. Compared after each step
// are which images are deleted, in which order and for which reason, the failures and
// amounts that an error names, events, the call of the hook, and the images of a node
// status. A step is a round of detection, a collection or the deletion of all unused
// images; in some worlds collections are those of the loop.
//
// Worlds have images with several tags and digests, pinned, stuck, slow or not found
// when they are to be deleted, and with sizes that are not what they take on the disk;
// containers that name their image by id, tag or digest, with image volumes, and some
// without a status; runtime handlers with and without the kubelet's gate; restarts with
// and without saved ages; clocks that are set; failing lists, measurements and stores;
// disks of any size, fuller than full; and policies that are invalid.
//
// # Models
//
// The times of an image decide later, so that a difference has effects. A model
// therefore plays the whole world as the kubelet does, and ours with its differences
// switched on one by one: see [traits]. A difference is explained if the models have
// both values, and its rule is that of the trait which makes the difference.
//
// # Not compared
//
// Leases, preferences, MinUnused, Free and Plan, which the kubelet
// does not have. The rhythm of detection, which is documented. Nil entries in lists,
// on which the kubelet panics. The order among images with the same times, which in the
// kubelet is that of a map: a step in which two such images could go is a round of
// detection. Two images with one id and different runtime handlers. The words of errors
// around their cause. The clock of the kubelet cannot be set here; its manager only
// subtracts times of one process, which a clock that is set does not change.
package imagegc
