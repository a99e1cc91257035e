package kubeletconfig

import (
	"fmt"
	"maps"
	"math"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/internal/quantity"
	"github.com/kubeparts/kubeparts/lifecycle/images"
)

// Check returns a [Problem] for each field whose value is out of range or contradicts another
// field. Line is always 0.
func (s Settings) Check() []Problem {
	var c checker
	s.checkSources(&c)
	s.checkServer(&c)
	s.checkAccess(&c)
	s.checkPods(&c)
	s.checkCgroups(&c)
	s.checkImages(&c)
	s.checkEviction(&c)
	s.checkLogs(&c)
	s.checkShutdown(&c)
	s.checkCluster(&c)
	return c.problems
}

type checker struct{ problems []Problem }

func (c *checker) refuse(bad bool, field, format string, args ...any) {
	if bad {
		c.problems = append(c.problems, Problem{Field: field, Text: fmt.Sprintf(format, args...)})
	}
}

// between refuses a value outside the given range.
func (c *checker) between(field string, n, least, most int64) {
	switch {
	case n >= least && n <= most:
	case most == math.MaxInt64:
		c.refuse(true, field, "%d: want at least %d", n, least)
	default:
		c.refuse(true, field, "%d: want %d to %d", n, least, most)
	}
}

func (c *checker) atLeast(field string, d metav1.Duration, least time.Duration) {
	c.refuse(d.Duration < least, field, "%s: want at least %s", d.Duration, least)
}

func (c *checker) oneOf(field, value string, all ...string) {
	c.refuse(!slices.Contains(all, value), field, "%q: want %s", value, strings.Join(all, " or "))
}

func (s Settings) checkSources(c *checker) {
	c.atLeast("syncFrequency", s.SyncFrequency, time.Millisecond)
	c.atLeast("fileCheckFrequency", s.FileCheckFrequency, time.Millisecond)
	c.atLeast("httpCheckFrequency", s.HTTPCheckFrequency, time.Millisecond)
	if s.StaticPodURL != "" {
		u, err := url.Parse(s.StaticPodURL)
		c.refuse(err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https",
			"staticPodURL", "%q: want http://HOST/PATH or https://HOST/PATH", s.StaticPodURL)
	}
	for _, name := range slices.Sorted(maps.Keys(s.StaticPodURLHeader)) {
		c.refuse(name == "" || strings.ContainsFunc(name, notInToken), "staticPodURLHeader", "%q is not a valid header name", name)
		for _, v := range s.StaticPodURLHeader[name] { // the value may be secret
			c.refuse(strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }), "staticPodURLHeader", "%s: the value has characters that are not allowed in headers", name)
		}
	}
	c.refuse(len(s.StaticPodURLHeader) > 0 && s.StaticPodURL == "", "staticPodURLHeader", "requires staticPodURL")
}

// notInToken reports whether a header name must not contain the character.
func notInToken(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune("()<>@,;:\\\"/[]?={}", r)
}

func (s Settings) checkServer(c *checker) {
	c.refuse(!s.EnableServer, "enableServer", "false: want true, because the agent's commands send requests to the server; the server listens on 127.0.0.1 unless address is set")
	c.refuse(net.ParseIP(s.Address) == nil, "address", "%q: want an IP address", s.Address)
	c.between("port", int64(s.Port), 0, math.MaxUint16)
	c.refuse(s.TLSCertFile != "" && s.TLSPrivateKeyFile == "", "tlsCertFile", "requires tlsPrivateKeyFile")
	c.refuse(s.TLSCertFile == "" && s.TLSPrivateKeyFile != "", "tlsPrivateKeyFile", "requires tlsCertFile")
}

func (s Settings) checkCluster(c *checker) {
	if s.ClusterSettings == nil {
		return
	}
	for i, t := range s.RegisterWithTaints {
		for _, problem := range validation.IsQualifiedName(t.Key) {
			c.refuse(true, "registerWithTaints", "taint %d: key %q: %s", i, t.Key, problem)
		}
		for _, problem := range validation.IsValidLabelValue(t.Value) {
			c.refuse(true, "registerWithTaints", "taint %s: value %q: %s", t.Key, t.Value, problem)
		}
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			c.refuse(true, "registerWithTaints", "taint %s: effect %q: want NoSchedule, PreferNoSchedule or NoExecute", t.Key, t.Effect)
		}
	}
	c.refuse(len(s.RegisterWithTaints) > 0 && !s.RegisterNode, "registerWithTaints", "requires registerNode")
	c.atLeast("nodeStatusUpdateFrequency", s.NodeStatusUpdateFrequency, time.Millisecond)
	c.atLeast("nodeStatusReportFrequency", s.NodeStatusReportFrequency, time.Millisecond)
	c.between("nodeStatusMaxImages", int64(s.NodeStatusMaxImages), -1, math.MaxInt64)
	c.between("nodeLeaseDurationSeconds", int64(s.NodeLeaseDurationSeconds), 1, math.MaxInt64)
	c.between("kubeAPIQPS", int64(s.KubeAPIQPS), 0, math.MaxInt64)
	c.between("kubeAPIBurst", int64(s.KubeAPIBurst), 0, math.MaxInt64)
	c.between("eventRecordQPS", int64(s.EventRecordQPS), 0, math.MaxInt64)
	c.between("eventBurst", int64(s.EventBurst), 0, math.MaxInt64)
	c.oneOf("contentType", s.ContentType, "application/json", "application/vnd.kubernetes.protobuf")
	c.refuse(s.ServerTLSBootstrap && s.TLSCertFile != "", "serverTLSBootstrap", "can't be combined with tlsCertFile")
}

func (s Settings) checkPods(c *checker) {
	e := s.ContainerRuntimeEndpoint
	c.refuse(e != EmbeddedEndpoint && e != AutoEndpoint && !strings.HasPrefix(e, "unix:///"),
		"containerRuntimeEndpoint", "%q: want %s, %s or unix:///PATH", e, EmbeddedEndpoint, AutoEndpoint)
	if longest := s.CrashLoopBackOff.MaxContainerRestartPeriod; longest != nil {
		c.refuse(longest.Duration < time.Second || longest.Duration > 300*time.Second,
			"crashLoopBackOff", "maxContainerRestartPeriod %s: want 1s to 300s", longest.Duration)
	}
	for _, name := range s.AllowedUnsafeSysctls {
		c.refuse(name == "" || strings.ContainsAny(name, " \t,") || strings.Contains(strings.TrimSuffix(name, "*"), "*"),
			"allowedUnsafeSysctls", "%q: want a sysctl name, or a prefix that ends in *", name)
	}
	for _, ip := range s.ClusterDNS {
		c.refuse(net.ParseIP(ip) == nil, "clusterDNS", "%q: want an IP address", ip)
	}
	if s.ClusterDomain != "" {
		for _, problem := range validation.IsDNS1123Subdomain(strings.TrimSuffix(s.ClusterDomain, ".")) {
			c.refuse(true, "clusterDomain", "%q: %s", s.ClusterDomain, problem)
		}
	}
	c.between("maxPods", int64(s.MaxPods), 1, math.MaxInt64)
	c.between("podsPerCore", int64(s.PodsPerCore), 0, math.MaxInt64)
	c.refuse(s.PodsPerCore > s.MaxPods, "podsPerCore", "%d: want at most maxPods (%d)", s.PodsPerCore, s.MaxPods)
	c.reserved("systemReserved", s.SystemReserved)
	c.reserved("kubeReserved", s.KubeReserved)
	for i, e := range s.EnforceNodeAllocatable {
		c.oneOf("enforceNodeAllocatable", e, "pods", "none")
		c.refuse(slices.Contains(s.EnforceNodeAllocatable[:i], e), "enforceNodeAllocatable", "%s is listed twice", e)
	}
	c.refuse(slices.Contains(s.EnforceNodeAllocatable, "none") && len(s.EnforceNodeAllocatable) > 1,
		"enforceNodeAllocatable", "the value \"none\" can't be combined with other values")
}

// reserved checks the resources of systemReserved or kubeReserved.
func (c *checker) reserved(field string, all map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch corev1.ResourceName(name) {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		default:
			c.refuse(true, field, "%q: want cpu, memory or ephemeral-storage", name)
			continue
		}
		q, err := quantity.Parse(all[name])
		c.refuse(err != nil || q.Sign() < 0, field, "%s %q: want an amount such as 500m or 1Gi", name, all[name])
	}
}

func (s Settings) checkCgroups(c *checker) {
	c.refuse(s.CgroupRoot != "" && (!filepath.IsAbs(s.CgroupRoot) || filepath.Clean(s.CgroupRoot) != s.CgroupRoot),
		"cgroupRoot", "%q: want an absolute path without ., .., double slashes and a slash at the end", s.CgroupRoot)
	c.refuse(s.CgroupRoot != "" && !s.CgroupsPerQOS, "cgroupRoot", "requires cgroupsPerQOS: remove cgroupsPerQOS or set it to true")
	c.oneOf("cgroupDriver", s.CgroupDriver, "cgroupfs", "systemd")
	c.refuse(s.CgroupsPerQOS && s.CgroupDriver == "systemd", "cgroupDriver", "systemd: pod cgroups require cgroupfs, both in this file and in the runtime's configuration")
	c.refuse(s.PodPidsLimit < -1 || s.PodPidsLimit == 0, "podPidsLimit", "%d: want -1 for no limit, or at least 1", s.PodPidsLimit)
	c.refuse(s.PodPidsLimit > 0 && !s.CgroupsPerQOS, "podPidsLimit", "requires pod cgroups: set cgroupsPerQOS to true, or set cgroupRoot")
	c.refuse(s.CPUCFSQuotaPeriod.Duration < time.Millisecond || s.CPUCFSQuotaPeriod.Duration > time.Second,
		"cpuCFSQuotaPeriod", "%s: want 1ms to 1s", s.CPUCFSQuotaPeriod.Duration)
}

func (s Settings) checkImages(c *checker) {
	if n := s.MaxParallelImagePulls; n != nil {
		c.between("maxParallelImagePulls", int64(*n), 1, math.MaxInt64)
		c.refuse(*n > 1 && s.SerializeImagePulls, "maxParallelImagePulls", "%d: want 1, because serializeImagePulls is true", *n)
	}
	c.between("registryPullQPS", int64(s.RegistryPullQPS), 0, math.MaxInt64)
	c.between("registryBurst", int64(s.RegistryBurst), 0, math.MaxInt64)
	const allowlist = "NeverVerifyAllowlistedImages"
	c.oneOf("imagePullCredentialsVerificationPolicy", s.ImagePullCredentialsVerificationPolicy,
		"NeverVerify", "NeverVerifyPreloadedImages", allowlist, "AlwaysVerify")
	c.refuse(len(s.PreloadedImagesVerificationAllowlist) > 0 && s.ImagePullCredentialsVerificationPolicy != allowlist,
		"preloadedImagesVerificationAllowlist", "requires imagePullCredentialsVerificationPolicy "+allowlist)
	for _, pattern := range s.PreloadedImagesVerificationAllowlist {
		c.refuse(!images.IsAllowlistPattern(pattern), "preloadedImagesVerificationAllowlist",
			"%q: want a repository without tag and digest, or a prefix that ends in /*", pattern)
	}
	c.between("imageGCHighThresholdPercent", int64(s.ImageGCHighThresholdPercent), 0, 100)
	c.between("imageGCLowThresholdPercent", int64(s.ImageGCLowThresholdPercent), 0, 100)
	c.refuse(s.ImageGCLowThresholdPercent >= s.ImageGCHighThresholdPercent, "imageGCLowThresholdPercent",
		"%d: want less than imageGCHighThresholdPercent (%d)", s.ImageGCLowThresholdPercent, s.ImageGCHighThresholdPercent)
	c.atLeast("imageMinimumGCAge", s.ImageMinimumGCAge, 0)
	c.atLeast("imageMaximumGCAge", s.ImageMaximumGCAge, 0)
}

func (s Settings) checkEviction(c *checker) {
	if _, err := s.Thresholds(); err != nil {
		for _, e := range unjoin(err) {
			// The format of an error is "field evictionHard[memory.available]: cause".
			field, text, _ := strings.Cut(strings.TrimPrefix(e.Error(), "field "), "[")
			c.refuse(true, field, "%s", strings.Replace(text, "]", "", 1))
		}
	}
	c.atLeast("evictionPressureTransitionPeriod", s.EvictionPressureTransitionPeriod, 0)
	c.atLeast("volumeStatsAggPeriod", s.VolumeStatsAggPeriod, time.Second)
}

func (s Settings) checkLogs(c *checker) {
	if dir := s.PodLogsDir; dir != "" {
		c.refuse(!filepath.IsAbs(dir) || filepath.Clean(dir) != dir, "podLogsDir", "%q: want an absolute path without ., .., double slashes and a slash at the end", dir)
		c.refuse(strings.ContainsFunc(dir, func(r rune) bool { return r > unicode.MaxASCII }), "podLogsDir", "%q: want ASCII characters only", dir)
	}
	_, err := logrotate.ParseMaxSize(s.ContainerLogMaxSize)
	c.refuse(err != nil, "containerLogMaxSize", "%q: want a size such as 10Mi", s.ContainerLogMaxSize)
	c.between("containerLogMaxFiles", int64(s.ContainerLogMaxFiles), 2, math.MaxInt64)
	c.between("containerLogMaxWorkers", int64(s.ContainerLogMaxWorkers), 1, math.MaxInt64)
	c.atLeast("containerLogMonitorInterval", s.ContainerLogMonitorInterval, 3*time.Second)
}

func (s Settings) checkShutdown(c *checker) {
	all, critical := s.ShutdownGracePeriod.Duration, s.ShutdownGracePeriodCriticalPods.Duration
	c.refuse(all != 0 && all < time.Second, "shutdownGracePeriod", "%s: want 0 or at least 1s", all)
	c.refuse(critical != 0 && critical < time.Second, "shutdownGracePeriodCriticalPods", "%s: want 0 or at least 1s", critical)
	c.refuse(critical > all, "shutdownGracePeriodCriticalPods", "%s: want at most shutdownGracePeriod (%s)", critical, all)
	c.refuse(len(s.ShutdownGracePeriodByPodPriority) > 0 && (all != 0 || critical != 0),
		"shutdownGracePeriodByPodPriority", "can't be combined with shutdownGracePeriod and shutdownGracePeriodCriticalPods: remove these")
	seen := map[int32]bool{}
	for _, p := range s.ShutdownGracePeriodByPodPriority {
		c.refuse(p.ShutdownGracePeriodSeconds < 0, "shutdownGracePeriodByPodPriority",
			"priority %d: %d seconds: want at least 0", p.Priority, p.ShutdownGracePeriodSeconds)
		c.refuse(seen[p.Priority], "shutdownGracePeriodByPodPriority", "priority %d is listed twice", p.Priority)
		seen[p.Priority] = true
	}
}
