package podrunner_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/internal/printable"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// TestPlan reads situations from testdata/plan. A case is
//
//	plan policy=Never [hostnetwork] [deleted] [restarting] [qos=Burstable]
//	spec init fetch                   an init container of the spec; "sidecar" and
//	                                  "ephemeral" are the other kinds
//	spec app [never|onfailure|always] a container, with a policy of its own, and
//	         [restart-on 42]          a rule for an exit code; or
//	         [restart-all-on 42]      a rule that restarts all containers
//	         [startup] [liveness]     its probes
//	         [memory=9 quota=9 shares=9] the desired resources of its cgroup
//	         [restart-for memory]     its resize policy
//	         [asks]                   has requests, and so is Burstable
//	sandbox 1 notready                newest first; "noip", "hostnetwork" as words;
//	                                  "replaced" by a requested restart
//	app 2 exited 137 [in 0] [old]     restart count, state, code; in an older sandbox;
//	                                  made from an older definition, or by a "kubelet",
//	                                  or by a "kubelet-other" from another image
//	    [oom] [in-second 9]           OOM killed; when it ended
//	    [started] [startup-failed] [liveness-failed]  its probe results
//	    [memory=9 quota=9 shares=9]   the current resources of its cgroup
//	cgroups memory=9 to memory=10     the current and the desired resources of the pod's cgroup
//	forgotten app 3                   its next restart count according to its logs
//	backoff app 20s                   the back-off of the container, or of "sandbox"
func TestPlan(t *testing.T) {
	datadriven.Walk(t, "testdata/plan", func(t *testing.T, path string) {
		t.Helper()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			require.Equal(t, "plan", d.Cmd)
			return podrunner.Plan(newSituation(t, d).input()).String()
		})
	})
}

// situation is a pod, its state in the runtime, and its back-offs.
type situation struct {
	pod       *corev1.Pod
	status    *podcache.Status
	backoff   map[string]time.Duration
	probes    map[string]podrunner.ProbeResults // by id
	forgotten map[string]uint32
	// restarting reports whether all containers were being restarted.
	restarting bool
	// replaced is the sandbox that a requested restart replaces.
	replaced  string
	wanted    map[string]*runtimeapi.LinuxContainerResources
	resources podrunner.Resources
}

func (s *situation) input() podrunner.Input {
	in := podrunner.Input{
		Pod: s.pod, Status: s.status, Backoff: s.until, Resources: s.resources,
		Probes:   func(id string) podrunner.ProbeResults { return s.probes[id] },
		Attempts: func(name string) uint32 { return s.forgotten[name] }, Restarting: s.restarting, Replaced: s.replaced,
	}
	in.Resources.Container = func(c *corev1.Container) *runtimeapi.LinuxContainerResources { return s.wanted[c.Name] }
	return in
}

func newSituation(tb testing.TB, d *datadriven.TestData) *situation {
	tb.Helper()
	s := &situation{
		pod:     testPod(),
		status:  &podcache.Status{UID: "uid", SandboxOf: map[string]string{}},
		backoff: map[string]time.Duration{},
		probes:  map[string]podrunner.ProbeResults{}, forgotten: map[string]uint32{},
		wanted: map[string]*runtimeapi.LinuxContainerResources{},
	}
	if d.HasArg("qos") {
		var class string
		d.ScanArgs(tb, "qos", &class)
		s.pod.Status.QOSClass = corev1.PodQOSClass(class)
	}
	if d.HasArg("policy") {
		var policy string
		d.ScanArgs(tb, "policy", &policy)
		s.pod.Spec.RestartPolicy = corev1.RestartPolicy(policy)
	}
	s.pod.Spec.HostNetwork, s.restarting = d.HasArg("hostnetwork"), d.HasArg("restarting")
	if d.HasArg("deleted") {
		s.pod.DeletionTimestamp = &metav1.Time{}
	}
	for line := range strings.Lines(d.Input) {
		words := strings.Fields(line)
		switch words[0] {
		case "spec":
			s.addSpec(tb, words[1:])
		case "sandbox":
			s.addSandbox(tb, words[1:])
		case "backoff":
			delay, err := time.ParseDuration(words[2])
			require.NoError(tb, err)
			s.backoff[words[1]] = delay
		case "forgotten":
			next, err := strconv.ParseUint(words[2], 10, 32)
			require.NoError(tb, err)
			s.forgotten[words[1]] = uint32(next)
		case "cgroups":
			to := slices.Index(words, "to")
			s.resources.PodNow, s.resources.PodWanted = linuxResources(tb, words[1:to]), linuxResources(tb, words[to+1:])
		default:
			s.addContainer(tb, words)
		}
	}
	podcache.SortContainers(s.status.Containers)
	return s
}

func testPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "ns", UID: "uid"},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways},
	}
}

func (s *situation) addSpec(tb testing.TB, words []string) {
	tb.Helper()
	kind := words[0]
	if kind == "init" || kind == "sidecar" || kind == "ephemeral" {
		words = words[1:]
	}
	c := corev1.Container{Name: words[0], Image: "image"}
	if kind == "sidecar" {
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	}
	for i := 1; i < len(words); i++ {
		switch w := words[i]; w {
		case "never":
			c.RestartPolicy = new(corev1.ContainerRestartPolicyNever)
		case "onfailure":
			c.RestartPolicy = new(corev1.ContainerRestartPolicyOnFailure)
		case "always":
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		case "restart-on", "restart-all-on":
			i++
			c.RestartPolicyRules = append(c.RestartPolicyRules, rule(tb, w, words[i]))
		case "startup":
			c.StartupProbe = &corev1.Probe{}
		case "liveness":
			c.LivenessProbe = &corev1.Probe{}
		case "asks":
			c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		case "restart-for":
			i++
			c.ResizePolicy = append(c.ResizePolicy, corev1.ContainerResizePolicy{
				ResourceName: corev1.ResourceName(words[i]), RestartPolicy: corev1.RestartContainer,
			})
		default:
			if s.wanted[c.Name] == nil {
				s.wanted[c.Name] = &runtimeapi.LinuxContainerResources{}
			}
			addResource(tb, s.wanted[c.Name], w)
		}
	}
	switch kind {
	case "init", "sidecar":
		s.pod.Spec.InitContainers = append(s.pod.Spec.InitContainers, c)
	case "ephemeral":
		s.pod.Spec.EphemeralContainers = append(s.pod.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(c)})
	default:
		s.pod.Spec.Containers = append(s.pod.Spec.Containers, c)
	}
}

func rule(tb testing.TB, word, code string) corev1.ContainerRestartRule {
	tb.Helper()
	action := map[string]corev1.ContainerRestartRuleAction{
		"restart-on": corev1.ContainerRestartRuleActionRestart, "restart-all-on": corev1.ContainerRestartRuleActionRestartAllContainers,
	}[word]
	n, err := strconv.ParseInt(code, 10, 32)
	require.NoError(tb, err)
	return corev1.ContainerRestartRule{Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
		Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{int32(n)},
	}}
}

func linuxResources(tb testing.TB, words []string) *runtimeapi.LinuxContainerResources {
	tb.Helper()
	r := &runtimeapi.LinuxContainerResources{}
	for _, w := range words {
		addResource(tb, r, w)
	}
	return r
}

func addResource(tb testing.TB, r *runtimeapi.LinuxContainerResources, word string) {
	tb.Helper()
	name, value, _ := strings.Cut(word, "=")
	n, err := strconv.ParseInt(value, 10, 64)
	require.NoError(tb, err, word)
	switch name {
	case "memory":
		r.MemoryLimitInBytes = n
	case "shares":
		r.CpuShares = n
	case "quota":
		r.CpuQuota, r.CpuPeriod = n, 100_000
	case "period":
		r.CpuPeriod = n
	default:
		tb.Fatalf("unknown word %q", word)
	}
}

func (s *situation) addSandbox(tb testing.TB, words []string) {
	tb.Helper()
	attempt, err := strconv.ParseUint(words[0], 10, 32)
	require.NoError(tb, err)
	box := &runtimeapi.PodSandboxStatus{
		Id:       "box" + words[0],
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Attempt: uint32(attempt)},
		Network:  &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_POD},
		}},
	}
	for _, w := range words[1:] {
		switch w {
		case "ready":
		case "replaced":
			s.replaced = box.Id
		case "notready":
			box.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		case "noip":
			box.Network.Ip = ""
		case "hostnetwork":
			box.Network.Ip = ""
			box.Linux.Namespaces.Options.Network = runtimeapi.NamespaceMode_NODE
		default:
			tb.Fatalf("unknown word %q", w)
		}
	}
	s.status.Sandboxes = append(s.status.Sandboxes, box)
}

func (s *situation) addContainer(tb testing.TB, words []string) {
	tb.Helper()
	name, count := words[0], words[1]
	c := &runtimeapi.ContainerStatus{
		Id:          name + count,
		Metadata:    &runtimeapi.ContainerMetadata{Name: name},
		Labels:      map[string]string{crilabels.ContainerName: name},
		Annotations: map[string]string{crilabels.RestartCount: count},
		FinishedAt:  int64(time.Minute),
	}
	for _, spec := range s.allSpecs() {
		if spec.Name == name {
			c.Annotations[crilabels.Definition] = podspec.ContainerHash(spec)
		}
	}
	box := "none"
	if len(s.status.Sandboxes) > 0 {
		box = s.status.Sandboxes[0].GetId()
	}
	for i := 2; i < len(words); i++ {
		switch words[i] {
		case "created":
		case "broken-off":
			c.State, c.ExitCode, c.Reason, c.Message = runtimeapi.ContainerState_CONTAINER_EXITED, 128, "StartError", "failed to create task: context canceled"
		case "running":
			c.State = runtimeapi.ContainerState_CONTAINER_RUNNING
		case "unknown":
			c.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
		case "weird":
			c.State = 17
		case "exited":
			c.State = runtimeapi.ContainerState_CONTAINER_EXITED
			i++
			_, err := fmt.Sscan(words[i], &c.ExitCode)
			require.NoError(tb, err)
		case "in":
			i++
			box = "box" + words[i]
		case "oom":
			c.Reason = "OOMKilled"
		case "in-second":
			i++
			second, err := strconv.ParseInt(words[i], 10, 64)
			require.NoError(tb, err)
			c.FinishedAt = second * int64(time.Second)
		case "old":
			c.Annotations[crilabels.Definition] = "0123456789abcdef"
		case "kubelet", "kubelet-other":
			delete(c.Annotations, crilabels.Definition)
			from := corev1.Container{Name: name, Image: "another"}
			for _, spec := range s.allSpecs() {
				if spec.Name == name && words[i] == "kubelet" {
					from.Image = spec.Image
				}
			}
			c.Annotations[crilabels.Hash] = podspec.KubeletHash(&from)
		case "started":
			s.probes[c.Id] = podrunner.ProbeResults{Started: true}
		case "startup-failed":
			s.probes[c.Id] = podrunner.ProbeResults{StartupFailed: true}
		case "liveness-failed":
			s.probes[c.Id] = podrunner.ProbeResults{Started: true, LivenessFailed: true}
		case "nohash":
			delete(c.Annotations, crilabels.Definition)
		default:
			if c.Resources == nil {
				c.Resources = &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{}}
			}
			addResource(tb, c.Resources.Linux, words[i])
		}
	}
	s.status.SandboxOf[c.Id] = box
	s.status.Containers = append(s.status.Containers, c)
}

// allSpecs returns the containers of all kinds.
func (s *situation) allSpecs() (all []*corev1.Container) {
	for c := range podspec.Containers(&s.pod.Spec) {
		all = append(all, c)
	}
	for i := range s.pod.Spec.EphemeralContainers {
		all = append(all, podspec.Ephemeral(&s.pod.Spec.EphemeralContainers[i]))
	}
	return all
}

func (s *situation) until(key string, since time.Time) (time.Time, time.Duration, bool) {
	name := strings.Split(key, "/")[1]
	delay, ok := s.backoff[name]
	return since.Add(delay), delay, ok
}

func TestActions_StringPrintsALinePerActionWhateverItsNames(t *testing.T) {
	t.Parallel()
	const hostile = "x\nremove forged\r\x1b[2J\u009b31m\u202e\u2028y\u2029\x00\xffz"
	a := podrunner.Actions{
		Kill:    []podrunner.Kill{{ID: hostile, Name: hostile, Reason: hostile}},
		Remove:  []podrunner.Remove{{ID: hostile, Name: hostile, Reason: hostile}},
		Update:  []podrunner.Resize{{ID: hostile, Name: hostile, To: &runtimeapi.LinuxContainerResources{CpuShares: 2}}},
		Start:   []podrunner.Start{{Name: hostile, Reason: hostile}},
		Waiting: map[string]corev1.ContainerStateWaiting{hostile: {Reason: hostile, Message: hostile}},
	}
	text := a.String()
	require.Equal(t, printable.Lines(text, ""), text)
	require.Equal(t, 5, strings.Count(text, "\n"), text)
}
