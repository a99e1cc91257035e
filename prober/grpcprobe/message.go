package grpcprobe

import (
	"encoding/binary"
	"errors"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// prefix is what stands before each message: whether it is compressed, in one byte,
// and its size, in four.
const prefix = 5

// maxMessage is the size of the largest answer that is read, which is two bytes long
// unless the server adds something of its own. With what belongs to it, it fits into
// the window that a stream begins with.
const maxMessage = 16 << 10

// number is that of the only field of either message: the service in a
// HealthCheckRequest, the status in a HealthCheckResponse.
const number protowire.Number = 1

// newRequest returns a HealthCheckRequest, with its prefix.
func newRequest(service string) ([]byte, error) {
	if !utf8.ValidString(service) {
		return nil, failf(internal, "grpc: error while marshaling: string field contains invalid UTF-8")
	}
	b := make([]byte, prefix, prefix+2*binary.MaxVarintLen32+len(service))
	if service != "" {
		b = protowire.AppendTag(b, number, protowire.BytesType)
		b = protowire.AppendString(b, service)
	}
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-prefix))
	return b, nil
}

// health is the status in an answer.
type health int32

// serving is the one that is good.
const serving health = 1

// String returns the name in health.proto.
func (h health) String() string {
	switch h {
	case 0:
		return "UNKNOWN"
	case serving:
		return "SERVING"
	case 2:
		return "NOT_SERVING"
	case 3:
		return "SERVICE_UNKNOWN"
	default:
		return strconv.Itoa(int(h))
	}
}

// parseResponse reads a HealthCheckResponse. As in all of protobuf, what is not known
// is passed over, and the last of two counts.
func parseResponse(b []byte) (h health, err error) {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 || !field.IsValid() {
			return 0, errWireFormat
		}
		b = b[n:]
		var value uint64
		if field == number && kind == protowire.VarintType {
			value, n = protowire.ConsumeVarint(b)
			h = health(value)
		} else {
			n = protowire.ConsumeFieldValue(field, kind, b)
		}
		if n < 0 {
			return 0, errWireFormat
		}
		b = b[n:]
	}
	return h, nil
}

var errWireFormat = errors.New("proto: cannot parse invalid wire-format data")
