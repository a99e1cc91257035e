package oomwatch

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// ParseCgroup returns the UID of the pod and the ID of the container to which a cgroup
// belongs, according to its path. Each is empty if the path does not contain it.
//
// It supports the paths of the kubelet's cgroupfs and systemd drivers and the names that
// containerd, CRI-O and Docker give to containers:
//
//	/kubepods/burstable/pod8dd2…/62be…
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8dd2….slice/cri-containerd-62be….scope
//	/system.slice/kubepods-burstable-pod8dd2….slice:cri-containerd:62be…
//
// ParseCgroup returns the first pod in the path and the first container of that pod, even
// if the container has child cgroups or runs a whole Kubernetes node. If the path has no
// pod, ParseCgroup returns the first container in the path.
func ParseCgroup(path string) (pod types.UID, container string) {
	for element := range strings.SplitSeq(path, "/") {
		for part := range strings.SplitSeq(element, ":") {
			if pod == "" {
				if pod = podUID(part); pod != "" {
					container = "" // the node runs in a container, which is not the pod's container
					continue
				}
			}
			if container == "" {
				container = containerID(part)
			}
		}
	}
	return pod, container
}

// podUID returns the UID in the name of a pod's cgroup, "podUID" or
// "kubepods-QOS-podUID.slice". In the name of a slice, dashes separate levels, so that the
// UID has underscores instead of dashes.
func podUID(name string) types.UID {
	if inner, ok := strings.CutSuffix(name, ".slice"); ok {
		at := strings.LastIndex(inner, "-pod")
		if at < 0 {
			return ""
		}
		return uid(strings.ReplaceAll(inner[at+len("-pod"):], "_", "-"))
	}
	rest, ok := strings.CutPrefix(name, "pod")
	if !ok {
		return ""
	}
	return uid(rest)
}

// uid returns s if it has the form of a pod's UID: a UUID or, for static pods, a hash
// with 32 digits; otherwise it returns the empty string.
func uid(s string) types.UID {
	digits := strings.ReplaceAll(s, "-", "")
	if len(digits) != 32 || !isHex(digits) {
		return ""
	}
	return types.UID(s)
}

// containerID returns the ID in the name of a container's cgroup, "ID" or
// "RUNTIME-ID.scope".
func containerID(name string) string {
	const length = 64
	name = strings.TrimSuffix(name, ".scope")
	if at := len(name) - length; at > 0 && name[at-1] == '-' {
		name = name[at:]
	}
	if len(name) != length || !isHex(name) {
		return ""
	}
	return name
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }
