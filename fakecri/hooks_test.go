package fakecri_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

func TestKills(t *testing.T) {
	for name, tc := range map[string]struct {
		act    func(b *bed) error
		code   int32
		reason string
	}{
		"SIGKILL from outside": {func(b *bed) error { return b.Kill("default/pod/app", 137) }, 137, "Error"},
		"an exit from within":  {func(b *bed) error { return b.Kill("default/pod/app", 0) }, 0, "Completed"},
		"killed for memory":    {func(b *bed) error { return b.OOMKill("default/pod/app") }, 137, "OOMKilled"},
		"its shim was killed":  {func(b *bed) error { return b.KillSandbox("default/pod") }, 255, "Error"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			_, id := b.start("pod", "demo/web:1")
			b.clock.Step(time.Minute)
			require.NoError(t, tc.act(b))
			b.requireEnded(id, tc.code, tc.reason, time.Minute)
		})
	}
}

func TestKillSandbox_KeepsTheAddressUntilTheStop(t *testing.T) {
	b := newBed(t)
	sandbox, _ := b.start("pod", "demo/web:1")
	require.NoError(t, b.KillSandbox(sandbox))
	require.Equal(t, notReady, b.sandbox(sandbox).GetState())
	require.Equal(t, "10.88.0.2", b.sandbox(sandbox).GetNetwork().GetIp())
	require.NoError(t, b.StopPodSandbox(t.Context(), sandbox))
	require.Empty(t, b.sandbox(sandbox).GetNetwork().GetIp())
}

func TestOOMKillChild_SetsTheReasonPermanently(t *testing.T) {
	b := newBed(t)
	_, id := b.start("pod", "demo/job:1")
	require.NoError(t, b.OOMKillChild(id))
	st := b.status(id)
	require.Equal(t, running, st.GetState())
	require.Equal(t, "OOMKilled", st.GetReason())
	require.Zero(t, st.GetExitCode())
	b.clock.Step(time.Second)
	b.requireEnded(id, 0, "OOMKilled", 500*time.Millisecond)
}

func TestLostTrack(t *testing.T) {
	for name, act := range map[string]func(b *bed, sandbox, id string) error{
		"stopped":            func(b *bed, _, id string) error { return b.StopContainer(b.t.Context(), id, 30) },
		"stopped by sandbox": func(b *bed, sandbox, _ string) error { return b.StopPodSandbox(b.t.Context(), sandbox) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			sandbox, id := b.start("pod", "demo/job:1")
			require.NoError(t, b.SetUnknown(id))
			b.clock.Step(time.Minute)
			require.Equal(t, unknown, b.status(id).GetState()) // the exit of the program was not noticed
			require.Equal(t, "Unknown", b.status(id).GetReason())
			require.NoError(t, act(b, sandbox, id))
			b.requireEnded(id, 255, "Unknown", time.Minute)
		})
	}
}

func TestHooks_UseTheNewestObject(t *testing.T) {
	b := newBed(t)
	sandbox, old := b.start("pod", "demo/web:1")
	require.NoError(t, b.Kill("default/pod/app", 1))
	require.ErrorContains(t, b.Kill("default/pod/app", 1), "is in CONTAINER_EXITED state")
	id, err := b.CreateContainer(t.Context(), sandbox, containerConfig("app", "demo/web:1", 1), podConfig("pod", 0))
	require.NoError(t, err)
	require.ErrorContains(t, b.OOMKill("default/pod/app"), "is in CONTAINER_CREATED state")
	require.NoError(t, b.StartContainer(t.Context(), id))
	require.NoError(t, b.Kill("default/pod/app", 2))
	require.EqualValues(t, 1, b.status(old).GetExitCode())
	require.EqualValues(t, 2, b.status(id).GetExitCode())

	for _, err := range []error{b.Kill("x", 1), b.OOMKill("x"), b.OOMKillChild("x"), b.SetUnknown("x"), b.KillSandbox("x"), b.RemoveSilently("x")} {
		require.ErrorContains(t, err, `"x"`)
	}
}

func TestVanishedContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		_, id := b.start("pod", "demo/stubborn:1")
		r := subscribe(t, b.Node)
		defer r.stop()
		require.Len(t, r.read(), 4)
		stop := make(chan error, 1)
		go func() { stop <- b.StopContainer(t.Context(), id, 60) }()
		synctest.Wait()
		require.NoError(t, b.RemoveSilently(id))
		require.NoError(t, <-stop)
		_, err := b.ContainerStatus(t.Context(), id, false)
		requireCode(t, codes.NotFound, err)
		require.Empty(t, r.read())
	})
}

func TestRemoveSilently_SandboxLeavesItsContainers(t *testing.T) {
	b := newBed(t)
	sandbox, id := b.start("pod", "demo/web:1")
	waiting := b.make(sandbox, "pod", "waiting", "demo/web:1")
	require.NoError(t, b.RemoveSilently("default/pod"))
	_, err := b.PodSandboxStatus(t.Context(), sandbox, false)
	requireCode(t, codes.NotFound, err)
	require.Equal(t, running, b.status(id).GetState())
	requireCode(t, codes.Unknown, b.StartContainer(t.Context(), waiting))
	require.NoError(t, b.RemoveContainer(t.Context(), id))
	require.NoError(t, b.RemoveContainer(t.Context(), waiting))
	b.start("pod", "demo/web:1") // all names are free
}

func TestRestart_ContainersKeepRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		_, job := b.start("a", "demo/job:1")
		_, web := b.start("b", "demo/web:1")
		_, stubborn := b.start("c", "demo/stubborn:1")
		stop := make(chan error, 1)
		go func() { stop <- b.StopContainer(t.Context(), stubborn, 60) }()
		r := subscribe(t, b.Node)
		require.Len(t, r.read(), 12)

		b.Restart(10 * time.Second)
		requireCode(t, codes.Unavailable, <-stop)
		requireCode(t, codes.Unavailable, <-r.done)
		_, err := b.ListContainers(t.Context(), nil)
		requireCode(t, codes.Unavailable, err)
		time.Sleep(10*time.Second - time.Millisecond)
		requireCode(t, codes.Unavailable, b.GetContainerEvents(t.Context(), r.ch, nil))
		time.Sleep(time.Millisecond)

		b.requireEnded(job, 0, "Completed", 500*time.Millisecond)
		require.Equal(t, running, b.status(web).GetState())
		require.Equal(t, running, b.status(stubborn).GetState())
		r = subscribe(t, b.Node) // no event was sent for the exit of the job
		require.Empty(t, r.read())
		require.NoError(t, b.Kill(web, 1))
		require.Equal(t, []string{"app:stopped"}, r.read())
		r.stop()
	})
}

func TestRestart_DeliversTheCurrentEventBeforeTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		r := subscribe(t, b.Node)
		b.pod("a")
		synctest.Wait() // the delivery of the first event is in progress
		b.Restart(0)
		require.Equal(t, "a:created", word(<-r.ch))
		requireCode(t, codes.Unavailable, <-r.done)
	})
}

func TestReboot(t *testing.T) {
	b := newBed(t)
	sandbox, web := b.start("a", "demo/web:1")
	_, job := b.start("b", "demo/job:1")
	_, lost := b.start("c", "demo/web:1")
	waiting := b.make(sandbox, "a", "waiting", "demo/web:1")
	require.NoError(t, b.SetUnknown(lost))
	b.clock.Step(time.Minute)
	b.Reboot(time.Minute)
	_, err := b.Version(t.Context(), "")
	requireCode(t, codes.Unavailable, err)
	b.clock.Step(time.Minute)

	require.Equal(t, notReady, b.sandbox(sandbox).GetState())
	require.Empty(t, b.sandbox(sandbox).GetNetwork().GetIp())
	b.requireEnded(web, 255, "Unknown", 2*time.Minute)
	b.requireEnded(lost, 255, "Unknown", 2*time.Minute)
	b.requireEnded(job, 0, "Completed", 500*time.Millisecond)
	require.Equal(t, created, b.status(waiting).GetState())
	requireCode(t, codes.Unknown, b.StartContainer(t.Context(), waiting))

	next, err := b.RunPodSandbox(t.Context(), podConfig("a", 1), "")
	require.NoError(t, err)
	require.NotEmpty(t, b.sandbox(next).GetNetwork().GetIp())
}

func TestStepClock_ChangesOnlyNewTimestamps(t *testing.T) {
	b := newBed(t)
	_, job := b.start("pod", "demo/job:1")
	before := b.status(job)
	b.StepClock(-time.Hour)
	require.Equal(t, before.String(), b.status(job).String()) // existing timestamps do not change
	_, late := b.start("late", "demo/web:1")
	require.Equal(t, -time.Hour, time.Duration(b.status(late).GetCreatedAt()-before.GetCreatedAt()).Round(time.Microsecond))

	b.clock.Step(time.Second) // the job ends half a second after its start, regardless of the step of the wall clock
	ended := b.status(job)
	require.Equal(t, exited, ended.GetState())
	require.Equal(t, 500*time.Millisecond-time.Hour, time.Duration(ended.GetFinishedAt()-ended.GetStartedAt()).Round(time.Microsecond))

	b.StepClock(2 * time.Hour)
	_, later := b.start("later", "demo/web:1")
	require.Equal(t, time.Hour+time.Second, time.Duration(b.status(later).GetCreatedAt()-before.GetCreatedAt()).Round(time.Microsecond))
}

func TestRestart_NegativeTimeIsZero(t *testing.T) {
	b := newBed(t)
	_, id := b.start("pod", "demo/web:1")
	b.Restart(-time.Hour)
	require.Equal(t, running, b.status(id).GetState())
	b.Reboot(-time.Hour)
	b.requireEnded(id, 255, "Unknown", 0)
}
