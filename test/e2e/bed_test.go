//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Images of the test bed.
const (
	imageServer = "kubeparts.test/testserver:1"
	imagePulled = "kubeparts.test/pulled:1" // in the registry only
)

// testbed is a runtime. All tests share one testbed, which has foreign pods that no test may
// change. Some tests also have a testbed of their own.
type testbed struct {
	dir      string
	endpoint string // unix://…
	ctr      string // the ctr binary
	probe    string // path of the criprobe binary, in the directory of the bed's other programs
	version  string // of containerd: 2.4, 1.7 or 1.6
	conn     *grpc.ClientConn
	runtime  runtimeapi.RuntimeServiceClient
	images   runtimeapi.ImageServiceClient
	foreign  []*foreignPod
	nodes    atomic.Int64 // number of nodes created
	small    atomic.Int64 // number of small beds created
	// streamsEvents reports whether the runtime has a stream of container events.
	streamsEvents bool
	stalls        *stallWatch // of the machine; nil in a testbed of one test
}

// connectBed connects to the bed in dir.
func connectBed(dir string) (*testbed, error) {
	env, err := bedEnv(dir)
	if err != nil {
		return nil, err
	}
	b := &testbed{
		dir: dir, endpoint: "unix://" + env["CRI_SOCKET"], ctr: env["KPBED_CTR"], probe: env["KPBED_PROBE"],
		version: env["KPBED_CONTAINERD"],
	}
	b.conn, err = grpc.NewClient(b.endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return nil, err
	}
	b.runtime, b.images = runtimeapi.NewRuntimeServiceClient(b.conn), runtimeapi.NewImageServiceClient(b.conn)
	return b, nil
}

// openBed connects to the bed in dir and creates the foreign pods.
func openBed(dir string) (*testbed, error) {
	b, err := connectBed(dir)
	if err != nil {
		return nil, err
	}
	b.streamsEvents, err = b.eventsDuring(func() (err error) {
		b.foreign, err = makeForeignPods(b)
		return err
	})
	if err == nil {
		b.stalls, err = watchStalls(dir)
	}
	if err != nil {
		return nil, errors.Join(err, b.conn.Close())
	}
	return b, nil
}

func (b *testbed) close() error { return b.conn.Close() }

// bedEnv reads the variables that cri-up.sh has written.
func bedEnv(dir string) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[key] = value
	}
	return env, nil
}

// bedUp starts the bed. If the bed exists and its containerd has exited, bedUp starts
// containerd again with the same state.
func bedUp(dir string, options ...string) error {
	return script("cri-up.sh", append([]string{"--dir", dir, "--containerd", containerdVersion()}, options...)...)
}

// bedDown removes the bed and its directory, if they exist.
func bedDown(dir string) error {
	return script("cri-down.sh", "--purge", dir)
}

// containerd returns the process id of the bed's containerd.
func (b *testbed) containerd() (int, error) {
	env, err := bedEnv(b.dir)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(env["KPBED_PID"])
}

func script(name string, args ...string) error {
	cmd := exec.Command(filepath.Join(repository, "test/testbed", name), args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}
