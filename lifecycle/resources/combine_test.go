package resources_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/resources"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gives is an allocator that implements only Name and Container.
type gives struct {
	resources.Ledger

	name string
	in   resources.Injection
	err  error
}

func (g gives) Name() string { return g.name }

func (g gives) Container(context.Context, resources.ContainerRequest) (resources.Injection, error) {
	return g.in, g.err
}

func TestCombine_Merges(t *testing.T) {
	t.Parallel()
	device, other := &runtimeapi.Device{ContainerPath: "/dev/a"}, &runtimeapi.Device{ContainerPath: "/dev/b"}
	mount := &runtimeapi.Mount{ContainerPath: "/lib/a"}
	cdi := &runtimeapi.CDIDevice{Name: "acme.example/fpga=1"}
	health := corev1.ResourceStatus{Name: "acme.example/fpga"}
	env := map[string]string{"A": "1"}
	first := gives{name: "first", in: resources.Injection{
		CPUs: "0-1", Devices: []*runtimeapi.Device{device, nil}, Env: env, Annotations: map[string]string{"a": "1"},
	}}
	second := gives{name: "second", in: resources.Injection{
		Mems: "0", Devices: []*runtimeapi.Device{other}, CDIDevices: []*runtimeapi.CDIDevice{cdi}, Env: map[string]string{"B": "2"},
		Mounts: []*runtimeapi.Mount{mount}, Annotations: map[string]string{"b": "2"}, Health: []corev1.ResourceStatus{health},
	}}
	got, err := resources.Combine(first, second)(t.Context(), resources.ContainerRequest{})
	require.NoError(t, err)
	require.Equal(t, resources.Injection{
		CPUs: "0-1", Mems: "0", Devices: []*runtimeapi.Device{device, other}, CDIDevices: []*runtimeapi.CDIDevice{cdi},
		Env: map[string]string{"A": "1", "B": "2"}, Mounts: []*runtimeapi.Mount{mount}, Annotations: map[string]string{"a": "1", "b": "2"},
		Health: []corev1.ResourceStatus{health},
	}, got)
	require.Equal(t, map[string]string{"A": "1"}, env, "the allocator's result must not be modified")

	got, err = resources.Combine[resources.Allocator]()(t.Context(), resources.ContainerRequest{})
	require.NoError(t, err)
	require.Zero(t, got)
}

func TestCombine_NamesBothAllocatorsInConflict(t *testing.T) {
	t.Parallel()
	full := resources.Injection{
		CPUs: "0", Mems: "0", Devices: []*runtimeapi.Device{{ContainerPath: "/dev/a"}}, CDIDevices: []*runtimeapi.CDIDevice{{Name: "acme.example/fpga=1"}},
		Env: map[string]string{"A": "1"}, Mounts: []*runtimeapi.Mount{{ContainerPath: "/lib/a/"}}, Annotations: map[string]string{"key": "1"},
		Health: []corev1.ResourceStatus{{Name: "acme.example/fpga"}},
	}
	for thing, in := range map[string]resources.Injection{
		"CPUs":                           {CPUs: "0"}, // equal lists are also a conflict: each allocator expects that only it sets CPUs
		"Mems":                           {Mems: "1"},
		"device /dev/a":                  {Devices: []*runtimeapi.Device{{ContainerPath: "/dev/a"}}},
		"CDI device acme.example/fpga=1": {CDIDevices: []*runtimeapi.CDIDevice{{Name: "acme.example/fpga=1"}}},
		"environment variable A":         {Env: map[string]string{"A": "2"}},
		"mount /lib/a":                   {Mounts: []*runtimeapi.Mount{{ContainerPath: "/lib/a"}}},
		"annotation key":                 {Annotations: map[string]string{"key": "2"}},
		"health of acme.example/fpga":    {Health: []corev1.ResourceStatus{{Name: "acme.example/fpga"}}},
	} {
		_, err := resources.Combine(gives{name: "cpu", in: full}, gives{name: "fpga", in: in})(t.Context(), resources.ContainerRequest{})
		require.EqualError(t, err, "allocators cpu and fpga both set "+thing)
	}
	got, err := resources.Combine(gives{name: "a", in: full}, gives{name: "b", in: full})(t.Context(), resources.ContainerRequest{})
	require.ErrorContains(t, err, "both set CPUs")
	require.ErrorContains(t, err, "both set annotation key")
	require.Empty(t, got.CPUs, "a running container must keep its CPUs")
}

func TestCombine_ErrorNamesItsAllocatorAndHidesNoOther(t *testing.T) {
	t.Parallel()
	broken := errors.New("the device is gone")
	got, err := resources.Combine(
		gives{name: "fpga", err: broken}, gives{name: "cpu", in: resources.Injection{CPUs: "2"}},
	)(t.Context(), resources.ContainerRequest{})
	require.EqualError(t, err, "allocator fpga: the device is gone")
	require.ErrorIs(t, err, broken)
	require.Equal(t, "2", got.CPUs, "the CPUs of a running container must come from the other allocator")
}

func TestCombine_OneAllocatorMayNameAThingTwice(t *testing.T) {
	t.Parallel()
	in := resources.Injection{Devices: []*runtimeapi.Device{{ContainerPath: "/dev/a"}, {ContainerPath: "/dev/a"}}}
	got, err := resources.Combine(gives{name: "a", in: in}, gives{name: "a", in: resources.Injection{CPUs: "1"}})(t.Context(), resources.ContainerRequest{})
	require.NoError(t, err)
	require.Len(t, got.Devices, 2)
}
