// Package imagegc deletes unused container images when disk space is needed or when they
// are too old. It never deletes an image that is in use.
//
// # What it does
//
// A [Manager] records for each image when it was first listed and when a container that
// uses it was last listed. [Manager.Collect] deletes images that have reached MaxAge. If
// the filesystem is at or above the high threshold, it also deletes the least recently
// used images until the usage is at the low threshold. [Manager.Free] and
// [Manager.DeleteUnusedImages] delete images for other goals, and [Manager.Run] collects
// periodically. The pure function [PlanDeletions] decides which images are deleted.
// [Manager.Plan] returns these decisions, which can be printed as a table or as JSON, and
// deletes nothing. The baseline is the image manager of kubelet 1.36.
//
// An image is protected in these cases:
//
//   - A container uses the image, running or not.
//   - The image is pinned in the runtime.
//   - The image is a pause image.
//   - A caller that is about to use the image has acquired a lease with [Manager.Acquire].
//   - The user keeps the image with [Config].Preference.
//   - The image was first seen or last used a short time ago.
//
// # What you supply
//
// You supply the CRI client, both as [ImageService] and as [Runtime], and an [FS], which
// is RuntimeFS{client} on Linux. Without an FS, images are never deleted for space. An
// agent that lists containers anyway may implement ListContainers with its own list. A
// [Store] keeps the ages of images across restarts; package agent/state has
// implementations. Pass the Manager to the image puller, which acquires leases. For the
// eviction manager, implement eviction.ImageGC with a method that calls DeleteUnusedImages,
// or with a method that calls Free, which deletes only as much as is needed.
//
// # What it guarantees
//
//  1. An image is not deleted while a container of any client uses it as its root
//     filesystem or as a volume. The container may name the image by ID, digest or tag. An
//     image is also not deleted if it is pinned, leased, kept by the user, younger than
//     MinAge, used less than MinUnused ago, or a pause image. The Manager lists the
//     containers again when the list is 5 s old, also between deletions. If the Manager
//     cannot inspect a container that has not exited, it deletes nothing, because the
//     container may mount any image as a volume. The error names the container. After 10
//     min, or when the container has exited, the container protects only the image in its
//     list entry.
//  2. An image that exists when Acquire returns exists until the lease ends: Acquire waits
//     for a deletion of the image that is in progress, and no deletion of the image starts
//     during the lease.
//  3. The filesystem is measured after each deletion, and no further image is deleted for
//     space once there is enough. The sizes that the runtime reports are used only to
//     order images.
//  4. If the deletion of an image fails, the Manager continues with the other images, and
//     retries the failed deletion after 1 min, 2 min and so on up to 1 h.
//  5. After a restart, an image may be treated as younger than it is, by at most the time
//     without an agent plus the time since the ages were last saved. The ages are saved at
//     least once per Period and when [Manager.Run] ends. Images whose age is lost count as
//     new. Setting the clock does not make an image older, even during a restart.
//  6. AfterGC is called with the images that the runtime lists after the deletions, even
//     if some deletions have failed. If listing the images fails, the next pass that may
//     delete images calls AfterGC.
//  7. ContainerStatus is called once for each container, and again if the image in its list
//     entry changes. A failed call is repeated after 1 min, 2 min and so on up to 1 h.
//
// Leases end with the process: a caller that needs a lease after a restart must acquire it
// again before the first pass that may delete images. One race remains: within the 5 s
// after the containers were listed, a client may create a container without a lease, from
// an image that has long been unused. The Manager may then delete the image.
//
// # Goroutines and locking
//
// New starts nothing. Only one pass runs at a time. A pass waits for its turn until its own
// context is done. A pass runs on the goroutine of its caller and inspects new containers on up
// to eight other goroutines. The pass waits for these goroutines, so calls of the runtime must
// end when their contexts are done. Images are deleted one at a time. The pass calls the Observer
// and AfterGC, which must not start a pass. Acquire, its release function, Images and Trigger may
// be called at any time. Because Acquire may wait for a deletion, an Observer must not call
// Acquire.
//
// # Differences from the kubelet
//
//   - After a restart all images are new to the kubelet, and their age for MaxAge
//     starts again at zero; with a Store ours keeps the ages of images
//     (kubernetes#119711).
//   - The kubelet treats an image that was never used as infinitely old, and deletes the
//     image when the kubelet itself has run for MaxAge; here MaxAge counts from the time
//     when the image was first listed.
//   - Here MinAge applies in every pass; the kubelet's pass for MaxAge ignores it.
//   - The kubelet compares only ids. Here an image is also in use if a container or an
//     image volume names it by a tag, a digest or an id without algorithm. If the tag has
//     moved, the image to which it has moved is also in use: a restarted container will
//     need that image.
//   - The kubelet records the event InvalidImageID about an image with an empty id only
//     with the feature gate RuntimeClassInImageCriAPI; ours also records it without the
//     gate.
//   - With RuntimeClassInImageCriAPI the kubelet never finds an image with a runtime
//     handler to be in use as a volume; here an image volume without a runtime handler
//     counts for all handlers.
//   - The kubelet deletes a pause image that the runtime does not pin; ours never
//     deletes an image whose repository is called pause, mirrored-pause or pause with
//     an architecture, because sandboxes may need it.
//   - The kubelet lists containers once in a pass, and deletes an image that has come into
//     use since; ours lists the containers again when the list is five seconds old.
//   - The kubelet inspects each container in each pass, and the first failure ends the pass; ours
//     inspects a container once, and a failure does not end the pass if the container was removed
//     or has exited, or after ten minutes of failures.
//   - Ours does not list sandboxes, so that a failure to list them does not matter; in
//     the kubelet such a failure ends the pass.
//   - After a failed deletion for MaxAge the kubelet's pass ends, so that a single image that
//     cannot be deleted prevents the kubelet from freeing space; ours continues.
//   - The kubelet retries a failed deletion in each pass; ours retries it after 1 min,
//     2 min, and so on up to 1 h.
//   - If the runtime does not find an image that is to be deleted, ours counts it as
//     deleted; the kubelet counts a failure.
//   - A failed deletion is an error of the kubelet's pass; here it is not an error if the
//     pass has freed enough space by other deletions.
//   - The kubelet adds up the sizes of deleted images to decide when to stop; ours
//     measures the filesystem after each deletion, and reports each measurement whose
//     capacity is 0.
//   - If usage is at the high threshold only because of rounding, and enough space for the
//     low threshold is available, ours deletes nothing; the kubelet deletes one image.
//   - The kubelet's percentages overflow on filesystems of more than 80 PiB; our
//     percentages do not.
//   - The kubelet asks the runtime to delete an image with an empty id; ours keeps
//     such an image.
//   - The kubelet repeats its events in every pass; ours repeats them after an hour,
//     or after a pass of Run without an error.
//   - The kubelet calls its hook only after passes for space without a failure, with
//     only those images that the pass considered and kept. AfterGC is called after
//     each pass that tried to delete an image, with all images that the runtime lists
//     then.
//   - Ours reports all problems of an invalid policy; the kubelet reports the first.
//   - Here MinUnused protects images by the time since their last use, independently of
//     MinAge; the kubelet has no such setting (kubernetes#132372).
//   - The kubelet has no leases, no preferences and no dry run (kubernetes#123631,
//     kubernetes#68549).
//   - Every minute, ours lists images and containers to find the images in use.
//     [Manager.Images] returns the images of this list for the node's status. The kubelet
//     lists images and containers every five minutes, and lists images every half minute
//     for its status.
//   - Ours orders images with equal times by size, the largest first, and then by name;
//     the kubelet's order of such images is arbitrary.
//
// # Testing your code with it
//
// Call Detect and Collect instead of Run, with package fakecri as the runtime, its DiskUsage
// as the filesystem, and a fake clock, as in the example. Test decisions alone with PlanDeletions.
package imagegc
