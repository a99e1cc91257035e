package kubeletconfig

import (
	"runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/internal/quantity"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/cgroups"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// Policies has the settings in the types of the managers' configurations. If a
// KubeletConfiguration has no setting for a field, the field is zero, which selects the
// manager's default.
type Policies struct {
	// Pods is for podrunner.Config.
	Pods podrunner.Policy
	// Eviction is for eviction.Config.
	Eviction eviction.Policy
	// Images is for images.Config. ImageGC is for imagegc.Config.
	Images  images.Policy
	ImageGC imagegc.Policy
	// Restarts is the back-off of container restarts, for lifecycle.NewBackoff.
	Restarts lifecycle.BackoffConfig
	// Logs is for logrotate.Config.
	Logs logrotate.Policy
	// Shutdown is how pods are stopped when the node shuts down. It is zero if the shutdown
	// does not wait for the pods.
	Shutdown podworker.ShutdownConfig
	// Cgroups configures the cgroups of pods. It is nil if pods have no cgroups. If
	// EnforceAllocatable is true, the caller must set Cgroups.Allocatable.
	Cgroups *cgroups.Config
	// EnforceAllocatable reports whether all pods together are limited to the node's
	// allocatable resources. It is false if pods have no cgroups.
	EnforceAllocatable bool
	// Reserved is the sum of systemReserved and kubeReserved.
	Reserved corev1.ResourceList
	// MaxPods is the maximum number of pods: maxPods, or podsPerCore times the number of CPUs
	// of this machine if that is less.
	MaxPods int
	// SyncPeriod is the time between two syncs of a pod after a success, without jitter, for
	// ResyncPeriod of podworker.
	SyncPeriod time.Duration
	// VolumePeriod is the age at which a volume's usage is measured again, for WalkPeriod of
	// stats.Config. UsageEvents enables wake-ups by memory usage on cgroup v1, for UsageEvents
	// of stats.Config.
	VolumePeriod time.Duration
	UsageEvents  bool
}

// Policies converts the settings to policies. The error joins each [Problem] of
// [Settings.Check]. Settings that [Load] or [Parse] have returned have no problem.
func (s Settings) Policies() (Policies, error) {
	if problems := s.Check(); len(problems) > 0 {
		return Policies{}, join(problems)
	}
	thresholds, _ := s.Thresholds() // Check has already parsed both values
	logBytes, _ := logrotate.ParseMaxSize(s.ContainerLogMaxSize)
	return Policies{
		Pods: s.pods(),
		Eviction: eviction.Policy{
			Thresholds:               thresholds,
			PressureTransitionPeriod: s.EvictionPressureTransitionPeriod.Duration,
			MaxPodGracePeriodSeconds: s.EvictionMaxPodGracePeriod,
			IgnoreLocalStorageLimits: !s.LocalStorageCapacityIsolation,
		},
		Images: s.pulls(),
		ImageGC: imagegc.Policy{
			HighThresholdPercent: new(int(s.ImageGCHighThresholdPercent)),
			LowThresholdPercent:  new(int(s.ImageGCLowThresholdPercent)),
			MinAge:               new(s.ImageMinimumGCAge.Duration),
			MaxAge:               s.ImageMaximumGCAge.Duration,
		},
		Restarts: s.restarts(),
		Logs: logrotate.Policy{
			MaxSizeBytes: logBytes,
			MaxFiles:     int(s.ContainerLogMaxFiles),
			Workers:      int(s.ContainerLogMaxWorkers),
			Interval:     s.ContainerLogMonitorInterval.Duration,
		},
		Shutdown:           s.shutdown(),
		Cgroups:            s.cgroups(),
		EnforceAllocatable: s.CgroupsPerQOS && slices.Contains(s.EnforceNodeAllocatable, "pods"),
		Reserved:           s.reserved(),
		MaxPods:            s.podLimit(),
		SyncPeriod:         s.SyncFrequency.Duration,
		VolumePeriod:       s.VolumeStatsAggPeriod.Duration,
		UsageEvents:        s.KernelMemcgNotification,
	}, nil
}

func (s Settings) pods() podrunner.Policy {
	return podrunner.Policy{
		ClusterDNS:     s.ClusterDNS,
		ClusterDomain:  s.ClusterDomain,
		SeccompDefault: s.SeccompDefault,
		UnsafeSysctls:  s.AllowedUnsafeSysctls,
		Limits: podrunner.Limits{
			NoCPUQuota:           !s.CPUCFSQuota,
			CPUPeriod:            s.CPUCFSQuotaPeriod.Duration,
			SingleProcessOOMKill: s.SingleProcessOOMKill != nil && *s.SingleProcessOOMKill,
		},
	}
}

func (s Settings) pulls() images.Policy {
	p := images.Policy{
		QPS: float64(s.RegistryPullQPS), Burst: int(s.RegistryBurst),
		Verify:          images.Verification(s.ImagePullCredentialsVerificationPolicy),
		VerifyAllowlist: s.PreloadedImagesVerificationAllowlist,
	}
	switch {
	case s.SerializeImagePulls:
		p.MaxParallelPulls = 1
	case s.MaxParallelImagePulls != nil:
		p.MaxParallelPulls = int(*s.MaxParallelImagePulls)
	}
	return p
}

func (s Settings) restarts() (cfg lifecycle.BackoffConfig) {
	if longest := s.CrashLoopBackOff.MaxContainerRestartPeriod; longest != nil {
		cfg.Initial, cfg.Max = min(lifecycle.DefaultInitialBackoff, longest.Duration), longest.Duration
	}
	return cfg
}

func (s Settings) shutdown() podworker.ShutdownConfig {
	cfg := podworker.ShutdownConfig{
		ShutdownGracePeriod:             s.ShutdownGracePeriod.Duration,
		ShutdownGracePeriodCriticalPods: s.ShutdownGracePeriodCriticalPods.Duration,
	}
	for _, p := range s.ShutdownGracePeriodByPodPriority {
		cfg.ShutdownGracePeriodByPodPriority = append(cfg.ShutdownGracePeriodByPodPriority, podworker.ShutdownGracePeriodByPodPriority{
			Priority: p.Priority, GracePeriod: lifecycle.Seconds(p.ShutdownGracePeriodSeconds),
		})
	}
	return cfg
}

func (s Settings) cgroups() *cgroups.Config {
	if !s.CgroupsPerQOS {
		return nil
	}
	cfg := &cgroups.Config{
		Parent:     s.CgroupRoot,
		PidsPerPod: max(0, s.PodPidsLimit),
	}
	if cfg.Parent == "" {
		cfg.Parent = "/"
	}
	return cfg
}

// reserved returns the sum of systemReserved and kubeReserved.
func (s Settings) reserved() corev1.ResourceList {
	sum := corev1.ResourceList{}
	for _, amounts := range []map[string]string{s.SystemReserved, s.KubeReserved} {
		for name, text := range amounts {
			q, _ := quantity.Parse(text) // Check has already parsed the amount
			q.Add(sum[corev1.ResourceName(name)])
			sum[corev1.ResourceName(name)] = q
		}
	}
	return sum
}

func (s Settings) podLimit() int {
	if s.PodsPerCore > 0 {
		return min(int(s.MaxPods), int(s.PodsPerCore)*runtime.NumCPU())
	}
	return int(s.MaxPods)
}
