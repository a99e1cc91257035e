// Package podsource reads the static pods of a node: from manifests in a folder, from a
// URL, or from a program.
//
// # What it does
//
// A [Directory] reads a folder of manifests and delivers the static pods in it. It
// validates the pods, sets the defaults that the API server would set, and sets the name
// and UID that static pods have on their node. It watches the folder, also reads it
// periodically, and delivers the pods when they have changed. An [HTTP] delivers the pods
// whose manifests are at a URL, and a [Static] delivers pods that a program has created.
//
// podmanager.Merge merges the pods of several sources into one stream of operations.
//
// Files whose names end in .yaml, .yml or .json, in upper or lower case, are manifests. All
// other files, hidden files, editors' temporary files and subfolders are ignored without a
// log message. Symbolic links are followed, so that a mounted ConfigMap works. A file
// contains a Pod of apiVersion v1. A YAML file may contain several Pods, each in its own
// document. Lists are rejected. A Directory with a [Store] also accepts ConfigMaps and
// Secrets, and puts them into the Store. The agent reads them from the Store for volumes
// and environment variables.
//
// # What you supply
//
// You supply a path or a URL, the node's name, and a function that Run calls with the pods.
// Write each manifest to a file with a name that is ignored, and then rename the file.
// Otherwise a pass may read an incomplete file, and use the file if the incomplete text is a
// valid manifest.
//
// # What it guarantees
//
//  1. A file is used as a whole or not at all. The error of a manifest lists up to 50 bad
//     fields with their paths: unknown fields, duplicate keys and values of a wrong type.
//     If no value has a wrong type, the error also lists the fields that fail validation.
//     The error of a duplicate key in YAML has the line instead of the path. Errors and
//     logs never contain the data of a ConfigMap or a Secret.
//  2. A bad file does not affect the pods of other files. If an earlier version of a bad
//     file was good, the pods of that version stay, so that a typing error terminates no
//     pod. The last good version is stored in memory only: after a restart of the process a
//     bad file defines no pods. An empty file is a bad file, because a file can be empty
//     while an editor saves it. The response of a server counts as one file.
//  3. A pod is removed when its manifest is deleted from the file, or when the file is
//     deleted from the folder. A folder that does not exist or cannot be read is a
//     [Problem], and the pods stay. The same applies to a server that does not answer. An
//     empty folder defines no pods. If the folder is on a disk that can be unmounted, use a
//     subfolder of the mount point: while the disk is not mounted, the subfolder does not
//     exist, and the pods stay.
//  4. Each problem is reported once when it appears and once when it is resolved.
//  5. Only the content of manifests matters. Touching, renaming or reformatting a valid
//     file changes no pod. Moving a manifest to another file changes no pod.
//  6. If two manifests have the same name or UID, the first manifest by file name and
//     position is used. The other manifest is a problem that names both files.
//  7. Pods are ordered by file name, then by document in the file. Pods after the first
//     [MaxPods] are ignored and are a problem.
//  8. Only regular files of at most [MaxManifestBytes] are read. A pass lists the folder
//     and checks the attributes of each manifest: size, modification time and inode. A pass
//     reads a file again if an attribute has changed. Each pass reads a new or changed file
//     until its attributes have stayed the same for two seconds. A later change of the
//     content that changes no attribute is not detected. A pass that the watch has
//     triggered checks only the files that have changed according to the watch. It checks
//     all files if a file was removed or a manifest is a symbolic link. At least one pass
//     in each period, which is 20 s by default, checks all files.
//
// # Identity
//
// The pod's name ends in "-" and the node's name in lower case. Its UID is the manifest's
// UID. If the manifest has no UID, the UID is 32 hexadecimal digits computed from the
// source, the node, the Owner in the config, and the metadata, spec and status as written
// in the manifest. So an edit of a manifest without a UID defines another pod. An edit of a
// manifest with a UID defines a new version of the same pod. The annotation
// kubernetes.io/config.hash changes with the content in both cases. The annotation
// kubernetes.io/config.seen is the time at which the source first read a manifest with this
// UID; it stays the same until the pod is removed. The pod's phase is Pending. A pod that
// is not from a URL tolerates every NoExecute taint.
//
// # Watching
//
// After a change, a Directory starts a pass when the folder has not changed for 5 ms.
// Instead of 5 ms it waits 20 ms if the file is empty or its last line is incomplete, and
// 50 ms if a file was removed. It waits at most 75 ms in total. An editor saves a file in
// several steps, and between two steps the file may be incomplete or missing. If an
// incomplete file is read nevertheless, it is usually a Problem, and the previous pods
// stay. A program that writes slowly should write to a file with another name and rename
// it.
//
// When the folder is replaced, the new folder is watched. While the folder does not exist,
// its parent is watched. If the folder cannot be watched, the Directory logs one line and
// polls the folder, by default every second. Each poll tries to start the watch again. If a
// manifest is a link to a file in another folder, that file is not watched. The pass every
// 20 s detects changes of that file.
//
// # Goroutines and locking
//
// The Run methods call the given function in the goroutine that called Run. [Directory.Run]
// starts a goroutine for the watch, and the fsnotify watcher starts another. Both end
// before Run returns. In each source, one lock serialises passes, and is held during the
// callbacks of [Observer], except during WatchChanged. Another lock guards the state that
// reads return.
//
// # Differences from the kubelet
//
// The baseline is kubelet 1.36 and 1.37. What is in a manifest:
//
//   - The kubelet validates affinity, topology spread constraints, node selectors,
//     scheduling gates, priority and readiness gates; ours does not validate these fields.
//   - The kubelet validates these fields and sets their defaults: volumes of kinds that
//     ours does not mount, resource claims, block devices, variables from files, and
//     settings for Windows; ours ignores the settings for Windows, and refuses a pod with
//     any of the other fields at admission.
//   - The kubelet validates owners, finalizers, managed fields, the generated name's prefix
//     and the generation; ours does not validate these fields, because no API server stores
//     the manifest.
//   - The kubelet validates the ephemeral containers of a manifest before it refuses them;
//     ours refuses them without validation.
//   - The kubelet skips the other checks of a manifest without a name, and the checks of a
//     probe or hook that is not allowed; ours reports every problem.
//   - The kubelet accepts every image that is not empty, and a container with a
//     reference that cannot be parsed never starts; ours refuses a manifest with such a
//     reference.
//   - The kubelet accepts an image volume without a reference in a manifest; ours refuses
//     the manifest, as the API server refuses such a pod.
//   - The kubelet accepts any text as a UID; ours rejects a UID that cannot be the name of
//     a folder or has an underscore.
//   - The kubelet accepts a manifest that is marked as a mirror or as being deleted;
//     ours refuses it.
//   - The kubelet treats an invalid volume as not declared, and reports each of its mounts;
//     ours reports the volume.
//   - The kubelet reads every file whose name does not begin with a dot; ours reads only
//     files whose names end in .yaml, .yml or .json.
//   - The kubelet ignores unknown fields, and uses the last value of a duplicate field;
//     ours rejects the manifest and lists each such field.
//   - The kubelet accepts any number of pods from a source; ours accepts at most [MaxPods].
//   - The kubelet terminates the pods of a file that has become invalid; ours rejects a
//     file as a whole if anything in it is invalid, and its pods stay as they were.
//   - The kubelet terminates all pods of a folder that does not exist and of an empty
//     response; ours keeps them until the folder can be read or a valid response arrives.
//   - The kubelet refuses a static pod that refers to an object of the API server; ours
//     accepts it, because a Store can have ConfigMaps and Secrets from manifests.
//   - The kubelet ignores what follows the first document of a file; ours reads all
//     documents, and refuses the file if one document is invalid.
//   - The kubelet reads every file as YAML; ours reads a file that ends in .json, or a
//     response that begins with a brace, as JSON.
//   - If two files define a pod with the same name, the kubelet uses the pod of the last
//     file; ours uses the pod of the first file, and reports the other pod as a problem.
//   - If the name or the self link in a manifest with a UID changes, the kubelet keeps the
//     old name or self link of the pod; ours uses the new one.
//   - When a file is valid again, its pods are new to the kubelet, which had terminated
//     them; in ours they are the same pods as before.
//   - The kubelet's pods have no kind and no API version; our pods have the kind and the
//     API version of the manifest.
//   - The kubelet computes the UID of a pod from the path of its file and from its content
//     with the defaults; ours computes it from the content only, as written, so that a
//     renamed file defines the same pod.
//   - If a manifest has a UID, the kubelet's annotation config.hash is that UID, even when
//     the content changes; in ours the annotation changes with the content.
//
// How sources read manifests:
//
//   - The kubelet logs a bad file at every pass; ours reports each problem once when it
//     appears and once when it is resolved.
//   - A quantity such as 92E7000000000000000 occupies a core of the kubelet for minutes;
//     ours refuses a manifest with such a quantity.
//   - The kubelet reacts to a change of a file at once or at its next pass; ours waits
//     until the file has stopped changing.
//   - Ours refuses a YAML document whose aliases add more than 1 MiB to it; the kubelet
//     expands aliases without a limit.
//   - The kubelet reads every file at every pass, whatever its size, and fetches a URL
//     every 20 s, however often it fails; ours reads files that have changed, up to
//     [MaxManifestBytes], and repeats a failed request after a second, then after longer
//     waits: see [HTTPConfig].
//
// A node cannot check everything. Ours does not check whether the objects exist to which a
// pod refers, and does not check fields that only the scheduler or an admission plugin
// reads.
//
// # Testing your code with it
//
// [Directory.Load] does one pass, without a goroutine and without waiting: write files to
// t.TempDir() and call it. Run measures its period with the Clock of the config; in a
// synctest bubble set PollOnly. [HTTP.Load] sends one request: set a Client with a
// Transport that returns the response. A Static needs no fake.
package podsource
