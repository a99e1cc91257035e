// Package volumes makes the volumes of pods ready on this node and cleans up after
// them. Each type of volume is a plugin: those that need no storage system are built in,
// and an agent adds its own. The kubelet's counterparts are its volume manager and the
// plugins emptyDir, hostPath, configMap, secret, downwardAPI and projected.
//
// # What it does
//
// [Manager.Mount] makes a pod's volumes ready and returns where they are,
// [Manager.Refresh] brings those up to date that show ConfigMaps, Secrets and the
// pod's own fields, and [Manager.Unmount] removes all of it. [Manager.Unsupported] names the
// volumes for which a pod is to be refused, [Manager.Pods] the pods that left something
// behind, and [Manager.Usage] returns what plugins measure. Folders are laid out as the
// kubelet's, and so are the links in them that make updates atomic.
//
// # What you supply
//
// A folder; where ConfigMaps and Secrets come from (podsource.Store); what the node
// has, for the downward API. Mounting a tmpfs needs CAP_SYS_ADMIN on Linux;
// emptyDir on disk, hostPath and configMap need no mounts. For other types of volumes, a
// [Plugin] each: plugins are asked in their order before the built-in types, and
// the first that supports a volume gets it. [SetFSGroup] is for plugins whose volumes
// belong to the pod's fsGroup: as in the kubelet, that is for each plugin to decide.
//
// # What it guarantees
//
//  1. A pod with a volume that no plugin supports, or that its plugin cannot honour, is
//     refused before anything is done for it, and every such volume is named. Each [*Error]
//     names volume and kind; reason and text are the kubelet's. For a pod that runs,
//     Refresh reports such volumes and brings the others up to date.
//  2. Whoever opens ..data in a volume sees one version of its contents, never a
//     mix; files come and go with the version. A crash leaves one version or the
//     other, and the next write removes what it left.
//  3. Secrets, tokens and the downward API are on tmpfs and never on a disk, where
//     the kernel can do that not swapped out either, and gone with the pod.
//  4. Unmount removes nothing through a mount: it unmounts whatever is mounted in
//     the pod's folder, also what it never knew of, looks again, and removes
//     nothing as long as something is mounted there or that can't be known. Data of
//     hostPath volumes is not touched. Plugins are found by the names of folders, so the
//     pod may be unknown. Volumes of a plugin that is unknown, and those that their plugin
//     can't tear down, stay with their mounts, are an error, and hold up no other volume.
//  5. No name in a manifest and no link in a volume leads out of the root: all is
//     done through os.Root, and names are checked before.
//  6. Every call can be repeated, and so finishes what a crash cut short. What a
//     container has written stays until Unmount. A volume that was made ready stays
//     ready, also when its ConfigMap or Secret is gone.
//  7. With an fsGroup, files and folders are the group's, and readable, in an emptyDir
//     writable, by it; what is made in folders is the group's too.
//
// # Goroutines and locking
//
// There are no goroutines. Calls for one pod wait for each other, those for
// different pods do not. The collaborators are called with the pod's lock held, so a plugin
// that hangs holds up its pod alone; it returns when ctx is done. The table of mounts is
// read only if a tmpfs is to be mounted, once a call, and by Unmount.
//
// # Differences from the kubelet
//
//   - Whatever a pod asks for is checked before the first volume is made.
//   - A tmpfs gets noswap wherever the kernel takes it.
//   - In a projected volume a path that is a file in one source and a folder in
//     another is an error, not a surprise; the same path twice is the later
//     source's, as there.
//   - Unmount finds mounts in /proc/self/mountinfo, not in a memory of its own, so
//     that a restart of the agent changes nothing.
//   - A hostPath that is not absolute is refused, whatever its type.
//   - A hostPath of type FileOrCreate that is a link to nothing is refused; the kubelet
//     makes the file that the link names, wherever that is.
//   - fsGroupChangePolicy has no effect on built-in types: volumes here begin empty and are
//     of the right group from then on.
//   - The files that a pod's volumes show of ConfigMaps, Secrets and its fields are at most
//     64 MiB together; the kubelet writes whatever a manifest asks for.
//   - A Secret's stringData counts, as there may be no API server that merged it.
//   - Not built in: hugepages, persistentVolumeClaim, ephemeral, csi, nfs and the others
//     that need a driver; clusterTrustBundle and podCertificate in projected volumes;
//     quotas for emptyDir on disk. The runtime mounts image volumes.
//
// # Testing your code with it
//
// Give Config a temporary folder and a Mounter that mounts nothing: what would be on
// tmpfs is then on disk.
package volumes
