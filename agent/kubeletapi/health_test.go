package kubeletapi_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

const (
	healthy   = http.StatusOK
	unhealthy = http.StatusInternalServerError
)

func TestHealth_HasTheKubeletsForm(t *testing.T) {
	t.Parallel()
	good := kubeletapi.Check{Name: "good", Run: func() error { return nil }, Notes: func() []string { return []string{"one\ntwo"} }}
	bad := kubeletapi.Check{Name: "bad", Run: func() error { return errors.New("it hurts") }}
	for _, c := range []struct {
		path   string
		checks []kubeletapi.Check
		code   int
		body   string
	}{
		{"/healthz", nil, healthy, "ok"},
		{"/healthz", []kubeletapi.Check{good}, healthy, "ok"},
		{"/healthz?exclude=godo&verbose", []kubeletapi.Check{good}, healthy, "[+]ping ok\n[+]good ok\n  one\n  two\n[?]\"godo\" is not a check of this agent\nhealthz check passed\n"},
		{"/healthz?exclude=godo", []kubeletapi.Check{bad}, unhealthy, "[-]bad failed: it hurts\n"},
		{"/healthz?verbose", []kubeletapi.Check{good}, healthy, "[+]ping ok\n[+]good ok\n  one\n  two\nhealthz check passed\n"},
		{"/healthz", []kubeletapi.Check{good, bad}, unhealthy, "[-]bad failed: it hurts\n"},
		{"/readyz", []kubeletapi.Check{good, bad}, unhealthy, "[-]bad failed: it hurts\n"},
		{"/readyz?verbose=1", []kubeletapi.Check{bad, good}, unhealthy, "[+]ping ok\n[-]bad failed: it hurts\n[+]good ok\n  one\n  two\nreadyz check failed\n"},
		{"/readyz?verbose&exclude=bad", []kubeletapi.Check{bad}, healthy, "[+]ping ok\n[+]bad excluded: ok\nreadyz check passed\n"},
		{"/livez", []kubeletapi.Check{bad}, healthy, "ok"},
		{"/livez?verbose", []kubeletapi.Check{bad}, healthy, "[+]ping ok\nlivez check passed\n"},
	} {
		code, body := ask(t, kubeletapi.Config{Checks: c.checks}, c.path)
		require.Equal(t, c.code, code, c.path)
		require.Equal(t, c.body, body, c.path)
	}
}

func TestHealthzCheck_IsOneCheckInTheKubeletsForm(t *testing.T) {
	t.Parallel()
	good := kubeletapi.Check{Name: "good", Run: func() error { return nil }}
	bad := kubeletapi.Check{Name: "bad", Run: func() error { return errors.New("it\nhurts") }}
	slow := agent.Check{Name: "images", Err: errors.New("the disk is full")}
	stuck := agent.Check{Name: "pods", Err: errors.New("a hook hangs"), Fatal: true}
	for _, c := range []struct {
		path   string
		health []agent.Check
		code   int
		body   string
	}{
		{"/healthz/ping", []agent.Check{stuck}, healthy, "ok"},
		{"/healthz/log", []agent.Check{stuck}, healthy, "ok"},
		{"/healthz/good", nil, healthy, "ok"},
		{"/healthz/bad", nil, unhealthy, "internal server error: it\n  hurts\n"},
		{"/healthz/images", []agent.Check{slow}, healthy, "ok"},
		{"/healthz/pods", []agent.Check{stuck}, unhealthy, "internal server error: a hook hangs\n"},
		{"/healthz/syncloop", []agent.Check{slow}, healthy, "ok"},
		{"/healthz/syncloop", []agent.Check{slow, stuck}, unhealthy, "internal server error: a hook hangs\n"},
		{"/healthz/other", nil, http.StatusNotFound, "404 page not found\n"},
	} {
		cfg := kubeletapi.Config{Agent: &fake{health: c.health}, Checks: []kubeletapi.Check{good, bad}}
		code, body := ask(t, cfg, c.path)
		require.Equal(t, c.code, code, c.path)
		require.Equal(t, c.body, body, c.path)
	}
}

func TestHealthz_FailsWhenTheNodeStaysNotReadyOrARestartHelps(t *testing.T) {
	t.Parallel()
	down := agent.Check{Name: "runtime", Err: errors.New("no\nanswer"), Notes: []string{"since noon"}}
	stuck := agent.Check{Name: "pods", Err: errors.New("a hook hangs"), Fatal: true}
	well := agent.Check{Name: "logs", Notes: []string{"2 files"}}
	const runtimeFailed = "[-]runtime failed: no\n  answer\n"
	const runtimeNoted = "[+]ping ok\n[+]runtime ok\n  no\n  answer\n  since noon\nhealthz check passed\n"
	since := func(ago time.Duration) *corev1.Node {
		node := nodeNamed("n", corev1.ConditionFalse)
		node.Status.Conditions[0].LastTransitionTime.Time = at.Add(-ago)
		return node
	}
	for name, c := range map[string]struct {
		node           *corev1.Node
		checks         []agent.Check
		healthz, ready int
		verbose        string // body of /healthz?verbose
	}{
		"all is well": {nodeNamed("n", corev1.ConditionFalse), []agent.Check{well}, healthy, healthy, "[+]ping ok\n[+]logs ok\n  2 files\nhealthz check passed\n"},
		"the runtime restarts": {
			nodeNamed("n", corev1.ConditionTrue),
			[]agent.Check{down, well},
			healthy, unhealthy, "[+]ping ok\n[+]runtime ok\n  no\n  answer\n  since noon\n[+]logs ok\n  2 files\nhealthz check passed\n",
		},
		"the node is not ready": {nodeNamed("n", corev1.ConditionFalse), []agent.Check{down}, unhealthy, unhealthy, "[+]ping ok\n" + runtimeFailed + "  since noon\nhealthz check failed\n"},
		"readiness is unknown":  {nodeNamed("n", corev1.ConditionUnknown), []agent.Check{down}, unhealthy, unhealthy, "[+]ping ok\n" + runtimeFailed + "  since noon\nhealthz check failed\n"},
		"not ready for long":    {since(31 * time.Second), []agent.Check{down}, unhealthy, unhealthy, "[+]ping ok\n" + runtimeFailed + "  since noon\nhealthz check failed\n"},
		"not ready just now":    {since(time.Second), []agent.Check{down}, healthy, unhealthy, runtimeNoted},
		"readiness is missing":  {&corev1.Node{}, []agent.Check{down}, healthy, unhealthy, runtimeNoted},
		"no node":               {nil, []agent.Check{down}, healthy, unhealthy, runtimeNoted},
		"a restart helps":       {nodeNamed("n", corev1.ConditionTrue), []agent.Check{stuck}, unhealthy, unhealthy, "[+]ping ok\n[-]pods failed: a hook hangs\nhealthz check failed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := kubeletapi.Config{Agent: &fake{node: c.node, health: c.checks}, Clock: testingclock.NewFakeClock(at)}
			code, body := ask(t, cfg, "/healthz?verbose")
			require.Equal(t, c.healthz, code)
			require.Equal(t, c.verbose, body)
			code, _ = ask(t, cfg, "/readyz")
			require.Equal(t, c.ready, code)
			code, body = ask(t, cfg, "/livez?verbose")
			require.Equal(t, healthy, code)
			require.Equal(t, "[+]ping ok\nlivez check passed\n", body)
		})
	}
}

func TestReadyz_ProgramChecksFollowAgentChecks(t *testing.T) {
	t.Parallel()
	cfg := kubeletapi.Config{
		Agent:  &fake{health: []agent.Check{{Name: "runtime"}, {Name: "sources", Err: errors.New("no answer yet")}}},
		Checks: []kubeletapi.Check{{Name: "manifests", Run: func() error { return nil }}},
	}
	_, body := ask(t, cfg, "/readyz?verbose")
	require.Equal(t, "[+]ping ok\n[+]runtime ok\n[-]sources failed: no answer yet\n[+]manifests ok\nreadyz check failed\n", body)
	code, _ := ask(t, cfg, "/readyz?exclude=sources")
	require.Equal(t, healthy, code)
}
