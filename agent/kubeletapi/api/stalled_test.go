package api_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

// stalled returns a client of an agent that starts each response with text and then hangs.
func stalled(t *testing.T, text string) *api.Client {
	t.Helper()
	c, err := api.NewClient(api.ClientConfig{})
	require.NoError(t, err)
	c.Dial(func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer func() { _ = far.Close() }()
			if _, err := http.ReadRequest(bufio.NewReader(far)); err != nil {
				return
			}
			_, _ = io.WriteString(far, text)
			_, _ = io.Copy(io.Discard, far) // until the client closes the connection
		}()
		return near, nil
	})
	return c
}

// TestClient_StalledAgent sends requests to an agent that hangs.
func TestClient_StalledAgent(t *testing.T) {
	t.Parallel()
	const header = "HTTP/1.1 200 OK\r\n\r\n"
	status := func(ctx context.Context, c *api.Client) error { _, err := c.Status(ctx); return err }
	plan := func(ctx context.Context, c *api.Client) error { _, err := c.GCPlan(ctx, api.FormText); return err }
	list := func(ctx context.Context, c *api.Client) error {
		_, err := numbers(ctx, c, api.EventsQuery{}, 0)
		return err
	}
	watch := func(ctx context.Context, c *api.Client) error {
		_, err := numbers(ctx, c, api.EventsQuery{Watch: true}, 0)
		return err
	}
	logs := func(ctx context.Context, c *api.Client) error {
		log, err := c.Logs(ctx, api.LogsQuery{Follow: true})
		if err != nil {
			return err
		}
		_, err = io.ReadAll(log)
		_ = log.Close()
		return err
	}
	for name, x := range map[string]struct {
		ask   func(context.Context, *api.Client) error
		text  string
		after time.Duration // the caller's timeout is an hour
		err   bool
	}{
		"status, nothing":     {status, "", 15 * time.Second, true},
		"status, header":      {status, header, 15 * time.Second, true},
		"status, half":        {status, header + `{"agent":`, 15 * time.Second, true},
		"plan, half":          {plan, header + "evict", 15 * time.Second, true},
		"events, nothing":     {list, "", 15 * time.Second, true},
		"events, half":        {list, header + `{"number":1}` + "\n", 15 * time.Second, true},
		"watch, nothing":      {watch, "", 15 * time.Second, true},
		"watch, no event yet": {watch, header, time.Hour, false},
		"watch, no event now": {watch, header + `{"number":1}` + "\n", time.Hour, false},
		"logs, nothing":       {logs, "", 15 * time.Second, true},
		"logs, no line now":   {logs, header + "line\n", time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				c := stalled(t, x.text)
				began := time.Now()
				err := x.ask(ctx, c)
				require.Equal(t, x.after, time.Since(began))
				require.Equal(t, x.err, err != nil, err)
				c.Close()
			})
		})
	}
}
