package describe

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeFacts are what is known of the node. Nothing in it is modified.
type NodeFacts struct {
	Name    string
	Labels  map[string]string
	Created time.Time // when the agent began
	Status  corev1.NodeStatus
}

// Node is the node as a kubelet would report it.
func Node(f NodeFacts) corev1.Node {
	return corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{
			Name: f.Name, Labels: f.Labels, CreationTimestamp: metav1.NewTime(f.Created),
		},
		Status: f.Status,
	}
}
