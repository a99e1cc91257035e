package kubeletconfig

import "slices"

// field maps a field of the file to a pointer into Settings. The pointer has one of the types
// that [reader.assign] supports.
type field struct {
	name string
	into any
	// zeroIsUnset reports whether the kubelet treats 0 and "" as not set.
	zeroIsUnset bool
}

// fields returns the fields of s that a file may set.
func (s *Settings) fields() []field {
	return append([]field{
		{"apiVersion", &s.APIVersion, false},
		{"kind", &s.Kind, false},

		{"staticPodPath", &s.StaticPodPath, false},
		{"staticPodURL", &s.StaticPodURL, false},
		{"staticPodURLHeader", &s.StaticPodURLHeader, false},
		{"syncFrequency", &s.SyncFrequency, true},
		{"fileCheckFrequency", &s.FileCheckFrequency, true},
		{"httpCheckFrequency", &s.HTTPCheckFrequency, true},

		{"containerRuntimeEndpoint", &s.ContainerRuntimeEndpoint, true},
		{"crashLoopBackOff", &s.CrashLoopBackOff, false},
		{"seccompDefault", &s.SeccompDefault, false},
		{"allowedUnsafeSysctls", &s.AllowedUnsafeSysctls, false},
		{"clusterDNS", &s.ClusterDNS, false},
		{"clusterDomain", &s.ClusterDomain, false},
		{"resolvConf", &s.ResolverConfig, false},

		{"maxPods", &s.MaxPods, true},
		{"podsPerCore", &s.PodsPerCore, false},
		{"systemReserved", &s.SystemReserved, false},
		{"kubeReserved", &s.KubeReserved, false},
		{"enforceNodeAllocatable", &s.EnforceNodeAllocatable, false},

		{"cgroupsPerQOS", &s.CgroupsPerQOS, false},
		{"cgroupRoot", &s.CgroupRoot, false},
		{"cgroupDriver", &s.CgroupDriver, true},
		{"podPidsLimit", &s.PodPidsLimit, false},
		{"cpuCFSQuota", &s.CPUCFSQuota, false},
		{"cpuCFSQuotaPeriod", &s.CPUCFSQuotaPeriod, false},
		{"singleProcessOOMKill", &s.SingleProcessOOMKill, false},

		{"serializeImagePulls", &s.SerializeImagePulls, false},
		{"maxParallelImagePulls", &s.MaxParallelImagePulls, false},
		{"registryPullQPS", &s.RegistryPullQPS, false},
		{"registryBurst", &s.RegistryBurst, true},
		{"imagePullCredentialsVerificationPolicy", &s.ImagePullCredentialsVerificationPolicy, true},
		{"preloadedImagesVerificationAllowlist", &s.PreloadedImagesVerificationAllowlist, false},

		{"evictionHard", &s.EvictionHard, false},
		{"evictionSoft", &s.EvictionSoft, false},
		{"evictionSoftGracePeriod", &s.EvictionSoftGracePeriod, false},
		{"evictionMinimumReclaim", &s.EvictionMinimumReclaim, false},
		{"evictionPressureTransitionPeriod", &s.EvictionPressureTransitionPeriod, true},
		{"evictionMaxPodGracePeriod", &s.EvictionMaxPodGracePeriod, false},
		{"mergeDefaultEvictionSettings", &s.MergeDefaultEvictionSettings, false},
		{"localStorageCapacityIsolation", &s.LocalStorageCapacityIsolation, false},
		{"kernelMemcgNotification", &s.KernelMemcgNotification, false},
		{"volumeStatsAggPeriod", &s.VolumeStatsAggPeriod, true},

		{"imageGCHighThresholdPercent", &s.ImageGCHighThresholdPercent, false},
		{"imageGCLowThresholdPercent", &s.ImageGCLowThresholdPercent, false},
		{"imageMinimumGCAge", &s.ImageMinimumGCAge, true},
		{"imageMaximumGCAge", &s.ImageMaximumGCAge, false},

		{"podLogsDir", &s.PodLogsDir, false},
		{"containerLogMaxSize", &s.ContainerLogMaxSize, true},
		{"containerLogMaxFiles", &s.ContainerLogMaxFiles, false},
		{"containerLogMaxWorkers", &s.ContainerLogMaxWorkers, false},
		{"containerLogMonitorInterval", &s.ContainerLogMonitorInterval, false},

		{"shutdownGracePeriod", &s.ShutdownGracePeriod, false},
		{"shutdownGracePeriodCriticalPods", &s.ShutdownGracePeriodCriticalPods, false},
		{"shutdownGracePeriodByPodPriority", &s.ShutdownGracePeriodByPodPriority, false},
	}, slices.Concat(s.serverFields(), s.ClusterSettings.fields())...)
}

// serverFields returns the fields of the HTTP server.
func (s *Settings) serverFields() []field {
	return []field{
		{"enableServer", &s.EnableServer, false},
		{"address", &s.Address, true},
		{"port", &s.Port, true},
		{"readOnlyPort", &s.ReadOnlyPort, false},
		{"healthzBindAddress", &s.HealthzBindAddress, true},
		{"healthzPort", &s.HealthzPort, false},
		{"enableDebuggingHandlers", &s.EnableDebuggingHandlers, false},
		{"enableProfilingHandler", &s.EnableProfilingHandler, false},
		{"enableDebugFlagsHandler", &s.EnableDebugFlagsHandler, false},
		{"enableSystemLogHandler", &s.EnableSystemLogHandler, false},
		{"enableSystemLogQuery", &s.EnableSystemLogQuery, false},

		{"tlsCertFile", &s.TLSCertFile, false},
		{"tlsPrivateKeyFile", &s.TLSPrivateKeyFile, false},
		{"tlsCipherSuites", &s.TLSCipherSuites, false},
		{"tlsCurvePreferences", &s.TLSCurvePreferences, false},
		{"tlsMinVersion", &s.TLSMinVersion, false},
		{"authentication", &s.Authentication, false},
		{"authorization", &s.Authorization, false},
	}
}

// fields returns the fields that only an agent of a cluster has. s may be nil.
func (s *ClusterSettings) fields() []field {
	if s == nil {
		return nil
	}
	return []field{
		{"registerNode", &s.RegisterNode, false},
		{"registerWithTaints", &s.RegisterWithTaints, false},
		{"providerID", &s.ProviderID, false},
		{"nodeStatusUpdateFrequency", &s.NodeStatusUpdateFrequency, true},
		{"nodeStatusReportFrequency", &s.NodeStatusReportFrequency, true},
		{"nodeStatusMaxImages", &s.NodeStatusMaxImages, false},
		{"nodeLeaseDurationSeconds", &s.NodeLeaseDurationSeconds, true},
		{"rotateCertificates", &s.RotateCertificates, false},
		{"serverTLSBootstrap", &s.ServerTLSBootstrap, false},
		{"kubeAPIQPS", &s.KubeAPIQPS, false},
		{"kubeAPIBurst", &s.KubeAPIBurst, true},
		{"contentType", &s.ContentType, true},
		{"eventRecordQPS", &s.EventRecordQPS, false},
		{"eventBurst", &s.EventBurst, true},
	}
}

// ignored returns the fields that can be ignored without a loss of safety, each with the reason
// why the agent does not have the field.
func ignored() map[string]string {
	all := map[string]string{}
	because := func(why string, names ...string) {
		for _, n := range names {
			all[n] = why
		}
	}
	for _, f := range new(ClusterSettings).fields() {
		because("there is no API server", f.name)
	}
	because("no volume is attached by a controller", "enableControllerAttachDetach")
	because("the agent watches each ConfigMap and Secret that a pod uses", "configMapAndSecretChangeDetectionStrategy")
	because("the agent does not have this endpoint",
		"enableContentionProfiling")
	because("the agent does not change its own process", "oomScoreAdj", "maxOpenFiles", "kubeletCgroups", "systemCgroups")
	because("the agent does not pin CPUs or memory",
		"cpuManagerPolicy", "cpuManagerPolicyOptions", "cpuManagerReconcilePeriod", "memoryManagerPolicy", "reservedMemory",
		"reservedSystemCPUs", "topologyManagerPolicy", "topologyManagerPolicyOptions", "topologyManagerScope")
	because("the agent does not protect memory by QoS class", "qosReserved", "memoryReservationPolicy", "memoryThrottlingFactor")
	because("the runtime decides about swap", "memorySwap")
	because("the runtime configures the network", "hairpinMode", "podCIDR", "makeIPTablesUtilChains")
	because("the kubelet ignores this field, too", "iptablesMasqueradeBit", "iptablesDropBit", "runOnce", "streamingConnectionIdleTimeout")
	because("the agent has no feature gates", "featureGates")
	because("the agent logs text to standard error", "logging")
	because("there is no tracing", "tracing")
	because("no metric is hidden", "showHiddenMetricsForVersion")
	because("the agent does not check or change these kernel settings", "failSwapOn", "failCgroupV1", "protectKernelDefaults")
	because("reserved resources are kept free, but not limited by a cgroup", "systemReservedCgroup", "kubeReservedCgroup")
	because("the agent has no volume plugins", "volumePluginDir")
	because("the timeout is always 2m", "runtimeRequestTimeout")
	because("a user namespace always has 65536 IDs", "userNamespaces")
	return all
}

// refused returns the refused fields, each with the reason and what the user should do instead.
func refused() map[string]string {
	return map[string]string{
		"imageServiceEndpoint": "images come from containerRuntimeEndpoint: remove the field",
		"defaultPodSysctls":    "a pod only has the sysctls in its spec: remove the field",
	}
}
