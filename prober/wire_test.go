package prober

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// read reads a response as a probe does.
func read(r io.Reader) (answer, error) {
	b := &buffer{}
	if err := b.fill(r); err != nil {
		return answer{}, err
	}
	return readAnswer(r, b, FollowNone)
}

// readByNetHTTP reads it by net/http alone.
func readByNetHTTP(r io.Reader) (answer, error) {
	buffered := bufio.NewReader(r)
	response, err := readFinal(buffered)
	if err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxOutput))
	return answer{
		status: response.StatusCode, body: string(body),
		keep: !response.Close && response.StatusCode != 101 && buffered.Buffered() == 0 &&
			(len(body) < maxOutput || response.ContentLength == int64(len(body))),
	}, err
}

func responses() []string {
	const ok = "HTTP/1.1 200 OK\r\n"
	return []string{
		ok + "Content-Length: 2\r\n\r\nok",
		ok + "content-length:2\r\nX-A: b\r\nX_c:\t d \r\n\r\nok",
		ok + "Content-Length: 0\r\n\r\n",
		"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n",
		"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 4\r\n\r\ndown",
		ok + "Connection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
		ok + "Connection: close, x\r\nContent-Length: 2\r\n\r\nok",
		ok + "Content-Length: 2\r\n\r\nokHTTP/1.1 408 Request Timeout\r\n\r\n",
		ok + "Content-Length: 5\r\n\r\nok",
		ok + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nok",
		ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok",
		ok + "Content-Length: +2\r\n\r\nok",
		ok + "Content-Length: 99999999999999999999\r\n\r\nok",
		ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		ok + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		ok + "Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n",
		ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
		ok + "\r\nuntil the end",
		"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 100 Continue\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nok",
		strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n", 6) + ok + "Content-Length: 0\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
		"HTTP/1.1 302 Found\r\nLocation: /a\r\nContent-Length: 0\r\n\r\n",
		ok + "X: a\r\n b\r\nContent-Length: 2\r\n\r\nok",
		ok + "X : a\r\nContent-Length: 2\r\n\r\nok",
		ok + "X\r\nContent-Length: 2\r\n\r\nok",
		ok + ": a\r\nContent-Length: 2\r\n\r\nok",
		ok + "Content-Length: 2\n\nok",
		"HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\nok",
		ok + "X: a\rb\r\nContent-Length: 2\r\n\r\nok",
		ok + "X: \x00\r\nContent-Length: 2\r\n\r\nok",
		ok + "Content-Length: 20480\r\n\r\n" + strings.Repeat("x", 20480),
		ok + "Content-Length: 10240\r\n\r\n" + strings.Repeat("x", 10240),
		ok + "X: " + strings.Repeat("y", 5000) + "\r\nContent-Length: 2\r\n\r\nok",
		ok + "X: " + strings.Repeat("y", 5000) + "\r\nContent-Length: 20480\r\n\r\n" + strings.Repeat("x", 20480),
		ok + "X: " + strings.Repeat("y", maxHead-len(ok)-len("X: \r\nContent-Length: 20480\r\n\r\n")) + "\r\nContent-Length: 20480\r\n\r\n" + strings.Repeat("x", 20480),
		"HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 20", "HTTP/1.1 99 Odd\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "SSH-2.0-x\r\n", "\r\n\r\n",
	}
}

func same(t *testing.T, data []byte) {
	t.Helper()
	for name, r := range map[string]io.Reader{
		"whole": bytes.NewReader(data), "byte by byte": iotest.OneByteReader(bytes.NewReader(data)),
	} {
		got, err := read(r)
		want, wantErr := readByNetHTTP(bytes.NewReader(data))
		if len(data) == 0 {
			require.ErrorIs(t, err, io.EOF)
			continue
		}
		require.Equal(t, wantErr == nil, err == nil, "%s: %v instead of %v", name, err, wantErr)
		if err != nil {
			continue
		}
		require.Equal(t, want.status, got.status, name)
		require.Equal(t, want.body, got.body, name)
		// Not to keep what could be kept is always right, and bytes that have not
		// been read are seen before the next request.
		require.False(t, got.keep && !want.keep && name == "whole", "kept")
	}
}

func TestResponsesAreReadAsByNetHTTP(t *testing.T) {
	t.Parallel()
	for _, r := range responses() {
		same(t, []byte(r))
	}
}

func FuzzResponse(f *testing.F) {
	for _, r := range responses() {
		f.Add([]byte(r))
	}
	f.Fuzz(func(t *testing.T, data []byte) { same(t, data[:min(len(data), 64<<10)]) })
}

// What the quick reader calls plain is nearly all that servers say.
func TestWhatIsPlain(t *testing.T) {
	t.Parallel()
	for head, want := range map[string]bool{
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: 2\r\n\r\n": true,
		"HTTP/1.1 503 Service Unavailable\r\nServer: nginx/1.27\r\nConnection: keep-alive\r\nContent-Length: 19\r\n\r\n":                 true,
		"HTTP/1.1 204 No Content\r\nDate: x\r\n\r\n":                     true,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n":                       false,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n":          false,
		"HTTP/1.1 301 Moved\r\nLocation: /\r\nContent-Length: 0\r\n\r\n": false,
	} {
		_, plain := parseHead([]byte(head))
		require.Equal(t, want, plain, strconv.Quote(head))
	}
}

// As in the kubelet, a line that is malformed says more than the reset after it, and the
// time that is over more than the part of a line before it.
func TestHeadsThatBreakOff(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"HTTP/1.1 200 OK\r\n: empty\r\n": `net/http: HTTP/1.x transport connection broken: malformed MIME header line: ": empty"`,
		"HTTP/1.1 20":                    `net/http: HTTP/1.x transport connection broken: malformed HTTP status code "20"`,
		"HTTP/1.1 200 OK\r\nX: a\r\n":    "net/http: HTTP/1.x transport connection broken: connection reset by peer",
	} {
		_, err := read(io.MultiReader(strings.NewReader(text), iotest.ErrReader(syscall.ECONNRESET)))
		require.EqualError(t, err, want)
	}
	_, err := read(io.MultiReader(strings.NewReader("HTTP/1.1 20"), iotest.ErrReader(os.ErrDeadlineExceeded)))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestAReaderThatMakesNoProgress(t *testing.T) {
	t.Parallel()
	_, err := read(iotest.ErrReader(errors.New("broken")))
	require.ErrorContains(t, err, "broken")
	require.ErrorIs(t, (&buffer{}).fill(idle{}), io.ErrNoProgress)
}

// idle is a reader with nothing to say.
type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }
