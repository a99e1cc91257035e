package fakecri_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

func TestCreateContainer_RejectsInvalidRequests(t *testing.T) {
	b := newBed(t)
	sandbox := b.pod("a")
	noMeta := &runtimeapi.ContainerConfig{Image: &runtimeapi.ImageSpec{Image: "demo/web:1"}}
	groupOnly := containerConfig("app", "demo/web:1", 0)
	groupOnly.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
		RunAsGroup: &runtimeapi.Int64Value{Value: 20},
	}}
	for name, tc := range map[string]struct {
		config *runtimeapi.ContainerConfig
		pod    *runtimeapi.PodSandboxConfig
		code   codes.Code
		want   string
	}{
		"no config":         {nil, podConfig("a", 0), codes.Unknown, "container config must include metadata"},
		"no metadata":       {noMeta, podConfig("a", 0), codes.Unknown, "container config must include metadata"},
		"no sandbox config": {containerConfig("app", "demo/web:1", 0), nil, codes.Unknown, "sandbox config must include metadata"},
		"image not there":   {containerConfig("app", "demo/none:1", 0), podConfig("a", 0), codes.NotFound, `failed to resolve image "demo/none:1"`},
		"no image":          {containerConfig("app", "", 0), podConfig("a", 0), codes.NotFound, "failed to resolve image"},
		"not an image name": {containerConfig("app", "A B", 0), podConfig("a", 0), codes.NotFound, "failed to resolve image"},
		"only a group":      {groupOnly, podConfig("a", 0), codes.Unknown, `user group "20" is specified without user`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.CreateContainer(t.Context(), sandbox, tc.config, tc.pod)
			requireCode(t, tc.code, err, tc.want)
		})
	}
	groupOnly.Linux.SecurityContext.RunAsUsername = "www"
	id, err := b.CreateContainer(t.Context(), sandbox, groupOnly, podConfig("a", 0)) // the failed calls have not reserved the name
	require.NoError(t, err)
	require.NoError(t, b.RemoveContainer(t.Context(), id))
	groupOnly.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{
		RunAsUser: &runtimeapi.Int64Value{}, RunAsGroup: &runtimeapi.Int64Value{Value: 20},
	}
	_, err = b.CreateContainer(t.Context(), sandbox, groupOnly, podConfig("a", 0))
	require.NoError(t, err, "root must be accepted as a user")
}

func TestCreateContainer_NameIsReservedInItsPod(t *testing.T) {
	b := newBed(t)
	sandbox := b.pod("a")
	id := b.make(sandbox, "a", "app", "demo/web:1")
	create := func(attempt uint32) error {
		_, err := b.CreateContainer(t.Context(), sandbox, containerConfig("app", "demo/web:1", attempt), podConfig("a", 0))
		return err
	}
	requireCode(t, codes.FailedPrecondition, create(0),
		"failed to reserve container name", `"app_a_default_uid-a_0" is reserved for`, id)
	require.NoError(t, create(1))
	b.make(b.pod("b"), "b", "app", "demo/web:1")
	require.NoError(t, b.RemoveContainer(t.Context(), id))
	require.NoError(t, create(0))
}

func TestContainer_Lifecycle(t *testing.T) {
	b := newBed(t)
	sandbox := b.pod("a")
	config := containerConfig("app", "demo/job:1", 3)
	config.LogPath = "app/3.log"
	config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/in", HostPath: "/out"}}
	config.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpuShares: 7}}
	pod := podConfig("a", 0)
	pod.LogDirectory = "/nonexistent/logs"
	id, err := b.CreateContainer(t.Context(), sandbox, config, pod)
	require.NoError(t, err)
	require.Len(t, id, 64)

	st := b.status(id)
	require.Equal(t, created, st.GetState())
	require.Zero(t, st.GetStartedAt())
	require.Zero(t, st.GetFinishedAt())
	require.Equal(t, config.GetMetadata().String(), st.GetMetadata().String())
	require.Equal(t, config.GetLabels(), st.GetLabels())
	require.Equal(t, config.GetAnnotations(), st.GetAnnotations())
	require.Equal(t, "/nonexistent/logs/app/3.log", st.GetLogPath())
	require.Equal(t, "/in", st.GetMounts()[0].GetContainerPath())
	require.EqualValues(t, 7, st.GetResources().GetLinux().GetCpuShares())
	require.Equal(t, "docker.io/demo/job:1", st.GetImage().GetImage())
	require.Regexp(t, `^docker\.io/demo/job@sha256:[0-9a-f]{64}$`, st.GetImageRef())
	require.Regexp(t, `^sha256:[0-9a-f]{64}$`, st.GetImageId())

	b.clock.Step(time.Second)
	require.NoError(t, b.StartContainer(t.Context(), id))
	st = b.status(id)
	require.Equal(t, running, st.GetState())
	require.Equal(t, epoch.Add(time.Second).UnixNano(), st.GetStartedAt())
	require.Zero(t, st.GetFinishedAt())

	b.clock.Step(499 * time.Millisecond)
	require.Equal(t, running, b.status(id).GetState())
	b.clock.Step(time.Hour) // the result does not depend on the time of the next call
	b.requireEnded(id, 0, "Completed", 500*time.Millisecond)

	requireCode(t, codes.Unknown, b.StartContainer(t.Context(), id), "CONTAINER_EXITED state")
	require.NoError(t, b.RemoveContainer(t.Context(), id))
	_, err = b.ContainerStatus(t.Context(), id, false)
	requireCode(t, codes.NotFound, err)
}

func TestStartingTwice(t *testing.T) {
	b := newBed(t)
	_, id := b.start("a", "demo/web:1")
	requireCode(t, codes.Unknown, b.StartContainer(t.Context(), id), "CONTAINER_RUNNING state")
	require.Equal(t, running, b.status(id).GetState())
}

func TestUnknownContainer(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	require.NoError(t, b.StopContainer(ctx, "x", 10))
	require.NoError(t, b.RemoveContainer(ctx, "x"))
	requireCode(t, codes.NotFound, b.StartContainer(ctx, "x"))
	requireCode(t, codes.NotFound, b.UpdateContainerResources(ctx, "x", nil))
	requireCode(t, codes.NotFound, b.ReopenContainerLog(ctx, "x"))
	_, err := b.ContainerStatus(ctx, "x", true)
	requireCode(t, codes.NotFound, err)
	_, _, err = b.ExecSync(ctx, "x", []string{"true"}, 0)
	requireCode(t, codes.NotFound, err)
}

func TestPrograms_ExitOnlyAsConfigured(t *testing.T) {
	for image, want := range map[string]struct {
		after  time.Duration
		code   int32
		reason string
	}{
		"demo/job:1":    {500 * time.Millisecond, 0, "Completed"},
		"demo/crash:1":  {time.Second, 1, "Error"},
		"demo/flaky:1":  {time.Second, 1, "Error"},
		"demo/hungry:1": {2 * time.Second, 137, "OOMKilled"},
	} {
		t.Run(image, func(t *testing.T) {
			b := newBed(t)
			_, id := b.start("a", image)
			b.clock.Step(time.Minute)
			b.requireEnded(id, want.code, want.reason, want.after)
		})
	}
	for _, image := range []string{"demo/web:1", "demo/slow:1", "demo/stubborn:1"} {
		t.Run(image+" runs on", func(t *testing.T) {
			b := newBed(t)
			_, id := b.start("a", image)
			b.clock.Step(1000 * time.Hour)
			require.Equal(t, running, b.status(id).GetState())
		})
	}
}

func TestPrograms_CrashesAreCountedByAttempt(t *testing.T) {
	b := newBed(t)
	sandbox := b.pod("a")
	for attempt, want := range []runtimeapi.ContainerState{exited, exited, running, running} {
		id, err := b.CreateContainer(t.Context(), sandbox, containerConfig("app", "demo/flaky:1", uint32(attempt)), podConfig("a", 0))
		require.NoError(t, err)
		require.NoError(t, b.StartContainer(t.Context(), id))
		b.clock.Step(time.Minute)
		require.Equal(t, want, b.status(id).GetState(), "attempt %d", attempt)
	}
}

func TestStartContainer_FailedStartIsAStartError(t *testing.T) {
	b := newBed(t)
	id := b.make(b.pod("a"), "a", "app", "demo/broken:1")
	requireCode(t, codes.Unknown, b.StartContainer(t.Context(), id), "no such file or directory")
	st := b.status(id)
	require.Equal(t, exited, st.GetState())
	require.EqualValues(t, 128, st.GetExitCode())
	require.Equal(t, "StartError", st.GetReason())
	require.Contains(t, st.GetMessage(), "no such file or directory")
	require.NotZero(t, st.GetFinishedAt())
	require.Zero(t, st.GetStartedAt())
}

func TestStopContainer(t *testing.T) {
	programs := map[string]fakecri.Program{
		"p/plain":    {},
		"p/clean":    {TermExitCode: new(int32)},
		"p/delay":    {TermDelay: 3 * time.Second, TermExitCode: new(int32(7))},
		"p/stubborn": {IgnoreTerm: true},
		"p/job":      {Runtime: 2 * time.Second, ExitCode: 5, IgnoreTerm: true},
		"p/oom":      {Runtime: 2 * time.Second, OOMKilled: true, TermDelay: 5 * time.Second},
	}
	for name, tc := range map[string]struct {
		image   string
		timeout int64
		code    int32
		reason  string
		took    time.Duration
	}{
		"a plain program dies of SIGTERM":                              {"p/plain", 30, 143, "Error", 0},
		"a handler exits with its own code":                            {"p/clean", 30, 0, "Completed", 0},
		"the handler takes its time":                                   {"p/delay", 30, 7, "Error", 3 * time.Second},
		"the grace period ends before the handler":                     {"p/delay", 2, 137, "Error", 2 * time.Second},
		"SIGTERM is ignored, SIGKILL is not":                           {"p/stubborn", 10, 137, "Error", 10 * time.Second},
		"a grace period of 0 is SIGKILL at once":                       {"p/clean", 0, 137, "Error", 0},
		"a negative grace period is 0":                                 {"p/clean", -1, 137, "Error", 0},
		"the container exits by itself within the grace period":        {"p/job", 10, 5, "Error", 2 * time.Second},
		"the container is OOM killed during the grace period":          {"p/oom", 10, 137, "OOMKilled", 2 * time.Second},
		"the maximum grace period does not overflow to 0":              {"p/delay", math.MaxInt64, 7, "Error", 3 * time.Second},
		"a second of the grace period is a second of the node's clock": {"p/stubborn", 1, 137, "Error", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, func(c *fakecri.Config) {
					c.Clock, c.Programs, c.PullAny = nil, programs, true
				})
				_, err := b.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: tc.image}, nil, nil)
				require.NoError(t, err)
				_, id := b.start("a", tc.image)
				before := time.Now()
				require.NoError(t, b.StopContainer(t.Context(), id, tc.timeout))
				require.Equal(t, tc.took, time.Since(before))
				b.requireEnded(id, tc.code, tc.reason, tc.took)

				require.NoError(t, b.StopContainer(t.Context(), id, tc.timeout)) // the container is already stopped
			})
		})
	}
}

func TestStopContainer_CreatedContainer(t *testing.T) {
	b := newBed(t)
	id := b.make(b.pod("a"), "a", "app", "demo/web:1")
	require.NoError(t, b.StopContainer(t.Context(), id, 30))
	require.Equal(t, created, b.status(id).GetState())
}

func TestStopContainer_CancelledCallLeavesTheContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *fakecri.Config) { c.Clock = nil })
		_, slow := b.start("a", "demo/slow:1")
		_, stubborn := b.start("b", "demo/stubborn:1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		requireCode(t, codes.DeadlineExceeded, b.StopContainer(ctx, slow, 2))
		requireCode(t, codes.DeadlineExceeded, b.StopContainer(ctx, stubborn, 2))
		require.Equal(t, running, b.status(slow).GetState())

		time.Sleep(time.Hour)
		b.requireEnded(slow, 0, "Completed", 3*time.Second)      // the container has exited after SIGTERM
		require.Equal(t, running, b.status(stubborn).GetState()) // the container got no SIGKILL
	})
}

func TestStopContainer_SecondStopHasItsOwnGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *fakecri.Config) { c.Clock = nil })
		_, id := b.start("a", "demo/slow:1")
		first := make(chan error, 1)
		go func() { first <- b.StopContainer(t.Context(), id, 60) }()
		time.Sleep(2 * time.Second)
		// A second SIGTERM would delay the exit to the fifth second.
		require.NoError(t, b.StopContainer(t.Context(), id, 60))
		require.NoError(t, <-first)
		b.requireEnded(id, 0, "Completed", 3*time.Second)

		_, id = b.start("b", "demo/stubborn:1")
		go func() { first <- b.StopContainer(t.Context(), id, 60) }()
		time.Sleep(2 * time.Second)
		require.NoError(t, b.StopContainer(t.Context(), id, 1)) // a shorter grace period takes effect
		require.NoError(t, <-first)
		b.requireEnded(id, 137, "Error", 3*time.Second)
	})
}

func TestStopContainer_EndsOnASteppedClock(t *testing.T) {
	b := newBed(t)
	_, id := b.start("a", "demo/stubborn:1")
	done := make(chan error, 1)
	go func() { done <- b.StopContainer(t.Context(), id, 10) }()
	// The wait ends, regardless of whether the clock is stepped before or after
	// the timer is set.
	for {
		select {
		case err := <-done:
			require.NoError(t, err)
			require.Equal(t, exited, b.status(id).GetState())
			require.EqualValues(t, 137, b.status(id).GetExitCode())
			return
		default:
			b.clock.Step(3 * time.Second)
		}
	}
}

func TestRemoveContainer_EndsAPendingStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *fakecri.Config) { c.Clock = nil })
		_, id := b.start("a", "demo/stubborn:1")
		stop := make(chan error, 1)
		go func() { stop <- b.StopContainer(t.Context(), id, 60) }()
		synctest.Wait()
		require.NoError(t, b.RemoveContainer(t.Context(), id))
		require.NoError(t, <-stop) // the call that waits for the end of the container returns
		require.NoError(t, b.RemoveContainer(t.Context(), id))
	})
}

func TestListContainers_FiltersByIDStateAndLabel(t *testing.T) {
	b := newBed(t)
	podA, a := b.start("a", "demo/web:1")
	podB, first := b.start("b", "demo/job:1")
	second := b.make(podB, "b", "side", "demo/web:1")
	b.clock.Step(time.Second)
	state := func(s runtimeapi.ContainerState) *runtimeapi.ContainerStateValue {
		return &runtimeapi.ContainerStateValue{State: s}
	}
	for name, tc := range map[string]struct {
		filter *runtimeapi.ContainerFilter
		want   []string
	}{
		"no filter":           {nil, []string{a, first, second}},
		"by id":               {&runtimeapi.ContainerFilter{Id: first}, []string{first}},
		"by unknown id":       {&runtimeapi.ContainerFilter{Id: "x"}, nil},
		"running":             {&runtimeapi.ContainerFilter{State: state(running)}, []string{a}},
		"exited":              {&runtimeapi.ContainerFilter{State: state(exited)}, []string{first}},
		"created":             {&runtimeapi.ContainerFilter{State: state(created)}, []string{second}},
		"by sandbox":          {&runtimeapi.ContainerFilter{PodSandboxId: podB}, []string{first, second}},
		"by sandbox and id":   {&runtimeapi.ContainerFilter{PodSandboxId: podA, Id: first}, nil},
		"by label":            {&runtimeapi.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.container.name": "app"}}, []string{a, first}},
		"by label's value":    {&runtimeapi.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.container.name": ""}}, nil},
		"by label and others": {&runtimeapi.ContainerFilter{PodSandboxId: podB, State: state(exited), LabelSelector: map[string]string{"io.kubernetes.container.name": "app"}}, []string{first}},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := b.ListContainers(t.Context(), tc.filter)
			require.NoError(t, err)
			var got []string
			for _, c := range list {
				got = append(got, c.GetId())
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestListContainers_ImageAsRequestedAndStatusAsResolved(t *testing.T) {
	b := newBed(t)
	sandbox := b.pod("a")
	config := containerConfig("app", "demo/web:1", 0)
	config.Image.UserSpecifiedImage = "web"
	id, err := b.CreateContainer(t.Context(), sandbox, config, podConfig("a", 0))
	require.NoError(t, err)
	list, err := b.ListContainers(t.Context(), nil)
	require.NoError(t, err)
	item, st := list[0], b.status(id)
	require.Equal(t, "demo/web:1", item.GetImage().GetImage())
	require.Equal(t, "web", item.GetImage().GetUserSpecifiedImage())
	require.Equal(t, st.GetImageId(), item.GetImageId())
	require.Equal(t, st.GetImageId(), item.GetImageRef())
	require.Equal(t, sandbox, item.GetPodSandboxId())
	require.Equal(t, st.GetState(), item.GetState())
	require.Equal(t, st.GetCreatedAt(), item.GetCreatedAt())
	require.Equal(t, st.GetMetadata().String(), item.GetMetadata().String())
	require.Equal(t, st.GetLabels(), item.GetLabels())
	require.Equal(t, st.GetAnnotations(), item.GetAnnotations())

	// After the removal of its image, the status of a container has the image name of its
	// config.
	require.NoError(t, b.RemoveImage(t.Context(), &runtimeapi.ImageSpec{Image: st.GetImageId()}))
	gone := b.status(id)
	require.Equal(t, "demo/web:1", gone.GetImage().GetImage())
	require.Equal(t, st.GetImageId(), gone.GetImageRef())
}

func TestContainers_MessagesAreCopies(t *testing.T) {
	b := newBed(t)
	config := containerConfig("app", "demo/web:1", 0)
	config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/in"}}
	id, err := b.CreateContainer(t.Context(), b.pod("a"), config, podConfig("a", 0))
	require.NoError(t, err)
	config.Labels["x"], config.Metadata.Name, config.Mounts[0].ContainerPath = "y", "changed", "changed"
	list, err := b.ListContainers(t.Context(), nil)
	require.NoError(t, err)
	list[0].Labels["x"], list[0].Metadata.Name, list[0].Image.Image = "y", "changed", "changed"
	st := b.status(id)
	st.Labels["x"], st.Metadata.Name, st.Mounts[0].ContainerPath = "y", "changed", "changed"

	st = b.status(id)
	require.Equal(t, containerConfig("app", "", 0).GetLabels(), st.GetLabels())
	require.Equal(t, "app", st.GetMetadata().GetName())
	require.Equal(t, "/in", st.GetMounts()[0].GetContainerPath())
}

func TestUpdateContainerResources(t *testing.T) {
	b := newBed(t)
	_, id := b.start("a", "demo/web:1")
	require.NotNil(t, b.status(id).GetResources().GetLinux()) // empty, as in containerd
	update := func(r *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
		require.NoError(t, b.UpdateContainerResources(t.Context(), id, &runtimeapi.ContainerResources{Linux: r}))
		return b.status(id).GetResources().GetLinux()
	}
	huge := []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 1}}
	update(&runtimeapi.LinuxContainerResources{CpuShares: 512, HugepageLimits: huge})
	got := update(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 20, HugepageLimits: huge})
	require.EqualValues(t, 512, got.GetCpuShares())
	require.EqualValues(t, 1<<20, got.GetMemoryLimitInBytes())
	require.Len(t, got.GetHugepageLimits(), 1)
	require.NoError(t, b.UpdateContainerResources(t.Context(), id, nil))
	require.EqualValues(t, 512, b.status(id).GetResources().GetLinux().GetCpuShares())
}

func TestTimestamps_IncreaseOnAStoppedClock(t *testing.T) {
	b := newBed(t)
	sandbox := b.pod("a")
	last := b.sandbox(sandbox).GetCreatedAt()
	for _, name := range []string{"x", "y", "z"} {
		st := b.status(b.make(sandbox, "a", name, "demo/web:1"))
		require.Greater(t, st.GetCreatedAt(), last)
		last = st.GetCreatedAt()
	}
	b.clock.SetTime(epoch.Add(-time.Hour))
	late := b.status(b.make(sandbox, "a", "late", "demo/web:1"))
	require.Equal(t, epoch.Add(-time.Hour).UnixNano(), late.GetCreatedAt())
}

func TestConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *fakecri.Config) { c.Clock = nil })
		done := make(chan error)
		const pods = 40
		for i := range pods {
			go func() {
				name := fmt.Sprint("pod", i)
				sandbox, err := b.RunPodSandbox(t.Context(), podConfig(name, 0), "")
				if err != nil {
					done <- err
					return
				}
				id, err := b.CreateContainer(t.Context(), sandbox, containerConfig("app", "demo/slow:1", 0), podConfig(name, 0))
				if err == nil {
					err = b.StartContainer(t.Context(), id)
				}
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				if err == nil {
					err = b.StopContainer(t.Context(), id, 2)
				}
				if err == nil {
					_, err = b.ListContainers(t.Context(), nil)
				}
				if err == nil {
					err = b.RemovePodSandbox(t.Context(), sandbox)
				}
				done <- err
			}()
		}
		for range pods {
			require.NoError(t, <-done)
		}
		list, err := b.ListContainers(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, list)
	})
}
