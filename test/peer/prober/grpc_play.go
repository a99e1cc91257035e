package prober

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kubeletgrpc "k8s.io/kubernetes/pkg/probe/grpc"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/prober/grpcprobe"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// playHealth plays a world with either side.
func playHealth(side func(*testing.T, *healthServer) (run func() (result, text string), end func())) func(*testing.T, health) []judge.Facts {
	return func(t *testing.T, w health) (all []judge.Facts) {
		t.Helper()
		s := newHealthServer(t, w)
		defer s.close()
		run, end := side(t, s)
		defer end()
		for i := range w.Runs {
			s.begin(i)
			result, text := run()
			text = strings.ReplaceAll(text, strconv.Itoa(s.port()), "PORT")
			all = append(all, found(result, text, s.seen()))
		}
		return all
	}
}

func healthKubelet(_ *testing.T, s *healthServer) (run func() (result, text string), end func()) {
	if pod := s.pod(); s.w.Meets == serving {
		p := newKubeletProber(nil)
		return func() (string, string) { return p.run(pod, "127.0.0.1") }, func() {}
	}
	return func() (string, string) {
		result, text, err := kubeletgrpc.New().Probe("127.0.0.1", s.w.Service, s.port(), impatience)
		if err != nil {
			return "unknown", err.Error()
		}
		return string(result), text
	}, func() {}
}

func healthOurs(t *testing.T, s *healthServer) (run func() (result, text string), end func()) {
	t.Helper()
	c, err := grpcprobe.New(grpcprobe.Config{UserAgent: agent()})
	require.NoError(t, err)
	if s.w.Meets == serving {
		p := newOurProber(t, prober.Config{HistoryBytes: 40000, Clock: ahead(), GRPC: c}, s.pod(), "127.0.0.1")
		return p.run, func() { p.close(); _ = c.Close() }
	}
	return func() (string, string) {
		ctx, cancel := context.WithTimeout(context.Background(), impatience)
		defer cancel()
		outcome, text := c.Check(ctx, prober.GRPCRequest{Address: fmt.Sprintf("127.0.0.1:%d", s.port()), Service: s.w.Service, Timeout: impatience})
		return outcome.String(), text
	}, func() { _ = c.Close() }
}

// impatience is the timeout of a check without a response. The test calls the clients
// directly, because a probe's timeout is in whole seconds.
const impatience = 60 * time.Millisecond

// pod returns a pod with a probe of the server.
func (s *healthServer) pod() *corev1.Pod {
	action := &corev1.GRPCAction{Port: int32(s.port())}
	if s.w.Service != "" {
		action.Service = &s.w.Service
	}
	return onePod(&corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: action}, TimeoutSeconds: 20, PeriodSeconds: 30, SuccessThreshold: 1, FailureThreshold: 3}, nil)
}

const inGRPCDoc = "prober/grpcprobe/doc.go"

// healthRules are the rules of prober/grpc.
func healthRules() []judge.Rule[health] {
	return []judge.Rule[health]{
		{
			Name: "refused gRPC connection", Class: judge.Deliberate, Doc: inGRPCDoc,
			Sentence: "If the server refuses the connection, the probe fails at once here, and the failure names this cause; in the kubelet the probe takes the whole timeout and fails with a timeout.",
			Explains: func(s judge.Scene[health]) bool {
				return s.World.Meets != serving && s.World.Meets != silent && s.Fact == "text" &&
					s.Kubelet == `timeout: failed to connect service "127.0.0.1:PORT" within 60ms: context deadline exceeded` &&
					strings.HasPrefix(s.Ours, `error: failed to connect service at "127.0.0.1:PORT": `)
			},
		},
		{
			Name: "messages above 16 KiB", Class: judge.Deliberate, Doc: inGRPCDoc,
			Sentence: "The kubelet reads messages of up to 4 MiB; here the probe fails when the server announces a message above 16 KiB.",
			Explains: func(s judge.Scene[health]) bool {
				const most = 16 << 10
				const prefix = 5
				data := body(s.World.Runs[s.Step])
				for s.Fact == "text" && len(data) >= prefix {
					size := binary.BigEndian.Uint32(data[1:])
					if size > most {
						return strings.HasSuffix(s.Ours, fmt.Sprintf("code = ResourceExhausted desc = grpc: received message larger than max (%d vs. %d)", size, most))
					}
					data = data[min(len(data), prefix+int(size)):]
				}
				return false
			},
		},
	}
}

// body returns what an answer sends as its body.
func body(run []frame) (data []byte) {
	for _, f := range run {
		if f.Kind == "data" {
			data = append(data, f.Data...)
		}
	}
	return data
}
