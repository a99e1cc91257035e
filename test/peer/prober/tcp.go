package prober

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A dial is a TCP probe of a server on loopback, or of a port without a server.
type dial struct {
	Host   string
	Port   string // "open", "closed", or a port in the spec
	Named  bool   // the port is that of the container with this name
	String bool   // the number is a string
	Says   bool   // the server speaks first
	Hangup bool   // the server closes at once
	IP     string
	Runs   int
}

func drawDial(d *judge.Draw) dial {
	return dial{
		Port: judge.Pick(d, "open", "open", "open", "closed", "0", "70000", "none", "-1"), Named: d.Chance(30), String: d.Chance(20),
		Host: judge.Pick(d, "", "", "127.0.0.1", "127.0.0.2", "localhost", "bad host", "::1", "[::1]", "127.0.0.1:1"),
		Says: d.Chance(30), Hangup: d.Chance(30), IP: judge.Pick(d, "127.0.0.1", "127.0.0.1", "127.0.0.3", "", "::1"),
		Runs: d.Between(1, 2),
	}
}

// pod returns the pod for a server on a port.
func (w dial) pod(port int) *corev1.Pod {
	number := w.Port
	if number == "open" || number == "closed" {
		number = strconv.Itoa(port)
	}
	n, err := strconv.Atoi(number)
	spec := intstr.FromInt32(int32(n))
	if err != nil || w.String {
		spec = intstr.FromString(number)
	}
	var ports []corev1.ContainerPort
	if w.Named {
		spec = intstr.FromString("web")
		ports = []corev1.ContainerPort{{Name: "other", ContainerPort: 1}, {Name: "web", ContainerPort: int32(n)}, {Name: "web", ContainerPort: 2}}
	}
	return onePod(&corev1.Probe{
		ProbeHandler:   corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: w.Host, Port: spec}},
		TimeoutSeconds: 10, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
	}, ports)
}

// listen starts the server of a world and returns its port.
func (w dial) listen(t *testing.T) (port int, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port = l.Addr().(*net.TCPAddr).Port
	if w.Port == "closed" {
		require.NoError(t, l.Close())
		return port, func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if w.Says {
				_, _ = c.Write([]byte("220 ready\r\n")) // the client may have gone
			}
			if !w.Hangup {
				_, _ = c.Read(make([]byte, 1)) // it returns when the client has gone
			}
			_ = c.Close()
		}
	}()
	return port, func() { _ = l.Close(); <-done }
}

// playDial plays a world with either side.
func playDial(side func(*testing.T, *corev1.Pod, string) (run func() (result, text string), end func())) func(*testing.T, dial) []judge.Facts {
	return func(t *testing.T, w dial) (all []judge.Facts) {
		t.Helper()
		port, end := w.listen(t)
		defer end()
		run, closes := side(t, w.pod(port), w.IP)
		defer closes()
		for range w.Runs {
			result, text := run()
			all = append(all, found(result, strings.ReplaceAll(text, strconv.Itoa(port), "PORT"), nil))
		}
		return all
	}
}

func dialKubelet(_ *testing.T, pod *corev1.Pod, ip string) (run func() (result, text string), end func()) {
	p := newKubeletProber(nil)
	return func() (string, string) { return p.run(pod, ip) }, func() {}
}

func dialOurs(t *testing.T, pod *corev1.Pod, ip string) (run func() (result, text string), end func()) {
	t.Helper()
	p := newOurProber(t, prober.Config{HistoryBytes: 40000, Clock: ahead()}, pod, ip)
	return p.run, p.close
}

// ahead returns a clock that is one hour ahead, so that a container that has just started has
// been running for long.
func ahead() clock.Clock { return testingclock.NewFakeClock(time.Now().Add(time.Hour)) }
