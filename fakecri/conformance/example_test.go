package conformance_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kubeparts/kubeparts/fakecri/conformance"
)

// A vendor only needs to write this test of the runtime behind a socket, with
// an image that has a shell.
func ExampleTest() {
	_ = func(t *testing.T) {
		t.Helper() // your own test is TestRuntime(t *testing.T), and does not need this line
		o := conformance.Shell("docker.io/library/busybox:1", "docker.io/library/hello-world:latest", "example.test/missing:1")
		o.Skip = map[string]string{"container/resources": "this runtime cannot resize"}
		conformance.Test(t, func(tb testing.TB) grpc.ClientConnInterface {
			tb.Helper()
			conn, err := grpc.NewClient("unix:///run/containerd/containerd.sock",
				grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				tb.Fatal(err)
			}
			tb.Cleanup(func() { conn.Close() })
			return conn
		}, o)
	}
	for _, name := range conformance.Checks() {
		if strings.HasPrefix(name, "stop/") {
			fmt.Println(name)
		}
	}
	// Output:
	// stop/graceful
	// stop/kills-after-grace-period
	// stop/without-grace-kills-at-once
	// stop/shorter-grace-wins
	// stop/cancelled-call-leaves-container
	// stop/again-changes-nothing
	// stop/created-container
}
