package grpcprobe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
)

func TestCodesAreNamedAsByGRPC(t *testing.T) {
	t.Parallel()
	for _, n := range []uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 99, 1<<32 - 1} {
		require.Equal(t, codes.Code(n).String(), code(n).String())
	}
	for n := range health(6) {
		require.Equal(t, grpc_health_v1.HealthCheckResponse_ServingStatus(n-1).String(), (n - 1).String())
	}
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-1: "0n", 0: "0n", 1: "1n", 99_999_999: "99999999n", 100_000_000: "100000u", 100_000_001: "100001u",
		time.Second: "1000000u", 100*time.Second - 1: "100000m", 1<<63 - 1: "2562048H",
		28 * time.Hour: "100800S", 1e8 * time.Second: "1666667M",
	} {
		require.Equal(t, want, encodeTimeout(d), d)
	}
}

func TestMessagesOfStatusesAreDecoded(t *testing.T) {
	t.Parallel()
	for encoded, want := range map[string]string{
		"": "", "plain": "plain", "w%C3%B6rter%0a": "wörter\n", "100%": "100%", "%4": "%4", "%zz%41": "%zzA", "%+1": "%+1", "%%41": "%A",
	} {
		require.Equal(t, want, decodeMessage(encoded))
	}
}

// What is written and read is what protobuf would write and read.
func FuzzMessages(f *testing.F) {
	for _, b := range [][]byte{nil, {8, 1}, {8, 2, 8, 1}, {10, 1, 1}, {8}, {8, 0x80}, {11, 8, 1, 12}, {12}, {0}, {7}, {8, 255, 255, 255, 255, 15}} {
		f.Add("", b)
	}
	f.Add("liveness", []byte{8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Add("bad \xff", []byte{8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2})
	f.Fuzz(func(t *testing.T, service string, answer []byte) {
		want, wantErr := proto.Marshal(&grpc_health_v1.HealthCheckRequest{Service: service})
		got, err := newRequest(service)
		require.Equal(t, wantErr == nil, err == nil)
		if err == nil {
			require.Equal(t, want, append([]byte{}, got[prefix:]...))
		}
		response := &grpc_health_v1.HealthCheckResponse{}
		wantErr = proto.Unmarshal(answer, response)
		h, err := parseResponse(answer)
		require.Equal(t, wantErr == nil, err == nil, "%v instead of %v", err, wantErr)
		if err == nil {
			require.EqualValues(t, response.GetStatus(), h)
			require.Equal(t, response.GetStatus().String(), h.String())
		}
	})
}
