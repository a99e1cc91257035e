package podrunner_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// journal records the calls of collaborators, in order.
type journal struct {
	mu   sync.Mutex
	said []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.said = append(j.said, fmt.Sprintf(format, args...))
}

func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	said := j.said
	j.said = nil
	return said
}

// fakeVolumes reports every volume at /volumes/NAME.
type fakeVolumes struct {
	journal

	err         error // error of Mount and Refresh
	unsupported error
	readOnly    map[string]bool
	stuck       int // number of Unmount calls that fail
	pods        map[types.UID]bool
}

func (v *fakeVolumes) Unsupported(*corev1.Pod) error { return v.unsupported }

func (v *fakeVolumes) Mount(_ context.Context, pod *corev1.Pod) (map[string]string, map[string]bool, error) {
	v.add("mount %s", pod.UID)
	if v.pods == nil {
		v.pods = map[types.UID]bool{}
	}
	v.pods[pod.UID] = true
	paths := map[string]string{}
	for _, vol := range pod.Spec.Volumes {
		paths[vol.Name] = "/volumes/" + vol.Name
	}
	return paths, v.readOnly, v.err
}

func (v *fakeVolumes) Refresh(_ context.Context, pod *corev1.Pod) error {
	v.add("refresh %s", pod.UID)
	return v.err
}

func (v *fakeVolumes) Unmount(_ context.Context, uid types.UID) error {
	v.add("unmount %s", uid)
	if v.stuck--; v.stuck >= 0 {
		return errors.New("in use")
	}
	delete(v.pods, uid)
	return nil
}

func (v *fakeVolumes) Pods() ([]types.UID, error) { return slices.Collect(maps.Keys(v.pods)), nil }

// fakeCgroups keeps cgroups in memory.
type fakeCgroups struct {
	journal

	err    error         // error of Ensure
	period time.Duration // period of quotas in the last Ensure call
	busy   int           // number of Remove calls that fail
}

func (c *fakeCgroups) Ensure(_ context.Context, pod *corev1.Pod, quotaPeriod time.Duration) (string, error) {
	c.period = quotaPeriod
	c.add("ensure %s", pod.UID)
	return "/kubepods/pod" + string(pod.UID), c.err
}

func (c *fakeCgroups) Update(_ context.Context, pod *corev1.Pod, _ time.Duration) error {
	c.add("update %s", pod.UID)
	return nil
}

func (c *fakeCgroups) Remove(_ context.Context, uid types.UID) error {
	c.add("remove %s", uid)
	if c.busy--; c.busy >= 0 {
		return errors.New("cgroup is in use")
	}
	return nil
}
