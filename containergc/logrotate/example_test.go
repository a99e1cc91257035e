package logrotate_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/containergc/logrotate"
)

// reopener is a runtime whose container opens its log for every line.
type reopener struct{ path string }

func (r reopener) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return []*runtimeapi.Container{{Id: "c1", State: runtimeapi.ContainerState_CONTAINER_RUNNING}}, nil
}

func (r reopener) ContainerStatus(context.Context, string, bool) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{LogPath: r.path}}, nil
}

func (r reopener) ReopenContainerLog(context.Context, string) error {
	return os.WriteFile(r.path, nil, 0o640)
}

// A log over the size limit is renamed.
func Example() {
	root, err := os.MkdirTemp("", "logs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(root) }()
	dir := filepath.Join(root, "default_web_1234", "app")
	path := filepath.Join(dir, "0.log")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		fmt.Println(err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("line\n", 1000)), 0o640); err != nil {
		fmt.Println(err)
	}
	size, err := logrotate.ParseMaxSize("4Ki")
	if err != nil {
		fmt.Println(err)
	}
	r, err := logrotate.New(logrotate.Config{Runtime: reopener{path}, PodLogs: root, Policy: logrotate.Policy{MaxSizeBytes: size}})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := r.Rotate(context.Background())
	fmt.Println(res.Rotated, err)
	files, _ := filepath.Glob(path + "*")
	fmt.Println(len(files), "files")
	// Output:
	// 1 <nil>
	// 2 files
}
