package grpcprobe

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"golang.org/x/net/http2"
)

// call is what is known of a call.
type call struct {
	id     uint32
	window int64 // what may still be sent
	frames int   // how many have been read since it began

	// begun says that the head of an answer has come, encoding is how its messages
	// may be compressed, messages counts those that are whole, health is what the
	// first says, body is what of the next has come.
	begun    bool
	encoding string
	messages int
	health   health
	body     []byte

	// ended says that no more will come or matter, clean that the server ended the
	// stream in good order. failure is what went wrong.
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

// data takes a part of the body. A message that is bad ends the call, and so does a
// second one: nothing after it matters.
func (c *call) data(f *http2.DataFrame) {
	if c.ended {
		return
	}
	c.body = append(c.body, f.Data()...)
	for !c.ended && len(c.body) >= prefix {
		size := binary.BigEndian.Uint32(c.body[1:])
		if size > maxMessage {
			c.end(failf(resourceExhausted, "grpc: received message larger than max (%d vs. %d)", size, maxMessage))
			return
		}
		end := prefix + int(size)
		if len(c.body) < end {
			break
		}
		c.message(c.body[0], c.body[prefix:end])
		c.body = slices.Delete(c.body, 0, end)
	}
	if f.StreamEnded() && !c.ended {
		c.clean = true
		c.end(failf(internal, "server closed the stream without sending trailers"))
	}
}

// message takes a whole message.
func (c *call) message(format byte, data []byte) {
	c.messages++
	status, err := parseResponse(data)
	switch {
	case format == 1 && (c.encoding == "" || c.encoding == "identity"):
		c.end(failf(internal, "grpc: compressed flag set with identity or empty encoding"))
	case format == 1:
		c.end(failf(internal, "grpc: Decompressor is not installed for grpc-encoding %q", c.encoding))
	case format != 0:
		c.end(failf(internal, "grpc: received unexpected payload format %d", format))
	case err != nil:
		c.end(failf(internal, "grpc: failed to unmarshal the received message: %v", err))
	case c.messages > 1:
		c.end(failf(internal, "cardinality violation: expected <EOF> for non server-streaming RPCs, but received another message"))
	default:
		c.health = status
	}
}

// answer returns how a call has ended. What is wrong with a message goes before what
// the trailers say, as in gRPC's Go packages.
func (c *call) answer() (health, error) {
	cut := len(c.body) >= prefix // a few bytes more are nothing, as in those
	switch {
	case c.failure != nil && (!cut || !c.clean):
		return 0, c.failure
	case cut:
		return 0, failf(internal, "unexpected EOF")
	case c.messages == 0:
		return 0, failf(internal, "cardinality violation: received no response message from non-server-streaming RPC")
	default:
		return c.health, nil
	}
}
