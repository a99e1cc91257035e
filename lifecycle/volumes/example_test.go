package volumes_test

import (
	"context"
	"errors"
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
	manager, err := volumes.New(volumes.Config{Root: root, Mounter: &mounter{}}) // omit Mounter if tmpfs can be mounted
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
	paths, _, err := manager.Mount(ctx, pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	rel, _ := filepath.Rel(root, paths["info"])
	name, _ := os.ReadFile(filepath.Join(paths["info"], "name"))
	fmt.Println(rel, "shows", string(name))
	before, _ := manager.Pods()
	fmt.Println(before, manager.Unmount(ctx, pod.UID))
	after, _ := manager.Pods()
	fmt.Println(after)
	// Output:
	// pods/1234/volumes/kubernetes.io~downward-api/info shows web
	// [1234] <nil>
	// []
}

// scratch is a volume type: a directory for a csi volume of the driver
// "scratch".
type scratch struct{}

func (scratch) Name() string { return "example.com/scratch" }

func (scratch) Supports(_ *corev1.Pod, v *corev1.Volume) (bool, error) {
	if v.CSI == nil || v.CSI.Driver != "scratch" {
		return false, nil
	}
	if v.CSI.FSType != nil {
		return true, errors.New("csi.fsType: not supported")
	}
	return true, nil
}

func (scratch) SetUp(_ context.Context, r volumes.Request) (volumes.Mount, error) {
	m := volumes.Mount{Path: r.Dir}
	if err := os.Mkdir(r.Dir, 0o750); err != nil {
		if os.IsExist(err) {
			return m, nil // the volume is already set up
		}
		return volumes.Mount{}, err
	}
	if err := volumes.SetFSGroup(r.Pod, m); err != nil {
		return volumes.Mount{}, errors.Join(err, os.Remove(r.Dir)) // the next call starts again
	}
	return m, nil
}

func (scratch) TearDown(context.Context, volumes.Ref) error { return nil } // the manager removes Dir

func (scratch) Usage(context.Context, volumes.Ref) (*volumes.Usage, error) { return nil, nil }

// This agent has its own volume type, which is tried before the built-in types.
func ExamplePlugin() {
	root, err := os.MkdirTemp("", "volumes")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)
	manager, err := volumes.New(volumes.Config{Root: root, Mounter: &mounter{}, Plugins: []volumes.Plugin{scratch{}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1234"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
			Volumes:    []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "scratch"}}}},
		},
	}
	ctx := context.Background()
	paths, _, err := manager.Mount(ctx, pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	rel, _ := filepath.Rel(root, paths["data"])
	fmt.Println(rel)
	fmt.Println(manager.Unmount(ctx, pod.UID)) // the pod may be unknown
	pod.Spec.Volumes[0].CSI.Driver = "another"
	fmt.Println(manager.Unsupported(pod))
	// Output:
	// pods/1234/volumes/example.com~scratch/data
	// <nil>
	// spec.volumes[0].csi: volume "data": volume type csi is not supported
}
