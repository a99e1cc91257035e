package podmanager

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

const (
	sourceAnnotation = "kubernetes.io/config.source"
	hashAnnotation   = "kubernetes.io/config.hash"
	mirrorAnnotation = "kubernetes.io/config.mirror"
)

// A world is a sequence of changes to the pods in a pod manager.
type world struct{ Steps []change }

// A change is one call.
type change struct {
	Call string // set, add, update or remove
	Pods []*corev1.Pod
}

func (w *world) String() string {
	var b strings.Builder
	for i, s := range w.Steps {
		fmt.Fprintf(&b, "step %d: %s", i, s.Call)
		for _, pod := range s.Pods {
			fmt.Fprintf(&b, " %s/%s uid=%s %v", pod.Namespace, pod.Name, pod.UID, pod.Annotations)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func names() []string { return []string{"a", "b"} }

func uids() []types.UID { return []types.UID{"u1", "u2", "u3", "m1", "m2", ""} }

// drawPod returns a pod: regular, static or a mirror.
func drawPod(d *judge.Draw) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: judge.Pick(d, "a", "a", "b"), Namespace: judge.Pick(d, "ns", "ns", "ns", "other"),
		UID: uids()[d.Int(3)],
	}}
	switch d.Int(4) {
	case 0:
		pod.Annotations = map[string]string{sourceAnnotation: judge.Pick(d, "file", "http"), hashAnnotation: judge.Pick(d, "h1", "h2")}
	case 1:
		pod.Annotations = map[string]string{sourceAnnotation: "api"}
	case 2:
		pod.UID = judge.Pick(d, types.UID("m1"), "m2")
		pod.Annotations = map[string]string{mirrorAnnotation: judge.Pick(d, "h1", "h2", ""), sourceAnnotation: judge.Pick(d, "api", "file"), hashAnnotation: "h1"}
	default:
	}
	switch d.Int(50) {
	case 49:
		pod.UID = ""
	case 48:
		pod.Name = ""
	case 47:
		pod.Namespace = ""
	}
	return pod
}

func newWorld(d *judge.Draw) *world {
	w := &world{}
	var known []*corev1.Pod
	for range d.Between(1, 10) {
		s := change{Call: judge.Pick(d, "add", "update", "remove", "set")}
		n := 1
		if s.Call == "set" {
			n = d.Int(4)
			known = nil
		}
		for range n {
			pod := drawPod(d)
			if len(known) > 0 && d.Chance(60) {
				if pod = known[d.Int(len(known))]; d.Chance(80) {
					pod = pod.DeepCopy()
				}
				if d.Chance(15) && pod.Annotations[hashAnnotation] != "" {
					pod = pod.DeepCopy()
					pod.Annotations[hashAnnotation] = "h2"
				}
			}
			s.Pods = append(s.Pods, pod)
			known = append(known, pod)
		}
		w.Steps = append(w.Steps, s)
	}
	return w
}

// describe prints a pod for a fact. Pods are identified by the object.
func describe(w *world, pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	for i, s := range w.Steps {
		if j := slices.Index(s.Pods, pod); j >= 0 {
			return fmt.Sprintf("%s %s (step %d, %d)", pod.Name, pod.UID, i, j)
		}
	}
	return "another object"
}
