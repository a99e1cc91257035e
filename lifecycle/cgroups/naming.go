package cgroups

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Name is the path of a cgroup from the root cgroup: one element per level,
// without slashes. It does not depend on the cgroup driver.
type Name []string

const (
	kubepods  = "kubepods"
	podPrefix = "pod"
)

// QoSName returns the name of the cgroup of a QoS class. Guaranteed pods have
// no common cgroup: their cgroups are directly in the cgroup of all pods.
func QoSName(class corev1.PodQOSClass) Name {
	switch class {
	case corev1.PodQOSBurstable, corev1.PodQOSBestEffort:
		return Name{kubepods, strings.ToLower(string(class))}
	case corev1.PodQOSGuaranteed:
	}
	return Name{kubepods}
}

// PodName returns the name of the pod's cgroup. It does not check the pod's
// UID, which may be any text for a static pod. [Cgroupfs.Ensure] checks the
// UID.
func PodName(pod *corev1.Pod) Name {
	return podName(podspec.QOSClass(pod), pod.UID)
}

func podName(class corev1.PodQOSClass, uid types.UID) Name {
	return append(QoSName(class), podPrefix+string(uid))
}

// Cgroupfs returns the name in the form of the cgroupfs driver:
// /kubepods/podUID.
func (n Name) Cgroupfs() string { return "/" + strings.Join(n, "/") }

// Systemd returns the name in the form of the systemd driver: a path of slices.
// The name of each slice begins with the names of all slices above it,
// separated by dashes. A dash in a name becomes an underscore
// (systemd.slice(5)).
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

// UIDOf returns the UID of a pod from base, the last element of the path of the
// pod's cgroup, in the form of either driver. UIDOf returns false if base is
// not the name of a pod's cgroup. In the form of the systemd driver, dashes and
// underscores of a UID look the same. UIDOf returns dashes for both, because
// UIDs contain dashes.
func UIDOf(base string) (types.UID, bool) {
	if slice, ok := strings.CutSuffix(base, ".slice"); ok {
		i := strings.LastIndex(slice, "-"+podPrefix) // the names of parents may contain -pod too
		if i < 0 {
			return "", false
		}
		uid := slice[i+len("-"+podPrefix):]
		return types.UID(strings.ReplaceAll(uid, "_", "-")), uid != ""
	}
	uid, ok := strings.CutPrefix(base, podPrefix)
	return types.UID(uid), ok && uid != ""
}
