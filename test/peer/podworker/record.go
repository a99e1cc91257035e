package podworker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

var (
	errKill    = errors.New("the pod can't be ended")
	errVolumes = errors.New("a volume is busy")
)

// quiet is the time after the beginning of a shutdown after which nothing happens any more.
const quiet = 3 * time.Hour

// A diary is a record of one side's actions in the shutdowns of a world. It runs in a
// synctest bubble and uses its clock.
type diary struct {
	world *world

	mu    sync.Mutex
	all   []judge.Facts
	now   *shutdown
	began time.Time
	lock  []string
	locks int
}

// play lets the machine shut down repeatedly. It calls tell with true at the beginning of a
// shutdown, and with false when the shutdown is cancelled.
func (r *diary) play(tell func(bool)) []judge.Facts {
	for i := range r.world.Shutdowns {
		s := &r.world.Shutdowns[i]
		<-time.After(s.After)
		r.begin(s)
		tell(true)
		if s.Cancelled > 0 {
			<-time.After(s.Cancelled)
			tell(false)
		}
		<-time.After(quiet*r.world.scale - s.Cancelled)
	}
	r.begin(nil)
	return r.all
}

// accepted returns the facts of a world that has only options.
func accepted(problem error) []judge.Facts {
	if problem != nil {
		return []judge.Facts{{"options": "refused"}}
	}
	return []judge.Facts{{"options": "accepted"}}
}

// begin begins the next step.
func (r *diary) begin(s *shutdown) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != nil {
		r.all[len(r.all)-1]["lock"] = strings.Join(r.lock, ", ")
		r.lock = nil
	}
	if r.now, r.began = s, time.Now(); s != nil {
		r.all = append(r.all, judge.Facts{})
	}
}

// after returns the time since the beginning of the shutdown.
func (r *diary) after() string {
	if r.now == nil {
		return "at first"
	}
	return "after " + (time.Since(r.began) / r.world.scale).String()
}

func (r *diary) fact(name, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		return
	}
	f := r.all[len(r.all)-1]
	f[name] = strings.TrimPrefix(f[name]+"\n"+value, "\n")
}

// take and release record the inhibitor lock. Actions before the first shutdown belong to its
// step.
func (r *diary) take() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.locks++; r.locks == 1 {
		r.lock = append(r.lock, "held "+r.after())
	}
}

func (r *diary) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.locks--; r.locks == 0 {
		r.lock = append(r.lock, "free "+r.after())
	}
}

// kill terminates a pod: it ends by itself, or at the end of its grace period. A pod that
// hangs never ends.
func (r *diary) kill(ctx context.Context, pod *corev1.Pod, grace time.Duration, status func(*corev1.PodStatus)) error {
	p := r.now.pod(pod.Name)
	r.fact("pod "+pod.Name+"/told", fmt.Sprintf("%s, grace %s", r.after(), grace/r.world.scale))
	after := pod.Status.DeepCopy()
	status(after)
	for i := range after.Conditions {
		if c := &after.Conditions[i]; !c.LastTransitionTime.Before(&metav1.Time{Time: r.began}) {
			c.LastTransitionTime = metav1.NewTime(time.Time{}.Add(time.Since(r.began) / r.world.scale))
		}
	}
	r.fact("pod "+pod.Name+"/status", statusText(after))
	ends := p.Ends
	if ends < hangs*r.world.scale {
		ends = min(ends, grace+120*time.Millisecond*r.world.scale)
	}
	if err := sleep(ctx, ends); err != nil {
		return err
	}
	if p.Fails {
		return errKill
	}
	return nil
}

func statusText(s *corev1.PodStatus) string {
	slices.SortFunc(s.Conditions, func(a, b corev1.PodCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
	text, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// unmount waits until the volumes of pods are unmounted.
func (r *diary) unmount(ctx context.Context, pods []*corev1.Pod) error {
	s := r.now
	for _, p := range pods {
		r.fact("pod "+p.Name+"/volumes", "awaited "+r.after())
	}
	if err := sleep(ctx, s.Volumes); err != nil {
		return err
	}
	if s.VolumesFail {
		return errVolumes
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
