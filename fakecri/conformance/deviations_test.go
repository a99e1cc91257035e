package conformance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
)

func TestLabels_AreTheKubelets(t *testing.T) {
	require.Equal(t, []string{crilabels.PodName, crilabels.PodNamespace, crilabels.PodUID, crilabels.ContainerName},
		[]string{labelPodName, labelPodNamespace, labelPodUID, labelContainerName})
}

// sameForTheSameName returns the response of the first call of a method for a second call.
func sameForTheSameName[R any](method string, id func(R) *string) twist {
	first := ""
	return func(m string, _, reply any, call func() error) error {
		r, ok := reply.(R)
		if m != method || !ok {
			return call()
		}
		err := call()
		if first == "" {
			first = *id(r)
		}
		if grpcstatus.Code(err) == codes.FailedPrecondition { // the name is reserved
			*id(r) = first
			return nil
		}
		return err
	}
}

// brokenAtCreation refuses to create a container whose command is missing.
func brokenAtCreation(image string) twist {
	return func(m string, request, _ any, call func() error) error {
		if r, ok := request.(*runtimeapi.CreateContainerRequest); ok && m == "CreateContainer" && r.GetConfig().GetImage().GetImage() == image {
			return grpcstatus.Error(codes.Unknown, `container create failed: executable file not found in $PATH`)
		}
		return call()
	}
}

// timeoutIsAnExitCode returns exit code -1 for a timeout, like CRI-O.
func timeoutIsAnExitCode(m string, _, reply any, call func() error) error {
	err := call()
	if r, ok := reply.(*runtimeapi.ExecSyncResponse); ok && m == "ExecSync" && grpcstatus.Code(err) == codes.DeadlineExceeded {
		r.ExitCode, r.Stderr = -1, []byte("command timed out")
		return nil
	}
	return err
}

// waitsForTheGrace makes the stop of a container that was never started take the whole
// grace period.
func waitsForTheGrace(m string, request, _ any, call func() error) error {
	if r, ok := request.(*runtimeapi.StopContainerRequest); ok && m == "StopContainer" {
		<-time.After(time.Duration(r.GetTimeout()) * time.Second)
	}
	return call()
}

// notFoundOnceRemoved returns NotFound for each stop and removal of a pod after the first
// removal.
func notFoundOnceRemoved() twist {
	removed := false
	return func(m string, _, _ any, call func() error) error {
		if removed && (m == "StopPodSandbox" || m == "RemovePodSandbox") {
			return grpcstatus.Error(codes.NotFound, "an error occurred when try to find sandbox: not found")
		}
		err := call()
		removed = removed || err == nil && m == "RemovePodSandbox"
		return err
	}
}

// stopsOnlyAfterTheEnd makes each stop and removal of a pod fail until a status shows that the
// container has exited. This simulates a container that always exits during the stop.
func stopsOnlyAfterTheEnd() twist {
	ended := false
	return func(m string, _, response any, call func() error) error {
		if !ended && (m == "StopPodSandbox" || m == "RemovePodSandbox") {
			return grpcstatus.Error(codes.Unknown, "failed to kill container: ttrpc: closed")
		}
		err := call()
		if r, ok := response.(*runtimeapi.ContainerStatusResponse); ok && r.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			ended = true
		}
		return err
	}
}

func noEventOfRemovedSandboxes(e *runtimeapi.ContainerEventResponse) bool {
	sandbox := e.GetPodSandboxStatus().GetId()
	return e.GetContainerEventType() != runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT || sandbox != "" && sandbox != e.GetContainerId()
}

// Differences from containerd 2.4 that affect no manager.
func TestChecks_AcceptDifferencesOfRuntimes(t *testing.T) {
	for name, tc := range map[string]struct {
		check string
		twist twist
		event func(*runtimeapi.ContainerEventResponse) bool
	}{
		"containerd 1.6 does not find the pod that it removed":  {check: "sandbox/stop-and-remove-again", twist: notFoundOnceRemoved()},
		"containerd 1.7 fails a stop that meets an end: log":    {check: "log/is-written", twist: stopsOnlyAfterTheEnd()},
		"containerd 1.7 fails a stop that meets an end: remove": {check: "sandbox/remove-removes-containers", twist: stopsOnlyAfterTheEnd()},
		"CRI-O labels sandboxes": {
			check: "sandbox/status-shows-config",
			twist: podStatus(func(s *runtimeapi.PodSandboxStatus) { s.Labels["io.kubernetes.container.name"] = "POD" }),
		},
		"CRI-O returns the pod of that name": {
			check: "sandbox/name-is-reserved-until-removal",
			twist: sameForTheSameName("RunPodSandbox", func(r *runtimeapi.RunPodSandboxResponse) *string { return &r.PodSandboxId }),
		},
		"CRI-O returns the container of that name": {
			check: "container/name-is-reserved-until-removal",
			twist: sameForTheSameName("CreateContainer", func(r *runtimeapi.CreateContainerResponse) *string { return &r.ContainerId }),
		},
		"CRI-O refuses to create what cannot start": {check: "container/start-error", twist: brokenAtCreation("demo/broken:1")},
		"CRI-O answers a timeout with an exit code": {check: "exec/timeout", twist: timeoutIsAnExitCode},
		"CRI-O takes created_at at two moments": {
			check: "list/agrees-with-status", twist: answer("ListContainers", func(r *containers) { r.Containers[0].CreatedAt -= 1e8 }),
		},
		"CRI-O waits for what never ran": {check: "stop/created-container", twist: waitsForTheGrace},
		"CRI-O sends no event of removed sandboxes": {
			check: "events/order", event: noEventOfRemovedSandboxes,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := twisted{ClientConnInterface: dialFake(t), twist: tc.twist, event: tc.event}
			if conn.twist == nil {
				conn.twist = untouched
			}
			if conn.event == nil {
				conn.event = keepEvents
			}
			failure, skipped := runCheck(t, tc.check, conn, quickOptions())
			require.Empty(t, failure)
			require.Empty(t, skipped)
		})
	}
}

func TestUnimplementedCalls_SkipOptionalChecks(t *testing.T) {
	for method, checks := range map[string][]string{
		"GetContainerEvents":       {"events/order", "events/pod-status"},
		"UpdateContainerResources": {"container/resources"},
		"ReopenContainerLog":       {"log/is-reopened"},
		"ContainerStats":           {"stats/of-a-container"},
		"PodSandboxStats":          {"stats/of-a-pod"},
		"ListContainerStats":       {"stats/listed"},
		"ListPodSandboxStats":      {"stats/listed"},
	} {
		for _, check := range checks {
			t.Run(method+"/"+check, func(t *testing.T) {
				t.Parallel()
				conn := twisted{ClientConnInterface: dialFake(t), twist: fail(method, codes.Unimplemented)}
				if method != "GetContainerEvents" {
					conn.event = keepEvents
				}
				failure, skipped := runCheck(t, check, conn, quickOptions())
				require.Empty(t, failure)
				require.Contains(t, skipped, "the runtime returned Unimplemented: rpc error: code = Unimplemented desc = twisted")
			})
		}
	}
	failure, skipped := runCheck(t, "sandbox/lifecycle", twisted{
		ClientConnInterface: dialFake(t), twist: fail("RunPodSandbox", codes.Unimplemented),
	}, quickOptions())
	require.Contains(t, failure, "podrunner: cannot create a pod")
	require.Empty(t, skipped)
}
