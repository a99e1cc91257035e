package podsource_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

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
