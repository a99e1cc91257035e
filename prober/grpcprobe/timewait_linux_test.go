package grpcprobe_test

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/prober/grpcprobe"
)

// kubernetes#89898: new connections must not exhaust the ports.
func TestConnections_NoneRemainInTimeWait(t *testing.T) {
	t.Parallel()
	_, register := healthServer()
	address := serve(t, register)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	before := timeWaits(t, number)
	k := checker(t, grpcprobe.Config{})
	for i := range 20 {
		outcome, output := k.Check(t.Context(), prober.GRPCRequest{Address: address, Fresh: i > 0})
		require.Equal(t, prober.Succeeded, outcome, output)
	}
	require.NoError(t, k.Close())
	require.Subset(t, before, timeWaits(t, number))
}

// timeWaits lists the sockets in TIME_WAIT at either end of a port. Another test may
// have used the port within the last minute.
func timeWaits(t *testing.T, port int) (pairs []string) {
	t.Helper()
	data, err := os.ReadFile("/proc/net/tcp")
	require.NoError(t, err)
	end, timeWait := fmt.Sprintf(":%04X", port), "06"
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) > 3 && f[3] == timeWait && (strings.HasSuffix(f[1], end) || strings.HasSuffix(f[2], end)) {
			pairs = append(pairs, f[1]+" "+f[2])
		}
	}
	return pairs
}
