package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/prober"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWatch(t *testing.T) {
	var sick atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	host, text, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)

	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var seen []prober.Result
	require.NoError(t, watch(ctx, host, port, func(c prober.Change) {
		seen = append(seen, c.Result)
		switch {
		case c.Result == prober.Success:
			sick.Store(true)
		case sick.Load():
			stop()
		}
	}))
	require.Equal(t, prober.Failure, seen[len(seen)-1])
	require.Contains(t, seen, prober.Success)
}
