package podsource

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// addProblems adds a fact for each field that is wrong.
func addProblems(f judge.Facts, prefix string, errs field.ErrorList) {
	for _, err := range errs {
		f[prefix+"problem "+fieldOf(err)] = "yes"
	}
}

// fieldOf returns the path of a problem without what the two sides write differently:
// indexes and keys, but for the index of a container. Where the two sides have another
// path for the same check, it is ours. Where they have one path for several checks,
// what is wrong stands behind it.
func fieldOf(err *field.Error) string {
	path := withoutIndexes(err.Field)
	parent, last, _ := cutLast(path)
	switch {
	case path == "" && strings.Contains(err.Detail, "resource claims"):
		return "spec.resourceClaims"
	case strings.Contains(err.Detail, "conflicting duplicate paths"):
		return "spec.volumes.projected paths"
	case parent == "spec.volumes" && strings.Contains(err.Detail, "more than 1 volume type"):
		return parent
	case strings.HasPrefix(path, "spec.initContainers[") && strings.HasSuffix(path, ".ports.hostPort") && err.Type == field.ErrorTypeDuplicate:
		return "spec.initContainers.ports.hostPort Duplicate"
	case isHandler(parent) && slices.Contains([]string{"exec", "httpGet", "tcpSocket", "grpc", "sleep"}, last):
		if err.Type == field.ErrorTypeForbidden {
			return parent // more than one thing to do
		}
		if last == "sleep" {
			return path + ".seconds"
		}
	case last == "httpHeaders":
		return path + ".name"
	case strings.HasSuffix(path, ".valueFrom.fieldRef.fieldPath"), strings.HasSuffix(path, ".valueFrom.resourceFieldRef.resource"), strings.HasSuffix(path, ".volumeDevices.name"):
		return path + " " + strings.TrimPrefix(string(err.Type), "FieldValue")
	case path == "spec.dnsConfig":
		return "spec.dnsConfig.nameservers Required"
	case path == "spec.volumes.projected.sources.serviceAccountToken.path":
		return "spec.volumes.projected.path"
	case strings.HasSuffix(parent, ".envFrom") && (last == "configMapRef" || last == "secretRef"):
		return parent
	case strings.HasSuffix(path, ".resources.limits"), strings.HasSuffix(path, ".resources.requests"):
		return path + " " + amountCheck(err)
	case strings.HasSuffix(path, ".hostPort"), path == "spec.dnsConfig.nameservers", strings.HasSuffix(path, ".volumeMounts.name"), strings.HasSuffix(path, ".ports.name"), path == "spec.volumes.name":
		return path + " " + strings.TrimPrefix(string(err.Type), "FieldValue")
	}
	for _, api := range []string{"spec.volumes.downwardAPI.", "spec.volumes.projected.sources.downwardAPI."} {
		if rest, ok := strings.CutPrefix(path, api); ok && !strings.HasPrefix(rest, "items.") && rest != "defaultMode" {
			return api + "items." + rest
		}
	}
	return path
}

// amountCheck returns which check of a resource has failed.
func amountCheck(err *field.Error) string {
	detail := err.Detail
	above := strings.Contains(detail, "must not be more than") || strings.Contains(detail, "must be less than or equal to")
	switch {
	case strings.Contains(detail, "negative"), strings.Contains(detail, "greater than or equal to 0"):
		return "negative"
	case strings.Contains(detail, "must be equal to"), above && !overcommits(err.Field):
		return "not the limit"
	case above:
		return "above limit"
	default:
		return "name"
	}
}

// overcommits reports whether the resource at a path may have a request other than its
// limit: any but huge pages and extended resources.
func overcommits(path string) bool {
	return !strings.Contains(path, "hugepages-") && (!strings.Contains(path, "/") || strings.Contains(path, "kubernetes.io/"))
}

func isHandler(path string) bool {
	return strings.HasSuffix(path, "Probe") || strings.HasSuffix(path, ".postStart") || strings.HasSuffix(path, ".preStop")
}

func cutLast(path string) (parent, last string, ok bool) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// withoutIndexes removes what is in brackets, but for the index of a container.
func withoutIndexes(path string) string {
	var b strings.Builder
	for rest := path; ; {
		before, after, ok := strings.Cut(rest, "[")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		inside, after, _ := strings.Cut(after, "]")
		if b.String() == "spec.containers" || b.String() == "spec.initContainers" {
			b.WriteString("[" + inside + "]")
		}
		rest = after
	}
}

// A group is a set of fields that ours does not check and the kubelet does.
type group struct {
	name     string
	class    judge.Class
	item     string
	sentence string
	paths    []string // patterns of paths in which a container is "container"
}

// volumeSources returns the names of all kinds of volume sources.
func volumeSources() []string {
	return slices.Sorted(maps.Keys(fieldsOf(reflect.TypeFor[corev1.VolumeSource]())))
}

// containerPath replaces what names a container by "container".
func containerPath(path string) string {
	for _, prefix := range []string{"spec.initContainers[", "spec.containers["} {
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			_, rest, _ = strings.Cut(rest, "]")
			return "container" + rest
		}
	}
	return path
}

// matcher returns a function that reports whether a path is in the group.
func (g group) matcher() func(path string) bool {
	pattern := regexp.MustCompile("^(?:" + strings.Join(g.paths, "|") + ")$")
	return func(path string) bool { return pattern.MatchString(containerPath(path)) }
}

// groups are the fields that ours leaves unchecked.
func groups() []group {
	return []group{
		{
			name: "security context", class: judge.DefectOfOurs, item: "new",
			sentence: "The kubelet validates the rest of a security context; ours accepts whatever it holds.",
			paths:    []string{`(container|spec)\.securityContext(\..*)?`, `spec\.hostUsers`, `spec\.Host(PID|IPC)`, `spec`},
		},
		{
			name: "file modes", class: judge.DefectOfOurs, item: "new",
			sentence: "The kubelet refuses a mode of a volume's file above 0777 or below 0; ours accepts it.",
			paths:    []string{`spec\.volumes\.(secret|configMap|downwardAPI|projected)\.defaultMode`, `spec\.volumes\.(projected\.sources\.)?(secret|configMap|downwardAPI)\.items\.mode`},
		},
		{
			name: "volume sources", class: judge.DefectOfOurs, item: "new",
			sentence: "The kubelet validates the fields of every kind of volume source; ours those of hostPath and emptyDir and the paths of files.",
			paths: []string{
				`spec\.volumes\.(persistentDisk|awsElasticBlockStore|gitRepo|nfs|iscsi|glusterfs|persistentVolumeClaim|rbd|flexVolume|cinder|cephfs|cephFS|flocker|fc|azureFile|azureDisk|vsphereVolume|quobyte|photonPersistentDisk|portworxVolume|scaleIO|storageos|csi|ephemeral|image)\..*`,
				`spec\.volumes\.projected paths`, `spec\.volumes\.(` + strings.Join(volumeSources(), "|") + `)`, `spec\.volumes\.hostPath\.type`, `spec\.volumes\.emptyDir\.medium`, `spec\.volumes\.(secret|configMap)\.(name|secretName|items\.key)`,
				`spec\.volumes\.projected\.sources(\.(secret|configMap)\.(name|items\.key))?`, `spec\.volumes\.projected\.sources\.(clusterTrustBundle|podCertificate).*`,
				`spec\.volumes\.projected\.sources\.(secret|configMap|downwardAPI|serviceAccountToken)`,
				`spec\.volumes\.projected\.sources\.serviceAccountToken\.(expirationSeconds|audience)`,
				`spec\.volumes\.(projected\.sources\.)?downwardAPI\.items\.(fieldRef|resourceFieldRef).*`,
			},
		},
		{
			name: "resource names", class: judge.DefectOfOurs, item: "new",
			sentence: "The kubelet refuses resources that a container or a pod cannot have and claims that the pod does not have; ours accepts them.",
			paths:    []string{`container\.resources\.claims.*`, `container\.resources`, `(container|spec)\.resources\.(limits|requests) name`, `container\.resizePolicy.*`, `spec\.resources(\.claims.*|\.containers.*)?`, `spec\.resourceClaims.*`, `spec\.overhead.*`},
		},
		{
			name: "references to fields", class: judge.DefectOfOurs, item: "new",
			sentence: "The kubelet refuses an environment variable with a path, a divisor or a file that no pod has; ours accepts it.",
			paths:    []string{`container\.env\.valueFrom\.(fieldRef\.(fieldPath (Invalid|NotSupported)|apiVersion)|resourceFieldRef\.(resource (Invalid|NotSupported)|containerName|divisor)|fileKeyRef\.(key|path|volumeName))`, `container\.envFrom\.(prefix|(configMapRef|secretRef)\.name)`},
		},
		{
			name: "names of the host and DNS", class: judge.DefectOfOurs, item: "new",
			sentence: "The kubelet validates the name servers, search paths, aliases and host settings of a pod; ours does not.",
			paths:    []string{`spec\.dnsConfig\.(searches|options)(\..*)?`, `spec\.dnsConfig\.nameservers Invalid`, `spec\.hostAliases.*`, `spec\.hostnameOverride`, `spec\.subdomain`, `spec\.setHostnameAsFQDN`, `spec\.os.*`, `spec\.runtimeClassName`, `spec\.serviceAccountName`, `spec\.imagePullSecrets.*`, `spec\.hostNetwork`, `spec\.shareProcessNamespace`},
		},
		{
			name: "tolerations", class: judge.DefectOfOurs, item: "new",
			sentence: "The kubelet validates tolerations; ours accepts any.",
			paths:    []string{`spec\.tolerations\.(key|operator|value|effect|tolerationSeconds)`},
		},
		{
			name: "scheduling", class: judge.Deliberate,
			sentence: "The kubelet validates affinity, topology spread constraints, node selectors, scheduling gates, priority and readiness gates; ours leaves to the scheduler what only it reads.",
			paths:    []string{`spec\.(affinity|topologySpreadConstraints|nodeSelector|schedulingGates|schedulingGroup|preemptionPolicy|priorityClassName|priority|readinessGates|nodeName)(\..*)?`},
		},
		{
			name: "metadata for the API server", class: judge.Deliberate,
			sentence: "The kubelet validates owners, finalizers, managed fields, the generated name's prefix and the generation; ours leaves them alone, because no API server stores the manifest.",
			paths:    []string{`metadata\.(ownerReferences|finalizers|managedFields|generateName|generation|selfLink)(\..*)?`},
		},
		{
			name: "ephemeral containers", class: judge.Deliberate,
			sentence: "The kubelet validates the ephemeral containers of a manifest before it refuses them; ours refuses them only.",
			paths:    []string{`spec\.ephemeralContainers\..*`},
		},
		{
			name: "handlers and mounts", class: judge.DefectOfOurs, item: "new",
			sentence: "The kubelet validates stop signals, device paths, mount propagation, mounts of a device and recursive read-only mounts; ours accepts any.",
			paths:    []string{`container\.lifecycle\.stopSignal`, `container\.volumeDevices\.devicePath`, `container\.volumeMounts\.(mountPropagation|recursiveReadOnly|name Invalid)`, `container\.volumeDevices\.name (Invalid|Duplicate)`},
		},
	}
}
