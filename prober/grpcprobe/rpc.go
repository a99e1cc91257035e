package grpcprobe

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// code is the status code of a call.
type code uint32

// The codes that mean something here. The others only have a name.
const (
	ok                code = 0
	canceled          code = 1
	unknown           code = 2
	deadlineExceeded  code = 4
	permissionDenied  code = 7
	resourceExhausted code = 8
	unimplemented     code = 12
	internal          code = 13
	unavailable       code = 14
	unauthenticated   code = 16
)

// String returns the name that gRPC's Go packages print.
func (c code) String() string {
	names := [...]string{
		"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
		"PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented",
		"Internal", "Unavailable", "DataLoss", "Unauthenticated",
	}
	if int64(c) < int64(len(names)) {
		return names[c]
	}
	return "Code(" + strconv.FormatInt(int64(c), 10) + ")"
}

// rpcError is how a call failed.
type rpcError struct {
	code    code
	message string
	// unheard says that the server has not looked at the request.
	unheard bool
}

// Error returns the text that gRPC's Go packages print.
func (e *rpcError) Error() string {
	return fmt.Sprintf("rpc error: code = %s desc = %s", e.code, e.message)
}

func failf(c code, format string, args ...any) *rpcError {
	return &rpcError{code: c, message: fmt.Sprintf(format, args...)}
}

// ofHTTP returns the code for the status of a response that is not gRPC's, by
// gRPC's "HTTP to gRPC Status Code Mapping".
func ofHTTP(status int) code {
	switch status {
	case http.StatusBadRequest:
		return internal
	case http.StatusUnauthorized:
		return unauthenticated
	case http.StatusForbidden:
		return permissionDenied
	case http.StatusNotFound:
		return unimplemented
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return unavailable
	default:
		return unknown
	}
}

// ofReset returns the code for a stream that was reset, by gRPC's "Errors".
func ofReset(c http2.ErrCode) code {
	switch c {
	case http2.ErrCodeRefusedStream:
		return unavailable
	case http2.ErrCodeCancel:
		return canceled
	case http2.ErrCodeFlowControl, http2.ErrCodeEnhanceYourCalm:
		return resourceExhausted
	case http2.ErrCodeInadequateSecurity:
		return permissionDenied
	case http2.ErrCodeNo, http2.ErrCodeProtocol, http2.ErrCodeInternal, http2.ErrCodeSettingsTimeout,
		http2.ErrCodeStreamClosed, http2.ErrCodeFrameSize, http2.ErrCodeCompression, http2.ErrCodeConnect,
		http2.ErrCodeHTTP11Required:
		return internal
	default:
		return unknown
	}
}

// encodeTimeout returns the value of a grpc-timeout header: at most eight digits, in
// the finest unit that they suffice for, rounded up.
func encodeTimeout(d time.Duration) string {
	const most = 99_999_999
	units := [...]struct {
		unit time.Duration
		name byte
	}{{time.Nanosecond, 'n'}, {time.Microsecond, 'u'}, {time.Millisecond, 'm'}, {time.Second, 'S'}, {time.Minute, 'M'}, {time.Hour, 'H'}}
	d = max(d, 0)
	var text [12]byte
	for _, u := range units {
		n := d / u.unit
		if d%u.unit > 0 {
			n++
		}
		if n <= most {
			return string(append(strconv.AppendInt(text[:0], int64(n), 10), u.name))
		}
	}
	return "" // no duration is that long
}

// decodeMessage undoes the percent encoding of a grpc-message. What is not encoded
// well stays as it is, as the protocol demands.
func decodeMessage(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// isGRPC says whether a content type is gRPC's.
func isGRPC(contentType string) bool {
	rest, found := strings.CutPrefix(contentType, "application/grpc")
	return found && (rest == "" || rest[0] == '+' || rest[0] == ';')
}
