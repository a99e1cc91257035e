package kubeletconfig_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/cgroups"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// policies returns the policies of a file.
func policies(t *testing.T, text string) kubeletconfig.Policies {
	t.Helper()
	f, err := kubeletconfig.Parse([]byte(header + text))
	require.NoError(t, err)
	p, err := f.Settings.Policies()
	require.NoError(t, err)
	return p
}

// changedPolicies returns the policies of a file that differ from the defaults, one
// per line. For an empty file it returns all policies that are not zero.
func changedPolicies(t *testing.T, text string) string {
	t.Helper()
	base := map[string]bool{}
	if strings.TrimSpace(text) != "" {
		for _, line := range leaves("", reflect.ValueOf(policies(t, ""))) {
			base[line] = true
		}
	}
	var b strings.Builder
	for _, line := range leaves("", reflect.ValueOf(policies(t, text))) {
		if !base[line] {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// leaves returns the values in v, with their paths. Zero values are omitted, except
// zero numbers and booleans.
func leaves(path string, v reflect.Value) (all []string) {
	if text, ok := reflect.TypeAssert[fmt.Stringer](v); ok && v.Kind() != reflect.Pointer {
		return []string{path + " = " + text.String()}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			all = leaves(path, v.Elem())
		}
	case reflect.Struct:
		for f := range v.Type().Fields() {
			if f.IsExported() {
				all = append(all, leaves(strings.TrimPrefix(path+"."+f.Name, "."), v.FieldByIndex(f.Index))...)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			all = append(all, leaves(fmt.Sprintf("%s[%d]", path, i), v.Index(i))...)
		}
	case reflect.Map:
		for _, key := range []string{"cpu", "memory", "ephemeral-storage"} {
			if q, ok := v.Interface().(corev1.ResourceList)[corev1.ResourceName(key)]; ok {
				all = append(all, path+"["+key+"] = "+q.String())
			}
		}
	case reflect.Func:
	case reflect.String:
		if v.String() != "" {
			all = append(all, fmt.Sprintf("%s = %q", path, v.String()))
		}
	default:
		all = append(all, fmt.Sprintf("%s = %v", path, v.Interface()))
	}
	return all
}

func TestPolicies_FileThatSetsNothing(t *testing.T) {
	t.Parallel()
	p := policies(t, "")
	require.NotEmpty(t, p.Eviction.Thresholds)
	p.Eviction.Thresholds = nil
	require.Equal(t, kubeletconfig.Policies{
		Pods:     podrunner.Policy{Limits: podrunner.Limits{CPUPeriod: 100 * time.Millisecond}},
		Eviction: eviction.Policy{PressureTransitionPeriod: 5 * time.Minute},
		Images:   images.Policy{MaxParallelPulls: 1, QPS: 5, Burst: 10, Verify: images.NeverVerifyPreloadedImages},
		ImageGC: imagegc.Policy{
			HighThresholdPercent: new(85), LowThresholdPercent: new(80), MinAge: new(2 * time.Minute),
		},
		Logs:         logrotate.Policy{MaxSizeBytes: 10 << 20, MaxFiles: 5, Workers: 1, Interval: 10 * time.Second},
		Reserved:     corev1.ResourceList{},
		MaxPods:      110,
		SyncPeriod:   time.Minute,
		VolumePeriod: time.Minute,
	}, p)
	require.NoError(t, p.Eviction.Validate())
	require.NoError(t, p.ImageGC.Validate())
}

func TestPolicies_FileThatSetsEverything(t *testing.T) {
	t.Parallel()
	require.Equal(t, kubeletconfig.Policies{
		Pods: podrunner.Policy{
			ClusterDNS: []string{"10.0.0.10"}, ClusterDomain: "cluster.local", SeccompDefault: true, UnsafeSysctls: []string{"net.*"},
			Limits: podrunner.Limits{NoCPUQuota: true, CPUPeriod: 50 * time.Millisecond, SingleProcessOOMKill: true},
		},
		Eviction: eviction.Policy{PressureTransitionPeriod: time.Second, MaxPodGracePeriodSeconds: 7, IgnoreLocalStorageLimits: true},
		Images: images.Policy{
			MaxParallelPulls: 4, QPS: 3, Burst: 2,
			Verify: images.NeverVerifyAllowlistedImages, VerifyAllowlist: []string{"registry.example/a"},
		},
		ImageGC: imagegc.Policy{
			HighThresholdPercent: new(70), LowThresholdPercent: new(60), MinAge: new(time.Hour), MaxAge: 2 * time.Hour,
		},
		Restarts: lifecycle.BackoffConfig{Initial: 10 * time.Second, Max: time.Minute},
		Logs:     logrotate.Policy{MaxSizeBytes: 1 << 20, MaxFiles: 3, Workers: 2, Interval: 5 * time.Second},
		Shutdown: podworker.ShutdownConfig{ShutdownGracePeriod: 30 * time.Second, ShutdownGracePeriodCriticalPods: 10 * time.Second},
		Cgroups:  &cgroups.Config{Parent: "/node", PidsPerPod: 100},
		Reserved: corev1.ResourceList{}, MaxPods: 20, SyncPeriod: 10 * time.Second, VolumePeriod: 30 * time.Second, UsageEvents: true,
	}, policies(t, `
clusterDNS: [10.0.0.10]
clusterDomain: cluster.local
seccompDefault: true
allowedUnsafeSysctls: ["net.*"]
cpuCFSQuota: false
cpuCFSQuotaPeriod: 50ms
singleProcessOOMKill: true
evictionHard: {}
enforceNodeAllocatable: [none]
evictionPressureTransitionPeriod: 1s
evictionMaxPodGracePeriod: 7
localStorageCapacityIsolation: false
maxParallelImagePulls: 4
registryPullQPS: 3
registryBurst: 2
imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages
preloadedImagesVerificationAllowlist: [registry.example/a]
imageGCHighThresholdPercent: 70
imageGCLowThresholdPercent: 60
imageMinimumGCAge: 1h
imageMaximumGCAge: 2h
crashLoopBackOff: {maxContainerRestartPeriod: 1m}
containerLogMaxSize: 1Mi
containerLogMaxFiles: 3
containerLogMaxWorkers: 2
containerLogMonitorInterval: 5s
shutdownGracePeriod: 30s
shutdownGracePeriodCriticalPods: 10s
cgroupRoot: /node
podPidsLimit: 100
maxPods: 20
syncFrequency: 10s
volumeStatsAggPeriod: 30s
kernelMemcgNotification: true
`))
}

func TestPolicies_DerivedFromSeveralSettings(t *testing.T) {
	t.Parallel()
	require.Zero(t, policies(t, "serializeImagePulls: false\n").Images.MaxParallelPulls, "parallel pulls must be unlimited")
	require.Equal(t, 1, policies(t, "maxParallelImagePulls: 1\n").Images.MaxParallelPulls)
	short := policies(t, "crashLoopBackOff: {maxContainerRestartPeriod: 3s}\n").Restarts
	require.Equal(t, lifecycle.BackoffConfig{Initial: 3 * time.Second, Max: 3 * time.Second}, short)
	require.NoError(t, short.Validate())

	byCore := policies(t, "maxPods: 1073741824\npodsPerCore: 1\n").MaxPods
	require.Positive(t, byCore)
	require.Less(t, byCore, 1<<20)

	whole := policies(t, "cgroupsPerQOS: true\n").Cgroups
	require.Equal(t, &cgroups.Config{Parent: "/"}, whole)

	reserved := policies(t, "systemReserved: {cpu: 500m, memory: 100Gi}\nkubeReserved: {cpu: 250m, ephemeral-storage: 1Gi}\n").Reserved
	require.Len(t, reserved, 3)
	for name, want := range map[corev1.ResourceName]string{"cpu": "750m", "memory": "100Gi", "ephemeral-storage": "1Gi"} {
		got := reserved[name]
		require.Zero(t, got.Cmp(resource.MustParse(want)), "%s: %v", name, got)
	}

	shutdown := policies(t, "shutdownGracePeriodByPodPriority: [{priority: 5, shutdownGracePeriodSeconds: 10}]\n").Shutdown
	require.Equal(t, []podworker.ShutdownGracePeriodByPodPriority{{Priority: 5, GracePeriod: 10 * time.Second}}, shutdown.ShutdownGracePeriodByPodPriority)
	require.NoError(t, shutdown.Validate())
}

func TestPolicies_RefusesWhatCheckRefuses(t *testing.T) {
	t.Parallel()
	s := kubeletconfig.Default()
	s.MaxPods, s.ContainerLogMaxSize, s.KubeReserved = 0, "x", map[string]string{"cpu": "x"}
	s.EvictionHard = map[string]string{"memory.available": "x"}
	p, err := s.Policies()
	require.Zero(t, p)
	for _, field := range []string{"maxPods: ", "containerLogMaxSize: ", "kubeReserved: ", "evictionHard: "} {
		require.ErrorContains(t, err, field)
	}
}

// Without pod cgroups the agent can't enforce the allocatable resources.
func TestPolicies_AllocatableIsEnforcedWithCgroups(t *testing.T) {
	t.Parallel()
	require.True(t, policies(t, "cgroupsPerQOS: true\n").EnforceAllocatable)
	require.False(t, policies(t, "cgroupsPerQOS: true\nenforceNodeAllocatable: [none]\n").EnforceAllocatable)
	require.False(t, policies(t, "").EnforceAllocatable)
}
