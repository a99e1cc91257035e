package kubeletapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

// TestRun_RefusedClientsAreLoggedOnce sends requests that are rejected before or by the
// guard.
func TestRun_RefusedClientsAreLoggedOnce(t *testing.T) {
	const post, host = "POST /agent/status HTTP/1.1\r\n", "Host: localhost\r\n"
	for name, tc := range map[string]struct {
		request string
		code    int // 0: the server closes the connection without a response
		log     string
	}{
		"slow loris":                 {"GET /pods HTTP/1.1\r\n" + host, 0, "invalid, too large or incomplete"},
		"header too large":           {"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 64<<10), 431, "invalid, too large or incomplete"},
		"path too long":              {"GET /" + strings.Repeat("x", 64<<10), 431, "invalid, too large or incomplete"},
		"not HTTP":                   {"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400, "invalid, too large or incomplete"},
		"no Host":                    {"GET /pods HTTP/1.1\r\n\r\n", 400, "invalid, too large or incomplete"},
		"two lengths":                {post + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400, "invalid, too large or incomplete"},
		"unknown encoding":           {post + host + "Transfer-Encoding: x\r\n\r\n", 501, "invalid, too large or incomplete"},
		"HTTP/2":                     {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 403, "code=403 method=PRI path=*"},
		"foreign host":               {"GET /pods HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, "code=403 method=GET path=/pods"},
		"body too large":             {post + host + "Content-Length: 65537\r\n\r\n", 413, "code=413 method=POST path=/agent/status"},
		"body of the maximum":        {post + host + "Content-Length: 65536\r\n\r\n" + strings.Repeat("x", 65536), 405, ""},
		"closed by the client, idle": {"", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log lines
				p, stop := serve(t, kubeletapi.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				c := p.dial()
				go func() { _, _ = io.WriteString(c, tc.request) }() // the server may close the connection during the write
				answer, err := http.ReadResponse(bufio.NewReader(c), nil)
				if tc.code == 0 {
					require.Error(t, err)
				} else {
					require.NoError(t, err)
					require.Equal(t, tc.code, answer.StatusCode)
				}
				require.NoError(t, c.Close())
				require.NoError(t, stop())
				if tc.log == "" {
					require.Empty(t, log.String())
					return
				}
				require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
				require.Contains(t, log.String(), tc.log)
			})
		})
	}
}

func TestRun_ChunkedBodyIsLimited(t *testing.T) {
	t.Parallel()
	read := make(chan error, 1)
	url, _ := run(t, kubeletapi.Config{Metrics: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		read <- err
	})})
	for size, want := range map[int64]string{64 << 10: "", 64<<10 + 1: "http: request body too large"} {
		body := io.LimitReader(endless{}, size)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", io.NopCloser(body))
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		if err := <-read; want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

// endless is a reader of x.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestRun_LinesAboutRefusedRequestsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		p, stop := serve(t, kubeletapi.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		c := p.dial()
		reader := bufio.NewReader(c)
		refused := func() {
			fmt.Fprint(c, "GET /pods HTTP/1.1\r\nHost: evil.example\r\n\r\n")
			answer, err := http.ReadResponse(reader, nil)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, answer.Body)
			require.NoError(t, err)
			require.Equal(t, http.StatusForbidden, answer.StatusCode)
		}
		for range 100 {
			refused()
		}
		require.Equal(t, 60, strings.Count(log.String(), "\n"))
		require.NotContains(t, log.String(), "omittedLines")
		time.Sleep(59 * time.Second) // time of the bubble
		refused()
		require.Equal(t, 60, strings.Count(log.String(), "\n"))
		time.Sleep(time.Second)
		refused()
		refused()
		require.Equal(t, 62, strings.Count(log.String(), "\n"))
		require.Equal(t, 1, strings.Count(log.String(), "omittedLines=41"))
		require.NoError(t, c.Close())
		require.NoError(t, stop())
	})
}

// slowTokens is a TokenReviewer that never responds.
type slowTokens struct{}

func (slowTokens) ReviewToken(ctx context.Context, _ string) (kubeletapi.User, bool, error) {
	<-ctx.Done()
	return kubeletapi.User{}, false, ctx.Err()
}

func TestTokenReviewer_HangingReviewEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := serve(t, kubeletapi.Config{Access: kubeletapi.Access{TokenReviewer: slowTokens{}}})
		var open []net.Conn
		for range 3 {
			c, began := p.dial(), time.Now()
			open = append(open, c)
			fmt.Fprint(c, "GET /pods HTTP/1.1\r\nHost: node1\r\nAuthorization: Bearer x\r\n\r\n")
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusUnauthorized, answer.StatusCode)
			require.Equal(t, 10*time.Second, time.Since(began))
		}
		closeConns(t, open...)
		require.NoError(t, stop())
	})
}
