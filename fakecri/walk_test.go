package fakecri_test

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// walk makes random calls on a node. After each call it checks the conditions
// that must always hold. It computes a digest of all responses.
type walk struct {
	*bed
	rnd        *rand.Rand
	sum        hash.Hash
	sandboxes  []string
	containers []string
	pods       int
	ended      map[string]string // the status of each container that has exited
}

func randomWalk(tb testing.TB, seed uint64, steps int) string {
	tb.Helper()
	w := &walk{bed: newBed(tb), rnd: rand.New(rand.NewPCG(seed, 0)), sum: sha256.New(), ended: map[string]string{}}
	for range steps {
		w.step()
		w.check()
	}
	return fmt.Sprintf("%x", w.sum.Sum(nil))
}

// note adds a response or an error to the digest.
func (w *walk) note(err error, messages ...proto.Message) {
	w.sum.Write(fmt.Append(nil, err))
	for _, m := range messages {
		raw, merr := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		require.NoError(w.t, merr)
		w.sum.Write(raw)
	}
}

func (w *walk) pick(ids []string) string {
	if len(ids) == 0 || w.rnd.IntN(20) == 0 {
		return "unknown"
	}
	return ids[w.rnd.IntN(len(ids))]
}

func (w *walk) step() {
	ctx := w.t.Context()
	switch w.rnd.IntN(14) {
	case 0:
		id, err := w.RunPodSandbox(ctx, podConfig(fmt.Sprint("pod", w.pods), 0), "")
		w.note(err, &runtimeapi.RunPodSandboxResponse{PodSandboxId: id})
		w.sandboxes, w.pods = append(w.sandboxes, id), w.pods+1
	case 1, 2, 3:
		sandbox := w.pick(w.sandboxes)
		image := []string{"demo/web:1", "demo/job:1", "demo/crash:1", "demo/hungry:1", "demo/broken:1", "demo/none:1"}[w.rnd.IntN(6)]
		name := fmt.Sprint("pod", slices.Index(w.sandboxes, sandbox))
		id, err := w.CreateContainer(ctx, sandbox, containerConfig("app", image, w.rnd.Uint32N(9)), podConfig(name, 0))
		w.note(err, &runtimeapi.CreateContainerResponse{ContainerId: id})
		if err == nil {
			w.containers = append(w.containers, id)
		}
	case 4, 5, 6:
		w.note(w.StartContainer(ctx, w.pick(w.containers)))
	case 7:
		w.note(w.StopContainer(ctx, w.pick(w.containers), w.rnd.Int64N(2))) // these programs exit at once, so the call does not wait
	case 8:
		w.note(w.RemoveContainer(ctx, w.pick(w.containers)))
	case 9:
		w.note(w.StopPodSandbox(ctx, w.pick(w.sandboxes)))
	case 10:
		if w.rnd.IntN(3) == 0 {
			w.note(w.RemovePodSandbox(ctx, w.pick(w.sandboxes)))
		}
	case 11:
		w.note(w.Kill(w.pick(w.containers), w.rnd.Int32N(3)))
	case 12:
		if w.rnd.IntN(10) == 0 {
			w.Reboot(0)
		}
		w.note(w.SetUnknown(w.pick(w.containers)))
	case 13:
		w.clock.Step(time.Duration(w.rnd.Int64N(int64(time.Second))))
	}
}

// check checks the conditions that must always hold.
func (w *walk) check() {
	ctx, t := w.t.Context(), w.t
	sandboxes, err := w.ListPodSandbox(ctx, nil)
	require.NoError(t, err)
	ips, ready := map[string]bool{}, map[string]bool{}
	for _, s := range sandboxes {
		st := w.sandbox(s.GetId())
		w.note(nil, s, st)
		if ip := st.GetNetwork().GetIp(); ip != "" {
			require.False(t, ips[ip], "two pods have the address %s", ip)
			ips[ip] = true
		}
		ready[s.GetId()] = s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	}
	containers, err := w.ListContainers(ctx, nil)
	require.NoError(t, err)
	last := int64(0)
	for _, c := range containers {
		st := w.status(c.GetId())
		w.note(nil, c, st)
		isReady, ok := ready[c.GetPodSandboxId()]
		require.True(t, ok, "a container must have a sandbox")
		require.Greater(t, c.GetCreatedAt(), last)
		last = c.GetCreatedAt()
		if c.GetState() == running {
			require.True(t, isReady, "a running container must have a ready sandbox")
		}
		if c.GetState() == exited {
			require.NotEmpty(t, st.GetReason())
			require.GreaterOrEqual(t, st.GetFinishedAt(), st.GetStartedAt())
			// The status of an exited container never changes, not even after
			// clock steps and reboots.
			if before, ok := w.ended[c.GetId()]; ok {
				require.Equal(t, before, st.String())
			}
			w.ended[c.GetId()] = st.String()
		}
	}
}

func TestNode_SameCallsReturnTheSameBytes(t *testing.T) {
	for seed := range uint64(8) {
		first := randomWalk(t, seed, 200)
		require.Equal(t, first, randomWalk(t, seed, 200), "seed %d", seed)
		require.NotEqual(t, first, randomWalk(t, seed+100, 200), "seed %d", seed)
	}
}

// TestNode_IsReproducible repeats the same calls a thousand times.
func TestNode_IsReproducible(t *testing.T) {
	const runs, steps = 1000, 25
	want := randomWalk(t, 1, steps)
	for range runs - 1 {
		require.Equal(t, want, randomWalk(t, 1, steps))
	}
}
