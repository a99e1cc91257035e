package fakecri

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const usableAddresses = 1<<16 - 3

func TestAddresses_AreUniqueAndRunOut(t *testing.T) {
	a := newAddresses(netip.MustParsePrefix("10.88.0.0/16"))
	seen := map[string]bool{}
	for range usableAddresses {
		ip, err := a.allocate()
		require.NoError(t, err)
		seen[ip] = true
	}
	require.Len(t, seen, usableAddresses)
	for _, reserved := range []string{"10.88.0.0", "10.88.0.1", "10.88.255.255"} {
		require.NotContains(t, seen, reserved)
	}
	_, err := a.allocate()
	require.ErrorContains(t, err, "no IP addresses available")

	a.release("") // a pod on the host's network has no address
	a.release("10.88.3.4")
	ip, err := a.allocate()
	require.NoError(t, err)
	require.Equal(t, "10.88.3.4", ip)
}

func TestAddresses_AreReusedAsLateAsPossible(t *testing.T) {
	a := newAddresses(netip.MustParsePrefix("10.88.0.0/16"))
	first, err := a.allocate()
	require.NoError(t, err)
	require.Equal(t, "10.88.0.2", first)
	a.release(first)
	for range usableAddresses - 1 {
		ip, err := a.allocate()
		require.NoError(t, err)
		require.NotEqual(t, first, ip)
	}
	ip, err := a.allocate()
	require.NoError(t, err)
	require.Equal(t, first, ip)
}

func TestRunPodSandbox_FailsWithoutAnAddress(t *testing.T) {
	n, err := New(Config{})
	require.NoError(t, err)
	for range usableAddresses {
		_, err := n.addresses.allocate()
		require.NoError(t, err)
	}
	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "late"}}
	_, err = n.RunPodSandbox(t.Context(), config, "")
	require.Equal(t, codes.Unknown, grpcstatus.Code(err))
	require.ErrorContains(t, err, "no IP addresses available")

	n.addresses.release("10.88.9.9") // the failed call has not reserved the name
	_, err = n.RunPodSandbox(t.Context(), config, "")
	require.NoError(t, err)
}
