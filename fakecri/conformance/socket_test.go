//go:build conformance

package conformance

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestSocket checks the runtime behind a unix socket: make conformance-cri.
func TestSocket(t *testing.T) {
	socket := os.Getenv("KPCRI_SOCKET")
	require.NotEmpty(t, socket, "KPCRI_SOCKET is the path of the runtime's socket")
	image := os.Getenv("KPCRI_IMAGE")
	o := Shell(image, os.Getenv("KPCRI_PULL_IMAGE"), os.Getenv("KPCRI_MISSING_IMAGE"))
	o.CgroupParent = os.Getenv("KPCRI_CGROUP_PARENT")
	o.ChangeTimeout = 20 * time.Second // all checks run at once
	Test(t, func(tb testing.TB) grpc.ClientConnInterface {
		tb.Helper()
		conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(tb, err)
		tb.Cleanup(func() { require.NoError(tb, conn.Close()) })
		images := runtimeapi.NewImageServiceClient(conn)
		spec := &runtimeapi.ImageSpec{Image: image}
		present, err := images.ImageStatus(tb.Context(), &runtimeapi.ImageStatusRequest{Image: spec})
		require.NoError(tb, err)
		if present.GetImage() == nil {
			_, err := images.PullImage(tb.Context(), &runtimeapi.PullImageRequest{Image: spec})
			require.NoError(tb, err, "pull of the image for the checks' containers")
		}
		return conn
	}, o)
}
