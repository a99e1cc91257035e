package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A world is a configuration file.
type world struct {
	Lines []line
	Tail  string

	dir      string                                    // the file's directory
	accepted kubeletconfigv1beta1.KubeletConfiguration // the kubelet's result, valid or not
}

// longest is the largest file, in bytes, that our package reads.
const longest = 1 << 20

// A line sets one field. Value is JSON or a plain YAML scalar.
type line struct{ Name, Value string }

func (w *world) text() string {
	var b strings.Builder
	for _, l := range w.Lines {
		fmt.Fprintf(&b, "%s: %s\n", l.Name, l.Value)
	}
	return b.String() + w.Tail
}

func (w *world) String() string { return w.text()[:min(len(w.text()), 5000)] }

// value returns the first value that the file sets for a field.
func (w *world) value(name string) (value string, ok bool) {
	for _, l := range w.Lines {
		if l.Name == name {
			return l.Value, true
		}
	}
	return "", false
}

// fieldTypes returns the fields of a KubeletConfiguration with their types.
func fieldTypes() map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for f := range reflect.TypeFor[kubeletconfigv1beta1.KubeletConfiguration]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			fields[name] = f.Type
		}
	}
	return fields
}

// ourTypes returns the fields that our package supports, with their types.
func ourTypes() map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for f := range reflect.TypeFor[kubeletconfig.Settings]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			fields[name] = f.Type
		}
	}
	return fields
}

// leftOut returns the fields that no world sets, with the reason.
func leftOut() map[string]string {
	return map[string]string{
		"failCgroupV1":         "the kubelet's validation depends on the machine",
		"singleProcessOOMKill": "the kubelet's validation depends on the machine",
	}
}

func newWorld(d *judge.Draw) *world {
	types := fieldTypes()
	names := slices.Sorted(maps.Keys(types))
	names = slices.DeleteFunc(names, func(n string) bool { return leftOut()[n] != "" })
	w := &world{}
	header := []line{{"apiVersion", "kubelet.config.k8s.io/v1beta1"}, {"kind", "KubeletConfiguration"}}
	if d.Chance(4) {
		i := d.Int(2)
		header[i].Value = judge.Pick(d, `""`, "v1", "kubelet.config.k8s.io/v1", "KubeletConfigurations")
	}
	w.Lines = header[d.Int(100)/99:] // one file in a hundred has no apiVersion
	var theme []string
	if d.Chance(35) {
		theme = themes()[d.Int(len(themes()))]
	}
	for range judge.Pick(d, 1, 0, 1, 2, 3, 5) + len(theme) {
		name := pickField(d, names)
		if len(theme) > 0 {
			name, theme = theme[0], theme[1:]
		}
		value := drawValue(d, types[name], name, 2)
		if _, twice := w.value(name); twice && !d.Chance(10) {
			continue
		}
		switch {
		case types[name] == reflect.TypeFor[metav1.Duration]() && d.Chance(6):
			value = "null"
		case types[name].Kind() == reflect.Int32 && d.Chance(4):
			value = "!!int x"
		case d.Chance(2):
			value = judge.Pick(d, "null", `"text"`, "7", "true", "[]", "{}", "[1]", `{"a":"b"}`, "1.5", "yes", "~", "0x10", "&a 7", "*a", "{[1]: 2}",
				"1_000", "0o17", strings.Repeat("z", 59+d.Int(4)), `{"a":"b","a":"c"}`, "2147483648", "-2147483649", "!!str 5", "!!int x")
		case d.Chance(2):
			name = strings.ToUpper(name[:1]) + name[1:]
		case d.Chance(2):
			name, value = judge.Pick(d, "unheardOf", "max_pods"), judge.Pick(d, value, "null")
		}
		w.Lines = append(w.Lines, line{name, value})
		if partner := partners()[name]; partner != "" && d.Chance(50) {
			if _, twice := w.value(partner); !twice {
				w.Lines = append(w.Lines, line{partner, drawValue(d, types[partner], partner, 2)})
			}
		}
	}
	if d.Chance(3) {
		w.Tail = judge.Pick(d, "---\n", "---\na: b\n", "]\n", "\tx\n", "# end\n")
	}
	switch d.Int(150) {
	case 148:
		w.Lines, w.Tail = nil, judge.Pick(d, "", "# nothing\n", "[]\n", "text\n", "null\n", "{}\n")
	case 149:
		w.Tail = "# "
		w.Tail += strings.Repeat("x", longest-len(w.text())+d.Int(2))
	}
	return w
}

// themes are groups of fields that are validated together, or fields with many conditions.
func themes() [][]string {
	return [][]string{
		{"shutdownGracePeriod", "shutdownGracePeriodCriticalPods", "shutdownGracePeriodByPodPriority"},
		{"systemReserved", "kubeReserved"},
		{"staticPodURL", "staticPodURLHeader"},
		{"crashLoopBackOff"},
		{"enforceNodeAllocatable"},
		{"tlsCertFile", "tlsPrivateKeyFile"},
		{"authentication", "authorization"},
		{"tlsCipherSuites", "tlsMinVersion", "tlsCurvePreferences"},
		{"healthzBindAddress", "healthzPort", "readOnlyPort"},
		{"staticPodPath", "resolvConf", "podLogsDir"},
		{"evictionHard", "mergeDefaultEvictionSettings"},
		{"clusterDNS", "clusterDomain"},
		{"maxPods", "podsPerCore"},
		{"imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "imageMinimumGCAge", "imageMaximumGCAge"},
		{"cgroupsPerQOS", "cgroupRoot", "cgroupDriver", "podPidsLimit"},
		{"serializeImagePulls", "maxParallelImagePulls", "registryPullQPS", "registryBurst"},
		{"imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist"},
		{"allowedUnsafeSysctls"},
		{"containerLogMaxSize", "containerLogMaxFiles", "containerLogMaxWorkers", "containerLogMonitorInterval"},
		{"cpuCFSQuotaPeriod", "volumeStatsAggPeriod"},
	}
}

// partners maps a field to a field that is validated with it.
func partners() map[string]string {
	return map[string]string{
		"tlsCertFile": "tlsPrivateKeyFile", "staticPodURLHeader": "staticPodURL", "shutdownGracePeriodByPodPriority": "shutdownGracePeriod",
		"shutdownGracePeriod": "shutdownGracePeriodCriticalPods", "evictionSoft": "evictionSoftGracePeriod", "podPidsLimit": "cgroupRoot",
		"preloadedImagesVerificationAllowlist": "imagePullCredentialsVerificationPolicy", "maxParallelImagePulls": "serializeImagePulls",
	}
}

// pickField draws a field. Fields that are validated together are more likely.
func pickField(d *judge.Draw, names []string) string {
	if d.Chance(40) {
		return judge.Pick(d, "maxPods", "podsPerCore", "imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "imageMinimumGCAge", "imageMaximumGCAge",
			"shutdownGracePeriod", "shutdownGracePeriodCriticalPods", "shutdownGracePeriodByPodPriority", "serializeImagePulls", "maxParallelImagePulls",
			"cgroupsPerQOS", "cgroupRoot", "enforceNodeAllocatable", "tlsCertFile", "tlsPrivateKeyFile", "staticPodURL", "staticPodURLHeader",
			"imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist", "podLogsDir", "containerLogMaxFiles", "podPidsLimit", "cpuCFSQuotaPeriod",
			"evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim", "crashLoopBackOff", "port", "cgroupDriver")
	}
	return names[d.Int(len(names))]
}

func quoted(s string) string {
	data, _ := json.Marshal(s) // the marshalling of a string never fails
	return string(data)
}

// drawValue draws a value of a type as JSON. The value is often valid.
func drawValue(d *judge.Draw, t reflect.Type, name string, depth int) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if name == "featureGates" || name == "logging" || name == "tracing" {
		return "{}" // a type that our package ignores; the kubelet panics on an unknown feature gate
	}
	if t == reflect.TypeFor[metav1.Duration]() {
		return quoted(judge.Pick(d, "30s", "1m0s", "0s", "1s", "999ms", "3s", "2m0s", "5m0s", "300s", "301s", "-1s", "1h0m0s", "100ms", "1ms", "2s", "x", ""))
	}
	switch t.Kind() {
	case reflect.Bool:
		return fmt.Sprint(d.Chance(50))
	case reflect.Int32, reflect.Int64, reflect.Int:
		return judge.Pick(d, "1", "0", "2", "5", "80", "85", "100", "101", "-1", "-2", "10250", "65535", "65536", "2147483647", "2147483648", "1.5", "1e2")
	case reflect.Float64:
		return judge.Pick(d, "0.5", "1", "0", "1.1")
	case reflect.Slice:
		var items []string
		for range d.Int(3) {
			items = append(items, drawValue(d, t.Elem(), name, depth-1))
		}
		return "[" + strings.Join(items, ",") + "]"
	case reflect.Map:
		return drawMap(d, t, name, depth)
	case reflect.Struct:
		if depth <= 0 {
			return "{}"
		}
		var members []string
		for f := range t.Fields() {
			member, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if member != "" && member != "-" && d.Chance(50) {
				members = append(members, quoted(member)+":"+drawValue(d, f.Type, member, depth-1))
			}
		}
		return "{" + strings.Join(members, ",") + "}"
	default:
		return quoted(drawString(d, name))
	}
}

func drawMap(d *judge.Draw, t reflect.Type, name string, depth int) string {
	var members []string
	seen := map[string]bool{}
	for range d.Int(3) {
		key := judge.Pick(d, "cpu", "memory", "ephemeral-storage", "pid", "x")
		value := quoted(judge.Pick(d, "100m", "1Gi", "0", "-1", "10", "x", ""))
		switch {
		case strings.HasPrefix(name, "eviction"):
			key = judge.Pick(d, "memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "pid.available")
			value = quoted(judge.Pick(d, "10%", "100Mi", "1m", "5%"))
			if name == "evictionSoftGracePeriod" {
				value = quoted(judge.Pick(d, "1m30s", "1s"))
			}
		case t.Elem().Kind() != reflect.String:
			value = drawValue(d, t.Elem(), name, depth-1)
		}
		if name == "staticPodURLHeader" {
			key = judge.Pick(d, "Authorization", "X-A", "bad name", "")
		}
		if !seen[key] {
			members = append(members, quoted(key)+":"+value)
		}
		seen[key] = true
	}
	return "{" + strings.Join(members, ",") + "}"
}

func drawString(d *judge.Draw, name string) string {
	known := map[string][]string{
		"staticPodURL":                           {"http://host/pods", "https://host/x", "ftp://host", "host"},
		"address":                                {"127.0.0.1", "0.0.0.0", "::", "x"},
		"containerRuntimeEndpoint":               {"unix:///run/x.sock", "/run/x.sock", "tcp://host:1", "npipe:x"},
		"clusterDNS":                             {"10.0.0.10", "fd00::1", "x"},
		"clusterDomain":                          {"cluster.local", "cluster.local.", "Bad_Name"},
		"resolvConf":                             {"/etc/resolv.conf", "", "relative"},
		"enforceNodeAllocatable":                 {"pods", "none", "system-reserved", "kube-reserved", "x", "system-reserved-compressible"},
		"cgroupRoot":                             {"/", "/kube", "kube", "/a/../b", ""},
		"cgroupDriver":                           {"cgroupfs", "systemd", "x"},
		"imagePullCredentialsVerificationPolicy": {"NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify", "x"},
		"preloadedImagesVerificationAllowlist":   {"registry.example.com/a", "registry.example.com/*", "*", "a b", ""},
		"podLogsDir":                             {"/var/log/pods", "/var/log/../x", "relative", "/var/log/é"},
		"containerLogMaxSize":                    {"10Mi", "1", "-1", "x", ""},
		"allowedUnsafeSysctls":                   {"kernel.msg*", "net.core.somaxconn", "a*b", "", "kernel/msg*"},
		"healthzBindAddress":                     {"127.0.0.1", "::1", "localhost"},
		"tlsMinVersion":                          {"VersionTLS12", "VersionTLS13", "VersionTLS10", "", "TLS12"},
		"tlsCipherSuites":                        {"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", "TLS_RSA_WITH_RC4_128_SHA", "x"},
		"mode":                                   {"AlwaysAllow", "Webhook", "x"},
		"clientCAFile":                           {"/ca.crt", "", "relative"},
		"tlsCertFile":                            {"/a.crt", ""},
		"tlsPrivateKeyFile":                      {"/a.key", ""},
		"topologyManagerPolicy":                  {"none", "restricted", "x"},
		"hairpinMode":                            {"none", "promiscuous-bridge", "x"},
		"effect":                                 {"NoSchedule", "x"},
		"swapBehavior":                           {"NoSwap", "LimitedSwap", "x"},
		"memoryReservationPolicy":                {"None", "TieredReservation", "x"},
		"topologyManagerScope":                   {"pod", "container", "x"},
	}[name]
	if len(known) > 0 && d.Chance(90) {
		return known[d.Int(len(known))]
	}
	return judge.Pick(d, "a", "", "/a", "1", "1Gi", "x y")
}
