package podrunner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// mortal is a bed whose agent is killed and restarted with the same directory.
type mortal struct {
	*bed

	cfg   *podrunner.Config
	ran   *commands
	stops *stopTimes
	log   *bytes.Buffer
}

func mortalBubble(t *testing.T, f func(m *mortal)) {
	t.Helper()
	m, root := &mortal{stops: &stopTimes{}, log: &bytes.Buffer{}}, t.TempDir()
	hookBubble(t, func(b *bed, ran *commands, _ *events) {
		m.bed, m.ran = b, ran
		m.root = root
		f(m)
	}, timed(m.stops), func(c *podrunner.Config) {
		c.RootDir, c.State, m.cfg = root, state.Files(root), c
		c.Logger = slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelError}))
	})
}

// started returns a pod with one container whose preStop hook is the given
// command.
func (m *mortal) started(grace int64, hook string) *corev1.Pod {
	m.t.Helper()
	pod := podOf(nil, "stubborn")
	pod.Spec.TerminationGracePeriodSeconds = &grace
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: command(hook)}
	require.NoError(m.t, m.sync(pod))
	m.stops.began = time.Now()
	return pod
}

// end runs a terminating sync. If known is false, the pod is known only from the runtime.
func (m *mortal) end(ctx context.Context, pod *corev1.Pod, known bool) error {
	req := podworker.SyncRequest{Status: m.look(pod.UID), Grace: time.Second}
	if !known {
		return m.runner.SyncTerminatingRuntimePod(ctx, req)
	}
	req.Pod, req.Grace = pod, time.Duration(*pod.Spec.TerminationGracePeriodSeconds)*time.Second
	return m.runner.SyncTerminatingPod(ctx, req)
}

// dieAfter lets the agent terminate the pod for d, and then kills and restarts the agent.
func (m *mortal) dieAfter(d time.Duration, pod *corev1.Pod, known bool) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), d)
	defer cancel()
	require.Error(m.t, m.end(ctx, pod, known))
	m.restart()
}

func (m *mortal) restart() {
	m.t.Helper()
	var err error
	m.runner, err = podrunner.New(*m.cfg)
	require.NoError(m.t, err)
}

func (m *mortal) file(uid types.UID) string {
	return filepath.Join(m.root, "pods", string(uid), "ending")
}

// written returns the stored deadline.
func (m *mortal) written(uid types.UID) time.Time {
	m.t.Helper()
	text, err := os.ReadFile(m.file(uid))
	require.NoError(m.t, err)
	at, _, err := podrunner.ParseEnd(text)
	require.NoError(m.t, err)
	return at
}

// TestTerminationRecord_NoSecondGracePeriodAfterAKill checks a pod from a manifest. Such a pod
// has no deletion timestamp, so only the file records the deadline.
func TestTerminationRecord_NoSecondGracePeriodAfterAKill(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"a pod that is known": true, "a pod whose manifest is gone": false} {
		for _, deaths := range []int{0, 1, 2, 5} {
			mortalBubble(t, func(m *mortal) {
				pod := m.started(10, "hang")
				for range deaths {
					m.dieAfter(1500*time.Millisecond, pod, known)
				}
				require.NoError(t, m.end(m.t.Context(), pod, known))
				require.Equal(t, []string{"10s after: stop within 2s"}, m.stops.take(), "%s, agent killed %d times", name, deaths)
				require.Equal(t, 12*time.Second, time.Since(m.stops.began))
				require.Empty(t, m.log.String())
			})
		}
	}
}

// TestModel_AgentIsKilledAtRandomTimes checks that the pod ends at the latest 2 s after its
// first deadline, or after the last start of the agent if that is later, for any number of
// agent kills.
func TestModel_AgentIsKilledAtRandomTimes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		mortalBubble(t, func(m *mortal) {
			rng := rand.New(rand.NewPCG(seed, 0))
			grace := 1 + rng.Int64N(20)
			pod := m.started(grace, []string{"1s", "5s", "fail", "hang"}[rng.IntN(4)])
			deadline := time.Now().Add(time.Duration(grace) * time.Second)
			last, err := time.Now(), error(nil)
			for range rng.IntN(8) {
				ctx, die := context.WithTimeout(m.t.Context(), time.Duration(rng.Int64N(int64(6*time.Second))))
				err = m.end(ctx, pod, rng.IntN(2) == 0)
				die()
				if err == nil {
					break
				}
				last = time.Now()
				m.restart()
			}
			if err != nil || m.look(pod.UID).Running() {
				require.NoError(t, m.end(m.t.Context(), pod, rng.IntN(2) == 0), "seed %d", seed)
			}
			if last.After(deadline) {
				deadline = last
			}
			require.LessOrEqual(t, time.Since(deadline), 2*time.Second, "seed %d", seed)
			require.False(t, m.look(pod.UID).Running(), "seed %d", seed)
		})
	}
}

func TestTerminationRecord_PassedDeadlineStopsAtOnce(t *testing.T) {
	t.Parallel()
	mortalBubble(t, func(m *mortal) {
		pod := m.started(10, "hang")
		m.dieAfter(3*time.Second, pod, false)
		time.Sleep(time.Hour)
		m.ran.take()
		m.stops.began = time.Now()
		require.NoError(t, m.end(m.t.Context(), pod, false))
		require.Equal(t, []string{"0s after: stop within 2s"}, m.stops.take())
		require.Empty(t, m.ran.take(), "without a remaining grace period, the hook must not run")
	})
}

// TestTerminationRecord_ShorterGracePeriodSurvivesARestart restarts the agent after the grace
// period has become shorter.
func TestTerminationRecord_ShorterGracePeriodSurvivesARestart(t *testing.T) {
	t.Parallel()
	mortalBubble(t, func(m *mortal) {
		pod := m.started(600, "hang")
		workers, err := podworker.New(podworker.Config{Syncer: m.runner, Cache: cache{m.bed}})
		require.NoError(t, err)
		ctx, die := context.WithCancel(m.t.Context())
		done := make(chan error, 1)
		go func() { done <- workers.Run(ctx) }()
		workers.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: pod})
		synctest.Wait()
		began := time.Now()
		require.True(t, m.written(pod.UID).Equal(began.Add(600*time.Second)))
		time.Sleep(10 * time.Second)
		workers.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: pod, Kill: podworker.KillOptions{Grace: new(8 * time.Second)}})
		synctest.Wait()
		require.True(t, m.written(pod.UID).Equal(began.Add(18*time.Second)), "the shorter deadline must be stored during the sync")
		workers.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: pod, Kill: podworker.KillOptions{Grace: new(time.Hour)}})
		time.Sleep(time.Second)
		require.True(t, m.written(pod.UID).Equal(began.Add(18*time.Second)), "the stored deadline must not become later")
		die()
		require.NoError(t, <-done)

		m.restart()
		require.NoError(t, m.end(m.t.Context(), pod, true))
		require.Equal(t, 20*time.Second, time.Since(began))
	})
}

func TestTerminationRecord_WrittenOncePerDeadline(t *testing.T) {
	t.Parallel()
	mortalBubble(t, func(m *mortal) {
		pod := m.started(10, "1s")
		for range 3 {
			require.NoError(t, m.sync(pod))
		}
		require.NoDirExists(t, filepath.Join(m.root, "pods", "uid", "ending"), "a pod that is not terminating must have no record")
		require.NoError(t, m.node.Fail("StopContainer", fakecri.Fault{Err: grpcstatus.Error(codes.Internal, "no"), Times: 2}))
		require.Error(t, m.end(m.t.Context(), pod, true))
		first, err := os.Stat(m.file(pod.UID))
		require.NoError(t, err)
		require.Error(t, m.end(m.t.Context(), pod, true))
		m.restart()
		ctx, cancel := context.WithTimeout(m.t.Context(), time.Second)
		defer cancel()
		require.Error(t, m.end(ctx, pod, true))
		last, err := os.Stat(m.file(pod.UID))
		require.NoError(t, err)
		require.True(t, os.SameFile(first, last), "an unchanged record must not be written again")
		require.NoError(t, m.end(m.t.Context(), pod, true))

		require.NoError(t, m.runner.SyncTerminatedPod(m.t.Context(), podworker.SyncRequest{Pod: pod, Status: m.look(pod.UID)}))
		require.NoFileExists(t, m.file(pod.UID))
		require.NoError(t, m.end(m.t.Context(), pod, true))
		require.NoFileExists(t, m.file(pod.UID), "a pod without running containers must have no record")
	})
}

func TestTerminationRecord_EndedPreStopHookIsNotRunAfterARestart(t *testing.T) {
	t.Parallel()
	mortalBubble(t, func(m *mortal) {
		pod := m.started(30, "2s")
		m.dieAfter(time.Second, pod, true)
		m.dieAfter(3*time.Second, pod, true)
		m.dieAfter(3*time.Second, pod, false)
		require.NoError(t, m.end(m.t.Context(), pod, true))
		require.Equal(t, []string{"2s", "2s was cut off", "2s", "2s has ended"}, m.ran.take())
		require.Equal(t, 30*time.Second, time.Since(m.stops.began))
	})
}

func TestTerminationRecord_WantedAgainGetsNewGracePeriodAndHook(t *testing.T) {
	t.Parallel()
	mortalBubble(t, func(m *mortal) {
		pod := m.started(10, "1s")
		m.dieAfter(3*time.Second, pod, false)
		require.NoError(t, m.sync(pod))
		require.NoFileExists(t, m.file(pod.UID))
		m.restart()
		time.Sleep(time.Minute)
		began := time.Now()
		m.ran.take()
		require.NoError(t, m.end(m.t.Context(), pod, true))
		require.Equal(t, 10*time.Second, time.Since(began))
		require.Equal(t, []string{"1s", "1s has ended"}, m.ran.take())
	})
}

func TestTerminationRecord_DeletedWithThePod(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*mortal, *corev1.Pod) error{
		"given back": func(m *mortal, pod *corev1.Pod) error {
			return m.runner.SyncTerminatedPod(m.t.Context(), podworker.SyncRequest{Pod: pod, Status: m.look(pod.UID)})
		},
		"removed": func(m *mortal, pod *corev1.Pod) error { return m.runner.RemovePod(m.t.Context(), m.look(pod.UID)) },
		"a leftover of an agent before": func(m *mortal, pod *corev1.Pod) error {
			m.restart()
			left, err := m.runner.Leftovers()
			require.NoError(m.t, err)
			require.Equal(m.t, []types.UID{pod.UID}, left)
			return m.runner.RemovePod(m.t.Context(), &podcache.Status{UID: pod.UID})
		},
	} {
		mortalBubble(t, func(m *mortal) {
			pod := m.started(10, "fail")
			require.NoError(t, m.end(m.t.Context(), pod, false))
			require.FileExists(t, m.file(pod.UID))
			require.NoError(t, os.WriteFile(m.file(pod.UID)+".new", nil, 0o600)) // left by an agent that was killed during the write
			require.NoError(t, os.RemoveAll(filepath.Join(m.root, "pods/uid/etc-hosts")))
			require.NoError(t, remove(m, pod), name)
			left, err := os.ReadDir(filepath.Join(m.root, "pods"))
			require.NoError(t, err)
			require.Empty(t, left, name)
		})
	}
}

// TestTerminationRecord_InvalidRecordsAreIgnored checks that a record can only make the
// deadline earlier.
func TestTerminationRecord_InvalidRecordsAreIgnored(t *testing.T) {
	t.Parallel()
	for text, bad := range map[string]bool{
		"": true, "{": true, "null": true, "[]": true, "{}": true, `"soon"`: true, "\x00\x00": true,
		`{"deadline":"yesterday"}`: true, `{"deadline":7}`: true, `{"deadline":"2000-01-01T00:00:00Z"} 7`: true,
		`{"deadline":"2000-01-01T00:00:00Z","preStopped":"all"}`: true, strings.Repeat(" ", 2<<20): true,
		`{"deadline":"0000-01-01T00:00:00+01:00"}`: true, `{"deadline":"9999-12-31T23:59:59-01:00"}`: true,
		`{"deadline":"9999-12-31T23:59:59Z"}`: false, `{"deadline":"2000-01-02T00:00:00+14:00","preStopped":["", "?"],"more":[]}`: false,
		`{"deadline":"9999-12-31T23:59:59+24:00"}`: false,
	} {
		mortalBubble(t, func(m *mortal) {
			pod := m.started(10, "hang")
			require.NoError(t, os.WriteFile(m.file(pod.UID), []byte(text), 0o600))
			m.restart()
			m.stops.began = time.Now()
			m.dieAfter(time.Second, pod, true)
			require.True(t, m.written(pod.UID).Equal(m.stops.began.Add(10*time.Second)), "%.60q", text)
			require.NoError(t, m.end(m.t.Context(), pod, true))
			require.Equal(t, 12*time.Second, time.Since(m.stops.began), "%.60q", text)
			require.Equal(t, bad, strings.Contains(m.log.String(), "could not read the termination deadline of a pod"), "%.60q: %s", text, m.log)
		})
	}
}

func TestTerminationRecord_OnlyRegularFilesAreRead(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(path string) error{
		"a folder":               func(path string) error { return os.Mkdir(path, 0o755) },
		"a link to somewhere":    func(path string) error { return os.Symlink("/etc/passwd", path) },
		"a link to nowhere":      func(path string) error { return os.Symlink("nowhere", path) },
		"a folder that is taken": func(path string) error { return os.MkdirAll(filepath.Join(path, "more"), 0o755) },
	} {
		mortalBubble(t, func(m *mortal) {
			pod := m.started(3, "fail")
			require.NoError(t, make(m.file(pod.UID)), name)
			m.restart()
			require.NoError(t, m.end(m.t.Context(), pod, true), name)
			require.Equal(t, 3*time.Second, time.Since(m.stops.began), name)
			require.Contains(t, m.log.String(), "get pods/uid/ending in "+m.root+": not a regular file", name)
			require.NoError(t, m.runner.RemovePod(m.t.Context(), m.look(pod.UID)), name)
			require.NoDirExists(t, filepath.Join(m.root, "pods/uid"), name)
		})
	}
}

// shifted is a clock with an offset.
type shifted struct {
	clock.Clock
	by time.Duration
}

func (s shifted) Now() time.Time { return s.Clock.Now().Round(0).Add(s.by) }

func TestTerminationRecord_ClockChangeGivesAtMostTheGracePeriod(t *testing.T) {
	t.Parallel()
	for by, want := range map[time.Duration]time.Duration{
		time.Second: 11 * time.Second, -time.Second: 13 * time.Second, // the stored time is used
		-time.Hour: 15 * time.Second, -1 << 62: 15 * time.Second, // the grace period starts again
		time.Hour: 5 * time.Second, 1 << 62: 5 * time.Second, // the minimum
	} {
		mortalBubble(t, func(m *mortal) {
			pod := m.started(10, "hang")
			m.cfg.Clock = shifted{m.cfg.Clock, by}
			m.dieAfter(3*time.Second, pod, false)
			require.NoError(t, m.end(m.t.Context(), pod, false))
			require.Equal(t, want, time.Since(m.stops.began), by)
		})
	}
}

func TestTerminationRecord_FailedWriteDoesNotStopTheTermination(t *testing.T) {
	t.Parallel()
	mortalBubble(t, func(m *mortal) {
		pod := m.started(3, "fail")
		require.NoError(t, os.RemoveAll(filepath.Join(m.root, "pods")))
		require.NoError(t, os.WriteFile(filepath.Join(m.root, "pods"), nil, 0o600))
		require.NoError(t, m.end(m.t.Context(), pod, true))
		require.Equal(t, 3*time.Second, time.Since(m.stops.began))
		require.Contains(t, m.log.String(), "could not store the termination deadline of a pod")
	})
}

func TestTerminationRecord_FailedDeletionBlocksTheSync(t *testing.T) {
	t.Parallel()
	mortalBubble(t, func(m *mortal) {
		pod := m.started(10, "hang")
		m.dieAfter(time.Second, pod, false)
		over, cancel := context.WithCancel(m.t.Context())
		cancel()
		require.Error(t, m.end(over, pod, false)) // the sync has already read the file
		pods := filepath.Join(m.root, "pods")
		require.NoError(t, os.Rename(pods, pods+".away"))
		require.NoError(t, os.WriteFile(pods, nil, 0o600))
		require.ErrorContains(t, m.sync(pod), "sync pod ns/pod: delete records: ")
		require.ErrorContains(t, m.sync(pod), "sync pod ns/pod: delete records: ")

		require.NoError(t, os.Remove(pods))
		require.NoError(t, os.Rename(pods+".away", pods))
		require.NoError(t, m.sync(pod))
		require.NoFileExists(t, m.file(pod.UID))
	})
}

func TestTerminationRecord_LinkedDirectoryIsIgnored(t *testing.T) {
	t.Parallel()
	mortalBubble(t, func(m *mortal) {
		pod, elsewhere := m.started(3, "fail"), filepath.Join(m.root, "elsewhere")
		folder := filepath.Dir(m.file(pod.UID))
		require.NoError(t, os.Rename(folder, elsewhere))
		require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "ending"), []byte("mine"), 0o600))
		require.NoError(t, os.Symlink("../elsewhere", folder))
		m.restart()
		require.NoError(t, m.end(m.t.Context(), pod, true))
		require.Equal(t, 3*time.Second, time.Since(m.stops.began))
		text, err := os.ReadFile(filepath.Join(elsewhere, "ending"))
		require.NoError(t, err)
		require.Equal(t, "mine", string(text))
	})
}

// TestTerminationRecord_StoredInStateOrInMemory checks that records are stored in State, or only in memory if
// State is nil.
func TestTerminationRecord_StoredInStateOrInMemory(t *testing.T) {
	t.Parallel()
	mortalBubble(t, func(m *mortal) {
		kept := state.Memory()
		m.cfg.State = kept
		m.restart()
		pod := m.started(10, "hang")
		pod.Spec.Containers[0].Resources.Limits = limits("64Mi", "1")
		m.dieAfter(3*time.Second, pod, true)
		keys, err := kept.Keys(m.t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, []string{"pods/uid/ending"}, keys)
		require.NoFileExists(t, m.file(pod.UID))
		require.NoError(t, m.end(m.t.Context(), pod, true))
		require.Equal(t, 12*time.Second, time.Since(m.stops.began))
		require.NoError(t, m.runner.RemovePod(m.t.Context(), m.look(pod.UID)))
		keys, err = kept.Keys(m.t.Context(), "")
		require.NoError(t, err)
		require.Empty(t, keys)
	})
	mortalBubble(t, func(m *mortal) {
		m.cfg.State = nil
		m.restart()
		pod := m.started(10, "hang")
		m.dieAfter(3*time.Second, pod, true)
		require.NoFileExists(t, m.file(pod.UID))
		require.NoError(t, m.end(m.t.Context(), pod, true))
		require.Equal(t, 15*time.Second, time.Since(m.stops.began), "without a store, the grace period must start again")
	})
}

// patient is a store whose calls block until their ctx is done.
type patient struct{ *state.FileStore }

func (p patient) Get(ctx context.Context, key string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return p.FileStore.Get(ctx, key)
}

func TestTerminationRecord_CancelledReadIsRepeatedInTheNextSync(t *testing.T) {
	t.Parallel()
	mortalBubble(t, func(m *mortal) {
		m.cfg.State = patient{state.Files(m.root)}
		pod := m.started(10, "hang")
		m.dieAfter(3*time.Second, pod, true)
		over, cancel := context.WithCancel(m.t.Context())
		cancel()
		require.Error(t, m.end(over, pod, true))
		require.NoError(t, m.end(m.t.Context(), pod, true))
		require.Equal(t, 12*time.Second, time.Since(m.stops.began))
		require.Empty(t, m.log.String())
	})
}

// TestSyncTerminatingPod_WithoutAWorkerHasADeadline also checks that a shorter grace period
// makes this deadline earlier.
func TestSyncTerminatingPod_WithoutAWorkerHasADeadline(t *testing.T) {
	t.Parallel()
	s := &stopTimes{}
	hookBubble(t, func(b *bed, _ *commands, _ *events) {
		pod := podOf(nil, "app")
		require.NoError(t, b.sync(pod))
		require.NoError(t, b.node.Fail("StopContainer", fakecri.Fault{Err: grpcstatus.Error(codes.Internal, "no"), Times: 2}))
		s.began = time.Now()
		require.Error(t, b.terminate(pod, 20*time.Second))
		time.Sleep(5 * time.Second)
		require.Error(t, b.terminate(pod, 30*time.Second))
		require.NoError(t, b.terminate(pod, 4*time.Second))
		require.Equal(t, []string{"0s after: stop within 20s", "5s after: stop within 15s", "5s after: stop within 4s"}, s.take())
	}, timed(s))
}

func FuzzParseEnd(f *testing.F) {
	f.Add([]byte(`{"deadline":"2026-11-21T11:12:13.000000001Z","preStopped":["a","b"]}`))
	f.Add([]byte(`{"deadline":"0001-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"deadline":"2026-11-21T11:12:13+14:00"}`))
	f.Add([]byte(`{"deadline":"2026-11-21T11:12:13+24:00"}`)) // decoding accepts this zone, encoding does not
	f.Add([]byte(`{"deadline":"0000-01-01T00:00:00+01:00"}`)) // before the year 0 in UTC
	f.Add([]byte(`{"deadline":"9999-12-31T23:59:59-01:00"}`)) // in the year 10000
	f.Fuzz(func(t *testing.T, text []byte) {
		at, ids, err := podrunner.ParseEnd(text)
		if err != nil {
			require.True(t, at.IsZero())
			require.Empty(t, ids)
			return
		}
		require.False(t, at.IsZero())
		again, err := json.Marshal(map[string]any{"deadline": at, "preStopped": ids})
		require.NoError(t, err)
		at2, ids2, err := podrunner.ParseEnd(again)
		require.NoError(t, err)
		require.True(t, at.Equal(at2))
		require.Equal(t, ids, ids2)
	})
}
