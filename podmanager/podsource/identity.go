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

// SourceStatic is the value of the annotation [podspec.SourceAnnotation] on pods of a
// [Static].
const SourceStatic = "static"

// seenLayout is the kubelet's time layout: RFC 3339 with nine digits for the fraction of a
// second.
const seenLayout = "2006-01-02T15:04:05.000000000Z07:00"

// origin contains the properties of a source that determine how its manifests are decoded
// and what the names and UIDs of its pods are.
type origin struct {
	source, node, owner string
	objects             bool // ConfigMaps and Secrets are accepted too
	kindless            bool // a document without a kind is a pod
}

// contentHash returns 32 hexadecimal digits that depend on the content of a manifest and on the
// origin, and not on the formatting or on the file's name. Pass the pod without defaults:
// otherwise, a new default in a later version would change the hashes, and so replace the pods.
func contentHash(pod *corev1.Pod, of origin) string {
	data, err := json.Marshal(struct {
		Source, Node string
		Owner        string `json:",omitempty"`
		Metadata     metav1.ObjectMeta
		Spec         corev1.PodSpec
		Status       corev1.PodStatus `json:",omitzero"`
	}{of.source, strings.ToLower(of.node), of.owner, pod.ObjectMeta, pod.Spec, pod.Status})
	if err != nil {
		// This does not happen, because every pod can be encoded as JSON. If it happened, changes
		// of the pod would not be detected.
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

// tolerateNoExecute makes the pod tolerate every NoExecute taint, because a static pod
// cannot run on another node. If the pod tolerates these taints already, but only for a
// limited time, the time limit is removed.
func tolerateNoExecute(spec *corev1.PodSpec) {
	always := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	i := slices.IndexFunc(spec.Tolerations, func(t corev1.Toleration) bool { return t.MatchToleration(&always) })
	if i < 0 {
		spec.Tolerations = append(spec.Tolerations, always)
		return
	}
	spec.Tolerations[i] = always
}

// staticName returns the pod's name in the cluster. It includes the node's name, because
// many nodes may have the same manifest.
func staticName(name, nodeName string) string { return name + "-" + strings.ToLower(nodeName) }

// stampSeen returns the pods of the manifests, each with the time at which the source first
// read a manifest with the pod's UID. If the map of previous pods has the UID, the time is that of
// the previous pod. If the content of a pod has not changed, stampSeen returns the previous object.
func stampSeen(manifests []manifest, before map[types.UID]*corev1.Pod, now time.Time) (pods []*corev1.Pod, byUID map[types.UID]*corev1.Pod) {
	byUID = make(map[types.UID]*corev1.Pod, len(manifests))
	pods = make([]*corev1.Pod, 0, len(manifests))
	for _, m := range manifests {
		old, known := before[m.pod.UID]
		pod := old
		if !known || old.Annotations[podspec.HashAnnotation] != m.pod.Annotations[podspec.HashAnnotation] {
			seen := now.Format(seenLayout)
			if known {
				seen = old.Annotations[podspec.SeenAnnotation]
			}
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
