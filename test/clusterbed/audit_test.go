//go:build cluster || chaos

package clusterbed_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// auditEvent is a request in the log of the API server: a request of the node, or the deletion of pods
// or namespaces.
type auditEvent struct {
	User                     struct{ Username string }
	RequestReceivedTimestamp time.Time
	Stage, Verb              string
	ObjectRef                struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus           struct {
		Code    int
		Message string
	}
}

// ofNode reports whether the node has sent the request.
func (e auditEvent) ofNode() bool { return e.User.Username == "system:node:"+bed.env["NODE_NAME"] }

func auditLog() string { return filepath.Join(bed.env["KPCLUSTER_DIR"], "log", "audit.log") }

// auditMark returns the size of the log, from which auditEvents can continue.
func auditMark(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(auditLog())
	require.NoError(t, err)
	return info.Size()
}

// auditEvents returns the requests in the log after a mark.
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
	if !slices.ContainsFunc(events, auditEvent.ofNode) {
		return errors.New("the audit log has no request of the node")
	}
	refused := map[string]int{}
	for _, e := range events {
		if e.ofNode() && e.ResponseStatus.Code == 403 && !e.isExpected(events) {
			refused[fmt.Sprintf("%s %s/%s: %s", e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ResponseStatus.Message)]++
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("the API server has refused requests of the agent: %v", refused)
	}
	return nil
}

// isExpected reports whether the API server had to refuse a request. There are two cases: the pod or
// the namespace of the request was being deleted; or the API server did not know yet that the pod is
// bound to the node. In the second case, the agent must have repeated the request with success.
func (e auditEvent) isExpected(all []auditEvent) bool {
	message := e.ResponseStatus.Message
	if strings.Contains(message, "because it is being terminated") {
		return true
	}
	if !strings.Contains(message, "no relationship found") && !strings.Contains(message, "bound to a pod scheduled on a different node") {
		return false
	}
	return slices.ContainsFunc(all, func(o auditEvent) bool {
		after := o.RequestReceivedTimestamp.Sub(e.RequestReceivedTimestamp)
		repeated := o.ofNode() && after > 0 && o.ObjectRef == e.ObjectRef && o.ResponseStatus.Code < 400 // a watch may follow a refused list
		return after.Abs() < time.Minute && (repeated || o.deletes(e.ObjectRef.Namespace))
	})
}

// deletes reports whether the request deletes pods of a namespace, or the namespace.
func (e auditEvent) deletes(namespace string) bool {
	if e.Verb != "delete" && e.Verb != "deletecollection" {
		return false
	}
	return e.ObjectRef.Resource == "pods" && e.ObjectRef.Namespace == namespace || e.ObjectRef.Resource == "namespaces" && e.ObjectRef.Name == namespace
}
