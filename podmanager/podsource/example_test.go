package podsource_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/podmanager/podsource"
)

// One pass over a folder with a good and a bad manifest.
func Example() {
	dir, err := os.MkdirTemp("", "manifests")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			fmt.Println(err)
		}
	}
	write("web.yaml", `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: nginx, image: "nginx:1.29"}]
`)
	write("typo.yaml", `
apiVersion: v1
kind: Pod
metadata: {name: db}
spec:
  containers: [{name: db, imgae: "postgres:18", ports: [{containerPort: 70000}]}]
`)

	source, err := podsource.NewDirectory(podsource.DirectoryConfig{Path: dir, NodeName: "Node1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := source.Load(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, pod := range result.Pods {
		fmt.Println("run", pod.Namespace+"/"+pod.Name, "restart", pod.Spec.RestartPolicy)
	}
	for _, problem := range result.Problems {
		fmt.Println(filepath.Base(problem.File), problem.Err)
	}
	// Output:
	// run default/web-node1 restart Always
	// typo.yaml spec.containers[0].imgae: Forbidden: unknown field; spec.containers[0].image: Required value; spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive
}

// ConfigMaps and Secrets in the folder, for volumes and environment variables.
func ExampleStore() {
	dir, err := os.MkdirTemp("", "manifests")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {mode: fast}\n"
	if err := os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(text), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	store := podsource.NewStore()
	source, err := podsource.NewDirectory(podsource.DirectoryConfig{Path: dir, NodeName: "node1", Store: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}
	_, err = store.ConfigMap(context.Background(), pod, "web")
	fmt.Println("before:", err)
	if _, err := source.Load(context.Background()); err != nil {
		fmt.Println(err)
	}
	web, err := store.ConfigMap(context.Background(), pod, "web")
	fmt.Println("after:", web.Data["mode"], err)
	_, err = store.Secret(context.Background(), pod, "web")
	fmt.Println(err)
	// Output:
	// before: the source has not been read yet
	// after: fast <nil>
	// secrets "default/web" not found
}
