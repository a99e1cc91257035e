package volumes_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

// A pod shows its own name to its container in a file.
func Example() {
	root, err := os.MkdirTemp("", "volumes")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)
	local, err := volumes.New(volumes.Config{Root: root, Mounter: &mounter{}}) // leave Mounter out where tmpfs can be mounted
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1234"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "info", MountPath: "/info"}}}},
			Volumes: []corev1.Volume{{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
				Items: []corev1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			}}}},
		},
	}
	ctx := context.Background()
	paths, err := local.Mount(ctx, pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	rel, _ := filepath.Rel(root, paths["info"])
	name, _ := os.ReadFile(filepath.Join(paths["info"], "name"))
	fmt.Println(rel, "shows", string(name))
	before, _ := local.Pods()
	fmt.Println(before, local.Unmount(ctx, pod.UID))
	after, _ := local.Pods()
	fmt.Println(after)
	// Output:
	// pods/1234/volumes/kubernetes.io~downward-api/info shows web
	// [1234] <nil>
	// []
}
