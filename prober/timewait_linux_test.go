package prober_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/prober"
)

// kubernetes#89898: 600 probes a second for a minute are more than the number of local ports.
// No probe may leave a socket in TIME_WAIT, on either side.
func TestConnections_NoneRemainInTimeWait(t *testing.T) {
	t.Parallel()
	address := serve(t, func(http.ResponseWriter, *http.Request) {})
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	const runs = 20
	before := timeWaits(t, number)
	for name, handler := range map[string]corev1.ProbeHandler{
		"http": {HTTPGet: &corev1.HTTPGetAction{Port: intOrString(port)}},
		"tcp":  {TCPSocket: &corev1.TCPSocketAction{Port: intOrString(port)}},
	} {
		n := newTestNode()
		m := manager(t, n, realClock())
		m.AddPod(podOf(corev1.Container{Name: "app", ReadinessProbe: probeOf(func(p *corev1.Probe) { p.ProbeHandler = handler })}))
		n.runsAt("app", "a", time.Now())
		for range runs {
			r, err := m.Probe(t.Context(), key("app", prober.Readiness))
			require.NoError(t, err)
			require.Equal(t, prober.Succeeded, r.Outcome, name)
		}
		m.RemovePod("1234")
	}
	require.Subset(t, before, timeWaits(t, number))

	// Check that timeWaits finds a socket in TIME_WAIT.
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NoError(t, conn.Close())
	require.NotSubset(t, before, timeWaits(t, number))
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
