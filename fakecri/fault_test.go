package fakecri_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

var errBroken = grpcstatus.Error(codes.Internal, "broken")

func TestFail_RejectsInvalidFaults(t *testing.T) {
	b := newBed(t)
	for name, tc := range map[string]struct {
		method string
		fault  fakecri.Fault
		want   string
	}{
		"no such method":                        {"ListContainer", fakecri.Fault{Err: errBroken}, `unknown CRI method "ListContainer"`},
		"an object of Version":                  {"Version", fakecri.Fault{Object: "x", Err: errBroken}, "have no object"},
		"an object of a stream":                 {"StreamContainers", fakecri.Fault{Object: "x", Err: errBroken}, "have no object"},
		"a padded stream":                       {"StreamImages", fakecri.Fault{Answer: fakecri.Answer{PadBytes: 1}}, "images have no annotations"},
		"a fault without an effect":             {"ListContainers", fakecri.Fault{Times: 1}, "one of the fields Err, Delay, Hang and Answer"},
		"negative times":                        {"ListContainers", fakecri.Fault{Err: errBroken, Times: -1}, "must not be negative"},
		"negative delay":                        {"ListContainers", fakecri.Fault{Delay: -1}, "must not be negative"},
		"delayed and hung":                      {"", fakecri.Fault{Hang: true, Delay: 1}, "field Hang excludes"},
		"hung answer":                           {"ListImages", fakecri.Fault{Hang: true, Answer: fakecri.Answer{Nil: true}}, "field Hang excludes"},
		"failed answer":                         {"ListImages", fakecri.Fault{Err: errBroken, Answer: fakecri.Answer{Nil: true}}, "field Err excludes Answer"},
		"IgnoreContext without a hang or delay": {"ListImages", fakecri.Fault{Err: errBroken, IgnoreContext: true}, "field IgnoreContext needs"},
		"an object of ListImages":               {"ListImages", fakecri.Fault{Object: "x", Err: errBroken}, "have no object"},
		"an answer of StopContainer":            {"StopContainer", fakecri.Fault{Answer: fakecri.Answer{Nil: true}}, `not possible for method "StopContainer"`},
		"an answer for all methods":             {"", fakecri.Fault{Answer: fakecri.Answer{Nil: true}}, `not possible for method ""`},
		"a stale status":                        {"ContainerStatus", fakecri.Fault{Answer: fakecri.Answer{Stale: true}}, "only Bare and Nil are possible"},
		"a negative number of items":            {"ListImages", fakecri.Fault{Answer: fakecri.Answer{Keep: new(-1)}}, "must not be negative"},
		"a padded image":                        {"ListImages", fakecri.Fault{Answer: fakecri.Answer{PadBytes: 1}}, "images have no annotations"},
		"nil and bare":                          {"ListImages", fakecri.Fault{Answer: fakecri.Answer{Nil: true, Bare: true}}, "field Answer.Nil excludes"},
		"several problems":                      {"x", fakecri.Fault{Hang: true, Err: errBroken, Times: -1}, "unknown CRI method"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, b.Fail(tc.method, tc.fault), tc.want)
		})
	}
	_, err := b.ListContainers(t.Context(), nil)
	require.NoError(t, err)
}

func TestFault_Times(t *testing.T) {
	b := newBed(t)
	list := func() error {
		_, err := b.ListContainers(t.Context(), nil)
		return err
	}
	require.NoError(t, b.Fail("ListContainers", fakecri.Fault{Err: errBroken, Times: 2}))
	require.ErrorIs(t, list(), errBroken)
	_, err := b.ListPodSandbox(t.Context(), nil)
	require.NoError(t, err)
	require.ErrorIs(t, list(), errBroken)
	require.NoError(t, list())

	require.NoError(t, b.Fail("ListContainers", fakecri.Fault{Err: errBroken}))
	for range 10 {
		require.ErrorIs(t, list(), errBroken)
	}
	b.ClearFaults("ListPodSandbox") // faults of another method
	require.ErrorIs(t, list(), errBroken)
	b.ClearFaults("ListContainers")
	require.NoError(t, list())
}

func TestFault_ListIsAppliedInOrder(t *testing.T) {
	b := newBed(t)
	version := func() error {
		_, err := b.Version(t.Context(), "")
		return err
	}
	// If a fault in the list is invalid, no fault of the list is activated.
	require.Error(t, b.Fail("Version", fakecri.Fault{Err: errBroken}, fakecri.Fault{}))
	require.NoError(t, version())
	other := errors.New("other")
	require.NoError(t, b.Fail("Version", fakecri.Fault{Err: errBroken, Times: 2}, fakecri.Fault{Err: other, Times: 1}))
	require.ErrorIs(t, version(), errBroken)
	require.ErrorIs(t, version(), errBroken)
	require.ErrorIs(t, version(), other)
	require.NoError(t, version())
}

func TestFault_IgnoresTheContext(t *testing.T) {
	for name, fault := range map[string]fakecri.Fault{
		"a delay": {Delay: time.Hour, IgnoreContext: true},
		"a hang":  {Hang: true, IgnoreContext: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, realTime)
				require.NoError(t, b.Fail("Version", fault))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start, done := time.Now(), make(chan error, 1)
				go func() {
					_, err := b.Version(ctx, "")
					done <- err
				}()
				time.Sleep(time.Minute)
				require.Empty(t, done)
				time.Sleep(time.Hour)
				b.ClearFaults("Version")
				require.NoError(t, <-done)
				require.Greater(t, time.Since(start), time.Hour)
			})
		})
	}
}

func TestServe_StopsWithACallThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		require.NoError(t, b.Fail("Version", fakecri.Fault{Hang: true, IgnoreContext: true}))
		rt, _ := serve(t, b.Node)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := rt.Version(ctx, &runtimeapi.VersionRequest{})
		requireCode(t, codes.DeadlineExceeded, err)
	})
}

func TestFault_AffectsOnlyItsObject(t *testing.T) {
	b := newBed(t)
	_, a := b.start("a", "demo/web:1")
	_, other := b.start("b", "demo/web:1")
	status := func(id string) error {
		_, err := b.ContainerStatus(t.Context(), id, false)
		return err
	}
	for _, object := range []string{a, "default/a/app"} {
		require.NoError(t, b.Fail("ContainerStatus", fakecri.Fault{Object: object, Err: errBroken}))
		require.ErrorIs(t, status(a), errBroken)
		require.NoError(t, status(other))
		b.ClearFaults("")
	}
	require.NoError(t, b.Fail("PullImage", fakecri.Fault{Object: "demo/web:1", Err: errBroken}))
	_, err := b.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "demo/web:1"}, nil, nil)
	require.ErrorIs(t, err, errBroken)
	require.NoError(t, b.Fail("CreateContainer", fakecri.Fault{Object: "default/a/new", Err: errBroken}))
	_, err = b.CreateContainer(t.Context(), "", containerConfig("new", "", 0), podConfig("a", 0))
	require.ErrorIs(t, err, errBroken)
}

func TestFault_AllMethodsFailWithoutChanges(t *testing.T) {
	b := newBed(t)
	sandbox, id := b.start("a", "demo/web:1")
	boom := errors.New("boom")
	require.NoError(t, b.Fail("", fakecri.Fault{Err: boom}))
	ctx := t.Context()
	calls := map[string]func() error{
		"StopContainer":       func() error { return b.StopContainer(ctx, id, 0) },
		"RemoveContainer":     func() error { return b.RemoveContainer(ctx, id) },
		"StartContainer":      func() error { return b.StartContainer(ctx, id) },
		"StopPodSandbox":      func() error { return b.StopPodSandbox(ctx, sandbox) },
		"RemovePodSandbox":    func() error { return b.RemovePodSandbox(ctx, sandbox) },
		"RemoveImage":         func() error { return b.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: "demo/web:1"}) },
		"ReopenContainerLog":  func() error { return b.ReopenContainerLog(ctx, id) },
		"UpdateResources":     func() error { return b.UpdateContainerResources(ctx, id, nil) },
		"UpdateRuntimeConfig": func() error { return b.UpdateRuntimeConfig(ctx, nil) },
		"RunPodSandbox":       func() error { _, err := b.RunPodSandbox(ctx, podConfig("b", 0), ""); return err },
		"PodSandboxStatus":    func() error { _, err := b.PodSandboxStatus(ctx, sandbox, false); return err },
		"ListPodSandbox":      func() error { _, err := b.ListPodSandbox(ctx, nil); return err },
		"UpdatePodResources":  func() error { _, err := b.UpdatePodSandboxResources(ctx, nil); return err },
		"Version":             func() error { _, err := b.Version(ctx, ""); return err },
		"Status":              func() error { _, err := b.Status(ctx, false); return err },
		"RuntimeConfig":       func() error { _, err := b.RuntimeConfig(ctx); return err },
		"ListImages":          func() error { _, err := b.ListImages(ctx, nil); return err },
		"ImageStatus":         func() error { _, err := b.ImageStatus(ctx, nil, false); return err },
		"ImageFsInfo":         func() error { _, err := b.ImageFsInfo(ctx); return err },
		"ExecSync":            func() error { _, _, err := b.ExecSync(ctx, id, nil, 0); return err },
		"ContainerStats":      func() error { _, err := b.ContainerStats(ctx, id); return err },
		"GetContainerEvents":  func() error { return b.GetContainerEvents(ctx, nil, nil) },
	}
	for name, call := range calls {
		require.ErrorIs(t, call(), boom, name)
	}
	b.ClearFaults("")
	require.Equal(t, running, b.status(id).GetState())
	list, err := b.ListPodSandbox(ctx, nil)
	require.NoError(t, err)
	require.Len(t, list, 1)
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		start := time.Now()
		require.NoError(t, b.Fail("Version", fakecri.Fault{Delay: 3 * time.Second, Times: 1}))
		require.NoError(t, b.Fail("Version", fakecri.Fault{Delay: time.Second, Err: errBroken, Times: 2}))
		version := func(ctx context.Context) error {
			_, err := b.Version(ctx, "")
			return err
		}
		require.NoError(t, version(t.Context()))
		require.Equal(t, 3*time.Second, time.Since(start))
		require.ErrorIs(t, version(t.Context()), errBroken)
		require.Equal(t, 4*time.Second, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		requireCode(t, codes.DeadlineExceeded, version(ctx))
		require.Equal(t, 4*time.Second+time.Millisecond, time.Since(start))
		require.NoError(t, version(t.Context()))
	})
}

func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		hang := func(ctx context.Context) chan error {
			require.NoError(t, b.Fail("Version", fakecri.Fault{Hang: true, Times: 1}))
			done := make(chan error, 1)
			go func() {
				_, err := b.Version(ctx, "")
				done <- err
			}()
			time.Sleep(time.Hour)
			require.Empty(t, done)
			return done
		}
		// Other calls continue. The hanging call ends when ClearFaults is
		// called.
		done := hang(t.Context())
		_, err := b.Version(t.Context(), "")
		require.NoError(t, err)
		b.ClearFaults("Version")
		require.NoError(t, <-done)
		// A hanging call ends when its context ends.
		ctx, cancel := context.WithCancel(t.Context())
		done = hang(ctx)
		cancel()
		requireCode(t, codes.Canceled, <-done)
		// A hanging call ends when the runtime goes down.
		done = hang(t.Context())
		b.Restart(0)
		requireCode(t, codes.Unavailable, <-done)
	})
}

func TestRunPodSandbox_CancelledCallAddsNothing(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.RunPodSandbox(ctx, podConfig("a", 0), "")
	requireCode(t, codes.Canceled, err)
	b.pod("a")
}

func TestCalls_AreRecordedInOrder(t *testing.T) {
	b := newBed(t)
	sandbox, id := b.start("a", "demo/web:1")
	require.NoError(t, b.Fail("StopContainer", fakecri.Fault{Err: errBroken}))
	require.Error(t, b.StopContainer(t.Context(), id, 1))
	require.NoError(t, b.RemovePodSandbox(t.Context(), sandbox))
	require.NoError(t, b.RemoveContainer(t.Context(), id))
	_, err := b.ListImages(t.Context(), nil)
	require.NoError(t, err)
	_, err = b.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: "busybox"}, false)
	require.NoError(t, err)

	var got []string
	for _, c := range b.Calls() {
		got = append(got, c.String())
	}
	require.Equal(t, []string{
		"RunPodSandbox default/a",
		"CreateContainer default/a/app",
		"StartContainer default/a/app",
		"StopContainer default/a/app",
		"RemovePodSandbox default/a",
		"RemoveContainer ?",
		"ListImages",
		"ImageStatus busybox",
	}, got)
	require.Equal(t, fakecri.Call{Method: "StopContainer", ID: id, Object: "default/a/app"}, b.Calls()[3])

	quiet := newBed(t, func(c *fakecri.Config) { c.Record = false })
	quiet.pod("a")
	require.Empty(t, quiet.Calls())
}
