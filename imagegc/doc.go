// Package imagegc deletes container images that are not needed, when their space is
// needed or they are too old, and never one that is needed.
//
// # What it does
//
// A [Manager] knows of each image when it was first listed and when a container of
// it was last listed. [Manager.Collect] deletes images that have reached MaxAge and,
// if the filesystem is above the high mark, the longest unused until it is below the
// low one. [Manager.Free] and [Manager.DeleteUnusedImages] do so for other goals, and
// [Manager.Run] decides when. The decision is [Select], a pure
// function; [Manager.Plan] shows it as a table or JSON, and does nothing.
// The baseline is the image manager of kubelet 1.36.
//
// Several things keep an image: a container that uses it, running or not; a pin of the
// runtime; a lease, which [Manager.Acquire] gives to a caller that is about to use it; the
// user, by [Config].Preference; and for a while its own age, and recent use.
//
// # What you supply
//
// The CRI client, twice, as [ImageService] and as [Runtime], and an [FS]: on Linux
// RuntimeFS{client}. Without an FS images are never deleted for space. An agent that lists
// containers anyhow may answer from its own list.
// A [Store], such as those of package agent/state, keeps the ages over restarts.
// Give the Manager to the puller of images, as the keeper of leases, and to the
// eviction manager: its ImageGC is one line around DeleteUnusedImages, or around Free,
// which deletes no more than is missing.
//
// # What it guarantees
//
//  1. No image is deleted that the runtime lists as used by a container, whoever made
//     it, by id, digest or tag, for its root filesystem or as a volume; nor a pinned,
//     leased, kept, young or recently used one, nor a pause image, of which sandboxes
//     are. Containers are listed again when the list is 5 s old, between deletions too.
//     While one that has not ended cannot be inspected, nothing is deleted, for its
//     volumes may be any image; the error names it. After 10 m of that, as after its
//     end, it keeps only the image that the list names.
//  2. An image that is there when Acquire has returned is there until release: a
//     deletion under way is waited for, and none begins.
//  3. The filesystem is measured after each deletion, and none begins when there is
//     enough. What the runtime says of sizes only orders images.
//  4. An image whose deletion fails stops neither the others nor the next pass. It is
//     tried again after 1 m, 2 m and so on up to 1 h.
//  5. A restart loses no more of the ages than the time since they were saved, which is
//     once in a Period and when [Manager.Run] ends, and the time without an agent. Images
//     whose age is lost look new.
//     A clock that is set makes none older, also if that happens over a restart.
//  6. AfterGC is called with what the runtime lists after the deletions, whether or not
//     all succeeded. If that cannot be listed, the next pass calls it.
//  7. A container costs one ContainerStatus in its life, and more only if that fails: a
//     minute later, two and so on.
//
// Leases end with the process: a caller that needs them after a restart acquires them
// again before the first pass that may delete. The one race that is left is with a
// container that is created without a lease, of an image that has been unused for
// long, within those 5 s.
//
// # Goroutines and locking
//
// New starts nothing. Passes are serialised; a pass waits for another no longer than
// its context lasts. A pass works on the goroutine of its caller and inspects new
// containers on up to eight others, which have ended when it returns, provided that the
// runtime's calls end with their contexts. Images are deleted one at a time. Observer and
// AfterGC are called by the pass and must not begin one. Acquire, its release, Images
// and Trigger may be called at any time; the first may wait for a deletion.
//
// # Differences from the kubelet
//
//   - After a restart all images are new to the kubelet, and MaxAge begins anew; with a
//     Store ours keeps the ages of images (kubernetes#119711).
//   - The kubelet treats an image that was never used as infinitely old, and deletes it
//     once the kubelet itself is older than MaxAge; here MaxAge counts from when the image
//     was first seen.
//   - MinAge holds in every pass; the kubelet's pass for old age ignores it.
//   - The kubelet compares ids alone. Here an image is also in use if a container or an
//     image volume names it by a tag, a digest or an id without algorithm, even if the tag
//     has moved to another image: a restarted container will need that image.
//   - The event InvalidImageID about an image with an empty id does not depend on the
//     feature gate RuntimeClassInImageCriAPI.
//   - With RuntimeClassInImageCriAPI the kubelet finds no image that has a runtime handler
//     to be in use as a volume; here an image volume without a runtime handler counts for
//     all of them.
//   - The kubelet deletes a pause image that the runtime does not pin; ours never deletes
//     an image whose repository is called pause, mirrored-pause or pause with an
//     architecture, because sandboxes may need it.
//   - The kubelet lists containers once in a pass, and deletes an image that has come into
//     use since; ours lists them again when the list is five seconds old.
//   - The kubelet inspects each container in each pass, and one that cannot be inspected
//     ends the pass; ours inspects a container once, and continues if a container that
//     cannot be inspected is gone or has ended, or after ten minutes.
//   - A pass does not list sandboxes, so that a failure to list them does not matter; in
//     the kubelet it ends the pass.
//   - After a failed deletion for age the kubelet's pass ends, so that one image that
//     cannot be deleted keeps it from freeing space; ours continues.
//   - The kubelet tries to delete an image again in each pass; here a failed deletion is
//     repeated after a minute, two, and so on up to an hour.
//   - An image that the runtime does not find when it is to be deleted is deleted; for the
//     kubelet that is a failure.
//   - A failed deletion is an error of the kubelet's pass; here it is none if the pass has
//     freed enough without it.
//   - The kubelet adds up the sizes of deleted images to decide when to stop; ours
//     measures the filesystem after each deletion, and reports each measurement without a
//     capacity.
//   - Where rounding makes the low mark reached at the high one, nothing is deleted; the
//     kubelet deletes one image.
//   - The kubelet's percentages overflow on filesystems of more than 80 PiB; ours do not.
//   - The kubelet asks the runtime to delete an image with an empty id; ours keeps such an
//     image.
//   - The kubelet repeats its events in every pass; ours are repeated after an hour, or
//     after a pass of Run without an error.
//   - The kubelet calls its hook only after passes for space without a failure, with only
//     those images that the pass considered and kept. AfterGC is called after each pass
//     that tried to delete an image, with all images that the runtime lists then.
//   - An invalid policy is reported with all its problems; the kubelet reports the
//     first.
//   - MinUnused protects by time since use, apart from MinAge (kubernetes#132372).
//   - Leases, preferences and dry run are new (kubernetes#123631, kubernetes#68549).
//   - Use is looked for each minute, by the lists that also serve Images; the kubelet
//     looks each five minutes, and lists images each half minute.
//   - The order is whole: after the times come sizes, largest first, and names.
//
// # Testing your code with it
//
// Call the steps instead of Run, with package fakecri as the runtime, its DiskUsage as
// the filesystem, and the fake clock, as in the example. Decisions alone are tested
// with Select.
package imagegc
