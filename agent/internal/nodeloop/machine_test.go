package nodeloop_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

func TestFacts_AreThoseOfTheHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.cfg.Services = func(string) ([]*corev1.Service, error) { return nil, errors.New("services") }
		b.make(t)
		require.Empty(t, b.Facts().IPs, "facts must be empty before Run")
		require.Zero(t, b.machine.asked)

		stop := b.start(t)
		f := b.Facts()
		require.Equal(t, "node1", f.Name)
		require.Equal(t, []string{"192.0.2.1", "2001:db8::1"}, f.IPs)
		require.Equal(t, int64(8<<30), f.MemoryCapacityBytes)
		require.Equal(t, b.Node().Status.Allocatable, f.Allocatable)
		require.Equal(t, []string{"192.0.2.53"}, f.DNS.Host.Servers)
		require.Equal(t, "127.0.0.1 localhost\n", string(f.HostsFile))
		require.Equal(t, podrunner.Cgroups{V2: true}, f.Cgroups)
		require.True(t, f.AppArmor && f.SELinux)
		require.Nil(t, f.Runtime, "the runtime reports no features")
		_, err := f.Services("ns")
		require.EqualError(t, err, "services")

		b.machine.change(func(m *machine) { m.facts.ResolvConf = []byte("nameserver 192.0.2.54\n") })
		wait(time.Second)
		require.Equal(t, []string{"192.0.2.54"}, b.Facts().DNS.Host.Servers, "the facts must be read again after a second")
		stop()
		b.machine.change(func(m *machine) { m.facts = host.Facts{} })
		require.Len(t, b.Facts().IPs, 2, "after Run the last facts must be returned")
	})
}

func TestFacts_DNS(t *testing.T) {
	t.Parallel()
	unreadable := errors.New("permission denied")
	for name, c := range map[string]struct {
		facts host.Facts
		want  podrunner.DNS
		fails string
	}{
		"unknown":    {host.Facts{}, podrunner.DNS{}, ""},
		"no lookups": {host.Facts{NoLookups: true, ResolvConf: []byte("nameserver 192.0.2.53")}, podrunner.DNS{NoLookups: true}, ""},
		"unreadable": {host.Facts{ResolvConfErr: unreadable}, podrunner.DNS{HostErr: unreadable}, "permission denied"},
		"empty":      {host.Facts{ResolvConf: []byte{}}, podrunner.DNS{Host: &podrunner.ResolvConf{}}, ""},
		"broken":     {host.Facts{ResolvConf: []byte("nameserver\n")}, podrunner.DNS{Host: &podrunner.ResolvConf{}}, "nameserver"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.start(t)
				b.machine.change(func(m *machine) { m.facts = c.facts })
				wait(time.Second)
				dns := b.Facts().DNS
				if c.fails != "" {
					require.ErrorContains(t, dns.HostErr, c.fails)
				}
				dns.HostErr, c.want.HostErr = nil, nil
				require.Equal(t, c.want, dns)
			})
		})
	}
}

func TestFacts_RuntimeClasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		node, err := fakecri.New(fakecri.Config{RuntimeHandlers: []string{"runc", "gvisor"}})
		require.NoError(t, err)
		b.cfg.Runtime = node
		b.make(t)
		_, err = b.Facts().RuntimeHandler("gvisor")
		require.Error(t, err, "the runtime's handlers are unknown before Run")

		b.start(t)
		handler, err := b.Facts().RuntimeHandler("gvisor")
		require.NoError(t, err)
		require.Equal(t, "gvisor", handler)
		_, err = b.Facts().RuntimeHandler("kata")
		require.EqualError(t, err, "failed to get RuntimeClass kata: the runtime has no handler of that name")
		require.NotNil(t, b.Facts().Handler("gvisor"))
		require.Nil(t, b.Facts().Handler("kata"))
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.cfg.RuntimeHandler = func(class string) (string, error) { return "handler-of-" + class, nil }
		b.start(t)
		handler, err := b.Facts().RuntimeHandler("kata")
		require.NoError(t, err)
		require.Equal(t, "handler-of-kata", handler, "the handler must come from the cluster")
	})
}

// A pod that changes needs facts several times. The host, which reads files, is called at
// most once a second.
func TestFacts_AreReadOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		b := newBed(t)
		facts := b.cfg.Host.Facts
		b.cfg.Host.Facts = func(ctx context.Context) (host.Facts, error) { asked++; return facts(ctx) }
		b.start(t)
		time.Sleep(time.Second)
		before := asked
		for range 10 {
			b.Facts()
		}
		require.Equal(t, before+1, asked)
		time.Sleep(time.Second)
		b.Facts()
		require.Equal(t, before+2, asked, "expired facts must be read again")
	})
}
