package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/config"
)

func TestPodsEndInTheOrderOfTheirPriorities(t *testing.T) {
	t.Parallel()
	pod := func(name string, priority *int32, grace *int64) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Priority: priority, TerminationGracePeriodSeconds: grace}}
	}
	pods := []*corev1.Pod{
		pod("critical", new(int32(2000000000)), new(int64(60))), pod("plain", nil, nil), pod("short", new(int32(5)), new(int64(1))),
		pod("low", new(int32(-10)), nil), pod("high", new(int32(10000)), new(int64(15))),
	}
	second := func(n int) (d struct{ metav1.Duration }) {
		d.Duration.Duration = time.Duration(n) * time.Second
		return d
	}
	for name, c := range map[string]struct {
		set  func(*options)
		want string
	}{
		"none": {func(*options) {}, "critical:own plain:own short:own low:own high:own"},
		"both": {func(o *options) {
			o.ShutdownGracePeriod, o.ShutdownGracePeriodCriticalPods = second(30).Duration, second(10).Duration
		}, "plain:20s short:1s low:20s high:15s | critical:10s"},
		"no critical": {func(o *options) { o.ShutdownGracePeriod = second(30).Duration }, "plain:30s short:1s low:30s high:15s | critical:0s"},
		"all critical": {func(o *options) {
			o.ShutdownGracePeriod, o.ShutdownGracePeriodCriticalPods = second(9).Duration, second(9).Duration
		}, "plain:0s short:0s low:0s high:0s | critical:9s"},
		"by priority": {func(o *options) {
			o.ShutdownGracePeriodByPodPriority = []config.ShutdownGracePeriodByPodPriority{{Priority: 10000, ShutdownGracePeriodSeconds: 20}, {Priority: 100000, ShutdownGracePeriodSeconds: 10}, {Priority: 0, ShutdownGracePeriodSeconds: 40}}
		}, "plain:30s short:1s low:30s | high:15s | critical:10s"},
	} {
		o := options{Settings: config.Default()}
		c.set(&o)
		require.Equal(t, name != "none", o.takesDown(), name)
		var steps []string
		for _, s := range o.endSteps(pods) {
			var names []string
			for _, p := range s.pods {
				text := "own"
				if g := s.grace(p); g != nil {
					text = g.String()
				}
				names = append(names, p.Name+":"+text)
			}
			steps = append(steps, strings.Join(names, " "))
		}
		require.Equal(t, c.want, strings.Join(steps, " | "), name)
	}
	o := options{stopPods: true}
	require.True(t, o.takesDown())
}

func TestGracefulShutdownEndsCriticalPodsLast(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// Long enough for sweeps to see it.
	manifest(t, dir, "a.yaml", podYAML("plain", "demo/web:1")+"    lifecycle: {preStop: {sleep: {seconds: 4}}}\n")
	manifest(t, dir, "b.yaml", podYAML("critical", "demo/web:1")+"  priority: 2000000000\n")
	a := start(t, "--manifests", dir, "--shutdown-grace-period", "20s", "--shutdown-grace-period-critical-pods", "10s")
	await(t, "both run", func() bool {
		got := phases(a.pods(t))
		return got["plain-node1"] == corev1.PodRunning && got["critical-node1"] == corev1.PodRunning
	})
	require.NoError(t, a.stop())
	require.Equal(t, 1, a.removed("plain"))
	require.Equal(t, 1, a.removed("critical"))
	stdout, _ := a.printed()
	text := strings.Join(stdout, "\n")
	require.Less(t, strings.Index(text, "default/plain-node1 removed"), strings.Index(text, "default/critical-node1 removed"))
}
