package podloop

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/podcache"
)

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	err := Config{
		Root: "root", PodLogs: "logs", ContainerLogs: "links", SyncPeriod: -1,
		Sources: []Source{{}}, Allocators: allocatorsOf(nil),
	}.Validate()
	for _, part := range []string{
		"field Name is required", "field NodeName is required", "field Runtime is required", "field State is required",
		"field Node.Facts is required", "field Node.Get is required", "field Node.Images is required",
		"field Sources[0].Name is required", "field Sources[0].Run is required", "field Allocators[0] is required",
		`field Root: "root" is not absolute`, `field PodLogs: "logs" is not absolute`, `field ContainerLogs: "links" is not absolute`,
		"field SyncPeriod: -1ns is negative",
	} {
		require.ErrorContains(t, err, part)
	}
	require.ErrorContains(t, Config{}.Validate(), "field Sources is required")
	_, err = New(Config{})
	require.ErrorContains(t, err, "invalid config")
}

func TestNew_ReportsProblemsOfTheManagers(t *testing.T) {
	t.Parallel()
	b := newBed(t, newNode(t), newStore(), t.TempDir())
	cfg := b.cfg
	cfg.Admission = []lifecycle.NamedHandler{{Name: "node", Handler: lifecycle.AdmitFunc(nil)}}
	_, err := New(cfg)
	require.ErrorContains(t, err, `fields Admission and Allocators: `)
	cfg = b.cfg
	cfg.Pods.ClusterDNS = []string{"x"}
	_, err = New(cfg)
	require.ErrorContains(t, err, `"x" is not an IP address`)
}

func TestState_String(t *testing.T) {
	t.Parallel()
	var names []string
	for s := range Gone + 1 {
		names = append(names, s.String())
	}
	require.Equal(t, "offered refused admitted ending ended removed gone", strings.Join(names, " "))
}

func TestViews(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.set(newPod("web", "web:1"), newPod("api", "web:1"))
		b.awaitRunning("web")
		require.Len(t, b.Desired(), 2)
		require.Len(t, b.Known(), 2)
		require.Equal(t, "api", b.Pods()[0].Spec.Name)
		require.NoError(t, b.Healthy())
		require.False(t, b.RelistedAt().IsZero())
		require.Len(t, b.Observed(), 2)
		s, err := b.Await(b.t.Context(), "uid-web", b.RelistedAt())
		require.NoError(t, err)
		require.Equal(t, &podcache.Status{UID: "x"}, func() *podcache.Status { s, _ := b.cache.Get("x"); return s }())
		require.Equal(t, "web", s.Name)
		_, known := b.Pod("nobody")
		require.False(t, known)
		_, known = b.Find("nobody")
		require.False(t, known)
		_, err = b.Explain(b.t.Context(), "nobody")
		require.ErrorContains(t, err, "the pod is unknown")
		require.False(t, b.CleanedUp("uid-web"))
		require.Contains(t, strings.Join(b.check("pleg").Notes, ""), "lists the runtime's pods every")
		require.Equal(t, []string{"2 pods"}, b.check("workers").Notes)
		require.Empty(t, b.check("statuses").Notes)
		b.RunHook(b.t.Context(), lifecycle.Hook{})
	}, func(c *Config) {
		c.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
	})
}
