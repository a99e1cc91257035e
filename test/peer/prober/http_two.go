package prober

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// http2 responds to HTTP/2 requests until the client closes. It implements only what the
// probes need, because the server of golang.org/x/net keeps channels from one bubble to the
// next.
func (n *network) http2(c net.Conn) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil {
		return
	}
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if f.WriteSettings() != nil {
		return
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				err = f.WritePing(true, frame.Data)
			}
		case *http2.MetaHeadersFrame:
			err = answerByHTTP2(f, frame.StreamID, n.next("HTTP/2 "+requestText(frame)))
		}
		if err != nil {
			return
		}
	}
}

// requestText returns the header fields of a request.
func requestText(f *http2.MetaHeadersFrame) string {
	var lines []string
	for _, field := range f.Fields {
		lines = append(lines, field.Name+": "+field.Value)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// answerByHTTP2 sends an answer.
func answerByHTTP2(f *http2.Framer, stream uint32, r reply) error {
	status, body := r.simple()
	var block bytes.Buffer
	if err := hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: strconv.Itoa(status)}); err != nil {
		return err
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: body == ""}); err != nil {
		return err
	}
	for len(body) > 0 {
		n := min(len(body), 16<<10)
		if err := f.WriteData(stream, n == len(body), []byte(body[:n])); err != nil {
			return err
		}
		body = body[n:]
	}
	return nil
}

// simple returns the status and the body of an answer by HTTP/2.
func (r reply) simple() (status int, body string) {
	status = r.Status
	if status < 200 || status > 599 {
		status = 200
	}
	if status == 204 || status == 304 {
		return status, ""
	}
	return status, text(min(r.Body, 20000))
}

// plain converts a response to HTTP/1.1.
func (r reply) plain() reply {
	status, body := r.simple()
	h := httpReply{Proto: "HTTP/1.1", Status: status, Body: len(body), Framing: "length", End: "\r\n"}
	if status == 204 || status == 304 {
		h.Framing = "close" // they have no body
	}
	return reply{Bytes: h.String(), Pieces: 1, Then: keeps}
}
