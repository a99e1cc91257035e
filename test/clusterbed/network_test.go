//go:build chaos

package clusterbed_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// inNetwork calls f in the network namespace of the bed. The sockets that f opens stay in this
// namespace.
func inNetwork(f func() error) error {
	result := make(chan error)
	go func() {
		// The thread is never unlocked, so it ends with the goroutine, and no other goroutine runs in
		// the namespace.
		runtime.LockOSThread()
		result <- errors.Join(enterNetwork(), f())
	}()
	return <-result
}

// enterNetwork moves the thread into the network namespace of the bed.
func enterNetwork() error {
	namespace, err := os.Open("/run/netns/" + bed.env["KPCLUSTER_NETNS"])
	if err != nil {
		return err
	}
	defer namespace.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter %s: %w", namespace.Name(), err)
	}
	return nil
}

func dialInside(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = inNetwork(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

func listenInside(address string) (l net.Listener, err error) {
	err = inNetwork(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// pki returns the path of a file with keys or certificates.
func pki(name string) string { return filepath.Join(bed.env["KPCLUSTER_DIR"], "pki", name) }

// transportOf returns an HTTP transport to the API server with the certificate of a user of the bed.
// Its connections are closed when the test ends.
func transportOf(t *testing.T, user string) *http.Transport {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(pki(user+".crt"), pki(user+".key"))
	require.NoError(t, err)
	ca, err := os.ReadFile(bed.env["CLUSTER_CA"])
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca))
	var mu sync.Mutex
	var opened []net.Conn
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range opened {
			_ = conn.Close() // the server may have closed it already
		}
	})
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialInside(ctx, network, address)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			opened = append(opened, conn)
			return conn, nil
		},
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots},
	}
}

// server returns the URL of a path of the API server.
func server(path string) string { return "https://" + bed.env["NODE_IP"] + ":6443" + path }

// get requests a JSON object from the API server.
func get(ctx context.Context, client *http.Client, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server(path), nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, err := io.ReadAll(answer.Body)
		return fmt.Errorf("get %s: %s: %s, %w", path, answer.Status, text, err)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}
