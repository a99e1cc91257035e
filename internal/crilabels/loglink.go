package crilabels

// longestName is the maximum length of a file name in bytes.
const longestName = 255

// LogLink returns the name of the link to a container's log in /var/log/containers, which
// log shippers read. A name that is too long is truncated at the end, so that a part of
// the container's ID may be missing.
func LogLink(namespace, pod, container, id string) string {
	const suffix = ".log"
	name := pod + "_" + namespace + "_" + container + "-" + id
	return name[:min(len(name), longestName-len(suffix))] + suffix
}
