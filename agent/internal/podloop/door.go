package podloop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// door keeps pods out that no agent can run: those without an identity, or with names that are
// no names of the API and would be paths on the node. A pod of an API server or a decoded
// manifest has neither problem; a source of a program's own may.
type door struct {
	source string
	seen   map[*corev1.Pod]error // what the last check of each pod found

	mu       sync.Mutex
	problems []string // of the last set of pods
}

// check returns the pods that can be run. It logs each problem once, as long as it lasts. It is
// called by one goroutine at a time.
func (d *door) check(ctx context.Context, l *Loop, pods []*corev1.Pod) []*corev1.Pod {
	before := d.seen
	d.seen = make(map[*corev1.Pod]error, len(pods))
	var problems []string
	good := make([]*corev1.Pod, 0, len(pods))
	for _, pod := range pods {
		err, known := before[pod]
		if !known {
			err = problemOf(pod)
		}
		d.seen[pod] = err
		if err == nil {
			good = append(good, pod)
			continue
		}
		problems = append(problems, fmt.Sprintf("source %s: %v", d.source, err))
	}
	d.mu.Lock()
	old := d.problems
	d.problems = problems
	d.mu.Unlock()
	for _, p := range problems {
		if !slices.Contains(old, p) {
			l.cfg.Logger.ErrorContext(ctx, "left out a pod that can't be run", "err", p)
		}
	}
	if !slices.Equal(old, problems) {
		l.cfg.Changed()
	}
	return good
}

// notes returns the problems of the pods that are left out.
func (d *door) notes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.problems)
}

// problemOf returns why a pod can't be run, by field.
func problemOf(pod *corev1.Pod) error {
	if pod == nil {
		return errors.New("a pod is nil")
	}
	var errs []error
	report := func(field, value string, problems []string) {
		for _, p := range problems {
			errs = append(errs, fmt.Errorf("%s %q: %s", field, value, p))
		}
	}
	// A UID of the API server is a UUID. Others need to be names of folders.
	report("metadata.uid", string(pod.UID), validation.IsDNS1123Subdomain(string(pod.UID)))
	report("metadata.namespace", pod.Namespace, validation.IsDNS1123Label(pod.Namespace))
	report("metadata.name", pod.Name, validation.IsDNS1123Subdomain(pod.Name))
	if len(pod.Spec.Containers) == 0 {
		errs = append(errs, errors.New("spec.containers: there are no containers"))
	}
	names := map[string]bool{}
	container := func(field, name string) {
		report(field, name, validation.IsDNS1123Label(name))
		if names[name] {
			errs = append(errs, fmt.Errorf("%s %q: another container has this name", field, name))
		}
		names[name] = true
	}
	for i := range pod.Spec.InitContainers {
		container(fmt.Sprintf("spec.initContainers[%d].name", i), pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		container(fmt.Sprintf("spec.containers[%d].name", i), pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		container(fmt.Sprintf("spec.ephemeralContainers[%d].name", i), pod.Spec.EphemeralContainers[i].Name)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, errors.Join(errs...))
}
