//go:build e2e

package e2e

import (
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/kubeparts/kubeparts/fakecri/conformance"
)

// TestConformance runs the checks that fakecri passes on the real runtime: the managers' unit
// tests use a fake that behaves like a real runtime.
func TestConformance(t *testing.T) {
	o := conformance.Shell("kubeparts.test/busybox:1", imagePulled, "kubeparts.test/missing:1")
	o.CgroupParent = "/kpbed/conformance"
	o.ChangeTimeout = 20 * time.Second // all checks run at once
	conformance.Test(t, func(testing.TB) grpc.ClientConnInterface { return bed.conn }, o)
}
