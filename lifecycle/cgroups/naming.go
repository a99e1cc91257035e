package cgroups

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Name is where a cgroup is, from the root, one element a level, without slashes.
// It has no spelling yet.
type Name []string

const (
	kubepods  = "kubepods"
	podPrefix = "pod"
)

// QoSName is the cgroup of the pods of a class; Guaranteed ones have none of their
// own and are in that of all pods.
func QoSName(class corev1.PodQOSClass) Name {
	switch class {
	case corev1.PodQOSBurstable, corev1.PodQOSBestEffort:
		return Name{kubepods, strings.ToLower(string(class))}
	case corev1.PodQOSGuaranteed:
	}
	return Name{kubepods}
}

// PodName is the pod's cgroup. A static pod's UID may be any text: see
// [Cgroupfs.Ensure].
func PodName(pod *corev1.Pod) Name {
	return podName(podspec.QOSClass(pod), pod.UID)
}

func podName(class corev1.PodQOSClass, uid types.UID) Name {
	return append(QoSName(class), podPrefix+string(uid))
}

// Cgroupfs is the name as the cgroupfs driver spells it: /kubepods/podUID.
func (n Name) Cgroupfs() string { return "/" + strings.Join(n, "/") }

// Systemd is the name as systemd spells it: a path of slices, each of which holds
// the names above it, with a dash between them; a dash of a name's own becomes an
// underscore (systemd.slice(5)).
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

// UIDOf returns the UID of the pod whose cgroup has the given last element of its
// path, in either spelling; false if it is no pod's. systemd's spelling has lost
// whether a dash was an underscore: it is taken for a dash, as UIDs have them.
func UIDOf(base string) (types.UID, bool) {
	if slice, ok := strings.CutSuffix(base, ".slice"); ok {
		i := strings.LastIndex(slice, "-"+podPrefix) // a cgroup above may begin so, too
		if i < 0 {
			return "", false
		}
		uid := slice[i+len("-"+podPrefix):]
		return types.UID(strings.ReplaceAll(uid, "_", "-")), uid != ""
	}
	uid, ok := strings.CutPrefix(base, podPrefix)
	return types.UID(uid), ok && uid != ""
}
