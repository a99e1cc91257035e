// Package imagegc compares the image garbage collection of Kubeparts with the kubelet's.
//
// The kubelet's image manager runs over its own runtime manager, and both sides run over the
// same fake runtime, through the CRI client interfaces. After each step, the test compares
// the deleted images with their order and reasons, the failures and amounts in the error, the
// events, the call of the hook, and the images of a node status. A step is a detection pass,
// a collection, or the deletion of all unused images. In some worlds the manager's loop runs
// the collections.
//
// Worlds have images with several tags and digests; images that are pinned, or whose deletion
// hangs, is slow or returns not found; and images whose size differs from the space that they
// use on the disk. Containers refer to their image by ID, tag or digest, have image volumes,
// and some have no status. Worlds also draw runtime handlers with and without the kubelet's
// feature gate; restarts with and without saved ages; clocks that are set; failing lists,
// measurements and stores; disks of any size, also overfull ones; and invalid policies.
//
// # Models
//
// The times of an image influence later decisions, so that a difference has consequences. A
// model therefore plays the whole world. It can play as the kubelet, as our package, or as a
// mixture that has only some of our differences from the kubelet: see [judge.Traits]. A difference
// is explained if the models of both sides have the values of these sides. Its rule is the
// rule of the trait that causes it.
//
// # Not compared
//
//   - Leases, preferences, MinUnused, Free and Plan, which the kubelet does not have.
//   - The period of detection, which is a documented difference.
//   - Nil entries in lists, on which the kubelet panics.
//   - The order among images with the same times. In the kubelet it is that of a map: a
//     step in which two such images could be deleted is replaced with a detection pass.
//   - Two images with one ID and different runtime handlers.
//   - The words of errors around their cause.
//
// The test cannot set the kubelet's clock. This does not matter: the kubelet's manager only
// subtracts times of one process, and setting a clock does not change their difference.
package imagegc
