package prober

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
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
	return func() (string, string) {
		result, text, err := kubeletgrpc.New().Probe("127.0.0.1", s.w.Service, s.port(), s.w.patience())
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
	return func() (string, string) {
		ctx, cancel := context.WithTimeout(context.Background(), s.w.patience())
		defer cancel()
		outcome, text := c.Check(ctx, prober.GRPCRequest{Address: fmt.Sprintf("127.0.0.1:%d", s.port()), Service: s.w.Service, Timeout: s.w.patience()})
		return outcome.String(), text
	}, func() { _ = c.Close() }
}

const inGRPCDoc = "prober/grpcprobe/doc.go"

// healthRules are the rules of prober/grpc.
func healthRules() []judge.Rule[health] {
	return []judge.Rule[health]{
		{
			Name: "user agent", Class: judge.Deliberate, Doc: inGRPCDoc,
			Sentence: "The user agent is the one of Config alone, without that of gRPC.",
			Explains: func(s judge.Scene[health]) bool {
				return strings.HasPrefix(s.Fact, "request ") && s.Ours == strings.Replace(s.Kubelet, " grpc-go/"+grpc.Version, "", 1)
			},
		},
		{
			Name: "no connection", Class: judge.Deliberate, Doc: inGRPCDoc,
			Sentence: "A refused connection is a failure that says so within a millisecond; the kubelet's takes the whole timeout and says that there was one.",
			Explains: func(s judge.Scene[health]) bool {
				return s.World.Meets != serving && s.World.Meets != silent && s.Fact == "text" &&
					s.Kubelet == `timeout: failed to connect service "127.0.0.1:PORT" within 60ms: context deadline exceeded` &&
					strings.HasPrefix(s.Ours, `error: failed to connect service at "127.0.0.1:PORT": `)
			},
		},
		{
			Name: "two messages, the first of which is bad", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "Of two messages, gRPC's own client says what is wrong with the first; ours says that there are two.",
			Explains: func(s judge.Scene[health]) bool {
				const two = "cardinality violation: expected <EOF> for non server-streaming RPCs, but received another message"
				return s.Fact == "text" && strings.HasSuffix(s.Ours, "desc = "+two) && strings.Contains(s.Kubelet, "code = Internal desc = ") &&
					!strings.Contains(s.Kubelet, "cardinality")
			},
		},
		{
			Name: "a bad message before the end of the connection", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "If the connection ends after a message that is bad, gRPC's own client says what is wrong with the message; ours says that the connection has ended.",
			Explains: func(s judge.Scene[health]) bool {
				run := s.World.Runs[s.Step]
				return s.Fact == "text" && run[len(run)-1].Kind == "close" && strings.HasSuffix(s.Ours, "code = Unavailable desc = error reading from server: EOF") &&
					strings.HasSuffix(s.Kubelet, "code = Internal desc = "+badFormat(run))
			},
		},
	}
}

// badFormat returns what is wrong with the format of a message, or nothing.
func badFormat(run []frame) string {
	encoding := ""
	for _, f := range run {
		for _, field := range f.Fields {
			if field[0] == "grpc-encoding" && encoding == "" {
				encoding = field[1]
			}
		}
		if f.Kind != "data" || len(f.Data) == 0 {
			continue
		}
		switch format := f.Data[0]; {
		case format == 0:
			return "the message can be read"
		case format != 1:
			return fmt.Sprintf("grpc: received unexpected payload format %d", format)
		case encoding == "" || encoding == "identity":
			return "grpc: compressed flag set with identity or empty encoding"
		default:
			return fmt.Sprintf("grpc: Decompressor is not installed for grpc-encoding %q", encoding)
		}
	}
	return "there is no message"
}
