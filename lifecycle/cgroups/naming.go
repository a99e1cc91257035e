package cgroups

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Name is the path of a cgroup from the root, one element per level, without
// slashes. It is independent of the driver.
type Name []string

const (
	kubepods  = "kubepods"
	podPrefix = "pod"
)

// QoSName returns the cgroup of a QoS class. Guaranteed has no cgroup of its
// own; its pods are in the cgroup of all pods.
func QoSName(class corev1.PodQOSClass) Name {
	switch class {
	case corev1.PodQOSBurstable, corev1.PodQOSBestEffort:
		return Name{kubepods, strings.ToLower(string(class))}
	case corev1.PodQOSGuaranteed:
	}
	return Name{kubepods}
}

// PodName returns the pod's cgroup. The UID of a static pod may be any text:
// see [Cgroupfs.Ensure].
func PodName(pod *corev1.Pod) Name {
	return podName(podspec.QOSClass(pod), pod.UID)
}

func podName(class corev1.PodQOSClass, uid types.UID) Name {
	return append(QoSName(class), podPrefix+string(uid))
}

// Cgroupfs returns the name in the form of the cgroupfs driver:
// /kubepods/podUID.
func (n Name) Cgroupfs() string { return "/" + strings.Join(n, "/") }

// Systemd returns the name in the form of systemd: a path of slices. The name
// of each slice contains the names above it, separated by dashes; a dash in a
// name becomes an underscore (systemd.slice(5)).
func (n Name) Systemd() string {
	var b, slice strings.Builder
	for i, part := range n {
		if i > 0 {
			slice.WriteByte('-')
		}
		slice.WriteString(strings.ReplaceAll(part, "-", "_"))
		b.WriteString("/" + slice.String() + ".slice")
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

// UIDOf returns the UID of the pod whose cgroup has base as the last element of
// its path, in either form; false if it is not a pod's cgroup. In systemd's
// form dashes and underscores cannot be distinguished; they become dashes, as
// in UIDs.
func UIDOf(base string) (types.UID, bool) {
	if slice, ok := strings.CutSuffix(base, ".slice"); ok {
		i := strings.LastIndex(slice, "-"+podPrefix) // a parent may have such a prefix too
		if i < 0 {
			return "", false
		}
		uid := slice[i+len("-"+podPrefix):]
		return types.UID(strings.ReplaceAll(uid, "_", "-")), uid != ""
	}
	uid, ok := strings.CutPrefix(base, podPrefix)
	return types.UID(uid), ok && uid != ""
}
