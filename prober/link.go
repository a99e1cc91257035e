package prober

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// link is a connection over which one request is made again and again.
type link struct {
	conn    net.Conn
	request []byte
	// url is what is asked for, and the rest what it was made of: as long as that is
	// so, the request is.
	url       string
	container string
	spec      *corev1.HTTPGetAction
	host      string
	// interrupt ends what is waited for. It is made once.
	interrupt func()
	// once means that the request asks the server to close the connection.
	once bool
}

// hangUp closes p's idle connection.
func (p *probe) hangUp() {
	if p.kept != nil {
		p.kept.hangUp()
		p.kept = nil
	}
}

// hangUp closes the connection at once, and leaves no trace of it here.
func (l *link) hangUp() {
	raw := l.conn
	if t, ok := raw.(*tls.Conn); ok {
		raw = t.NetConn()
	}
	abort(raw)
}

// isFresh says whether nothing has come over an idle connection, neither its end
// nor anything that nobody has asked for.
func (l *link) isFresh() bool {
	raw := l.conn
	if t, ok := raw.(*tls.Conn); ok {
		raw = t.NetConn()
	}
	return isQuiet(raw)
}

// buffer is where a response is read into.
type buffer struct {
	data [maxHead + maxOutput]byte
	// n bytes are filled.
	n int
}

// fill reads once more.
func (b *buffer) fill(r io.Reader) error {
	n, err := r.Read(b.data[b.n:])
	b.n += n
	if n > 0 {
		return nil // an error comes again
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

// answer is a response, as far as a probe is interested.
type answer struct {
	status int
	body   string
	// keep says that another request may follow over the same connection.
	keep bool
	// redirect is a response that names another place. Its body is still to be read,
	// from link.
	redirect *http.Response
	link     *link
}

// errStale says that a connection ended before any byte of a response.
var errStale = errors.New("the connection was closed before an answer")

// isOf says whether l is still to where j's probe goes.
func (l *link) isOf(j *job) bool {
	return l.container == j.target.ID && l.spec == j.spec.HTTPGet && l.host == j.target.PodIP
}

// until sets when to give up.
func (l *link) until(deadline time.Time) error { return l.conn.SetDeadline(deadline) }

// exchange makes the request and reads the response, by the deadline that was set. A
// redirect is an answer like any other if policy does not follow it.
func (l *link) exchange(ctx context.Context, b *buffer, policy RedirectPolicy) (answer, error) {
	stop := context.AfterFunc(ctx, l.interrupt)
	defer stop()
	_, writeErr := l.conn.Write(l.request)
	// Even if it could not be written, there may be an answer: that there is none.
	b.n = 0
	if err := b.fill(l.conn); err != nil {
		if isTimeout(err) {
			return answer{}, err
		}
		if writeErr != nil {
			err = writeErr
		}
		return answer{}, errors.Join(errStale, err)
	}
	a, err := readAnswer(l.conn, b, policy)
	if writeErr != nil || ctx.Err() != nil {
		a.keep = false
	}
	return a, err
}

// readAnswer reads a response of which b has the beginning.
func readAnswer(r io.Reader, b *buffer, policy RedirectPolicy) (answer, error) {
	h, plain := parseHead(b.data[:b.n])
	if !plain {
		return readOther(r, b, policy)
	}
	want := h.size + min(h.length, maxOutput)
	for b.n < want {
		if err := b.fill(r); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return answer{status: h.status}, err
		}
	}
	return answer{
		status: h.status, body: string(b.data[h.size:want]),
		keep: !h.last && b.n == h.size+h.length,
	}, nil
}

// maxAnswer bounds what is read of a response that is not plain: net/http's default for
// a head, which is the kubelet's.
const maxAnswer = 10 << 20

// readOther has net/http read a response of which b has the beginning.
func readOther(r io.Reader, b *buffer, policy RedirectPolicy) (answer, error) {
	rest := &remainder{from: r}
	limited := &io.LimitedReader{R: io.MultiReader(bytes.NewReader(b.data[:b.n]), rest), N: maxAnswer}
	buffered := bufio.NewReader(limited)
	response, err := readFinal(buffered)
	switch {
	case err != nil && isTimeout(rest.err):
		return answer{}, rest.err // net/http may have taken the part of a line for a whole one
	case err != nil:
		return answer{}, fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", err)
	case policy != FollowNone && isRedirect(response):
		return answer{redirect: response}, nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxOutput))
	a := answer{status: response.StatusCode, body: string(body)}
	if err != nil {
		return a, err
	}
	// A body that was read to its end leaves the connection ready for another.
	a.keep = len(body) < maxOutput && !response.Close && response.StatusCode != http.StatusSwitchingProtocols &&
		buffered.Buffered() == 0
	return a, nil
}

// remainder is what comes over a connection after the beginning of a response.
type remainder struct {
	from io.Reader
	err  error // the last one
}

// Read is for [io.MultiReader].
func (r *remainder) Read(b []byte) (n int, err error) {
	n, r.err = r.from.Read(b)
	return n, r.err
}

// isRedirect reports whether a client of net/http follows a response.
func isRedirect(r *http.Response) bool {
	switch r.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return r.Header.Get("Location") != ""
	default:
		return false
	}
}

// readFinal reads a response and passes over those that are only informational, as
// net/http does.
func readFinal(r *bufio.Reader) (*http.Response, error) {
	for {
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		code := response.StatusCode
		if code >= 200 || code == http.StatusSwitchingProtocols {
			return response, nil
		}
	}
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}
