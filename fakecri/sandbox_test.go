package fakecri_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestRunPodSandbox_RejectsInvalidConfigs(t *testing.T) {
	groupOnly := podConfig("a", 0)
	groupOnly.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		RunAsGroup: &runtimeapi.Int64Value{Value: 20},
	}}
	for name, tc := range map[string]struct {
		config  *runtimeapi.PodSandboxConfig
		handler string
		want    string
	}{
		"no config":       {nil, "", "must include metadata"},
		"no metadata":     {&runtimeapi.PodSandboxConfig{}, "", "must include metadata"},
		"unknown handler": {podConfig("a", 0), "kata", `no runtime for "kata" is configured`},
		"only a group":    {groupOnly, "", `user group "20" is specified without user`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			_, err := b.RunPodSandbox(t.Context(), tc.config, tc.handler)
			requireCode(t, codes.Unknown, err, tc.want)

			// Nothing of the sandbox remains, and its name is free.
			list, err := b.ListPodSandbox(t.Context(), nil)
			require.NoError(t, err)
			require.Empty(t, list)
			_, err = b.RunPodSandbox(t.Context(), podConfig("a", 0), "runc")
			require.NoError(t, err)
		})
	}
}

func TestRunPodSandbox_NameIsReservedUntilRemoval(t *testing.T) {
	b := newBed(t)
	id := b.pod("a")
	run := func(attempt uint32) error {
		_, err := b.RunPodSandbox(t.Context(), podConfig("a", attempt), "")
		return err
	}
	requireCode(t, codes.FailedPrecondition, run(0), "failed to reserve sandbox name", `"a_default_uid-a_0" is reserved for`, id)
	require.NoError(t, run(1))
	require.NoError(t, b.StopPodSandbox(t.Context(), id))
	requireCode(t, codes.FailedPrecondition, run(0))
	require.NoError(t, b.RemovePodSandbox(t.Context(), id))
	require.NoError(t, run(0))
}

func TestSandbox_Lifecycle(t *testing.T) {
	b := newBed(t)
	id := b.pod("a")
	require.Len(t, id, 64)
	st := b.sandbox(id)
	require.Equal(t, ready, st.GetState())
	require.Equal(t, podConfig("a", 0).GetMetadata().String(), st.GetMetadata().String())
	require.Equal(t, podConfig("a", 0).GetLabels(), st.GetLabels())
	require.Equal(t, podConfig("a", 0).GetAnnotations(), st.GetAnnotations())
	require.Equal(t, "10.88.0.2", st.GetNetwork().GetIp())
	require.Equal(t, epoch.UnixNano(), st.GetCreatedAt())

	for range 2 { // stopping again changes nothing
		require.NoError(t, b.StopPodSandbox(t.Context(), id))
		require.Equal(t, notReady, b.sandbox(id).GetState())
		require.Empty(t, b.sandbox(id).GetNetwork().GetIp())
	}
	require.NoError(t, b.RemovePodSandbox(t.Context(), id))
	_, err := b.PodSandboxStatus(t.Context(), id, false)
	requireCode(t, codes.NotFound, err)
}

func TestUnknownSandbox(t *testing.T) {
	b := newBed(t)
	require.NoError(t, b.StopPodSandbox(t.Context(), "x"))
	require.NoError(t, b.RemovePodSandbox(t.Context(), "x"))
	_, err := b.PodSandboxStatus(t.Context(), "x", true)
	requireCode(t, codes.NotFound, err, `"x"`)
	_, err = b.UpdatePodSandboxResources(t.Context(), &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: "x"})
	requireCode(t, codes.NotFound, err)
	_, err = b.CreateContainer(t.Context(), "x", containerConfig("app", "demo/web:1", 0), podConfig("a", 0))
	requireCode(t, codes.NotFound, err)
}

func TestStopPodSandbox_KillsWithoutAGracePeriod(t *testing.T) {
	b := newBed(t)
	sandbox, app := b.start("a", "demo/web:1")
	waiting := b.make(sandbox, "a", "waiting", "demo/web:1")
	b.clock.Step(time.Second)
	require.NoError(t, b.StopPodSandbox(t.Context(), sandbox))
	b.requireEnded(app, 137, "Error", time.Second)
	require.Equal(t, created, b.status(waiting).GetState())

	// The container cannot be started any more, and its status has the start
	// error.
	err := b.StartContainer(t.Context(), waiting)
	requireCode(t, codes.Unknown, err, "is not running")
	st := b.status(waiting)
	require.Equal(t, exited, st.GetState())
	require.EqualValues(t, 128, st.GetExitCode())
	require.Equal(t, "StartError", st.GetReason())
	require.Contains(t, st.GetMessage(), "is not running")
}

func TestRemovePodSandbox_RemovesItsContainers(t *testing.T) {
	b := newBed(t)
	sandbox, app := b.start("a", "demo/web:1")
	_, other := b.start("b", "demo/web:1")
	require.NoError(t, b.RemovePodSandbox(t.Context(), sandbox))
	_, err := b.ContainerStatus(t.Context(), app, false)
	requireCode(t, codes.NotFound, err)
	require.Equal(t, running, b.status(other).GetState())

	b.start("a", "demo/web:1") // all names are free again
}

func TestHostNetwork_SandboxHasNoAddress(t *testing.T) {
	b := newBed(t)
	config := podConfig("a", 0)
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
	}}
	id, err := b.RunPodSandbox(t.Context(), config, "runc")
	require.NoError(t, err)
	st := b.sandbox(id)
	require.Empty(t, st.GetNetwork().GetIp())
	require.Equal(t, runtimeapi.NamespaceMode_NODE, st.GetLinux().GetNamespaces().GetOptions().GetNetwork())
	require.Equal(t, "runc", st.GetRuntimeHandler())
	require.NoError(t, b.RemovePodSandbox(t.Context(), id))
}

func TestListPodSandbox_FiltersByIDStateAndLabel(t *testing.T) {
	b := newBed(t)
	one, two, three := b.pod("one"), b.pod("two"), b.pod("three")
	require.NoError(t, b.StopPodSandbox(t.Context(), two))
	state := func(s runtimeapi.PodSandboxState) *runtimeapi.PodSandboxStateValue {
		return &runtimeapi.PodSandboxStateValue{State: s}
	}
	for name, tc := range map[string]struct {
		filter *runtimeapi.PodSandboxFilter
		want   []string
	}{
		"no filter":             {nil, []string{one, two, three}},
		"empty filter":          {&runtimeapi.PodSandboxFilter{}, []string{one, two, three}},
		"by id":                 {&runtimeapi.PodSandboxFilter{Id: two}, []string{two}},
		"by unknown id":         {&runtimeapi.PodSandboxFilter{Id: "x"}, nil},
		"ready":                 {&runtimeapi.PodSandboxFilter{State: state(ready)}, []string{one, three}},
		"not ready":             {&runtimeapi.PodSandboxFilter{State: state(notReady)}, []string{two}},
		"by id and wrong state": {&runtimeapi.PodSandboxFilter{Id: two, State: state(ready)}, nil},
		"by label": {&runtimeapi.PodSandboxFilter{
			LabelSelector: map[string]string{"io.kubernetes.pod.name": "three", "app": "demo"},
		}, []string{three}},
		"by label nobody has": {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"none": ""}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := b.ListPodSandbox(t.Context(), tc.filter)
			require.NoError(t, err)
			var got []string
			for _, s := range list {
				got = append(got, s.GetId())
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestListPodSandbox_AgreesWithTheStatus(t *testing.T) {
	b := newBed(t)
	id := b.pod("a")
	list, err := b.ListPodSandbox(t.Context(), nil)
	require.NoError(t, err)
	item, st := list[0], b.sandbox(id)
	require.Equal(t, st.GetId(), item.GetId())
	require.Equal(t, st.GetState(), item.GetState())
	require.Equal(t, st.GetCreatedAt(), item.GetCreatedAt())
	require.Equal(t, st.GetMetadata().String(), item.GetMetadata().String())
	require.Equal(t, st.GetLabels(), item.GetLabels())
	require.Equal(t, st.GetAnnotations(), item.GetAnnotations())
	_, err = b.UpdatePodSandboxResources(t.Context(), &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: id})
	require.NoError(t, err)
}

func TestSandboxes_MessagesAreCopies(t *testing.T) {
	b := newBed(t)
	config := podConfig("a", 0)
	id, err := b.RunPodSandbox(t.Context(), config, "")
	require.NoError(t, err)
	config.Labels["app"], config.Metadata.Name = "changed", "changed"

	list, err := b.ListPodSandbox(t.Context(), nil)
	require.NoError(t, err)
	list[0].Labels["app"], list[0].Metadata.Name = "changed", "changed"
	st := b.sandbox(id)
	require.Equal(t, "demo", st.GetLabels()["app"])
	st.Labels["app"], st.Metadata.Name, st.Network.Ip = "changed", "changed", "changed"
	require.Equal(t, "demo", b.sandbox(id).GetLabels()["app"])
	require.Equal(t, "a", b.sandbox(id).GetMetadata().GetName())
	require.Equal(t, "10.88.0.2", b.sandbox(id).GetNetwork().GetIp())
}
