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
// A [Merge] makes one stream of what several sources say: typed operations, from one
// set of pods to the next, with the whole set beside them, and which of the sources
// have not answered yet. [Diff] is the pure function behind it.
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
// A path or a URL, the node's name and a Handler. Write manifests under another name
// and rename them, as editors do: half a file can be a whole manifest.
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
//     counts; the other is a problem that names both files. Of two sources of a Merge
//     the one counts that was first to give the pod.
//  7. Pods come in the order of file names, and of documents in a file.
//  8. Nothing but regular files of at most [MaxManifestBytes] is opened. A pass over a
//     folder at rest lists it, asks for the attributes of each manifest, and reads
//     nothing. A file is read again if its size, time or inode differ, and then until
//     it has looked the same for two seconds. A later change of content that keeps all
//     three is not seen.
//  9. A source that has not answered ends no pod, and keeps no other source from
//     ending its own. No operation is lost, there is one at most for each pod in a
//     [Change], and its name is free before the next pod of that name comes.
//
// # Identity
//
// The pod's name ends in "-" and the node's name in lower case. Its UID is the
// manifest's, or else 32 hexadecimal digits made from the source, the node, and the
// metadata and spec as they are in the manifest: a manifest without a UID that is
// edited is another pod, one with a UID is the same pod in another version. The
// annotation kubernetes.io/config.hash changes with the content in both cases.
// kubernetes.io/config.seen is when the UID was first seen and stays while it is there.
// The pod tolerates every NoExecute taint, and its phase is Pending.
//
// # Watching
//
// A pass begins when the folder has been quiet for 5 ms after a change, for 20 ms if
// the file is empty, for 50 ms if something was removed, and after 75 ms in any case: a
// save is several steps, and between two of them a file may be away. What is read cut
// short all the same is a Problem as a rule, and the pods from before stay.
//
// The folder is watched anew when it is replaced, and the one above while there is
// none. If watches are used up, or the file system has none, the folder is polled each
// second, which is one line in the log, and the watch tried again. What a manifest
// links to in another folder is not watched, only looked at every 20 s.
//
// # Goroutines and locking
//
// Run of a source calls its Handler in the goroutine that called Run. [Directory.Run]
// has one more for the watch, beside that of the watcher; both end before it returns.
// [Merge] and Static have none: they work in the goroutine of the caller. In each of
// them one lock serialises passes and is held during the callbacks of [Observer], and
// by a Merge and a Static during the Handler; another guards what the reads return.
//
// # Differences from the kubelet
//
// The baseline is kubelet 1.36 and 1.37. There,
//
//   - a bad file is logged at every pass, with the first of its problems, and its pods
//     are ended;
//   - a folder that goes away ends all pods, and a document after the first one in a
//     file is ignored;
//   - unknown fields are accepted in part;
//   - the UID depends on the file's path, so that renaming a file restarts its pod, and
//     the hash annotation of a manifest with a UID of its own does not follow its
//     content;
//   - every file is read at every pass, whatever its name and size, and a URL is
//     fetched whole every 20 s, however often it fails;
//   - no removed pod is ended before every source has answered, so that one server
//     that is down keeps the pods of removed files running;
//   - two sources that give one pod make two of it, of which one waits for the other
//     to end;
//   - ConfigMaps and Secrets come from the API server or not at all.
//
// Values that no node can check are passed on unchecked: whether what a pod refers to
// exists, and fields that only the scheduler or an admission plugin looks at.
//
// # Testing your code with it
//
// [Directory.Load] is one pass, without a goroutine and without waiting: write files to
// t.TempDir() and call it. Run's period is on the Clock of the config; in a synctest
// bubble it needs PollOnly. [HTTP.Load] is one request: give it a Client whose
// Transport answers. A Merge and a Static need nothing.
package podsource
