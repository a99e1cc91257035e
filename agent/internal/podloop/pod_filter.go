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

// podFilter ignores the invalid pods of a source: pods without a UID, a namespace, a name or a
// container, pods with names that are invalid in the API, and pods in which two containers have the
// same name. Invalid names could be harmful in paths on the node. Pods of an API server and decoded
// manifests are always valid, but pods of a custom source may be invalid.
type podFilter struct {
	source  string
	checked map[*corev1.Pod]error // result of the last check of each pod

	mu       sync.Mutex
	problems []string // found by the last call of check
}

// check returns the valid pods. It logs the problems that the previous call did not find. It must
// not be called concurrently.
func (d *podFilter) check(ctx context.Context, l *Loop, pods []*corev1.Pod) []*corev1.Pod {
	before := d.checked
	d.checked = make(map[*corev1.Pod]error, len(pods))
	var problems []string
	good := make([]*corev1.Pod, 0, len(pods))
	for _, pod := range pods {
		err, known := before[pod]
		if !known {
			err = problemOf(pod)
		}
		d.checked[pod] = err
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
			l.cfg.Logger.ErrorContext(ctx, "ignored an invalid pod of a source, its other pods are not affected", "err", p)
		}
	}
	if !slices.Equal(old, problems) {
		l.cfg.Changed()
	}
	return good
}

// notes returns the problems of the ignored pods.
func (d *podFilter) notes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.problems)
}

// problemOf returns an error that names the invalid fields of a pod. It returns nil for a valid
// pod.
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
	// UIDs of the API server are UUIDs. Other UIDs must be valid folder names.
	report("metadata.uid", string(pod.UID), validation.IsDNS1123Subdomain(string(pod.UID)))
	report("metadata.namespace", pod.Namespace, validation.IsDNS1123Label(pod.Namespace))
	report("metadata.name", pod.Name, validation.IsDNS1123Subdomain(pod.Name))
	if len(pod.Spec.Containers) == 0 {
		errs = append(errs, errors.New("spec.containers: at least one container is required"))
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
