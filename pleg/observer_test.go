package pleg_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/pleg"
)

func TestObserver_ReportsTheEventStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		w.refuseWith(errors.New("not yet"))
		opened, ended := 0, []string{}
		var ages []time.Duration
		r := newRig(t, clock.RealClock{}, hinted(w), func(c *pleg.Config) {
			c.LabelSelector = map[string]string{"ours": "yes"}
			c.Observer.StreamOpened = func() { opened++ }
			c.Observer.StreamEnded = func(err error) { ended = append(ended, err.Error()) }
			c.Observer.HintReceived = func(age time.Duration) { ages = append(ages, age) }
		})
		stop := start(t, r)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{"not yet"}, ended)
		require.Zero(t, opened)

		w.refuseWith(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1, opened)

		tell := func(at int64, labels map[string]string) {
			w.events <- &runtimeapi.ContainerEventResponse{
				CreatedAt: at, PodSandboxStatus: &runtimeapi.PodSandboxStatus{Labels: labels},
			}
		}
		ours := map[string]string{"ours": "yes", crilabels.PodUID: "a"}
		now := time.Now().UnixNano()
		tell(now-int64(3*time.Second), ours)
		tell(now+int64(time.Hour), ours)
		tell(0, ours)
		tell(now, map[string]string{crilabels.PodUID: "b"})
		synctest.Wait()
		require.Equal(t, []time.Duration{3 * time.Second, 0, 0}, ages, "no age may be negative, and pods of other agents must not be counted")

		w.broken <- errors.New("broken")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"not yet", "broken"}, ended)
		require.Equal(t, 2, opened)
		stop()
		require.Len(t, ended, 2, "the end by cancellation must not be reported")
	})
}

// Config.Random determines the pauses before a broken stream is opened again.
func TestRun_ReopensTheStreamAfterRandomPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		w.refuseWith(errors.New("not yet"))
		began := time.Now()
		var ended []time.Duration
		r := newRig(t, clock.RealClock{}, hinted(w), func(c *pleg.Config) {
			c.Random = func() float64 { return 0.5 }
			c.Observer.StreamEnded = func(error) { ended = append(ended, time.Since(began)) }
		})
		stop := start(t, r)
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []time.Duration{0, 75 * time.Millisecond, 225 * time.Millisecond}, ended)
		stop()
	})
}
