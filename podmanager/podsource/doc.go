// Package podsource says which pods a node should run, from what somebody has put on
// the node itself, or serves to it.
//
// # What it does
//
// A [Directory] reads a folder of manifests and gives the static pods in it: checked,
// completed with the defaults that the API server would give them, and with the
// identity that a static pod has on its node. It watches the folder, looks at it now
// and then besides, and tells of the pods when they have changed. An [HTTP] does the
// same with what is at a URL, and a [Static] with pods that a program has made.
//
// podmanager.Merge makes one stream of operations of what several sources say.
//
// Files whose names end in .yaml, .yml or .json, in any case, are manifests. All others are
// ignored without a word, and so are hidden files, editors' temporary files and
// sub-folders. Symbolic links are followed, so that a mounted ConfigMap works. A file
// holds a Pod of apiVersion v1, or in YAML several of them as documents; lists are
// refused. ConfigMaps and Secrets are manifests too for a Directory with a [Store],
// which is where code that fills volumes and environments finds them.
//
// # What you supply
//
// A path or a URL, the node's name, and a function that Run tells of the pods. Write
// manifests under another name and rename them, as editors do: half a file can be a
// whole manifest.
//
// # What it guarantees
//
//  1. A manifest is taken whole or not at all. Unknown fields, keys given twice, wrong
//     types and everything that a node can check are named in one error, with their
//     paths. A key given twice in YAML is named by its line. What a ConfigMap or a
//     Secret holds is in no error and in no log.
//  2. A bad file concerns the pods of no other file. A file that was good before keeps
//     its pods as they were: a slip of the pen ends nothing. That memory is the
//     process's: after its start a bad file gives no pods. A file with nothing in it
//     is a bad one, because that is what a file looks like while it is saved. A
//     server's answer is one file.
//  3. A pod ends when its manifest is taken out of its file, or the file out of the
//     folder. A folder that is missing or cannot be read is a problem, and the pods
//     stay; so it is with a server that does not answer. An empty folder is a folder
//     without pods: put the manifests into a folder below the mount point if the disk
//     can go away.
//  4. Each problem is reported once when it appears and once when it is gone.
//  5. What counts is content. Touching, renaming or re-formatting a file changes
//     nothing, and neither does moving a manifest between files.
//  6. Where two manifests have one name or one UID, the first by file name and place
//     counts; the other is a problem that names both files.
//  7. Pods come in the order of file names, and of documents in a file.
//     The first [MaxPods] count; the others are a problem.
//  8. Nothing but regular files of at most [MaxManifestBytes] is opened. A pass over a
//     folder at rest lists it, asks for the attributes of each manifest, and reads
//     nothing. A file is read again if its size, time or inode differ, and then until
//     it has looked the same for two seconds. A later change of content that keeps all
//     three is not seen.
//
// # Identity
//
// The pod's name ends in "-" and the node's name in lower case. Its UID is the
// manifest's, or else 32 hexadecimal digits made from the source, the node, and the
// metadata and spec as they are in the manifest: a manifest without a UID that is
// edited is another pod, one with a UID is the same pod in another version. The
// annotation kubernetes.io/config.hash changes with the content in both cases.
// kubernetes.io/config.seen is when the UID was first seen and stays while it is there.
// Its phase is Pending, and it tolerates every NoExecute taint, unless it is from a URL.
//
// # Watching
//
// A pass begins when the folder has been quiet for 5 ms after a change, for 20 ms if
// the file is empty or ends within a line, for 50 ms if something was removed, and after
// 75 ms in any case: a save is several steps, and between two of them a file may be cut
// short, or away. What is read cut short all the same is a Problem as a rule, and the
// pods from before stay. Who writes slowly writes to another name, and renames.
//
// The folder is watched anew when it is replaced, and the one above while there is
// none. If watches are used up, or the file system has none, the folder is polled each
// second, which is one line in the log, and the watch tried again. What a manifest
// links to in another folder is not watched, only looked at every 20 s.
//
// # Goroutines and locking
//
// Run of a source calls set in the goroutine that called Run. [Directory.Run] has one
// more for the watch, beside that of the watcher; both end before it returns. In each
// source one lock serialises passes and is held during the callbacks of [Observer];
// another guards what the reads return.
//
// # Differences from the kubelet
//
// The baseline is kubelet 1.36 and 1.37. What is in a manifest:
//
//   - The kubelet validates affinity, topology spread constraints, node selectors,
//     scheduling gates, priority and readiness gates; ours leaves to the scheduler what
//     only it reads.
//   - The kubelet validates, and gives defaults to, volumes of kinds that ours does not
//     mount, resource claims, block devices, variables from files and settings for
//     Windows; ours refuses such a pod at admission, whatever these hold.
//   - The kubelet validates owners, finalizers, managed fields, the generated name's
//     prefix and the generation; ours leaves them alone, because no API server stores
//     the manifest.
//   - The kubelet validates the ephemeral containers of a manifest before it refuses
//     them; ours refuses them only.
//   - The kubelet looks at nothing else in a manifest without a name, and not into a
//     probe or hook where none may be; ours names every problem.
//   - The kubelet accepts every image that is not empty, and a container with a
//     reference that cannot be parsed never starts; ours refuses its manifest.
//   - The kubelet accepts any text as a UID; ours refuses one that cannot be the name of
//     a folder or has an underscore.
//   - The kubelet accepts a manifest that is marked as a mirror or as being deleted;
//     ours refuses it.
//   - The kubelet counts a bad volume as one that is not declared, and complains of each
//     of its mounts; ours complains of the volume.
//   - The kubelet reads every file whose name does not begin with a dot; ours reads
//     those that end in .yaml, .yml or .json.
//   - The kubelet ignores fields that it does not know, and takes the last of a field
//     that is given twice; ours refuses the manifest and names each.
//   - The kubelet takes any number of pods from a source; ours takes [MaxPods].
//   - The kubelet ends the pods of a file that has become bad; ours refuses a file as a
//     whole if anything in it is wrong, and its pods stay as they were.
//   - The kubelet ends all pods of a folder that does not exist and of an answer that is
//     empty; ours keeps them until the folder or the answer says otherwise.
//   - The kubelet refuses a static pod that refers to an object of the API server; ours
//     accepts it, because a Store can have ConfigMaps and Secrets from manifests.
//   - The kubelet ignores what follows the first document of a file; ours reads all
//     documents, and refuses the file if one is bad.
//   - The kubelet reads every file as YAML; ours reads one that ends in .json, or an
//     answer that begins with a brace, as JSON.
//   - The kubelet takes the last of two files that define a pod of one name; ours takes
//     the first, and reports the other as a problem.
//   - The kubelet keeps the old name of a pod with a UID whose manifest has another name
//     now; ours gives it the new name.
//   - When a file is good again its pods are new to the kubelet, which had ended them;
//     to ours they are those from before.
//   - The kubelet's pods have no kind and no API version; ours have those of the
//     manifest.
//   - The kubelet makes the UID of a pod from the path of its file and from its content
//     with the defaults; ours makes it from the content alone, as it is written, so that
//     a renamed file is the same pod.
//   - The kubelet's config.hash of a manifest with a UID is that UID, whatever else
//     changes; ours follows the content.
//
// How sources are read:
//
//   - The kubelet logs a bad file at every pass; ours reports each problem once, and once
//     that it is gone.
//   - A quantity such as 92E7000000000000000 occupies a core of the kubelet for minutes;
//     ours refuses its manifest.
//   - The kubelet acts upon a change of a file at once or at its next pass; ours waits for
//     the rest of a save.
//   - A YAML document is refused whose aliases add more than 1 MiB to it; the kubelet
//     expands them to as much memory as they ask for.
//   - The kubelet reads every file at every pass, whatever its size, and fetches a URL
//     every 20 s, however often it fails; ours reads files that have changed, up to
//     [MaxManifestBytes], and waits longer after failures.
//
// Values that no node can check are passed on unchecked: whether what a pod refers to
// exists, and fields that only the scheduler or an admission plugin looks at.
//
// # Testing your code with it
//
// [Directory.Load] is one pass, without a goroutine and without waiting: write files to
// t.TempDir() and call it. Run's period is on the Clock of the config; in a synctest
// bubble it needs PollOnly. [HTTP.Load] is one request: give it a Client whose
// Transport answers. A Static needs nothing.
package podsource
