package kubeletconfig

import (
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/eviction"
)

// APIVersion and Kind are the required values of the fields apiVersion and kind.
const (
	APIVersion = "kubelet.config.k8s.io/v1beta1"
	Kind       = "KubeletConfiguration"
)

// Special values of containerRuntimeEndpoint. A program must refuse a value that it does not
// support.
const (
	// EmbeddedEndpoint is an in-process, in-memory runtime.
	EmbeddedEndpoint = "embedded"
	// AutoEndpoint is the first well-known socket on which a runtime responds.
	AutoEndpoint = "auto"
)

// Settings has the fields of a KubeletConfiguration that the agent supports, with the same
// meaning. A pointer is nil if the field is not set and the kubelet has no default for it. The
// zero value is not useful: start with [Default].
type Settings struct {
	metav1.TypeMeta `json:",inline"`

	StaticPodPath      string              `json:"staticPodPath"`
	StaticPodURL       string              `json:"staticPodURL"`
	StaticPodURLHeader map[string][]string `json:"staticPodURLHeader,omitempty"`
	SyncFrequency      metav1.Duration     `json:"syncFrequency"`
	FileCheckFrequency metav1.Duration     `json:"fileCheckFrequency"`
	HTTPCheckFrequency metav1.Duration     `json:"httpCheckFrequency"`

	EnableServer            bool   `json:"enableServer"`
	Address                 string `json:"address"`
	Port                    int32  `json:"port"`
	ReadOnlyPort            int32  `json:"readOnlyPort"`
	HealthzBindAddress      string `json:"healthzBindAddress"`
	HealthzPort             int32  `json:"healthzPort"`
	EnableDebuggingHandlers bool   `json:"enableDebuggingHandlers"`
	EnableProfilingHandler  bool   `json:"enableProfilingHandler"`
	EnableDebugFlagsHandler bool   `json:"enableDebugFlagsHandler"`
	EnableSystemLogHandler  bool   `json:"enableSystemLogHandler"`
	EnableSystemLogQuery    bool   `json:"enableSystemLogQuery"`

	TLSCertFile         string                `json:"tlsCertFile"`
	TLSPrivateKeyFile   string                `json:"tlsPrivateKeyFile"`
	TLSCipherSuites     []string              `json:"tlsCipherSuites,omitempty"`
	TLSCurvePreferences []int32               `json:"tlsCurvePreferences,omitempty"`
	TLSMinVersion       string                `json:"tlsMinVersion"`
	Authentication      KubeletAuthentication `json:"authentication"`
	Authorization       KubeletAuthorization  `json:"authorization"`

	ContainerRuntimeEndpoint string                 `json:"containerRuntimeEndpoint"`
	CrashLoopBackOff         CrashLoopBackOffConfig `json:"crashLoopBackOff"`
	SeccompDefault           bool                   `json:"seccompDefault"`
	AllowedUnsafeSysctls     []string               `json:"allowedUnsafeSysctls,omitempty"`
	ClusterDNS               []string               `json:"clusterDNS,omitempty"`
	ClusterDomain            string                 `json:"clusterDomain"`
	ResolverConfig           string                 `json:"resolvConf"`

	MaxPods                int32             `json:"maxPods"`
	PodsPerCore            int32             `json:"podsPerCore"`
	SystemReserved         map[string]string `json:"systemReserved,omitempty"`
	KubeReserved           map[string]string `json:"kubeReserved,omitempty"`
	EnforceNodeAllocatable []string          `json:"enforceNodeAllocatable"`

	CgroupsPerQOS        bool            `json:"cgroupsPerQOS"`
	CgroupRoot           string          `json:"cgroupRoot"`
	CgroupDriver         string          `json:"cgroupDriver"`
	PodPidsLimit         int64           `json:"podPidsLimit"`
	CPUCFSQuota          bool            `json:"cpuCFSQuota"`
	CPUCFSQuotaPeriod    metav1.Duration `json:"cpuCFSQuotaPeriod"`
	SingleProcessOOMKill *bool           `json:"singleProcessOOMKill,omitempty"`

	SerializeImagePulls   bool   `json:"serializeImagePulls"`
	MaxParallelImagePulls *int32 `json:"maxParallelImagePulls,omitempty"`
	RegistryPullQPS       int32  `json:"registryPullQPS"`
	RegistryBurst         int32  `json:"registryBurst"`

	ImagePullCredentialsVerificationPolicy string   `json:"imagePullCredentialsVerificationPolicy"`
	PreloadedImagesVerificationAllowlist   []string `json:"preloadedImagesVerificationAllowlist,omitempty"`

	EvictionHard                     map[string]string `json:"evictionHard"`
	EvictionSoft                     map[string]string `json:"evictionSoft,omitempty"`
	EvictionSoftGracePeriod          map[string]string `json:"evictionSoftGracePeriod,omitempty"`
	EvictionMinimumReclaim           map[string]string `json:"evictionMinimumReclaim,omitempty"`
	EvictionPressureTransitionPeriod metav1.Duration   `json:"evictionPressureTransitionPeriod"`
	EvictionMaxPodGracePeriod        int32             `json:"evictionMaxPodGracePeriod"`
	MergeDefaultEvictionSettings     bool              `json:"mergeDefaultEvictionSettings"`
	LocalStorageCapacityIsolation    bool              `json:"localStorageCapacityIsolation"`
	KernelMemcgNotification          bool              `json:"kernelMemcgNotification"`
	VolumeStatsAggPeriod             metav1.Duration   `json:"volumeStatsAggPeriod"`

	ImageGCHighThresholdPercent int32           `json:"imageGCHighThresholdPercent"`
	ImageGCLowThresholdPercent  int32           `json:"imageGCLowThresholdPercent"`
	ImageMinimumGCAge           metav1.Duration `json:"imageMinimumGCAge"`
	ImageMaximumGCAge           metav1.Duration `json:"imageMaximumGCAge"`

	// PodLogsDir is the folder of pod logs. If PodLogsDir is empty, the agent uses its own
	// folder.
	PodLogsDir                  string          `json:"podLogsDir"`
	ContainerLogMaxSize         string          `json:"containerLogMaxSize"`
	ContainerLogMaxFiles        int32           `json:"containerLogMaxFiles"`
	ContainerLogMaxWorkers      int32           `json:"containerLogMaxWorkers"`
	ContainerLogMonitorInterval metav1.Duration `json:"containerLogMonitorInterval"`

	ShutdownGracePeriod              metav1.Duration                    `json:"shutdownGracePeriod"`
	ShutdownGracePeriodCriticalPods  metav1.Duration                    `json:"shutdownGracePeriodCriticalPods"`
	ShutdownGracePeriodByPodPriority []ShutdownGracePeriodByPodPriority `json:"shutdownGracePeriodByPodPriority,omitempty"`

	// ClusterSettings is set only for an agent that joins a cluster: see [Kubelet].
	*ClusterSettings `json:",inline"`
}

// ClusterSettings has the fields that only an agent of a cluster has.
type ClusterSettings struct {
	RegisterNode              bool            `json:"registerNode"`
	RegisterWithTaints        []corev1.Taint  `json:"registerWithTaints,omitempty"`
	ProviderID                string          `json:"providerID"`
	NodeStatusUpdateFrequency metav1.Duration `json:"nodeStatusUpdateFrequency"`
	NodeStatusReportFrequency metav1.Duration `json:"nodeStatusReportFrequency"`
	NodeStatusMaxImages       int32           `json:"nodeStatusMaxImages"`
	NodeLeaseDurationSeconds  int32           `json:"nodeLeaseDurationSeconds"`
	RotateCertificates        bool            `json:"rotateCertificates"`
	ServerTLSBootstrap        bool            `json:"serverTLSBootstrap"`
	KubeAPIQPS                int32           `json:"kubeAPIQPS"`
	KubeAPIBurst              int32           `json:"kubeAPIBurst"`
	ContentType               string          `json:"contentType"`
	EventRecordQPS            int32           `json:"eventRecordQPS"`
	EventBurst                int32           `json:"eventBurst"`
}

// CrashLoopBackOffConfig limits the delay before the agent restarts a container.
type CrashLoopBackOffConfig struct {
	MaxContainerRestartPeriod *metav1.Duration `json:"maxContainerRestartPeriod,omitempty"`
}

// ShutdownGracePeriodByPodPriority is the grace period of pods when the node shuts down. It
// applies to pods with at least this priority and less than the next higher priority in the
// list. The entry with the lowest priority also applies to pods below that priority.
type ShutdownGracePeriodByPodPriority struct {
	Priority                   int32 `json:"priority"`
	ShutdownGracePeriodSeconds int64 `json:"shutdownGracePeriodSeconds"`
}

// Default returns the settings of a file that sets no field. Some of them differ from the kubelet's
// defaults, so that an agent can be tried out on a machine in use.
func Default() Settings {
	s := Kubelet()
	s.Address, s.Port, s.HealthzPort = "127.0.0.1", 10255, 0
	s.EnableProfilingHandler = false
	s.Authentication.Webhook.Enabled, s.Authorization.Mode = false, AlwaysAllow
	s.ContainerRuntimeEndpoint, s.PodLogsDir = EmbeddedEndpoint, ""
	s.CgroupsPerQOS = false
	s.ClusterSettings = nil
	return s
}

// Kubelet returns the kubelet's own defaults. They are the settings of a file that sets no field,
// for an agent that joins a cluster.
func Kubelet() Settings {
	return Settings{
		TypeMeta:           metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind},
		SyncFrequency:      seconds(60),
		FileCheckFrequency: seconds(20),
		HTTPCheckFrequency: seconds(20),

		EnableServer:            true,
		Address:                 "0.0.0.0",
		Port:                    10250,
		HealthzBindAddress:      "127.0.0.1",
		HealthzPort:             10248,
		EnableDebuggingHandlers: true,
		EnableProfilingHandler:  true,
		EnableDebugFlagsHandler: true,
		EnableSystemLogHandler:  true,

		Authentication: KubeletAuthentication{Webhook: KubeletWebhookAuthentication{Enabled: true, CacheTTL: seconds(120)}},
		Authorization: KubeletAuthorization{
			Mode:    Webhook,
			Webhook: KubeletWebhookAuthorization{CacheAuthorizedTTL: seconds(300), CacheUnauthorizedTTL: seconds(30)},
		},

		ContainerRuntimeEndpoint: "unix:///run/containerd/containerd.sock",
		ResolverConfig:           "/etc/resolv.conf",

		MaxPods:                110,
		EnforceNodeAllocatable: []string{"pods"},

		CgroupsPerQOS:     true,
		CgroupDriver:      "cgroupfs",
		PodPidsLimit:      -1,
		CPUCFSQuota:       true,
		CPUCFSQuotaPeriod: metav1.Duration{Duration: 100 * time.Millisecond},

		SerializeImagePulls: true,
		RegistryPullQPS:     5,
		RegistryBurst:       10,

		ImagePullCredentialsVerificationPolicy: "NeverVerifyPreloadedImages",

		EvictionHard:                     eviction.DefaultEvictionHard(runtime.GOOS),
		EvictionPressureTransitionPeriod: seconds(300),
		LocalStorageCapacityIsolation:    true,
		VolumeStatsAggPeriod:             seconds(60),

		ImageGCHighThresholdPercent: 85,
		ImageGCLowThresholdPercent:  80,
		ImageMinimumGCAge:           seconds(120),

		PodLogsDir:                  "/var/log/pods",
		ContainerLogMaxSize:         "10Mi",
		ContainerLogMaxFiles:        5,
		ContainerLogMaxWorkers:      1,
		ContainerLogMonitorInterval: seconds(10),

		ClusterSettings: &ClusterSettings{
			RegisterNode:              true,
			NodeStatusUpdateFrequency: seconds(10),
			NodeStatusReportFrequency: seconds(300),
			NodeStatusMaxImages:       50,
			NodeLeaseDurationSeconds:  40,
			KubeAPIQPS:                50,
			KubeAPIBurst:              100,
			ContentType:               "application/vnd.kubernetes.protobuf",
			EventRecordQPS:            50,
			EventBurst:                100,
		},
	}
}

func seconds(n int) metav1.Duration {
	return metav1.Duration{Duration: time.Duration(n) * time.Second}
}

// Thresholds returns the eviction settings as thresholds of package eviction.
func (s Settings) Thresholds() ([]eviction.Threshold, error) {
	return eviction.ParseThresholds(eviction.ThresholdSettings{
		EvictionHard:                 s.EvictionHard,
		EvictionSoft:                 s.EvictionSoft,
		EvictionSoftGracePeriod:      s.EvictionSoftGracePeriod,
		EvictionMinimumReclaim:       s.EvictionMinimumReclaim,
		EnforceNodeAllocatable:       s.EnforceNodeAllocatable,
		MergeDefaultEvictionSettings: s.MergeDefaultEvictionSettings,
		GOOS:                         runtime.GOOS,
	})
}
