package kubeletconfig

// field is where a field of the file goes: a pointer into Settings of one of the
// types that [assign] knows.
type field struct {
	name string
	into any
	// zeroIsUnset says that the kubelet does not tell 0 and "" from no value.
	zeroIsUnset bool
}

// fields are those of s that a file may set.
func (s *Settings) fields() []field {
	return []field{
		{"apiVersion", &s.APIVersion, false},
		{"kind", &s.Kind, false},

		{"staticPodPath", &s.StaticPodPath, false},
		{"staticPodURL", &s.StaticPodURL, false},
		{"staticPodURLHeader", &s.StaticPodURLHeader, false},
		{"syncFrequency", &s.SyncFrequency, true},
		{"fileCheckFrequency", &s.FileCheckFrequency, true},
		{"httpCheckFrequency", &s.HTTPCheckFrequency, true},

		{"enableServer", &s.EnableServer, false},
		{"address", &s.Address, true},
		{"port", &s.Port, true},
		{"tlsCertFile", &s.TLSCertFile, false},
		{"tlsPrivateKeyFile", &s.TLSPrivateKeyFile, false},
		{"enableDebuggingHandlers", &s.EnableDebuggingHandlers, false},
		{"enableProfilingHandler", &s.EnableProfilingHandler, false},

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
	}
}

// ignored are the fields without which nothing gets less safe, and why the agent
// does not have them.
func ignored() map[string]string {
	all := map[string]string{}
	because := func(why string, names ...string) {
		for _, n := range names {
			all[n] = why
		}
	}
	because("there is no API server",
		"rotateCertificates", "serverTLSBootstrap", "eventRecordQPS", "eventBurst", "contentType", "kubeAPIQPS", "kubeAPIBurst",
		"nodeStatusUpdateFrequency", "nodeStatusReportFrequency", "nodeStatusMaxImages", "nodeLeaseDurationSeconds",
		"registerNode", "registerWithTaints", "providerID", "enableControllerAttachDetach", "configMapAndSecretChangeDetectionStrategy")
	because("everything is served on one port", "readOnlyPort", "healthzPort", "healthzBindAddress")
	because("there is no such endpoint",
		"enableSystemLogHandler", "enableSystemLogQuery", "enableDebugFlagsHandler", "enableContentionProfiling", "streamingConnectionIdleTimeout")
	because("the agent's own process stays as it was started", "oomScoreAdj", "maxOpenFiles", "kubeletCgroups", "systemCgroups")
	because("processors and memory of a pod are not pinned",
		"cpuManagerPolicy", "cpuManagerPolicyOptions", "cpuManagerReconcilePeriod", "memoryManagerPolicy", "reservedMemory",
		"reservedSystemCPUs", "topologyManagerPolicy", "topologyManagerPolicyOptions", "topologyManagerScope")
	because("memory is not protected by class", "qosReserved", "memoryReservationPolicy", "memoryThrottlingFactor")
	because("containers get the swap that the runtime gives them", "memorySwap")
	because("the network is the runtime's", "hairpinMode", "podCIDR", "makeIPTablesUtilChains")
	because("the kubelet does nothing with it either", "iptablesMasqueradeBit", "iptablesDropBit", "runOnce")
	because("there are no feature gates", "featureGates")
	because("the agent logs text to standard error", "logging")
	because("there is no tracing", "tracing")
	because("no metric is hidden", "showHiddenMetricsForVersion")
	because("the machine is taken as it is", "failSwapOn", "failCgroupV1", "protectKernelDefaults")
	because("what is reserved is left free, and not limited", "systemReservedCgroup", "kubeReservedCgroup")
	because("there are no volume plugins", "volumePluginDir")
	because("it is 2m", "runtimeRequestTimeout")
	because("a pod has 65536 ids", "userNamespaces")
	return all
}

// refused are the fields that somebody relies on, and what to do instead.
func refused() map[string]string {
	const users = "the agent knows no users. It listens on loopback only, unless it has a certificate and a --token-file: remove the field"
	const tls = "the agent takes what Go takes by default, TLS 1.2 and later: remove the field"
	all := map[string]string{
		"imageServiceEndpoint": "images come from containerRuntimeEndpoint: remove the field",
		"defaultPodSysctls":    "a pod has the sysctls that it names: remove the field",
	}
	for _, n := range []string{"authentication", "authorization"} {
		all[n] = users
	}
	for _, n := range []string{"tlsCipherSuites", "tlsCurvePreferences", "tlsMinVersion"} {
		all[n] = tls
	}
	return all
}
