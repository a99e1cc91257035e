package podsource

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// SourceStatic is the source of pods of a [Static], as the annotation
// [podspec.SourceAnnotation] has it.
const SourceStatic = "static"

// seenLayout is RFC 3339 with nine digits for the fraction of a second, the kubelet's.
const seenLayout = "2006-01-02T15:04:05.000000000Z07:00"

// origin is what pods get from the source that they come from.
type origin struct {
	source, node, owner string
	objects             bool // ConfigMaps and Secrets are taken too
	kindless            bool // what says of no kind is a pod
}

// contentHash returns 32 hexadecimal digits that depend on what a manifest says and
// on the origin, and not on how it is written or on the file's name. It is of the pod
// without defaults, so that a new default does not restart every pod.
func contentHash(pod *corev1.Pod, of origin) string {
	data, err := json.Marshal(struct {
		Source, Node string
		Owner        string `json:",omitempty"`
		Metadata     metav1.ObjectMeta
		Spec         corev1.PodSpec
		Status       corev1.PodStatus `json:",omitzero"`
	}{of.source, strings.ToLower(of.node), of.owner, pod.ObjectMeta, pod.Spec, pod.Status})
	if err != nil {
		// What was decoded from JSON marshals; otherwise the pod never looks changed.
		data = []byte(pod.Namespace + "/" + pod.Name)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// setIdentity makes the pod a static pod of the node, as the kubelet does.
func setIdentity(pod *corev1.Pod, of origin, hash string) {
	pod.Name = staticName(pod.Name, of.node)
	pod.Spec.NodeName = of.node
	if pod.UID == "" {
		pod.UID = types.UID(hash)
	}
	if pod.Annotations == nil {
		pod.Annotations = make(map[string]string)
	}
	pod.Annotations[podspec.SourceAnnotation] = of.source
	pod.Annotations[podspec.HashAnnotation] = hash
	pod.Status.Phase = corev1.PodPending
	if of.source != podspec.SourceHTTP {
		tolerateNoExecute(&pod.Spec)
	}
}

// tolerateNoExecute lets the pod stay whatever taint its node gets: it has no other node.
// A toleration of all these taints for some seconds becomes one without an end.
func tolerateNoExecute(spec *corev1.PodSpec) {
	always := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	i := slices.IndexFunc(spec.Tolerations, func(t corev1.Toleration) bool { return t.MatchToleration(&always) })
	if i < 0 {
		spec.Tolerations = append(spec.Tolerations, always)
		return
	}
	spec.Tolerations[i] = always
}

// staticName is the pod's name in the cluster, where the same manifest may be on
// many nodes.
func staticName(name, nodeName string) string { return name + "-" + strings.ToLower(nodeName) }

// settle returns the pods of the manifests. A pod whose content has not changed is
// the one from before; one that is new is stamped with now; one that keeps only its
// UID keeps the time at which that was first seen.
func settle(manifests []manifest, before map[types.UID]*corev1.Pod, now time.Time) (pods []*corev1.Pod, byUID map[types.UID]*corev1.Pod) {
	byUID = make(map[types.UID]*corev1.Pod, len(manifests))
	for _, m := range manifests {
		seen := now.Format(seenLayout)
		old, known := before[m.pod.UID]
		if known {
			seen = old.Annotations[podspec.SeenAnnotation]
		}
		pod := old
		if !known || old.Annotations[podspec.HashAnnotation] != m.pod.Annotations[podspec.HashAnnotation] {
			stamped := *m.pod
			stamped.Annotations = maps.Clone(m.pod.Annotations)
			stamped.Annotations[podspec.SeenAnnotation] = seen
			pod = &stamped
		}
		pods = append(pods, pod)
		byUID[pod.UID] = pod
	}
	return pods, byUID
}
