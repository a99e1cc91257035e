// Package volumes mounts the volumes of pods on this node and cleans up after
// them. Each type of volume is a plugin. The types that need no storage system
// are built in, and an agent can add its own. The kubelet's counterparts are
// its volume manager and the plugins emptyDir, hostPath, configMap, secret,
// downwardAPI and projected.
//
// # What it does
//
// [Manager.Mount] mounts a pod's volumes and returns their paths.
// [Manager.Refresh] updates those that show ConfigMaps, Secrets and the pod's
// own fields. [Manager.Unmount] removes all of them. [Manager.Unsupported]
// names the volumes for which a pod must be rejected, [Manager.Pods] returns
// the pods that have directories, and [Manager.Usage] returns the usage that
// plugins measure. The layout of directories is the kubelet's, and so are the
// links in them that make updates atomic.
//
// # What you supply
//
// A directory; a source of ConfigMaps and Secrets (podsource.Store); the node's
// allocatable resources, for the downward API. Mounting a tmpfs needs
// CAP_SYS_ADMIN on Linux; emptyDir on disk, hostPath and configMap need no
// mounts. For other types of volumes, you supply a [Plugin] each: plugins are
// tried in order before the built-in types, and the first plugin that supports a
// volume handles it. [SetFSGroup] is for plugins whose volumes belong to the
// pod's fsGroup; as in the kubelet, each plugin decides that.
//
// # What it guarantees
//
//  1. A pod with a volume that no plugin supports, or whose plugin reports an
//     error, is rejected before anything is done for it, and every such volume
//     is named. Each [*Error] names volume and kind; reason and text are the
//     kubelet's. For a pod that runs, Refresh reports such volumes and updates
//     the others.
//  2. A process that opens ..data in a volume sees one version of its contents,
//     never a mix; files appear and disappear with the version. A crash leaves
//     one version or the other, and the next write removes the rest.
//  3. Secrets, tokens and the downward API are on tmpfs and never on disk. They
//     are not swapped out if the kernel supports that, and are removed with the
//     pod.
//  4. Unmount removes nothing through a mount: it unmounts everything in the
//     pod's directory, including unknown mounts, checks again, and removes
//     nothing as long as something is mounted there or if that is unknown. Data
//     of hostPath volumes is not touched. Plugins are found by the names of
//     directories, so the pod may be unknown. Volumes of an unknown plugin, and
//     those that their plugin can't tear down, stay with their mounts and are
//     reported as errors; the other volumes are removed.
//  5. No name in a manifest and no link in a volume leads out of the root: all
//     access goes through os.Root, and names are checked first.
//  6. Every call can be repeated, and so completes what a crash interrupted.
//     What a container has written stays until Unmount. A volume that was
//     mounted stays mounted, also when its ConfigMap or Secret is deleted.
//  7. With an fsGroup, files and directories belong to the group and are
//     readable, in an emptyDir writable, by it; new files in directories belong
//     to the group too.
//
// # Goroutines and locking
//
// The package starts no goroutines. Calls for one pod wait for each other,
// those for different pods do not. Plugins and other collaborators are called
// with the pod's lock held, so a plugin that hangs blocks only its pod; waiting
// calls return when their ctx is done. The mount table is read only if a tmpfs
// must be mounted, once per call, and by Unmount.
//
// # Differences from the kubelet
//
//   - All volumes of a pod are checked before the first one is created.
//   - A tmpfs gets the option noswap if the kernel supports it.
//   - In a projected volume, a path that is a file in one source and a
//     directory in another is an error. If two sources have the same path, the
//     later one counts, as in the kubelet.
//   - Unmount finds mounts in /proc/self/mountinfo, not in its own memory, so a
//     restart of the agent changes nothing.
//   - A hostPath that is not absolute is rejected, whatever its type.
//   - A hostPath of type FileOrCreate that is a dangling link is rejected; the
//     kubelet creates the file that the link names, wherever that is.
//   - fsGroupChangePolicy has no effect on built-in types: their volumes start
//     empty and have the right group from the beginning.
//   - The files that a pod's volumes show of ConfigMaps, Secrets and its fields
//     are at most 64 MiB together; the kubelet has no limit.
//   - A Secret's stringData counts, because there may be no API server that
//     merged it.
//   - Not built in: hugepages, persistentVolumeClaim, ephemeral, csi, nfs and
//     the others that need a driver; clusterTrustBundle and podCertificate in
//     projected volumes; quotas for emptyDir on disk. The runtime mounts image
//     volumes.
//
// # Testing your code with it
//
// Set Config.Root to a temporary directory and Config.Mounter to a fake that
// mounts nothing; then files that would be on tmpfs are on disk.
package volumes
