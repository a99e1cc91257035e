package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
	"github.com/kubeparts/kubeparts/podcache"
)

const (
	// dongleResource is the name of the extended resource.
	dongleResource = corev1.ResourceName("example.com/dongle")
	// dongleAnnotation is an annotation of a container. Its value is the name of the
	// container's dongle.
	dongleAnnotation = "example.com/dongle"
	// deviceOnNode stands for the device file of each dongle.
	deviceOnNode = "/dev/null"
)

// dongles is a device manager. It assigns at most one dongle to each pod.
type dongles struct {
	total resource.Quantity

	mu   sync.Mutex
	free []string
	own  map[types.UID]string
}

var _ resources.Allocator = (*dongles)(nil)

func newDongles(names ...string) *dongles {
	return &dongles{total: *resource.NewQuantity(int64(len(names)), resource.DecimalSI), free: names, own: map[types.UID]string{}}
}

// assign assigns a free dongle to a pod.
func (d *dongles) assign(pod types.UID, name string) {
	d.own[pod] = name
	d.free = slices.DeleteFunc(d.free, func(free string) bool { return free == name })
}

// Name implements [resources.Ledger].
func (*dongles) Name() string { return "dongles" }

// Restore implements [resources.Ledger].
func (d *dongles) Restore(_ context.Context, found []*podcache.Status) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, pod := range found {
		for _, c := range pod.Containers {
			if name := c.GetAnnotations()[dongleAnnotation]; name != "" {
				d.assign(pod.UID, name)
			}
		}
	}
	return nil
}

// Admit implements [lifecycle.AdmitHandler].
func (d *dongles) Admit(_ context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	d.mu.Lock()
	defer d.mu.Unlock()
	requests := podspec.Requests(attrs.Pod)
	want := requests.Name(dongleResource, resource.DecimalSI).Value()
	_, has := d.own[attrs.Pod.UID]
	switch {
	case want == 0 || has:
		return lifecycle.PodAdmitResult{Admit: true}
	case want > 1 || len(d.free) == 0:
		return lifecycle.PodAdmitResult{Reason: "NoFreeDongle", Message: fmt.Sprintf("the pod requests %d dongles; it may have one, and %d are free", want, len(d.free))}
	}
	d.assign(attrs.Pod.UID, d.free[0])
	return lifecycle.PodAdmitResult{Admit: true}
}

// Container implements [resources.Ledger].
func (d *dongles) Container(_ context.Context, r resources.ContainerRequest) (resources.Injection, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name, has := d.own[r.Pod.UID]
	if _, requested := r.Container.Resources.Requests[dongleResource]; !requested || !has {
		return resources.Injection{}, nil
	}
	return resources.Injection{
		Devices:     []*runtimeapi.Device{{HostPath: deviceOnNode, ContainerPath: "/dev/dongle", Permissions: "rw"}},
		Env:         map[string]string{"DONGLE": name},
		Annotations: map[string]string{dongleAnnotation: name},
	}, nil
}

// Release implements [resources.Ledger].
func (d *dongles) Release(pod types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if name, has := d.own[pod]; has {
		delete(d.own, pod)
		d.free = append(d.free, name)
	}
}
