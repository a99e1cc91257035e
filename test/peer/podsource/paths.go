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

// addProblems adds a fact for each invalid field.
func addProblems(f judge.Facts, prefix string, errs field.ErrorList) {
	for _, err := range errs {
		f[prefix+"problem "+fieldOf(err)] = "yes"
	}
}

// fieldOf returns the path of a problem in a form that is equal on both sides: without
// indexes and keys, except for the index of a container. If the two sides use different paths
// for the same check, it returns ours. If they use one path for several checks, the check
// follows the path.
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
			return parent // more than one action
		}
		if last == "sleep" {
			return path + ".seconds"
		}
	case path == "spec.HostPID", path == "spec.HostIPC":
		return "spec.h" + strings.TrimPrefix(path, "spec.H")
	case last == "httpHeaders":
		return path + ".name"
	case strings.HasSuffix(path, ".valueFrom.resourceFieldRef.resource"), strings.HasSuffix(path, ".volumeDevices.name"):
		return path + " " + strings.TrimPrefix(string(err.Type), "FieldValue")
	case path == "spec.dnsConfig":
		return "spec.dnsConfig.nameservers Required"
	case path == "spec.volumes.projected.sources.serviceAccountToken.path":
		return "spec.volumes.projected.path"
	case strings.HasSuffix(parent, ".envFrom") && (last == "configMapRef" || last == "secretRef"):
		return parent
	case path == "spec.overhead.limits", strings.HasSuffix(path, ".resources.limits"), strings.HasSuffix(path, ".resources.requests"):
		return path + " " + amountCheck(err)
	case strings.HasSuffix(path, ".hostPort"), path == "spec.dnsConfig.nameservers", strings.HasSuffix(path, ".volumeMounts.name"), strings.HasSuffix(path, ".ports.name"), path == "spec.volumes.name":
		return path + " " + strings.TrimPrefix(string(err.Type), "FieldValue")
	}
	if (path == "spec.volumes.downwardAPI" || path == "spec.volumes.projected.sources.downwardAPI") && err.Type != field.ErrorTypeForbidden {
		return path + ".items"
	}
	for _, api := range []string{"spec.volumes.downwardAPI.", "spec.volumes.projected.sources.downwardAPI."} {
		if rest, ok := strings.CutPrefix(path, api); ok && !strings.HasPrefix(rest, "items.") && rest != "defaultMode" && rest != "items" {
			return api + "items." + rest
		}
	}
	return path
}

// amountCheck returns which check of a resource failed.
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

// overcommits reports whether the resource at a path may have a request that differs from its
// limit: any except huge pages and extended resources.
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

// withoutIndexes removes brackets with their content, except for the index of a container.
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

// A group is a set of fields that only the kubelet validates.
type group struct {
	name     string
	class    judge.Class
	sentence string
	paths    []string // path patterns in which "container" stands for any container
}

// unmountedSources returns the names of the volume types that our agent does not mount.
func unmountedSources() []string {
	mounted := []string{"configMap", "downwardAPI", "emptyDir", "hostPath", "image", "projected", "secret"}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(fieldsOf(reflect.TypeFor[corev1.VolumeSource]()))), func(kind string) bool {
		return slices.Contains(mounted, kind)
	})
}

const neverRunSentence = "The kubelet validates these fields and sets their defaults: volumes of kinds that ours does not mount, resource claims, block devices, variables from files, and settings for Windows; ours ignores the settings for Windows, and refuses a pod with any of the other fields at admission."

// containerPath replaces the path of a container with "container".
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

// groups returns the fields that our source does not validate.
func groups() []group {
	return []group{
		{
			name: "validation of unsupported fields", class: judge.Deliberate,
			sentence: neverRunSentence,
			paths: []string{
				`spec\.volumes\.(` + strings.Join(unmountedSources(), "|") + `|persistentDisk|cephFS)(\..*)?`,
				`spec\.volumes\.projected\.sources\.(clusterTrustBundle|podCertificate).*`,
				`spec\.resourceClaims.*`, `(container|spec)\.resources\.claims.*`,
				`container\.volumeDevices.*`, `container\.volumeMounts\.name Invalid`, `container\.env\.valueFrom\.fileKeyRef.*`,
				`(container|spec)\.securityContext\.windowsOptions.*`, `spec`, `spec\.hostNetwork`,
			},
		},
		{
			name: "validation of scheduling fields", class: judge.Deliberate,
			sentence: "The kubelet validates affinity, topology spread constraints, node selectors, scheduling gates, priority and readiness gates; ours does not validate these fields.",
			paths:    []string{`spec\.(affinity|topologySpreadConstraints|nodeSelector|schedulingGates|schedulingGroup|preemptionPolicy|priorityClassName|priority|readinessGates|nodeName)(\..*)?`},
		},
		{
			name: "validation of API server metadata", class: judge.Deliberate,
			sentence: "The kubelet validates owners, finalizers, managed fields, the generated name's prefix and the generation; ours does not validate these fields, because no API server stores the manifest.",
			paths:    []string{`metadata\.(ownerReferences|finalizers|managedFields|generateName|generation|selfLink)(\..*)?`},
		},
		{
			name: "validation of ephemeral containers", class: judge.Deliberate,
			sentence: "The kubelet validates the ephemeral containers of a manifest before it refuses them; ours refuses them without validation.",
			paths:    []string{`spec\.ephemeralContainers\..*`},
		},
	}
}
