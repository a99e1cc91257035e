package podcache_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/podcache"
)

func TestSort_AttemptBeforeTime(t *testing.T) {
	box := func(id string, attempt uint32, created int64) *runtimeapi.PodSandboxStatus {
		return &runtimeapi.PodSandboxStatus{Id: id, CreatedAt: created, Metadata: &runtimeapi.PodSandboxMetadata{Attempt: attempt}}
	}
	boxes := []*runtimeapi.PodSandboxStatus{box("first", 0, 300), nil, box("third", 2, 100), box("b", 1, 200), box("c", 1, 200), box("a", 1, 250)}
	podcache.SortSandboxes(boxes)
	var ids []string
	for _, b := range boxes {
		ids = append(ids, b.GetId())
	}
	require.Equal(t, []string{"third", "a", "c", "b", "first", ""}, ids)

	made := func(id, restarts string, created int64) *runtimeapi.ContainerStatus {
		return &runtimeapi.ContainerStatus{
			Id: id, CreatedAt: created, Metadata: &runtimeapi.ContainerMetadata{Name: "cri-" + id, Attempt: 9},
			Annotations: map[string]string{crilabels.RestartCount: restarts},
		}
	}
	all := []*runtimeapi.ContainerStatus{made("nonsense", "x", 1), made("old", "0", 900), made("new", "7", 100)}
	podcache.SortContainers(all)
	require.Equal(t, []string{"new", "old", "nonsense"}, []string{all[0].Id, all[1].Id, all[2].Id})
	require.Equal(t, 7, podcache.RestartCount(all[0]))
	require.Zero(t, podcache.RestartCount(all[2]), "the attempt must not be used as the restart count")
	require.Empty(t, podcache.ContainerName(all[0]), "the CRI name must not be used as the container name")
}

func TestStatus_Methods(t *testing.T) {
	container := func(name string, s runtimeapi.ContainerState) *runtimeapi.ContainerStatus {
		return &runtimeapi.ContainerStatus{Id: name + s.String(), State: s, Labels: map[string]string{crilabels.ContainerName: name}}
	}
	ready := &runtimeapi.PodSandboxStatus{Id: "r"}
	ended := &runtimeapi.PodSandboxStatus{Id: "e", State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}
	dead := container("app", runtimeapi.ContainerState_CONTAINER_EXITED)

	s := podcache.Status{Sandboxes: []*runtimeapi.PodSandboxStatus{ready, ended}, Containers: []*runtimeapi.ContainerStatus{dead}}
	require.Same(t, ready, s.ReadySandbox())
	require.True(t, s.Running())
	require.Same(t, dead, s.Container("app"))
	require.Nil(t, s.Container("other"))

	s.Sandboxes = []*runtimeapi.PodSandboxStatus{ended, ready}
	require.Nil(t, s.ReadySandbox(), "only the newest sandbox counts")
	require.True(t, s.Running())

	s.Sandboxes = nil
	require.Nil(t, s.ReadySandbox())
	require.False(t, s.Running())
	s.Containers = append(s.Containers, container("lost", runtimeapi.ContainerState_CONTAINER_UNKNOWN))
	require.True(t, s.Running(), "a container in an unknown state may be running")
}

// The messages are from containerd, for starts that were cancelled after some
// milliseconds, and for starts that could not succeed.
func TestStartInterrupted(t *testing.T) {
	t.Parallel()
	const canceled = "failed to create containerd task: failed to create shim task: context canceled"
	dead := runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 128, Reason: "StartError"}
	for message, want := range map[string]bool{
		canceled: true,
		"failed to create containerd task: failed to create shim task: context deadline exceeded":                                                                                                       true,
		"failed to create containerd task: failed to get task pid: context canceled":                                                                                                                    false,
		`failed to start containerd task "bdf9": context canceled`:                                                                                                                                      true,
		`failed to start containerd task "45b9": OCI runtime start failed: /usr/sbin/runc did not terminate successfully: exit status 137: `:                                                            true,
		"failed to create containerd task: failed to start shim: start failed: : signal: killed: unknown":                                                                                               true,
		"failed to create containerd task: failed to create shim task: context canceled: unknown":                                                                                                       true,
		`failed to start containerd task "45b9": OCI runtime start failed: runc did not terminate successfully: exit status 137: unknown`:                                                               true,
		`failed to create containerd task: failed to start shim: start failed: exec: "signal: killed": executable file not found in $PATH`:                                                              false,
		`failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "x": executable file not found in $PATH`: false,
		`failed to create containerd task: exec: "did not terminate successfully: exit status 137": executable file not found in $PATH: unknown`:                                                        false,
		`failed to start containerd task "5821": OCI runtime start failed: context deadline exceeded: <nil>`:                                                                                            true,
		"": false,
	} {
		c := proto.CloneOf(&dead)
		c.Message = message
		require.Equal(t, want, podcache.StartInterrupted(c), message)
	}
	for what, change := range map[string]func(c *runtimeapi.ContainerStatus){
		"the container was started":      func(c *runtimeapi.ContainerStatus) { c.StartedAt = 1 },
		"the container runs":             func(c *runtimeapi.ContainerStatus) { c.State = runtimeapi.ContainerState_CONTAINER_RUNNING },
		"the container exited by itself": func(c *runtimeapi.ContainerStatus) { c.Reason = "Error" },
		"the container is only created":  func(c *runtimeapi.ContainerStatus) { c.State = runtimeapi.ContainerState_CONTAINER_CREATED },
		"the state is unknown":           func(c *runtimeapi.ContainerStatus) { c.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN },
	} {
		c := proto.CloneOf(&dead)
		c.Message = canceled
		require.True(t, podcache.StartInterrupted(c))
		change(c)
		require.False(t, podcache.StartInterrupted(c), what)
	}
	require.False(t, podcache.StartInterrupted(nil))
}

func TestActive_NewestSandboxOnly(t *testing.T) {
	t.Parallel()
	s := &podcache.Status{
		Sandboxes: []*runtimeapi.PodSandboxStatus{{Id: "new"}, {Id: "old"}},
		Containers: []*runtimeapi.ContainerStatus{
			{Id: "a2", Labels: map[string]string{crilabels.ContainerName: "a"}},
			{Id: "a1", Labels: map[string]string{crilabels.ContainerName: "a"}},
			{Id: "b0", Labels: map[string]string{crilabels.ContainerName: "b"}},
		},
		SandboxOf: map[string]string{"a2": "old", "a1": "new", "b0": "old"},
	}
	require.Equal(t, "a1", s.Active("a").GetId())
	require.Nil(t, s.Active("b"))
	require.Nil(t, s.Active("c"))
	s.Sandboxes[0] = nil
	delete(s.SandboxOf, "a1")
	require.Nil(t, s.Active("a"), "a container without a known sandbox must not match a newest sandbox without an ID")
	s.Sandboxes = nil
	require.Nil(t, s.Active("a"))
}
