//go:build chaos

package clusterbed_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// check waits until the API server has the status of every container, stops the record, and requires
// all invariants:
//
//   - no container of a pod runs twice at the same time;
//   - no container is restarted without a cause;
//   - no pod is deleted while one of its containers runs;
//   - the final status of each pod is delivered;
//   - the phase of a pod never goes back.
func (h *history) check(t *testing.T) {
	t.Helper()
	h.awaitStatuses(t)
	h.stop()
	requests := h.requests(t)
	broken := append(h.broken, h.brokenByContainers()...)
	broken = append(broken, h.brokenByDeletions(requests)...)
	restarts, patches := 0, 0
	for _, c := range h.all() {
		restarts += min(int(c.attempt), 1)
	}
	for _, q := range requests {
		if q.Verb == "patch" && q.ObjectRef.Subresource == "status" {
			patches++
		}
	}
	t.Logf("%d pods, %d containers, %d of them restarts, %d patches of a status", len(h.pods), len(h.containers), restarts, patches)
	require.NotEmpty(t, h.pods)
	require.NotEmpty(t, h.containers)
	require.NotEmpty(t, requests)
	require.Empty(t, broken, "%s\n%s", strings.Join(broken, "\n"), lastLines())
}

// awaitStatuses waits until the statuses of all pods at the API server are those of the containers of
// the runtime.
func (h *history) awaitStatuses(t *testing.T) {
	t.Helper()
	var missing []string
	defer func() {
		if t.Failed() {
			t.Log(strings.Join(missing, "\n"))
		}
	}()
	awaitWithin(t, 3*time.Minute, "the API server has the status of every container", func() bool {
		var pods corev1.PodList
		if err := get(t.Context(), h.client, "/api/v1/namespaces/"+h.namespace+"/pods", &pods); err != nil {
			missing = []string{err.Error()}
			return false
		}
		missing = nil
		for i := range pods.Items {
			missing = append(missing, h.missingOf(&pods.Items[i])...)
		}
		return len(missing) == 0
	})
}

// missingOf returns what the status of a pod lacks.
func (h *history) missingOf(p *corev1.Pod) (missing []string) {
	last, running := map[string]container{}, false
	for _, c := range h.of(p.Name) {
		if c.runtime == bed.env["CRI_SOCKET"] && c.pod == p.UID && !c.started.IsZero() {
			last[c.name] = c
			running = running || c.finished.IsZero()
		}
	}
	if p.Spec.RestartPolicy == corev1.RestartPolicyNever && !running && len(last) == len(p.Spec.Containers) && !isFinal(p.Status.Phase) {
		missing = append(missing, fmt.Sprintf("pod %s has ended, but its phase is %s", p.Name, p.Status.Phase))
	}
	for _, status := range p.Status.ContainerStatuses {
		c, known := last[status.Name]
		isRunning := known && c.finished.IsZero()
		switch {
		case !known:
		case (status.State.Running != nil) != isRunning:
			missing = append(missing, fmt.Sprintf("the status of %s is %v", c, status.State))
		case isRunning && status.ContainerID != "containerd://"+c.id:
			missing = append(missing, fmt.Sprintf("the status of %s has the ID %s", c, status.ContainerID))
		case status.RestartCount < int32(c.attempt), status.RestartCount > int32(c.attempt) && !h.restored:
			missing = append(missing, fmt.Sprintf("the status of %s has %d restarts", c, status.RestartCount))
		}
	}
	return missing
}

// brokenByContainers returns the invariants that containers break.
func (h *history) brokenByContainers() (broken []string) {
	previous := map[string]container{} // by runtime, pod and name of the container
	for _, c := range h.all() {
		if c.started.IsZero() {
			continue
		}
		key := c.runtime + " " + string(c.pod) + " " + c.name
		before, restarted := previous[key]
		previous[key] = c
		if !restarted || before.lost {
			continue
		}
		if before.finished.IsZero() || before.finished.After(c.started) {
			broken = append(broken, fmt.Sprintf("%s runs at the same time as %s", c, before))
		}
		exit, ends := h.exits[c.podName]
		if before.reason != "StartError" && (!ends || before.exitCode != exit) {
			broken = append(broken, fmt.Sprintf("%s was restarted without a cause after %s", c, before))
		}
	}
	return broken
}

// brokenByDeletions returns the invariants that deleted pods break.
func (h *history) brokenByDeletions(requests []auditEvent) (broken []string) {
	for _, q := range requests {
		if q.Verb != "delete" || q.ObjectRef.Resource != "pods" || q.ResponseStatus.Code != 200 {
			continue
		}
		for _, c := range h.of(q.ObjectRef.Name) {
			ran := !c.lost && !c.started.IsZero() && c.started.Before(q.RequestReceivedTimestamp)
			if ran && (c.finished.IsZero() || c.finished.After(q.RequestReceivedTimestamp)) {
				broken = append(broken, fmt.Sprintf("the agent deleted its pod at %s: %s", q.RequestReceivedTimestamp.Local().Format(clockFormat), c))
			}
		}
	}
	for _, c := range h.all() {
		p := h.pods[c.pod]
		if p == nil || p.gone.IsZero() || c.lost || c.started.IsZero() || h.othersDelete {
			continue
		}
		if c.finished.IsZero() || c.finished.After(p.gone) {
			broken = append(broken, fmt.Sprintf("its pod was gone at %s: %s", p.gone.Format(clockFormat), c))
		}
	}
	return broken
}

// requests returns the completed requests of the node about the namespace of the test, since the test
// began.
func (h *history) requests(t *testing.T) (requests []auditEvent) {
	t.Helper()
	events, err := auditEvents(h.audited)
	require.NoError(t, err)
	for _, e := range events {
		if e.ofNode() && e.Stage == "ResponseComplete" && e.ObjectRef.Namespace == h.namespace {
			requests = append(requests, e)
		}
	}
	return requests
}
