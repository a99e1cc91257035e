//go:build cluster || chaos

package clusterbed_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// auditEvent is a request of the agent in the log of the API server.
type auditEvent struct {
	RequestReceivedTimestamp time.Time
	Stage, Verb              string
	ObjectRef                struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus           struct {
		Code    int
		Message string
	}
}

func auditLog() string { return filepath.Join(bed.env["KPCLUSTER_DIR"], "log", "audit.log") }

// auditMark returns the size of the log, from which auditEvents can continue.
func auditMark(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(auditLog())
	require.NoError(t, err)
	return info.Size()
}

// auditEvents returns the requests of the log from a mark.
func auditEvents(mark int64) (events []auditEvent, err error) {
	data, err := os.ReadFile(auditLog())
	if err != nil {
		return nil, err
	}
	data = data[mark : bytes.LastIndexByte(data, '\n')+1] // the API server may be writing the last line
	for line := range bytes.Lines(data) {
		var e auditEvent
		err := json.Unmarshal(line, &e)
		switch {
		case err == nil:
			events = append(events, e)
		case !bed.faults: // a fault kills the API server while it writes a line
			return nil, fmt.Errorf("%s: %w", auditLog(), err)
		}
	}
	return events, nil
}

// refusedRequests returns an error that names the requests of the agent that the API server has
// refused without need. If a test has caused faults, refusedRequests returns nil.
func refusedRequests() error {
	if bed.faults {
		return nil
	}
	events, err := auditEvents(0)
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
