// Package volumes mounts the volumes of pods on this node, and removes them
// when the pods have ended. Each type of volume has a plugin. The plugins for
// types that need no storage system are built in, and an agent can add its own
// plugins. The kubelet's counterparts are its volume manager and the plugins
// emptyDir, hostPath, configMap, secret, downwardAPI and projected.
//
// # What it does
//
// [Manager.Mount] mounts a pod's volumes and returns their paths.
// [Manager.Refresh] updates the contents of mounted volumes, for example of
// ConfigMap and Secret volumes. [Manager.Unmount] removes all volumes of a pod.
// [Manager.Unsupported] names the volumes for which a pod must be rejected,
// [Manager.Pods] returns the pods that have directories, and [Manager.Usage]
// returns the usage that plugins measure. The directories have the kubelet's
// layout, including the symbolic links that make updates atomic.
//
// # What you supply
//
// You supply a root directory, a source of ConfigMaps and Secrets
// (podsource.Store), and the node's allocatable resources for the downward API.
// Mounting a tmpfs needs CAP_SYS_ADMIN on Linux; emptyDir on disk, hostPath and
// configMap need no mounts. For each other type of volume, you supply a
// [Plugin]. The Manager tries your plugins in order, and then the built-in
// plugins. The first plugin that supports a volume handles it. A plugin calls
// [SetFSGroup] if its volumes belong to the pod's fsGroup; as in the kubelet,
// each plugin decides this.
//
// # What it guarantees
//
//  1. If no plugin supports a volume, or if Supports returns an error, Mount
//     rejects the pod before it sets up any volume. The error names every
//     unsupported volume: an [*Error] has the volume's name and type. The text
//     of an *Error is the text of the kubelet's event [FailedMount]. For a pod
//     that already runs, Refresh reports unsupported volumes and updates the
//     other volumes.
//  2. A process that opens ..data in a volume sees one version of the volume's
//     contents, never a mix of two versions. Files appear and disappear
//     together with the version. After a crash of the agent, the volume has
//     either the old or the new version, and the next write removes the remains
//     of the other version.
//  3. The files of Secrets, tokens and the downward API are on tmpfs, never on
//     disk. If the kernel supports the option noswap, it does not swap these
//     files out. The files are removed when the pod's volumes are unmounted.
//  4. Unmount never removes files through a mount. It unmounts everything in
//     the pod's directory, including mounts that the Manager did not create,
//     and then reads the mount table again. If something is still mounted
//     there, or if the mount table can't be read, it removes nothing. Unmount
//     does not touch the data of hostPath volumes. It finds plugins by the
//     names of directories, so it needs no pod object. If a plugin is unknown
//     or can't tear a volume down, the volume and its mounts stay. Unmount then
//     returns an error, and removes the pod's other volumes.
//  5. No name in a manifest and no link in a volume leads out of the root: all
//     access goes through os.Root, and names are checked first.
//  6. Every call can be repeated. A repeated call completes the work that a
//     crash has interrupted. Files that a container has written stay until
//     Unmount. A mounted volume stays mounted even if its ConfigMap or Secret
//     is deleted.
//  7. If the pod has an fsGroup, the files and directories of its volumes of
//     built-in types belong to this group, except hostPath volumes. The group
//     may read the files, and may also write to an emptyDir. New files in the
//     directories belong to the group too. Other plugins decide themselves
//     whether a volume belongs to the group.
//
// # Goroutines and locking
//
// The package starts no goroutines. Calls for the same pod run one after the
// other; calls for different pods run concurrently. The Manager holds the pod's
// lock while it calls plugins and other collaborators, so a plugin that hangs
// blocks only calls for the same pod. Calls that wait for the lock return when
// their ctx is done. Mount and Refresh read the mount table at most once per
// call, and only if a tmpfs must be mounted. Unmount reads the mount table if
// the pod has a directory for volumes, and reads the table again after it has
// unmounted something.
//
// # Differences from the kubelet
//
//   - Mount checks all volumes of a pod before it creates the first volume. The
//     kubelet creates each volume independently.
//   - Here each mount of a tmpfs first tries the option noswap. The kubelet
//     checks once whether the kernel supports this option, and does not use it
//     in a user namespace.
//   - Here it is an error if a path in a projected volume is a file in one
//     source and a directory in another. If two sources have the same path, the
//     later source counts, as in the kubelet.
//   - Unmount finds mounts in /proc/self/mountinfo, not in memory, so it also
//     finds mounts from before a restart of the agent.
//   - Here a hostPath that is not absolute is rejected, whatever its type.
//   - Here a hostPath of type FileOrCreate that is a dangling link is rejected;
//     the kubelet creates the file that the link names, wherever that is.
//   - The kubelet changes the group of the files in volumes of built-in types
//     after it has written the files; here the files have the right group from
//     the beginning. As in the kubelet, fsGroupChangePolicy has no effect on
//     these types.
//   - Here the files of ConfigMaps, Secrets, tokens and the pod's fields in all
//     volumes of a pod are at most 64 MiB together; the kubelet has no limit.
//   - This package also uses the stringData of a Secret. The kubelet gets
//     Secrets from the API server, which has merged stringData into data.
//   - Not built in: hugepages, persistentVolumeClaim, ephemeral, csi, nfs and
//     the other volume types that need a driver; clusterTrustBundle and
//     podCertificate in projected volumes; quotas for emptyDir on disk. The
//     runtime mounts image volumes.
//
// # Testing your code with it
//
// Set Config.Root to a temporary directory and Config.Mounter to a fake that
// mounts nothing; then files that would be on tmpfs are on disk.
package volumes
