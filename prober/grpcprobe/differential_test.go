package grpcprobe_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/prober/grpcprobe"
)

// ask asks by the package.
func ask(tb testing.TB, k *grpcprobe.Checker, r prober.GRPCRequest, timeout time.Duration) (prober.Outcome, string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), timeout)
	defer cancel()
	r.Timeout = timeout
	return k.Check(ctx, r)
}

// same requires that a server is to the package what it is to gRPC's own client.
func same(t *testing.T, address, service string, timeout time.Duration) string {
	t.Helper()
	outcome, output := kubeletSays(t.Context(), clientOf(t, address), service, timeout)
	output, _, _ = strings.Cut(output, "\ndata: ") // of an answer that is no gRPC's; only later versions quote it
	k := checker(t, grpcprobe.Config{})
	for _, fresh := range []bool{false, false, true} {
		got, text := ask(t, k, prober.GRPCRequest{Address: address, Service: service, Fresh: fresh}, timeout)
		require.Equal(t, output, text)
		require.Equal(t, outcome, got)
	}
	return output
}

// asked is a server of gRPC's that does what the service says that it is asked for.
type asked struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (asked) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	switch number, err := strconv.Atoi(r.GetService()); {
	case r.GetService() == "slow":
		<-ctx.Done()
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("no number: %s", r.GetService())
	case number >= 100: // serving and the like
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_ServingStatus(number - 100)}, nil
	default:
		return nil, grpcstatus.Error(codes.Code(number), "wörter\n 100% %41 "+r.GetService())
	}
}

// Whatever a server of gRPC's says.
func TestStatusesAreAsByGRPC(t *testing.T) {
	t.Parallel()
	address := serve(t, func(s *grpc.Server) { grpc_health_v1.RegisterHealthServer(s, asked{}) })
	for service, want := range map[string]string{
		"100": `service unhealthy (responded with "UNKNOWN")`, "101": "service healthy",
		"102": `service unhealthy (responded with "NOT_SERVING")`, "103": `service unhealthy (responded with "SERVICE_UNKNOWN")`,
		"104": `service unhealthy (responded with "4")`,
		"5":   "code = NotFound desc = wörter", "12": "does not implement the grpc health protocol (grpc.health.v1.Health): wörter",
		"14": "code = Unavailable", "4": "timeout: health rpc did not complete within 5s", "1": "code = Canceled",
		"17": "code = Code(17)", "words": "code = Unknown desc = no number: words", "bad \xff": "string field contains invalid UTF-8",
	} {
		t.Run(strconv.Quote(service), func(t *testing.T) {
			t.Parallel()
			require.Contains(t, same(t, address, service, 5*time.Second), want)
		})
	}
	for code := 1; code <= 18; code++ {
		same(t, address, strconv.Itoa(code), 5*time.Second)
	}
	require.Equal(t, "timeout: health rpc did not complete within 1s", same(t, address, "slow", time.Second))
	none := serve(t, func(*grpc.Server) {})
	require.Contains(t, same(t, none, "", 5*time.Second), "error: this server does not implement the grpc health protocol")
}

// answers are what servers say that are not gRPC's, or not well.
func answers() map[string]func(w *wire, id uint32) {
	serving := message(0, 8, 1)
	all := map[string]func(w *wire, id uint32){
		"well": (*wire).well,
		"in pieces": func(w *wire, id uint32) {
			w.begin(id)
			w.data(id, serving[:3])
			w.data(id, serving[3:6])
			w.data(id, nil)
			w.data(id, serving[6:])
			w.end(id)
		},
		"padded": func(w *wire, id uint32) {
			w.begin(id)
			_ = w.WriteDataPadded(id, false, serving, make([]byte, 200))
			w.end(id)
		},
		"empty message":          func(w *wire, id uint32) { w.begin(id); w.data(id, message(0)); w.end(id) },
		"fields of its own":      func(w *wire, id uint32) { w.begin(id); w.data(id, message(0, 8, 2, 18, 1, 'x', 8, 1)); w.end(id) },
		"status of another type": func(w *wire, id uint32) { w.begin(id); w.data(id, message(0, 10, 1, 1)); w.end(id) },
		"negative status": func(w *wire, id uint32) {
			w.begin(id)
			w.data(id, message(0, 8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1))
			w.end(id)
		},
		"no wire format":        func(w *wire, id uint32) { w.begin(id); w.data(id, message(0, 8)); w.end(id) },
		"no wire format, no OK": func(w *wire, id uint32) { w.begin(id); w.data(id, message(0, 8)); w.end(id, "grpc-status", "5") },
		"cut short":             func(w *wire, id uint32) { w.begin(id); w.data(id, serving[:6]); w.end(id) },
		"cut very short":        func(w *wire, id uint32) { w.begin(id); w.data(id, serving[:2]); w.end(id) },
		"two messages":          func(w *wire, id uint32) { w.begin(id); w.data(id, serving); w.data(id, serving); w.end(id) },
		"two messages, the first of which is bad": func(w *wire, id uint32) {
			w.begin(id)
			w.data(id, message(2, 8, 1))
			w.data(id, serving)
			w.end(id)
		},
		"two messages, the second of which is bad": func(w *wire, id uint32) {
			w.begin(id)
			w.data(id, append(slices.Clip(serving), message(1, 8, 1)...))
			w.end(id)
		},
		"two messages, the second of which is cut short": func(w *wire, id uint32) {
			w.begin(id)
			w.data(id, serving)
			w.data(id, serving[:6])
			w.end(id, "grpc-status", "9")
		},
		"a bad message before the end of the connection": func(w *wire, id uint32) {
			w.begin(id)
			w.data(id, message(0, 8))
			_ = w.Close()
		},
		"a bad message and no end": func(w *wire, id uint32) { w.begin(id); w.data(id, message(0, 8)) },
		"no message":               func(w *wire, id uint32) { w.begin(id); w.end(id) },
		"message and no OK": func(w *wire, id uint32) {
			w.begin(id)
			w.data(id, serving)
			w.end(id, "grpc-status", "9", "grpc-message", "but")
		},
		"no message and no OK":  func(w *wire, id uint32) { w.begin(id); w.end(id, "grpc-status", "9", "grpc-message", "so") },
		"no trailers":           func(w *wire, id uint32) { w.begin(id); _ = w.WriteData(id, true, serving) },
		"no status":             func(w *wire, id uint32) { w.begin(id); w.data(id, serving); w.end(id, "a", "b") },
		"status of no number":   func(w *wire, id uint32) { w.begin(id); w.data(id, serving); w.end(id, "grpc-status", "x") },
		"status below zero":     func(w *wire, id uint32) { w.begin(id); w.data(id, serving); w.end(id, "grpc-status", "-1") },
		"headers in the middle": func(w *wire, id uint32) { w.begin(id); w.begin(id); w.data(id, serving); w.end(id) },
		"compressed": func(w *wire, id uint32) {
			w.begin(id, "grpc-encoding", "gzip")
			w.data(id, message(1, 8, 1))
			w.end(id)
		},
		"compressed not at all": func(w *wire, id uint32) { w.begin(id, "grpc-encoding", "gzip"); w.data(id, serving); w.end(id) },
		"compressed by identity": func(w *wire, id uint32) {
			w.begin(id, "grpc-encoding", "identity")
			w.data(id, message(1, 8, 1))
			w.end(id)
		},
		"compressed by nobody": func(w *wire, id uint32) { w.begin(id); w.data(id, message(1, 8, 1)); w.end(id) },
		"of no known format":   func(w *wire, id uint32) { w.begin(id); w.data(id, message(2, 8, 1)); w.end(id) },
		"trailers only":        func(w *wire, id uint32) { w.begin(id); w.end(id, "grpc-status", "3") },
		"trailers only, alone": func(w *wire, id uint32) {
			w.head(id, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "5", "grpc-message", "unknown%20service%0A%zz%4")
		},
		"trailers only, and OK": func(w *wire, id uint32) {
			w.head(id, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "0")
		},
		"an early hint":            func(w *wire, id uint32) { w.head(id, false, ":status", "103", "link", "a"); w.well(id) },
		"an early hint, and last":  func(w *wire, id uint32) { w.head(id, true, ":status", "103", "link", "a") },
		"no content type":          func(w *wire, id uint32) { w.head(id, true, ":status", "200") },
		"no status, no HTTP":       func(w *wire, id uint32) { w.head(id, true, "content-type", "text/plain") },
		"HTTP status of no number": func(w *wire, id uint32) { w.head(id, true, ":status", "abc") },
		"500 by gRPC": func(w *wire, id uint32) {
			w.head(id, false, ":status", "500", "content-type", "application/grpc")
			w.data(id, serving)
			w.end(id)
		},
		"reset after the head":    func(w *wire, id uint32) { w.begin(id); _ = w.WriteRSTStream(id, http2.ErrCodeInternal) },
		"reset after the message": func(w *wire, id uint32) { w.begin(id); w.data(id, serving); _ = w.WriteRSTStream(id, http2.ErrCodeNo) },
		"reset after the end":     func(w *wire, id uint32) { w.well(id); _ = w.WriteRSTStream(id, http2.ErrCodeNo) },
		"in the midst of things": func(w *wire, id uint32) {
			_ = w.WritePing(false, [8]byte{1})
			_ = w.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100})
			w.begin(id)
			_ = w.WriteWindowUpdate(0, 1000)
			_ = w.WriteWindowUpdate(id, 1000)
			_ = w.WriteRawFrame(0x42, 7, 0, []byte("what is this"))
			w.data(id, serving)
			_ = w.WritePriority(id, http2.PriorityParam{Weight: 3})
			w.end(id)
		},
	}
	for _, status := range []int{301, 400, 401, 403, 404, 418, 429, 500, 502, 503, 504, 799} {
		all["HTTP "+strconv.Itoa(status)] = func(w *wire, id uint32) {
			w.head(id, false, ":status", strconv.Itoa(status), "content-type", `text/html; x="y"`)
			_ = w.WriteData(id, true, []byte("<html>"))
		}
	}
	for _, contentType := range []string{"application/grpc+proto", "application/grpc;x", "application/grpcx", "application/grp", ""} {
		all["content type "+contentType] = func(w *wire, id uint32) {
			w.head(id, false, ":status", "200", "content-type", contentType)
			w.data(id, serving)
			w.end(id)
		}
	}
	for code := range http2.ErrCode(16) {
		all["reset by "+code.String()] = func(w *wire, id uint32) { _ = w.WriteRSTStream(id, code) }
	}
	return all
}

func TestAnswersAreAsByGRPC(t *testing.T) {
	t.Parallel()
	for name, answer := range answers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			same(t, scripted(t, answer), "a", 5*time.Second)
		})
	}
}
