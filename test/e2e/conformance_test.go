//go:build e2e

package e2e

import (
	"testing"

	"google.golang.org/grpc"

	"github.com/kubeparts/kubeparts/fakecri/conformance"
)

// TestConformance holds the real runtime against the checks that fakecri passes:
// what the managers are tested with is what they meet.
func TestConformance(t *testing.T) {
	o := conformance.Shell("kubeparts.test/busybox:1", imagePulled, "kubeparts.test/missing:1")
	o.CgroupParent = "/kpbed/conformance"
	conformance.Test(t, func(testing.TB) grpc.ClientConnInterface { return bed.conn }, o)
}
