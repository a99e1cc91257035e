package kubeletapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

// busyClients opens connections that send requests and read no response.
func (p *pipes) busyClients(n int) (all []net.Conn) {
	for range n {
		c := p.dial()
		fmt.Fprint(c, strings.Repeat("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 3))
		all = append(all, c)
	}
	synctest.Wait()
	return all
}

// livez requests /livez on a connection and requires a response within a second.
func livez(t *testing.T, c net.Conn) {
	t.Helper()
	asked := time.Now()
	fmt.Fprint(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.LessOrEqual(t, time.Since(asked), time.Second)
}

func closeConns(t *testing.T, all ...net.Conn) {
	t.Helper()
	for _, c := range all {
		require.NoError(t, c.Close())
	}
}

func TestLivez_AnswersWhileAllConnectionsAreBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := serve(t, kubeletapi.Config{Page: page(strings.Repeat("x", 1<<20))})
		open := p.busyClients(500)
		c := p.dial()
		livez(t, c)
		closeConns(t, append(open, c)...)
		require.NoError(t, stop())
	})
}

func TestLivez_SlowClientSurvivesAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := serve(t, kubeletapi.Config{Page: page("x"), MaxConnections: 20})
		open := p.busyClients(20)
		c := p.dial()
		synctest.Wait()
		// New connections, fewer than the limit, must not close a connection that is newer
		// than the busy connections.
		open = append(open, p.busyClients(19)...)
		livez(t, c)
		closeConns(t, append(open, c)...)
		require.NoError(t, stop())
	})
}

func TestStream_StaysOpenAtTheConnectionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := serve(t, kubeletapi.Config{Page: page("x"), Events: fixed{}, MaxConnections: 20})
		stream, closeStream := p.ask(t, "/agent/events?watch", "Accept: text/event-stream\r\n")
		open := p.busyClients(60)
		require.Equal(t, ":", stream.line(), "heartbeat of the event stream")
		require.NoError(t, closeStream())
		closeConns(t, open...)
		require.NoError(t, stop())
	})
}

func TestPage_ClientThatReadsNothingIsDisconnected(t *testing.T) {
	for name, request := range map[string]string{
		"page":        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"refusal":     "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"not found":   "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"bad request": "GET /agent/events?since=x HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, stop := serve(t, kubeletapi.Config{Page: page("x"), Events: fixed{}})
				c := p.dial()
				fmt.Fprint(c, request)
				time.Sleep(6 * time.Second) // time of the bubble
				answer, err := io.ReadAll(c)
				require.NoError(t, err, "the server must close the connection")
				require.Empty(t, answer)
				require.NoError(t, c.Close())
				require.NoError(t, stop())
			})
		})
	}
}

func TestConfig_StreamsLeaveRoomForOtherConnections(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, kubeletapi.Config{Agent: &fake{}, MaxConnections: 10, MaxStreams: 10}.Validate(), "MaxStreams")
	require.NoError(t, kubeletapi.Config{Agent: &fake{}, MaxConnections: 10}.Validate())
	require.NoError(t, kubeletapi.Config{Agent: &fake{}, MaxConnections: 10, MaxStreams: 9}.Validate())
}
