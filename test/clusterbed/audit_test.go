//go:build cluster || chaos

package clusterbed_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// auditEvent is a request of the agent in the log of the API server.
type auditEvent struct {
	RequestReceivedTimestamp time.Time
	Verb                     string
	ObjectRef                struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus           struct {
		Code    int
		Message string
	}
}

// auditEvents returns all requests so far.
func auditEvents() (events []auditEvent, err error) {
	data, err := os.ReadFile(auditLog())
	if err != nil {
		return nil, err
	}
	data = data[:bytes.LastIndexByte(data, '\n')+1] // the API server may be writing the last line
	for line := range bytes.Lines(data) {
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s: %w", auditLog(), err)
		}
		events = append(events, e)
	}
	return events, nil
}

// refusedRequests returns an error that names the requests of the agent that the API server has
// refused without need. If a test has caused faults, refusedRequests returns nil.
func refusedRequests() error {
	if bed.faults {
		return nil
	}
	events, err := auditEvents()
	if err != nil {
		return err
	}
	refused := map[string]int{}
	for i, e := range events {
		if e.ResponseStatus.Code == 403 && !e.isExpected(events[i+1:]) {
			refused[fmt.Sprintf("%s %s/%s: %s", e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ResponseStatus.Message)]++
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("the API server has refused requests of the agent: %v", refused)
	}
	return nil
}

// isExpected reports whether the API server had to refuse a request: its namespace or its pod was being
// deleted, or the authorizer did not know yet that the pod is bound to the node. Then the agent
// repeats the request, and it succeeds.
func (e auditEvent) isExpected(later []auditEvent) bool {
	if strings.Contains(e.ResponseStatus.Message, "because it is being terminated") {
		return true
	}
	if !strings.Contains(e.ResponseStatus.Message, "no relationship found") {
		return false
	}
	if e.Verb == "get" && e.ObjectRef.Resource == "pods" {
		return true
	}
	return slices.ContainsFunc(later, func(l auditEvent) bool {
		repeated := l.ObjectRef == e.ObjectRef && l.ResponseStatus.Code < 400 // a watch may follow a refused list
		deleted := l.Verb == "delete" && l.ObjectRef.Resource == "pods" && l.ObjectRef.Namespace == e.ObjectRef.Namespace
		return (repeated || deleted) && l.RequestReceivedTimestamp.Sub(e.RequestReceivedTimestamp) < 10*time.Second
	})
}
