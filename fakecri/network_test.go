package fakecri_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

func TestNetwork(t *testing.T) {
	t.Parallel()
	var network fakecri.Network
	_, err := network.Dial(t.Context(), "tcp", "10.88.0.2:80")
	require.EqualError(t, err, "dial tcp 10.88.0.2:80: connect: connection refused")

	l, err := network.Listen("tcp", "10.88.0.2:80")
	require.NoError(t, err)
	_, err = network.Listen("tcp", "10.88.0.2:80")
	require.EqualError(t, err, "listen tcp 10.88.0.2:80: bind: address already in use")
	read := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		b, _ := io.ReadAll(conn)
		read <- string(b)
	}()
	conn, err := network.Dial(t.Context(), "tcp", "10.88.0.2:80")
	require.NoError(t, err)
	_, err = io.WriteString(conn, "hello")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.Equal(t, "hello", <-read)

	_, err = network.Dial(t.Context(), "tcp", "10.88.0.3:80")
	require.ErrorContains(t, err, "refused", "the port is that of another pod")
	_, err = network.Dial(t.Context(), "tcp", "no address")
	require.ErrorContains(t, err, "refused")
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = network.Dial(done, "tcp", "10.88.0.2:80")
	require.ErrorIs(t, err, context.Canceled)

	require.NoError(t, l.Close())
	_, err = network.Dial(t.Context(), "tcp", "10.88.0.2:80")
	require.ErrorContains(t, err, "refused")
	again, err := network.Listen("tcp", "10.88.0.2:80")
	require.NoError(t, err)
	require.NoError(t, l.Close(), "closing a listener twice must not close the new listener")
	_, err = network.Listen("tcp", "10.88.0.2:80")
	require.Error(t, err)
	require.NoError(t, again.Close())
}

// Over a network in memory, a program is reachable at the address of its pod. A
// program of a pod on the host's network is reachable at the address of the node.
func TestNetwork_ReachesProgramsByAddress(t *testing.T) {
	t.Parallel()
	var network fakecri.Network
	node, err := fakecri.New(fakecri.Config{Images: fakecri.DemoImages(), Programs: fakecri.DemoPrograms(), Listen: network.Listen})
	require.NoError(t, err)
	defer node.Shutdown()
	client := http.Client{Transport: &http.Transport{DialContext: network.Dial, DisableKeepAlives: true}}
	start := func(name string, mode runtimeapi.NamespaceMode) {
		config := &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
			Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Network: mode},
			}},
		}
		box, err := node.RunPodSandbox(t.Context(), config, "")
		require.NoError(t, err)
		id, err := node.CreateContainer(t.Context(), box, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "web"}, Image: &runtimeapi.ImageSpec{Image: "demo/web:1"},
		}, config)
		require.NoError(t, err)
		require.NoError(t, node.StartContainer(t.Context(), id))
	}
	get := func(url string) int {
		answer, err := client.Get(url)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	start("pod", runtimeapi.NamespaceMode_POD)
	require.Equal(t, http.StatusOK, get("http://127.88.0.2:8080/"))
	_, err = client.Get("http://192.0.2.1:8080/")
	require.ErrorContains(t, err, "refused")

	start("host", runtimeapi.NamespaceMode_NODE)
	require.Equal(t, http.StatusOK, get("http://192.0.2.1:8080/"))
	require.NoError(t, node.SetHealthy("default/host/web", false))
	require.Equal(t, http.StatusServiceUnavailable, get("http://192.0.2.1:8080/"))
}
