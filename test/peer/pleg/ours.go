package pleg

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// oursRun is our side of one scenario.
type oursRun struct {
	w       *World
	began   time.Time
	node    *node
	cache   *podcache.Cache
	pleg    *pleg.Generator
	events  []event
	waiters []*waiting
	counts  pleg.Result // of the last global relist
	told    told        // in this step
	// early is the facts of pods whose status changed after the pod's event.
	early map[string]judge.Facts
	// left is the number of further events until cut cancels the pass.
	left int
	cut  context.CancelFunc
}

// playOurs plays a world with our packages.
func playOurs(t *testing.T, w *World) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		r := &oursRun{w: w, began: time.Now(), node: newNode(w), cache: podcache.New()}
		var err error
		r.pleg, err = pleg.New(pleg.Config{
			Runtime: r.node, Cache: r.cache, MaxInspections: w.Places,
			Handler: r.handle, LabelSelector: r.selector(), Observer: r.observer(),
		})
		require.NoError(t, err)
		for i := range w.Steps {
			all = append(all, r.step(ctx, i))
		}
	})
	return all
}

func (r *oursRun) handle(_ context.Context, e pleg.Event) {
	r.events = append(r.events, event{string(e.PodUID), string(e.Type), e.ContainerID})
	if r.early[string(e.PodUID)] == nil {
		f := judge.Facts{}
		r.view(string(e.PodUID)).facts(f, string(e.PodUID))
		r.early[string(e.PodUID)] = f
	}
	if r.left--; r.left == 0 {
		r.cut()
	}
}

func (r *oursRun) step(ctx context.Context, i int) judge.Facts {
	s, f := r.w.Steps[i], judge.Facts{}
	time.Sleep(time.Until(r.began.Add(s.At)))
	if err := r.pleg.Healthy(); err != nil {
		f["unhealthy"] = err.Error()
	}
	r.node.begin(s)
	r.events, r.early, r.told = nil, map[string]judge.Facts{}, told{}
	for _, uid := range s.Reinspect {
		r.pleg.RequestReinspect(types.UID(uid))
	}
	for _, w := range s.Waiters {
		r.wait(ctx, w)
	}
	done, slow := make(chan struct{}), r.node.slowest() > 0
	go func() {
		defer close(done)
		if s.Cut > 0 {
			cut, cancel := context.WithCancel(ctx)
			r.left, r.cut = s.Cut, cancel
			r.look(cut, s.Look)
			cancel()
			r.left = 0
		}
		r.look(ctx, s.Look)
	}()
	if slow {
		time.Sleep(time.Second)
		r.freshness(ctx, f, "meanwhile/", i)
		f["told meanwhile"] = fmt.Sprint(len(r.told.inspected), " inspected")
	}
	<-done
	r.node.reach(2)
	addEvents(f, r.events)
	for _, uid := range uids() {
		now := judge.Facts{}
		r.view(uid).facts(now, uid)
		for fact, value := range now {
			f[fact] = value
			if before, seen := r.early[uid]; seen && s.Cut == 0 && before[fact] != value {
				f["pod "+uid+"/events before their status"] = fact
			}
		}
	}
	r.freshness(ctx, f, "", i)
	f["running pods"] = fmt.Sprint(r.counts.RunningPods)
	f[countName(running)] = fmt.Sprint(r.counts.RunningContainers)
	f[countName(exited)] = fmt.Sprint(r.counts.ExitedContainers)
	f[countName(created)] = fmt.Sprint(r.counts.OtherContainers)
	r.report(f)
	return f
}

// look relists the runtime. Errors appear in the cache and in Healthy, as in the kubelet.
func (r *oursRun) look(ctx context.Context, l Look) {
	switch {
	case l.None:
	case l.Pod != "":
		r.told.err = r.pleg.RelistPod(ctx, types.UID(l.Pod))
	default:
		r.told.result, r.told.err = r.pleg.Relist(ctx)
	}
}

func (r *oursRun) wait(ctx context.Context, w Waiter) {
	waiter := &waiting{Waiter: w, receipt: make(chan view, 1)}
	r.waiters = append(r.waiters, waiter)
	go func() {
		s, err := r.cache.GetNewerThan(ctx, types.UID(w.Pod), r.began.Add(w.For))
		if ctx.Err() == nil {
			waiter.receipt <- oursView(s, err)
		}
	}()
	synctest.Wait()
	if waiter.add(judge.Facts{}, 0, r.view); waiter.result != "" {
		waiter.result += " at once"
	}
}

func (r *oursRun) freshness(ctx context.Context, f judge.Facts, prefix string, step int) {
	synctest.Wait()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for _, uid := range uids() {
		f[prefix+"pod "+uid+"/as new as"] = freshness(r.w, step, func(at time.Duration) bool {
			s, _ := r.cache.GetNewerThan(ended, types.UID(uid), r.began.Add(at))
			return s != nil
		})
	}
	for i, w := range r.waiters {
		if prefix == "" {
			w.add(f, i, r.view)
		}
	}
}

func (r *oursRun) view(uid string) view { return oursView(r.cache.Get(types.UID(uid))) }

func oursView(s *podcache.Status, err error) view {
	v := view{uid: string(s.UID), err: err, stale: s.Stale, ips: s.IPs, name: strings.Trim(s.Namespace+"/"+s.Name, "/"), runs: s.Running()}
	for _, b := range s.Sandboxes {
		v.sandboxes = append(v.sandboxes, sandboxView{b.Id, sandboxText(b)})
	}
	for _, c := range s.Containers {
		o := Object{
			State: int32(c.State), Created: c.CreatedAt, Started: c.StartedAt, Finished: c.FinishedAt,
			Exit: c.ExitCode, Reason: c.Reason, Message: c.Message, Memory: c.GetResources().GetLinux().GetMemoryLimitInBytes(),
		}
		v.containers = append(v.containers, containerView{
			id: c.Id, name: podcache.ContainerName(c), restarts: podcache.RestartCount(c), text: o.text(),
			active: s.Active(podcache.ContainerName(c)) == c && s.ReadySandbox() != nil,
		})
	}
	return v
}
