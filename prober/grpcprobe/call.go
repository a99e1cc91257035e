package grpcprobe

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"

	"golang.org/x/net/http2"
)

// call is what is known of a call.
type call struct {
	id     uint32
	window int64 // what may still be sent

	// begun says that the head of an answer has come, encoding is how its messages
	// may be compressed, body is what of them has come.
	begun    bool
	encoding string
	body     []byte

	// ended says that no more will come or matter, clean that the server ended the
	// stream in good order. failure is what went wrong if that is known without
	// reading the body.
	ended, clean bool
	failure      *rpcError
}

// end ends the call.
func (c *call) end(failure *rpcError) {
	if !c.ended {
		c.ended, c.failure = true, failure
	}
}

// reset ends a call that the server has cut short.
func (c *call) reset(why http2.ErrCode) {
	failure := failf(ofReset(why), "stream terminated by RST_STREAM with error code: %v", why)
	failure.unheard = why == http2.ErrCodeRefusedStream
	c.end(failure)
}

// header is what matters in a block of header fields.
type header struct {
	http, contentType  string
	encoding           string
	status, message    string
	hasType, hasStatus bool
}

func readHeader(f *http2.MetaHeadersFrame) (h header) {
	for i := range f.Fields {
		switch field := &f.Fields[i]; field.Name {
		case ":status":
			h.http = field.Value
		case "content-type":
			h.contentType, h.hasType = field.Value, true
		case "grpc-encoding":
			h.encoding = field.Value
		case "grpc-status":
			h.status, h.hasStatus = field.Value, true
		case "grpc-message":
			h.message = field.Value
		}
	}
	return h
}

// head takes the headers or trailers of an answer, or both in one.
func (c *call) head(f *http2.MetaHeadersFrame) {
	switch {
	case c.ended:
		return
	case c.begun && !f.StreamEnded():
		c.end(failf(internal, "a HEADERS frame cannot appear in the middle of a stream"))
		return
	case f.Truncated:
		c.end(failf(internal, "peer header list size exceeded limit"))
		return
	}
	h := readHeader(f)
	status, err := h.code()
	if err != nil {
		c.begun = true
		c.end(failf(unknown, "transport: malformed grpc-status: %v", err))
		return
	}
	if !c.begun && !isGRPC(h.contentType) {
		c.foreign(f, h)
		return
	}
	if !c.begun {
		c.begun, c.encoding = true, h.encoding
	}
	if f.StreamEnded() {
		c.clean = true
		if status == ok {
			c.end(nil)
			return
		}
		c.end(&rpcError{code: status, message: decodeMessage(h.message)})
	}
}

// code returns the status of a call, which is unknown if it is not there.
func (h header) code() (code, error) {
	if !h.hasStatus {
		return unknown, nil
	}
	n, err := strconv.ParseInt(h.status, 10, 32)
	return code(n), err
}

// foreign takes an answer that is not gRPC's.
func (c *call) foreign(f *http2.MetaHeadersFrame, h header) {
	status, err := strconv.Atoi(h.http)
	why := "malformed header: missing HTTP content-type"
	if h.hasType {
		why = fmt.Sprintf("transport: received unexpected content-type %q", h.contentType)
	}
	var failure *rpcError
	switch informational := status >= 100 && status < 200; {
	case h.http == "":
		failure = failf(internal, "malformed header: missing HTTP status; %s", why)
	case err != nil:
		failure = failf(internal, "transport: malformed http-status: %v", err)
	case informational && !f.StreamEnded():
		return // the answer is still to come
	case informational:
		failure = failf(internal, "protocol error: informational header with status code %d must not have END_STREAM set", status)
	default:
		failure = failf(ofHTTP(status), "unexpected HTTP status code received from server: %d (%s); %s", status, http.StatusText(status), why)
	}
	c.begun, c.clean = true, f.StreamEnded()
	c.end(failure)
}

// data takes a part of the body, and ends the call when it is too much.
func (c *call) data(f *http2.DataFrame) {
	if c.ended {
		return
	}
	c.body = append(c.body, f.Data()...)
	_, size, whole := c.size()
	switch {
	case whole && size > maxMessage:
		c.end(failf(resourceExhausted, "grpc: received message larger than max (%d vs. %d)", size, maxMessage))
	case whole && len(c.body) >= prefix+int(size)+prefix:
		c.end(failf(internal, "cardinality violation: expected <EOF> for non server-streaming RPCs, but received another message"))
	case f.StreamEnded():
		c.clean = true
		c.end(failf(internal, "server closed the stream without sending trailers"))
	}
}

// size reads the prefix of the message, if all of it is there.
func (c *call) size() (format byte, size uint32, whole bool) {
	if len(c.body) < prefix {
		return 0, 0, false
	}
	return c.body[0], binary.BigEndian.Uint32(c.body[1:]), true
}

// answer says how a call has ended. What is wrong with the message goes before what
// the trailers say, as in gRPC's Go packages.
func (c *call) answer() (health, error) {
	format, size, whole := c.size()
	cut := whole && len(c.body)-prefix < int(min(size, maxMessage+1))
	switch {
	case (!whole || cut && !c.clean) && c.failure != nil:
		return 0, c.failure
	case !whole:
		return 0, failf(internal, "cardinality violation: received no response message from non-server-streaming RPC")
	case cut:
		return 0, failf(internal, "unexpected EOF")
	case format == 1 && (c.encoding == "" || c.encoding == "identity"):
		return 0, failf(internal, "grpc: compressed flag set with identity or empty encoding")
	case format == 1:
		return 0, failf(internal, "grpc: Decompressor is not installed for grpc-encoding %q", c.encoding)
	case format != 0:
		return 0, failf(internal, "grpc: received unexpected payload format %d", format)
	}
	status, err := parseResponse(c.body[prefix:][:size]) // a few bytes more are nothing, as in those
	if err != nil {
		return 0, failf(internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	if c.failure != nil {
		return 0, c.failure
	}
	return status, nil
}
