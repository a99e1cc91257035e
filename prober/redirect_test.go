package prober_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/prober"
)

// played is a manager with a probe of a server in its bubble.
type played struct {
	*prober.Manager
	*node
	t *testing.T
}

// play calls f in a bubble. Each function serves one connection.
func play(t *testing.T, f func(s *played), conns ...func(c net.Conn, r *bufio.Reader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var serving sync.WaitGroup
		s := &played{node: newTestNode(), t: t}
		s.Manager = manager(t, s.node, realClock(), func(cfg *prober.Config) {
			cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
				require.NotEmpty(t, conns, "unexpected connection")
				client, server := net.Pipe()
				serve := conns[0]
				conns = conns[1:]
				serving.Go(func() { serve(server, bufio.NewReader(server)); _ = server.Close() })
				return client, nil
			}
		})
		s.AddPod(podOf(corev1.Container{Name: "app", ReadinessProbe: probeOf(httpGet(80, "/"))}))
		s.runsAt("app", "a", time.Now())
		f(s)
		require.Empty(t, conns, "missing connections")
		s.RemovePod("1234")
		serving.Wait()
	})
}

// want requires the outcome of a run, the end of its output, and its duration.
func (s *played) want(o prober.Outcome, output string, took time.Duration) {
	s.t.Helper()
	began := time.Now()
	r, err := s.Probe(s.t.Context(), key("app", prober.Readiness))
	require.NoError(s.t, err)
	require.Equal(s.t, o, r.Outcome, r.Output)
	require.Contains(s.t, r.Output, output)
	require.Equal(s.t, took, time.Since(began))
}

// after answers a request after a time.
func after(d time.Duration, text string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, r *bufio.Reader) {
		if request(r) {
			<-time.After(d)
			_, _ = io.WriteString(c, text)
		}
	}
}

// then serves a connection with one function after the other.
func then(parts ...func(net.Conn, *bufio.Reader)) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, r *bufio.Reader) {
		for _, part := range parts {
			part(c, r)
		}
	}
}

// stall leaves a connection open until the other end closes it.
func stall(_ net.Conn, r *bufio.Reader) { _, _ = r.ReadByte() }

const (
	moved    = "HTTP/1.1 302 Found\r\nLocation: /a\r\nContent-Length: 0\r\n\r\n"
	timedOut = "context deadline exceeded" // and the rest of the text, which net/http chooses at random
)

// The timeout applies to a run with all its redirects.
func TestHTTP_RedirectsShareOneTimeout(t *testing.T) {
	t.Parallel()
	const most = 700 * time.Millisecond
	play(t, func(s *played) {
		s.want(prober.Failed, timedOut, time.Second)
	}, after(most, moved), after(most, okay))
}

// A redirect is followed when its headers have arrived, unless its body is so small that
// net/http reads it.
func TestHTTP_RedirectsWithSlowBodies(t *testing.T) {
	t.Parallel()
	const large, small = "HTTP/1.1 302 Found\r\nLocation: /a\r\nContent-Length: 5000\r\n\r\n", "HTTP/1.1 302 Found\r\nLocation: /a\r\nContent-Length: 9\r\n\r\nno"
	t.Run("large", func(t *testing.T) {
		t.Parallel()
		play(t, func(s *played) {
			s.want(prober.Succeeded, "ok", 0)
			s.want(prober.Succeeded, "ok", 0)
		}, then(after(0, large), stall), then(after(0, okay), stall), then(after(0, large), stall), then(after(0, okay), stall))
	})
	t.Run("small", func(t *testing.T) {
		t.Parallel()
		play(t, func(s *played) {
			s.want(prober.Failed, timedOut, time.Second)
		}, then(after(0, small), stall))
	})
	t.Run("removed meanwhile", func(t *testing.T) {
		t.Parallel()
		play(t, func(s *played) {
			began := time.Now()
			time.AfterFunc(300*time.Millisecond, func() { s.RemovePod("1234") })
			_, err := s.Probe(s.t.Context(), key("app", prober.Readiness))
			require.ErrorIs(t, err, prober.ErrNotRunnable)
			require.Equal(t, 300*time.Millisecond, time.Since(began))
		}, then(after(0, small), stall))
	})
}

// A malformed line makes a run fail at once, whether or not more data follows.
func TestHTTP_MalformedLineFailsAtOnce(t *testing.T) {
	t.Parallel()
	play(t, func(s *played) {
		s.want(prober.Failed, `malformed HTTP status code "2x0"`, 0)
	}, then(after(0, "HTTP/1.1 2x0 OK\r\n"), stall))
}
