package podmanager_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podmanager"
)

// A static pod, and what the API server shows of it.
func Example() {
	static := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kube-system", Name: "etcd-node1", UID: "11f1",
		Annotations: map[string]string{podspec.SourceAnnotation: "file", podspec.HashAnnotation: "11f1"},
	}}
	mirror := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kube-system", Name: "etcd-node1", UID: "8c32",
		Annotations: map[string]string{podspec.MirrorAnnotation: "11f1"},
	}}
	m := podmanager.New()
	m.SetPods([]*corev1.Pod{static, mirror})

	pod, _ := m.GetPodByName("kube-system", "etcd-node1")
	fmt.Println("the pod is", pod.UID)
	fmt.Println("its mirror stands for", m.TranslatePodUID(mirror.UID))

	m.RemovePod(static)
	_, _, orphans := m.GetPodsAndMirrorPods()
	fmt.Println("orphans:", len(orphans))
	// Output:
	// the pod is 11f1
	// its mirror stands for 11f1
	// orphans: 1
}

// A plan is a value: it can be printed, compared, and given to a MirrorClient.
func ExamplePlanMirrors() {
	static := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kube-system", Name: "etcd-node1", UID: "11f1",
		Annotations: map[string]string{podspec.SourceAnnotation: "file", podspec.HashAnnotation: "11f1"},
	}}
	outdated := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kube-system", Name: "etcd-node1", UID: "8c32",
		Annotations: map[string]string{podspec.MirrorAnnotation: "0af3"},
	}}
	plan := podmanager.PlanMirrors([]*corev1.Pod{static}, []*corev1.Pod{outdated}, nil)
	for _, action := range plan {
		fmt.Printf("delete %s, create one of %s: %s\n", action.Delete.UID, action.Create.Name, action.Reason)
	}
	// Output:
	// delete 8c32, create one of etcd-node1: the mirror is not of this version of the static pod
}
