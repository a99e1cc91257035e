package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/fakecri"
)

func (r *running) json(t *testing.T, path string, into any) {
	t.Helper()
	code, body := r.get(t, path)
	require.Equal(t, http.StatusOK, code, "%s: %s", path, body)
	require.NoError(t, json.Unmarshal([]byte(body), into), path)
}

func (r *running) status(t *testing.T) (s api.Status) {
	t.Helper()
	r.json(t, "/agent/status", &s)
	return s
}

func podOf(s api.Status, name string) api.Pod {
	for _, p := range s.Pods {
		if p.Name == name+"-node1" {
			return p
		}
	}
	return api.Pod{}
}

func TestStatus_ShowsTheWholeAgent(t *testing.T) {
	t.Parallel()
	a := start(t)
	await(t, "the flaky pod backs off", func() bool { return podOf(a.status(t), "flaky").State == "CrashLoopBackOff" })
	await(t, "the agent has measured the eviction signals", func() bool { return len(a.status(t).Signals) > 0 })
	s := a.status(t)
	require.Equal(t, "minimal-agent", s.Agent.Name)
	require.Equal(t, "fakecri", s.Runtime.Name)
	require.Contains(t, s.Runtime.Endpoint, "unix://")
	require.Equal(t, "node1", s.Node.Name)
	conditions := map[corev1.NodeConditionType]corev1.ConditionStatus{}
	for _, c := range s.Node.Status.Conditions {
		conditions[c.Type] = c.Status
		require.NotEmpty(t, c.Reason)
		require.False(t, c.LastTransitionTime.IsZero())
	}
	require.Equal(t, map[corev1.NodeConditionType]corev1.ConditionStatus{
		"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True",
	}, conditions)
	web := podOf(s, "web")
	require.Equal(t, "Running", web.State)
	require.Equal(t, 1, web.Ready)
	require.NotNil(t, web.Usage)
	flaky := podOf(s, "flaky")
	require.NotEmpty(t, flaky.Events)
	require.Equal(t, "CrashLoopBackOff", flaky.Containers[0].State)
	require.NotNil(t, flaky.Containers[0].ExitCode)
}

func TestSummaryAndRunningPods_HaveTheKubeletsFormat(t *testing.T) {
	t.Parallel()
	a := start(t)
	await(t, "web runs", func() bool { return a.phase(t, "web") == corev1.PodRunning })
	var summary statsapi.Summary
	a.json(t, "/stats/summary", &summary)
	require.Equal(t, "node1", summary.Node.NodeName)
	web := figuresOf(t, summary, "web-node1")
	require.NotNil(t, web.CPU)
	require.NotNil(t, web.Containers[0].Rootfs)
	summary = statsapi.Summary{}
	a.json(t, "/stats/summary?only_cpu_and_memory=true", &summary)
	require.Nil(t, figuresOf(t, summary, "web-node1").Containers[0].Rootfs)
	require.Nil(t, summary.Node.Fs)
	for _, path := range []string{"/runningpods", "/runningpods/"} {
		var list corev1.PodList
		a.json(t, path, &list)
		require.Equal(t, "PodList", list.Kind)
		found := false
		for _, p := range list.Items {
			if p.Name == "web-node1" {
				found = true
				require.Equal(t, "demo/web:1", p.Spec.Containers[0].Image)
				require.NotEmpty(t, p.UID)
			}
		}
		require.True(t, found, path)
	}
}

// figuresOf returns the figures of a running pod.
func figuresOf(t *testing.T, summary statsapi.Summary, name string) statsapi.PodStats {
	t.Helper()
	for _, p := range summary.Pods {
		if p.PodRef.Name == name {
			require.NotEmpty(t, p.Containers)
			return p
		}
	}
	require.Fail(t, "the pod is missing in the summary", name)
	return statsapi.PodStats{}
}

func TestEvents_CanBeListedAndFollowed(t *testing.T) {
	t.Parallel()
	a := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+"/agent/events?watch", nil)
	require.NoError(t, err)
	stream, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer stream.Body.Close()
	lines, last := bufio.NewScanner(stream.Body), uint64(0)
	for lines.Scan() {
		var e api.Event
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e), lines.Text())
		require.Greater(t, e.Number, last)
		last = e.Number
		if e.Reason == "BackOff" && strings.HasPrefix(e.Name, "flaky") {
			require.Equal(t, "Warning", e.Type)
			break
		}
	}
	require.NoError(t, lines.Err())
	_, body := a.get(t, "/agent/events")
	require.Contains(t, body, `"reason":"Started"`, "normal events must be recorded, too")
	require.NoError(t, a.stop(), "an open stream must not delay the stop")
}

func TestExplain_ReturnsReasonsAndNextSteps(t *testing.T) {
	t.Parallel()
	a := start(t)
	await(t, "the flaky pod backs off", func() bool { return podOf(a.status(t), "flaky").State == "CrashLoopBackOff" })
	var e api.Explanation
	a.json(t, "/agent/explain/default/flaky-node1", &e)
	require.Contains(t, strings.Join(e.Why, "\n"), "CrashLoopBackOff: back-off")
	require.NotEmpty(t, e.Next)
	require.NotNil(t, e.Next[0].At)
	require.Contains(t, e.Next[0].What, "is restarted")
	require.Contains(t, e.Plan, "wait to start container")
	require.Contains(t, e.EvictionOrder, "in the eviction order for")
	_, text := a.get(t, "/agent/explain/default/flaky?output=text")
	require.Contains(t, text, "default/flaky-node1 is CrashLoopBackOff")
	code, _ := a.get(t, "/agent/explain/default/nobody")
	require.Equal(t, http.StatusNotFound, code)
}

func TestPlans_ChangeNothing(t *testing.T) {
	t.Parallel()
	a := start(t)
	await(t, "web runs", func() bool { return a.phase(t, "web") == corev1.PodRunning })
	var plan map[string]json.RawMessage
	a.json(t, "/agent/plan/eviction", &plan)
	require.Contains(t, plan, "thresholds")
	a.json(t, "/agent/plan/gc", &plan)
	require.Contains(t, plan, "images")
	require.Contains(t, plan, "containers")
	for _, path := range []string{"/agent/plan/gc", "/agent/plan/eviction"} {
		code, text := a.get(t, path+"?output=text")
		require.Equal(t, http.StatusOK, code)
		require.NotContains(t, text, "{")
	}
}

func TestLogs_AreServed(t *testing.T) {
	t.Parallel()
	a := start(t)
	await(t, "the flaky pod has restarted", func() bool { return podOf(a.status(t), "flaky").Restarts > 0 })
	container := podOf(a.status(t), "flaky").Containers[0].Name
	code, body := a.get(t, "/containerLogs/default/flaky-node1/"+container+"?previous=true&timestamps=true&tailLines=1")
	require.Equal(t, http.StatusOK, code, body)
	require.NotEmpty(t, body)
	require.Equal(t, 1, strings.Count(body, "\n"))

	web := podOf(a.status(t), "web").Containers[0].Name
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/containerLogs/default/nobody/app":                                                                  {404, `pod "nobody" not found`},
		"/containerLogs/other/flaky-node1/" + container:                                                      {404, `pod "flaky-node1" not found in namespace "other"`},
		"/containerLogs/default/flaky-node1/other":                                                           {404, `container "other" not found in pod "flaky-node1", its containers are: ` + container},
		"/containerLogs/default/web-node1/" + web + "?previous=1":                                            {400, "previous terminated container"},
		"/containerLogs/default/flaky-node1/..%2F..%2F..%2Fetc%2Fpasswd":                                     {404, "not found in pod"},
		"/containerLogs/default/..%2F..%2Fetc/passwd":                                                        {404, "not found in namespace"},
		"/containerLogs/..%2F../x/y":                                                                         {404, "not found in namespace"},
		"/containerLogs/default/flaky-node1/" + container + "?tailLines=-1":                                  {400, `tailLines="-1": must be a number of at least 0`},
		"/containerLogs/default/flaky-node1/" + container + "?follow=perhaps":                                {400, `follow="perhaps": want true or false`},
		"/containerLogs/default/flaky-node1/" + container + "?sinceTime=today":                               {400, `sinceTime="today"`},
		"/containerLogs/default/flaky-node1/" + container + "?limitBytes=0":                                  {400, "at least 1"},
		"/containerLogs/default/flaky-node1/" + container + "?stream=Both":                                   {400, "must be All, Stdout or Stderr"},
		"/containerLogs/default/flaky-node1/" + container + "?follow=1&follow=0":                             {400, "given 2 times"},
		"/containerLogs/default/flaky-node1/" + container + "?sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z": {400, "must not be used with sinceSeconds"},
	} {
		code, body := a.get(t, path)
		require.Equal(t, want.code, code, path)
		require.Contains(t, body, want.text, path)
	}
}

func TestLogs_FollowEndsWithTheAgentAndWithThePod(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifest(t, dir, "a.yaml", strings.ReplaceAll(podManifest, "NAME", "a"))
	manifest(t, dir, "b.yaml", strings.ReplaceAll(podManifest, "NAME", "b"))
	a := start(t, "--manifests", dir)
	await(t, "both pods run", func() bool { return a.phase(t, "a") == corev1.PodRunning && a.phase(t, "b") == corev1.PodRunning })
	follow := func(name string) (wait func() error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+"/containerLogs/default/"+name+"-node1/app?follow=true", nil)
		require.NoError(t, err)
		stream, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, stream.StatusCode)
		done := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, stream.Body)
			done <- errors.Join(err, stream.Body.Close())
		}()
		return func() error { return <-done }
	}
	first, second := follow("a"), follow("b")
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	require.NoError(t, first(), "the stream must end when the pod has terminated")
	began := time.Now()
	require.NoError(t, a.stop())
	require.Less(t, time.Since(began), 5*time.Second)
	_ = second() // the connection breaks in the middle of the response
}

func TestStatus_ShowsATerminatingPodUntilItIsRemoved(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	dir := t.TempDir()
	manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1"))
	a := start(t, "--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", t.TempDir())
	await(t, "a runs", func() bool { return a.phase(t, "a") == corev1.PodRunning })
	require.NoError(t, node.Fail("StopContainer", fakecri.Fault{Hang: true}))
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	await(t, "a is terminating", func() bool { return podOf(a.status(t), "a").State == "Terminating" })
	var e api.Explanation
	await(t, "the explanation has the next two events and their times", func() bool {
		a.json(t, "/agent/explain/default/a", &e)
		return len(e.Next) == 2
	})
	require.Contains(t, e.Why[0], "no source defines it any more")
	require.NotNil(t, e.Next[1].At)
	require.Empty(t, e.Plan)
	node.ClearFaults("")
	await(t, "a is gone", func() bool { return podOf(a.status(t), "a").Name == "" })
	code, _ := a.get(t, "/agent/explain/default/a")
	require.Equal(t, http.StatusNotFound, code)
}

func TestExplain_NamesAnInvalidManifest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifest(t, dir, "bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: [], colour: red}\n")
	manifest(t, dir, "big.yaml", podYAML("big", "demo/web:1")+"    resources: {requests: {cpu: 1000}}\n")
	a := start(t, "--manifests", dir)
	var e api.Explanation
	await(t, "the page explains the problem", func() bool { code, _ := a.get(t, "/agent/explain/default/bad"); return code == http.StatusOK })
	for _, other := range []string{"ba", "a", "yaml", "tmp", "colour", "unknown"} { // these words are in the text of the page
		code, body := a.get(t, "/agent/explain/default/"+other)
		require.Equal(t, http.StatusNotFound, code, "%s: %s", other, body)
	}
	a.json(t, "/agent/explain/default/bad", &e)
	require.Contains(t, e.Why[0], "colour")
	await(t, "the pod big is refused", func() bool { return podOf(a.status(t), "big").State == "OutOfcpu" })
	a.json(t, "/agent/explain/default/big", &e)
	require.Contains(t, e.Why[0], "it was not admitted: OutOfcpu")
	require.NotEmpty(t, a.status(t).Problems)
}

func TestExplain_NamesASecondManifestOfThePod(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifest(t, dir, "a.yaml", podYAML("web", "demo/web:1"))
	manifest(t, dir, "b.yaml", podYAML("web", "demo/web:2"))
	manifest(t, dir, "c.yaml", podYAML("db", "demo/db:1")+"    volumeMounts: [{name: web, mountPath: /d}]\n") // the pod refers to a missing volume
	a := start(t, "--manifests", dir)
	await(t, "web runs", func() bool { return a.phase(t, "web") == corev1.PodRunning })
	var e api.Explanation
	a.json(t, "/agent/explain/default/web", &e)
	require.Contains(t, e.Why[0], "another manifest of this pod is ignored: "+filepath.Join(dir, "b.yaml"))
	require.NotContains(t, strings.Join(e.Why, ""), "c.yaml")
}
