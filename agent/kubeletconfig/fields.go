package kubeletconfig

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

// ignored returns the fields that can be ignored without a loss of safety, each with the reason
// why the agent does not have the field.
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
	because("the agent does not have this endpoint",
		"enableSystemLogHandler", "enableSystemLogQuery", "enableDebugFlagsHandler", "enableContentionProfiling", "streamingConnectionIdleTimeout")
	because("the agent does not change its own process", "oomScoreAdj", "maxOpenFiles", "kubeletCgroups", "systemCgroups")
	because("the agent does not pin CPUs or memory",
		"cpuManagerPolicy", "cpuManagerPolicyOptions", "cpuManagerReconcilePeriod", "memoryManagerPolicy", "reservedMemory",
		"reservedSystemCPUs", "topologyManagerPolicy", "topologyManagerPolicyOptions", "topologyManagerScope")
	because("the agent does not protect memory by QoS class", "qosReserved", "memoryReservationPolicy", "memoryThrottlingFactor")
	because("the runtime decides about swap", "memorySwap")
	because("the runtime configures the network", "hairpinMode", "podCIDR", "makeIPTablesUtilChains")
	because("the kubelet ignores it too", "iptablesMasqueradeBit", "iptablesDropBit", "runOnce")
	because("there are no feature gates", "featureGates")
	because("the agent logs text to standard error", "logging")
	because("there is no tracing", "tracing")
	because("no metric is hidden", "showHiddenMetricsForVersion")
	because("the agent does not check or change these kernel settings", "failSwapOn", "failCgroupV1", "protectKernelDefaults")
	because("reserved resources are kept free, but not limited by a cgroup", "systemReservedCgroup", "kubeReservedCgroup")
	because("there are no volume plugins", "volumePluginDir")
	because("the timeout is always 2m", "runtimeRequestTimeout")
	because("a user namespace always has 65536 IDs", "userNamespaces")
	return all
}

// refused returns the refused fields, each with the reason and what the user should do instead.
func refused() map[string]string {
	const users = "the agent has no user accounts. It listens on loopback only, unless it has a certificate and a --token-file: remove the field"
	const tls = "the agent uses the defaults of Go, TLS 1.2 and later: remove the field"
	all := map[string]string{
		"imageServiceEndpoint": "images come from containerRuntimeEndpoint: remove the field",
		"defaultPodSysctls":    "a pod only has the sysctls in its spec: remove the field",
	}
	for _, n := range []string{"authentication", "authorization"} {
		all[n] = users
	}
	for _, n := range []string{"tlsCipherSuites", "tlsCurvePreferences", "tlsMinVersion"} {
		all[n] = tls
	}
	return all
}
