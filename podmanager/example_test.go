package podmanager_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podmanager"
)

// This example has a static pod and its mirror pod in the API server.
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

// A plan is a value that can be printed, compared, and applied by a MirrorClient.
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
	// delete 8c32, create one of etcd-node1: the mirror shows another version of the static pod
}

// Two sources. One removes its pod before the other has delivered its pods.
func ExampleMerge() {
	m, err := podmanager.NewMerge(podmanager.MergeConfig{
		Sources: []string{podspec.SourceFile, podspec.SourceHTTP},
		Handler: func(_ context.Context, c podmanager.Change) {
			for _, op := range c.Ops {
				fmt.Println(op.Type, op.Pod.Name)
			}
			fmt.Println("pods:", len(c.Pods), "waiting for:", c.UnreadSources)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	web := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "1"}}
	dns := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "dns", UID: "2"}}

	// Run of a podsource.Directory and of a podsource.HTTP would call them.
	file, http := m.Source(podspec.SourceFile), m.Source(podspec.SourceHTTP)
	file(context.Background(), []*corev1.Pod{web})
	file(context.Background(), nil)
	http(context.Background(), []*corev1.Pod{dns})
	// Output:
	// ADD web
	// pods: 1 waiting for: [http]
	// REMOVE web
	// pods: 0 waiting for: [http]
	// ADD dns
	// pods: 1 waiting for: []
}
