package crilabels

// longestName is the length that file systems allow a file's name.
const longestName = 255

// LogLink returns the name of the link to the log of a container, by which log shippers
// find it in /var/log/containers. A name that is too long is cut, which may cut the
// container's ID.
func LogLink(namespace, pod, container, id string) string {
	const suffix = ".log"
	name := pod + "_" + namespace + "_" + container + "-" + id
	return name[:min(len(name), longestName-len(suffix))] + suffix
}
