package agent_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/cgroups"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noPods is a source without pods.
func noPods(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
	set(ctx, nil)
	<-ctx.Done()
	return nil
}

// valid returns a config with all required fields, and a fake host.
func valid(t *testing.T) agent.Config {
	t.Helper()
	node, err := fakecri.New(fakecri.Config{})
	require.NoError(t, err)
	return agent.Config{
		Name: "one", NodeName: "node1", Runtime: node, Host: fakehost.New(node),
		Sources: []agent.Source{{Name: "file", Run: noPods}},
	}
}

func TestConfig_RequiredFields(t *testing.T) {
	err := agent.Config{}.Validate()
	for _, field := range []string{"Name", "NodeName", "Runtime", "Sources"} {
		require.ErrorContains(t, err, "agent: "+field+" is required")
	}
	require.NoError(t, valid(t).Validate())
}

func TestConfig_EveryProblemIsReported(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(*agent.Config)
		want []string
	}{
		{"names", func(c *agent.Config) { c.Name, c.NodeName = "not a label", "Not_A_Subdomain" }, []string{`Name "not a label"`, `NodeName "Not_A_Subdomain"`}},
		{"folders", func(c *agent.Config) { c.Root, c.PodLogs, c.ContainerLogs = "root", "", "links" }, []string{
			`Root "root" is not an absolute path`, `ContainerLogs "links" is not an absolute path`, "ContainerLogs needs PodLogs",
		}},
		{"sources", func(c *agent.Config) {
			c.Sources = []agent.Source{{Name: "a", Run: noPods}, {Name: "a"}, {Run: noPods}}
		}, []string{`Sources[1]: another source has the name "a"`, `Sources[1] ("a") has no Run`, "Sources[2] has no Name"}},
		{"host", func(c *agent.Config) { c.Host = &host.Host{} }, []string{"Host.Facts is required"}},
		{"numbers", func(c *agent.Config) { c.MaxPods, c.StaticPods, c.SyncPeriod = -1, 7, -time.Second }, []string{
			"MaxPods is -1", "StaticPods is 7, which is not a StaticPodPolicy",
		}},
		{"cgroups", func(c *agent.Config) { c.EnforceAllocatable = true }, []string{"EnforceAllocatable needs Cgroups"}},
		{"nil hooks", func(c *agent.Config) {
			c.Admission = []lifecycle.NamedHandler{{Name: "quota"}}
			c.Allocators = []resources.Allocator{nil}
			c.Volumes = []volumes.Plugin{nil}
			c.Credentials = []images.CredentialProvider{nil}
		}, []string{"Admission[0] is nil", "Allocators[0] is nil", "Volumes[0] is nil", "Credentials[0] is nil", "Volumes needs Root"}},
		{"names of hooks", func(c *agent.Config) {
			admit := lifecycle.AdmitFunc(func(context.Context, lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
				return lifecycle.PodAdmitResult{Admit: true}
			})
			c.Admission = []lifecycle.NamedHandler{{Name: "quota", Handler: admit}, {Name: "quota", Handler: admit}, {Handler: admit}}
		}, []string{`Admission[1]: another entry has the name "quota"`, "Admission[2] has no name"}},
		{"policies of managers", func(c *agent.Config) {
			c.Logs = logrotate.Policy{MaxFiles: 1}
			c.Cgroups = &cgroups.Config{Parent: "relative"}
			c.PodLogs = "/var/log/pods"
		}, []string{"MaxFiles", "Parent"}},
		{"policies of both loops", func(c *agent.Config) {
			c.ImageGC = imagegc.Policy{HighThresholdPercent: new(101)}
			c.Restarts = lifecycle.BackoffConfig{Initial: -time.Second}
		}, []string{"HighThresholdPercent", "Initial"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := valid(t)
			tc.set(&c)
			err := c.Validate()
			for _, want := range tc.want {
				require.ErrorContains(t, err, want)
			}
			_, errNew := agent.New(c)
			require.EqualError(t, errNew, err.Error())
			require.Len(t, strings.Split(err.Error(), "\n"), len(tc.want), "number of reported problems: %v", err)
		})
	}
}
